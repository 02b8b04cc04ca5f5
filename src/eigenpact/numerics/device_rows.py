"""A site's rows on a GPU: sums, products and scatter where they lie, with what crosses to and from numpy kept small.

With the site's own mean c + l (``site_rows.py``) rounded to u, what that left, e = (c - u) + l, and W = X - 1 u^T, the mean of
the columns of W is e.  So rows about an agreed centre m are W + 1 t^T, t = u - m, and with A = D^-1 Z

    Y^T Y Z = D^-1 [ W^T (W A) + n t ((t + e)^T A)^T + n e (t^T A)^T ].

W^T (W A) is made in two passes over the rows by kernels of our own (``device_kernels.py``), which read rows of single precision
at four bytes an entry and give products as good as those of rows in double precision.  A column that is constant is zero in W:
its mean c + l is the constant itself.  No agreed number meets a single entry: A meets sums over columns of W, t and e act on
sums over rows.

What depends on the rows alone (u, e, t, D and their copies on the GPU) is made once for a site.  The block goes to the GPU, and
the product comes back, once each, through memory that the GPU reads and writes itself.  Every site has a stream of its own, so
that several sites on one GPU, which are asked in threads, share it.

Kernels are for rows that torch can see on a GPU (torch, cupy) where Triton is; all others take the general way in ``rows.py``.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import math
import os
import threading
import weakref
from collections.abc import Iterable
from contextlib import nullcontext
from functools import cache, partial
from importlib.metadata import version
from typing import Any

import numpy as np

from .linalg import Array
from .on_device import OnDevice
from .parts import careful_totals

WIDEST = 128
"""Columns of a block that go through the rows together."""

PROGRAMS = 1056
"""About how many parts a pass over the rows has: some for every multiprocessor, as many whichever GPU it is, as bits are."""

STRIP, CHUNK_BYTES = 512, 1 << 27
"""Columns of the scatter's triangle that are made together, and bytes of centred rows at a time."""

KEPT_BYTES, ONE_THREAD = 1 << 28, 1 << 18
"""Memory on the GPU that a site keeps for its next product, at most; multiplications up to which BLAS does not use threads."""

FINISH = 8
"""Features of the product that are added up together."""

MOMENTS = (8, 128, 4, 3)
"""Rows and features of a tile, warps and stages of the kernel for sums."""


@cache
def _has_kernels() -> bool:
    """Whether torch is there and a Triton that knows the matrix units for double precision."""
    if any(importlib.util.find_spec(name) is None for name in ("torch", "triton")):
        return False
    return tuple(map(int, version("triton").split(".")[:2])) >= (3, 6)


@cache
def _runs_kernels(device: Any) -> bool:
    """Whether a GPU has these units, and memory beside them for our tiles: NVIDIA's for data centres (A100, H100, H200, B200)."""
    torch = importlib.import_module("torch")
    if device.type != "cuda" or torch.version.hip is not None:
        return os.environ.get("TRITON_INTERPRET") == "1"  # in which tests run kernels without a GPU
    return torch.cuda.get_device_capability(device) in ((8, 0), (9, 0), (10, 0))


def on_gpu(X: Any) -> Any:
    """The rows as an array of torch that the kernels can read, not copied; None where they cannot.

    >>> on_gpu(np.ones((2, 2))) is None
    True
    """
    library = type(X).__module__.partition(".")[0]
    if library not in ("torch", "cupy") or not _has_kernels():
        return None
    torch = importlib.import_module("torch")
    if library == "cupy":
        X = torch.from_dlpack(X)
    plain = X.ndim == 2 and X.shape[0] > 0 and X.shape[1] > 0 and X.stride(1) == 1 and X.stride(0) >= X.shape[1]
    small = X.shape[0] < 1 << 30 and X.shape[1] < 1 << 23
    return X if plain and small and X.dtype in (torch.float32, torch.float64) and _runs_kernels(X.device) else None


