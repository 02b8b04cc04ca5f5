"""X^T X of rows that hold whole numbers, such as counts, pixels and genotypes: in single precision, without a rounding error.

Sums of whole numbers are exact in single precision up to 2^24, in double precision up to 2^53, in whatever order they are added.
So blocks of rows are multiplied in single precision, twice as fast, and added up in double, far below 2^53: the bits are those
of double precision.  A block is small enough if the squares in each of its columns add up to less than 2^24: then so do all
partial sums of products of two columns, by Cauchy and Schwarz.  That is seen in the product itself, whose diagonal has these
squares: sums that exceed 2^24 may be rounded, but not to less than 2^24.  The first block for which it does not hold, or which
has other numbers, ends it: double precision does all of the work then.

Where loops are compiled (``compiled_triangle.py``), numbers from 0 to 255 are multiplied as bytes, if the processor has an
instruction for that; else at most 256 rows are added up in single precision.  Of numbers up to 255, squares then add up to less
than 2^24.  So no more than the numbers has to be looked at.  Of bytes, the loop adds up x_i (x_j - 128); a last column of ones
gives the sums of x_i that are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compiled_triangle import FOUR, compiled_triangle, rows_at_a_time, worth_compiling
from .linalg import Array, mirrored
from .machine_code import processor
from .parts import side_by_side

EXACT = float(1 << 24)
"""Whole numbers up to this are exact in single precision."""

LOOKED_AT, SPARE = 64, 1.5
"""Rows by which the size of a block is chosen, and how much larger squares may be elsewhere."""

SMALL = 255
"""Of numbers up to this, the squares in a tile of a compiled loop add up to less than that: 256 x 255^2."""

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
    if X.dtype.kind not in "biuf":
        return None
    some = np.asarray(X[:: max(1, n // LOOKED_AT)], dtype=np.float64)
    if not _are_whole(some):
        return None
    with np.errstate(over="ignore"):
        largest = max(1.0, float(np.sum(some**2, axis=0).max(initial=0.0)) / max(1, len(some)))
    here = processor()
    if here is not None and worth_compiling(n, d) and largest <= SMALL**2:
        found = _by_compiled_loop(X, part, as_bytes=here.multiplies_bytes and bool(some.min() >= 0))
        if found is not None:
            return found
    most = EXACT / (SPARE * largest)
    if most < min(FEWEST, max(1, n)):
        return None
    step = int(min(most, part, max(CACHED // max(1, d), d, 1)))

    def of_part(first: int) -> Array | None:
        S, product = np.zeros((d, d), order="F"), np.empty((d, d), np.float32)
        blocks = (X[a : min(a + step, first + part)] for a in range(first, min(first + part, n), step))
        return S if all(_added(S, block, product) for block in blocks) else None

    return _of_all_parts(of_part, n, part)


def _by_compiled_loop(X: NDArray[np.generic], part: int, *, as_bytes: bool) -> Array | None:
    """As :func:`whole_gram`, of numbers up to ``SMALL``, none of them negative if they are taken ``as_bytes``; None of others."""
    (n, d), kind, together = X.shape, FOUR if as_bytes else np.dtype(np.float32), 4 if as_bytes else 1
    width = d + 1 if as_bytes else d
    tile = together * rows_at_a_time(width, kind)
    step, part = max(1, CACHED // (d * tile)) * tile, -(-part // tile) * tile

    def of_part(first: int) -> Array | None:
        rows = X[first : first + part]
        suit: list[bool] = []

        def blocks() -> Iterator[NDArray[Any]]:
            for block in (rows[a : a + step] for a in range(0, len(rows), step)):
                suit.append(_are_small(block, 0 if as_bytes else -SMALL) and _are_whole(block))
                if not suit[-1]:
                    return
                yield _four_rows_in_one(block) if as_bytes else np.ascontiguousarray(block, dtype=np.float32)

        S = compiled_triangle(blocks(), width, kind)[0]
        return S if all(suit) else None

    total = _of_all_parts(of_part, n, part)
    if total is None:
        return None
    S = total[:d, :d]
    if as_bytes:
        S += total[d, :d] / (1 - 128) * 128
    return mirrored(S).T


def _four_rows_in_one(block: NDArray[np.generic]) -> NDArray[np.int32]:
    """Bytes of four rows (n x d) side by side, with ones behind the last column, and rows of zeros at the end.

    >>> _four_rows_in_one(np.array([[2], [3], [0], [0], [1]])).tolist()
    [[770, 16843009], [1, 16843009]]
    """
    n, d = block.shape
    if block.itemsize == 1 and block.strides[0] == 1 and n % 4 == 0:  # four bytes in a row are there already
        ones = np.full((1, n), 1, np.uint8)
        return np.ascontiguousarray(np.concatenate([block.T.view(np.uint8), ones]).view(FOUR).T)
    four = np.zeros((-(-n // 4), d + 1, 4), np.uint8)
    four[:, d] = 1
    whole = n - n % 4
    four[: n // 4, :d] = block[:whole].reshape(-1, 4, d).transpose(0, 2, 1)
    if whole < n:
        four[-1, :d, : n - whole] = block[whole:].T
    return four.view(FOUR)[:, :, 0]


def _of_all_parts(of_part: Callable[[int], Array | None], n: int, part: int) -> Array | None:
    """The sum of what a function gives for each part of n rows, by the number of the first one; None where it gives none."""
    total: Array | None = None
    for S in side_by_side(of_part, range(0, max(1, n), part)):
        if S is None:
            return None
        total = S if total is None else np.add(total, S, out=total)
    return total


def _added(S: Array, block: NDArray[np.generic], product: NDArray[np.float32]) -> bool:
    """Whether B^T B of a block of rows (n x d) is exact; if so, it is added to S (d x d), by way of ``product``."""
    if not _are_whole(block):
        return False
    with np.errstate(over="ignore", invalid="ignore"):  # numbers that are far too large for this are noticed
        B = block.astype(np.float32)
        np.matmul(B.T, B, out=product)
    exact = bool(product.diagonal().max(initial=0.0) < EXACT)
    if exact:
        S += product.T  # which is the same, in the order of S
    return exact


def _are_small(block: NDArray[np.generic], least: int) -> bool:
    if block.dtype == np.uint8 or block.dtype == np.bool_:
        return True
    return bool(block.min(initial=0) >= least and block.max(initial=0) <= SMALL)


def _are_whole(block: NDArray[np.generic]) -> bool:
    return block.dtype.kind in "biu" or bool(np.array_equal(np.rint(block), block))
