"""Medians over all sites, found digit by digit from sums of counts.

With their bits read as whole numbers, floating-point numbers keep their order.  Every site counts how many of its numbers begin
with the digits found so far, by the next digits; the sums tell in which part the number of the wanted rank lies.  So a round
finds a few binary digits more, for all features at once.

A site that has a rule ``min_rows`` tells no part of fewer entries: they are added to a neighbour.  Then the digits lead to a
number nearby, and all sites are told the same.  Counts go on from where they were, so that nobody lists entries by them.

Forty digits are nine decimals of the number, which are few where a feature lies far from zero for its spread.  What was counted
on the way tells how far half of the entries are away at least; where the digits found are too few for that, more rounds follow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import PolicyError
from ..numerics.blocks import blocks_there
from ..numerics.counting import counts_by_column
from ..numerics.elsewhere import is_elsewhere, namespace
from ..numerics.linalg import Array
from ..runtime import Reply, Site, Sum, local

DIGITS, PARTS = 5, 32
CENTRE_ROUNDS, SCALE_ROUNDS, ALL_ROUNDS = 8, 4, 13
"""Rounds for medians, for scales that may be rough, and for all digits."""

NEAR = 1e-6
"""A median is known well enough if it is known to this share of the median deviation."""

COLUMNS = 1024
"""Features whose deviations are bounded at a time."""

ENTRIES, DEVIATIONS = "path of entries", "path of deviations"
"""Names under which a site keeps how far the digits of a median are found: counts go on from there, and nowhere else."""

SIGN = np.uint64(1 << 63)
EXPONENT = 12
"""Binary digits of a number that are its sign and a power of two."""


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
    path, rounds = (DEVIATIONS, CENTRE_ROUNDS + 1) if bool(deviations) else (ENTRIES, ALL_ROUNDS)
    last = site.kept.get(DEVIATIONS) if bool(deviations) else site.kept.get(ENTRIES)
    check_path(last, prefix, int(step), rounds=rounds)
    digits = np.uint64(digits_of(int(step)))
    counts = np.zeros(d * PARTS, dtype=np.int64)
    for _, M, seen in blocks_there(site.X, centre if bool(deviations) else None, None):
        if is_elsewhere(M):
            M = M if seen is None else namespace(M).where(seen, M, namespace(M).nan)
            counts += parts_there(abs(M) if bool(deviations) else M, prefix, int(step)).reshape(-1)
            continue
        keys = keys_of(np.abs(M) if bool(deviations) else M) >> shift_of(int(step))
        here = keys >> digits == prefix
        here = here if seen is None else here & seen
        places = (keys & ((np.uint64(1) << digits) - np.uint64(1))).view(np.int64) + PARTS * np.arange(d)
        counts += np.bincount(places[here], minlength=d * PARTS)
    return Reply(many(counts.reshape(d, PARTS), site.min_rows), {path: (prefix, int(step))})


def parts_there(M: Any, prefix: NDArray[np.uint64], step: int) -> NDArray[np.int64]:
    """As counts of keys, for entries M (n x d) of another library, by column (d x PARTS): they are compared where they lie.

    Entries that are NaN are not counted.
    """
    digits = digits_of(step)
    parts = (prefix[:, None] << np.uint64(digits)) + np.arange(1 << digits).astype(np.uint64)
    lows, highs = (np.where(np.isnan(edges) & np.signbit(edges), -np.inf, edges) for edges in edges_of(parts, step + 1))
    counts = np.zeros((len(parts), PARTS), dtype=np.int64)
    counts[:, : 1 << digits] = counts_by_column(M, lows, highs[:, -1])
    return counts


def check_path(
    last: tuple[Any, int] | None, prefix: Any, step: int, digits: int = DIGITS, rounds: int = CENTRE_ROUNDS + 1
) -> None:
    """Refuse counts that do not go on where the last ones ended: they would list the entries, not find one of them."""
    before, due = (np.zeros_like(prefix), 0) if last is None else (last[0], last[1] + 1)
    follows = step == due and np.array_equal(prefix >> np.uint64(digits) if due else prefix, before)
    if not follows or step >= rounds:
        raise PolicyError("rule set-up: entries are counted once in an epoch, along the digits of one median after the other")


def many(counts: NDArray[np.int64], least: int) -> NDArray[np.int64]:
    """Counts (m x parts) in which no part has fewer than ``least`` entries: smaller ones are added to the next part, or the last.

    >>> counts = np.array([[3, 1, 0, 5, 1] + [0] * 27, [2, 1] + [0] * 30])
    >>> many(counts, 4)[:, :5].tolist(), bool(np.all(many(counts, 1) == counts))
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


async def centres(observed: NDArray[np.int64]) -> Array:
    """Medians (d,) of the entries by feature, each to ``NEAR`` of the median deviation from it, or to the last digit."""
    prefix, wanted, held = np.zeros(len(observed), dtype=np.uint64), (observed + 1) // 2, observed
    passed: list[tuple[NDArray[np.uint64], NDArray[np.int64]]] = []
    for step in range(ALL_ROUNDS):
        digits = digits_of(step)
        counts = await Sum(count_parts, np.zeros(len(observed)), np.bool_(False), prefix, np.int64(step))
        counts = np.array(counts[:, : 1 << digits])
        told = counts.any(axis=1)
        part, wanted, held = part_of(counts, wanted, held, untold_of(prefix, step))
        counts[np.arange(len(counts)), part] = 0
        passed.append((prefix, counts))
        prefix = (prefix << np.uint64(digits)) + part.astype(np.uint64)
        if step + 1 >= CENTRE_ROUNDS and not np.any(told & _unsure(prefix, step + 1, passed, observed)):
            break
    return values_of(prefix, step + 1)


