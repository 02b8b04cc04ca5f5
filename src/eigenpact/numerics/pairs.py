"""Numbers as unevaluated sums of two doubles, which hold twice the digits: exact for whole numbers, nearly so for all others.

A pair is the last axis of an array: the double nearest to the number, and what that rounding left.  Sums over the rows are made
without rounding (Rump's extraction: what is above a power of two is split off, and adds up exactly), so they do not depend on
who holds which rows; rounded once in the end, to a pair.

References
    S. M. Rump, T. Ogita, S. Oishi, "Accurate floating-point summation part I", SIAM J. Sci. Comput. 31 (2008).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .either import there
from .elsewhere import is_elsewhere, namespace, to_numpy
from .error_free import two_product, two_sum
from .linalg import Array
from .rows import Rows
from .weighted import rows_and_weights

PASSES = 4
"""Times that leading digits are split off: each takes 53 less the digits of the number of rows."""

AT_ONCE = 1 << 15
"""Dense entries that are looked at together: a CPU's cache holds them, and what is made of them."""


def column_pairs(X: Any, *, holes: bool = False) -> tuple[Array, Array]:
    """Sums of the columns of X (n x d), and of their squares, as pairs (d, 2); with ``holes``, NaN adds nothing.

    Where rows have weights, entries and squares are multiplied by them.

    >>> sums, squares = column_pairs(np.array([[1e8, 1.0], [1.0, 1.0], [-1e8, 1.0]]))
    >>> sums.tolist(), squares[0].tolist()
    ([[1.0, 0.0], [3.0, 0.0]], [2e+16, 1.0])
    """
    X, weights = rows_and_weights(X)
    rows = Rows(X)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused where it leaves
        sums, squares = np.zeros((rows.d, 2)), np.zeros((rows.d, 2))
        for begin, part, columns in _entries(rows, weighted=weights is not None):
            own = None if weights is None else weights[begin : begin + part.shape[0]]
            if columns is not None:
                own = None if own is None else np.repeat(own, np.diff(part.indptr))
                first, second = _of_block(part.data.astype(np.float64), part.shape[0], rows.d, columns, own)
            else:
                xp = namespace(part)
                filled = xp.where(xp.isnan(part), 0.0, part) if holes else part
                first, second = _of_block(filled, int(filled.shape[0]), rows.d, None, None if own is None else own[:, None])
            sums, squares = add(sums, first), add(squares, second)
    return sums, squares


