"""Rows in groups that lack the same entries: what is computed for such a pattern is computed once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def patterns(seen: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """One row for each pattern of missing entries (p,), in the order of the rows, and the pattern of each row (n,).

    >>> patterns(np.array([[True, False], [True, True], [True, False]]))[1].tolist()
    [0, 1, 0]
    """
    if seen.all():
        return np.zeros(min(1, len(seen)), dtype=np.intp), np.zeros(len(seen), dtype=np.intp)
    packed = np.ascontiguousarray(np.packbits(seen, axis=1))
    keys = packed.view(np.dtype((np.void, packed.shape[1]))).reshape(-1)
    _, first, pattern = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[pattern.reshape(-1)]
