"""A site's rows, centred and scaled on the fly: Y = (X - 1 m^T) D^-1, never stored.

X may be a dense array of any array-API namespace (numpy, torch, cupy, ...; computed where it lies) or a scipy.sparse matrix,
which stays sparse.  All results are float64 numpy arrays, whatever the precision of X.

Sparse rows are centred implicitly, X^T T - m 1^T T, which loses log10(n m_j^2 / s_j) digits of a feature j with n rows, mean m_j
and squared deviations s_j (half of them in a product).  A feature that lacks l of its n entries has s_j >= l m_j^2, so it can
lose many digits only if almost every row stores it.  Such features, few or many, are centred first and held densely during the
call: no larger than their sparse form.
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

EPS = float(np.finfo(np.float64).eps)

FAR = 100.0
"""Sparse features with n m_j^2 above this multiple of their squared deviations are centred first: two digits may be lost."""


class Rows:
    """The rows Y = (X - 1 mean^T) / scale of one site as an operator.

    Parameters
    ----------
    X : (n, d) array or sparse matrix
        Entries that a sparse matrix stores more than once are added up, in a copy.
    mean, scale : (d,) arrays or None
        None leaves the rows as they are, without a copy.
    left : (d,) array, optional
        What rounding left of the mean: subtracted from X - mean, except from sparse features that are centred implicitly.
    """

    def __init__(self, X: Any, mean: Array | None = None, scale: Array | None = None, left: Array | None = None) -> None:
        self.sparse = scipy.sparse.issparse(X)
        self.X = add_duplicates(X.tocsr()) if self.sparse else X
        self.n, self.d = int(X.shape[0]), int(X.shape[1])
        self.mean = mean
        self.scale = scale
        self.left = left
        self._whole: Any = None
        self._split: tuple[NDArray[np.intp], Array] | None = None

    # -- what leaves the operator ---------------------------------------------------------------

    def column_sums(self) -> Array:
        """Sums of the columns of X itself (d,), neither centred nor scaled, to the last digits whatever n is.

        A long sum loses digits.  The sum of what is left after the mean of a block is subtracted gives them back.
        """
        if self.sparse:
            sums = np.asarray(self.X.sum(axis=0, dtype=np.float64)).reshape(-1)
            centre = sums / max(1, self.n)
            with np.errstate(over="ignore", invalid="ignore"):  # infinite sums stay as they are
                return _to_numpy(_better(sums, self.n * centre + Rows(self.X, centre).column_moments()[0], np))
        return _total(_sums(block) for block in Rows(self.X)._blocks(small=True))

    def column_moments(self) -> tuple[Array, Array]:
        """Sums, and sums of squares, of the columns of Y (d,), without subtracting large numbers from one another."""
        if self.sparse:
            deviations, columns, absent, lacking = self._deviations()
            sums = np.asarray(np.bincount(columns, weights=deviations, minlength=self.d), dtype=np.float64)
            return sums + lacking * absent, self.column_squares()
        blocks = ((_namespace(b).sum(b, axis=0), _namespace(b).sum(b * b, axis=0)) for b in self._blocks(small=True))
        first, second = zip(*blocks, strict=True)
        return _total(first), _total(second)

    def column_squares(self) -> Array:
        """Sums of squares of the columns of Y (d,), without subtracting large numbers from one another."""
        if self.sparse:
            deviations, columns, absent, lacking = self._deviations()
            squares = np.asarray(np.bincount(columns, weights=deviations**2, minlength=self.d), dtype=np.float64)
            return squares + lacking * absent**2
        return _total(_namespace(block).sum(block * block, axis=0) for block in self._blocks())

    def column_largest(self) -> Array:
        """The largest absolute value in each column of Y (d,)."""
        if self.sparse:
            deviations, columns, absent, lacking = self._deviations()
            largest: Array = np.where(lacking > 0, np.abs(absent), 0.0)
            np.maximum.at(largest, columns, np.abs(deviations))
            return largest
        found = [_to_numpy(_namespace(b).max(_namespace(b).abs(b), axis=0)) for b in self._blocks(small=True)]
        return _to_numpy(np.max(found, axis=0))

    def row_squares(self) -> Array:
        """Squared lengths of the rows of Y (n,)."""
        if self.sparse:
            far, D = self._far()
            X, centre = self._near_rows()
            squares: Array = np.asarray(X.multiply(X).sum(axis=1)).reshape(-1)
            if centre is not None:
                squares = squares - 2 * (X @ centre) + centre @ centre
            return squares + np.sum(D * D, axis=1) if far.size else squares
        return np.concatenate([_to_numpy(_namespace(b).sum(b * b, axis=1)) for b in self._blocks()])

    def residual_squares(self, Z: Array) -> Array:
        """Squared lengths (n,) of what orthonormal Z (d x k) misses, Y - Y Z Z^T: no difference of two large numbers."""
        Z_there = Z if self.sparse else _like(Z, self.X)
        squares = [np.zeros(0)]
        for where in slices(self.n, self.d):
            few = Rows(self.X[where], self.mean, self.scale, self.left)
            for block in few._dense_blocks() if self.sparse else few._blocks():
                missed = block - (block @ Z_there) @ Z_there.T
                squares.append(_to_numpy((missed * missed).sum(axis=1)))
        return np.concatenate(squares)

    def scatter(self) -> Array:
        """The scatter matrix Y^T Y (d x d)."""
        if self.sparse:
            far, D = self._far()
            if far.size == self.d:
                return D.T @ D
            X, centre = self._near_rows()
            S: Array = (X.T @ X).toarray()
            if centre is not None:
                sums = np.asarray(X.sum(axis=0)).reshape(-1)
                S += self.n * np.outer(centre, centre) - np.outer(sums, centre) - np.outer(centre, sums)
            if far.size:
                S[:, far] = self.transposed_action(D)
                S[far] = S[:, far].T
            return S
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
            far, D = self._far()
            if far.size == self.d:
                return D @ Z
            scaled = Z if self.scale is None else Z / self.scale[:, None]
            if far.size:
                scaled = np.array(scaled)
                scaled[far] = 0.0
            scores: Array = np.asarray(self.X @ scaled)
            scores = scores if self.mean is None else scores - self.mean @ scaled
            return scores + D @ Z[far] if far.size else scores
        Z_there = _like(Z, self.X)
        return np.concatenate([_to_numpy(block @ Z_there) for block in self._blocks()] or [np.zeros((0, Z.shape[1]))])

    def transposed_action(self, T: Array) -> Array:
        """The product Y^T T (d x k) with scores T (n x k)."""
        if self.sparse:
            far, D = self._far()
            if far.size == self.d:
                return D.T @ T
            G: Array = np.asarray(self.X.T @ T)
            if self.mean is not None:
                G = G - np.outer(self.mean, T.sum(axis=0))
            G = G if self.scale is None else G / self.scale[:, None]
            if far.size:
                G[far] = D.T @ T
            return G
        T_there = _like(T, self.X)
        return _total(
            block.T @ T_there[first : first + block.shape[0], :]
            for first, block in zip(range(0, self.n, self._step()), self._blocks(), strict=True)
        )

    def row_products(self) -> Array:
        """The inner products of the rows, Y Y^T (n x n)."""
        if self.sparse:
            far, D = self._far()
            X, centre = self._near_rows()
            K: Array = (X @ X.T).toarray()
            if centre is not None:
                shift = X @ centre
                K += centre @ centre - shift[:, None] - shift
            return K + D @ D.T if far.size else K
        xp, blocks = _namespace(self.X), list(self._blocks())
        Y = blocks[0] if len(blocks) == 1 else xp.concat(blocks, axis=0)
        return _to_numpy(Y @ Y.T)

    def take(self, index: NDArray[np.int64]) -> Rows:
        """The rows of these numbers, in this order."""
        if self.sparse or isinstance(self.X, np.ndarray):
            return Rows(self.X[index], self.mean, self.scale, self.left)
        there = _namespace(self.X).asarray(index, device=array_api_compat.device(self.X))
        return Rows(_namespace(self.X).take(self.X, there, axis=0), self.mean, self.scale, self.left)

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

    def _far(self) -> tuple[NDArray[np.intp], Array]:
        """Sparse features (f,) that implicit centring would cost more than two digits, and their columns of Y (n x f), dense.

        A few more may be among them, but none that is not stored in almost every row.  A look at the first tenth of the rows
        rules out nearly all others: its squared deviations are no more than s_j, and it lacks no more entries than the whole.
        """
        if self._split is None:
            far, D = np.zeros(0, dtype=np.intp), np.zeros((self.n, 0))
            if self.mean is not None and self.n > 0:
                look, lacking = -(-self.n // 10), self.n / FAR
                counts = np.bincount(self.X.indices[: self.X.indptr[look]], minlength=self.d)
                far = np.flatnonzero((counts > look - lacking) & (self.mean != 0))
                if far.size:
                    first = self._dense_columns(far, look, lacking)[1] - self.mean[far]
                    with np.errstate(over="ignore"):  # a mean may be as small as it likes
                        far = far[np.sum((first / self.mean[far]) ** 2, axis=0) < lacking]
                if far.size:
                    far, D = self._dense_columns(far, self.n, lacking)
                    D -= self.mean[far]
                    D = D if self.left is None else D - self.left[far]
                    D = D if self.scale is None else D / self.scale[far]
            self._split = far, D
        return self._split

    def _dense_columns(self, columns: NDArray[np.intp], n: int, lacking: float) -> tuple[NDArray[np.intp], Array]:
        """Those of the columns of sparse X that lack fewer than ``lacking`` of the first n entries, and these entries (n x f)."""
        place = np.full(self.d, -1)
        place[columns] = np.arange(len(columns))
        stored = slice(0, int(self.X.indptr[n]))
        at = np.flatnonzero((place >= 0).take(self.X.indices[stored]))
        enough = np.bincount(place[self.X.indices[at]], minlength=len(columns)) > n - lacking
        if not enough.all():
            return self._dense_columns(columns[enough], n, lacking)
        dense = np.zeros((n, len(columns)))
        row = np.searchsorted(self.X.indptr, at, side="right") - 1
        dense[row, place[self.X.indices[at]]] = self.X.data[at]
        return columns, dense

    def _near_rows(self) -> tuple[Any, Array | None]:
        """Sparse rows X D^-1 in float64 without the far features, and what is to be subtracted from each (None for nothing)."""
        far, _ = self._far()
        X = self.X.astype(np.float64)
        if self.scale is None and not far.size:
            return X, self.mean
        inverse = np.ones(self.d) if self.scale is None else 1 / self.scale
        inverse[far] = 0.0
        X = X.multiply(inverse).tocsr()
        X.eliminate_zeros()
        return X, None if self.mean is None else self.mean * inverse

    def _deviations(self) -> tuple[Array, NDArray[Any], Array, NDArray[np.intp]]:
        """Of sparse rows: the stored entries of Y, their columns, and the value and number (d,) of those that are not stored."""
        columns = self.X.indices
        absent = np.zeros(self.d) if self.mean is None else -self.mean
        stored = self.X.data.astype(np.float64)
        if self.mean is not None:
            stored = stored - self.mean[columns]
        if self.scale is not None:
            stored, absent = stored / self.scale[columns], absent / self.scale
        return stored, columns, absent, self.n - np.bincount(columns, minlength=self.d)

    def _dense_blocks(self) -> Iterator[Array]:
        """A few sparse rows at a time, centred."""
        for where in slices(self.n, self.d):
            yield from Rows(self.X[where].toarray(), self.mean, self.scale, self.left)._blocks()

    def _step(self) -> int:
        """Rows in a block; all of them where nothing has to be subtracted or converted, since then nothing is copied."""
        if self.mean is None and self.scale is None and self.X.dtype == _namespace(self.X).float64:
            return max(1, self.n)
        return self._block_rows()

    def _block_rows(self) -> int:
        size = BLOCK_BYTES if isinstance(self.X, np.ndarray) else DEVICE_BLOCK_BYTES
        return max(1, size // (8 * max(1, self.d)))

    def _blocks(self, *, small: bool = False) -> Iterator[Any]:
        """Dense rows of Y in float64, a block at a time, where X lies; with ``small``, even if nothing is copied.

        A block that is all of Y is kept, so that a function which takes several products makes it once.
        """
        if self._whole is not None:
            yield self._whole
            return
        xp = _namespace(self.X)
        mean = None if self.mean is None else _like(self.mean, self.X)
        scale = None if self.scale is None else _like(self.scale, self.X)
        left = None if self.left is None else _like(self.left, self.X)
        step = self._block_rows() if small else self._step()
        for first in range(0, self.n, step):
            block = xp.astype(self.X[first : min(first + step, self.n), :], xp.float64, copy=False)
            if mean is not None:
                block = block - mean
            if left is not None:
                block = block - left
            if scale is not None:
                block = block / scale
            if step >= self.n:
                self._whole = block
            yield block


def slices(n: int, d: int) -> Iterator[slice]:
    """Which of n rows of d features to read at a time: a few megabytes as float64.

    >>> list(slices(3, 1 << 18))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    step = max(1, BLOCK_BYTES // (8 * max(1, d)))
    return (slice(first, min(first + step, n)) for first in range(0, n, step))


def add_duplicates(X: Any) -> Any:
    """A CSR matrix that stores each entry once: X itself if it does, else a copy in which duplicates are added up.

    >>> twice = scipy.sparse.csr_matrix(([1.0, 2.0], [0, 0], [0, 2]), shape=(1, 1))
    >>> add_duplicates(twice).data.tolist(), twice.data.tolist()
    ([3.0], [1.0, 2.0])
    """
    if X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X


def _sums(block: Any) -> Any:
    """Sums of the columns of a dense block, to the last digits."""
    xp = _namespace(block)
    sums = xp.sum(block, axis=0)
    n = block.shape[0]
    with np.errstate(over="ignore", invalid="ignore"):  # infinite sums stay as they are
        centre = sums / n
        return _better(sums, n * centre + xp.sum(block - centre, axis=0), xp)


def _better(sums: Any, refined: Any, xp: Any) -> Any:
    """Refined sums where plain ones are off by more than one rounding, plain ones else: those of whole numbers are exact."""
    return xp.where(xp.abs(refined - sums) > 2 * EPS * xp.abs(sums), refined, sums)


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
