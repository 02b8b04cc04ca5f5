"""The compiled loop of a site's scatter matrix, against sums in double precision, and of bytes against whole numbers."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from eigenpact.numerics import compiled_triangle as loops
from eigenpact.numerics import machine_code, whole_gram
from eigenpact.numerics.compiled_triangle import FOUR, Plan, compiled_triangle, worth_compiling
from eigenpact.numerics.machine_code import Processor, processor
from eigenpact.numerics.parts import threads_for_rows
from eigenpact.numerics.rows import Rows
from eigenpact.numerics.single import ERROR, GRAM_ROWS
from eigenpact.numerics.site_rows import SiteRows, own_mean
from eigenpact.numerics.sources import ArraySource
from eigenpact.numerics.whole_gram import SMALL

pytestmark = pytest.mark.skipif(processor() is None, reason="llvmlite is not here, or not for this processor")

OF_AVX2 = Processor("haswell", "+avx2,+fma", 32, 16)
F8, F4, U1 = np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.uint8)


@pytest.fixture(autouse=True, params=["own", "avx2"])
def _registers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is worth a loop, for this processor and such as one without AVX-512 has."""
    monkeypatch.setattr(loops, "WORTH", 1)
    if request.param == "avx2":
        for module in (machine_code, loops, whole_gram):
            monkeypatch.setattr(module, "processor", lambda: OF_AVX2)


@pytest.mark.parametrize("precision", [F8, F4], ids=str)
@pytest.mark.parametrize("read", [F8, F4, U1], ids=str)
@pytest.mark.parametrize("shape", [(1, 32), (3, 33), (257, 47), (64, 64), (300, 127), (130, 200), (70, 784), (65, 2048)])
def test_products_are_exact_where_they_can_be(shape: tuple[int, int], read: Any, precision: Any) -> None:
    """Of whole numbers, about whole centres, in any order of the rows in memory."""
    rng = np.random.default_rng(shape)
    X = rng.integers(-3, 4, shape).astype(read)
    centre, left = rng.integers(-2, 3, (2, shape[1])).astype(precision)
    for given in ((), (centre,), (centre, left)):
        W = X.astype(float) - sum(given)
        exact = np.tril(W.T @ W)
        for rows in (X, np.asfortranarray(X), X[::-1][::-1], np.pad(X, ((0, 0), (0, 5)))[:, : shape[1]]):
            found = compiled_triangle(iter([rows[:20], rows[20:20], rows[20:]]), shape[1], precision, *given)[0]
            assert found.flags.f_contiguous
            assert np.array_equal(np.tril(found), exact)


@pytest.mark.parametrize("bytes_of", ["<f8", ">f8", "u1", "i8", "f2"])
def test_rows_of_other_kinds_are_converted(bytes_of: str) -> None:
    X = np.random.default_rng(0).integers(0, 9, (100, 40)).astype(bytes_of)
    Y = X.astype(float)
    assert np.array_equal(np.tril(compiled_triangle(iter([X]), 40, F8)[0]), np.tril(Y.T @ Y))


def test_no_byte_beside_the_rows_decides() -> None:
    """Not even one that is not a number; and what lies behind and before them is left alone."""
    for n, d in ((5, 33), (130, 70)):
        around = np.full(n * d + 400, np.nan)
        X = around[200 : 200 + n * d].reshape(n, d)
        X[:] = np.random.default_rng(n).integers(-3, 4, (n, d))
        assert np.array_equal(np.tril(compiled_triangle(iter([X]), d, F8)[0]), np.tril(X.T @ X))
        assert np.isnan(around[:200]).all()
        assert np.isnan(around[200 + n * d :]).all()


