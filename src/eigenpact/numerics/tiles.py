"""Products of dense rows on the CPU in tiles: few rows, and of wide rows few features, at a time.

OpenBLAS multiplies small matrices without first copying them into an order of its own, which nearly doubles the speed of narrow
products.  A tile is as large as that allows.  Rows of a tile are in the cache when they are multiplied for the second time, and
sums (d x k) are added to once for some dozens of rows.  BLAS makes the product with rows as its factor on the left, and of as
many columns as fill its registers: so 14 columns take longer than 16, and zeros are added to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyr

from .linalg import Array

UNPACKED = 1_000_000
"""BLAS multiplies matrices without a copy if rows x features x columns are at most so many (OpenBLAS with AVX-512)."""

LEAST, MOST = 16, 128
"""Rows that a tile has at least and, unless it has all features, at most."""

CACHED = 1 << 17
"""Entries that a core's own cache holds."""

TOGETHER = 32
"""Bytes that columns of a block are a multiple of, by zeros: numbers that fill them are multiplied together."""

NARROW = 64
"""Blocks of more columns are multiplied as fast with BLAS's own copies."""


def tile(d: int, k: int, block: int) -> tuple[int, int]:
    """Rows and features of a tile, in products of rows with d features, of which so many are a ``block``, and k columns.

    >>> tile(200, 14, 2621), tile(784, 14, 668), tile(6000, 24, 87), tile(6000, 200, 87)
    ((312, 200), (128, 392), (87, 462), (87, 6000))
    """
    d, k = max(1, d), -(-max(1, k) // 8) * 8  # with the zeros that are added in single precision
    if k > NARROW:
        return block, d
    fit = UNPACKED // (d * k)
    if fit >= MOST:
        return min(fit, block), d
    rows = min(max(block, LEAST), MOST)
    pieces = -(-d // max(1, UNPACKED // (rows * k)))
    return rows, -(-d // pieces)


def action(
    blocks: Iterator[NDArray[np.floating[Any]]], A: NDArray[np.floating[Any]], shift: Array | None, features: int
) -> tuple[Array, Array]:
    """Of blocks B of rows (each n x d) the sums of B^T T (d x k) and of 1^T T (k,), T = B A - 1 shift^T, A (d x k).

    So many ``features`` are multiplied at a time.  Blocks are of the precision of A; sums are of double precision.

    >>> B, A = np.arange(6.0).reshape(2, 3), np.eye(3, 1)
    >>> [found.tolist() for found in action(iter([B]), A, np.array([1.0]), 2)]
    [[[6.0], [7.0], [8.0]], [1.0]]
    """
    (d, k), spare = A.shape, -A.shape[1] % (TOGETHER // A.itemsize)
    if spare:
        A = np.concatenate([A, np.zeros((d, spare), A.dtype)], axis=1)
        shift = None if shift is None else np.concatenate([shift, np.zeros(spare)])
    cuts = [slice(a, b) for a, b in pairwise([*range(0, d, features), d])]
    first, *others = (np.ascontiguousarray(A[cut]) for cut in cuts)
    G, product, scores = np.zeros(A.shape), np.empty((features, A.shape[1]), A.dtype), np.zeros((0, A.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):  # of huge constant columns, of which nothing is kept
        for B in blocks:
            T = B[:, cuts[0]] @ first
            for cut, A_part in zip(cuts[1:], others, strict=True):
                T += B[:, cut] @ A_part
            if shift is not None:
                T -= shift
            if len(T) > len(scores):
                scores = np.concatenate([scores, np.zeros((len(T) - len(scores), T.shape[1]))])
            scores[: len(T)] += T
            for cut in cuts:
                G[cut] += np.matmul(B[:, cut].T, T, out=product[: cut.stop - cut.start])
    return G[:, :k], np.add.reduce(scores, axis=0)[:k]


def gram_rows(d: int, block: int, part: int) -> int:
    """Rows that are multiplied at a time in B^T B (d x d), of which so many are a ``block`` or a ``part``.

    As many as there are features, where a part has them: else the square is read and written too often.  Of few features as
    many as stay in the cache until they are multiplied.

    >>> gram_rows(200, 2621, 10485), gram_rows(784, 668, 2674), gram_rows(6000, 87, 349)
    (655, 784, 349)
    """
    return max(min(block, CACHED // max(1, d)), min(part, d))


def gram(blocks: Iterator[Array], d: int) -> tuple[Array]:
    """The sum of B^T B (d x d), in the order of columns, over blocks of rows (each n x d).

    By numpy, which lets other threads go on meanwhile; scipy's functions of BLAS do not.

    >>> gram(iter([np.array([[1.0, 2.0]]), np.array([[0.0, 1.0]])]), 2)[0].tolist()
    [[1.0, 2.0], [2.0, 5.0]]
    """
    S, product = np.zeros((d, d), order="F"), np.empty((d, d), order="F")
    with np.errstate(over="ignore", invalid="ignore"):  # of huge constant columns, of which nothing is kept
        for B in blocks:
            S += np.matmul(B.T, B, out=product.T).T
    return (S,)


def add_square(S: Array, factor: float, u: Array) -> None:
    """Add factor u u^T, u (d,), to the lower triangle of S (d x d, in the order of columns), which is changed.

    >>> S = np.zeros((2, 2), order="F")
    >>> add_square(S, 2.0, np.array([1.0, 3.0]))
    >>> S.tolist()
    [[2.0, 0.0], [6.0, 18.0]]
    """
    dsyr(factor, u, lower=1, a=S, overwrite_a=1)


def change(block: Array, mean: Array | None, left: Array | None, scale: Array | None) -> None:
    """Centre and scale a block (n x d) in place, where it lies."""
    if mean is not None:
        block -= mean
    if left is not None:
        block -= left
    if scale is not None:
        block /= scale


def columns_of(
    X: Array, mean: Array | None = None, left: Array | None = None, scale: Array | None = None
) -> Callable[[slice], Array]:
    """A function that gives some columns of Y (n x m): those of X (n x d), centred and scaled.

    >>> columns_of(np.array([[1.0, 5.0], [2.0, 7.0]]), np.array([0.0, 6.0]))(slice(1, 2)).tolist()
    [[-1.0], [1.0]]
    """

    def of(some: slice) -> Array:
        part = X[:, some].astype(np.float64, order="C")
        change(part, *(None if a is None else a[some] for a in (mean, left, scale)))
        return part

    return of
