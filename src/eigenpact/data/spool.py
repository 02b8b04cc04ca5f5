"""Rows that come in parts: kept in memory as far as they may, beyond in a temporary file that nobody else can open.

The file has no name (where the system allows it) and goes with the process.  It lies in TMPDIR, else in /var/tmp, which is on
disk where /tmp may be in memory.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ..errors import FileError
from ..numerics.sources import RowSource
from ..storage import spool_folder

GROWTH = 1.5


class _Bytes:
    """A temporary file that is written once, from its start, and then read anywhere."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(dir=spool_folder())  # noqa: SIM115 - lives as long as what reads it
        self.size = 0
        self.close = weakref.finalize(self, self._file.close)

    def add(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        try:
            self._file.write(view)
        except OSError as error:
            free = shutil.disk_usage(spool_folder()).free
            raise FileError(
                f"rows that do not fit into memory are kept in {spool_folder()}, and {error.strerror or error} "
                f"({self.size + len(view)} bytes so far, {free} left); set TMPDIR to a folder on a larger disk"
            ) from error
        self.size += len(view)

    def read(self, buffer: Any, offset: int) -> None:
        """Fill a buffer from here on; several threads may do so at once."""
        self._file.flush()
        view, at = memoryview(buffer).cast("B"), 0
        while at < len(view):
            got = os.preadv(self._file.fileno(), [view[at:]], offset + at)
            if not got:
                raise FileError("a temporary copy of rows ends early; was the disk full?")
            at += got


class SpooledRows(RowSource):
    """Rows in a temporary file, float64 (n x d)."""

    def __init__(self, content: _Bytes, n_features: int) -> None:
        super().__init__((content.size // (8 * n_features), n_features), np.float64)
        self._content = content

    def read(self, first: int, last: int) -> Any:
        """The rows from number ``first`` to before ``last``, new in memory."""
        rows = np.empty((last - first, self.shape[1]))
        if rows.size:
            self._content.read(rows, 8 * self.shape[1] * first)
        return rows

    def close(self) -> None:
        """Remove the file."""
        self._content.close()


class GatheredRows:
    """Takes rows (n x d) part by part; ``memory`` is how many bytes of them may stay in memory, None for all."""

    def __init__(self, n_features: int, memory: int | None, expected: int = 0) -> None:
        self.d, self.n = n_features, 0
        self._memory = memory
        self._held = np.empty((0, n_features))
        self._file: _Bytes | None = None
        self.expected = expected

    def add(self, X: NDArray[np.float64]) -> None:
        """The next rows."""
        if self._file is None and self._memory is not None and 8 * self.d * (self.n + len(X)) > self._memory:
            self._file = _Bytes()
            if self.n:  # no view of nothing
                self._file.add(np.ascontiguousarray(self._held[: self.n]))
            self._held = np.empty((0, self.d))
        if self._file is not None:
            self._file.add(np.ascontiguousarray(X))
        else:
            if self.n + len(X) > len(self._held):
                rows = max(self.n + len(X), int(GROWTH * len(self._held)), self.expected)
                if self._memory is not None:
                    rows = max(self.n + len(X), min(rows, self._memory // (8 * self.d) + 1))
                self._held.resize((rows, self.d), refcheck=False)
            self._held[self.n : self.n + len(X)] = X
        self.n += len(X)

    @property
    def spooled(self) -> bool:
        """Whether the rows are in a file."""
        return self._file is not None

    def rows(self) -> Any:
        """All of them: an array, or a source that reads the file."""
        if self._file is not None:
            return SpooledRows(self._file, self.d)
        self._held.resize((self.n, self.d), refcheck=False)
        return self._held


class SpooledTexts(Sequence[str]):
    """Texts in a temporary file."""

    def __init__(self) -> None:
        self._texts, self._ends = _Bytes(), _Bytes()
        self._ends.add(np.zeros(1, dtype=np.int64))

    def add(self, texts: Sequence[str]) -> None:
        """The next ones."""
        coded = [text.encode(errors="surrogatepass") for text in texts]
        ends = self._texts.size + np.cumsum([len(text) for text in coded], dtype=np.int64)
        if coded:
            self._texts.add(b"".join(coded))
            self._ends.add(ends)

    def __len__(self) -> int:
        return self._ends.size // 8 - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = index + len(self) if index < 0 else index
        if not 0 <= i < len(self):
            raise IndexError(f"text {index} of {len(self)}")
        ends = np.empty(2, dtype=np.int64)
        self._ends.read(ends, 8 * i)
        text = bytearray(int(ends[1] - ends[0]))
        if text:
            self._texts.read(text, int(ends[0]))
        return text.decode(errors="surrogatepass")

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))


class GatheredTexts:
    """Takes texts part by part; once told to ``spill``, they are kept in a file."""

    def __init__(self) -> None:
        self._held: list[str] = []
        self._file: SpooledTexts | None = None

    def add(self, texts: Sequence[str], *, spill: bool) -> None:
        """The next texts."""
        if spill and self._file is None:
            self._file = SpooledTexts()
            self._file.add(self._held)
            self._held = []
        if self._file is not None:
            self._file.add(texts)
        else:
            self._held.extend(texts)

    def texts(self) -> Sequence[str]:
        """All of them."""
        return tuple(self._held) if self._file is None else self._file
