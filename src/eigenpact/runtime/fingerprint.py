"""A digest of a site's rows, so that a run with a journal is never gone on with, or replayed, over other rows.

The coordinator makes a random key for every journal and asks each site, before the first step and again in every session that
resumes, for a keyed BLAKE2b digest (16 bytes) of its rows as it holds them.  Site name and key go into it, so equal tables at two
sites, or in two runs, cannot be told from their digests.  But whoever has the key - the coordinator, or a reader of its journal -
and can guess a site's *whole* table can check that guess.  So the digest is asked for only when there is a journal, and a site's
policy can refuse it (``allow_digest``).

The request stands beside the numbered steps: the site's position and what it keeps do not change, and no round is counted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..numerics.elsewhere import to_numpy
from ..numerics.sources import RowSource, as_rows, pieces
from ..numerics.weighted import rows_and_weights
from .local import local

if TYPE_CHECKING:
    from .site import Site

DIGEST = "digest"
"""The kind of such a request, as plans and the site's ledger name it."""

ASIDE = -1
"""Its step: none.  Not 0, the step of greetings, whose late answers must not be taken for a digest."""

KEY_BYTES, DIGEST_BYTES = 32, 16
PIECE_BYTES = 1 << 22
"""Rows are read in blocks of about this size; they are never copied whole."""


@local(takes={"key": str(KEY_BYTES)}, sends={"digest": str(DIGEST_BYTES)}, means={"key": "bits"}, setup=True, holes=True)
def rows_digest(site: Site, key: Any) -> Any:
    """Keyed digest of the site's rows: dtype, shape, values in C order (CSR parts if sparse), site name and column names.

    A site with a secret mixes it into the key: else who knows all rows but one could try what that one is.
    """
    mixed = hashlib.blake2b(key.tobytes(), key=site.secret, digest_size=KEY_BYTES).digest() if site.secret else key.tobytes()
    return np.frombuffer(digest_of(site.X, mixed, site.name, site.features), dtype=np.uint8)


def digest_of(X: Any, key: bytes, name: str = "", features: tuple[str, ...] = ()) -> bytes:
    """The digest of rows X (n x d): a dense array of any library, on disk or on a GPU, or a scipy.sparse matrix.

    Memory order, the library, and how whole numbers and a sparse matrix are stored do not matter; precision, order of the rows,
    the sign of a zero, and whether the rows are sparse do, and their weights, where they have any.

    >>> X, key = np.arange(6.0).reshape(3, 2), bytes(32)
    >>> digest_of(X, key) == digest_of(np.asfortranarray(X), key), digest_of(X, key) == digest_of(X[::-1], key)
    (True, False)
    >>> digest_of(X, key, "A") == digest_of(X, key, "B")
    False
    """
    X, weights = rows_and_weights(X)
    X = as_rows(X)
    sparse = X.sparse if isinstance(X, RowSource) else hasattr(X, "tocsr")
    parts = [hashlib.blake2b(key=key, digest_size=32) for _ in range(3 if sparse else 1)]
    dtype = ""
    for arrays in _sparse_pieces(X) if sparse else _dense_pieces(X):
        dtype = arrays[0].dtype.str
        for part, array in zip(parts, arrays, strict=True):
            part.update(array.reshape(-1).view(np.uint8).data)
    facts = [name, "sparse" if sparse else "dense", dtype, *(str(int(n)) for n in X.shape), *features]
    whole = hashlib.blake2b(key=key, digest_size=DIGEST_BYTES)
    for text in (fact.encode() for fact in facts):
        whole.update(len(text).to_bytes(8, "little") + text)
    for part in parts:
        whole.update(part.digest())
    if weights is not None:
        whole.update(np.ascontiguousarray(weights, dtype="<f8").data)
    return whole.digest()


def _dense_pieces(X: Any) -> Iterator[tuple[np.ndarray[Any, Any]]]:
    """A few rows after the other, in C order."""
    if isinstance(X, RowSource):
        yield from ((piece,) for _, piece in pieces(X))
        return
    n, d = (int(length) for length in X.shape)
    step = max(1, PIECE_BYTES // (8 * max(1, d)))
    for first in range(0, max(1, n), step):  # at least one, which tells the dtype
        some = to_numpy(X[first : min(first + step, n), :])
        yield (np.ascontiguousarray(some, dtype=some.dtype if some.dtype.kind == "f" else np.float64),)


def _sparse_pieces(X: Any) -> Iterator[tuple[np.ndarray[Any, Any], ...]]:
    """Values, columns and row lengths of some rows after the other, columns sorted and without duplicates."""
    if isinstance(X, RowSource):
        for _, piece in pieces(X):
            yield from _sparse_pieces(piece)
        return
    X = X.tocsr()  # itself if it is one
    n = int(X.shape[0])
    canonical = bool(X.has_canonical_format)
    step = max(1, PIECE_BYTES // (16 * max(1, int(X.nnz) // max(1, n))))
    for first in range(0, max(1, n), step):
        rows = X[first : min(first + step, n)]
        if not canonical:
            rows.sum_duplicates()  # of the copy
        yield rows.data, rows.indices.astype(np.int64, copy=False), np.diff(rows.indptr).astype(np.int64, copy=False)
