"""Rows that are read, or made, a few at a time: tables larger than memory, and rows that lie in another form than floats.

A :class:`RowSource` has a shape and a dtype, and gives some rows when asked for them: as a numpy array, or, if it is ``sparse``,
as a scipy CSR matrix.  ``Rows`` takes one like an array.  What is given belongs to whoever asked, who may change it.

While some rows are used, one background thread reads those that come next (:func:`pieces`).  It ends with the pass, also where
the pass is left early: by an error, by Ctrl-C, or because nobody asks for more.
"""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ..errors import InputTypeError

PIECE_BYTES = 1 << 25
"""So many bytes of rows are read at a time, unless a source is told otherwise; three such pieces may be in memory at once."""


class RowSource(ABC):
    """Rows (n x d) that are read a few at a time.

    ``source[a:b]`` and ``source[index array]`` give rows; ``source[:, columns]`` is a source of fewer columns, or in another
    order, which reads nothing yet; ``source[:]`` is everything in memory.

    Attributes
    ----------
    shape : (n, d)
    dtype : numpy dtype of what is given, float64 or float32
    stored : numpy dtype of what lies where rows are read from
    sparse : bool
        Whether scipy CSR matrices are given, else numpy arrays.
    piece_bytes : int
        How much is read at a time.
    facts : dict
        What was found out about all rows and is worth keeping, such as which columns are stored in nearly all of them.

    A subclass calls ``__init__`` and has :meth:`read`.

    >>> class Counting(RowSource):
    ...     def read(self, first, last):
    ...         return np.arange(2.0 * first, 2.0 * last).reshape(-1, 2)
    >>> rows = Counting((1000, 2), np.float64)
    >>> rows[2:4].tolist(), rows[np.array([7, 1])].tolist(), rows[:, [1]][:2].tolist()
    ([[4.0, 5.0], [6.0, 7.0]], [[14.0, 15.0], [2.0, 3.0]], [[1.0], [3.0]])
    """

    ndim = 2

    def __init__(self, shape: tuple[int, int], dtype: Any = np.float64, *, sparse: bool = False) -> None:
        self.shape = (int(shape[0]), int(shape[1]))
        self.dtype = self.stored = np.dtype(dtype)
        self.sparse = sparse
        self.piece_bytes = PIECE_BYTES
        self.facts: dict[str, Any] = {}

    @abstractmethod
    def read(self, first: int, last: int) -> Any:
        """The rows from number ``first`` to before ``last``, new in memory."""

    def row_bytes(self) -> int:
        """What a row takes in memory as it is given, about."""
        return 8 * max(1, self.shape[1])

    def rows_at_once(self) -> int:
        """How many rows are best read together."""
        return max(1, self.piece_bytes // self.row_bytes())

    def close(self) -> None:  # noqa: B027
        """Give back what the source holds: files, temporary copies."""

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple):
            rows, columns = key
            if isinstance(columns, slice) and columns == slice(None):
                return self[rows]
            if isinstance(rows, slice) and rows == slice(None):
                return SomeColumns(self, np.arange(self.shape[1])[columns])
            return SomeColumns(self, np.arange(self.shape[1])[columns])[rows]
        if isinstance(key, slice):
            first, last, step = key.indices(self.shape[0])
            if step == 1:
                return self.read(first, max(first, last))
            key = np.arange(first, last, step)
        return self._take(self._numbers(key))

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise InputTypeError(
            f"a source of {self.shape[0]} x {self.shape[1]} rows is read a few at a time and was asked for all at once; "
            "X[:] loads it, if memory allows"
        )

    def _numbers(self, key: Any) -> NDArray[np.int64]:
        """Row numbers that an index array, or one of bools, names."""
        index, n = np.asarray(key), self.shape[0]
        if index.dtype == bool and index.shape == (n,):
            index = np.flatnonzero(index)
        if index.ndim != 1 or index.dtype.kind not in "iu":
            raise InputTypeError("rows of a source are taken by a slice or by a list of row numbers")
        if index.size and not -n <= index.min() <= index.max() < n:
            raise IndexError(f"row numbers from {index.min()} to {index.max()} of {n} rows")
        return np.where(index < 0, index + n, index).astype(np.int64)

    def _take(self, index: NDArray[np.int64]) -> Any:
        """Rows by their numbers, in this order: read in runs of neighbours, a piece at a time."""
        order = np.argsort(index, kind="stable")
        wanted, step, found, at = index[order], self.rows_at_once(), [], 0
        while at < len(wanted):
            first = int(wanted[at])
            end = int(np.searchsorted(wanted, first + step))
            found.append(self.read(first, int(wanted[end - 1]) + 1)[wanted[at:end] - first])
            at = end
        back = np.empty(len(order), dtype=np.intp)
        back[order] = np.arange(len(order))
        return stack(found, self)[back]


