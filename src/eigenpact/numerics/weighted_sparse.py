"""Some sparse rows with weights, centred and scaled on the fly: diag(w)^1/2 (X - 1 m^T) D^-1, X a CSR matrix that stays sparse.

As ``sparse_rows.py``, with w_j copies of row j: n is the sum of the weights.  A feature is centred first, and held densely during
the call, where rows with nearly all of the weight store it and lie close to its mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .linalg import Array
from .sources import RowSource, pieces
from .sparse_rows import FAR, SparseRows, add_duplicates, better, sum_of_products, take_out


class WeightedSparseRows(SparseRows):
    """Rows Y = diag(weights)^1/2 (X - 1 mean^T) / scale of a CSR matrix X (n x d) that stores each entry once."""

    _weighted = True

    def __init__(
        self,
        X: Any,
        weights: Array,
        mean: Array | None,
        scale: Array | None,
        left: Array | None,
        far: NDArray[np.intp] | None = None,
    ) -> None:
        super().__init__(X, mean, scale, left, far if far is not None or mean is None else _far_of([(0, X)], weights, mean))
        self.weights, self._root, self._total = weights, np.sqrt(weights)[:, None], float(weights.sum())

    def column_sums(self) -> Array:
        """Sums of the columns of X itself (d,), times the weights, neither centred nor scaled."""
        sums: Array = np.asarray(self.X.T @ self.weights, dtype=np.float64)
        centre = sums / self._total
        with np.errstate(over="ignore", invalid="ignore"):  # infinite sums stay as they are
            about = WeightedSparseRows(self.X, self.weights, centre, None, None, NONE)
            refined = self._total * centre + about.column_moments()[0]
            return np.asarray(better(sums, refined, np))

    def column_moments(self) -> tuple[Array, Array]:
        """Sums over rows times their weights of the centred columns (d,), and of their squares."""
        deviations, _, absent, _ = self._deviations()
        weights, lacking = self._of_entries()
        return self._by_column(weights * deviations) + lacking * absent, self.column_squares()

    def column_squares(self) -> Array:
        """Sums of squares of the columns of Y (d,)."""
        deviations, _, absent, _ = self._deviations()
        weights, lacking = self._of_entries()
        return self._by_column(weights * deviations**2) + lacking * absent**2

    def row_squares(self) -> Array:
        """Squared lengths of the rows of Y (n,)."""
        return self.weights * super().row_squares()

    def scatter(self) -> Array:
        """The scatter matrix Y^T Y (d x d)."""
        far, D = self.far()
        if far.size == self.d:
            return D.T @ (self.weights[:, None] * D)
        X, centre = self._near_rows()
        S = sum_of_products(X, X.multiply(self.weights[:, None]).tocsr())
        if centre is not None:
            take_out(S, centre, self._total, self.column_moments()[0])
        if far.size:
            S[:, far] = self.transposed_action(self._root * D)
            S[far] = S[:, far].T
        return S

    def project(self, Z: Array) -> Array:
        """The scores Y Z (n x k)."""
        return self._root * super().project(Z)

    def transposed_action(self, T: Array) -> Array:
        """The product Y^T T (d x k) with scores T (n x k)."""
        return super().transposed_action(self._root * T)

    def row_products(self) -> Array:
        """The inner products of the rows, Y Y^T (n x n)."""
        return self._root * super().row_products() * self._root.T

    def _of_entries(self) -> tuple[Array, Array]:
        """The weights of the stored entries' rows, and of each feature (d,) those of the rows that do not store it."""
        weights = np.repeat(self.weights, np.diff(self.X.indptr))
        stored = self._by_column(weights)
        counts = np.bincount(self.X.indices, minlength=self.d)
        return weights, np.where(counts < self.n, np.maximum(self._total - stored, 0.0), 0.0)


NONE = np.zeros(0, dtype=np.intp)


def weighted_parts(
    source: RowSource, weights: Array, mean: Array | None, scale: Array | None, left: Array | None
) -> Iterator[tuple[int, WeightedSparseRows]]:
    """The rows of a sparse source with their weights, some after the others, and the number of the first of them."""
    far = None if mean is None else weighted_far(source, weights, mean)
    for first, piece in pieces(source):
        X = add_duplicates(piece)
        yield first, WeightedSparseRows(X, weights[first : first + X.shape[0]], mean, scale, left, far)


def weighted_far(source: RowSource, weights: Array, mean: Array) -> NDArray[np.intp]:
    """Features (f,) of a sparse source that implicit centring about this mean would cost more than two digits."""
    known = source.facts.get("weighted far")
    if known is not None and np.array_equal(known[0], mean) and np.array_equal(known[1], weights):
        found: NDArray[np.intp] = known[2]
        return found
    far = _far_of(((first, add_duplicates(piece)) for first, piece in pieces(source)), weights, mean)
    source.facts["weighted far"] = (np.array(mean), np.array(weights), far)
    return far


def _far_of(parts: Any, weights: Array, mean: Array) -> NDArray[np.intp]:
    """The same of sparse rows that come in parts, each with the number of its first row."""
    d = len(mean)
    stored, squares = np.zeros(d), np.zeros(d)
    for first, X in parts:
        own = np.repeat(weights[first : first + X.shape[0]], np.diff(X.indptr))
        stored += np.bincount(X.indices, weights=own, minlength=d)
        squares += np.bincount(X.indices, weights=own * (X.data - mean[X.indices]) ** 2, minlength=d)
    total = float(weights.sum())
    with np.errstate(over="ignore"):
        return np.flatnonzero((mean != 0) & (stored > total * (1 - 1 / FAR)) & (squares < mean**2 * (total / FAR)))
