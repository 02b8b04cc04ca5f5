"""The leading eigenpairs of a site's Y^T Y: by the smaller inner products where rows or features are few."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import scipy.linalg

from .krylov_space import leading_eigenpairs
from .linalg import Array, random_orthonormal, top_eigenpairs

TOP_ACCURACY = 1e-10
"""Scaled residual to which local eigenvectors of larger problems are iterated."""

DENSE_SIDE = 1500
"""Up to this many rows or features, local eigenvectors come from a dense factorization of the smaller Gram matrix."""


class Operator(Protocol):
    """What is asked of rows Y (n x d)."""

    n: int
    d: int
    sparse: Any
    streamed: bool
    X: Any

    def held(self) -> Array: ...
    def scatter(self) -> Array: ...
    def scatter_action(self, Z: Array) -> Array: ...
    def transposed_action(self, T: Array) -> Array: ...
    def row_products(self) -> Array: ...
    def column_squares(self) -> Array: ...


def top_of(rows: Operator, k: int) -> tuple[Array, Array]:
    """The min(k, n, d) largest eigenvalues of Y^T Y (descending) and their eigenvectors (columns, d rows)."""
    k = min(k, rows.n, rows.d)
    if rows.d <= min(DENSE_SIDE, rows.n):
        return top_eigenpairs(rows.scatter(), k)
    if rows.n <= DENSE_SIDE and (not rows.streamed or rows.n <= rows.X.rows_at_once()):
        return _of_few_rows(rows, k)
    trace = float(rows.column_squares().sum())
    return leading_eigenpairs(rows.scatter_action, random_orthonormal(rows.d, k, seed=0), k, trace, TOP_ACCURACY)


def _of_few_rows(rows: Operator, k: int) -> tuple[Array, Array]:
    if rows.sparse:
        values, left = top_eigenpairs(rows.row_products(), k)
        V, _ = scipy.linalg.qr(rows.transposed_action(left), mode="economic")
        return np.maximum(values, 0.0), V
    _, lengths, Vt = scipy.linalg.svd(rows.held(), full_matrices=False, check_finite=False)
    return lengths[:k] ** 2, np.ascontiguousarray(Vt[:k].T)
