"""Which rounds are a paper's method's own: those by which its answer is confirmed are ours, and do not count as its rounds."""

from __future__ import annotations

from ..algorithms.confirmation import LOST
from ..numerics.linalg import Array
from ..numerics.metrics import largest_sine
from ..runtime import RoundRecord


class OwnRounds:
    """Numbers the rounds of one run as if nothing had been confirmed.

    A method whose answer was not confirmed goes on.  Where that was because it had missed a direction, it goes on from what the
    confirmation found: from then on no round is its own.
    """

    def __init__(self) -> None:
        self.confirming = 0
        self._confirmed: Array | None = None
        self._set_right = False

    def number(self, record: RoundRecord) -> int | None:
        """The round of the method that the record is about, None if it is none of its own."""
        if "confirming" in record.details:
            self.confirming += 1
            self._confirmed = record.basis
            return None
        if self._confirmed is not None and record.basis is not None:
            self._set_right = self._set_right or largest_sine(self._confirmed, record.basis) > LOST
            self._confirmed = None
        return None if self._set_right else record.round - self.confirming