class ArraySource(RowSource):
    """Rows of anything that has a shape and a dtype and gives numpy arrays for slices: a memory map, a zarr or HDF5 array.

    Whole numbers become float64; floats of up to four bytes become float32.

    >>> rows = ArraySource(np.array([[1, 2], [3, 4]], dtype=np.uint8))
    >>> rows.dtype.name, rows[1:].tolist()
    ('float64', [[3.0, 4.0]])
    """

    def __init__(self, array: Any) -> None:
        dtype = np.dtype(array.dtype)
        super().__init__(array.shape, np.float32 if dtype.kind == "f" and dtype.itemsize <= 4 else np.float64)
        self.array, self.stored = array, dtype

    def read(self, first: int, last: int) -> Any:
        """The rows from number ``first`` to before ``last``, new in memory."""
        some = self.array[first:last]
        rows = np.array(some, dtype=self.dtype, order="C")
        let_go_of(some)
        return rows

    def rows_at_once(self) -> int:
        """Whole chunks, where the array has some and memory allows."""
        step, chunks = super().rows_at_once(), getattr(self.array, "chunks", None)
        chunk = int(chunks[0]) if chunks else 1
        return step // chunk * chunk if step > chunk > 0 else step


class ChangedRows(RowSource):
    """Rows of another source after a change that looks at one row at a time, such as leaving out columns or scaling them.

    Parameters
    ----------
    source : RowSource
    change : function of some rows (numpy or CSR, which it may overwrite) that gives as many
    n_features : int, optional
        Columns after the change; as many as before if None.
    """

    def __init__(
        self,
        source: RowSource,
        change: Callable[[Any], Any],
        *,
        n_features: int | None = None,
        dtype: Any = None,
        sparse: bool | None = None,
    ) -> None:
        d = source.shape[1] if n_features is None else n_features
        super().__init__((source.shape[0], d), dtype or source.dtype, sparse=source.sparse if sparse is None else sparse)
        self.source, self.change, self.piece_bytes = source, change, source.piece_bytes

    def read(self, first: int, last: int) -> Any:
        """The rows from number ``first`` to before ``last``, new in memory."""
        return self.change(self.source.read(first, last))

    def row_bytes(self) -> int:
        """What a row takes in memory, before or after the change."""
        return max(self.source.row_bytes(), 0 if self.sparse else super().row_bytes())

    def rows_at_once(self) -> int:
        """As the source likes it."""
        return min(super().rows_at_once(), self.source.rows_at_once())

    def close(self) -> None:
        """Give back what the source holds."""
        self.source.close()


class SomeColumns(ChangedRows):
    """Columns of another source, by their numbers, in this order."""

    def __init__(self, source: RowSource, columns: NDArray[np.intp]) -> None:
        super().__init__(source, lambda rows: rows[:, columns], n_features=len(columns))
        self.columns = columns


class SomeRows(RowSource):
    """Rows of another source, by their numbers, in this order."""

    def __init__(self, source: RowSource, index: NDArray[np.int64]) -> None:
        super().__init__((len(index), source.shape[1]), source.dtype, sparse=source.sparse)
        self.source, self.index, self.piece_bytes = source, index, source.piece_bytes

    def read(self, first: int, last: int) -> Any:
        """The rows from number ``first`` to before ``last``, new in memory."""
        return self.source[self.index[first:last]]

    def row_bytes(self) -> int:
        """As of the source."""
        return self.source.row_bytes()

    def close(self) -> None:
        """Give back what the source holds."""
        self.source.close()


