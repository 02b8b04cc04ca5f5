"""Genotypes by rows, two bits each, in a temporary file: for files larger than memory that lie variant by variant.

PLINK and VCF files hold one variant after the other, and rows of people are what is computed with: to read some rows is to read
all of the file.  So it is read once and turned: some variants of all people at a time (a slab), each person's side by side.
Then any rows are a short read from every slab.  The file is as large as PLINK's .bed, has no name, and is gone with the process.

The two bits are PLINK's: 0 is two of the counted allele, 1 missing, 2 one, 3 none.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import FileError
from ..numerics.sources import CountRows, RowSource
from ..storage import spool_folder

Bytes = NDArray[np.uint8]

CODES = np.full(256, 1, dtype=np.uint8)
CODES[[0, 1, 2]] = 3, 2, 0
"""Count (255: missing) -> two bits."""

BITS = (np.arange(256)[:, None] >> np.array([0, 2, 4, 6])) & 3
COUNTS = np.array([2, 255, 1, 0], dtype=np.uint8)[BITS]
FLOATS = np.array([2.0, np.nan, 1.0, 0.0])[BITS]
"""Byte -> the four genotypes in it."""

TILE = 4096
"""Bytes of a variant that are turned at a time, so that a tile of a few hundred variants stays in the cache."""


class PackedRows(CountRows):
    """Genotypes (n x d) as float64 with NaN, read from slabs in a temporary file; :meth:`add` slabs, then :meth:`finish`."""

    def __init__(self, path: Path, n: int) -> None:
        RowSource.__init__(self, (n, 0), np.float64)
        self._path = path
        self._file = tempfile.TemporaryFile(dir=spool_folder())  # noqa: SIM115 - closed with this source
        self._closing = weakref.finalize(self, self._file.close)
        self._slabs: list[tuple[int, int]] = []  # where each begins in the file, and bytes of a row in it
        self._size = 0

    def check_room(self, n_bytes: int) -> None:
        """Refuse to begin what cannot end: so much is to be written."""
        folder = spool_folder()
        free = shutil.disk_usage(folder).free
        if free < n_bytes:
            raise FileError(
                f"{self._path} is read through a temporary file of {n_bytes / 1e9:.1f} GB, and {folder} has {free / 1e9:.1f} GB "
                "free; set the environment variable TMPDIR to a folder with more room, or give more --memory"
            )

    def add(self, packed: Bytes, variants: int) -> None:
        """Add a slab: variants (c x ceil(n / 4) bytes) as PLINK has them; all but the last have a multiple of four."""
        if self.shape[1] % 4:
            raise ValueError("only the last slab may have a number of variants that four does not divide")
        rows = turned(packed)[: self.shape[0]]
        self._slabs.append((self._size, rows.shape[1]))
        self._size += self._file.write(rows.tobytes())
        self.shape = (self.shape[0], self.shape[1] + variants)

    def finish(self) -> PackedRows:
        """All slabs are there: rows can be read."""
        self._file.flush()
        return self

    def read(self, first: int, last: int) -> Any:
        """The rows from number ``first`` to before ``last``, new in memory."""
        return self._unpacked(FLOATS, first, last)

    @property
    def counts(self) -> Any:
        """The bytes of all rows."""
        return self._unpacked(COUNTS, 0, self.shape[0])

    def _take(self, index: NDArray[np.int64]) -> Any:
        return RowSource._take(self, index)

    def _unpacked(self, values: NDArray[Any], first: int, last: int) -> Any:
        n, d = max(0, last - first), self.shape[1]
        packed, at = np.empty((n, sum(width for _, width in self._slabs)), dtype=np.uint8), 0
        for start, width in self._slabs:
            data = os.pread(self._file.fileno(), n * width, start + first * width)
            if len(data) < n * width:
                raise FileError(f"the temporary copy of {self._path} ends too early; is the disk full?")
            packed[:, at : at + width] = np.frombuffer(data, np.uint8).reshape(n, width)
            at += width
        return np.take(values, packed, axis=0, mode="clip").reshape(n, -1)[:, :d]

    def close(self) -> None:
        """Remove the temporary file."""
        self._closing()


def turned(packed: Bytes) -> Bytes:
    """Genotypes variant by variant (c x b bytes) as rows of people (4 b x ceil(c / 4) bytes).

    >>> turned(np.array([[0b11100100], [0b00000011]], dtype=np.uint8)).ravel().tolist()
    [92, 81, 82, 83]
    """
    c, b = packed.shape
    if c % 4:
        missing = np.full((4 - c % 4, b), 0b01010101, dtype=np.uint8)
        packed = np.concatenate([packed, missing])
    four = packed.reshape(-1, 4, b)
    rows = np.empty((b, 4, len(four)), dtype=np.uint8)
    for first in range(0, b, TILE):
        tile = four[:, :, first : first + TILE]
        for person in range(4):
            shifted = (tile >> (2 * person)) & 3
            found = shifted[:, 0] | shifted[:, 1] << 2 | shifted[:, 2] << 4 | shifted[:, 3] << 6
            rows[first : first + TILE, person] = found.T
    return rows.reshape(4 * b, -1)


def pack(counts: Bytes) -> Bytes:
    """Counts variant by variant (c x n) as PLINK's bytes (c x ceil(n / 4)).

    >>> pack(np.array([[2, 255, 1, 0, 0]], dtype=np.uint8)).tolist()
    [[228, 87]]
    """
    c, n = counts.shape
    codes = np.full((c, -(-n // 4) * 4), 1, dtype=np.uint8)
    codes[:, :n] = CODES[counts]
    four = codes.reshape(c, -1, 4)
    packed: Bytes = four[..., 0] | four[..., 1] << 2 | four[..., 2] << 4 | four[..., 3] << 6
    return packed


def gather(path: Path, slabs: Iterator[Bytes], n: int, d: int | None, memory: int | None) -> CountRows:
    """Counts that come variant by variant (some x n) as rows: bytes in memory, or packed on disk where there is a limit.

    ``d`` is how many variants come, if that is known.
    """
    if memory is not None and (d is None or n * d > memory):
        store = PackedRows(path, n)
        store.check_room(0 if d is None else n * d // 4)
        for slab in slabs:
            store.add(pack(slab), len(slab))
        return store.finish()
    if d is None:
        held = list(slabs)
        slabs, d = iter(held), sum(map(len, held))
    counts, at = np.empty((n, d), dtype=np.uint8), 0
    for slab in slabs:
        counts[:, at : at + len(slab)] = slab.T
        at += len(slab)
    return CountRows(counts)
