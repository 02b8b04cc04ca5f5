"""Sums and squares of the columns of dense rows, in one pass, to the last digits.

Sums of long columns lose digits, and squares about zero lose those of a column that is far from it.  So rows are added up about a
centre a (d,) that the first of them give: the middle one of the first five in each column.  With S the sums and Q the squares of
X - 1 a^T (d,),

    mean = a + S / n,    squares about the mean = Q - S^2 / n,    sums = n a + S,

where n a is made with twice the digits.  A constant column is its own centre, so S and Q are zero, not what rounding makes of
them; sums of whole numbers are exact.  If a feature's mean turns out to be far from a for its spread, the rows are read once more
about a number near the mean that has few digits, so that this holds then, too.

References
    T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for computing the sample variance", Am. Stat. 37 (1983), on shifts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .elsewhere import namespace, on_cpu
from .error_free import two_product, two_sum
from .linalg import Array
from .sparse_rows import better

FIRST = 5
"""So many of the first rows give the centre; an odd number, so that it is an entry of the column."""

FAR = 10.0
"""The square of a mean's distance from the centre over the variance, up to which squares lose no more than a digit."""

AT_ONCE = 1 << 17
"""Entries that are added up together: a CPU's cache holds them, and the work on them takes much longer than starting it."""

LONG = 128
"""So many rows are added up by BLAS at a time, then their sums: equal numbers in a long sum are all rounded the same way."""


def about_their_mean(n: int, first: Any, about: Callable[[Array], tuple[Array, ...]]) -> tuple[Array, Array, Array]:
    """Sums of the columns (d,), their mean with what rounding left of it, as (2, d), and the squares about both together (d,).

    Parameters
    ----------
    n : int, number of rows, at least one
    first : (m, d) array of the first rows, at least one
    about : function from a centre (d,) to sums, and sums of squares, of the columns of the rows about it

    >>> X = np.array([[1e9], [1e9 + 1], [1e9 + 5]])
    >>> sums, mean, squares = about_their_mean(3, X, lambda c: moments(iter([X - c])))
    >>> sums.tolist(), mean.sum(axis=0).tolist(), squares.tolist()
    ([3000000006.0], [1000000002.0], [14.0])
    """
    some = np.asarray(first[: min(FIRST, len(first) - 1 + len(first) % 2)], dtype=np.float64)
    centre = np.sort(some, axis=0)[len(some) // 2]
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused by who asked
        found, far = _about(n, centre, *about(centre))
        if far.any():
            _, (mean, _), within = found
            centre = np.where(far, _short(mean, np.sqrt(within / n)), centre)
            found, _ = _about(n, centre, *about(centre))
    return found


def _short(mean: Array, spread: Array) -> Array:
    """The means (d,) to an eighth of the spread (d,) or better, with as few digits as that needs."""
    unit = np.ldexp(1.0, np.frexp(spread)[1] - 3)
    rounded: Array = np.rint(mean / unit) * unit
    return np.where(np.isfinite(rounded), rounded, mean)


def _about(n: int, centre: Array, S: Array, Q: Array) -> tuple[tuple[Array, Array, Array], NDArray[np.bool_]]:
    """What follows from sums and squares (d,) about a centre; and for which features the mean is far from it."""
    shift = S / n
    within = np.where(np.isfinite(Q), np.maximum(Q - S * shift, 0.0), Q)
    product, rest = two_product(np.full_like(centre, float(n)), centre)
    total, lost = two_sum(product, S)
    lost += rest
    sums = np.where(np.isfinite(lost), total + lost, product + S)
    return (sums, np.stack(two_sum(centre, shift)), within), S * shift > FAR * within


def moments(blocks: Iterator[Any]) -> tuple[Any, Any]:
    """Sums, and sums of squares, of the columns of several dense blocks (each n x d), which are overwritten, where they lie."""
    S, Q = _of_block(next(blocks))
    for block in blocks:
        sums, squares = _of_block(block)
        S += sums
        Q += squares
    return S, Q


def _of_block(block: Any) -> tuple[Any, Any]:
    """Of one block (n x d)."""
    if not on_cpu(block):
        xp = namespace(block)
        return xp.sum(block, axis=0), xp.sum(block * block, axis=0)
    D = np.ascontiguousarray(block)
    return _sums(D), _sums(np.multiply(D, D, out=D))


def _sums(D: Array) -> Array:
    """Sums of the columns of a block (n x d) of numpy; of many rows by BLAS, which is faster where they are short."""
    while len(D) > LONG:
        whole = len(D) // LONG * LONG
        some = np.matmul(np.ones(LONG), D[:whole].reshape(-1, LONG, D.shape[1]))
        D = np.concatenate([some, np.add.reduce(D[whole:], axis=0)[None]]) if whole < len(D) else some
    sums: Array = np.add.reduce(D, axis=0)
    return sums


def block_moments(block: Any) -> tuple[Any, Any]:
    """Sums and sums of squares of the columns of a dense block."""
    return namespace(block).sum(block, axis=0), namespace(block).sum(block * block, axis=0)


def weighted_sums(block: Any, weights: Any) -> Any:
    """Sums of the columns of a dense block times its weights (n x 1), to the last digits."""
    xp = namespace(block)
    sums, total = xp.sum(weights * block, axis=0), xp.sum(weights)
    with np.errstate(over="ignore", invalid="ignore"):  # infinite sums stay as they are
        centre = sums / total
        return better(sums, total * centre + xp.sum(weights * (block - centre), axis=0), xp)