def widths(k: int) -> tuple[int, int, int]:
    """At most three powers of two, 8 or more (0 for none), that add up to k columns or few more.

    >>> widths(20), widths(104), widths(120), widths(1)
    ((16, 8, 0), (64, 32, 8), (128, 0, 0), (8, 0, 0))
    """
    total = next(total for total in range(-(-k // 8) * 8, 2 * WIDEST, 8) if total.bit_count() <= 3)
    found = [1 << bit for bit in range(7, 2, -1) if total >> bit & 1]
    first, second, third, *_ = [*found, 0, 0]
    return first, second, third


def tiles(k: int, size: int) -> tuple[tuple[int, int, int, int], tuple[int, int, int, int]]:
    """Rows and features of a tile, warps and stages, of both kernels of a product with k columns; entries have ``size`` bytes.

    Found by trying, on an H200: few columns wait for memory, many for the matrix units, and fill the registers.
    """
    if k <= 48:
        return (64, 64, 4, 3), (256 // size, 64, 2, 3)
    return (64, 32, 4 if k <= 112 else 8, 4), (16, 64, 4, 3)


def sums_there(X: Any) -> bool:
    """Whether :func:`column_sums` and :func:`column_moments` can be made of these rows."""
    return isinstance(X, OnDevice) or on_gpu(X) is not None


def column_sums(X: Any) -> Array | None:
    """Sums of the columns (d,) of rows on a GPU, to the last digit; None where kernels cannot read them."""
    found = _all_moments(X, None, squares=False)
    return None if found is None else found[0]


def column_moments(X: Any, centre: Array | None) -> tuple[Array, Array] | None:
    """Sums and sums of squares of the columns (d,) of X - 1 centre^T; None where kernels cannot read the rows."""
    found = _all_moments(X, centre, squares=True)
    return None if found is None else (found[0], found[1])


def _all_moments(X: Any, centre: Array | None, *, squares: bool) -> Array | None:
    """Of rows on a GPU, or of all that pass over it."""
    if not isinstance(X, OnDevice):
        return _moments(X, centre, squares=squares)

    def of_piece(piece: Any) -> tuple[Array]:
        found = _moments(piece, centre, squares=squares)
        return (_plain_moments(piece, centre) if found is None else found,)

    return careful_totals(map(of_piece, X.there()))[0]


def _plain_moments(X: Any, centre: Array | None) -> Array:
    """Sums and sums of squares of the columns (2 x d) of X - 1 centre^T, without kernels."""
    torch, step = importlib.import_module("torch"), max(1, CHUNK_BYTES // (8 * X.shape[1]))
    u = 0.0 if centre is None else torch.tensor(centre, dtype=torch.float64, device=X.device)
    sums: Any = 0.0
    for part in torch.split(X, step):
        w = part.to(torch.float64) - u
        sums = sums + torch.stack([w.sum(0), (w * w).sum(0)])
    found: Array = sums.cpu().numpy()
    return found


def _moments(X: Any, centre: Array | None, *, squares: bool) -> Array | None:
    there = on_gpu(X)
    if there is None:
        return None
    torch, kernels = importlib.import_module("torch"), _kernels()
    n, d = there.shape
    options: dict[str, Any] = {"dtype": torch.float64, "device": there.device}
    bm, bd, warps, stages = MOMENTS
    width = 4 if squares else 2
    rows, parts = _parts(n, d, bm, bd)
    with _on(there):
        u = torch.zeros(d, **options) if centre is None else torch.tensor(centre, **options)
        S, M = torch.empty((parts, width, d), **options), torch.empty((width // 2, d), **options)
        vec = _together(there)
        grid = (-(-d // bd), parts)
        shape = n, d // vec, there.stride(0) // vec, rows
        kernels.moments[grid](there, u, S, *shape, VEC=vec, BM=bm, BD=bd, SQUARES=squares, num_warps=warps, num_stages=stages)
        kernels.add_pairs[(-(-d // bd),)](S, M, d, parts, W=width, BD=bd)
        found: Array = M.cpu().numpy()
    return found


class DeviceRows:
    """Products of one site's rows on a GPU, and what they need that depends on the rows alone.  It does not keep the rows.

    Parameters
    ----------
    X : (n, d) array of torch
    mean, scale : (d,) arrays or None
        As agreed.
    own : (2, d) array
        The mean c of the rows as the site found it, and what rounding left of it.
    n : int, optional
        How many rows there are, if X is a piece of them.
    """

    def __init__(self, X: Any, mean: Array | None, scale: Array | None, own: Array, n: int | None = None) -> None:
        torch = self._torch = importlib.import_module("torch")
        self.n, self.d = int(X.shape[0]) if n is None else n, int(X.shape[1])
        self.agreed = mean, scale, own
        u: Array = own[0] + own[1]
        e = (own[0] - u) + own[1]
        t = u if mean is None else u - mean
        self._scale = None if scale is None else scale[:, None]
        self._acting = np.stack([t + e, t])  # on the block
        self._stream = torch.cuda.Stream(X.device) if X.is_cuda else None
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(X.device))  # which may still be making the rows
        self.options: dict[str, Any] = {"dtype": torch.float64, "device": X.device}
        with self._here():
            self.u = torch.tensor(u, **self.options)
            self.acting = torch.tensor(self._acting, **self.options)
            self.after = torch.tensor(np.stack([self.n * t, self.n * e]), **self.options)
            self.diagonal = torch.tensor(np.ones(self.d) if scale is None else scale, **self.options)
        self._work: Work | None = None
        self._lock = threading.Lock()  # of its memory

    def scatter_action(self, X: Any, Z: Array) -> Array:
        """The product Y^T (Y Z) (d x k) with a block Z (d x k)."""
        k = Z.shape[1]
        if not 0 < k <= WIDEST:
            parts = [self.scatter_action(X, Z[:, i : i + WIDEST]) for i in range(0, k, WIDEST)]
            return np.ascontiguousarray(np.concatenate([np.zeros((self.d, 0)), *parts], axis=1))
        with self._lock, self._here():
            return self._product(X, Z)

    def _product(self, X: Any, Z: Array) -> Array:
        work = self._work
        if work is None or work.key != (Z.shape[1], X.data_ptr()):
            work = Work(self, X, Z.shape[1])
        A = Z if self._scale is None else Z / self._scale
        np.copyto(work.block, A)
        if work.recorded:
            np.copyto(work.acted, self._acting @ A)
        work.run(X)
        self._work = work
        return self._to_numpy(work.G)

    def scatter_triangle(self, pieces: Iterable[Any]) -> Array:
        """The upper triangle of Y^T Y, row by row (d (d + 1) / 2), of all rows, which come in ``pieces``.

        Centred rows are made a chunk at a time; of their product no more than the triangle, in strips.
        """
        torch, n, d = self._torch, self.n, self.d
        with self._lock, self._here():
            S = torch.zeros((d, d), **self.options)
            step = max(1, CHUNK_BYTES // (8 * d))
            W = torch.empty((min(step, n), d), **self.options)
            for piece in pieces:
                for x in torch.split(piece, step):
                    w = W[: len(x)]
                    torch.sub(x, self.u, out=w)
                    for j in range(0, d, STRIP):
                        S[j : j + STRIP, j:].addmm_(w[:, j : j + STRIP].T, w[:, j:])
                if self._stream is not None:
                    self._stream.synchronize()  # before the piece is overwritten
            nt, ne = self.after
            for one, other in ((nt, nt), (nt, ne), (ne, nt)):
                S.addr_(one, other / n)
            S /= self.diagonal
            S /= self.diagonal[:, None]
            upper = torch.triu_indices(d, d, device=S.device)
            return self._to_numpy(S[upper[0], upper[1]])

    def _to_numpy(self, there: Any) -> Array:
        """A copy in numpy, in memory that the GPU writes itself and that torch uses again."""
        here = there
        if self._stream is not None:
            here = self._torch.empty(there.shape, dtype=there.dtype, pin_memory=True)
            here.copy_(there, non_blocking=True)
            self._stream.synchronize()
        found: Array = here.numpy()
        return found

    def _here(self) -> Any:
        """The site's stream, and its GPU, as a context."""
        return nullcontext() if self._stream is None else self._torch.cuda.stream(self._stream)


class Work:
    """What products of rows X with blocks of k columns need on the GPU: memory, and the kernels with it.  It does not keep X.

    ``block`` (d x k) and ``acted`` (2 x k) are numpy's views of memory that the GPU reads.  Where little memory is needed, all of
    it is kept, and the kernels are ``recorded``: they start as one, for starting them one by one takes longer than they do.
    """

    def __init__(self, rows: DeviceRows, X: Any, k: int) -> None:
        torch, n, d, K = importlib.import_module("torch"), rows.n, rows.d, widths(k)
        self.key = k, X.data_ptr()
        self._torch, self._shape, self._widths, self._vec = torch, (n, d, k), K, _together(X)
        self._of_rows = rows.u, rows.after, rows.diagonal, rows.acting
        self._scores, self._back = tiles(k, X.element_size())
        self._part, self._parts = _parts(n, d, *self._back[:2])
        self._options = rows.options
        self._sent = torch.zeros((d + 2, sum(K)), dtype=torch.float64, pin_memory=X.is_cuda)
        here: Array = self._sent.numpy()
        self.block, self.acted = here[:d, :k], here[d:, :k]
        self._A, self.G = torch.empty((d + 2, sum(K)), **self._options), torch.empty((d, k), **self._options)
        self._large = (-(-n // self._scores[0]) * self._scores[0], sum(K)), (self._parts, k, d)
        self.recorded = X.is_cuda and 8 * sum(map(math.prod, self._large)) <= KEPT_BYTES and 2 * d * k <= ONE_THREAD
        self._kept = self._scores_and_parts() if self.recorded else None
        self._graph = self._record(X) if self.recorded else None

    def _scores_and_parts(self) -> list[Any]:
        return [self._torch.empty(size, **self._options) for size in self._large]

    def run(self, X: Any) -> None:
        """Multiply the block; the product is in ``G`` when the GPU is done."""
        d = self._shape[1]
        self._A.copy_(self._sent, non_blocking=True)
        if self._graph is not None:
            self._graph.replay()
            return
        self._torch.mm(self._of_rows[3], self._A[:d], out=self._A[d:])
        self._launch(X)

    def _launch(self, X: Any) -> None:
        kernels, (n, d, k), K, (u, after, diagonal, _) = _kernels(), self._shape, self._widths, self._of_rows
        T, P = self._kept or self._scores_and_parts()
        shape = n, d // self._vec, X.stride(0) // self._vec
        tile: dict[str, Any] = {"VEC": self._vec, "K0": K[0], "K1": K[1], "K2": K[2]}
        bm, bd, warps, stages = self._scores
        options = tile | {"BM": bm, "BD": bd, "num_warps": warps, "num_stages": stages}
        kernels.scores[(-(-n // bm),)](X, self._A, u, T, *shape, **options)
        bm, bd, warps, stages = self._back
        options = tile | {"BM": bm, "BD": bd, "num_warps": warps, "num_stages": stages}
        kernels.back[(-(-d // bd), self._parts)](X, T, u, P, *shape, k, self._part, **options)
        wide = 1 << (k - 1).bit_length()
        sums = P, after, self._A[d:], diagonal, self.G
        kernels.finish[(-(-d // FINISH),)](*sums, d, k, self._parts, K=sum(K), KP=wide, BD=FINISH)

    def _record(self, X: Any) -> Any:
        """The kernels as one graph.  Memory of torch's that is freed meanwhile would end the process, so garbage waits; other
        threads may do as they like, but not record."""
        self._launch(X)  # which compiles them
        graph = self._torch.cuda.CUDAGraph()
        with _recording, self._torch.cuda.stream(self._torch.cuda.Stream(X.device)):
            collects = gc.isenabled()
            gc.disable()
            try:
                graph.capture_begin(capture_error_mode="thread_local")
                self._launch(X)
                graph.capture_end()
            finally:
                if collects:
                    gc.enable()
        return graph


_recording = threading.Lock()
_prepared: dict[int, tuple[weakref.ref[Any], DeviceRows]] = {}
_preparing = threading.Lock()


def device_rows(X: Any, mean: Array | None, scale: Array | None, own: Array) -> tuple[Any, DeviceRows] | None:
    """The rows as torch's, and what :class:`DeviceRows` keeps for them as long as they are there; None where kernels cannot
    read them."""
    there = on_gpu(X)
    if there is None:
        return None
    with _preparing:
        known = _prepared.get(id(X))
        if known is not None and all(a is b for a, b in zip(known[1].agreed, (mean, scale, own), strict=True)):
            return there, known[1]
        made = DeviceRows(there, mean, scale, own)
        _prepared[id(X)] = weakref.ref(X, partial(_forget, id(X))), made
    return there, made


def _forget(key: int, _: Any) -> None:
    _prepared.pop(key, None)


def _kernels() -> Any:
    return importlib.import_module("eigenpact.numerics.device_kernels")


def _on(X: Any) -> Any:
    """A context in which kernels run on the GPU of X."""
    return importlib.import_module("torch").cuda.device(X.device) if X.is_cuda else nullcontext()


def _together(X: Any) -> int:
    """How many neighbouring entries are read at once: as many as 16 bytes hold, if rows begin where they may."""
    most = 1 if X.data_ptr() % 16 else 16 // int(X.element_size())
    return next(vec for vec in (most, 2, 1) if vec <= most and X.shape[1] % vec == 0 == X.stride(0) % vec)


def _parts(n: int, d: int, bm: int, bd: int) -> tuple[int, int]:
    """Rows in a part, and parts: they depend on the shape alone."""
    parts = max(1, min(PROGRAMS // -(-d // bd), -(-n // bm)))
    rows = -(-n // (parts * bm)) * bm
    return rows, -(-n // rows)
