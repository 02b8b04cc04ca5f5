"""Rows in whole numbers, none longer than a bound: what noise of a known size hides one row of.

A row x becomes z, the whole numbers nearest to (x - c) S / b, c a public centre, b a public bound, S = ``STEPS``; where that is
longer than S it is shortened to S, its direction kept.  Three things hold exactly, not up to rounding:

- ||z||^2 <= S^2, because the squares are added up as whole numbers, and numbers are cut towards zero when a row is shortened.
  So z z^T has a Frobenius norm of at most S^2, and rounding is inside that.
- z depends on its own row and on c and b alone, not on where the row lies in memory or which rows come before: every operation
  is either on single entries, or a sum of whole numbers below 2^53, whose order does not matter.
- Sums and products are added up without rounding, in 64-bit integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import array_api_compat
import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from .linalg import Array, pack_triangle

Whole = NDArray[np.int64]

STEPS = 1 << 15
"""Steps in a row of the length of the bound.  A row's own rounding is a 30000th of the bound, far below any noise."""

BLOCK_ELEMENTS = 1 << 22

FRACTION = 1 << 20
"""Entries of an orthonormal block are multiples of one over this, so that products with rows are exact, too."""

MOST_FEATURES = 1 << 19
"""Squares of more would not add up to whole numbers that a double holds."""


def whole_sum(X: Any, centre: Array, bound: float) -> Whole:
    """The sum (d,) of the rows of X (n x d) in whole numbers."""
    total = np.zeros(int(X.shape[1]), dtype=np.int64)
    for block in whole_blocks(X, centre, bound):
        total += block.sum(axis=0).astype(np.int64)
    return total


def whole_triangle(X: Any, centre: Array, bound: float) -> Whole:
    """The upper triangle (d (d + 1) / 2,) of Z^T Z, Z the rows of X (n x d) in whole numbers."""
    d = int(X.shape[1])
    total = np.zeros((d, d), dtype=np.int64)
    for block in whole_blocks(X, centre, bound):
        total += (block.T @ block).astype(np.int64)
    packed: Whole = pack_triangle(total)  # type: ignore[arg-type, assignment]
    return packed


def whole_product(X: Any, centre: Array, bound: float, V: Array) -> Whole:
    """Z^T W (d x k), Z the rows of X (n x d) in whole numbers, W those of Z V (V orthonormal, d x k), at most ``STEPS`` long."""
    rounded = np.rint(V * FRACTION)
    total = np.zeros(V.shape, dtype=np.int64)
    for block in whole_blocks(X, centre, bound):
        scores = np.trunc(block @ rounded / FRACTION)  # exact: entries are below 2^15 * 2^20 * 2
        total += (block.T @ _shortened(scores)).astype(np.int64)
    return total


def whole_blocks(X: Any, centre: Array, bound: float) -> Iterator[Array]:
    """Some rows of X (n x d) after the other, as doubles that hold whole numbers.

    >>> rows = np.array([[0.0, 1.0], [3.0, 4.0], [3e200, 4e200]])
    >>> (next(whole_blocks(rows, np.zeros(2), 5.0)) * 5 / STEPS).round(3) + 0.0
    array([[0., 1.], [3., 4.], [3., 4.]])
    """
    n, d = (int(length) for length in X.shape)
    at_once = max(1, min(BLOCK_ELEMENTS // max(1, d), (1 << 53) // (2 * STEPS**2)))
    rows = X.tocsr() if scipy.sparse.issparse(X) else X
    for first in range(0, n, at_once):
        with np.errstate(over="ignore"):  # what is infinite then counts as zeros
            block = _dense(rows[first : min(first + at_once, n), :]) - centre
        yield _whole(block, bound)


def _whole(Y: Array, bound: float) -> Array:
    """Whole rows of Y (n x d), which is overwritten, at most ``STEPS`` long; a row that is not finite counts as zeros."""
    largest = np.abs(Y).max(axis=1, initial=0.0)
    bad, far = ~np.isfinite(largest), np.isfinite(largest) & (largest > bound)
    if bad.any():
        Y[bad] = 0.0
    if far.any():
        halvings = np.frexp(largest[far])[1] - int(np.frexp(bound)[1]) + 1  # until all entries are within
        Y[far] = np.ldexp(Y[far], -halvings[:, None])
    Y *= STEPS / bound
    return _shortened(np.rint(Y, out=Y), far)


def _shortened(Z: Array, also: NDArray[np.bool_] | None = None) -> Array:
    """Whole rows of Z (n x d) that are longer than ``STEPS``, and ``also`` these, cut to that length; in whole numbers.

    With f = STEPS / ||z|| rounded, an entry f z_j cut towards zero is at most |f z_j| (1 + 2^-51) long, so the squares add up to
    less than STEPS^2 + 1; being whole, to STEPS^2 at most.
    """
    squares = np.einsum("ij,ij->i", Z, Z)
    long = squares > STEPS**2
    long = (long | also) & (squares > 0) if also is not None else long
    if long.any():
        Z[long] = np.trunc(Z[long] * (STEPS / np.sqrt(squares[long]))[:, None])
    return Z


def _dense(block: Any) -> Array:
    """Rows as doubles of numpy, wherever they lie."""
    if scipy.sparse.issparse(block):
        return np.asarray(block.toarray(), dtype=np.float64)
    if array_api_compat.is_array_api_obj(block) and not array_api_compat.is_numpy_array(block):
        block = array_api_compat.to_device(block, "cpu")
    return np.array(block, dtype=np.float64)
