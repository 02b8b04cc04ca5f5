"""Q^T A and Q Y of a tall basis Q (d x m) in Fortran order: either half of the loop of ``compiled_action.py``, alone.

The columns of Q are the rows of that loop.  Q^T A is made for some columns of Q at a time, Q Y for some rows, so that nothing is
added up between threads: results do not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from .compiled_action import KEPT, Loop, Plan, plan_for, worth_compiling
from .linalg import Array
from .machine_code import memory, readable
from .parts import side_by_side

WORTH = 100_000_000
"""Rows x columns x columns from which on compiling both halves is worth its time: a space that is so large grows further."""

COLUMNS, ROWS = 64, 1024
"""Columns of Q, and rows, that a thread takes at a time."""

DOUBLE = np.dtype(np.float64)


def worth_halves(Q: Array, k: int) -> bool:
    """Whether products of Q (d x m) with k columns are made here.

    >>> worth_halves(np.ones((10, 2), order="F"), 2)
    False
    """
    d, m = Q.shape
    return d * m * k >= WORTH and Q.dtype == DOUBLE and readable(Q.T) and worth_compiling(m, d, k)


def compiled_inner(Q: Array, A: Array) -> Array:
    """Q^T A (m x k), for A (d x k)."""
    (d, m), k, apart = Q.shape, A.shape[1], Q.strides[1] // Q.itemsize
    plan = plan_for(d, k, DOUBLE)
    kernel = _kernel(plan, _Scores)
    padded, nothing = memory((plan.features, plan.width), DOUBLE, zeros=True), memory((plan.width,), DOUBLE, zeros=True)
    padded[:d, :k] = A

    def of_part(first: int) -> Array:
        columns = min(COLUMNS, m - first)
        made = memory((columns + plan.rows, plan.width), DOUBLE)
        used = (padded, nothing, nothing, plan.empty_tile(), made)
        kernel(Q[:, first:].ctypes.data, columns, apart, *(array.ctypes.data for array in used))
        return made[:columns, :k]

    return np.concatenate(list(side_by_side(of_part, range(0, m, COLUMNS))))


def compiled_times(Q: Array, Y: Array) -> Array:
    """Q Y (d x k), for Y (m x k)."""
    (d, m), k, apart = Q.shape, Y.shape[1], Q.strides[1] // Q.itemsize
    plan = plan_for(min(ROWS, d), k, DOUBLE)
    kernel, lanes = _kernel(plan, _Products), plan.kind.lanes
    padded, nothing = memory((m + plan.rows, plan.width), DOUBLE, zeros=True), memory((plan.features,), DOUBLE, zeros=True)
    padded[:m, :k] = Y
    product = np.empty((d, k))

    def of_part(first: int) -> None:
        first = min(first, d - plan.d)  # the last part has as many rows as the others, some of them once more
        made = memory((plan.features // lanes, k, lanes), DOUBLE, zeros=True)
        used = (nothing, plan.empty_tile(), padded, made)
        kernel(Q[first:].ctypes.data, m, apart, *(array.ctypes.data for array in used))
        product[first : first + plan.d] = made.swapaxes(1, 2).reshape(-1, k)[: plan.d]

    for _ in side_by_side(of_part, range(0, d, plan.d)):
        pass
    return product


class _Scores(Loop):
    """The first half: T of all rows, one below the other."""

    arrays = ("A", "shift", "centres", "tile", "scores")
    both = False

    def tile(self, first: str) -> None:
        """Make T of a tile."""
        code = self.code
        rows, filled = self.rows_of(first)
        self.T = code.at("%scores", code.times(first, self.plan.width), self.kind)
        code.loop(0, filled, 1, self.begin_scores)

        def of_chunk(chunk: str) -> None:
            self.copy(chunk, first, rows, filled)
            self.scores_of_chunk("%tile", chunk, first, filled)

        code.loop(0, self.plan.chunks, 1, of_chunk)


class _Products(Loop):
    """The second half: W^T T with a T of all rows that is there already."""

    arrays = ("centres", "tile", "scores", "products")
    both = False

    def tile(self, first: str) -> None:
        """Add what a tile gives."""
        code = self.code
        rows, filled = self.rows_of(first)
        self.T = code.at("%scores", code.times(first, self.plan.width), self.kind)

        def of_chunk(chunk: str) -> None:
            self.copy(chunk, first, rows, filled)
            self.products("%tile", chunk, first, filled)

        code.loop(0, self.plan.chunks, 1, of_chunk)


@lru_cache(maxsize=KEPT)
def _kernel(plan: Plan, half: type[_Scores | _Products]) -> Callable[..., None]:
    """The compiled loop of a half, for rows in double precision."""
    return half(plan, DOUBLE, 0).compiled()
