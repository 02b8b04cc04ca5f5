"""X^T X of rows that hold whole numbers, such as counts, pixels and genotypes: in single precision, without a rounding error.

Sums of whole numbers are exact in single precision up to 2^24, in double precision up to 2^53, in whatever order they are added.
So blocks of rows are multiplied in single precision, twice as fast, and added up in double, far below 2^53: the bits are those
of double precision.  A block is small enough if the squares in each of its columns add up to less than 2^24: then so do all
partial sums of products of two columns, by Cauchy and Schwarz.  That is seen in the product itself, whose diagonal has these
squares: sums that exceed 2^24 may be rounded, but not to less than 2^24.  The first block for which it does not hold, or which
has other numbers, ends it: double precision does all of the work then.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .linalg import Array
from .parts import side_by_side

EXACT = float(1 << 24)
"""Whole numbers up to this are exact in single precision."""

LOOKED_AT, SPARE = 64, 1.5
"""Rows by which the size of a block is chosen, and how much larger squares may be elsewhere."""

CACHED, FEWEST = 1 << 18, 256
"""Entries of a block that a core's own cache holds; and rows below which blocks are no faster than double precision."""


def whole_gram(X: NDArray[np.generic], part: int) -> Array | None:
    """X^T X (d x d) in the order of columns, for rows of numpy (n x d) in whole numbers; None where some are not, or too large.

    So many rows are a ``part``, of which several are added up side by side where threads are allowed.

    >>> X = np.array([[1.0, 2.0], [0.0, 1.0]])
    >>> whole_gram(X, 100).tolist(), whole_gram(X + 0.5, 100), whole_gram(5000 * X, 100)
    ([[1.0, 2.0], [2.0, 5.0]], None, None)
    """
    n, d = X.shape
    some = np.asarray(X[:: max(1, n // LOOKED_AT)], dtype=np.float64)
    if X.dtype.kind not in "biuf" or not _are_whole(some):
        return None
    with np.errstate(over="ignore"):
        largest = max(1.0, float(np.sum(some**2, axis=0).max(initial=0.0)) / max(1, len(some)))
    most = EXACT / (SPARE * largest)
    if most < min(FEWEST, max(1, n)):
        return None
    step = int(min(most, part, max(CACHED // max(1, d), d, 1)))

    def of_part(first: int) -> Array | None:
        S, product = np.zeros((d, d), order="F"), np.empty((d, d), np.float32)
        blocks = (X[a : min(a + step, first + part)] for a in range(first, min(first + part, n), step))
        return S if all(_added(S, block, product) for block in blocks) else None

    total: Array | None = None
    for S in side_by_side(of_part, range(0, max(1, n), part)):
        if S is None:
            return None
        total = S if total is None else np.add(total, S, out=total)
    return total


def _added(S: Array, block: NDArray[np.generic], product: NDArray[np.float32]) -> bool:
    """Whether B^T B of a block of rows (n x d) is exact; if so, it is added to S (d x d), by way of ``product``."""
    if block.dtype.kind == "f" and not _are_whole(block):
        return False
    with np.errstate(over="ignore", invalid="ignore"):  # numbers that are far too large for this are noticed
        B = block.astype(np.float32)
        np.matmul(B.T, B, out=product)
    exact = bool(product.diagonal().max(initial=0.0) < EXACT)
    if exact:
        S += product.T  # which is the same, in the order of S
    return exact


def _are_whole(block: NDArray[np.generic]) -> bool:
    return bool(np.array_equal(np.rint(block), block))