def test_rows_at_the_end_of_what_may_be_read() -> None:
    """In a process of its own, which a byte too far would end."""
    code = """
import ctypes, mmap
import numpy as np
from eigenpact.numerics.compiled_triangle import compiled_triangle
libc = ctypes.CDLL(None, use_errno=True)
for n, d, kind in ((7, 33, "f8"), (300, 47, "f4"), (65, 200, "f8"), (65, 201, "u1")):
    size = n * d * np.dtype(kind).itemsize
    whole = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, whole + mmap.PAGESIZE)
    first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert libc.mprotect(ctypes.c_void_p(first + whole), mmap.PAGESIZE, 0) == 0
    X = np.frombuffer(memory, kind, n * d, whole - size).reshape(n, d)
    X[:] = np.random.default_rng(0).integers(-3, 4, (n, d))
    exact = X.astype(float).T @ X.astype(float)
    for precision in ("f8", "f4"):
        assert np.array_equal(np.tril(compiled_triangle(iter([X]), d, np.dtype(precision))[0]), np.tril(exact))
print("right")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "right\n", done.stderr


@pytest.mark.parametrize(("precision", "off"), [(F8, 1e-13), (F4, ERROR)], ids=str)
def test_long_sums_of_equal_numbers_lose_few_digits(precision: Any, off: float) -> None:
    """They are all rounded the same way: so no more rows than ``ERROR`` counts are added up in single precision."""
    assert loops.LONGEST <= GRAM_ROWS
    X = np.full((100_000, 32), 0.1, precision)
    exact = 100_000 * float(X[0, 0]) ** 2
    found = compiled_triangle(iter([X]), 32, precision)[0][np.tril_indices(32)]
    assert np.abs(found - exact).max() <= off * exact


@pytest.mark.parametrize("shape", [(9000, 40), (3000, 784)])
def test_threads_and_sources_have_the_same_bits(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eigenpact.numerics.compiled_parts.LONG_PART", 1 << 16)
    X = np.random.default_rng(0).standard_normal(shape)
    mean = X.mean(axis=0)
    alone = Rows(X, mean).scatter().tobytes()
    assert Rows(ArraySource(X), mean).scatter().tobytes() == alone
    assert Rows(np.asfortranarray(X), mean).scatter().tobytes() == alone
    with threads_for_rows(2):
        assert Rows(X, mean).scatter().tobytes() == alone


@pytest.mark.parametrize("far", [0.0, 1e6])
def test_a_site_has_the_scatter_of_its_rows(far: float) -> None:
    """By its own mean, about an agreed one, in either precision; columns that do not vary have none."""
    X = np.random.default_rng(0).standard_normal((500, 60)) + far
    X[:, 7] = 0.3
    own, within = own_mean(X)
    agreed = own[0] + 0.25
    exact = ((X - agreed).T @ (X - agreed))[np.triu_indices(60)]
    np.testing.assert_allclose(SiteRows(X, agreed, None, own, within).scatter_triangle(), exact, rtol=1e-9)
    single = X.astype(F4)
    own, within = own_mean(single)
    Y = single.astype(float) - agreed
    found = SiteRows(single, agreed, None, own, within).single_triangle()
    assert found is not None
    squares = np.sum((single - own.sum(axis=0)) ** 2, axis=0)
    off = ERROR * np.sqrt(np.outer(squares, squares))[np.triu_indices(60)] + 1e-12 * np.abs((Y.T @ Y)[np.triu_indices(60)])
    assert np.all(np.abs(found - (Y.T @ Y)[np.triu_indices(60)]) <= off)


def test_numbers_that_single_precision_does_not_hold_are_left_to_double() -> None:
    X = np.random.default_rng(0).standard_normal((100, 40)).astype(F4)
    X[3] *= np.float32(1e30)
    own, within = own_mean(X)
    assert SiteRows(X, own[0], None, own, within).single_triangle() is None


def of_bytes() -> list[Processor]:
    """This processor, and one with half of its registers, where they have the instruction."""
    here, half = processor(), Processor("alderlake", "+avx2,+fma,+avxvnni", 32, 16)
    if here is None:
        return []
    return [one for one in (here, half) if one.multiplies_bytes and (one == here or "+avxvnni" in here.features.split(","))]


OF_BYTES = of_bytes()


@pytest.mark.skipif(not OF_BYTES, reason="this processor has no instruction for products of bytes")
@pytest.mark.parametrize("here", OF_BYTES, ids=lambda here: str(8 * here.wide))
@pytest.mark.parametrize("shape", [(4, 32), (1100, 33), (2051, 127), (700, 200), (64, 784)])
def test_bytes_are_multiplied_without_an_error(shape: tuple[int, int], here: Processor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest ones, and as many rows as a tile has."""
    for module in (machine_code, loops, whole_gram):
        monkeypatch.setattr(module, "processor", lambda: here)
    rng, made = np.random.default_rng(shape), []
    monkeypatch.setattr(whole_gram, "compiled_triangle", lambda *given: made.append(given[2]) or compiled_triangle(*given))
    for X in (rng.integers(0, 256, shape), np.full(shape, 255), np.zeros(shape, int), rng.integers(0, 2, shape)):
        exact = (X.T @ X).astype(float)
        for rows in (X, X.astype(np.uint8), X.astype(float), np.asfortranarray(X.astype(F4))):
            for part in (1 << 20, 500):
                found = whole_gram.whole_gram(rows, part)
                assert found is not None
                assert np.array_equal(found, exact)
    assert set(made) == {FOUR}


