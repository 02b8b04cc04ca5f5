"""Columns of a site's rows: how many entries are not zero, and rows without some of them."""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from .elsewhere import to_numpy
from .rows import add_duplicates
from .sources import ChangedRows, RowSource, as_rows, pieces
from .weighted import Weighted, rows_and_weights


def columns_nonzero(X: Any) -> NDArray[np.int64]:
    """How many entries of each column of X (n x d) are not zero (d,); one that is missing (NaN) is not counted.

    >>> columns_nonzero(np.array([[0.0, 2.0], [0.0, -1.0], [np.nan, np.nan]])).tolist()
    [0, 2]
    """
    X = as_rows(rows_and_weights(X)[0])
    if isinstance(X, RowSource):
        found = np.zeros(X.shape[1], dtype=np.int64)
        for _, piece in pieces(X):
            found += columns_nonzero(piece)
        return found
    if scipy.sparse.issparse(X):
        X = add_duplicates(X.tocsr())
        return np.bincount(X.indices[(X.data != 0) & (X.data == X.data)], minlength=X.shape[1]).astype(np.int64)
    xp = array_api_compat.array_namespace(X)
    return np.asarray(to_numpy(xp.sum(xp.astype((X != 0) & (X == X), xp.int64), axis=0)), dtype=np.int64)


def columns_present(X: Any) -> NDArray[np.bool_]:
    """Which columns of X (n x d) hold any number (d,): one that is NaN throughout is lacking.

    >>> columns_present(np.array([[np.nan, 2.0], [np.nan, np.nan]])).tolist()
    [False, True]
    """
    X = as_rows(rows_and_weights(X)[0])
    found = np.zeros(int(X.shape[1]), dtype=bool)
    if isinstance(X, RowSource):
        for _, piece in pieces(X):
            found |= columns_present(piece)
            if found.all():
                break
        return found
    if scipy.sparse.issparse(X):
        X = add_duplicates(X.tocsr())
        return np.asarray(np.bincount(X.indices[np.isnan(X.data)], minlength=X.shape[1]) < X.shape[0])
    xp = array_api_compat.array_namespace(X)
    if not xp.isdtype(X.dtype, "real floating"):
        return ~found
    return np.asarray(to_numpy(xp.any(~xp.isnan(X), axis=0)), dtype=bool)


def columns_missing(X: Any) -> NDArray[np.int64]:
    """How many entries of each column of X (n x d) are missing (NaN) (d,).

    >>> columns_missing(np.array([[np.nan, 2.0], [np.nan, np.nan]])).tolist()
    [2, 1]
    """
    X = as_rows(rows_and_weights(X)[0])
    found = np.zeros(int(X.shape[1]), dtype=np.int64)
    if isinstance(X, RowSource):
        if not X.facts.get("finite"):
            for _, piece in pieces(X):
                found += columns_missing(piece)
        return found
    if scipy.sparse.issparse(X):
        X = add_duplicates(X.tocsr())
        return np.bincount(X.indices[np.isnan(X.data)], minlength=X.shape[1]).astype(np.int64)
    xp = array_api_compat.array_namespace(X)
    if not xp.isdtype(X.dtype, "real floating"):
        return found
    return np.asarray(to_numpy(xp.sum(xp.astype(xp.isnan(X), xp.int64), axis=0)), dtype=np.int64)


def with_zeros(X: Any, columns: NDArray[Any]) -> Any:
    """A copy of X (n x d) with zeros in these columns, sparse or a source where it is; X itself if there are none.

    >>> with_zeros(np.ones((2, 3)), np.array([1])).tolist()
    [[1.0, 0.0, 1.0], [1.0, 0.0, 1.0]]
    """
    if not len(columns):
        return X
    if isinstance(X, Weighted):
        return X.with_rows(with_zeros(X.rows, columns))
    X = as_rows(X)
    if isinstance(X, RowSource):
        return ChangedRows(X, lambda piece: with_zeros(piece, columns))
    kept = np.ones(int(X.shape[1]), dtype=bool)
    kept[columns] = False
    if scipy.sparse.issparse(X):
        X = X.tocsr(copy=True)
        X.data[~kept[X.indices]] = 0
        X.eliminate_zeros()
        return X
    xp = array_api_compat.array_namespace(X)
    where = xp.asarray(kept, device=array_api_compat.device(X))
    return xp.where(where[None, :], X, xp.zeros_like(X[:1, :]))
