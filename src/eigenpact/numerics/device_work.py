"""What a product of rows on a GPU takes: tiles, memory there, and the kernels one after the other, recorded where that pays.

A product starts as one recorded graph: the block is padded or split, multiplied, and the parts are added up.  Started one by one
the kernels took .1 ms longer, a quarter of a product of 50000 x 2000 rows.  The first kernel reads the block from memory here,
and the last writes the product there: copies that wait for kernels, and kernels that wait for copies, took as much again.
"""

from __future__ import annotations

import gc
import importlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from .linalg import Array

WIDEST = 128
"""Columns of a block that go through the rows together."""

PROGRAMS = 1056
"""About how many parts a pass over the rows has: some for every multiprocessor, as many whichever GPU it is, as bits are."""

KEPT_BYTES = 1 << 28
"""Memory on the GPU that a site keeps for its next product, at most."""

FINISH, PADDED, LEAST = 8, 32, 16
"""Features that are added up together, and that are padded or split together; columns that the matrix units take at least."""

ACTED = 64
"""Parts, at most, of what acts on the block."""


@dataclass(frozen=True)
class Tile:
    """Rows and features of a tile, warps that work on it, and how many are on their way."""

    rows: int
    features: int
    warps: int
    stages: int

    @property
    def options(self) -> dict[str, int]:
        """As kernels take them."""
        return {"BM": self.rows, "BD": self.features, "num_warps": self.warps, "num_stages": self.stages}