@pytest.mark.parametrize("where", [0, 170, 299])
@pytest.mark.parametrize("odd", [-1, 256, 0.5, 3 + 1e-12, np.nan, np.inf, 1e300])
def test_other_numbers_than_bytes_are_noticed(odd: float, where: int) -> None:
    """Wherever they are; small whole numbers that are negative are multiplied in single precision."""
    X = np.ones((300, 40))
    X[where, 3] = odd
    found = whole_gram.whole_gram(X, 100)
    assert (found is not None) == (odd in (-1, 256))
    if found is not None:
        assert np.array_equal(found, X.T @ X)


@pytest.mark.parametrize("least", [0, -3])
def test_a_site_of_whole_numbers_has_the_scatter_of_its_rows(least: int) -> None:
    """What is agreed is subtracted from the matrix in its place."""
    X = np.random.default_rng(0).integers(least, 8, (3000, 50)).astype(np.uint8 if least == 0 else np.float64)
    own, within = own_mean(X)
    site, Y = SiteRows(X, own[0] + 0.25, None, own, within), X - own[0] - 0.25
    found = whole_gram.whole_gram(X, 1000)
    assert found is not None
    assert found.flags.f_contiguous
    np.testing.assert_allclose(site.scatter_triangle(), (Y.T @ Y)[np.triu_indices(50)], rtol=1e-12, atol=1e-8)


@pytest.mark.parametrize("dtype", ["i1", "i2", "f8"])
def test_negative_whole_numbers_are_exact(dtype: str) -> None:
    X = np.random.default_rng(0).integers(-100, 100, (2000, 50)).astype(dtype)
    found = whole_gram.whole_gram(X, 600)
    assert found is not None
    assert np.array_equal(found, X.astype(float).T @ X.astype(float))
    assert loops.LONGEST * SMALL**2 < whole_gram.EXACT


def test_what_is_worth_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    if processor() is None:
        pytest.skip("no loops")
    assert worth_compiling(25_000, 200)
    assert not worth_compiling(24_999, 200)
    assert not worth_compiling(1 << 40, 31)
    assert not worth_compiling(1 << 40, 2049)


@pytest.mark.parametrize("d", [32, 47, 200, 784, 1024, 2048])
@pytest.mark.parametrize(("wide", "registers"), [(64, 32), (32, 16)])
@pytest.mark.parametrize("precision", [F8, F4, FOUR], ids=str)
def test_a_plan_fits_the_processor(d: int, precision: Any, wide: int, registers: int) -> None:
    plan = Plan.of(d, precision, wide, registers)
    assert plan.kind.lanes % plan.down == 0
    assert plan.down * plan.abreast + plan.abreast < registers
    assert d <= plan.width < d + plan.kind.lanes
    assert plan.width <= plan.stride
    assert plan.stride * plan.kind.size // 64 % 2 == 1
    assert loops.FEWEST <= plan.tile <= loops.LONGEST
