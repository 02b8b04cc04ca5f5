"""Compiled loops over dense rows: equal to numpy's products for rows of any layout; no byte is read or written beside arrays."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from eigenpact.numerics import compiled_action, compiled_parts, machine_code, site_rows
from eigenpact.numerics import rows as rows_module
from eigenpact.numerics.compiled_action import NarrowProducts, plan_for, worth_compiling
from eigenpact.numerics.machine_code import Processor, processor
from eigenpact.numerics.parts import threads_for_rows
from eigenpact.numerics.rows import Rows
from eigenpact.numerics.single import ERROR
from eigenpact.numerics.site_rows import SiteRows, own_mean
from eigenpact.numerics.sources import ArraySource

pytestmark = pytest.mark.skipif(
    processor() is None, reason="no loops are compiled on this machine: llvmlite, or AVX2, is missing"
)

OF_AVX2 = Processor("haswell", "+avx2,+fma", 32, 16)
F8, F4 = np.dtype(np.float64), np.dtype(np.float32)


@pytest.fixture(params=["own", "avx2"])
def registers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Kernels for this processor, and such as one without AVX-512 has."""
    if request.param == "avx2":
        for module in (machine_code, compiled_action):
            monkeypatch.setattr(module, "processor", lambda: OF_AVX2)
    return str(request.param)


def whole(rng: np.random.Generator, *shape: int, kind: Any = F8, least: int = -2) -> Any:
    """Whole numbers so small that no sum of their products is rounded, also in single precision."""
    return rng.integers(least, 3, size=shape).astype(kind)


def truth(X: Any, A: Any, shift: Any = None, centre: Any = None, left: Any = None) -> tuple[Any, Any]:
    """W^T T and 1^T T by numpy, in double precision."""
    W = np.asarray(X, np.float64) - (0 if centre is None else centre) - (0 if left is None else left)
    T = W @ np.asarray(A, np.float64) - (0 if shift is None else shift)
    return W.T @ T, T.sum(axis=0)


def products(X: Any, A: Any, shift: Any = None, centre: Any = None, left: Any = None) -> tuple[Any, Any]:
    return NarrowProducts(A, shift, centre, left).over(iter([X]))


WIDTHS, COLUMNS = (64, 65, 200, 784, 2048, 2049, 3001), (1, 7, 8, 14, 24, 30, 54, 120)
GIVEN = [
    (F8, F8, False, 0), (F4, F4, False, 1), (F8, F4, True, 2), (F8, F8, True, 1), (F4, F4, True, 0), (F8, F8, True, 0),
    (F4, F8, True, 2), (F8, F4, False, 0), (F8, F8, False, 2),
]  # fmt: skip
"""Precision of A, and of X; whether there is a shift; how many centres."""


def check(d: int, k: int, given: tuple[Any, Any, bool, int]) -> None:
    precision, read, shifted, centres = given
    rng, tile = np.random.default_rng(0), plan_for(d, k, precision).tile
    A, X = whole(rng, d, k, kind=precision), whole(rng, 3 * tile + 1, d, kind=read)
    shift, *of = whole(rng, k) if shifted else None, *(whole(rng, d) for _ in range(centres))
    made = NarrowProducts(A, shift, *of)
    for n in (1, tile - 1, tile, tile + 1, len(X)):
        for found, expected in zip(made.over(iter([X[:n]])), truth(X[:n], A, shift, *of), strict=True):
            np.testing.assert_array_equal(found, expected)
            assert found.dtype == F8


@pytest.mark.parametrize("d", WIDTHS)
def test_products_of_whole_numbers_are_exact(d: int) -> None:
    """In every form of tile and of columns: not a term is lost, nor one too many is added."""
    for place, k in enumerate(COLUMNS):
        if k <= 24:
            check(d, k, GIVEN[0])
        check(d, k, GIVEN[1 + (place + WIDTHS.index(d)) % (len(GIVEN) - 1)])


