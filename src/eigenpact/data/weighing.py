"""A column of a site's file that holds weights of the rows: it is no feature, and its numbers are checked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from ..errors import InputError
from ..numerics.sources import RowSource
from ..numerics.weighted import total_weight, weighted
from .checks import checked_weights
from .description import Description
from .findings import did_you_mean
from .table import Table


def with_column(said: Description) -> Description:
    """A description by which the column of weights is read as the features are, to be taken out afterwards."""
    if said.weights is None or said.columns is None or said.weights in said.columns:
        return said
    return replace(said, columns=(*said.columns, said.weights))


def take_weights(file: Path, table: Table, said: Description, site: str) -> Table:
    """The table with its column of weights, if the description names one, out of the features; and a note of it."""
    if said.weights is None:
        return table
    if table.weights is None:
        names = table.feature_names or ()
        if said.weights not in names:
            hint = did_you_mean(said.weights, names)
            raise InputError(f"{file}: its description's weights names {said.weights!r}, which is no column of numbers{hint}")
        at, others = names.index(said.weights), [j for j, name in enumerate(names) if name != said.weights]
        left = tuple(names[j] for j in others)
        table = replace(table, X=table.X[:, others], feature_names=left, weights=_column(table.X, at))
    found = checked_weights(site, table.weights, int(table.X.shape[0]), f"the column of weights {said.weights!r}")
    none = int(np.count_nonzero(found == 0))
    told = f"rows are weighted by {said.weights!r}, which adds up to {total_weight(found):.10g} over {len(found) - none} rows"
    told += f"; {none} of weight 0 do not count" if none else ""
    return replace(table, weights=found, notes=(*table.notes, told))


def weighed(X: Any, table: Table) -> Any:
    """Rows X (n x d) of a table with its weights, where it has any."""
    return X if table.weights is None else weighted(X, table.weights)


def _column(X: Any, at: int) -> Any:
    """A column of numbers (n,)."""
    column = X[:, [at]]
    column = column[:] if isinstance(column, RowSource) else column
    return np.asarray(column.toarray() if scipy.sparse.issparse(column) else column, dtype=np.float64).ravel()
