"""A site's rows on a GPU: sums, products and scatter where they lie, with what crosses to and from numpy kept small.

With the site's own mean c + l (``site_rows.py``) rounded to u, what that left, e = (c - u) + l, and W = X - 1 u^T, the mean of
the columns of W is e.  So rows about an agreed centre m are W + 1 t^T, t = u - m, and with A = D^-1 Z

    Y^T Y Z = D^-1 [ W^T (W A) + n t ((t + e)^T A)^T + n e (t^T A)^T ].

W^T (W A) is made in two passes over the rows by kernels of our own (``device_kernels.py``), which read rows of single precision
at four bytes an entry and give products as good as those of rows in double precision.  A column that is constant is zero in W:
its mean c + l is the constant itself.  No agreed number meets a single entry: A meets sums over columns of W, t and e act on
sums over rows.

In single precision, where that is asked for (``single.py``), u is what float32 has of the mean, and with l = c - u + l

    Y^T Y Z = D^-1 [ W^T (W A) + n (t + l) ((t + l)^T A)^T - n l (l^T A)^T ].

What depends on the rows alone (u, e, t, D and their copies on the GPU) is made once for a site.  The block goes to the GPU, and
the product comes back, once each, through memory that the GPU reads and writes itself (``device_work.py``).  Every site has a
stream of its own, so that several sites on one GPU, which are asked in threads, share it.

Kernels are for rows that torch can see on a GPU (torch, cupy) where Triton is; all others take the general way in ``rows.py``.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import threading
import weakref
from collections.abc import Iterable
from contextlib import nullcontext
from functools import cache, partial
from importlib.metadata import version
from typing import Any

import numpy as np

from .device_work import WIDEST, OnGpu, Tile, Work, parts_of, together
from .linalg import Array
from .on_device import OnDevice
from .parts import careful_totals

STRIP, CHUNK_BYTES = 512, 1 << 27
"""Columns of the scatter's triangle that are made together, and bytes of centred rows at a time."""