def _entries(rows: Rows, *, weighted: bool) -> Iterator[tuple[int, Any, Any]]:
    """Rows a few at a time: the number of the first, the rows, and the columns of what is stored if they are sparse.

    Another library's stay where they are, unless they are ``weighted``.
    """
    if rows.sparse:
        yield from ((first, part.X, part.X.indices) for first, part in rows._parts())
        return
    first = 0
    for block in rows._blocks(small=True):
        if is_elsewhere(block) and not weighted:
            yield first, block, None
            first += int(block.shape[0])
            continue
        some, step = to_numpy(block), max(1, AT_ONCE // max(1, rows.d))
        for begin in range(0, len(some), step):
            yield first + begin, some[begin : begin + step], None
        first += len(some)


def _of_block(entries: Any, n: int, d: int, columns: Any, weights: Array | None = None) -> tuple[Array, Array]:
    """Of dense rows (n x d), or of sparse entries with their ``columns``: sums, and sums of squares, as pairs."""
    if weights is None:
        squares, left = two_product(entries, entries)
        sums = exact_sums(entries, n, d, columns)
        return sums, add(exact_sums(squares, n, d, columns), exact_sums(left, n, d, columns))
    once, rest = two_product(np.broadcast_to(weights, entries.shape), entries)
    squares, left = two_product(once, entries)
    sums = add(exact_sums(once, n, d, columns), exact_sums(rest, n, d, columns))
    return sums, add(exact_sums(squares, n, d, columns), exact_sums(left + rest * entries, n, d, columns))


def exact_sums(entries: Any, n: int, d: int, columns: Any = None) -> Array:
    """Sums by column, of at most n entries each, as pairs (d, 2)."""
    total, rest = np.zeros((d, 2)), entries
    for _ in range(PASSES):
        if is_elsewhere(rest):
            largest = to_numpy(namespace(rest).max(abs(rest), axis=0))
        elif columns is None:
            largest = np.maximum(rest.max(axis=0, initial=0.0), -rest.min(axis=0, initial=0.0))
        else:
            largest = np.zeros(d)
            np.maximum.at(largest, columns, np.abs(rest))
        if not np.all(np.isfinite(largest)):
            return np.full((d, 2), np.inf)
        if not largest.any():
            break
        above = np.where(largest > 0, np.ldexp(1.0, np.frexp(largest)[1] + int(np.ceil(np.log2(n + 2)))), 0.0)
        above = there(above, rest) if columns is None else above[columns]
        head = above + rest
        head -= above
        rest = rest - head
        sums = to_numpy(namespace(head).sum(head, axis=0)) if columns is None else np.bincount(columns, weights=head, minlength=d)
        total = add(total, np.stack([sums, np.zeros(d)], axis=-1))
    return total


def add(a: Array, b: Array) -> Array:
    """Pairs (..., 2) added.

    >>> add(np.array([1.0, 0.0]), np.array([2.0**-80, 0.0])).tolist() == [1.0, 2.0**-80]
    True
    """
    high, left = two_sum(a[..., 0], b[..., 0])
    low, lost = two_sum(a[..., 1], b[..., 1])
    high, left = two_sum(high, left + low)
    return np.stack(two_sum(high, left + lost), axis=-1)


def added_up(pairs: Array) -> Array:
    """The sum (2,) of pairs (d, 2)."""
    total = np.zeros(2)
    while len(pairs) > 1:
        half = len(pairs) // 2
        if len(pairs) % 2:
            total = add(total, pairs[-1])
        pairs = add(pairs[:half], pairs[half : 2 * half])
    return add(total, pairs[0]) if len(pairs) else total


def product_pairs(z: Array, X: Array) -> Array:
    """Sums over the rows of z X, as pairs (d, 2), from z (n,) and X (n x d).

    >>> product_pairs(np.array([1e8, 1.0]), np.array([[1e8, 1.0], [1.0, 1.0]]))[:, 1].tolist()
    [1.0, 0.0]
    """
    n, d = X.shape
    with np.errstate(over="ignore", invalid="ignore"):
        products, left = two_product(z[:, None], X)
        return add(exact_sums(products, n, d), exact_sums(left, n, d))


def cross_deviations(n: float, means: tuple[Any, Array], sums: tuple[Array, Array], products: Array) -> Array:
    """Products of the deviations of z and of x (d,) from their means, from pairs: sums (2,) and (d, 2), and products (d, 2).

    >>> z, x = np.array([1e6, 1e6 + 1, 1e6 + 2]), np.array([[1e7], [1e7 + 3], [1e7]])
    >>> pairs = column_pairs(z[:, None])[0][0], column_pairs(x)[0]
    >>> cross_deviations(3, (z.mean(), x.mean(axis=0)), pairs, product_pairs(z, x)).tolist()
    [0.0]
    """
    (z, x), (sum_z, sum_x) = means, sums
    shift = add(_times(sum_x, -float(z)), _times(np.broadcast_to(sum_z, sum_x.shape), -x))
    both = _times(np.stack(two_product(np.full(len(x), float(z)), x), axis=-1), float(n))
    found = add(products, add(shift, both))
    return found[..., 0] + found[..., 1]


def deviations(n: Any, mean: Array, sums: Array, squares: Array, rest: float = 0.0) -> Array:
    """Squared deviations about the mean (d,) that n rows have, from pairs of their sums and squares (d, 2); all of them for (2,).

    n may differ by feature (d,), and be a sum of weights, of which a pair has the ``rest``.

    That is the sum of x^2 - 2 m x + m^2: of numbers that cancel, with twice the digits.

    >>> x = np.array([[1e6], [1e6 + 1], [1e6 + 2]])
    >>> deviations(3, x.mean(axis=0), *column_pairs(x)).tolist()
    [2.0]
    """
    twice = _times(_times(sums, -2.0), mean)
    square = np.stack(two_product(mean, mean), axis=-1)
    own = _times(square, np.asarray(n, dtype=np.float64))
    shift = add(twice, add(own, _times(square, rest)) if rest else own)
    found = add(squares, shift if squares.ndim > 1 else added_up(shift))
    return np.maximum(found[..., 0] + found[..., 1], 0.0)


def _times(pairs: Array, factor: Any) -> Array:
    """Pairs (..., 2) times doubles."""
    high, left = two_product(pairs[..., 0], np.asarray(factor, dtype=np.float64))
    return np.stack(two_sum(high, left + pairs[..., 1] * factor), axis=-1)
