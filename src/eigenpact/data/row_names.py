"""Names of rows: each stands for one row, unless somebody said that they name rows all the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..errors import InputError
from .description import Description
from .table import Table

SHOWN = 3


def check_row_names(file: Path, table: Table, said: Description) -> list[str]:
    """Refuse a column of row names in which a name stands twice; if it was said that it names rows, tell instead."""
    if table.row_ids is None:
        return []
    twice = repeated_in(table.row_ids)
    if not twice:
        return []
    shown = ", ".join(repr(name) for name in twice[:SHOWN]) + (" and more" if len(twice) > SHOWN else "")
    if said.id is not None:
        return [f"names in column {said.id!r} that stand for several rows: {shown}"]
    raise InputError(
        f"{file}: the column of row names has {shown} more than once, so that it hardly names rows; say --drop COLUMN if it "
        "is not to be used, --by COLUMN if it tells sites apart, or --id COLUMN if it names rows all the same (in a "
        "description: drop, labels, id)"
    )


def repeated_in(names: Sequence[str]) -> list[str]:
    """The names that occur more than once; of millions of rows no more than a number each is in memory.

    >>> repeated_in(["a", "b", "a"])
    ['a']
    """
    codes = np.fromiter((hash(name) for name in names), dtype=np.int64, count=len(names))
    values, counts = np.unique(codes, return_counts=True)
    several = {int(value) for value in values[counts > 1]}
    if not several:
        return []
    seen: dict[str, int] = {}
    for name, code in zip(names, codes.tolist(), strict=True):
        if code in several:
            seen[name] = seen.get(name, 0) + 1
    return [name for name, times in seen.items() if times > 1]
