"""Daily use: people who go by the pages, what commands take to begin, how they stop, what is told when something is amiss."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import daily_commands, daily_federation, daily_people
from benchmarks.table import Row

GROUPS = (daily_people, daily_commands, daily_federation)
"""Files with rows, in the order of the table; each has ``rows(size)``."""


def rows(size: str) -> Iterator[Row]:
    """Measure and yield a row at a time."""
    for group in GROUPS:
        yield from group.rows(size)
