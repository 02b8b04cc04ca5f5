"""Checks of tables as they are stored, before anything is converted: numbers that doubles would round, and sparse matrices whose
entries lie outside of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..errors import InputError
from ..numerics.sources import ArraySource

BLOCK_ELEMENTS = 1 << 20
EXACT = 1 << 53
"""Up to this size all whole numbers are doubles."""


def check_exact(name: str, X: Any, feature_names: Sequence[str] | None = None) -> None:
    """Raise an InputError that names a column of X (array, sparse matrix, DataFrame or source) whose whole numbers double
    precision would round: times in nanoseconds, or identifiers.

    A spread that is small beside them would be made of rounding errors, which no estimate sees.  No number is printed.

    >>> check_exact("A", np.array([[1, 2**60]]))
    >>> check_exact("A", np.array([[1, 2**60 + 1]]))
    Traceback (most recent call last):
    eigenpact.errors.InputError: site 'A': column 1 holds whole numbers that double precision rounds...
    """
    for columns, block in _long_whole(X):
        rounded = _is_rounded(block)
        if rounded.any():
            row, column = np.argwhere(rounded)[0]
            j = int(np.broadcast_to(columns, block.shape)[row, column])
            label = j if feature_names is None else feature_names[j]
            raise InputError(
                f"site {name!r}: column {label!r} holds whole numbers that double precision rounds, as it does most beyond 2^53; "
                "subtract one number from the column, the same at every site, or leave it out; give X.astype(float) if rounding "
                "does no harm"
            )


def _long_whole(X: Any) -> Iterator[tuple[NDArray[np.intp], NDArray[Any]]]:
    """Blocks of eight-byte whole numbers of X (rows x columns; entries x 1 of a sparse matrix), each with the numbers of their
    columns in X."""
    if hasattr(X, "columns") and hasattr(X, "dtypes") and hasattr(X, "iloc"):
        for j, dtype in enumerate(X.dtypes):
            if _is_long(dtype):
                yield np.array([j]), np.asarray(X.iloc[:, j])[:, None]
        return
    stored = X.array if isinstance(X, ArraySource) else X
    if not _is_long(getattr(stored, "dtype", None)) or getattr(stored, "ndim", 2) != 2:
        return
    if sparse.issparse(stored):
        held = stored if stored.format in ("csr", "csc", "bsr", "coo") else stored.tocoo()
        if _is_rounded(held.data).any():
            held = held.tocoo()
            yield held.col[:, None], held.data[:, None]
        return
    n, d = stored.shape
    step = max(1, BLOCK_ELEMENTS // max(1, d))
    for first in range(0, n, step):
        yield np.arange(d), np.asarray(stored[first : first + step])


def _is_long(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind in "iu" and dtype.itemsize == 8


def _is_rounded(block: NDArray[Any]) -> NDArray[np.bool_]:
    """Which whole numbers are no doubles."""
    if not block.size or (int(block.max()) <= EXACT and int(block.min()) >= -EXACT):
        return np.zeros(block.shape, dtype=bool)
    doubles, end = block.astype(np.float64), float(np.iinfo(block.dtype).max)  # itself rounded, up to a power of two
    beyond = doubles >= end
    rounded: NDArray[np.bool_] = beyond | (np.where(beyond, 0.0, doubles).astype(block.dtype) != block)
    return rounded


def check_entries_within(whose: str, X: Any) -> None:
    """Raise if entries of a sparse matrix do not lie within it: scipy's compiled functions would read and write other memory.

    >>> X = sparse.csr_matrix(np.eye(3))
    >>> X.indptr[1] = 7
    >>> check_entries_within("site 'A'", X)
    Traceback (most recent call last):
    eigenpact.errors.InputError: site 'A': this sparse matrix is broken: its indptr does not rise from 0 to 3...
    """
    wrong = _wrong_within(X) if sparse.issparse(X) else ""
    if wrong:
        raise InputError(f"{whose}: this sparse matrix is broken: {wrong}; make it anew, or read it again")


def _wrong_within(X: Any) -> str:
    """What is wrong with where entries lie; empty if nothing is, or if the format has no such numbers."""
    if X.format == "coo":
        return _outside(X.row, X.shape[0], "row") or _outside(X.col, X.shape[1], "column")
    if X.format not in ("csr", "csc", "bsr"):
        return ""
    high, wide = X.blocksize if X.format == "bsr" else (1, 1)
    lines, across = X.shape[0] // high, X.shape[1] // wide
    if X.format == "csc":
        lines, across = across, lines
    ends, stored = np.asarray(X.indptr), min(len(X.indices), len(X.data))
    if len(ends) != lines + 1 or ends[0] != 0 or ends[-1] > stored or np.any(ends[1:] < ends[:-1]):
        return f"its indptr does not rise from 0 to {stored}, the number of its entries"
    return _outside(X.indices[: ends[-1]], across, "row" if X.format == "csc" else "column")


def _outside(numbers: Any, end: int, what: str) -> str:
    outside = len(numbers) and (numbers.min() < 0 or numbers.max() >= end)
    return f"it has an entry in {what} {numbers.min() if numbers.min() < 0 else numbers.max()}, of {end}" if outside else ""