def _unsure(prefix: NDArray[np.uint64], rounds: int, passed: list[Any], observed: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which medians (d,) are not known to ``NEAR`` of the median deviation, by the counts of other parts that were passed."""
    found = np.zeros(len(prefix), dtype=np.bool_)
    for first in range(0, len(prefix), COLUMNS):
        some = slice(first, first + COLUMNS)
        low, high = edges_of(prefix[some], rounds)
        away, counts = [], []
        for step, (begun, others) in enumerate(passed):
            others = others[some]
            parts = (begun[some, None] << np.uint64(digits_of(step))) + np.arange(others.shape[1], dtype=np.uint64)
            lows, highs = edges_of(parts, step + 1)
            with np.errstate(invalid="ignore", over="ignore"):  # parts that are no numbers have no entries
                away.append(np.where(others > 0, np.maximum(lows - high[:, None], low[:, None] - highs), 0.0))
            counts.append(others)
        distances, entries = np.concatenate(away, axis=1), np.concatenate(counts, axis=1)
        order = np.argsort(-distances, axis=1)
        farther = np.cumsum(np.take_along_axis(entries, order, axis=1), axis=1)
        enough = farther >= (observed[some] // 2 + 1)[:, None]
        at = np.take_along_axis(order, np.argmax(enough, axis=1)[:, None], axis=1)
        least = np.where(enough[:, -1], np.take_along_axis(distances, at, axis=1)[:, 0], 0.0)
        found[some] = (high - low > NEAR * least) & (values_of(prefix[some], rounds) != 0)
    return found


async def medians(observed: NDArray[np.int64], centre: Array, rounds: int, deviations: bool) -> Array:
    """Medians (d,) of the entries by feature, or of their deviations from the centre, to as many digits as rounds give."""
    prefix, wanted, held = np.zeros(len(observed), dtype=np.uint64), (observed + 1) // 2, observed
    for step in range(rounds):
        counts = await Sum(count_parts, centre, np.bool_(deviations), prefix, np.int64(step))
        part, wanted, held = part_of(counts, wanted, held, untold_of(prefix, step))
        prefix = (prefix << np.uint64(DIGITS)) + part.astype(np.uint64)
    return values_of(prefix, rounds)


def part_of(
    counts: NDArray[np.int64], wanted: NDArray[Any], held: NDArray[Any], untold: Any = None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """For each row of counts, the part that holds the entry of this rank (from 1), its rank there, and how many it holds.

    Sites with few of the ``held`` entries do not count them: the rank is then that of the same share of the others, and where
    nothing is counted the part ``untold`` is taken, or the one in the middle.
    """
    below, rows = np.cumsum(counts, axis=1), np.arange(len(counts))
    told = below[:, -1]
    wanted = np.where(told < held, -(-wanted * told // np.maximum(held, 1)), wanted)
    part = np.minimum((below < wanted[:, None]).sum(axis=1), counts.shape[1] - 1)
    part = np.where(told > 0, part, counts.shape[1] // 2 if untold is None else untold)
    before = np.where(part > 0, below[rows, part - 1], 0)
    return part, wanted - before, counts[rows, part]


def untold_of(prefix: NDArray[np.uint64], step: int) -> NDArray[np.int64]:
    """The part to take where no site counts enough: nearest to zero among powers of two, then the middle.

    In the middle of the powers of two lie numbers that no entry is near, such as 1e20.
    """
    if step == 0 or DIGITS * step >= EXPONENT:
        return np.full(prefix.shape, 1 << (digits_of(step) - 1), dtype=np.int64)
    positive = prefix >> np.uint64(DIGITS * step - 1) > 0
    return np.where(positive, 0, PARTS - 1)


def shift_of(step: int, digits: int = DIGITS) -> np.uint64:
    """How many binary digits come after those that are known once this step is done."""
    return np.uint64(max(0, 64 - digits * (step + 1)))


def digits_of(step: int) -> int:
    """How many binary digits this step finds: five, but in the last, for which four are left."""
    return min(DIGITS, 64 - DIGITS * step)


def keys_of(x: Array) -> NDArray[np.uint64]:
    """Whole numbers in the order of the floating-point numbers."""
    bits = np.ascontiguousarray(x).view(np.uint64)
    return np.where(bits & SIGN, ~bits, bits | SIGN)


def values_of(prefix: NDArray[np.uint64], rounds: int) -> Array:
    """The number in the middle of those that begin with this prefix; exactly zero if zero is among them."""
    rest = shift_of(rounds - 1)
    low = prefix << rest
    values = numbers_of(low + ((np.uint64(1) << rest) >> np.uint64(1)))
    return np.where((low == SIGN) | (low + ((np.uint64(1) << rest) - np.uint64(1)) == SIGN - np.uint64(1)), 0.0, values)


def edges_of(prefix: NDArray[np.uint64], rounds: int) -> tuple[Array, Array]:
    """The least and the greatest number that begin with this prefix.

    >>> [float(edge[0]) for edge in edges_of(keys_of(np.array([2.0])) >> shift_of(2), 3)]
    [2.0, 2.2499999999999996]
    """
    rest = shift_of(rounds - 1)
    low = prefix << rest
    return numbers_of(low), numbers_of(low + ((np.uint64(1) << rest) - np.uint64(1)))


def numbers_of(keys: NDArray[np.uint64]) -> Array:
    """Inverse of :func:`keys_of`.

    >>> numbers_of(keys_of(np.array([-2.5, 0.0, 3.0]))).tolist()
    [-2.5, 0.0, 3.0]
    """
    return np.where(keys & SIGN, keys ^ SIGN, ~keys).view(np.float64)
