"""Rows that count more or less than others: row j as if it stood there w_j times, w_j any positive number.

``Rows`` takes :class:`Weighted` rows like an array and multiplies each centred row by the root of its weight, so that whatever is
made of ``Rows`` - scatter, products, scores, eigenvectors - is weighted without knowing of it.  Whatever else is done to rows
must know of weights: ``Weighted`` rows give neither entries nor slices, so that a function which does not is refused, by name,
instead of being wrong.
"""

from __future__ import annotations

import math
from typing import Any

import array_api_compat
import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ..errors import InputError, InputTypeError
from .sources import RowSource, SomeRows, as_rows

LARGEST = 1e140
"""Of a sum of weights: beyond, squares overflow."""


class Weighted:
    """Rows X (n x d) with a weight for each.

    Parameters
    ----------
    rows : (n, d) array, sparse matrix or RowSource
    weights : (n,) float64 array, finite and positive

    >>> X = Weighted(np.ones((3, 2)), np.array([1.0, 2.0, 0.5]))
    >>> X.shape, X.total
    ((3, 2), 3.5)
    >>> X[:2]
    Traceback (most recent call last):
    eigenpact.errors.InputTypeError: rows with weights were asked for entries by something that knows of no weights; ...
    """

    ndim = 2

    def __init__(self, rows: Any, weights: NDArray[np.float64]) -> None:
        if not (weights.shape == (rows.shape[0],) and np.all(weights > 0) and np.all(np.isfinite(weights))):
            raise InputError(f"weights of shape {weights.shape} for {rows.shape[0]} rows must be one positive number a row")
        self.rows, self.weights = as_rows(rows), weights
        self.shape, self.dtype = (int(rows.shape[0]), int(rows.shape[1])), rows.dtype

    @property
    def total(self) -> float:
        """The sum of the weights, to the last digit."""
        return total_weight(self.weights)

    def with_rows(self, rows: Any) -> Weighted:
        """Other rows with the same weights."""
        return Weighted(rows, self.weights)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise InputTypeError(
            "rows with weights were asked for entries by something that knows of no weights; FederatedPCA takes them, without "
            "prepare and missing entries: leave the weights out, or what was asked for"
        )

    __getitem__ = __array__ = __iter__ = __len__ = _refuse


def total_weight(weights: NDArray[np.float64]) -> float:
    """The sum of weights, which does not depend on their order.

    >>> total_weight(np.array([1e16, 1.0, 1.0]))
    1.0000000000000002e+16
    """
    return math.fsum(weights.tolist())


def rows_and_weights(X: Any) -> tuple[Any, NDArray[np.float64] | None]:
    """Rows by themselves, and their weights; None where they have none."""
    return (X.rows, X.weights) if isinstance(X, Weighted) else (X, None)


def weight_of(X: Any) -> float:
    """The sum of the weights of rows X (n x d); their number where they have none."""
    return X.total if isinstance(X, Weighted) else float(X.shape[0])


def rows_spoken_of(X: Any) -> int:
    """How many rows sums over rows X (n x d) speak of: with weights, (sum w)^2 / sum w^2 of them (Kish), rounded down.

    >>> rows_spoken_of(np.ones((4, 2))), rows_spoken_of(Weighted(np.ones((4, 2)), np.array([1.0, 1e-9, 1e-9, 1e-9])))
    (4, 1)
    """
    if not isinstance(X, Weighted):
        return int(X.shape[0])
    w = X.weights / X.weights.max()
    return min(len(w), int(w.sum() ** 2 / (w @ w) * (1 + 1e-9)))


def weighted(X: Any, weights: NDArray[np.float64]) -> Weighted:
    """Rows X (n x d) with weights that are not negative: those of weight zero are left out.

    >>> weighted(np.eye(3), np.array([2.0, 0.0, 1.0])).rows.tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    X = as_rows(X)
    if np.all(weights > 0):
        return Weighted(X, weights)
    index = np.flatnonzero(weights > 0)
    if isinstance(X, RowSource):
        return Weighted(SomeRows(X, index), weights[index])
    if isinstance(X, np.ndarray) or scipy.sparse.issparse(X):
        return Weighted(X[index], weights[index])
    xp = array_api_compat.array_namespace(X)
    return Weighted(xp.take(X, xp.asarray(index, device=array_api_compat.device(X)), axis=0), weights[index])
