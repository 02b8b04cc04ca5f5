"""A site's covariance S = Y^T Y / n, and its local part given the global one: leading eigenvectors of the deflated S.

What is formed once and kept at the site is the smaller of S (d x d) and Y Y^T / n (n x n), up to ``DENSE_SIDE`` on its shorter
side, so that a round costs no pass over many rows and never more features squared than there are rows.
"""

from __future__ import annotations

import numpy as np

from ...numerics.krylov_space import leading_eigenpairs
from ...numerics.leading import DENSE_SIDE, TOP_ACCURACY
from ...numerics.linalg import Array, orthonormalize, random_orthonormal, top_eigenpairs, without
from ...numerics.rows import Rows

ROUNDING = 32 * np.finfo(float).eps
"""Deflated eigenvalues below this, times the shorter side and tr S, are what rounding left of zero."""

GRADIENT_ROUNDING = 4 * np.finfo(float).eps
"""An entry of a gradient below this, times tr S, is what rounding left of zero."""

HAS_VARIANCE = 1e-14
"""A direction has variance if it has more than this share of tr S: less may be what rounding left of zero."""


def promised_gain(G: Array, B: Array, size: float) -> float:
    """tr(G^T G B^-1), half of the rise that the gradient promises for one step of subspace iteration from a basis Z.

    G (d x k) is the half gradient, tangent at Z; B = Z^T S Z (k x k) the variances along Z, so that Z + G B^-1 is the step.  What
    rounding may have made of G = 0, its entries being differences of numbers as large as ``size``, is not counted.
    """
    if not G.size:
        return 0.0
    values, rotation = top_eigenpairs(B)
    inverse = 1.0 / np.maximum(values, max(np.finfo(float).eps * values[0], np.finfo(float).tiny))
    rounding = _rounding(len(G), size)
    gains = np.sum((G @ rotation) ** 2, axis=0)
    return float(np.sum(np.maximum(0.0, gains - rounding) * inverse))


def hidden_gain(B: Array, d: int, size: float) -> float:
    """The most that ``promised_gain`` may have left uncounted as rounding, along directions that have variance."""
    values, _ = top_eigenpairs(B)
    return float(np.sum(_rounding(d, size) / values[values > HAS_VARIANCE * size]))


def _rounding(d: int, size: float) -> float:
    """Squared length of a column of d entries that rounding made of zero."""
    return d * (GRADIENT_ROUNDING * size) ** 2


class Covariance:
    """S = Y^T Y / n of one site.

    Parameters
    ----------
    rows : Rows
        Y (n x d).
    products : array, optional
        What :meth:`form` gave before: S (d x d) for tall rows, Y Y^T / n (n x n) for wide ones; (0, 0) if both sides are long.
    """

    def __init__(self, rows: Rows, products: Array | None = None) -> None:
        self.rows = rows
        self.n = max(1, rows.n)
        self.tall = rows.d <= rows.n
        self.products = self.form(rows) if products is None else products

    @staticmethod
    def form(rows: Rows) -> Array:
        """The smaller matrix of inner products, over n; (0, 0) if even that is too large to be worth it."""
        if min(rows.n, rows.d) > DENSE_SIDE:
            return np.zeros((0, 0))
        products = rows.scatter() if rows.d <= rows.n else rows.row_products()
        return products / max(1, rows.n)

    @property
    def trace(self) -> float:
        """tr S."""
        return float(np.trace(self.products)) if self.products.size else float(self.rows.column_squares().sum()) / self.n

    @property
    def rounding(self) -> float:
        """Variances up to this may be what rounding left of zero."""
        return ROUNDING * min(self.rows.n, self.rows.d) * self.trace

    def action(self, Z: Array) -> Array:
        """S Z (d x k)."""
        return self.products @ Z if self.tall and self.products.size else self.rows.scatter_action(Z) / self.n

    def largest(self) -> float:
        """The largest eigenvalue of S."""
        values = top_eigenpairs(self.products, 1)[0] if self.products.size else self.rows.top(1)[0] / self.n
        return float(values[0]) if len(values) else 0.0

    def leading(self, k: int) -> tuple[Array, Array]:
        """At most k positive eigenvalues of S and their eigenvectors (d x <=k)."""
        values, V, _ = self.split(np.zeros((self.rows.d, 0)), k)
        return values, V

    def split(self, U: Array, k: int) -> tuple[Array, Array, Array]:
        """The local part given the global one, U (d x r).

        Returns at most k positive eigenvalues of (I - U U^T) S (I - U U^T), descending, their eigenvectors V (d x <=k) with
        U^T V = 0 to rounding, and S U (d x r).
        """
        rows, k = self.rows, min(k, self.rows.d - U.shape[1], self.rows.n)
        if k <= 0:
            return np.zeros(0), np.zeros((rows.d, 0)), self.action(U)
        if not self.products.size:
            SU = self.action(U)
            rest = self.trace - float(np.sum(U * SU))
            start = _beside(random_orthonormal(rows.d, k, seed=0), U)
            values, V = leading_eigenpairs(lambda Z: without(self.action(without(Z, U)), U), start, k, rest, TOP_ACCURACY)
        elif self.tall:
            SU = self.action(U)
            half = self.products - SU @ U.T
            values, V = top_eigenpairs(without(half, U), k)
        else:
            T = rows.project(U)
            SU = rows.transposed_action(T) / self.n
            values, left = top_eigenpairs(self.products - T @ T.T / self.n, k)
            V = np.zeros((rows.d, len(values)))  # filled below, where eigenvalues are not rounding
        real = values > self.rounding
        values, V = values[real], V[:, real]
        if self.products.size and not self.tall and real.any():
            V = rows.transposed_action(np.ascontiguousarray(left[:, real])) / np.sqrt(self.n * values)
        return values, _beside(V, U), SU


def _beside(V: Array, U: Array) -> Array:
    """An orthonormal basis of (I - U U^T) V with the same leading spans; twice, because once leaves rounding of U's size."""
    for _ in range(2 if V.shape[1] else 0):
        V = orthonormalize(without(V, U))
    return V
