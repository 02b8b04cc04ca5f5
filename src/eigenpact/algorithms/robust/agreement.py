"""What robust solvers agree on before they begin: counts, and medians that gross errors cannot move.

Problem
    Site i holds rows X_i (n_i x d), some entries wrong by any amount, some missing.  Wanted are the median of each feature over
    all sites (``center="pooled"``), with ``scale="robust"`` the median deviation from it, and one typical size of an entry.
    A mean would not do: one wrong entry can move it anywhere.

Rounds
    1. Sum of sites, rows, and observed entries by feature.
    2. The medians, five binary digits a round: with their bits read as whole numbers, floating-point numbers keep their order.
       Every site counts by feature how many of its entries begin with the digits found so far, by the next five digits (d x 32).
       The sums tell in which of the 32 parts the median lies.  Eight rounds for the centre, up to five more where a feature lies
       far from zero for its spread (``medians.py``); four for deviations.
    3. The median size of all entries that are not zero, in the same way: three rounds of 32 counts.
    Then every site is told centre and scale once, and keeps them.

Leaves the site
    Counts, all summed: n_i, observed entries by feature, and d x 32 counts in each of the rounds of 2.  The median they lead to
    is an entry of some site, known to nine digits or, after more rounds, to all; whoever sees single replies learns whose it is.

References
    P. J. Rousseeuw, C. Croux, "Alternatives to the median absolute deviation", J. Am. Stat. Assoc. 88 (1993), on robust scales.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from ...numerics.blocks import blocks_there
from ...numerics.elsewhere import is_elsewhere, namespace
from ...numerics.linalg import Array
from ...runtime import Local, Reply, Site, Sum, local
from ..medians import (
    DIGITS,
    PARTS,
    SCALE_ROUNDS,
    SIGN,
    centres,
    check_path,
    count_parts,
    many,
    medians,
    part_of,
    parts_there,
    shift_of,
    untold_of,
    values_of,
)
from ..method import Part
from .entries import MEDIANS, count_rows, entries_there, seen_by_feature
from .thresholds import NORMAL_MEDIAN

Center = Literal["pooled", False]
Scale = Literal["robust"] | None
Rank = Literal["exact", "upper"]

SIZE_ROUNDS = 3

CONSTANT = 1e-14
"""A median deviation below this share of the median is rounding: the feature is constant."""

SIZES = "path of sizes"
"""The name under which a site keeps how far the digits of the typical size are found."""

SINGLE_ROUNDING = 16.0
"""Residuals below this many eps, in units of an entry's size, are rounding where rows are single precision."""


@local(sends={"sites": "", "singles": "", "n": "", "observed": "d"}, bound="count", setup=True)
def count_observed(site: Site) -> Any:
    """One (to count the sites), one if the rows are single precision, number of rows, and observed entries by feature.

    Rows without any entry do not count.
    """
    rows, observed = 0, np.zeros(site.X.shape[1], dtype=np.int64)
    for _, M, seen in blocks_there(site.X, None, None):
        rows += count_rows(M, seen)
        observed += seen_by_feature(M, seen)
    single = str(site.X.dtype).endswith("float32")
    return np.int64(1), np.int64(single), np.int64(rows), observed


@local(
    takes={"prefix": "1", "step": ""},
    sends={"counts": "32"},
    reads=(*MEDIANS, SIZES),
    keeps=(SIZES,),
    bound="count",
    means={"prefix": "bits", "step": "count"},
    setup=True,
)
def count_sizes(site: Site, prefix: Any, step: Any) -> Reply:
    """As ``count_parts`` for the sizes of all entries together, centred and scaled, that are not zero."""
    check_path(site.kept.get(SIZES), prefix, int(step))
    shift = shift_of(int(step))
    first, zero = np.uint64(prefix[0]) << np.uint64(DIGITS), SIGN >> shift
    counts = np.zeros(PARTS + 1, dtype=np.int64)  # and those that begin otherwise
    for _, M, _ in entries_there(site):  # missing entries are zero there
        if is_elsewhere(M):
            xp, sizes = namespace(M), abs(M)
            sizes = xp.where(sizes == 0.0, xp.nan, sizes)
            counts[:PARTS] += parts_there(sizes, np.broadcast_to(prefix, (M.shape[1],)), int(step)).sum(axis=0)
            continue
        zeros = M.size - int(np.count_nonzero(M))
        parts = np.abs(M, out=M).view(np.uint64)
        parts |= SIGN  # the keys of numbers that are not negative
        parts >>= shift
        parts -= first  # less than none is more than any
        np.minimum(parts, np.uint64(PARTS), out=parts)
        counts += np.bincount(parts.reshape(-1).view(np.int64), minlength=PARTS + 1)
        counts[min(int(zero - first), PARTS) if zero >= first else PARTS] -= zeros
    return Reply(many(counts[None, :PARTS], site.min_rows)[0], {SIZES: (prefix, int(step))})


