"""What robust solvers agree on before they begin: counts, and medians that gross errors cannot move.

Problem
    Site i holds rows X_i (n_i x d), some entries wrong by any amount, some missing.  Wanted are the median of each feature over
    all sites (``center="pooled"``), with ``scale="robust"`` the median deviation from it, and one typical size of an entry.
    A mean would not do: one wrong entry can move it anywhere.

Rounds
    1. Sum of sites, rows, and observed entries by feature.
    2. The medians, five binary digits a round: with their bits read as whole numbers, floating-point numbers keep their order.
       Every site counts by feature how many of its entries begin with the digits found so far, by the next five digits (d x 32).
       The sums tell in which of the 32 parts the median lies.  Eight rounds for the centre (28 bits after the first), four for
       deviations.
    3. The median size of all entries that are not zero, in the same way: three rounds of 32 counts.
    Then every site is told centre and scale once, and keeps them.

Leaves the site
    Counts, all summed: n_i, observed entries by feature, and d x 32 counts in each of the rounds of 2.  The median they lead to
    is an entry of some site, known to nine digits; whoever sees single replies learns whose it is.

References
    P. J. Rousseeuw, C. Croux, "Alternatives to the median absolute deviation", J. Am. Stat. Assoc. 88 (1993), on robust scales.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError, PolicyError
from ...numerics.linalg import Array
from ...runtime import Local, Reply, Site, Sum, local
from ..method import Part
from .entries import MEDIANS, blocks, entries_of
from .thresholds import NORMAL_MEDIAN

Center = Literal["pooled", False]
Scale = Literal["robust"] | None
Rank = Literal["exact", "upper"]

DIGITS, PARTS = 5, 32
CENTRE_ROUNDS, SCALE_ROUNDS, SIZE_ROUNDS = 8, 4, 3

ENTRIES, DEVIATIONS, SIZES = "path of entries", "path of deviations", "path of sizes"
"""Names under which a site keeps how far the digits of a median are found: counts go on from there, and nowhere else."""

SIGN = np.uint64(1 << 63)

SINGLE_ROUNDING = 16.0
"""Residuals below this many eps, in units of an entry's size, are rounding where rows are single precision."""


@local(sends={"sites": "", "singles": "", "n": "", "observed": "d"}, bound="count", setup=True)
def count_observed(site: Site) -> Any:
    """One (to count the sites), one if the rows are single precision, number of rows, and observed entries by feature."""
    observed = np.zeros(site.X.shape[1], dtype=np.int64)
    for where, _, seen in blocks(site.X, None, None):
        observed += where.stop - where.start if seen is None else seen.sum(axis=0)
    single = str(site.X.dtype).endswith("float32")
    return np.int64(1), np.int64(single), np.int64(site.X.shape[0]), observed


@local(
    takes={"centre": "d", "deviations": "", "prefix": "d", "step": ""},
    sends={"counts": "d 32"},
    reads=(ENTRIES, DEVIATIONS),
    keeps=(ENTRIES, DEVIATIONS),
    bound="count",
    means={"centre": "centre", "deviations": "count", "prefix": "bits", "step": "count"},
    setup=True,
)
def count_parts(site: Site, centre: Array, deviations: Any, prefix: Any, step: Any) -> Reply:
    """By feature, how many observed entries (or their ``deviations``) have this prefix, by the next five binary digits."""
    d = len(centre)
    _check_path(site.kept.get(DEVIATIONS) if bool(deviations) else site.kept.get(ENTRIES), prefix, int(step))
    counts = np.zeros(d * PARTS, dtype=np.int64)
    for _, M, seen in blocks(site.X, centre if bool(deviations) else None, None):
        keys = _keys(np.abs(M) if bool(deviations) else M) >> _shift(int(step))
        here = keys >> np.uint64(DIGITS) == prefix
        here = here if seen is None else here & seen
        places = (keys & np.uint64(PARTS - 1)).view(np.int64) + PARTS * np.arange(d)
        counts += np.bincount(places[here], minlength=d * PARTS)
    return Reply(
        _many(counts.reshape(d, PARTS), site.min_rows), {DEVIATIONS if bool(deviations) else ENTRIES: (prefix, int(step))}
    )


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
    _check_path(site.kept.get(SIZES), prefix, int(step))
    counts = np.zeros(PARTS, dtype=np.int64)
    for _, M, _ in entries_of(site):  # missing entries are zero there
        keys = _keys(np.abs(M[M != 0])) >> _shift(int(step))
        here = keys >> np.uint64(DIGITS) == prefix
        counts += np.bincount((keys[here] & np.uint64(PARTS - 1)).view(np.int64), minlength=PARTS)
    return Reply(_many(counts[None, :], site.min_rows)[0], {SIZES: (prefix, int(step))})


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


def _check_path(last: tuple[Any, int] | None, prefix: Any, step: int) -> None:
    """Refuse counts that do not go on where the last ones ended: they would list the entries, not find one of them."""
    before, due = (np.zeros_like(prefix), 0) if last is None else (last[0], last[1] + 1)
    follows = step == due and np.array_equal(prefix >> np.uint64(DIGITS) if due else prefix, before)
    if not follows or step > CENTRE_ROUNDS:
        raise PolicyError("rule set-up: entries are counted once in an epoch, along the digits of one median after the other")


