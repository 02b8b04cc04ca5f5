"""A site's rows, centred and scaled on the fly: Y = (X - 1 m^T) D^-1, never stored.

X may be a dense array of any array-API namespace (numpy, torch, cupy, ...; computed where it lies) or a scipy.sparse matrix,
which stays sparse.  All results are float64 numpy arrays, whatever the precision of X.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import array_api_compat
import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from .krylov_space import leading_eigenpairs
from .linalg import Array, random_orthonormal, top_eigenpairs

BLOCK_BYTES, DEVICE_BLOCK_BYTES = 1 << 22, 1 << 28
"""Dense rows are centred in blocks of about this size: small enough for a CPU's cache, large enough to keep a GPU busy."""

TOP_ACCURACY = 1e-10
"""Scaled residual to which local eigenvectors of larger problems are iterated."""

DENSE_SIDE = 1500
"""Up to this many rows or features, local eigenvectors come from a dense factorization of the smaller Gram matrix."""


class Rows:
    """The rows Y = (X - 1 mean^T) / scale of one site as an operator.

    Parameters
    ----------
    X : (n, d) array or sparse matrix
    mean, scale : (d,) arrays or None
        None leaves the rows as they are, without a copy.
    """

    def __init__(self, X: Any, mean: Array | None = None, scale: Array | None = None) -> None:
        self.sparse = scipy.sparse.issparse(X)
        self.X = X.tocsr() if self.sparse else X
        self.n, self.d = int(X.shape[0]), int(X.shape[1])
        self.mean = mean
        self.scale = scale

    def take(self, index: Any) -> Rows:
        """The rows of these numbers, in this order."""
        picked = _like(index, self.X) if not self.sparse else index
        return Rows(self.X[picked], self.mean, self.scale)

    # -- what leaves the operator ---------------------------------------------------------------

    def column_sums(self) -> Array:
        """Sums of the columns of X itself (d,), neither centred nor scaled, accumulated in float64."""
        if self.sparse:
            return np.asarray(self.X.sum(axis=0, dtype=np.float64)).reshape(-1)
        return _total(_namespace(block).sum(block, axis=0) for block in Rows(self.X)._blocks())

    def column_squares(self) -> Array:
        """Sums of squares of the columns of Y (d,), without subtracting large numbers from one another."""
        if self.sparse:
            centre = np.zeros(self.d) if self.mean is None else self.mean
            coo = self.X.tocoo()
            deviations = coo.data.astype(np.float64) - centre[coo.col]
            total: Array = np.asarray(np.bincount(coo.col, weights=deviations**2, minlength=self.d), dtype=np.float64)
            total += (self.n - np.bincount(coo.col, minlength=self.d)) * centre**2
            return total if self.scale is None else total / self.scale**2
        return _total(_namespace(block).sum(block * block, axis=0) for block in self._blocks())

    def row_squares(self) -> Array:
        """Squared lengths of the rows of Y (n,)."""
        if self.sparse:
            if self._far_from_origin():
                return np.concatenate([np.sum(block * block, axis=1) for block in self._dense_blocks()])
            inverse = np.ones(self.d) if self.scale is None else 1 / self.scale
            X = self.X.astype(np.float64).multiply(inverse).tocsr()
            squares: Array = np.asarray(X.multiply(X).sum(axis=1)).reshape(-1)
            if self.mean is not None:
                centre = self.mean * inverse
                squares = squares - 2 * (X @ centre) + centre @ centre
            return squares
        return np.concatenate([_to_numpy(_namespace(b).sum(b * b, axis=1)) for b in self._blocks()])

    def scatter(self) -> Array:
        """The scatter matrix Y^T Y (d x d)."""
        if self.sparse:
            if self._far_from_origin():
                return _total(block.T @ block for block in self._dense_blocks())
            X = self.X.astype(np.float64)
            S: Array = (X.T @ X).toarray()
            if self.mean is not None:
                sums = self.column_sums()
                S += self.n * np.outer(self.mean, self.mean) - np.outer(sums, self.mean) - np.outer(self.mean, sums)
            return S if self.scale is None else S / np.outer(self.scale, self.scale)
        return _total(block.T @ block for block in self._blocks())

    def scatter_action(self, Z: Array) -> Array:
        """The product Y^T (Y Z) (d x k) with a block Z (d x k), in one pass over the rows."""
        if self.sparse:
            return self.transposed_action(self.project(Z))
        Z_there = _like(Z, self.X)
        return _total(block.T @ (block @ Z_there) for block in self._blocks())

    def project(self, Z: Array) -> Array:
        """The scores Y Z (n x k)."""
        if self.sparse:
            W = Z if self.scale is None else Z / self.scale[:, None]
            scores: Array = np.asarray(self.X @ W)
            return scores if self.mean is None else scores - self.mean @ W
        Z_there = _like(Z, self.X)
        return np.concatenate([_to_numpy(block @ Z_there) for block in self._blocks()] or [np.zeros((0, Z.shape[1]))])

    def transposed_action(self, T: Array) -> Array:
        """The product Y^T T (d x k) with scores T (n x k)."""
        if self.sparse:
            G: Array = np.asarray(self.X.T @ T)
            if self.mean is not None:
                G = G - np.outer(self.mean, T.sum(axis=0))
            return G if self.scale is None else G / self.scale[:, None]
        T_there = _like(T, self.X)
        return _total(
            block.T @ T_there[first : first + block.shape[0], :]
            for first, block in zip(range(0, self.n, self._step()), self._blocks(), strict=True)
        )

    def row_products(self) -> Array:
        """The inner products of the rows, Y Y^T (n x n)."""
        if not self.sparse:
            xp, blocks = _namespace(self.X), list(self._blocks())
            Y = blocks[0] if len(blocks) == 1 else xp.concat(blocks, axis=0)
            return _to_numpy(Y @ Y.T)
        if self._far_from_origin():
            dense: Array = np.concatenate(list(self._dense_blocks()))
            return dense @ dense.T
        X = self.X.astype(np.float64)
        X = X if self.scale is None else X.multiply(1 / self.scale).tocsr()
        K: Array = (X @ X.T).toarray()
        if self.mean is not None:
            centre = self.mean if self.scale is None else self.mean / self.scale
            shift = X @ centre
            K += centre @ centre - shift[:, None] - shift
        return K

    def some(self, index: NDArray[np.int64]) -> Rows:
        """Some of the rows, by their numbers."""
        if self.sparse or isinstance(self.X, np.ndarray):
            return Rows(self.X[index], self.mean, self.scale)
        there = _namespace(self.X).asarray(index, device=array_api_compat.device(self.X))
        return Rows(_namespace(self.X).take(self.X, there, axis=0), self.mean, self.scale)

    def top(self, k: int) -> tuple[Array, Array]:
        """The min(k, n, d) largest eigenvalues of Y^T Y (descending) and their eigenvectors (columns, d rows)."""
        k = min(k, self.n, self.d)
        if self.d <= min(DENSE_SIDE, self.n):
            return top_eigenpairs(self.scatter(), k)
        if self.n <= DENSE_SIDE:
            return self._top_of_few_rows(k)
        trace = float(self.column_squares().sum())
        start = random_orthonormal(self.d, k, seed=0)
        return leading_eigenpairs(self.scatter_action, start, k, trace, TOP_ACCURACY)

    # -- how ------------------------------------------------------------------------------------

    def _top_of_few_rows(self, k: int) -> tuple[Array, Array]:
        if self.sparse:
            values, left = top_eigenpairs(self.row_products(), k)
            V, _ = scipy.linalg.qr(self.transposed_action(left), mode="economic")
            return np.maximum(values, 0.0), V
        Y = np.concatenate([_to_numpy(block) for block in self._blocks()])
        _, lengths, Vt = scipy.linalg.svd(Y, full_matrices=False, check_finite=False)
        return lengths[:k] ** 2, np.ascontiguousarray(Vt[:k].T)

    def _far_from_origin(self) -> bool:
        """Whether subtracting n m m^T from X^T X would lose more than three digits."""
        if self.mean is None:
            return False
        spread = Rows(self.X, self.mean).column_squares().sum()
        return bool(self.n * (self.mean @ self.mean) > 1e3 * spread)

    def _dense_blocks(self) -> Iterator[Array]:
        """A few sparse rows at a time, centred: only for rows so far from the origin that no digits are left otherwise."""
        step = max(1, BLOCK_BYTES // (8 * max(1, self.d)))
        for first in range(0, self.n, step):
            yield from Rows(self.X[first : first + step].toarray(), self.mean, self.scale)._blocks()

    def _step(self) -> int:
        """Rows in a block; all of them where nothing has to be subtracted or converted, since then nothing is copied."""
        if self.mean is None and self.scale is None and self.X.dtype == _namespace(self.X).float64:
            return max(1, self.n)
        size = BLOCK_BYTES if isinstance(self.X, np.ndarray) else DEVICE_BLOCK_BYTES
        return max(1, size // (8 * max(1, self.d)))

    def _blocks(self) -> Iterator[Any]:
        """Dense rows of Y in float64, a block at a time, in the namespace and on the device of X."""
        xp = _namespace(self.X)
        mean = None if self.mean is None else _like(self.mean, self.X)
        scale = None if self.scale is None else _like(self.scale, self.X)
        step = self._step()
        for first in range(0, self.n, step):
            block = xp.astype(self.X[first : min(first + step, self.n), :], xp.float64, copy=False)
            if mean is not None:
                block = block - mean
            if scale is not None:
                block = block / scale
            yield block


def _namespace(x: Any) -> Any:
    return array_api_compat.array_namespace(x)


def _like(a: Array, x: Any) -> Any:
    """The numpy array ``a`` in the namespace and on the device of ``x``."""
    if isinstance(x, np.ndarray):
        return a
    return _namespace(x).asarray(np.array(a), device=array_api_compat.device(x))


def _total(parts: Iterable[Any]) -> Array:
    """The sum of arrays, added up where they lie."""
    parts = iter(parts)
    total = next(parts)
    for part in parts:
        total += part
    return _to_numpy(total)


def _to_numpy(x: Any) -> Array:
    if isinstance(x, np.ndarray):
        return x
    if array_api_compat.is_torch_array(x):
        x = x.cpu()
    elif array_api_compat.is_cupy_array(x):
        x = x.get()
    return np.asarray(x)
