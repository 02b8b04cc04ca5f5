"""Counts of each row in a common unit, then their logarithms: the usual beginning with single cells.

Problem
    A row x of counts becomes log(1 + x t / sum(x)).  The target t is a number that is given, or the median over all sites of
    the sums of rows that are not empty.  A row's sum is taken from the row itself, so that new rows are treated alike.

Rounds
    With a number, none.  With "median", eight: in each, every site counts how many of its sums have the first bytes that are
    known of the two in the middle, by their next byte (2 x 256 counts).  The median is then exact, to the bit; where sites have
    a rule ``min_rows``, which no count may break, it is a number nearby.

Leaves the site
    With "median", counts, summed.  The median they lead to is a row's sum, or the mean of two, whoever's these are.

References
    F. A. Wolf, P. Angerer, F. J. Theis, "SCANPY: large-scale single-cell gene expression data analysis", Genome Biol. 19 (2018):
    ``normalize_total`` and ``log1p``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from ...errors import InputError
from ...numerics.blocks import some_rows
from ...numerics.changes import row_totals
from ...numerics.linalg import Array
from ...numerics.preparation import Step
from ...runtime import Local, Reply, Site, Sum, local
from ..medians import check_path, keys_of, many, numbers_of, part_of, shift_of
from ..method import Part
from ..parameters import check_positive
from .keeping import keeping, names_for

DIGITS, PARTS, ROUNDS = 8, 256, 8

TOTALS = "path of totals"
"""The name under which a site keeps how far the median of the sums is found."""


@local(
    takes={"prefix": "2", "step": ""},
    sends={"counts": "2 256"},
    reads=(TOTALS,),
    keeps=(TOTALS,),
    bound="count",
    means={"prefix": "bits", "step": "count"},
    setup=True,
)
def count_totals(site: Site, prefix: Any, step: Any) -> Reply:
    """How many sums of rows, not 0, have each of two prefixes, by their next byte."""
    check_path(site.kept.get(TOTALS), prefix, int(step), DIGITS, ROUNDS)
    counts = np.zeros((2, PARTS), dtype=np.int64)
    for part in some_rows(site.X):
        totals = row_totals(part)
        keys = keys_of(totals[totals > 0]) >> shift_of(int(step), DIGITS)
        for i in range(2):
            here = keys[keys >> np.uint64(DIGITS) == prefix[i]]
            counts[i] += np.bincount((here & np.uint64(PARTS - 1)).view(np.int64), minlength=PARTS)
    return Reply(many(counts, site.min_rows), {TOTALS: (prefix, int(step))})


@local(takes={"target": ""}, keeps=names_for("log-normalize"), means={"target": "scale"}, setup=True, once=True)
def keep_target(site: Site, target: Any) -> Reply:  # noqa: ARG001
    """Remember what the counts of a row are to add up to."""
    return keeping("log-normalize", target=np.float64(target))


@dataclass(frozen=True)
class LogNormalize:
    """Counts of each row in such a unit that they add up to ``target_sum``, then log(1 + x).  Sparse rows stay sparse.

    Parameters
    ----------
    target_sum : float or "median"
        What the counts of a row are made to add up to; "median" is that of the rows of all sites that have any.

    Examples
    --------
    >>> import numpy as np, eigenpact as ep
    >>> X = np.random.default_rng(0).poisson(3.0, size=(60, 5)).astype(float)
    >>> pca = ep.FederatedPCA(2, prepare=[ep.prepare.LogNormalize("median")]).fit(X, sites=np.arange(60) % 2)
    >>> bool(pca.preparation_[0].arrays["target"] == np.median(X.sum(axis=1)))
    True
    """

    target_sum: float | Literal["median"] = 1e4

    part: ClassVar[Part] = Part(
        "Counts normalized, and their logarithms",
        {Sum: (count_totals,), Local: (keep_target,)},
        'Of `LogNormalize`; `count_totals` runs with `target_sum="median"`.',
    )

    def __post_init__(self) -> None:
        if self.target_sum != "median":
            check_positive("target_sum", self.target_sum, ', or "median"')

    async def agree(self) -> Step:
        """Agree on the target."""
        target = np.float64(await _median_total() if self.target_sum == "median" else self.target_sum)
        await Local(keep_target, target)
        return Step("log-normalize", {"target": target})


async def _median_total() -> float:
    prefix: Any = np.zeros(2, dtype=np.uint64)
    wanted = held = np.zeros(2, dtype=np.int64)
    for step in range(ROUNDS):
        counts = await Sum(count_totals, prefix, np.int64(step))
        if step == 0:
            held = counts.sum(axis=1)
            wanted = np.array([(held[0] + 1) // 2, held[0] // 2 + 1])
            if held[0] == 0:
                raise InputError("no row has counts that are told, so their median is unknown; give target_sum a number")
        part, wanted, held = part_of(counts, wanted, held)
        prefix = (prefix << np.uint64(DIGITS)) + part.astype(np.uint64)
    middle: Array = numbers_of(prefix)
    return float(middle.mean())
