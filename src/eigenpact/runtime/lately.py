"""What was written within the last 24 hours, by a clock that may be wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

DAY = timedelta(days=1)


class Lately:
    """Counts rows of a file that only grows, by their order and their times.

    A row is no younger than those behind it.  So one whose time is later than that of the next, because the clock was ahead, is
    as old as the next: it neither counts for ever nor is forgotten.  One dated in the future with nothing behind it counts.

    >>> lately, now = Lately(), datetime.now(UTC)
    >>> lately.note(now + 365 * DAY, counts=True)
    >>> lately.count()
    1
    >>> lately.note(now - 2 * DAY)
    >>> lately.count()
    0
    """

    def __init__(self) -> None:
        self._blocks: list[tuple[datetime, int]] = []  # times do not decrease; each with how many rows are that old

    def note(self, time: datetime, counts: bool = False) -> None:
        """Take note of the next row, and whether it is one to be counted."""
        rows = int(counts)
        while self._blocks and self._blocks[-1][0] > time:
            rows += self._blocks.pop()[1]
        if rows:
            self._blocks.append((time, rows))

    def count(self) -> int:
        """Counted rows of the last 24 hours."""
        total, since = 0, datetime.now(UTC) - DAY
        for time, rows in reversed(self._blocks):
            if time <= since:
                break
            total += rows
        return total
