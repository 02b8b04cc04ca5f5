"""Versions of a site's rows, told apart row by row: two results over tables that differ by a row give that row away.

A model tells of how many rows it is and their mean; times each other these are sums.  The sums of two models, one of which has a
row more, differ by that row, to the last digit: whoever reads both has it, however the sums were made.  So a site refuses runs
over rows that differ from those of an earlier run by fewer than ``min_changed_rows`` (``policy.py``).

It keeps a hash of every row (8 bytes, keyed with what only the site knows) for each version of its rows of which anything left,
in a folder beside its ledger that is its owner's alone.  The order of rows does not matter, how often one stands there does; nor
does it matter whether they are sparse or in single precision, if the numbers are the same.  A row that was corrected counts as
one row, and so does one whose weight was changed.  Exact repeats are no other version.

What this does not find: the same people with other columns, in other units or rounded otherwise, which are other rows to it; and
more than two versions that together, though no two of them, differ by few rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FileError, PolicyError
from ..numerics.elsewhere import to_numpy
from ..numerics.sources import RowSource, as_rows, pieces
from ..numerics.weighted import Weighted
from ..storage import read_regular, replace_private, writing
from .fingerprint import PIECE_BYTES

Hashes = np.ndarray[Any, np.dtype[np.uint64]]

ROW_BYTES, VERSION_BYTES = 8, 16

FEW_FEATURES = 4096
"""Rows of so many features are read as they are; wider ones, which may be sparse, by their entries that are not zero."""

MOST_BYTES = 1 << 32
"""Of one version's hashes: half a thousand million rows."""


def row_hashes(X: Any, secret: bytes) -> Hashes:
    """A keyed hash of every row of X (n x d), dense or sparse, sorted.

    >>> X = np.arange(6.0).reshape(3, 2)
    >>> a, b = row_hashes(X, b"secret"), row_hashes(X[::-1].astype(np.float32), b"secret")
    >>> bool((a == b).all()), bool((a == row_hashes(X, b"other")).any()), len(a)
    (True, False, 3)
    """
    d = int(X.shape[1])
    key, size = secret[: hashlib.blake2b.MAX_KEY_SIZE], ROW_BYTES
    found = [hashlib.blake2b(row, key=key, digest_size=size).digest() for row in _rows(X, d)]
    return np.sort(np.frombuffer(b"".join(found), dtype="<u8"))


def version_of(hashes: Hashes, secret: bytes) -> str:
    """What a version of the rows is called, whatever their order.

    >>> len(version_of(row_hashes(np.eye(3), b""), b""))
    32
    """
    return hashlib.blake2b(hashes.tobytes(), key=secret[: hashlib.blake2b.MAX_KEY_SIZE], digest_size=VERSION_BYTES).hexdigest()


def changed_rows(a: Hashes, b: Hashes) -> int:
    """By how many rows two versions differ: those that one has more, of the version that has more of them.

    >>> one, other = (np.array(rows, dtype=np.uint64) for rows in ([1, 2, 2, 3], [2, 3, 3, 4, 4]))
    >>> changed_rows(one, one), changed_rows(one, other), changed_rows(other, one)
    (0, 3, 3)
    """
    values, counts = np.unique(np.concatenate([a, b]), return_counts=True)
    mine = np.zeros(len(values), dtype=np.int64)
    known, times = np.unique(a, return_counts=True)
    mine[np.searchsorted(values, known)] = times
    more = 2 * mine - counts  # mine less the other's
    return int(max(more[more > 0].sum(), -more[more < 0].sum()))


class Versions:
    """Hashes of the rows of which anything left, one file for each version, in a folder of the site's owner alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __contains__(self, version: str) -> bool:
        return (self._folder / version).exists()

    def check(self, version: str, hashes: Hashes, least: int) -> None:
        """Refuse rows that differ from an earlier version by fewer than ``least``; the same rows may be seen again."""
        if least <= 1 or version in self:
            return
        for known in self._kept():
            apart = changed_rows(hashes, known)
            if 0 < apart < least:
                raise PolicyError(
                    f"rule min_changed_rows = {least}: this site's rows differ by fewer from those of an earlier run, and both "
                    "results together would show them; take part with the rows of then, or wait until more have changed"
                )

    def keep(self, version: str, hashes: Hashes) -> None:
        """Write down a version, before anything of it leaves."""
        if version in self:
            return
        with writing(f"the hashes of this site's rows {self._folder}", "nothing was sent"):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            replace_private(self._folder / version, [hashes.tobytes()])

    def _kept(self) -> Iterator[Hashes]:
        if not self._folder.is_dir():
            return
        for path in sorted(self._folder.iterdir()):
            if path.name.startswith("."):  # one that was not finished
                continue
            told = read_regular(path, MOST_BYTES)
            if len(told) % ROW_BYTES:
                raise FileError(f"{path} must hold {ROW_BYTES} bytes a row, it holds {len(told)}; restore it, or remove it")
            yield np.frombuffer(told, dtype="<u8")


def _rows(X: Any, d: int) -> Iterator[bytes]:
    """The bytes of one row after the other, the same for the same numbers; its weight, if not 1, is at their end."""
    if isinstance(X, Weighted):
        for row, weight in zip(_rows(X.rows, d), X.weights, strict=True):
            yield row if weight == 1 else row + weight.tobytes()
        return
    if isinstance(X := as_rows(X), RowSource):
        for _, piece in pieces(X):
            yield from _rows(piece, d)
        return
    sparse = hasattr(X, "tocsr")
    X = X.tocsr() if sparse else X
    n, step = int(X.shape[0]), max(1, PIECE_BYTES // (8 * max(1, d)))
    for first in range(0, n, step):
        piece = X[first : min(first + step, n)] if sparse else X[first : min(first + step, n), :]
        block = piece if sparse and d > FEW_FEATURES else to_numpy(piece.toarray() if sparse else piece)
        if d > FEW_FEATURES:
            yield from _entries(block)
        else:
            block = np.ascontiguousarray(block, dtype=np.float64) + 0.0  # one zero, whatever its sign
            yield from (row.tobytes() for row in block)


def _entries(block: Any) -> Iterator[bytes]:
    """Columns and values of what is not zero, for each row of a dense or sparse block."""
    if hasattr(block, "tocsr"):
        block = block.copy()
        block.sum_duplicates()
        block.eliminate_zeros()
        columns, values, ends = block.indices, block.data, block.indptr
    else:
        rows, columns = np.nonzero(block)
        values, ends = block[rows, columns], np.searchsorted(rows, np.arange(len(block) + 1))
    columns, values = columns.astype(np.int64), values.astype(np.float64)
    for start, end in pairwise(ends):
        yield columns[start:end].tobytes() + values[start:end].tobytes()