@pytest.mark.parametrize("d", [64, 65, 2048, 2049])
def test_products_of_whole_numbers_are_exact_with_the_registers_of_avx2(d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (machine_code, compiled_action):
        monkeypatch.setattr(module, "processor", lambda: OF_AVX2)
    for place, k in enumerate(COLUMNS):
        check(d, k, GIVEN[(place + WIDTHS.index(d)) % len(GIVEN)])


@pytest.mark.parametrize("precision", [F8, F4])
@pytest.mark.parametrize(("d", "k"), [(65, 7), (2049, 30)])
def test_products_are_off_by_rounding_errors(d: int, k: int, precision: Any, registers: str) -> None:  # noqa: ARG001
    rng = np.random.default_rng(1)
    X, A = rng.normal(3, 1, size=(300, d)), rng.normal(size=(d, k)).astype(precision)
    shift, centre, left = rng.normal(size=k), np.full(d, 3.0), 1e-3 * rng.normal(size=d)
    G, sums = products(X, A, shift, centre, left)
    exact_G, exact_sums = truth(X, A, shift, centre, left)
    W = np.abs(X - centre - left)
    T = W @ np.abs(A.astype(float)) + np.abs(shift)
    unit = float(np.finfo(precision).eps)
    assert np.all(np.abs(G - exact_G) <= 8 * unit * (W.T @ T))
    assert np.all(np.abs(sums - exact_sums) <= 8 * unit * T.sum(axis=0))


def unaligned(X: Any) -> Any:
    """The same rows at an odd address, which may not be written to."""
    return np.frombuffer(b"\x01" + X.tobytes(), X.dtype, offset=1).reshape(X.shape)


def between_others(X: Any) -> Any:
    """Some columns of rows that hold NaN in the others."""
    rows = np.full((X.shape[0], X.shape[1] + 9), np.nan)
    rows[:, 4:-5] = X
    return rows[:, 4:-5]


def every_other(X: Any) -> Any:
    rows = np.full((2 * X.shape[0], X.shape[1]), np.inf)
    rows[::2] = X
    return rows[::2]


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "by columns": np.asfortranarray,
    "some columns": between_others,
    "every other row": every_other,
    "every other column": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "rows backwards": lambda X: X[::-1].copy()[::-1],
    "columns backwards": lambda X: X[:, ::-1].copy()[:, ::-1],
    "unaligned": unaligned,
    "unaligned float32": lambda X: unaligned(X.astype(F4)),
    "of another byte order": lambda X: X.astype(">f8"),
    "float32 of another byte order": lambda X: X.astype(">f4"),
    "float16": lambda X: X.astype(np.float16),
    "long double": lambda X: X.astype(np.longdouble),
    "int64": lambda X: X.astype(np.int64),
    "uint8 by columns": lambda X: np.asfortranarray(X.astype(np.uint8)),
    "bool": lambda X: X > 1,
    "one row again and again": lambda X: np.broadcast_to(X[3], X.shape),
    "windows": lambda X: np.lib.stride_tricks.sliding_window_view(X.ravel()[: len(X) + X.shape[1] - 1], X.shape[1]),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_of_any_layout(layout: str, registers: str) -> None:  # noqa: ARG001
    rng = np.random.default_rng(2)
    X, A, centre = LAYOUTS[layout](whole(rng, 250, 65, least=0)), whole(rng, 65, 7), whole(rng, 65)
    for precision, *of in ((F8,), (F8, None, centre), (F4,)):
        for found, expected in zip(products(X, A.astype(precision), *of), truth(X, A, *of), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_one_row_with_any_stride_and_no_rows() -> None:
    rng = np.random.default_rng(3)
    X, A = whole(rng, 5, 70), whole(rng, 70, 3)
    for one in (X[4:], X[::-1][:1], np.lib.stride_tricks.as_strided(X, (1, 70), (-(1 << 40), 8))):
        np.testing.assert_array_equal(products(one, A)[0], truth(one, A)[0])
    nothing = NarrowProducts(A, np.ones(3)).over(iter([X[:0], X[:0].astype(int)]))
    assert [part.any() for part in nothing] == [False, False]
    mixed = NarrowProducts(A, np.ones(3)).over(iter([X[:0], X[:2].astype(F4), X[2:3].astype(int), np.asfortranarray(X[3:])]))
    for found, expected in zip(mixed, truth(X, A, np.ones(3)), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("d", [70, 2051])
def test_what_is_not_finite_stays_where_numpy_has_it(d: int, registers: str) -> None:  # noqa: ARG001
    """In the rows: neither lost, nor seen in other features; huge and tiny numbers are no different."""
    rng, k = np.random.default_rng(4), 9
    tile = plan_for(d, k, F8).tile
    for where, value in itertools.product(
        [(0, 0), (tile - 1, d - 1), (tile, 1), (2 * tile, d - 2)], [np.nan, np.inf, 1e300, 5e-324]
    ):
        X, A = rng.normal(size=(2 * tile + 1, d)), rng.normal(size=(d, k))
        X[where] = value
        A[where[1], 1:3] = 0.0, 1e-30
        with np.errstate(all="ignore"):
            (G, sums), (exact_G, exact_sums) = products(X, A), truth(X, A)
            scale = np.abs(X).T @ (np.abs(X) @ np.abs(A))
        assert np.array_equal(np.isfinite(G), np.isfinite(exact_G))
        assert np.array_equal(np.isnan(G), np.isnan(exact_G))
        assert np.array_equal(np.isfinite(sums), np.isfinite(exact_sums))
        some = np.isfinite(exact_G)
        assert np.all(np.abs(G[some] - exact_G[some]) <= 1e-13 * scale[some])


def test_an_infinite_entry_is_seen_in_the_features_of_its_row_alone() -> None:
    """A column of A that is zero where the entry is gives NaN, others give infinity; a feature that is zero there, NaN."""
    X, A = np.zeros((100, 70)), np.zeros((70, 2))
    X[7, 7], X[7, 8], A[7, 0], A[:, 1] = np.inf, 2.0, 1.0, 1.0
    A[7, 1] = 0.0
    with np.errstate(invalid="ignore"):
        G = products(X, A)[0]
        np.testing.assert_array_equal(G, truth(X, A)[0])
    assert G[8, 0] == np.inf
    assert np.isnan(G[8, 1])


@pytest.mark.parametrize("read", [F8, F4])
def test_neither_the_next_row_nor_columns_beside_are_seen(read: Any, registers: str) -> None:  # noqa: ARG001
    rng = np.random.default_rng(5)
    for d, precision in ((67, F8), (67, F4), (2049, F8)):
        A = whole(rng, d, 5, kind=precision)
        for n in (1, plan_for(d, 5, precision).tile, 200):
            behind, beside = np.full((n + 1, d), np.nan, read), np.full((n, d + 3), np.nan, read)
            behind[:n] = beside[:, :d] = whole(rng, n, d)
            for X in (behind[:n], beside[:, :d]):
                np.testing.assert_array_equal(products(X, A)[0], truth(X, A)[0])


GUARDED = """
import ctypes, mmap
import numpy as np
from eigenpact.numerics import compiled_action, compiled_sparse, compiled_tall, machine_code

libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
kept = []

def guarded(shape, kind, *, zeros=False, end=True):
    "An array that ends where a page begins that nobody may read; or begins where one ends."
    kind = np.dtype(kind)
    size, page = int(np.prod(shape)) * kind.itemsize, mmap.PAGESIZE
    pages = -(-size // page) * page
    area = mmap.mmap(-1, pages + 2 * page)
    raw = np.frombuffer(area, np.uint8)
    for place in (0, page + pages):
        assert libc.mprotect(raw.ctypes.data + place, page, 0) == 0
    first = page + (pages - size if end else 0)
    kept.append(raw)
    made = raw[first : first + size].view(kind).reshape(shape)
    made[...] = 0 if zeros else 171
    return made

def like(X, end=True):
    made = guarded(X.shape, X.dtype, end=end)
    made[...] = X
    return made

def check(end):
    rng = np.random.default_rng(0)
    for d, k in ((65, 7), (72, 30), (2049, 14)):
        for precision, read, centres in (
            (np.float64, np.float64, 0), (np.float32, np.float32, 0), (np.float64, np.float32, 0), (np.float32, np.float32, 1),
            (np.float64, np.float64, 2), (np.float64, np.uint8, 0), (np.float64, np.uint8, 1),
        ):
            A = rng.integers(-2, 3, (d, k)).astype(precision)
            tile = compiled_action.plan_for(d, k, np.dtype(precision)).tile
            for n in (1, tile, 2 * tile + 5):
                X = rng.integers(-2, 3, (n, d)).astype(read)
                of = [rng.integers(-2, 3, d).astype(float) for _ in range(centres)]
                W = X.astype(float) - sum(of)
                G, sums = compiled_action.NarrowProducts(A, np.ones(k), *of).over(iter([like(X, end)]))
                T = W @ A.astype(float) - 1
                assert np.array_equal(G, W.T @ T) and np.array_equal(sums, T.sum(axis=0))
                kept.clear()

def check_sparse(end):
    import scipy.sparse as sp
    rng = np.random.default_rng(0)
    for index, read, k in ((np.int32, np.float64, 8), (np.int64, np.float32, 65), (np.int32, np.float32, 3)):
        X = rng.integers(-2, 3, (40, 30)) * (rng.random((40, 30)) < 0.3)
        X[[0, 7, 39]] = 0
        X[38, 29] = 1
        S, A = sp.csr_array(X.astype(read)), rng.integers(-2, 3, (30, k)).astype(float)
        S.data, S.indices, S.indptr = (like(a, end) for a in (S.data, S.indices.astype(index), S.indptr.astype(index)))
        G, sums = compiled_sparse.sparse_products(S, A, np.ones(k))
        T = X @ A - 1
        assert np.array_equal(G, X.T @ T) and np.array_equal(sums, T.sum(axis=0))
        kept.clear()

def check_tall(end):
    rng = np.random.default_rng(0)
    for d, m, k in ((65, 7, 14), (1027, 70, 3), (2049, 65, 24)):
        Q, A, Y = (rng.integers(-2, 3, shape).astype(float) for shape in ((d, m), (d, k), (m, k)))
        there = like(np.ascontiguousarray(Q.T), end).T
        assert np.array_equal(compiled_tall.compiled_inner(there, A), Q.T @ A)
        assert np.array_equal(compiled_tall.compiled_times(there, Y), Q @ Y)
        kept.clear()

for here in (machine_code.processor(), machine_code.Processor("haswell", "+avx2,+fma", 32, 16)):
    for module in (machine_code, compiled_action, compiled_sparse):
        module.processor = lambda here=here: here
    for end in (True, False):
        place = lambda *a, end=end, **b: guarded(*a, **b, end=end)
        compiled_action.memory = compiled_sparse.memory = compiled_tall.memory = place
        check(end)
        check_tall(end)
        check_sparse(end)
print("all of them")
"""
"""Rows, and what loops keep for themselves if asked for, between pages that may be neither read nor written: else a process ends
with a signal.  In a process of its own, so that a page of another test is not what saves it."""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pages are guarded by Linux's mprotect")
def test_no_byte_beside_arrays_is_read_or_written() -> None:
    done = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "all of them"), done.stderr[-2000:]


@pytest.mark.parametrize(("d", "centres"), [(70, 0), (70, 1), (2050, 2)])
def test_blocks_of_whole_tiles_give_the_bits_of_one_block(d: int, centres: int, registers: str) -> None:  # noqa: ARG001
    rng = np.random.default_rng(6)
    of = [rng.normal(size=d) for _ in range(centres)]
    for precision in (F8, F4):
        made = NarrowProducts(rng.normal(size=(d, 10)).astype(precision), rng.normal(size=10), *of)
        X = rng.normal(size=(4 * made.tile + 5, d)).astype(precision)
        expected = made.over(iter([X]))
        for step in (made.tile, 3 * made.tile):
            for form in (np.ascontiguousarray, np.asfortranarray, between_others if precision == F8 else np.asarray):
                for one, other in zip(made.over(form(X[i : i + step]) for i in range(0, len(X), step)), expected, strict=True):
                    np.testing.assert_array_equal(one, other)


def test_rows_that_are_converted_are_not_held_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a table of bytes is eight times as large in double precision."""
    monkeypatch.setattr(compiled_action, "WORTH", 1)
    rng = np.random.default_rng(7)
    X, A = rng.integers(0, 3, size=(40_000, 100)).astype(np.uint8), whole(rng, 100, 4)
    tracemalloc.start()
    try:
        G = Rows(X).scatter_action(A)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 8 * X.size / 2
    np.testing.assert_array_equal(G, truth(X, A)[0])


# -- as rows use them -------------------------------------------------------------------------------


@pytest.fixture
def worth(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Everything is worth a compiled loop, and rows are many parts; tells which numbers of rows the loops were given."""
    monkeypatch.setattr(compiled_action, "WORTH", 1)
    monkeypatch.setattr(rows_module, "PART_ENTRIES", 1 << 14)
    monkeypatch.setattr(compiled_parts, "LONG_PART", 1 << 14)
    monkeypatch.setattr(compiled_parts, "LONG_PART_ROWS", 1)
    monkeypatch.setattr(rows_module, "BLOCK_BYTES", 1 << 16)
    given: list[int] = []
    real = NarrowProducts.over

    def over(self: NarrowProducts, blocks: Any) -> Any:
        def told(block: Any) -> Any:
            given.append(len(block))
            return block

        return real(self, map(told, blocks))

    monkeypatch.setattr(NarrowProducts, "over", over)
    return given


AGREED: list[tuple[str, ...]] = [(), ("mean",), ("mean", "left"), ("left",)]


@pytest.mark.parametrize("agreed", AGREED)
@pytest.mark.parametrize("read", [F8, F4, np.dtype(np.uint8)])
def test_threads_and_sources_give_the_bits_of_rows_in_memory(agreed: tuple[str, ...], read: Any, worth: list[int]) -> None:
    rng, n, d = np.random.default_rng(8), 1000, 70
    X = rng.normal(5, 2, size=(n, d)).clip(0, 9).astype(read)
    of = {"mean": X.mean(axis=0, dtype=float), "left": 1e-3 * rng.normal(size=d)}
    of = {name: of[name] for name in agreed}
    Z, shift = rng.normal(size=(d, 5)), rng.normal(size=5)
    expected = Rows(X, **of)._action(Z, shift)
    for found, exact in zip(expected, truth(X, Z, shift, of.get("mean"), of.get("left")), strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-9)
    assert sum(worth) == n
    assert len(worth) > 3
    for rows_at_once in (1, 37, 5000):
        source = ArraySource(X)
        source.piece_bytes = rows_at_once * source.row_bytes()
        for one, other in zip(Rows(source, **of)._action(Z, shift), expected, strict=True):
            np.testing.assert_array_equal(one, other)
    for form in (np.asfortranarray, lambda rows: rows[::-1].copy()[::-1]):
        for one, other in zip(Rows(form(X), **of)._action(Z, shift), expected, strict=True):
            np.testing.assert_array_equal(one, other)
    for threads in (2, 3):
        with threads_for_rows(threads):
            for one, other in zip(Rows(X, **of)._action(Z, shift), expected, strict=True):
                np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(Rows(X, **of).scatter_action(Z), Rows(X, **of)._action(Z)[0])


def test_rows_with_weights_or_a_scale_are_not_read_as_they_are(worth: list[int]) -> None:
    rng = np.random.default_rng(9)
    X, Z, scale, w = rng.normal(size=(90, 70)), rng.normal(size=(70, 4)), rng.random(70) + 1, rng.random(90)
    Y = X / scale
    np.testing.assert_allclose(Rows(X, scale=scale).scatter_action(Z), Y.T @ (Y @ Z), atol=1e-10)
    weighted = Rows(rows_module.Weighted(X, w)).scatter_action(Z)
    np.testing.assert_allclose(weighted, X.T @ (w[:, None] * (X @ Z)), atol=1e-10)
    narrow = X[:, :63]
    np.testing.assert_allclose(Rows(narrow).scatter_action(Z[:63]), narrow.T @ (narrow @ Z[:63]), atol=1e-10)
    assert worth == []


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int64, np.longdouble, ">f8"])
def test_rows_are_multiplied_in_double_precision_whatever_the_block_is(kind: Any, worth: list[int]) -> None:
    rng = np.random.default_rng(10)
    X, Z = rng.normal(size=(90, 70)), (4 * rng.normal(size=(70, 4))).astype(kind)
    expected = truth(X, Z)[0]
    np.testing.assert_allclose(Rows(X).scatter_action(Z), expected, atol=1e-13 * np.abs(expected).max())
    assert worth == [90]


