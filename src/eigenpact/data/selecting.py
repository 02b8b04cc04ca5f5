"""What a description asks for, done to a table whose reader knows nothing of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ..errors import InputError
from ..numerics.sources import ChangedRows, RowSource
from .cell_texts import number_text
from .description import Description
from .findings import Finding, raise_problems
from .layout import Layout, arrange
from .table import Table
from .weighing import with_column


def select(file: Path, table: Table, description: Description) -> Table:
    """Choose and rename columns, take row names and texts out of them, mark missing numbers and change units."""
    said = replace(description, dataset=None, decimal=None, separator=None, encoding=None, header=None, wanted=None)
    said = _without_texts(with_column(said) if table.weights is None else said, table)
    if replace(said, weights=None).is_empty:
        return table if description.id not in table.texts else replace(table, row_ids=table.texts[description.id or ""])
    problems: list[Finding] = []
    names = table.feature_names if table.feature_names is not None else said.columns
    if names is None or len(names) != table.X.shape[1]:
        raise InputError(
            f"{file}: its {table.X.shape[1]} columns have no names; name all of them in its description: columns = [...]"
        )
    layout = arrange(names, said, None, False, problems, line=None)
    raise_problems(file, problems)
    if table.variants is not None and (said.units or said.missing or said.missing_in or layout.texts or said.id):
        raise InputError(f"{file} holds genotypes, of which a description can choose columns alone: columns, drop, rename")
    X = table.X if layout.features == tuple(range(len(names))) else table.X[:, list(layout.features)]
    texts = {name: _texts(table.X, column) for name, column in layout.texts.items()}
    ids = table.texts.get(description.id or "", table.row_ids) if layout.ids is None else _texts(table.X, layout.ids)
    variants = table.variants
    if variants is not None:
        at = list(layout.features)
        chosen = {key: tuple(getattr(variants, key)[j] for j in at) for key in ("chromosome", "counted", "other")}
        variants = replace(variants, position=variants.position[at], ids=layout.names or (), **chosen)
    changed = X if variants is not None else _changed(file, X, layout, table.X)
    return replace(table, X=changed, feature_names=layout.names, row_ids=ids, variants=variants, texts={**table.texts, **texts})


def _without_texts(said: Description, table: Table) -> Description:
    """The description without what the reader has found as texts already: columns that tell of cells."""
    labels, categorical = (tuple(name for name in names if name not in table.texts) for names in (said.labels, said.categorical))
    return replace(said, labels=labels, categorical=categorical, id=None if said.id in table.texts else said.id)


def _changed(file: Path, X: Any, layout: Layout, whole: Any) -> Any:
    """Columns X of the table as float64, marked and in their units."""
    said = layout.description
    if not (said.units or said.missing or said.missing_in):
        return X
    if isinstance(X, RowSource) and not X.sparse:
        kind = whole.stored
        return ChangedRows(X, lambda rows: layout.finish(rows.astype(np.float64, copy=False), kind), dtype=np.float64)
    if not isinstance(X, np.ndarray):
        raise InputError(f"{file} is sparse; units and missing marks of a description are for dense tables")
    return layout.finish(np.array(X, dtype=np.float64), X.dtype)


def _texts(X: Any, column: int) -> tuple[str, ...]:
    """A column of numbers as texts: 1.0 is '1'."""
    kind = X.stored if isinstance(X, RowSource) else X.dtype
    numbers = X[:, [column]]
    numbers = numbers[:] if isinstance(numbers, RowSource) else numbers
    dense = numbers.toarray() if sparse.issparse(numbers) else np.asarray(numbers)
    return tuple(number_text(value, kind) for value in dense.ravel().tolist())
