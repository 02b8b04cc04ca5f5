"""Checks of tables as they are stored, before anything is converted: numbers that doubles would round, and sparse matrices whose
entries lie outside of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..errors import InputError
from ..numerics.sources import ArraySource

BLOCK_ELEMENTS = 1 << 20
EXACT = 1 << 53
"""Up to this size all whole numbers are doubles."""

ENDLESS = 1 << 1023
"""From this size on none is taken for one."""


def check_exact(whose: str, X: Any, feature_names: Sequence[str] | None = None) -> None:
    """Raise an InputError that names a column of X (array, sparse matrix, DataFrame, list or source) whose whole numbers double
    precision would round: times in nanoseconds, or identifiers.

    A spread that is small beside them would be made of rounding errors, which no estimate sees.  No number is printed.

    >>> check_exact("X", np.array([[1, 2**60]]))
    >>> check_exact("X", np.array([[1, 2**60 + 1]]))
    Traceback (most recent call last):
    eigenpact.errors.InputError: X: column 1 holds whole numbers that double precision rounds...
    """
    for columns, block in _whole_numbers(X):
        rounded = _is_rounded(block)
        if rounded.any():
            j = int(np.broadcast_to(columns, block.shape)[rounded][0])
            raise rounds(whose, j if feature_names is None else feature_names[j])


def rounds(whose: str, column: object) -> InputError:
    """The error for a column of whole numbers that double precision rounds."""
    return InputError(
        f"{whose}: column {column!r} holds whole numbers that double precision rounds, as it does most beyond 2^53; subtract one "
        "number from the column, the same at every site, or leave it out; give X.astype(float) if rounding does no harm"
    )


def _whole_numbers(X: Any) -> Iterator[tuple[NDArray[np.intp], NDArray[Any]]]:
    """Blocks of whole numbers of X that may be no doubles (rows x columns; entries x 1 of a sparse matrix), with the numbers of
    their columns."""
    if hasattr(X, "columns") and hasattr(X, "dtypes") and hasattr(X, "iloc"):
        for j, dtype in enumerate(X.dtypes):
            if getattr(dtype, "kind", "") in "iu" and getattr(dtype, "itemsize", 8) == 8:
                column = X.iloc[:, j] if isinstance(dtype, np.dtype) else X.iloc[:, j].dropna()
                yield np.array([j]), np.asarray(column, dtype=f"{dtype.kind}8")[:, None]
        return
    stored = X.array if isinstance(X, ArraySource) else _as_array(X) if isinstance(X, list | tuple) else X
    kind = getattr(stored, "dtype", None)
    may_round = isinstance(kind, np.dtype) and (kind.kind == "O" or (kind.kind in "iu" and kind.itemsize == 8))
    if not may_round or getattr(stored, "ndim", 2) != 2:
        return
    if sparse.issparse(stored):
        if stored.format not in ("csr", "csc", "bsr", "coo") or any(_is_rounded(part).any() for part in _pieces(stored.data)):
            held = stored.tocoo()
            yield held.col[:, None], held.data[:, None]
        return
    for block in _pieces(stored):
        yield np.arange(stored.shape[1]), np.asarray(block)


def _as_array(rows: Any) -> Any:
    """Lists of lists as an array; None where they are none."""
    try:
        return np.asarray(rows)
    except (ValueError, TypeError):
        return None


def _pieces(X: Any) -> Iterator[Any]:
    """Some rows of X at a time."""
    step = max(1, BLOCK_ELEMENTS // max(1, int(np.prod(X.shape[1:]))))
    return (X[first : first + step] for first in range(0, X.shape[0], step))


def _is_rounded(block: NDArray[Any]) -> NDArray[np.bool_]:
    """Which whole numbers are no doubles."""
    if block.dtype.kind == "O":
        return np.array([_of_python(value) for value in block.flat], dtype=bool).reshape(block.shape)
    if not block.size or (int(block.max()) <= EXACT and int(block.min()) >= -EXACT):
        return np.zeros(block.shape, dtype=bool)
    doubles, end = block.astype(np.float64), float(np.iinfo(block.dtype).max)  # itself rounded, up to a power of two
    beyond = doubles >= end
    rounded: NDArray[np.bool_] = beyond | (np.where(beyond, 0.0, doubles).astype(block.dtype) != block)
    return rounded


def _of_python(value: Any) -> bool:
    if not isinstance(value, int | np.integer) or abs(whole := int(value)) <= EXACT:
        return False
    return abs(whole) >= ENDLESS or int(float(whole)) != whole


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
    if X.format == "lil":
        if list(map(len, X.rows)) != list(map(len, X.data)):
            return "a row has not as many entries as columns of them"
        return _outside(np.fromiter(chain.from_iterable(X.rows), dtype=np.int64), X.shape[1], "column")
    if X.format not in ("csr", "csc", "bsr"):
        return ""
    if X.indices.dtype.kind not in "iu" or X.indptr.dtype.kind not in "iu" or X.data.ndim != (3 if X.format == "bsr" else 1):
        return "its indices, indptr or data are not arrays of the kind that scipy makes"
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


def without_room(X: Any) -> Any:
    """A CSR or CSC matrix without what lies behind its last entry, which some functions would read; X itself if there is none.

    >>> X = sparse.csr_array(np.eye(2))
    >>> X.data, X.indices = np.append(X.data, 7.0), np.append(X.indices, 1)
    >>> len(without_room(X).data), len(X.data)
    (2, 3)
    """
    if not sparse.issparse(X) or X.format not in ("csr", "csc"):
        return X
    end = int(X.indptr[-1])
    if max(len(X.data), len(X.indices)) == end:
        return X
    return type(X)((X.data[:end], X.indices[:end], X.indptr), shape=X.shape)
