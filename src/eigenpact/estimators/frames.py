"""What people hand to ``fit`` that is no matrix yet: a table with a column of sites, an AnnData object, the name of a file."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.numbering import ENTRIES, FEWEST, ROWS, are_consecutive, holds_days
from ..errors import DoubtfulFeatureWarning, InputError, InputTypeError

SHOWN = 8


def split_off_sites(X: Any, sites: Any) -> tuple[Any, Any]:
    """The table and a label per row: where ``sites`` is the name of a column, that column, and the table without it.

    >>> import pandas
    >>> table, labels = split_off_sites(pandas.DataFrame({"a": [1.0, 2.0], "hospital": ["north", "south"]}), "hospital")
    >>> list(table.columns), labels.tolist()
    (['a'], ['north', 'south'])
    """
    if not isinstance(sites, str):
        if sites is not None and np.ndim(sites) == 0:
            named = str(sites) in map(str, getattr(X, "columns", ()))
            told = (
                f"sites={str(sites)!r}, the name as text" if named else "a label for every row, or the name of a column as text"
            )
            raise InputError(f"sites={sites!r} is neither labels of rows nor a text; give {told}")
        return X, sites
    if hasattr(X, "column_names") and hasattr(X, "to_pandas"):  # a table of pyarrow
        X = X.to_pandas()
    if not hasattr(X, "columns") or not hasattr(X, "drop"):
        raise InputError(
            f"sites={sites!r} names a column, and X has no names of columns; give a label for every row, or a DataFrame"
        )
    columns = [str(column) for column in X.columns]
    if sites not in columns:
        shown = ", ".join(columns[:SHOWN]) + (" ..." if len(columns) > SHOWN else "")
        raise InputError(f"sites={sites!r} is no column of X; columns are {shown}")
    if columns.count(sites) > 1:
        raise InputError(
            f"X has {columns.count(sites)} columns named {sites!r}; rename them apart, or give a label for every row"
        )
    own = X.columns[columns.index(sites)]
    return (X.drop(columns=own) if hasattr(X, "iloc") else X.drop(own)), np.asarray(X[own])


def warn_of_doubtful(names: Sequence[str] | None, parts: Iterable[Any], stacklevel: int) -> None:
    """Warn of columns (of tables n_i x d with these names) that number the rows, or hold days written as numbers."""
    doubts: dict[str, str] = {}
    if names is None:
        return
    for X in (part for part in parts if isinstance(part, np.ndarray)):
        rows = X[: min(ROWS, max(FEWEST, ENTRIES // X.shape[1]))]
        for j in np.flatnonzero(are_consecutive(rows)).tolist():
            doubts[str(names[j])] = "holds whole numbers one after the other; if they number the rows, make it the index"
        for j in (j for j in range(rows.shape[1]) if holds_days(rows[:, j])):
            doubts[str(names[j])] = "holds days written as numbers, such as 20200131; give days since a first one"
    if doubts:
        told = "; ".join(f"column {name!r} {why}, or leave it out" for name, why in list(doubts.items())[:SHOWN])
        warnings.warn(f"{told}: X.drop(columns={list(doubts)[:SHOWN]})", DoubtfulFeatureWarning, stacklevel=stacklevel + 1)


def is_missing(label: Any) -> bool:
    """Whether a row has no label: None, NaN, NaT or pandas' NA, which is not even equal or unequal to itself."""
    return label is None or type(label).__name__ == "NAType" or bool(label != label)


def rows_by_label(labels: NDArray[Any]) -> list[tuple[Any, NDArray[np.intp]]]:
    """Labels, each once and in order, and the numbers of their rows; by their texts where they are of kinds without an order.

    >>> [(label, rows.tolist()) for label, rows in rows_by_label(np.array(["b", 10, "a", 10], dtype=object))]
    [(10, [1, 3]), ('a', [2]), ('b', [0])]
    """
    try:
        found, codes = np.unique(labels, return_inverse=True)
        names = list(found)
    except TypeError:
        names = sorted(dict.fromkeys(labels.tolist()), key=str)
        number = {label: i for i, label in enumerate(names)}
        codes = np.array([number[label] for label in labels.tolist()], dtype=np.intp)
    stops = np.cumsum(np.bincount(codes, minlength=len(names)))[:-1]
    return list(zip(names, np.split(np.argsort(codes, kind="stable"), stops), strict=True))


def check_table(whose: str, X: Any) -> None:
    """Refuse what is no table, and say what to give instead; no row is printed.

    >>> check_table("X", np.arange(4.0))
    Traceback (most recent call last):
    eigenpact.errors.InputError: Expected 2D array, got 1D array instead: X has shape (4,). Reshape your data: ...
    """
    kind = type(X)
    if kind.__name__ == "AnnData" and kind.__module__.startswith("anndata"):
        raise InputTypeError(
            f"{whose} is an AnnData object; call ep.pp.pca(adata, sites='a column of adata.obs'), or give adata.X"
        )
    if isinstance(X, str | os.PathLike):
        raise InputTypeError(
            f"{whose} is {os.fspath(X)!r}, the name of a file; read it first (pandas.read_csv, numpy.load), or run: eigenpact fit"
        )
    shape = getattr(X, "shape", None)
    if shape is None and isinstance(X, list | tuple) and X and isinstance(X[0], int | float | complex | np.number):
        shape = (len(X),)
    if shape is not None and len(shape) == 1:
        raise InputError(
            f"Expected 2D array, got 1D array instead: {whose} has shape ({shape[0]},). Reshape your data: "
            "X.reshape(-1, 1) is a table of one feature, X.reshape(1, -1) one of one row"
        )