def test_small_work_is_not_compiled_and_large_work_is() -> None:
    assert not worth_compiling(1000, 100, 10)
    assert worth_compiling(1 << 20, 64, 10)
    assert not worth_compiling(1 << 30, 63, 10)


def test_several_threads_begin_at_once(worth: list[int]) -> None:  # noqa: ARG001
    """The first of them compile, of which none is to see a half of a loop."""
    rng, found = np.random.default_rng(11), {}
    X = whole(rng, 120, 97)
    blocks = {k: whole(rng, 97, k) for k in (2, 11, 17)}
    compiled_action._kernel.cache_clear()
    ready = threading.Barrier(6)

    def begin(number: int, k: int) -> None:
        ready.wait(30)
        found[number] = [Rows(X).scatter_action(blocks[k]) for _ in range(5)]

    threads = [threading.Thread(target=begin, args=(number, k)) for number, k in enumerate([2, 11, 17] * 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 6
    for number, k in enumerate([2, 11, 17] * 2):
        for G in found[number]:
            np.testing.assert_array_equal(G, truth(X, blocks[k])[0])


def test_a_loop_that_is_no_longer_kept_runs_to_its_end() -> None:
    """More loops than are kept, of which one is being used when the others are made."""
    rng = np.random.default_rng(12)
    X, A = whole(rng, 100, 64), whole(rng, 64, 1)
    made = NarrowProducts(A)

    def blocks() -> Any:
        yield X
        compiled_action._kernel.cache_clear()
        yield X

    np.testing.assert_array_equal(made.over(blocks())[0], 2 * truth(X, A)[0])


# -- single precision -------------------------------------------------------------------------------

NASTY: dict[str, Callable[[np.random.Generator, int, int], Any]] = {
    "one large, then one small": lambda rng, n, d: np.outer(
        np.where(np.arange(n) % 128, 1.0 / 3, 4096.0), rng.choice([-1.0, 1.0], d)
    ),
    "one number nearly everywhere": lambda rng, n, d: (
        np.outer(rng.random(n) < 0.01, np.linspace(1, 2, d)) + 0.001 * (np.arange(n) == 0)[:, None]
    ),
    "far from zero": lambda rng, n, d: 1000.3 + 1e-2 * rng.normal(size=(n, d)),
    "uneven units": lambda rng, n, d: rng.normal(size=(n, d)) * 10.0 ** -np.linspace(0, 8, d),
    "one row apart": lambda rng, n, d: rng.normal(size=(n, d)) + 1e4 * (np.arange(n) == 3)[:, None],
    "equal features": lambda rng, n, d: np.repeat(rng.normal(size=(n, 1)), d, axis=1),
}


@pytest.mark.parametrize("rows", NASTY)
@pytest.mark.parametrize("shape", [(3000, 90), (300, 700), (200, 3000)])
def test_single_precision_is_off_by_no_more_than_is_told(rows: str, shape: tuple[int, int], worth: list[int]) -> None:
    """And by more than double precision is, or the test would compare that."""
    rng = np.random.default_rng(13)
    X = NASTY[rows](rng, *shape).astype(np.float32)
    own, within = own_mean(X)
    site = SiteRows(X, own.sum(axis=0) + 0.1 * np.sqrt(within / len(X)), None, own, within)
    Z = np.linalg.qr(rng.normal(size=(shape[1], 5)))[0]
    Y = X.astype(np.longdouble) - site.mean
    found, expected = site.single_action(Z), Y.T @ (Y @ Z)
    assert found is not None
    assert sum(worth) == len(X)
    off = float(np.linalg.norm((found - expected).astype(float)))
    trace = float(np.sum(Y**2))
    assert 1e-13 * trace < off <= 3e-6 * trace < ERROR * trace
    assert np.linalg.norm((site.scatter_action(Z) - expected).astype(float)) <= 1e-11 * trace


def test_sums_of_equal_numbers_over_many_features_are_short() -> None:
    """In single precision each of 2048 that are added up one after the other rounds the same way: 504 units are seen."""
    X = np.outer(np.random.default_rng(15).random(100) + 0.5, np.ones(2048)).astype(np.float32)
    made = NarrowProducts(np.ones((2048, 1), np.float32))
    off = [float(made.over(iter([x[None]]))[1][0]) / (2048 * float(x[0])) - 1 for x in X]
    assert max(np.abs(off)) <= compiled_action.SHORT / 2 / 2**24


def test_what_overflows_single_precision_is_told(worth: list[int]) -> None:
    rng = np.random.default_rng(14)
    X, Z = rng.normal(size=(200, 80)).astype(np.float32), np.full((80, 2), 1e30)
    own, within = own_mean(X)
    site = SiteRows(X, own[0], None, own, within)
    assert site.single_action(Z * 1e10) is None
    assert site.single_action(Z) is not None
    assert len(worth) > 1
    assert site_rows.ACTION_ROWS >= compiled_action.MOST
