"""Plain sums of replies: one addition after the other in sorted site-name order, so that named sites give the same bits on every
engine.  Secured ones are in ``secure_sum.py``; the algorithm never knows which of them runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np

from ..numerics.pairs import add
from .local import Arrays


def plain_sum(replies: Iterable[Arrays], pairs: Collection[int] = ()) -> Arrays:
    """((a + b) + c) + ..., in 64 bits and in the order given; consumes the replies one by one.

    ``pairs`` are numbers of arrays that hold pairs of doubles (``numerics/pairs.py``), which are added as such.

    >>> [int(total) for total in plain_sum([(np.uint8(255), np.int64(1)), (np.uint8(255), np.int64(2))])]
    [510, 3]
    """
    totals: list[np.ndarray[Any, Any]] | None = None
    for arrays in replies:
        if totals is None:
            totals = [np.array(a, dtype=np.result_type(a.dtype, np.int64), order="C") for a in arrays]
            continue
        for i, (total, a) in enumerate(zip(totals, arrays, strict=True)):
            if i in pairs:
                totals[i] = add(total, a)
            elif np.can_cast(a.dtype, total.dtype):
                total += a
            else:  # whole numbers from the first sites, fractions from a later one
                totals[i] = np.asarray(total + a)
    return tuple(totals or ())
