"""Rows that lie in memory or in a file here and are multiplied on a device, such as a GPU, that may be too small for all of them.

What fits stays on the device after the first pass.  Of more rows, every pass brings pieces there: while one is multiplied, a
thread reads the next one, in chunks through memory that the device reads itself, so that reading, copying and arithmetic take
place at the same time.  Pieces depend on the shape alone, and what they give is added up in their order: results have the same
bits every time.

For everything that computes in numpy the rows are a source like any other (``sources.py``).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse

from ..errors import InputError, InputTypeError, MissingExtraError
from .sources import ArraySource, RowSource, as_rows, let_go_of, read_ahead

CHUNK_BYTES, READERS = 1 << 26, 16
"""Bytes that are read before the device is told to fetch them, while the next ones are read; and threads that read, at most."""

PIECES, LARGEST = 8, 1 << 30
"""A piece is this part of the memory that rows may take on the device, and no larger than so many bytes; two are there."""

SHARE = 0.6
"""Of a device's free memory, what rows may take unless somebody says otherwise."""


class OnDevice(RowSource):
    """Rows (n x d), dense, that are multiplied on a device by torch.

    Parameters
    ----------
    rows : (n, d) array of numpy, a memory map, a zarr or HDF5 array, or a RowSource
    device : str
        As torch names it: "cuda", "cuda:1", "cpu".
    memory : int, optional
        Bytes that rows may take there; more rows than that are brought there anew in every pass.  A share of what is free by
        default.

    ``FederatedPCA`` and ``PersonalizedPCA`` multiply there; what else is done with the rows is done here.

    >>> rows = OnDevice(np.ones((4, 3)), "cpu") if importlib.util.find_spec("torch") else ArraySource(np.ones((4, 3)))
    >>> rows.shape, rows[1:2].tolist()
    ((4, 3), [[1.0, 1.0, 1.0]])
    """

    def __init__(self, rows: Any, device: str = "cuda", *, memory: int | None = None) -> None:
        if importlib.util.find_spec("torch") is None:
            raise MissingExtraError(f"rows on device {device!r} need torch: pip install torch")
        source = rows if isinstance(rows, np.ndarray) and not isinstance(rows, np.memmap) else as_rows(rows)
        if scipy.sparse.issparse(rows) or getattr(source, "sparse", False) or not isinstance(source, np.ndarray | RowSource):
            raise InputTypeError(f"rows for a device are dense, in numpy or in a file, not {type(rows).__name__}")
        if source.ndim != 2 or (memory is not None and not memory > 0):
            raise InputError(f"rows of shape {tuple(source.shape)}, memory={memory!r}: give a table, and bytes > 0 or None")
        self._array = source.array if isinstance(source, ArraySource) else source
        self._source = ArraySource(source) if isinstance(source, np.ndarray) else source
        super().__init__(self._source.shape, self._source.dtype)
        self.stored, self.device, self.memory = self._source.stored, str(device), memory
        self._begin()

    def _begin(self) -> None:
        self._whole: Any = None
        self._pieces: list[Any] = []
        self._ends: dict[tuple[int, int], Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_whole", "_pieces", "_ends")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def read(self, first: int, last: int) -> Any:
        """The rows from number ``first`` to before ``last``, new in memory here."""
        return self._source.read(first, last)

    def close(self) -> None:
        """Give back the device's memory, and what the rows are read from."""
        self._begin()
        self._source.close()

    def there(self) -> Iterator[Any]:
        """All rows as arrays of torch on the device, some after the others; each is overwritten when the next is asked for."""
        n, size = self.shape[0], self.shape[1] * self.dtype.itemsize
        if self._whole is None and not self._pieces:
            allowed = self._allowed()
            if n * size <= allowed:
                whole = self._empty(n)
                with ThreadPoolExecutor(_readers()) as pool:
                    self._fill(pool, whole, 0)
                self._whole = whole
            else:
                step = max(1, min(allowed // PIECES, LARGEST) // max(1, size))
                self._pieces = [self._empty(step), self._empty(step)]
        if self._whole is not None:
            yield self._whole
            return
        step = len(self._pieces[0])
        starts = range(0, n, step)
        with ThreadPoolExecutor(_readers()) as pool:
            views = (self._view(i % 2, min(step, n - first)) for i, first in enumerate(starts))
            reads = (partial(self._fill, pool, view, first) for view, first in zip(views, starts, strict=True))
            yield from read_ahead(reads, len(starts))

    def note_if_finite(self) -> None:
        """Look at all rows on the device; if none is NaN or infinite, nobody need read them for that any more."""
        if not self.facts.get("finite") and all(bool((piece * 0).sum() == 0) for piece in self.there()):
            self.facts["finite"] = True

    def _allowed(self) -> int:
        """Bytes that rows may take."""
        if self.memory is not None:
            return int(self.memory)
        torch = importlib.import_module("torch")
        there = torch.device(self.device)
        return int(SHARE * torch.cuda.mem_get_info(there)[0]) if there.type == "cuda" else 1 << 62

    def _empty(self, rows: int) -> Any:
        torch = importlib.import_module("torch")
        return torch.empty((rows, self.shape[1]), dtype=getattr(torch, self.dtype.name), device=self.device)

    def _view(self, i: int, rows: int) -> Any:
        """The first rows of a piece: the same object whenever it is asked for, since what products need is kept with it."""
        if rows == len(self._pieces[i]):
            return self._pieces[i]
        if (i, rows) not in self._ends:
            self._ends[i, rows] = self._pieces[i][:rows]
        return self._ends[i, rows]

    def _fill(self, pool: ThreadPoolExecutor, piece: Any, first: int) -> Any:
        """The piece, with the rows from number ``first`` on copied into it."""
        torch = importlib.import_module("torch")
        step = max(1, CHUNK_BYTES // max(1, self.shape[1] * self.dtype.itemsize))
        starts = range(0, len(piece), step)
        if not piece.is_cuda:
            for at in starts:
                part = piece[at : at + step]
                self._copy(pool, part.numpy(), first + at)
            return piece
        size = (min(step, len(piece)), self.shape[1])
        chunks = [torch.empty(size, dtype=piece.dtype, pin_memory=True) for _ in range(2)]
        stream, done = torch.cuda.Stream(piece.device), [torch.cuda.Event(), torch.cuda.Event()]
        for i, at in enumerate(starts):
            part = piece[at : at + step]
            here = chunks[i % 2][: len(part)]
            done[i % 2].synchronize()
            self._copy(pool, here.numpy(), first + at)
            with torch.cuda.stream(stream):
                part.copy_(here, non_blocking=True)
                done[i % 2].record(stream)
        stream.synchronize()
        return piece

    def _copy(self, pool: ThreadPoolExecutor, into: Any, first: int) -> None:
        """Rows from number ``first`` on into an array of numpy, by several threads where they need not be converted."""
        if not isinstance(self._array, np.ndarray) or self._array.dtype != self.dtype:
            np.copyto(into, self._source.read(first, first + len(into)))
            return
        step = -(-len(into) // _readers())
        list(pool.map(lambda at: self._copy_some(into[at : at + step], first + at), range(0, len(into), step)))

    def _copy_some(self, into: Any, first: int) -> None:
        some = self._array[first : first + len(into)]
        np.copyto(into, some)
        let_go_of(some)


def device_of(X: Any) -> str:
    """The device on which rows are multiplied, as torch names it; empty where that is numpy's work, or another library's.

    >>> device_of(np.ones((2, 2)))
    ''
    """
    return str(X.device) if isinstance(X, OnDevice) or type(X).__module__.partition(".")[0] == "torch" else ""


def _readers() -> int:
    return min(READERS, os.cpu_count() or 1)
