"""One file of several sites: a column says to which site a row belongs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..numerics.sources import RowSource, SomeRows
from .cell_texts import without_marks
from .description import Description
from .table import Table

MOST_SITES = 1000
"""A column with more different texts hardly tells sites apart."""


def split_tables(tables: Mapping[str, Table], column: str, missing: Sequence[str] = ()) -> dict[str, Table]:
    """Tables by site, from tables by file; ``column`` is one of the texts of each, in which ``missing`` cells name no site.

    >>> file = Table(np.eye(3), texts={"hospital": ("north", "south", "north")})
    >>> {name: table.X.tolist() for name, table in split_tables({"all": file}, "hospital").items()}
    {'north': [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], 'south': [[0.0, 1.0, 0.0]]}
    """
    sites: dict[str, Table] = {}
    origin: dict[str, str] = {}
    for file, table in tables.items():
        for name, part in _split(file, table, column, missing).items():
            if name in sites:
                raise InputError(
                    f"--by {column}: site {name!r} is in {origin[name]} and in {file}; give each site's rows in one file"
                )
            sites[name], origin[name] = part, file
    return sites


def _split(file: str, table: Table, column: str, missing: Sequence[str]) -> dict[str, Table]:
    texts = without_marks(table.texts[column], column, Description(missing=tuple(missing)))
    names = np.array([name.strip() for name in texts], dtype=object)
    empty = int(np.count_nonzero(names == ""))
    if empty:
        raise InputError(f"--by {column}: {empty} of {len(names)} rows of {file} have no site there; name it, or drop those rows")
    found = list(dict.fromkeys(names.tolist()))
    if len(found) > MOST_SITES:
        raise InputError(
            f"--by {column}: {file} has {len(found)} different texts there, more than {MOST_SITES} sites; "
            "does it name rows (--id)?"
        )
    return {name: _rows(table, np.flatnonzero(names == name)) for name in found}


def _rows(table: Table, index: NDArray[np.intp]) -> Table:
    X: Any = SomeRows(table.X, index) if isinstance(table.X, RowSource) else table.X[index]
    texts = {name: _some(column, index) for name, column in table.texts.items()}
    ids = None if table.row_ids is None else _some(table.row_ids, index)
    weights = None if table.weights is None else table.weights[index]
    return replace(table, X=X, row_ids=ids, texts=texts, weights=weights, notes=())


def _some(texts: Sequence[str], index: NDArray[np.intp]) -> tuple[str, ...]:
    return tuple(texts[i] for i in index.tolist())
