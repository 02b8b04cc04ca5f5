"""Products of rows in single precision as they are: at twice the rate of double precision, and to seven digits.

Rows in float32 are centred in single precision: x - c is rounded once, by 6e-8 of itself,
however far from zero x is, and c is the mean as float32 has it.  So W' = X - 1 c^T differs from the rows W about their exact mean
u by the same small l = u - c in every row.  The columns of W add up to zero, so

    W^T W = W'^T W' - n l l^T,    W^T (W A) = W'^T (W' A) - n l (l^T A).

A constant column is zero.  Blocks of rows are multiplied in single precision and added up in double, so errors do not grow with
the number of rows.  A sum of m products is off by at most m units of the last digit of the sum of their sizes, so an entry of
W'^T W' is off by at most ``ERROR`` times the root of the two squares on the diagonal that belong to it, and W'^T W' by at most
``ERROR`` times its trace.  That is for rows which are one large number and then one small one again and again, whose roundings
all point the same way: 7e-6 was seen.  Rows that look like noise give 1e-8 to 1e-7.  Products with a block have sums of all
features, too; their errors show where Q^T C Q is not symmetric (``krylov_space.py``).

Of rows on a GPU products are made by its matrix units, and W' is as here (``device_single.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .device_rows import on_gpu
from .linalg import Array
from .on_device import OnDevice
from .sources import RowSource
from .tiles import action

Single = NDArray[np.float32]

GRAM_ROWS, ACTION_ROWS = 512, 128
"""Rows that are multiplied at a time, with each other and with a block.  Many equal numbers that are added to a large sum are all
rounded the same way, so sums in single precision must be short."""

ERROR = (GRAM_ROWS + 8) / float(1 << 24)
"""What W'^T W' may be off by in single precision, as a share of the trace, in whatever order a block is added up: 3.1e-5."""

SMALLEST, LARGEST = 1e-20, 1e20
"""Mean squares of rows between which neither squares of single precision nor sums of them overflow, or vanish beside others."""

LEAST_SQUARE = float(np.finfo(np.float32).tiny)
"""Below it a square has fewer digits.  A product is then off by 2^-150, in units of its own, which a scale makes as large as any:
n of them in every entry are within 2^-24 of the trace if n times this, over the squared scales, adds up to no more than it."""


def _centred(blocks: Iterator[Any], centre: Single) -> Iterator[Single]:
    """Blocks (each n x d) about a centre (d,), in memory that is used again."""
    memory = np.empty((0, len(centre)), np.float32)
    for block in blocks:
        if len(block) > len(memory):
            memory = np.empty((len(block), len(centre)), np.float32)
        W = memory[: len(block)]
        np.subtract(block, centre, out=W)
        yield W


def suits_single(X: Any) -> bool:
    """Whether rows are of a kind that is multiplied here, in dense blocks: numpy's, or such as are read.

    >>> from scipy.sparse import eye_array
    >>> suits_single(np.zeros((1, 1))), suits_single(eye_array(2))
    (True, False)
    """
    return isinstance(X, np.ndarray) or (isinstance(X, RowSource) and not X.sparse and not isinstance(X, OnDevice))


def suits_single_products(X: Any) -> bool:
    """Whether rows are of a kind of which products with a block are made in single precision: these, or rows on a GPU.

    >>> suits_single_products(np.zeros((1, 1)))
    True
    """
    return suits_single(X) or on_gpu(X) is not None


def in_range(squares: float, n: int) -> bool:
    """Whether n rows whose squares add up to this can be multiplied in single precision.

    >>> in_range(1e3, 100), in_range(1e30, 100), in_range(0.0, 100)
    (True, False, False)
    """
    return SMALLEST * n <= squares <= LARGEST * n


def single_gram(blocks: Iterator[Any], centre: Single) -> tuple[Array]:
    """The sum of W'^T W' (d x d), in the order of columns, over blocks of rows (each n x d).

    >>> single_gram(iter([np.array([[1, 2], [3, 2]], np.float32)]), np.array([2, 2], np.float32))[0].tolist()
    [[2.0, 0.0], [0.0, 0.0]]
    """
    d = len(centre)
    S, product = np.zeros((d, d), order="F"), np.empty((d, d), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # who asked looks at the result
        for W in _centred(blocks, centre):
            S += np.matmul(W.T, W, out=product).T
    return (S,)


def single_action(blocks: Iterator[Any], centre: Single, A: Array, features: int) -> tuple[Array]:
    """The sum of W'^T (W' A) (d x k) over blocks of rows (each n x d), for A (d x k); so many ``features`` at a time.

    >>> single_action(iter([np.array([[1.0, 2.0]], np.float32)]), np.zeros(2, np.float32), np.eye(2, 1), 2)[0].tolist()
    [[1.0], [2.0]]
    """
    with np.errstate(over="ignore", under="ignore"):  # who asked looks at the result
        A = A.astype(np.float32)
    return (action(_centred(blocks, centre), A, None, features)[0],)
