"""Rows of a table that lacks columns, or has them in another order, as rows with all columns: NaN where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from .sources import RowSource


class Placed(RowSource):
    """Rows (n x d) of X (n x m): column j is X's column ``order[j]``, or missing (NaN) where that is -1.

    >>> Placed(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1, -1]))[:1].tolist()
    [[2.0, nan]]
    """

    def __init__(self, X: Any, order: NDArray[np.intp]) -> None:
        single = X.dtype == np.float32
        super().__init__((int(X.shape[0]), len(order)), np.float32 if single else np.float64)
        self._X, self._order = X, order

    def read(self, first: int, last: int) -> Any:
        """The rows from number ``first`` to before ``last``, new in memory."""
        block = self._X[first:last]
        block = block.toarray() if scipy.sparse.issparse(block) else np.asarray(block)
        rows = np.full((len(block), self.shape[1]), np.nan, dtype=self.dtype)
        held = np.flatnonzero(self._order >= 0)
        rows[:, held] = block[:, self._order[held]]
        return rows