MOMENTS = Tile(8, 128, 4, 3)
"""Of the kernel for sums."""


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
    width = 4 if squares else 2
    rows, parts = parts_of(n, d, MOMENTS)
    with _on(there):
        u = torch.zeros(d, **options) if centre is None else torch.tensor(centre, **options)
        S, M = torch.empty((parts, width, d), **options), torch.empty((width // 2, d), **options)
        vec, blocks = together(there), -(-d // MOMENTS.features)
        shape = n, d // vec, there.stride(0) // vec, rows
        kernels.moments[blocks, parts](there, u, S, *shape, VEC=vec, SQUARES=squares, **MOMENTS.options)
        kernels.add_pairs[(blocks,)](S, M, d, parts, W=width, BD=MOMENTS.features)
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

    ``lends_itself`` is for who looks whether the rows lend themselves to single precision: None until somebody did.
    """

    def __init__(self, X: Any, mean: Array | None, scale: Array | None, own: Array, n: int | None = None) -> None:
        torch = self._torch = importlib.import_module("torch")
        self.n, self.d = int(X.shape[0]) if n is None else n, int(X.shape[1])
        self.agreed = mean, scale, own
        u: Array = own[0] + own[1]
        e = (own[0] - u) + own[1]
        t = u if mean is None else u - mean
        self._centre, self._left, self._away, self._scale = u, e, t, np.ones(self.d) if scale is None else scale
        self._stream = torch.cuda.Stream(X.device) if X.is_cuda else None
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(X.device))  # which may still be making the rows
        self.options: dict[str, Any] = {"dtype": torch.float64, "device": X.device}
        with self._here():
            self._double = self._there(u, np.stack([t + e, t]), np.stack([self.n * t, self.n * e]))
        self.lends_itself: bool | None = None
        self._single: OnGpu | None = None
        self._work: dict[bool, Work] = {}
        self._lock = threading.Lock()  # of its memory

    def is_for(self, mean: Array | None, scale: Array | None, own: Array) -> bool:
        """Whether this was made for the same centre, scale and mean, the very arrays."""
        return all(a is b for a, b in zip(self.agreed, (mean, scale, own), strict=True))

    def _there(self, u: Any, acting: Array, after: Array) -> OnGpu:
        there = [self._torch.tensor(a, **self.options) for a in (acting / self._scale, after, self._scale)]
        return OnGpu(self._torch.tensor(u, device=self.options["device"]), *there)

    def scatter_action(self, X: Any, Z: Array, *, single: bool = False) -> Array:
        """The product Y^T (Y Z) (d x k) with a block Z (d x k), in double precision or, of such rows, in ``single``."""
        k = Z.shape[1]
        if not 0 < k <= WIDEST:
            parts = [self.scatter_action(X, Z[:, i : i + WIDEST], single=single) for i in range(0, k, WIDEST)]
            return np.ascontiguousarray(np.concatenate([np.zeros((self.d, 0)), *parts], axis=1))
        with self._lock:
            with self._here():
                work = self._started(X, Z, single=single)
            self._wait()
            return work.product.copy()

    def _started(self, X: Any, Z: Array, *, single: bool) -> Work:
        """The product, which the GPU makes; the next thing to do is to wait for it."""
        work = self._work.get(single)
        if work is None or work.key != (Z.shape[1], X.data_ptr(), X.stride(0)):
            work = self._work[single] = Work(self._of_single() if single else self._double, X, Z.shape[1], single=single)
        np.copyto(work.block, Z)
        work.run(X)
        return work

    def _of_single(self) -> OnGpu:
        """What products in single precision need."""
        if self._single is None:
            u = self._centre.astype(np.float32)
            left = (self._centre - u) + self._left
            away = self._away + self._left
            self._single = self._there(u, np.stack([away, left]), np.stack([self.n * away, -self.n * left]))
        return self._single

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
                    torch.sub(x, self._double.u, out=w)
                    for j in range(0, d, STRIP):
                        S[j : j + STRIP, j:].addmm_(w[:, j : j + STRIP].T, w[:, j:])
                self._wait()  # before the piece is overwritten
            nt, ne = self._double.after
            for one, other in ((nt, nt), (nt, ne), (ne, nt)):
                S.addr_(one, other / n)
            S /= self._double.diagonal
            S /= self._double.diagonal[:, None]
            upper = torch.triu_indices(d, d, device=S.device)
            return self._to_numpy(S[upper[0], upper[1]])

    def _wait(self) -> None:
        """Until the GPU is done."""
        if self._stream is not None:
            self._stream.synchronize()

    def _to_numpy(self, there: Any) -> Array:
        """A copy in numpy, in memory that the GPU writes itself and that torch uses again."""
        here = there
        if self._stream is not None:
            here = self._torch.empty(there.shape, dtype=there.dtype, pin_memory=True)
            here.copy_(there, non_blocking=True)
            self._wait()
        found: Array = here.numpy()
        return found

    def _here(self) -> Any:
        """The site's stream, and its GPU, as a context."""
        return nullcontext() if self._stream is None else self._torch.cuda.stream(self._stream)


_prepared: dict[int, tuple[weakref.ref[Any], DeviceRows]] = {}
_preparing = threading.Lock()


def device_rows(X: Any, mean: Array | None, scale: Array | None, own: Array) -> tuple[Any, DeviceRows] | None:
    """The rows as torch's, and what :class:`DeviceRows` keeps for them as long as they are there; None where kernels cannot
    read them."""
    known = _prepared.get(id(X))
    if known is not None and known[0]() is X and known[1].is_for(mean, scale, own):
        return (X if hasattr(X, "data_ptr") else on_gpu(X)), known[1]  # cupy's is seen by torch anew
    there = on_gpu(X)
    if there is None:
        return None
    with _preparing:
        known = _prepared.get(id(X))
        if known is not None and known[1].is_for(mean, scale, own):
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
