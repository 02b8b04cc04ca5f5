"""Columns that number the rows, such as patient_id, or hold days as 20200131: as features they mean nothing as such."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..numerics.sources import RowSource
from .description import Description
from .findings import Finding
from .table import Table

ROWS = 10_000
"""Rows that are looked at."""

ENTRIES = 1 << 22
"""So many entries at most are looked at, of tables with many columns in fewer rows."""

FEWEST = 5
"""Rows that must be there before numbers one after the other mean anything."""

_WORDS = re.compile(r"(?:^|[\W_])(?:id|ids|nr|no|num|number|nummer|mrn|idx|index)$|^(?:pid|iid|eid|uid)$", re.IGNORECASE)
_JOINED = re.compile(r"[a-z](?:ID|Id|Nr|No)$|^(?i:patient|subject|sample|person|participant|case|record|row|study)(?i:id|nr|no)$")


def may_number(name: str) -> bool:
    """Whether a column may number the rows, by its name.

    >>> [name for name in ("patient_id", "PatID", "Fall-Nr", "number", "subjectid", "acid", "age", "mono") if may_number(name)]
    ['patient_id', 'PatID', 'Fall-Nr', 'number', 'subjectid']
    """
    return bool(_WORDS.search(name.strip()) or _JOINED.search(name.strip()))


def numberings(table: Table, said: Description) -> list[str]:
    """A note for every feature that seems to number the rows, by its name or its numbers, unless the description asks for it."""
    X, asked = table.X, (*(said.columns or ()), *said.units, *(said.wanted or ()))
    if table.variants is not None or sparse.issparse(X) or (isinstance(X, RowSource) and X.sparse):
        return []
    rows = np.asarray(X[: min(ROWS, max(FEWEST, ENTRIES // X.shape[1]))])
    steps = set(np.flatnonzero(are_consecutive(rows)).tolist())
    if table.feature_names is None:
        told = "whole numbers one after the other are taken for a feature; if they number the rows, leave the column out"
        return [Finding(told, None, j + 1).told() for j in sorted(steps)]
    names = [(j, name) for j, name in enumerate(table.feature_names) if name not in asked]
    found = [(j, name) for j, name in names if j in steps or (may_number(name) and _all_different(rows[:, j]))]
    told = "whole numbers, all different, are taken for a feature; if they number the rows, say "
    days = [(j, name) for j, name in names if (j, name) not in found and holds_days(rows[:, j])]
    as_days = "days written as numbers, such as {:.0f}, are taken for a feature; if they are not to be one, say "
    return [
        *(Finding(_advice(told, name), None, j + 1, name).told() for j, name in found),
        *(Finding(_advice(as_days.format(rows[0, j]), name), None, j + 1, name).told() for j, name in days),
    ]


def _advice(told: str, name: str) -> str:
    word = name if re.fullmatch(r"[\w.+-]+", name) else repr(name)
    return f'{told}--id {word} or --drop {word}, or describe the file: id = "{name}" or drop = ["{name}"]'


def are_consecutive(rows: NDArray[np.floating[Any]]) -> NDArray[np.bool_]:
    """Which columns of some rows (n x d) hold whole numbers one after the other, in any order, and enough to mean it.

    >>> are_consecutive(np.array([[3.0, 1.0], [7.0, 2.0], [5.0, 4.0], [4.0, 5.0], [6.0, 6.0]])).tolist()
    [True, False]
    """
    if len(rows) < FEWEST:
        return np.zeros(rows.shape[1], dtype=bool)
    with np.errstate(over="ignore", invalid="ignore"):  # what is missing or infinite is no such number
        found: NDArray[np.bool_] = rows.max(axis=0) - rows.min(axis=0) == len(rows) - 1
    for j in np.flatnonzero(found):
        found[j] = _all_different(rows[:, j])
    return found


def holds_days(values: NDArray[np.floating[Any]]) -> bool:
    """Whether a column (n,) holds days written as whole numbers, year, month and day, and several of them.

    >>> holds_days(np.array([20200131.0, 20191224.0, 20200229.0, 20200131.0, 20210101.0]))
    True
    >>> holds_days(np.array([20200131.0, 20191299.0, 20200229.0, 20200131.0, 20210101.0]))
    False
    """
    if len(values) < FEWEST or not np.all((values >= 1900_01_01) & (values <= 2100_12_31) & (values == np.floor(values))):
        return False
    month, day = values // 100 % 100, values % 100
    return bool(np.all((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)) and len(np.unique(values)) > 1)


def _all_different(values: NDArray[np.floating[Any]]) -> bool:
    """Whether there are several numbers, all whole and different."""
    if len(values) < 2 or not np.all(np.isfinite(values)):
        return False
    return bool(np.all(values == np.round(values)) and len(np.unique(values)) == len(values))
