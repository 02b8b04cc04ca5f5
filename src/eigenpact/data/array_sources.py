"""Arrays in files, read a piece at a time: memory maps of .npy, members of .npz, compressed sparse rows."""

from __future__ import annotations

import math
import os
import weakref
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ..errors import FileError, InputError
from ..numerics.sources import ArraySource, RowSource
from ..storage import open_regular
from .array_files import Archive, read_header, told


def map_npy(path: Path) -> NDArray[Any]:
    """The array of a .npy file as a memory map, of which nothing is read yet."""
    with open_regular(path, follow=True) as file:
        dtype, shape, fortran = read_header(file, os.fstat(file.fileno()).st_size)
        with told():
            return np.memmap(file, dtype, "r", file.tell(), shape, "F" if fortran else "C")


class Member:
    """An array in a .npz file: its slices along the first axis are read from the archive, one after the other, when asked for."""

    def __init__(self, path: Path, name: str) -> None:
        self._path, self._name = path, name
        stream: IO[bytes] = open_regular(path, follow=True)
        self._closing = weakref.finalize(self, stream.close)
        with told():
            info = Archive(stream).member(name)
            self._file = zipfile.ZipFile(stream).open(info)  # noqa: SIM115 - closed with the stream
            self.dtype, self.shape, fortran = read_header(self._file, info.file_size)
            self._start = self._file.tell()
        if fortran and len(self.shape) > 1:
            raise InputError(f"array {name!r} is stored column by column; save it with numpy.ascontiguousarray, or as .npy")
        self.ndim = len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        first, last, _ = rows.indices(self.shape[0])
        width = math.prod(self.shape[1:]) * self.dtype.itemsize
        try:
            with told():
                self._file.seek(self._start + first * width)  # backwards, it reads from the start again
                data = self._file.read(max(0, last - first) * width)
                return np.frombuffer(data, self.dtype).reshape(-1, *self.shape[1:])
        except InputError as error:
            raise FileError(f"{self._path}, array {self._name!r}: {error}; save it again") from error

    def close(self) -> None:
        """Close the archive."""
        self._closing()


class CsrSource(RowSource):
    """Compressed sparse rows whose entries lie in a file.

    Parameters
    ----------
    path : named in errors
    data, indices : anything whose slices are arrays: the entries and their columns
    indptr : (n + 1,) array
        Where each row begins.
    """

    def __init__(self, path: Path, data: Any, indices: Any, indptr: NDArray[Any], shape: tuple[int, int]) -> None:
        kind = np.dtype(data.dtype)
        super().__init__(shape, np.float32 if kind.kind == "f" and kind.itemsize <= 4 else np.float64, sparse=True)
        self.path, self._data, self._indices = path, data, indices
        self._indptr = indptr.astype(np.int64)
        n = int(data.shape[0])
        if int(indices.shape[0]) != n or len(indptr) != shape[0] + 1 or self._indptr[0] != 0 or self._indptr[-1] > n:
            raise InputError("the parts of its sparse matrix do not fit together")
        if np.any(np.diff(self._indptr) < 0):
            raise InputError("the rows of its sparse matrix end before they begin")

    def row_bytes(self) -> int:
        """What an average row takes: eight bytes for an entry, eight for its column."""
        return 16 * (1 + int(self._indptr[-1]) // max(1, self.shape[0]))

    def read(self, first: int, last: int) -> Any:
        """The rows from number ``first`` to before ``last``, new in memory."""
        start, end = int(self._indptr[first]), int(self._indptr[last])
        data, columns = self._data[start:end], np.asarray(self._indices[start:end])
        if len(columns) and not 0 <= columns.min() <= columns.max() < self.shape[1]:
            raise FileError(f"{self.path}: rows {first} to {last} have entries outside of {self.shape[1]} columns; save it again")
        ends = (self._indptr[first : last + 1] - start).astype(columns.dtype if columns.dtype.kind == "i" else np.int64)
        shape = (max(0, last - first), self.shape[1])
        return scipy.sparse.csr_matrix((np.array(data, dtype=self.dtype), columns, ends), shape=shape)

    def close(self) -> None:
        """Close the files of the parts."""
        for part in (self._data, self._indices):
            if hasattr(part, "close"):
                part.close()


def npz_source(path: Path, name: str) -> ArraySource | Member:
    """A table in a .npz file, a piece at a time; what is no table is given as it is, to be told of."""
    member = Member(path, name)
    return ArraySource(member) if member.ndim == 2 and member.dtype.kind in "biuf" else member
