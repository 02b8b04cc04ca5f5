"""Sums over all dense rows of a site by compiled loops, which read rows as they are: part by part, with threads or without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compiled_action import NarrowProducts
from .compiled_moments import LONG, compiled_moments
from .compiled_triangle import compiled_triangle, rows_at_a_time
from .linalg import Array
from .machine_code import readable
from .parts import careful_totals, totals

LONG_PART, LONG_PART_ROWS = 1 << 23, 256
"""Entries, and rows, that a part has at least: beginning one, and adding up its sum, are to take little time."""


def products_of(rows: Any, made: NarrowProducts, block: int) -> tuple[Array, ...]:
    """What these products give for all rows of X, of which so many are a block."""
    return _added_up(rows, made.over, max(1, block // made.tile) * made.tile, totals)


def moments_of(rows: Any, centre: Array, block: int) -> tuple[Array, ...]:
    """Sums, and sums of squares, of the columns of X - 1 centre^T (d,)."""
    long = min(block, LONG)
    return _added_up(rows, lambda blocks: compiled_moments(blocks, centre, long), block // long * long, careful_totals)


def triangle_of(rows: Any, precision: np.dtype[Any], centre: NDArray[Any] | None, left: Array | None, block: int) -> Array:
    """The lower triangle of W^T W (d x d), in the order of columns, W = X - 1 centre^T - 1 left^T in this precision."""
    d, tile = rows.d, rows_at_a_time(rows.d, precision)

    def loop(blocks: Iterator[Any]) -> tuple[Array]:
        return compiled_triangle(blocks, d, precision, centre, left)

    return _added_up(rows, loop, max(1, block // tile) * tile, totals, least=8 * d)[0]


def _added_up(
    rows: Any,
    loop: Callable[[Iterator[Any]], tuple[Any, ...]],
    step: int,
    add: Callable[..., tuple[Array, ...]],
    least: int = LONG_PART_ROWS,
) -> tuple[Array, ...]:
    """The sums that a loop gives for ``step`` rows at a time, or whole parts where they are in memory as the loop reads them."""
    joined = isinstance(rows.X, np.ndarray) and readable(rows.X)
    least = max(LONG_PART // max(1, rows.d), least)
    sums: tuple[Array, ...] = rows.added_up(loop, step, least, add, as_they_are=True, joined=joined)
    return sums
