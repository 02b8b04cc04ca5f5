"""Columns about a common centre and in a common unit: means and standard deviations, or medians and what is robust.

Problem
    Entries x_j of all sites become (x_j - c_j) / s_j, cut to [-m, m] if a ``max_value`` m is given.  c_j and s_j are the pooled
    mean and standard deviation (n - 1 in the denominator, as scanpy's ``scale``), or the pooled median and 1.4826 times the
    median size of deviations from it, which gross errors cannot move; of two entries around such a median the lower one is taken.
    Or they are the pooled median and the distance of the pooled quartiles, interpolated between two entries as numpy does it, and
    so scikit-learn's ``RobustScaler``.

Rounds
    "standard": two, as in ``moments.py``.  "robust": one for counts, eight for medians, and up to five more where a column lies
    far from zero for its spread, eight for deviations (``medians.py``).  "iqr": one for counts, eight to come near the medians,
    eight for medians and quartiles (``quartiles.py``).  Then every site is told centre and scale.

Leaves the site
    "standard": n_i and three vectors of length d, summed.  "robust": counts, d x 32 in each round, summed; the median they lead
    to is an entry of some site, known to nine digits, or to all after more rounds.  "iqr": the same, then d x 6 x 32; they lead
    to up to six entries of a column, two around each quartile.

References
    F. A. Wolf, P. Angerer, F. J. Theis, "SCANPY", Genome Biol. 19 (2018): ``scale``.
    P. J. Rousseeuw, C. Croux, "Alternatives to the median absolute deviation", J. Am. Stat. Assoc. 88 (1993).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from ...errors import InputError
from ...numerics.linalg import Array
from ...numerics.preparation import Step
from ...runtime import Local, Reply, Site, Sum, local
from ..medians import CENTRE_ROUNDS, centres, count_parts, medians
from ..method import Part
from ..parameters import check_choice, check_positive
from ..robust.agreement import CONSTANT as NO_DEVIATION
from ..robust.thresholds import NORMAL_MEDIAN
from .keeping import keeping, names_for
from .moments import observed_pairs, observed_sums, pooled_means, pooled_squares
from .quartiles import count_quarters, quartiles

By = Literal["standard", "robust", "iqr"]

CONSTANT = 1e-13
"""A standard deviation below this share of the mean is rounding: the column is constant."""


@local(
    takes={"centre": "d", "scale": "d", "limit": "", "zeros": ""},
    keeps=names_for("scale"),
    means={"centre": "centre", "scale": "scale", "limit": "threshold", "zeros": "count"},
    setup=True,
    once=True,
)
def keep_scale(site: Site, centre: Array, scale: Array, limit: Any, zeros: Any) -> Reply:  # noqa: ARG001
    """Remember centre and scale, where to cut (0 for nowhere), and whether zero stays zero."""
    return keeping("scale", centre=centre, scale=scale, limit=np.float64(limit), zeros=np.bool_(zeros))


@dataclass(frozen=True)
class Scale:
    """Columns about a common centre and in a common unit.  A constant column becomes zero.

    Parameters
    ----------
    by : "standard", "robust" or "iqr"
        Mean and standard deviation (n - 1); or median and 1.4826 times the median deviation, of two middle entries the lower one;
        or median and the distance of the quartiles, interpolated as by numpy and by scikit-learn's ``RobustScaler``.
    max_value : float, optional
        Cut what is larger in size, after scaling.
    center : bool
        False moves each column by a constant such that zero stays zero, so that sparse rows stay sparse.  What ``max_value`` cuts
        is the same.  Components of centred rows (``center="pooled"`` or ``"site"`` of the estimator) are then the same, too.

    Examples
    --------
    >>> import numpy as np, eigenpact as ep
    >>> X = np.random.default_rng(0).normal(size=(60, 4)) * [1, 10, 100, 1000]
    >>> pca = ep.FederatedPCA(2, prepare=[ep.prepare.Scale()]).fit(X, sites=np.arange(60) % 2)
    >>> bool(np.allclose(pca.preparation_[0].apply(X).std(axis=0, ddof=1), 1))
    True
    """

    by: By = "standard"
    max_value: float | None = None
    center: bool = True

    part: ClassVar[Part] = Part(
        "Columns centred and scaled",
        {Sum: (observed_sums, observed_pairs, count_parts, count_quarters), Local: (keep_scale,)},
        'Of `Scale`; `count_parts` runs with `by="robust"` and "iqr", then `count_quarters` with "iqr"; `observed_pairs` with '
        '"standard".',
    )

    @property
    def computes_there(self) -> bool:
        """Whether rows of another array library stay where they lie."""
        return self.by != "iqr"

    def __post_init__(self) -> None:
        check_choice("by", self.by, By)
        if self.max_value is not None:
            check_positive("max_value", self.max_value, ", or None")

    async def agree(self) -> Step:
        """Agree on centre and scale."""
        centre, scale = await (_standard() if self.by == "standard" else _robust(self.by))
        arrays = {
            "centre": centre,
            "scale": scale,
            "limit": np.float64(self.max_value or 0.0),
            "zeros": np.bool_(not self.center),
        }
        await Local(keep_scale, *arrays.values())
        return Step("scale", arrays)


async def _standard() -> tuple[Array, Array]:
    observed, mean, squares = await pooled_squares()
    if not np.all(np.isfinite(squares)):
        raise InputError("the squares of the values overflow; give the data in other units, for example divided by 1e100")
    scale = np.sqrt(squares / np.maximum(observed - 1, 1))
    return mean, np.where(scale > CONSTANT * np.abs(mean), scale, 1.0)


async def _robust(by: By) -> tuple[Array, Array]:
    _, observed, _ = await pooled_means()
    if by == "iqr":
        about = await medians(observed, np.zeros(len(observed)), CENTRE_ROUNDS, deviations=False)
        low, middle, high = (await quartiles(observed, about)).T
        centre, sizes = about + middle, high - low
    else:
        centre = await centres(observed)
        sizes = await medians(observed, centre, CENTRE_ROUNDS, deviations=True) / NORMAL_MEDIAN
    return centre, np.where(sizes > NO_DEVIATION * np.abs(centre), sizes, 1.0)
