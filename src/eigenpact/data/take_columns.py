"""A site's rows with the agreed columns: in their order, swapped where alleles are, missing where the site lacks them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ..errors import InputTypeError
from ..numerics.sources import ChangedRows, CountRows, RowSource
from .agreement import SitePlan
from .alleles import with_counts_swapped


def take_columns(X: Any, plan: SitePlan) -> Any:
    """Rows (n x d') of X (n x d) as the plan says: an array, a sparse matrix or a source of rows stays one.

    A column that the site lacks holds NaN, or 255 where X holds counts in bytes.

    >>> take_columns(np.array([[1.0, 2.0]]), SitePlan(np.array([1, -1, 0]))).tolist()
    [[2.0, nan, 1.0]]
    """
    if plan.columns is None and plan.swapped is None:
        return X
    check_fits(plan, sparse=is_sparse(X))
    if isinstance(X, CountRows):
        made = CountRows(_of_counts(X.counts, plan))  # which stay bytes
        made.piece_bytes = X.piece_bytes
        return made
    if isinstance(X, RowSource):
        d = X.shape[1] if plan.columns is None else len(plan.columns)
        return ChangedRows(X, lambda rows: _taken(rows, plan), n_features=d)
    return _taken(X, plan)


def is_sparse(X: Any) -> bool:
    """Whether rows are sparse, in memory or where they lie."""
    return bool(scipy.sparse.issparse(X) or (isinstance(X, RowSource) and X.sparse))


def check_fits(plan: SitePlan, *, sparse: bool) -> None:
    """Refuse a plan that sparse rows cannot follow."""
    if sparse and (plan.lacking.size or plan.swapped is not None):
        raise InputTypeError(
            "features='union' cannot add columns of missing entries to sparse rows, which they would fill; "
            "use features='intersection', or give dense tables"
        )


def _of_counts(counts: Any, plan: SitePlan) -> Any:
    return _taken(counts, plan) if isinstance(counts, np.ndarray) and not isinstance(counts, np.memmap) else _Counts(counts, plan)


class _Counts:
    """Counts in bytes that are read a few rows at a time, with other columns."""

    def __init__(self, counts: Any, plan: SitePlan) -> None:
        self._counts, self._plan = counts, plan
        self.shape = (int(counts.shape[0]), int(counts.shape[1]) if plan.columns is None else len(plan.columns))
        self.dtype = np.dtype(np.uint8)
        self.ndim = 2

    def __getitem__(self, rows: Any) -> NDArray[np.uint8]:
        return np.asarray(_taken(np.asarray(self._counts[rows]), self._plan))

    def close(self) -> None:
        """Give back what holds the counts."""
        if hasattr(self._counts, "close"):
            self._counts.close()


def _taken(X: Any, plan: SitePlan) -> Any:
    """Rows in memory, whole or some of them."""
    if plan.columns is not None:
        at = np.maximum(plan.columns, 0)
        X = np.take(X, at, axis=1) if isinstance(X, np.ndarray) else X[:, at]  # which lies row by row, as products expect it
        if plan.lacking.size:
            X[:, plan.lacking] = CountRows.MISSING if X.dtype == np.uint8 else np.nan
    return X if plan.swapped is None else with_counts_swapped(X, plan.swapped)
