"""Rows a few at a time, as they are or with their holes marked: in numpy, or where they lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from .either import there
from .elsewhere import is_elsewhere, namespace, to_numpy
from .linalg import Array
from .rows import DEVICE_BLOCK_BYTES, block_rows, slices
from .sources import RowSource, pieces

Mask = NDArray[np.bool_]


def blocks(X: Any, centre: Array | None, scale: Array | None) -> Iterator[tuple[slice, Array, Mask | None]]:
    """The rows (X - centre) / scale a few at a time: which rows, M (n x d) in float64, and where it is observed.

    X is anything with a shape whose slices are arrays or sparse matrices: an array, a memory map, a zarr array.  A missing entry
    (NaN) is 0 in M; None instead of a mask says that nothing is missing.  Of another library's rows M is a copy in numpy.
    """
    for where in slices(int(X.shape[0]), int(X.shape[1])):
        part: Any = to_numpy(X[where, :]) if is_elsewhere(X) else X[where]
        M = np.array(part.toarray() if scipy.sparse.issparse(part) else part, dtype=np.float64, order="C")
        if centre is not None:
            M -= centre
        if scale is not None:
            M /= scale
        observed: Mask | None = None
        if np.isnan(M.sum()):
            observed = ~np.isnan(M)
            M[~observed] = 0.0
        yield where, M, observed


def blocks_there(X: Any, centre: Array | None, scale: Array | None) -> Iterator[tuple[slice, Any, Any]]:
    """As :func:`blocks`, but M and its mask are where another library's rows lie, and several blocks are one, for a GPU's sake.

    >>> import array_api_strict as strict
    >>> (_, M, seen), = blocks_there(strict.asarray([[1.0, 2.0], [3.0, np.nan]]), np.ones(2), None)
    >>> np.asarray(M).tolist(), np.asarray(seen).tolist()
    ([[0.0, 1.0], [2.0, 0.0]], [[True, True], [True, False]])
    """
    if not is_elsewhere(X):
        yield from blocks(X, centre, scale)
        return
    xp, (n, d) = namespace(X), (int(size) for size in X.shape)
    mean, unit = (None if a is None else there(a, X) for a in (centre, scale))
    few = block_rows(d)
    step = few * max(1, block_rows(d, DEVICE_BLOCK_BYTES) // few)
    for first in range(0, n, step):
        where = slice(first, min(first + step, n))
        M = xp.astype(X[where, :], xp.float64, copy=True)
        if mean is not None:
            M -= mean
        if unit is not None:
            M /= unit
        observed = None
        if bool(xp.isnan(xp.sum(M))):
            observed = ~xp.isnan(M)
            M = xp.where(observed, M, 0.0)
        yield where, M, observed


def finer(found: Iterator[tuple[slice, Array, Mask | None]], entries: int) -> Iterator[tuple[slice, Array, Mask | None]]:
    """Blocks in parts of at most so many entries, or one row, all about as large; they depend on nothing but the blocks' shape.

    >>> [where for where, _, _ in finer(blocks(np.zeros((6, 10)), None, None), 50)]
    [slice(0, 3, None), slice(3, 6, None)]
    """
    for where, M, observed in found:
        most = max(1, entries // max(1, M.shape[1]))
        step = -(-len(M) // -(-len(M) // most)) if len(M) else 1
        for first in range(0, len(M), step):
            part = slice(first, min(first + step, len(M)))
            yield (
                slice(where.start + part.start, where.start + part.stop),
                M[part],
                None if observed is None else observed[part],
            )


def some_rows(X: Any) -> Iterator[Any]:
    """All rows of X (n x d: an array, a sparse matrix or a source), a few at a time, as they are."""
    n, d = (int(size) for size in X.shape)
    step = next(slices(n, d), slice(0, 1)).stop
    for piece in (piece for _, piece in pieces(X, step)) if isinstance(X, RowSource) else (X,):
        yield from (piece[where] for where in slices(int(piece.shape[0]), d))
