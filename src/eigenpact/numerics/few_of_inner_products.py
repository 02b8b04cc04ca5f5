"""Leading eigenvectors of the inner products of rows, by Lanczos' method, with a Cholesky factor as proof that none was missed.

LAPACK reduces the whole matrix to a tridiagonal one, 4/3 n^3 steps of which half run at the speed of memory.  Lanczos' method
needs some dozens of products with a vector, but may miss a direction: one that its first vector hardly has, or of several with
equal eigenvalues.  That shows in M = m I - K + sum_j theta_j v_j v_j^T, with m a little above the last eigenvalue that was found:
if M has a Cholesky factor, no eigenvalue of K but those found exceeds m.  It takes n^3 / 3 steps, at the full rate.

References
    B. N. Parlett, "The Symmetric Eigenvalue Problem", SIAM (1998), section 3.3, on factors that count eigenvalues.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse.linalg import ArpackError, eigsh

from .linalg import GRADED, Array
from .tall import has_factor, times

MANY, FEW = 500, 1 / 32
"""From so many rows on it is worth its while, if at most this share of the eigenvectors is wanted."""

SPARE, PRODUCTS = 12, 1 / 8
"""Columns of Lanczos' space beside twice those wanted; and products with a vector, at most, as a share of the rows."""


def margin(K: Array) -> float:
    """How far m lies above the last eigenvalue: what rounding may change K's eigenvalues and its Cholesky factor by."""
    return len(K) * float(np.finfo(float).eps) * float(np.trace(K))


def are_few(n: int, k: int) -> bool:
    """Whether k eigenvectors of the inner products of n rows are few enough.

    >>> are_few(1000, 10), are_few(100, 10), are_few(1000, 100)
    (True, False, False)
    """
    return n >= MANY and k <= FEW * n


def leading_of_inner_products(K: Array, k: int) -> Array | None:
    """The leading k eigenvectors (n x k) of K (n x n), of which no other eigenvalue exceeds the last one by more than ``margin``.

    None for small matrices, where many are wanted, where an eigenvalue is small beside the largest, and where that is not found
    or proved within a time that LAPACK takes, too.

    >>> K = np.diag(1 / np.arange(1.0, 601.0))
    >>> bool(np.allclose(np.abs(leading_of_inner_products(K, 2)), np.eye(600, 2), atol=1e-12))
    True
    """
    n, columns = len(K), 2 * k + SPARE
    if not are_few(n, k) or not np.isfinite(np.trace(K)):
        return None
    start, restarts = np.random.default_rng(0).standard_normal(n), max(1, int(PRODUCTS * n) // (columns - k))
    try:
        values, vectors = eigsh(K, k, which="LA", v0=start, ncv=columns, maxiter=restarts)
    except ArpackError:  # no more products are allowed, or there is nothing to find
        return None
    if values[-1] > GRADED * values[0]:  # ascending; products lose digits of small values that LAPACK keeps
        return None
    M = times(vectors * values, vectors.T)
    M -= K
    M[np.diag_indices(n)] += values[0] + margin(K)
    return np.ascontiguousarray(vectors[:, ::-1]) if has_factor(M.T) else None