def widths(k: int) -> tuple[int, int, int]:
    """At most three powers of two, 8 or more (0 for none), that add up to k columns or few more.

    >>> widths(20), widths(104), widths(120), widths(1)
    ((16, 8, 0), (64, 32, 8), (128, 0, 0), (8, 0, 0))
    """
    total = next(total for total in range(-(-k // 8) * 8, 2 * WIDEST, 8) if total.bit_count() <= 3)
    found = [1 << bit for bit in range(7, 2, -1) if total >> bit & 1]
    first, second, third, *_ = [*found, 0, 0]
    return first, second, third


def power_of_two(k: int) -> int:
    """The least power of two that is not below k.

    >>> power_of_two(20), power_of_two(1)
    (32, 1)
    """
    return 1 << (k - 1).bit_length()


def tiles(k: int, size: int, *, single: bool = False) -> tuple[Tile, Tile]:
    """Tiles of both kernels of a product with k columns; entries have ``size`` bytes.

    Found by trying, on an H200: few columns wait for memory, many for the matrix units, and fill the registers.
    """
    if single:
        return (Tile(64, 32, 4, 4), Tile(32, 64, 4, 4)) if k <= 48 else (Tile(128, 32, 8, 3), Tile(32, 64, 4, 3))
    if k <= 48:
        return Tile(64, 32, 4, 3), Tile(64, 64, 2, 3) if size == 4 else Tile(32, 64, 4, 3)
    return (Tile(64, 32, 4, 4) if k <= 112 else Tile(64, 64, 8, 3)), Tile(32, 64, 4, 3)


def parts_of(n: int, d: int, tile: Tile) -> tuple[int, int]:
    """Rows in a part, and parts: they depend on the shape alone."""
    parts = max(1, min(PROGRAMS // -(-d // tile.features), -(-n // tile.rows)))
    rows = -(-n // (parts * tile.rows)) * tile.rows
    return rows, -(-n // rows)


def together(X: Any) -> int:
    """How many neighbouring entries are read at once: as many as 16 bytes hold, if rows begin where they may."""
    most = 1 if X.data_ptr() % 16 else 16 // int(X.element_size())
    return next(vec for vec in (most, 2, 1) if vec <= most and X.shape[1] % vec == 0 == X.stride(0) % vec)


@dataclass(frozen=True, eq=False)
class OnGpu:
    """Of the formula in ``device_rows.py``, on the GPU: u (d,), what acts on the block and what comes after it (each 2 x d), and
    the diagonal of D (d,)."""

    u: Any
    acting: Any
    after: Any
    diagonal: Any


class Work:
    """What products of rows X (n x d) with blocks of k columns need on the GPU.  It does not keep X.

    ``block`` and ``product`` (d x k) are numpy's views of memory here that the GPU reads and writes.  Where little memory is
    needed there, all of it is kept, and the kernels are recorded.
    """

    def __init__(self, of_rows: OnGpu, X: Any, k: int, *, single: bool) -> None:
        torch = self._torch = importlib.import_module("torch")
        n, d = self._shape = int(X.shape[0]), int(X.shape[1])
        self.key = k, X.data_ptr(), X.stride(0)
        self._of_rows, self._single, self._k, self._vec = of_rows, single, k, together(X)
        self._widths = (max(LEAST, power_of_two(k)), 0, 0) if single else widths(k)
        self._tiles = tiles(k, X.element_size(), single=single)
        self._part, self._parts = parts_of(n, d, self._tiles[1])
        self._all = self._whole(n, *(tile.rows for tile in self._tiles)), self._whole(d, PADDED, self._tiles[0].features)
        self._device, double = X.device, torch.float64
        self._B, self._G = (torch.zeros((d, k), dtype=double, pin_memory=X.is_cuda) for _ in range(2))
        self.block: Array = self._B.numpy()
        self.product: Array = self._G.numpy()
        self._acted = min(ACTED, self._all[1] // PADDED)
        self._R = self._there((self._acted, 2, sum(self._widths)), double)
        self._A = self._two_or_one(self._all[1])
        bytes_needed = 8 * (self._all[0] * sum(self._widths) + self._parts * k * d)
        self._kept: Any = None
        self._graph: Any = None
        if X.is_cuda and bytes_needed <= KEPT_BYTES:
            self._kept = self._scores_and_parts()
            self._graph = _recorded(lambda: self._launch(X), X.device)

    def run(self, X: Any) -> None:
        """Multiply the block; the product is there when the GPU is done."""
        if self._graph is not None:
            self._graph.replay()
        else:
            self._launch(X)

    @staticmethod
    def _whole(count: int, *steps: int) -> int:
        """The least multiple of all ``steps``, powers of two, that is not below the count."""
        return -(-count // max(steps)) * max(steps)

    def _there(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self._torch.empty(shape, dtype=dtype, device=self._device)

    def _two_or_one(self, rows: int) -> tuple[Any, ...]:
        """Memory for rows of as many columns as the block has: two of single precision, whose sum counts, or one of double."""
        columns = sum(self._widths)
        if self._single:
            return tuple(self._there((columns, rows), self._torch.float32) for _ in range(2))
        return (self._there((rows, columns), self._torch.float64),)

    def _scores_and_parts(self) -> tuple[tuple[Any, ...], Any]:
        return self._two_or_one(self._all[0]), self._there((self._parts, self._k, self._shape[1]), self._torch.float64)

    def _launch(self, X: Any) -> None:
        T, P = self._kept or self._scores_and_parts()
        self._multiply(X, T, P)
        kernels, d, k = importlib.import_module("eigenpact.numerics.device_kernels"), self._shape[1], self._k
        sums = P, self._of_rows.after, self._R, self._of_rows.diagonal, self._G
        options = {"K": sum(self._widths), "KP": power_of_two(k), "BD": FINISH}
        kernels.finish[(-(-d // FINISH),)](*sums, d, k, self._parts, self._acted, **options)

    def _multiply(self, X: Any, T: tuple[Any, ...], P: Any) -> None:
        """The parts P of W^T (W A), by way of the scores T, and those of what acts on the block."""
        (n, d), (n_all, d_all), (forth, back), k = self._shape, self._all, self._tiles, self._k
        of_rows, shape = self._of_rows, (n, d // self._vec, X.stride(0) // self._vec)
        given, there, again = (
            (self._B, of_rows.diagonal, of_rows.acting),
            (n_all // forth.rows,),
            (-(-d // back.features), self._parts),
        )
        columns = sum(self._widths)
        kernels = importlib.import_module("eigenpact.numerics.device_kernels")
        options: dict[str, Any] = {"VEC": self._vec}
        if self._single:
            singles, options["KP"] = importlib.import_module("eigenpact.numerics.device_single"), columns
            singles.split_block[(self._acted,)](*given, *self._A, self._R, d, k, d_all // PADDED, d_all, BD=PADDED, KP=columns)
            singles.single_scores[there](X, *self._A, of_rows.u, *T, *shape, n_all, d_all, **options, **forth.options)
            singles.single_back[again](X, *T, of_rows.u, P, *shape, n_all, k, self._part, **options, **back.options)
        else:
            options |= {f"K{i}": width for i, width in enumerate(self._widths)}
            padding = {"BD": PADDED, "KP": power_of_two(columns), "K": columns}
            kernels.pad_block[(self._acted,)](*given, *self._A, self._R, d, k, d_all // PADDED, **padding)
            kernels.scores[there](X, *self._A, of_rows.u, *T, *shape, **options, **forth.options)
            kernels.back[again](X, *T, of_rows.u, P, *shape, k, self._part, **options, **back.options)


_recording = threading.Lock()


@cache
def _stream(device: Any) -> Any:
    """One that nobody else is given: torch deals out 32 of each priority in turn, and what another thread starts on the stream
    that is recorded would be recorded, too."""
    return importlib.import_module("torch").cuda.Stream(device, priority=-1)


def _recorded(launch: Callable[[], None], device: Any) -> Any:
    """The kernels as one graph.  Memory of torch's that is freed meanwhile would end the process, so garbage waits; other threads
    may do as they like, but not record."""
    torch = importlib.import_module("torch")
    launch()  # which compiles them
    graph = torch.cuda.CUDAGraph()
    with _recording, torch.cuda.stream(_stream(device)):
        collects = gc.isenabled()
        gc.disable()
        try:
            graph.capture_begin(capture_error_mode="thread_local")
            launch()
            graph.capture_end()
        finally:
            if collects:
                gc.enable()
    return graph
