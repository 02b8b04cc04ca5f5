"""How large a residual may be before its entry counts as wrong: a threshold that follows the residuals of all sites.

Every round the sites count their trusted residuals by size, four levels to the octave, and the counts are summed.  From them
follow, for all sites together, the robust standard deviation (of the median), the size that one in a thousand exceeds, and the
largest.  The next threshold is

    max( 3 deviations,  min( .8 tau,  max( 3 times the size that one in a thousand exceeds,  min( tau / 2, twice the largest ))))

so it shrinks by .8 a round while residuals reach up to it, by up to one half when few do, and at once across sizes that no
residual has, which changes no entry's standing.  It never falls below three deviations, which is where dense noise stops it.

Why the tail and not the deviation sets the pace: when few entries of a row or feature are trusted, their residuals die out last.
A threshold tied to the median cuts them off, and what is cut off does not come back.  Trials with the median, or with one in
fifty, lost up to six digits at r = .15 n, s = .2; one in a thousand lost none, at the same number of rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...numerics.counting import counts_between
from ...numerics.elsewhere import is_elsewhere

START = 3.0
"""The first threshold, and the last one in dense noise, in robust standard deviations."""

NORMAL_MEDIAN = 0.6744897501960817
"""Median of |x| for a standard normal x."""

TAIL, REACH = 0.999, 3.0
SLOW, FAST, ROOM = 0.8, 0.5, 2.0

LEVELS = 160
"""Levels of size, four to the octave, down from the threshold; the lowest holds everything smaller."""

SHIFT = np.uint64(50)
"""Bits of a float64 below the exponent and two bits of the mantissa."""

ALL_LEVELS = 1 << 13
"""Levels that all sizes have together."""

SETTLED = 12.0
"""A threshold within so many deviations has arrived at the noise."""


def tally(E: Any, wrong: int, threshold: float) -> NDArray[np.int64]:
    """Counts (LEVELS,) of the trusted residuals by size; E (n x d) is 0 at the ``wrong`` entries that are not trusted.

    Residuals of another library are counted where they lie.
    """
    below = _level(threshold) - LEVELS + 1  # levels up to here are the lowest one, those beyond the threshold's the highest
    counts = np.zeros(LEVELS, dtype=np.int64)
    first, last = max(below + 1, 0), below + LEVELS - 1
    if is_elsewhere(E):
        found = counts_between(abs(E), np.array([_edge(level) for level in range(first, last + 1)]))
        counts[first - below :], counts[0] = found[1:], found[0] - wrong
        return counts
    levels = (np.abs(E).view(np.uint64) >> SHIFT).view(np.int64)
    of_level = np.bincount(levels.reshape(-1), minlength=ALL_LEVELS)
    counts[first - below : -1] = of_level[first:last]
    counts[0], counts[-1] = of_level[:first].sum() - wrong, of_level[last:].sum()
    return counts


@dataclass(frozen=True, eq=False)
class Residuals:
    """Residuals of all sites, counted by size.

    Attributes
    ----------
    counts : (LEVELS,) array
        Trusted residuals on each level below the threshold.
    threshold : float
    observed : int
        All entries that are not missing, trusted or not.
    """

    counts: NDArray[np.int64]
    threshold: float
    observed: int

    @property
    def trusted(self) -> int:
        """How many entries are trusted."""
        return int(self.counts.sum())

    @property
    def deviation(self) -> float:
        """Robust standard deviation: the median size of all residuals, as a normal distribution has it."""
        return self._size(self.observed / 2) / NORMAL_MEDIAN

    @property
    def tail(self) -> float:
        """The size that one trusted residual in a thousand exceeds."""
        return self._size(TAIL * self.trusted)

    @property
    def largest(self) -> float:
        """Upper end of the highest level that holds a trusted residual."""
        return self._size(self.trusted)

    def next_threshold(self) -> float:
        """See above."""
        fast = min(FAST * self.threshold, ROOM * self.largest)
        return max(min(self.threshold, START * self.deviation), min(SLOW * self.threshold, max(REACH * self.tail, fast)))

    def settled(self, negligible: float) -> bool:
        """Whether the threshold has come down to the noise, or to a size that does not matter, and most entries are trusted.

        If they are not, the deviation is only known to be at least the threshold, and says nothing.
        """
        return 2 * self.trusted > self.observed and self.threshold <= max(SETTLED * self.deviation, negligible)

    def _size(self, rank: float) -> float:
        """The size of the residual of this rank (from 1), interpolated within its level; the threshold if it is not trusted."""
        below = np.cumsum(self.counts)
        if rank > below[-1]:
            return self.threshold
        i = int(np.searchsorted(below, rank))
        if i == 0:
            return 0.0 if self.counts[0] == 0 or self.threshold == 0 else _edge(_level(self.threshold) - LEVELS + 2)
        low, high = (_edge(_level(self.threshold) - LEVELS + 1 + i + j) for j in (0, 1))
        share = (rank - below[i - 1]) / self.counts[i]
        return min(self.threshold, low + float(share) * (high - low))


def _level(size: float) -> int:
    return int(np.float64(size).view(np.uint64) >> SHIFT)


def _edge(level: int) -> float:
    """The smallest size on a level."""
    return float((np.uint64(max(level, 0)) << SHIFT).view(np.float64))