@local(
    takes={"mean": "d", "scale": "d"},
    keeps=MEDIANS,
    means={"mean": "centre", "scale": "scale"},
    setup=True,
    once=True,
)
def keep_medians(site: Site, mean: Array, scale: Array) -> Reply:  # noqa: ARG001
    """Remember the agreed centre and scale; None where there is nothing to do."""
    return Reply(keep={"mean": mean if np.any(mean) else None, "scale": None if np.all(scale == 1.0) else scale})


@dataclass(frozen=True, eq=False)
class RobustProblem:
    """What the user asked for, before any data are seen."""

    n_components: int
    rank: Rank = "exact"
    center: Center = "pooled"
    scale: Scale = None
    tol: float | None = None
    max_rounds: int = 200
    seed: int = 0
    rounds_after: int = 0

    @property
    def last_round(self) -> int:
        """The last round that the solver may take, so that with those after it ``max_rounds`` are not exceeded."""
        return self.max_rounds - self.rounds_after


@dataclass(frozen=True, eq=False)
class RobustSetup:
    """What the sites agreed on.

    Attributes
    ----------
    n_sites, n_samples, n_features : int
        Rows without any entry are no samples.
    single : bool
        Whether all rows are single precision.
    observed : (d,) array
        Entries of each feature that are not missing.
    centre, scale : (d,) arrays
        Medians (zeros without centring) and scales (ones for none).
    size : float
        Robust standard deviation of the entries about the centre, after scaling.
    problem : RobustProblem
    """

    n_sites: int
    n_samples: int
    n_features: int
    single: bool
    observed: NDArray[np.int64]
    centre: Array
    scale: Array
    size: float
    problem: RobustProblem

    @property
    def n_components(self) -> int:
        """Components asked for, or their upper bound."""
        return self.problem.n_components

    @property
    def centred(self) -> bool:
        """Whether a centre is to be found besides the components."""
        return self.problem.center == "pooled"

    @property
    def rounding(self) -> float:
        """A residual that is only the rounding of a single-precision entry; 0 if some rows are double precision."""
        return SINGLE_ROUNDING * float(np.finfo(np.float32).eps) * self.size if self.single else 0.0

    def stopping_tol(self, default: float) -> float:
        """The change at which to stop: the user's or the solver's own, but not below what rounding allows."""
        return max(1e-14, default if self.problem.tol is None else self.problem.tol)


async def agree_robustly(problem: RobustProblem) -> RobustSetup:
    """Agree on counts, centre, scale and the size of an entry."""
    n_sites, n_single, n, observed = await Sum(count_observed)  # round 1
    d = len(observed)
    if np.any(observed == 0):
        empty = int(np.flatnonzero(observed == 0)[0])
        raise InputError(f"feature {empty} is missing in every row of every site; leave it out")
    check_components(problem.n_components, int(n), d)
    centre, scale = np.zeros(d), np.ones(d)
    if problem.center == "pooled":
        centre = await centres(observed)
    if problem.scale == "robust":
        scale = await medians(observed, centre, SCALE_ROUNDS, deviations=True) / NORMAL_MEDIAN
        scale = np.where(scale > CONSTANT * np.abs(centre), scale, 1.0)
    await Local(keep_medians, centre, scale)
    size = await _typical_size() / NORMAL_MEDIAN
    return RobustSetup(int(n_sites), int(n), d, bool(n_single == n_sites), observed, centre, scale, size, problem)


def check_components(wanted: Any, n: int, d: int) -> None:
    """Refuse a number of components that n rows of d features cannot give."""
    if not isinstance(wanted, int | np.integer) or isinstance(wanted, bool) or not 1 <= wanted <= min(n, d):
        raise InputError(
            f"n_components={wanted!r} must be a whole number between 1 and min(n_samples, n_features)={min(n, d)} for {n} rows "
            f"of {d} features; with rank='upper' it is an upper bound"
        )


async def _typical_size() -> float:
    """Median size of the entries that are not zero; 0 if all are."""
    prefix, wanted, held = np.zeros(1, dtype=np.uint64), np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    for step in range(SIZE_ROUNDS):
        counts = await Sum(count_sizes, prefix, np.int64(step))
        if step == 0:
            wanted[0], held[0] = (counts.sum() + 1) // 2, counts.sum()
        part, wanted, held = part_of(counts[None, :], wanted, held, untold_of(prefix, step))
        prefix = (prefix << np.uint64(DIGITS)) + part.astype(np.uint64)
    return float(values_of(prefix, SIZE_ROUNDS)[0]) if counts.sum() else 0.0


AGREEMENT = Part(
    "Set-up of RobustPCA",
    {Sum: (count_observed, count_parts, count_sizes), Local: (keep_medians,)},
    '`count_parts` runs with `center="pooled"`, and again with `scale="robust"`.',
)
