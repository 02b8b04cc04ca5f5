"""Missing entries filled with the pooled means of their features, before anything else: ``FederatedPCA(missing="mean")``.

Problem
    Site i holds rows X_i (n_i x d), some entries missing (NaN).  Every site fills its own with the mean of the feature over the
    entries that all sites have of it; what follows is the PCA of the filled rows, by any solver.  Filled entries have no
    variance, so a feature of which many entries are missing counts for less than it should, and correlations with it are too
    small: ``missing="em"`` does not have that fault.

Rounds
    1. Sum of the entries that are there, and how many, by feature; the means are told to all sites, which keep them.

Leaves the site
    Two vectors of length d, summed.  Of a feature of which a site has fewer entries than its rule ``min_rows`` it tells nothing;
    one of which no site tells is refused.

>>> import numpy as np, eigenpact as ep
>>> north, south = np.array([[1.0, 2.0], [3.0, np.nan], [2.0, 9.0]]), np.array([[np.nan, 4.0], [5.0, 6.0]])
>>> pca = ep.FederatedPCA(1, missing="mean").fit({"north": north, "south": south})
>>> pca.mean_.tolist(), pca.preparation_[0].arrays["values"].tolist()
([2.75, 5.25], [2.75, 5.25])
"""

from __future__ import annotations

from dataclasses import dataclass

from ...numerics.linalg import Array
from ...numerics.preparation import Step
from ...runtime import Local, Reply, Site, Sum, local
from ...runtime.prepared import kept_as
from ..method import Part
from ..prepare.moments import observed_sums
from .observed import check_observed

FILLED = kept_as("fill")


@local(takes={"values": "d"}, keeps=(FILLED,), means={"values": "centre"}, setup=True, once=True, holes=True)
def keep_fill(site: Site, values: Array) -> Reply:  # noqa: ARG001
    """Remember what missing entries are filled with."""
    return Reply(keep={FILLED: {"values": values}})


@dataclass(frozen=True)
class MeanFill:
    """Agree on the pooled means, and fill missing entries with them; ``names`` are those of the features, if known."""

    names: tuple[str, ...] = ()

    @property
    def part(self) -> Part:
        """The local functions that it uses."""
        return MEAN_FILL

    async def agree(self) -> Step:
        """Agree on the values; from then on rows have no holes."""
        _, seen, sums = await Sum(observed_sums)
        check_observed(seen, self.names)
        values = sums / seen
        await Local(keep_fill, values)
        return Step("fill", {"values": values})


MEAN_FILL = Part(
    "Missing entries filled with means",
    {Sum: (observed_sums,), Local: (keep_fill,)},
    'Before all else but the dropping of rare features, with `missing="mean"`.',
)
