"""Products with a basis Q (d x m) of many features and few columns, in Fortran order: what a coordinator does all the time.

BLAS copies its left factor into an order of its own first, so the narrow one stands on the left.  Rows are taken in parts that
depend on nothing but their number, and sums over parts are added in order: threads do not change results (``parts.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, Literal

import numpy as np
import scipy.linalg

from .compiled_tall import compiled_inner, compiled_times, worth_halves
from .lapack import cholesky_in_place
from .linalg import Array, orthonormalize
from .parts import allowed_threads, side_by_side, sum_of

PART = 512
"""Rows of the basis that one thread multiplies at a time."""

PANEL = 256
"""Columns of a Cholesky factor that are made together."""

ALONE = 2000
"""Up to this side LAPACK's factor by one thread takes less time than panels."""

TOGETHER, SHARES = 8, 4
"""Parts that are handed to a thread at a time, at most; and how often each thread is handed some, at least."""

MOST_PARTS = 32
"""Parts of which a basis is factorized, at most."""

WORTH_THREADS = 1 << 23
"""Multiplications from which on threads are worth their start."""

WORTH_PARTS = 1 << 21
"""Multiplications of narrow vectors with each other from which on a cache does not hold these, but parts of them."""

MUCH, THREADS = 1 << 27, 16
"""Multiplications from which on there are parts for so many threads, at least, whether there are or not."""

WELL = 1e-8
"""The smallest of the squared singular values of vectors, over the largest, down to which their inner products tell enough."""


def inner(Q: Array, A: Array) -> Array:
    """Q^T A (m x b), for A (d x b).

    >>> inner(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[2.0], [3.0]])).tolist()
    [[2.0], [3.0]]
    """

    if worth_halves(Q, A.shape[1]):
        return compiled_inner(Q, A)

    def of_part(rows: slice) -> tuple[Array]:
        return (A[rows].T @ Q[rows],)

    return np.ascontiguousarray(sum_of(_over_parts(of_part, Q.shape[0], Q.size * A.shape[1]))[0].T)


def inners(*pairs: tuple[Array, Array]) -> list[Array]:
    """A^T B of several pairs, A (d x a) and B (d x b), in one pass over their rows; infinite or not a number where they overflow.

    >>> A, B = np.array([[1.0], [2.0]]), np.array([[3.0], [0.0]])
    >>> [product.tolist() for product in inners((A, B), (B, B))]
    [[[3.0]], [[9.0]]]
    """

    def of_part(rows: slice) -> tuple[Array, ...]:
        with np.errstate(over="ignore", invalid="ignore"):  # which one thread does not learn from another
            return tuple(A[rows].T @ B[rows] for A, B in pairs)

    d, work = len(pairs[0][0]), sum(A.size * B.shape[1] for A, B in pairs)
    if work < WORTH_PARTS:
        return list(of_part(slice(0, d)))
    with np.errstate(over="ignore", invalid="ignore"):
        return list(sum_of(_over_parts(of_part, d, work)))


def add_times(V: Array, G: Array, R: Array) -> None:
    """Add G R to V (d x l), for G (d x b) and R (b x l).

    >>> V = np.array([[1.0], [2.0]])
    >>> add_times(V, np.array([[3.0], [0.0]]), np.array([[2.0]]))
    >>> V.tolist()
    [[7.0], [2.0]]
    """

    def of_part(rows: slice) -> None:
        V[rows] += G[rows] @ R

    if G.size * R.shape[1] < WORTH_PARTS:
        of_part(slice(0, len(V)))
        return
    for _ in _over_parts(of_part, len(V), G.size * R.shape[1]):
        pass


def times(Q: Array, Y: Array, order: Literal["C", "F"] = "C") -> Array:
    """Q Y (d x k), for Y (m x k), in this memory order.

    >>> times(np.array([[1.0, 2.0], [0.0, 1.0]]), np.array([[1.0], [1.0]])).tolist()
    [[3.0], [1.0]]
    """
    if order == "C" and worth_halves(Q, Y.shape[1]):
        return compiled_times(Q, Y)
    product, left = np.empty((Q.shape[0], Y.shape[1]), order=order), np.ascontiguousarray(Y.T)

    def of_part(rows: slice) -> None:
        product[rows] = (left @ Q[rows].T).T

    for _ in _over_parts(of_part, Q.shape[0], Q.size * Y.shape[1]):
        pass
    return product


def projected_out(A: Array, Q: Array) -> Array:
    """What A (d x b) has outside the span of the orthonormal Q (d x m): (I - Q Q^T) A."""
    rest: Array = A - times(Q, inner(Q, A))
    return rest


