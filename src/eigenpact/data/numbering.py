"""Columns that number the rows, such as patient_id: they would be features, and mean nothing as such."""

from __future__ import annotations

import re

import numpy as np
from scipy import sparse

from ..numerics.sources import RowSource
from .description import Description
from .findings import Finding
from .table import Table

ROWS = 10_000
"""Rows that are looked at."""

_WORDS = re.compile(r"(?:^|[\W_])(?:id|ids|nr|no|num|number|nummer|mrn|idx|index)$|^(?:pid|iid|eid|uid)$", re.IGNORECASE)
_JOINED = re.compile(r"[a-z](?:ID|Id|Nr|No)$|^(?i:patient|subject|sample|person|participant|case|record|row|study)(?i:id|nr|no)$")


def may_number(name: str) -> bool:
    """Whether a column may number the rows, by its name.

    >>> [name for name in ("patient_id", "PatID", "Fall-Nr", "number", "subjectid", "acid", "age", "mono") if may_number(name)]
    ['patient_id', 'PatID', 'Fall-Nr', 'number', 'subjectid']
    """
    return bool(_WORDS.search(name.strip()) or _JOINED.search(name.strip()))


def numberings(table: Table, said: Description) -> list[str]:
    """A note for every feature that seems to number the rows, unless the description asks for it."""
    X, asked = table.X, (*(said.columns or ()), *said.units)
    names = [(j, name) for j, name in enumerate(table.feature_names or ()) if may_number(name) and name not in asked]
    if not names or table.variants is not None or sparse.issparse(X) or (isinstance(X, RowSource) and X.sparse):
        return []
    rows = np.asarray(X[:ROWS])
    found = [(j, name) for j, name in names if _all_different(rows[:, j])]
    told = "whole numbers, all different, are taken for a feature; if they number the rows, describe the file: "
    return [Finding(f'{told}id = "{name}" or drop = ["{name}"]', None, j + 1, name).told() for j, name in found]


def _all_different(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> bool:
    """Whether there are several numbers, all whole and different."""
    if len(values) < 2 or not np.all(np.isfinite(values)):
        return False
    return bool(np.all(values == np.round(values)) and len(np.unique(values)) == len(values))
