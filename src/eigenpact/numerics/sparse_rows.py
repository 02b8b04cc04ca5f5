"""Some sparse rows, centred and scaled on the fly: Y = (X - 1 m^T) D^-1, X a CSR matrix that stays sparse.

They are centred implicitly, X^T T - m 1^T T, which loses log10(n m_j^2 / s_j) digits of a feature j with n rows, mean m_j and
squared deviations s_j (half of them in a product).  A feature that lacks l of its n entries has s_j >= l m_j^2, so it can lose
many digits only if almost every row stores it.  Such features, few or many, are centred first and held densely during the call:
no larger than their sparse form.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from .compiled_sparse import sparse_products, worth_compiling
from .linalg import Array
from .parts import careful_totals
from .sources import RowSource, pieces

_ger = scipy.linalg.get_blas_funcs("ger", dtype=np.float64)

SEGMENT, SEGMENT_SUMS = 64, 1 << 21
"""Rows that are added up before the next sum begins, and sums of all features that there may be for that, at most."""

RUN = 1024
"""Rows, at least, whose products are added up before they are added to those of the rows before."""

FAR = 100.0
"""Sparse features with n m_j^2 above this multiple of their squared deviations are centred first: two digits may be lost."""


class SparseRows:
    """Rows Y = (X - 1 mean^T) / scale of a CSR matrix X (n x d) that stores each entry once.

    Parameters
    ----------
    X, mean, scale, left : as of :class:`eigenpact.numerics.rows.Rows`
    far : (f,) array of column numbers, optional
        The features that are centred first; found here if None.
    """

    _weighted = False

    def __init__(
        self, X: Any, mean: Array | None, scale: Array | None, left: Array | None, far: NDArray[np.intp] | None = None
    ) -> None:
        self.X, self.mean, self.scale, self.left = X, mean, scale, left
        self.n, self.d = int(X.shape[0]), int(X.shape[1])
        self._given = far
        self._split: tuple[NDArray[np.intp], Array] | None = None

    def column_sums(self) -> Array:
        """Sums of the columns of X itself (d,), neither centred nor scaled, to the last digits whatever n is."""
        sums: Array = np.asarray(self.X.sum(axis=0, dtype=np.float64)).reshape(-1)
        centre = sums / max(1, self.n)
        with np.errstate(over="ignore", invalid="ignore"):  # infinite sums stay as they are
            refined = self.n * centre + SparseRows(self.X, centre, None, None)._sums_and_squares(squares=False)[0]
            return np.asarray(better(sums, refined, np))

    def column_moments(self) -> tuple[Array, Array]:
        """Sums, and sums of squares, of the columns of Y (d,)."""
        return self._sums_and_squares()

    def column_squares(self) -> Array:
        """Sums of squares of the columns of Y (d,)."""
        deviations, _, absent, lacking = self._deviations()
        return self._squares(deviations, absent, lacking)

    def _sums_and_squares(self, squares: bool = True) -> tuple[Array, Array]:
        """As :meth:`column_moments`; without squares where nobody needs them (0,)."""
        deviations, _, absent, lacking = self._deviations()
        sums = self._by_column(deviations) + lacking * absent
        return sums, self._squares(deviations, absent, lacking) if squares else np.zeros(0)

    def _squares(self, deviations: Array, absent: Array, lacking: NDArray[np.intp]) -> Array:
        """Of stored entries of Y, and the value and number of those that are not stored."""
        return self._by_column(deviations**2) + lacking * absent**2

    def _by_column(self, values: Array) -> Array:
        """Sums by column (d,) of a value for each stored entry."""
        segments = max(1, min(self.n // SEGMENT, SEGMENT_SUMS // max(1, self.d)))  # else sums of long sorted columns lose digits
        cuts = self.X.indptr[np.linspace(0, self.n, segments + 1).astype(np.intp)]
        columns = self.X.indices
        parts = (np.bincount(columns[a:b], weights=values[a:b], minlength=self.d) for a, b in pairwise(cuts))
        return careful_totals((part,) for part in parts)[0]

    def column_largest(self) -> Array:
        """The largest absolute value in each column of Y (d,)."""
        deviations, columns, absent, lacking = self._deviations()
        largest: Array = np.where(lacking > 0, np.abs(absent), 0.0)
        np.maximum.at(largest, columns, np.abs(deviations))
        return largest

    def row_squares(self) -> Array:
        """Squared lengths of the rows of Y (n,)."""
        far, D = self.far()
        X, centre = self._near_rows()
        squares: Array = np.asarray(X.multiply(X).sum(axis=1)).reshape(-1)
        if centre is not None:
            squares = squares - 2 * (X @ centre) + centre @ centre
        return squares + np.sum(D * D, axis=1) if far.size else squares

    def scatter(self) -> Array:
        """The scatter matrix Y^T Y (d x d)."""
        far, D = self.far()
        if far.size == self.d:
            return D.T @ D
        X, centre = self._near_rows()
        S = sum_of_products(X, X)
        if centre is not None:
            take_out(S, centre, self.n, self._sums_and_squares(squares=False)[0])
        if far.size:
            S[:, far] = self.transposed_action(D)
            S[far] = S[:, far].T
        return S

    def scatter_action(self, Z: Array) -> Array:
        """The product Y^T (Y Z) (d x k) with a block Z (d x k)."""
        if self._weighted or not worth_compiling(self.X.nnz, Z.shape[1]) or self.far()[0].size:
            return self.transposed_action(self.project(Z))
        scaled = Z if self.scale is None else Z / self.scale[:, None]
        mean = np.zeros(self.d) if self.mean is None else self.mean
        G, sums = sparse_products(self.X, scaled, mean @ scaled)
        G = _ger(-1.0, sums, mean, a=G.T, overwrite_a=1).T
        return np.ascontiguousarray(G if self.scale is None else G / self.scale[:, None])

    def project(self, Z: Array) -> Array:
        """The scores Y Z (n x k)."""
        far, D = self.far()
        if far.size == self.d:
            return D @ Z
        scaled = Z if self.scale is None else Z / self.scale[:, None]
        if far.size:
            scaled = np.array(scaled)
            scaled[far] = 0.0
        scores: Array = np.asarray(self.X @ scaled)
        if self.mean is not None:
            scores -= self.mean @ scaled
        return scores + D @ Z[far] if far.size else scores

    def transposed_action(self, T: Array) -> Array:
        """The product Y^T T (d x k) with scores T (n x k)."""
        far, D = self.far()
        if far.size == self.d:
            return D.T @ T
        G: Array = np.asarray(self.X.T @ T)
        if self.mean is not None and G.size:  # by BLAS, in half of the time, and without a further array for the product
            G = _ger(-1.0, np.ones(len(T)) @ T, self.mean, a=G.T, overwrite_a=1).T
        G = G if self.scale is None else G / self.scale[:, None]
        if far.size:
            G[far] = D.T @ T
        return G

    def row_products(self) -> Array:
        """The inner products of the rows, Y Y^T (n x n)."""
        far, D = self.far()
        X, centre = self._near_rows()
        K: Array = (X @ X.T).toarray()
        if centre is not None:
            shift = X @ centre
            K += centre @ centre - shift[:, None] - shift
        return K + D @ D.T if far.size else K

    def far(self) -> tuple[NDArray[np.intp], Array]:
        """Features (f,) that implicit centring would cost more than two digits, and their columns of Y (n x f), dense.

        A few more may be among them, but none that is not stored in almost every row.  A look at the first tenth of the rows
        rules out nearly all others: its squared deviations are no more than s_j, and it lacks no more entries than the whole.
        """
        if self._split is None:
            far, D = np.zeros(0, dtype=np.intp), np.zeros((self.n, 0))
            if self._given is not None:
                far, D = self._given, self._centred(self._dense_columns(self._given, self.n, np.inf)[1], self._given)
            elif self.mean is not None and self.n > 0:
                look, lacking = -(-self.n // 10), self.n / FAR
                counts = np.bincount(self.X.indices[: self.X.indptr[look]], minlength=self.d)
                far = np.flatnonzero((counts > look - lacking) & (self.mean != 0))
                if far.size:
                    first = self._dense_columns(far, look, lacking)[1] - self.mean[far]
                    with np.errstate(over="ignore"):  # a mean may be as small as it likes
                        far = far[np.sum((first / self.mean[far]) ** 2, axis=0) < lacking]
                if far.size:
                    far, D = self._dense_columns(far, self.n, lacking)
                    D = self._centred(D, far)
            self._split = far, D
        return self._split

    def _centred(self, D: Array, columns: NDArray[np.intp]) -> Array:
        """Columns of X (n x f) as columns of Y; X's are overwritten."""
        D = D if self.mean is None else np.subtract(D, self.mean[columns], out=D)
        D = D if self.left is None else D - self.left[columns]
        return D if self.scale is None else D / self.scale[columns]

    def _dense_columns(self, columns: NDArray[np.intp], n: int, lacking: float) -> tuple[NDArray[np.intp], Array]:
        """Those of the columns of X that lack fewer than ``lacking`` of the first n entries, and these entries (n x f)."""
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
        """Rows X D^-1 in float64 without the far features, and what is to be subtracted from each (None for nothing)."""
        far, _ = self.far()
        X = self.X.astype(np.float64)
        if self.scale is None and not far.size:
            return X, self.mean
        inverse = np.ones(self.d) if self.scale is None else 1 / self.scale
        inverse[far] = 0.0
        X = X.multiply(inverse).tocsr()
        X.eliminate_zeros()
        return X, None if self.mean is None else self.mean * inverse

    def _deviations(self) -> tuple[Array, NDArray[Any], Array, NDArray[np.intp]]:
        """The stored entries of Y, their columns, and the value and number (d,) of those that are not stored."""
        columns = self.X.indices
        absent = np.zeros(self.d) if self.mean is None else -self.mean
        stored = self.X.data.astype(np.float64)
        if self.mean is not None:
            stored = stored - self.mean[columns]
        if self.scale is not None:
            stored, absent = stored / self.scale[columns], absent / self.scale
        return stored, columns, absent, self.n - np.bincount(columns, minlength=self.d)