def factored(A: Array) -> tuple[Array, Array]:
    """Orthonormal N (d x b) and R (b x b, upper) with A = N R, for A (d x b), d >= b.

    R is the Cholesky factor of A^T A, twice, where columns are far from depending on each other.  Else LAPACK factorizes parts of
    the rows, then their factors R one below the other; which rows are a part depends on the shape alone.

    References
        Y. Yamamoto, Y. Nakatsukasa, Y. Yanagisawa, T. Fukaya, "Roundoff error analysis of the CholeskyQR2 algorithm", ETNA 44
        (2015); J. Demmel, L. Grigori, M. Hoemmen, J. Langou, "Communication-optimal parallel and sequential QR", SISC 34 (2012).

    >>> N, R = factored(np.random.default_rng(0).normal(size=(2000, 100)))
    >>> bool(np.allclose(N.T @ N, np.eye(100), atol=1e-14)), bool(np.allclose(R, np.triu(R)))
    (True, True)
    """
    d, b = A.shape
    step = max(PART, 4 * b, -(-d // MOST_PARTS))
    if d < 2 * step or d * b * b < WORTH_THREADS:
        N, R = scipy.linalg.qr(A, mode="economic", check_finite=False)
        return N, R
    G = inner(A, A)
    values = np.linalg.eigvalsh(G)
    if values[0] > WELL * values[-1]:
        first = scipy.linalg.cholesky(G, check_finite=False)
        N = times(A, _inverse(first))
        second = scipy.linalg.cholesky(inner(N, N), check_finite=False)
        return times(N, _inverse(second)), second @ first
    starts = range(0, d, step)
    parts = list(side_by_side(lambda first: np.linalg.qr(A[first : first + step]), starts))
    ends = np.cumsum([len(R) for _, R in parts])
    turn, R = np.linalg.qr(np.concatenate([R for _, R in parts]))
    N = np.empty((d, b))

    def of_part(i: int) -> None:
        first, Q = starts[i], parts[i][0]
        np.matmul(Q, turn[ends[i] - Q.shape[1] : ends[i]], out=N[first : first + step])

    for _ in side_by_side(of_part, range(len(parts))):
        pass
    return N, R


def random_block(d: int, b: int, seed: int) -> Array:
    """A uniformly distributed orthonormal block (d x b), determined by the seed."""
    return np.ascontiguousarray(factored(np.random.default_rng(seed).standard_normal((d, b)))[0])


def straightened(U: Array) -> Array:
    """An orthonormal basis (d x k) whose leading columns span those of U (d x k), which is nearly orthonormal.

    U R^-1 with the Cholesky factor R of U^T U, which is as accurate as Householder's reflections there, and made of products
    alone.

    >>> Q = straightened(np.array([[1.0, 0.1], [0.0, 1.0], [0.1, 0.0]]))
    >>> bool(np.allclose(Q.T @ Q, np.eye(2), atol=1e-15))
    True
    """
    G = inner(U, U)
    if U.shape[1] == 0 or np.linalg.norm(G - np.eye(len(G)), 1) > 0.5:
        return orthonormalize(U)
    R = scipy.linalg.cholesky(G, check_finite=False)
    return times(U, _inverse(R))


def _inverse(R: Any) -> Any:
    """Of an upper triangle (b x b)."""
    return scipy.linalg.solve_triangular(R, np.eye(len(R)), check_finite=False)


def has_factor(lower: Array) -> bool:
    """Whether the symmetric matrix (d x d) with this lower triangle, which is overwritten, has a Cholesky factor.

    It is best in Fortran order.  Of large matrices, panels of columns are made one after the other; each is subtracted from those
    behind it by threads.

    >>> has_factor(np.array([[2.0, 0.0], [1.0, 2.0]])), has_factor(np.array([[1.0, 0.0], [2.0, 1.0]]))
    (True, False)
    """
    d, upper = len(lower), lower.T
    if d <= ALONE:
        factor = np.asfortranarray(lower)
        return cholesky_in_place(factor) and bool(np.isfinite(factor[-1:, -1:]).all())
    for first in range(0, d, PANEL):
        last = min(first + PANEL, d)
        try:
            corner = np.linalg.cholesky(lower[first:last, first:last])
        except np.linalg.LinAlgError:
            return False
        if last == d:
            return bool(np.isfinite(corner[-1, -1]))
        for of_panel in (partial(_beside, upper, corner), partial(_subtracted, upper)):
            for _ in side_by_side(partial(of_panel, slice(first, last)), range(last, d, PANEL)):
                pass
    return True


def _beside(upper: Array, corner: Any, panel: slice, first: int) -> None:
    """Entries of the factor's transpose in a panel of rows, in some of the columns beside its ``corner``."""
    some = slice(first, first + PANEL)
    upper[panel, some] = np.linalg.solve(corner, upper[panel, some])  # which lets other threads go on


def _subtracted(upper: Array, panel: slice, first: int) -> None:
    """What a panel leaves of the rows from ``first`` on."""
    rest = upper[panel, first:]
    upper[first : first + PANEL, first:] -= rest[:, :PANEL].T @ rest


def row_products(columns: Callable[[slice], Array], n: int, d: int) -> Array:
    """Y Y^T (n x n) of rows with many features, Y (n x d), some of whose ``columns`` are made at a time.

    >>> Y = np.array([[1.0, 2.0], [0.0, 1.0]])
    >>> row_products(lambda some: Y[:, some], 2, 2).tolist()
    [[5.0, 2.0], [2.0, 1.0]]
    """

    def of_part(some: slice) -> tuple[Array]:
        part = columns(some)
        return (part @ part.T,)

    products: Array = sum_of(_over_parts(of_part, d, n * d * n, together=1))[0]  # whose parts are large
    return products


def _over_parts(function: Callable[[slice], Any], rows: int, work: int, together: int = TOGETHER) -> Iterator[Any]:
    """What a function gives for every part of some rows; for one, so that a sum has its shape, if there are none.

    ``work`` is the number of multiplications.  A thread makes so many parts ``together``, at most.
    """
    step = PART if work < MUCH else min(PART, max(1, -(-rows // THREADS)))
    parts = [slice(first, first + step) for first in range(0, max(1, rows), step)]
    if work < WORTH_THREADS or allowed_threads() == 1:
        return map(function, parts)
    count = max(1, min(together, len(parts) // (SHARES * allowed_threads())))
    several = [parts[first : first + count] for first in range(0, len(parts), count)]
    return chain.from_iterable(side_by_side(lambda some: [function(part) for part in some], several))