class CountRows(RowSource):
    """Rows of counts that are held as bytes, of which ``MISSING`` (255) is none: genotypes.  They are given as float64 with NaN.

    Parameters
    ----------
    counts : (n, d) uint8 array, or anything whose slices are such arrays

    >>> rows = CountRows(np.array([[0, 2], [255, 1]], dtype=np.uint8))
    >>> rows[:].tolist(), rows.counts.nbytes
    ([[0.0, 2.0], [nan, 1.0]], 4)
    """

    MISSING = 255

    def __init__(self, counts: Any) -> None:
        super().__init__(counts.shape, np.float64)
        self.counts = counts

    def read(self, first: int, last: int) -> Any:
        """The rows from number ``first`` to before ``last``, new in memory."""
        return self._floats(self.counts[first:last])

    def _take(self, index: NDArray[np.int64]) -> Any:
        return self._floats(self.counts[index])

    def _floats(self, counts: NDArray[np.uint8]) -> Any:
        rows = counts.astype(np.float64, order="C")
        if counts.size and counts.max() == self.MISSING:
            rows[counts == self.MISSING] = np.nan
        return rows

    def close(self) -> None:
        """Give back what holds the counts."""
        if hasattr(self.counts, "close"):
            self.counts.close()


def let_go_of(rows: Any) -> None:
    """Let go of the pages of a memory map that some rows, which were copied, lie in: else a pass would hold the whole file.

    The system keeps what it read of the file as long as it has room.  Changes of a map that are in memory alone (mode "c") would
    be lost, so such pages stay.
    """
    advice = getattr(mmap, "MADV_DONTNEED", None)
    if advice is None or not isinstance(rows, np.memmap) or rows.mode == "c" or not rows.size or not rows.flags.c_contiguous:
        return
    pages: mmap.mmap = rows._mmap  # type: ignore[attr-defined]  # numpy keeps it under this name alone
    first = rows.ctypes.data - np.frombuffer(pages, dtype=np.uint8).ctypes.data
    begin = first // mmap.PAGESIZE * mmap.PAGESIZE
    pages.madvise(advice, begin, first + rows.nbytes - begin)


def as_rows(X: Any) -> Any:
    """X, or a source of its rows if it lies on disk: a numpy memory map, a zarr or HDF5 array."""
    return ArraySource(X) if is_on_disk(X) else X


def is_on_disk(X: Any) -> bool:
    """Whether rows lie in a file and are read by slices: a numpy memory map, a zarr array or an HDF5 data set."""
    return isinstance(X, np.memmap) or type(X).__module__.partition(".")[0] in ("zarr", "h5py")


def stack(parts: list[Any], source: RowSource) -> Any:
    """Some rows after the others, as the source would give them."""
    if not parts:
        return source.read(0, 0)
    if len(parts) == 1:
        return parts[0]
    return scipy.sparse.vstack(parts, format="csr") if source.sparse else np.concatenate(parts)


def pieces(source: RowSource, step: int = 1) -> Iterator[tuple[int, Any]]:
    """All rows, some after the others: the number of the first, and the rows; those that come next are read meanwhile.

    Where a piece has room for more than ``step`` rows, it holds a multiple of them, so that blocks of ``step`` rows end where
    they would end in memory.

    >>> rows = ArraySource(np.arange(10.0).reshape(5, 2))
    >>> rows.piece_bytes = 16 * 3
    >>> [(first, len(piece)) for first, piece in pieces(rows, 2)]
    [(0, 2), (2, 2), (4, 1)]
    """
    n, at_once = source.shape[0], source.rows_at_once()
    at_once = max(step, at_once // step * step)
    starts = range(0, n, at_once)
    reads = (lambda first=first: source.read(first, min(first + at_once, n)) for first in starts)
    yield from zip(starts, read_ahead(reads, len(starts)), strict=True)


def read_ahead(reads: Iterable[Callable[[], Any]], number: int) -> Iterator[Any]:
    """What so many functions return, in their order; while one result is used, a thread calls the next function."""
    reads = iter(reads)
    if number <= 1:
        yield from (read() for read in reads)
        return
    pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="read-ahead")
    try:
        coming = pool.submit(next(reads))
        for read in reads:
            came = coming.result()
            coming = pool.submit(read)
            yield came
            del came
        yield coming.result()
    finally:  # also after an error, Ctrl-C, or when nobody asks for more
        pool.shutdown(wait=True, cancel_futures=True)