def sparse_parts(
    source: RowSource, mean: Array | None, scale: Array | None, left: Array | None
) -> Iterator[tuple[int, SparseRows]]:
    """The rows of a sparse source, some after the others, and the number of the first of them.

    What rounding left of the mean must be subtracted from the same features in all parts, or their sums do not fit together;
    without it each part may choose which features it centres first.
    """
    far = None if left is None or mean is None else far_features(source, mean)
    for first, piece in pieces(source):
        yield first, SparseRows(add_duplicates(piece), mean, scale, left, far)


def far_features(source: RowSource, mean: Array) -> NDArray[np.intp]:
    """Features (f,) of a sparse source that implicit centring about this mean would cost more than two digits."""
    known = source.facts.get("far")
    if known is not None and np.array_equal(known[0], mean):
        found: NDArray[np.intp] = known[1]
        return found
    n, d = source.shape
    stored, squares = np.zeros(d, dtype=np.int64), np.zeros(d)
    for _, piece in pieces(source):
        X = add_duplicates(piece)
        stored += np.bincount(X.indices, minlength=d)
        squares += np.bincount(X.indices, weights=(X.data - mean[X.indices]) ** 2, minlength=d)
    with np.errstate(over="ignore"):
        far = np.flatnonzero((mean != 0) & (stored > n - n / FAR) & (squares < mean**2 * (n / FAR)))
    source.facts["far"] = (np.array(mean), far)
    return far


