"""A sparse matrix that a file stores by columns, turned into rows in a temporary file, a piece at a time.

Two passes over the file: entries of each row are counted, then each is written to its place.  The file has no name (where the
system allows it), its size is set aside before anything is written, and it goes with the process.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import FileError, InputError
from ..numerics.sources import pieces
from ..storage import spool_folder
from .array_files import Archive
from .array_sources import CsrSource, Member


def turned(columns: CsrSource) -> CsrSource:
    """Rows (n x d) of a matrix whose transpose, the columns (d x n), is read from a file."""
    d, n = columns.shape
    counts = np.zeros(n, dtype=np.int64)
    for _, piece in pieces(columns):
        counts += np.bincount(piece.indices, minlength=n)
    begin = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)])
    total = int(begin[-1])
    entries, numbers = _set_aside(total, columns.dtype), _set_aside(total, np.dtype(np.int32 if d < 2**31 else np.int64))
    following = begin[:-1].copy()
    for first, piece in pieces(columns):
        order = np.argsort(piece.indices, kind="stable")
        rows = piece.indices[order]
        place = following[rows] + _number_within(rows)
        entries[place] = piece.data[order]
        numbers[place] = first + np.repeat(np.arange(piece.shape[0]), np.diff(piece.indptr))[order]
        following += np.bincount(rows, minlength=n)
    return CsrSource(columns.path, entries, numbers, begin, (n, d))


def sparse_npz_source(path: Path, archive: Archive) -> CsrSource:
    """The CSR or CSC matrix of a file written by ``scipy.sparse.save_npz``, a piece at a time."""
    form, shape = archive.read("format").ravel().tolist(), archive.read("shape").ravel().tolist()
    by_columns = form in ([b"csc"], ["csc"])
    if form not in ([b"csr"], ["csr"]) and not by_columns:
        raise InputError("its rows can be read a piece at a time only in CSR or CSC format; convert it with X.tocsr()")
    data, indices = Member(path, "data"), Member(path, "indices")
    if data.ndim != 1 or data.dtype.kind not in "biuf" or indices.ndim != 1 or indices.dtype.kind not in "iu" or len(shape) != 2:
        raise InputError("the parts of its sparse matrix do not fit together")
    n, d = (int(length) for length in shape)
    source = CsrSource(path, data, indices, archive.read("indptr"), (d, n) if by_columns else (n, d))
    return turned(source) if by_columns else source


def _number_within(rows: NDArray[Any]) -> NDArray[np.int64]:
    """The how-manieth of its row each entry is, where rows are sorted.

    >>> _number_within(np.array([0, 0, 2, 2, 2])).tolist()
    [0, 1, 0, 1, 2]
    """
    new = np.flatnonzero(np.diff(rows, prepend=-1))
    return np.arange(len(rows)) - np.repeat(new, np.diff(np.append(new, len(rows))))


def _set_aside(length: int, dtype: np.dtype[Any]) -> Any:
    """An array in a temporary file, for which there is room on the disk."""
    size = max(1, length) * dtype.itemsize
    with tempfile.TemporaryFile(dir=spool_folder()) as file:  # a memory map keeps it open
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            raise FileError(
                f"a matrix that is stored by columns is turned into rows in {spool_folder()}, which takes {size} bytes, and "
                f"{error.strerror or error}; set TMPDIR to a folder on a larger disk, or save X.tocsr()"
            ) from error
        return np.memmap(file, dtype, "r+", shape=(max(1, length),))[:length]
