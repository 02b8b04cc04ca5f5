"""How many entries lie between given numbers, of arrays of another library than numpy, counted where they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .elsewhere import like, namespace, to_numpy
from .linalg import Array


def counts_between(values: Any, edges: Array) -> NDArray[np.int64]:
    """How many values are below the first of these edges (m,), from each to before the next, and from the last on: m + 1 counts.

    Edges ascend.

    >>> import array_api_strict as strict
    >>> counts_between(strict.asarray([[0.0, 1.0], [1.5, 7.0]]), np.array([1.0, 2.0])).tolist()
    [1, 2, 1]
    """
    xp, bounds = namespace(values), like(edges, values)
    values = xp.reshape(values, (-1,))
    if hasattr(xp, "bincount"):  # torch, cupy: no need to sort
        places = xp.searchsorted(bounds, values, side="right")
        return to_numpy(xp.bincount(places, minlength=len(edges) + 1)).astype(np.int64)
    below = to_numpy(xp.searchsorted(xp.sort(values), bounds, side="left"))
    return np.diff(below, prepend=0, append=values.shape[0]).astype(np.int64)


def counts_by_column(M: Any, lows: Array, last: Array) -> NDArray[np.int64]:
    """How many entries of each column of M (n x d) lie from each of the numbers ``lows`` (d x m) to before the next, by column.

    Of the last part, up to ``last`` (d,), with it.  Entries that are NaN lie nowhere; infinite ones must not be there.

    >>> import array_api_strict as strict
    >>> counts_by_column(strict.asarray([[0.0], [1.0], [1.5], [7.0]]), np.array([[0.5, 1.5]]), np.array([2.0])).tolist()
    [[1, 1]]
    """
    xp = namespace(M)
    bounds, end = like(np.ascontiguousarray(lows.T), M), like(last, M)
    found = [xp.count_nonzero(bounds[j, :] <= M, axis=0) for j in range(bounds.shape[0])]
    found.append(xp.count_nonzero(end < M, axis=0))
    at_least = to_numpy(xp.stack(found)).astype(np.int64)
    return np.ascontiguousarray((at_least[:-1] - at_least[1:]).T)