def sum_of_products(X: Any, W: Any) -> Array:
    """The product X^T W (d x d) of CSR matrices (n x d), added up in runs of rows: equal numbers in a long sum are all rounded
    the same way."""
    n, d = X.shape
    run = max(RUN, math.isqrt(n))
    S = np.zeros((d, d))
    for first in range(0, n, run):
        part = (X[first : first + run].T @ W[first : first + run]).tocoo()
        S[part.row, part.col] += part.data
    return S


def take_out(S: Array, centre: Array, total: float, sums: Array) -> None:
    """Make X^T W (d x d) that of centred rows, in place, where these have the sums of columns given and the total of weights."""
    S -= total * np.outer(centre, centre) + np.outer(sums, centre) + np.outer(centre, sums)


def add_duplicates(X: Any) -> Any:
    """A CSR matrix that stores each entry once: X itself if it does, else a copy in which duplicates are added up.

    >>> import scipy.sparse
    >>> twice = scipy.sparse.csr_matrix(([1.0, 2.0], [0, 0], [0, 2]), shape=(1, 1))
    >>> add_duplicates(twice).data.tolist(), twice.data.tolist()
    ([3.0], [1.0, 2.0])
    """
    if X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X


EPS = float(np.finfo(np.float64).eps)


def better(sums: Any, refined: Any, xp: Any) -> Any:
    """Refined sums where plain ones are off by more than one rounding, plain ones else: those of whole numbers are exact."""
    return xp.where(xp.abs(refined - sums) > 2 * EPS * xp.abs(sums), refined, sums)
