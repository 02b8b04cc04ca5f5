"""The families of solvers: what all solvers of one have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .graph.network import GraphSolution
from .lacking import COMMON
from .method import FamilyName, Part
from .missing.em import LikelySolution
from .missing.mean import MEAN_FILL
from .missing.observed import OBSERVED
from .personalized.parts import PARTS
from .personalized.start import MERGED_START
from .prepare.batch_adjust import BatchAdjust
from .prepare.genotypes import GenotypeScale
from .prepare.highly_variable import HighlyVariable
from .prepare.log_normalize import LogNormalize
from .prepare.moments import MOMENTS as BEFORE
from .prepare.residualize import RESIDUALIZE
from .prepare.scale import Scale
from .private.moments import MOMENTS
from .rare import RARE
from .robust.agreement import AGREEMENT
from .robust.shares import SHARES
from .robust.solution import RobustSolution
from .rough import ROUGH
from .setup import SETUP
from .solution import Solution
from .start import ONE_SHOT_START


@dataclass(frozen=True, eq=False)
class Family:
    """What the solvers of a family have in common.

    Attributes
    ----------
    estimator : str
        Who takes them.
    returns : type
        What ``fit`` returns.
    always : parts
        Of every run.
    starts : name -> part
        Of runs whose solver begins so.
    on_request : parts
        Of runs in which the user asks for more.
    """

    estimator: str
    returns: type
    always: tuple[Part, ...] = ()
    starts: Mapping[str, Part] = field(default_factory=dict)
    on_request: tuple[Part, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        """All of them."""
        return (*self.always, *dict.fromkeys(self.starts.values()), *self.on_request)


PREPARING = (
    MEAN_FILL,
    BEFORE,
    LogNormalize.part,
    HighlyVariable.part,
    Scale.part,
    GenotypeScale.part,
    RESIDUALIZE,
    BatchAdjust.part,
)
"""What preparers call: sites list these functions in their policies one by one, or not at all."""

JOINT = Family("FederatedPCA", Solution, (SETUP,), {"one-shot": ONE_SHOT_START}, on_request=(RARE, COMMON, ROUGH, *PREPARING))

FAMILIES: dict[FamilyName, Family] = {
    "consensus": JOINT,
    "statistical": JOINT,
    "personalized": Family("PersonalizedPCA", Solution, (SETUP, PARTS), {"distpca": MERGED_START, "covariance": MERGED_START}),
    "robust": Family("RobustPCA", RobustSolution, (AGREEMENT,), on_request=(SHARES,)),
    "graph": Family("GraphKernelPCA", GraphSolution),
    "missing": Family("FederatedPCA(missing='em')", LikelySolution, (OBSERVED,), on_request=(RARE,)),
    "private": Family("PrivatePCA", Solution, (MOMENTS,)),
}