def _many(counts: NDArray[np.int64], least: int) -> NDArray[np.int64]:
    """Counts (m x 32) in which no part has fewer than ``least`` entries: smaller ones are added to the next part, or the last.

    >>> counts = np.array([[3, 1, 0, 5, 1] + [0] * 27, [2, 1] + [0] * 30])
    >>> _many(counts, 4)[:, :5].tolist(), bool(np.all(_many(counts, 1) == counts))
    ([[0, 4, 0, 6, 0], [0, 0, 0, 0, 0]], True)
    """
    told, carried = np.zeros_like(counts), np.zeros(len(counts), dtype=np.int64)
    for part in range(counts.shape[1]):
        carried += counts[:, part]
        enough = carried >= max(1, least)
        told[enough, part], carried[enough] = carried[enough], 0
    last = told.shape[1] - 1 - np.argmax(told[:, ::-1] > 0, axis=1)
    some = told.any(axis=1)
    told[some, last[some]] += carried[some]
    return told


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
    check_components(problem.n_components, int(n), d)
    if np.any(observed == 0):
        empty = int(np.flatnonzero(observed == 0)[0])
        raise InputError(f"feature {empty} is missing in every row of every site; leave it out")
    centre, scale = np.zeros(d), np.ones(d)
    if problem.center == "pooled":
        centre = await _medians(observed, centre, CENTRE_ROUNDS, deviations=False)
    if problem.scale == "robust":
        scale = await _medians(observed, centre, SCALE_ROUNDS, deviations=True) / NORMAL_MEDIAN
        scale = np.where(scale > 1e-12 * np.abs(centre), scale, 1.0)
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


async def _medians(observed: NDArray[np.int64], centre: Array, rounds: int, deviations: bool) -> Array:
    """Medians (d,) of the entries by feature, or of their deviations from the centre."""
    prefix, wanted, held = np.zeros(len(observed), dtype=np.uint64), (observed + 1) // 2, observed
    for step in range(rounds):
        counts = await Sum(count_parts, centre, np.bool_(deviations), prefix, np.int64(step))
        part, wanted, held = _part(counts, wanted, held)
        prefix = (prefix << np.uint64(DIGITS)) + part.astype(np.uint64)
    return _values(prefix, rounds)


async def _typical_size() -> float:
    """Median size of the entries that are not zero; 0 if all are."""
    prefix, wanted, held = np.zeros(1, dtype=np.uint64), np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    for step in range(SIZE_ROUNDS):
        counts = await Sum(count_sizes, prefix, np.int64(step))
        if step == 0:
            wanted[0], held[0] = (counts.sum() + 1) // 2, counts.sum()
        part, wanted, held = _part(counts[None, :], wanted, held)
        prefix = (prefix << np.uint64(DIGITS)) + part.astype(np.uint64)
    return float(_values(prefix, SIZE_ROUNDS)[0]) if counts.sum() else 0.0


def _part(
    counts: NDArray[np.int64], wanted: NDArray[Any], held: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """For each row of counts, the part that holds the entry of this rank (from 1), its rank there, and how many it holds.

    Sites with few of the ``held`` entries do not count them: the rank is then that of the same share of the others, and where
    nothing is counted the part in the middle is taken.
    """
    below, rows = np.cumsum(counts, axis=1), np.arange(len(counts))
    told = below[:, -1]
    wanted = np.where(told < held, -(-wanted * told // np.maximum(held, 1)), wanted)
    part = np.minimum((below < wanted[:, None]).sum(axis=1), PARTS - 1)
    part = np.where(told > 0, part, PARTS // 2)
    before = np.where(part > 0, below[rows, part - 1], 0)
    return part, wanted - before, counts[rows, part]


def _shift(step: int) -> np.uint64:
    return np.uint64(64 - DIGITS * (step + 1))


def _keys(x: Array) -> NDArray[np.uint64]:
    """Whole numbers in the order of the floating-point numbers."""
    bits = np.ascontiguousarray(x).view(np.uint64)
    return np.where(bits & SIGN, ~bits, bits | SIGN)


def _values(prefix: NDArray[np.uint64], rounds: int) -> Array:
    """The number in the middle of those that begin with this prefix; exactly zero if zero is among them."""
    rest = np.uint64(64 - DIGITS * rounds)
    low = prefix << rest
    middle = low + (np.uint64(1) << (rest - np.uint64(1)))
    values = np.where(middle & SIGN, middle ^ SIGN, ~middle).view(np.float64)
    return np.where((low == SIGN) | (low + ((np.uint64(1) << rest) - np.uint64(1)) == SIGN - np.uint64(1)), 0.0, values)


AGREEMENT = Part(
    "Set-up of RobustPCA",
    {Sum: (count_observed, count_parts, count_sizes), Local: (keep_medians,)},
    '`count_parts` runs with `center="pooled"`, and again with `scale="robust"`.',
)
