"""Either half of the compiled loop, over a basis in Fortran order: equal to numpy's products, by any number of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eigenpact.numerics import compiled_action, compiled_tall, machine_code
from eigenpact.numerics.compiled_tall import COLUMNS, ROWS, compiled_inner, compiled_times, worth_halves
from eigenpact.numerics.krylov_space import KrylovSpace
from eigenpact.numerics.machine_code import Processor, processor
from eigenpact.numerics.parts import threads_for_rows
from eigenpact.numerics.tall import inner, times

pytestmark = pytest.mark.skipif(
    processor() is None, reason="no loops are compiled on this machine: llvmlite, or AVX2, is missing"
)


@pytest.fixture(params=["own", "avx2"])
def registers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "avx2":
        for module in (machine_code, compiled_action):
            monkeypatch.setattr(module, "processor", lambda: Processor("haswell", "+avx2,+fma", 32, 16))
    return str(request.param)


def whole(rng: np.random.Generator, *shape: int) -> Any:
    """Whole numbers in Fortran order, so small that no sum of their products is rounded."""
    return np.asfortranarray(rng.integers(-2, 3, size=shape).astype(float))


@pytest.mark.parametrize("k", [1, 8, 14, 24, 120])
@pytest.mark.parametrize("d", [64, 65, ROWS - 1, ROWS, ROWS + 1, 2 * ROWS + 77])
def test_products_of_whole_numbers_are_exact(d: int, k: int, registers: str) -> None:  # noqa: ARG001
    rng = np.random.default_rng(d + k)
    for m in (1, 7, COLUMNS, COLUMNS + 1, 2 * COLUMNS + 9):
        Q, A, Y = whole(rng, d, m), rng.integers(-2, 3, (d, k)).astype(float), whole(rng, m, k)
        np.testing.assert_array_equal(compiled_inner(Q, A), Q.T @ A)
        np.testing.assert_array_equal(compiled_times(Q, Y), Q @ Y)


def test_columns_beside_and_rows_beside_are_not_seen() -> None:
    rng = np.random.default_rng(1)
    held = np.full((500, 90), np.nan, order="F")
    held[100:401, 10:80] = whole(rng, 301, 70)
    Q, A, Y = held[100:401, 10:80], whole(rng, 301, 9), whole(rng, 70, 9)
    np.testing.assert_array_equal(compiled_inner(Q, A), Q.T @ A)
    np.testing.assert_array_equal(compiled_times(Q, Y), Q @ Y)


def test_bits_do_not_depend_on_threads() -> None:
    rng = np.random.default_rng(2)
    Q, A, Y = np.asfortranarray(rng.normal(size=(3000, 200))), rng.normal(size=(3000, 14)), rng.normal(size=(200, 14))
    alone = compiled_inner(Q, A), compiled_times(Q, Y)
    with threads_for_rows(3):
        for one, other in zip(alone, (compiled_inner(Q, A), compiled_times(Q, Y)), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which halves were made by compiled loops, which are worth it now for any size."""
    made: list[str] = []
    for module in (compiled_tall, compiled_action):
        monkeypatch.setattr(module, "WORTH", 1)
    kernel = compiled_tall._kernel

    def noted(plan: Any, half: Any) -> Any:
        made.append(half.__name__)
        return kernel(plan, half)

    monkeypatch.setattr(compiled_tall, "_kernel", noted)
    return made


def test_bases_in_fortran_order_are_read_by_the_loops_and_others_are_not(asked: list[str]) -> None:
    rng = np.random.default_rng(3)
    Q, A, Y = rng.normal(size=(700, 30)), rng.normal(size=(700, 5)), rng.normal(size=(30, 5))
    expected = inner(Q, A), times(Q, Y), times(Q.astype(np.float32), Y)
    assert asked == []
    found = inner(np.asfortranarray(Q), A), times(np.asfortranarray(Q), Y), times(np.asfortranarray(Q, dtype=np.float32), Y)
    assert asked == ["_Scores", "_Products"]
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


def test_small_work_is_not_compiled_and_large_work_is() -> None:
    assert not worth_halves(np.zeros((10_000, 100), order="F"), 14)
    assert worth_halves(np.zeros((10_000, 1000), order="F"), 14)


def test_a_space_grown_by_the_loops_is_that_of_blas(asked: list[str]) -> None:
    """Block Krylov of a matrix with known eigenvalues: basis, products and Ritz values are as good as without them."""
    rng = np.random.default_rng(4)
    values = 0.9 ** np.arange(300)
    axes = np.linalg.qr(rng.normal(size=(300, 300)))[0]
    C, B = (axes * values) @ axes.T, np.linalg.qr(rng.normal(size=(300, 6)))[0]
    space = KrylovSpace.empty(300)
    for _ in range(20):
        space = space.add(B, C @ B)
        B = space.next_block(6)
    assert {"_Scores", "_Products"} <= set(asked)
    np.testing.assert_allclose(space.Q.T @ space.Q, np.eye(120), atol=1e-14)
    np.testing.assert_allclose(space.ritz(lambda _: 5).values[:5], values[:5], rtol=1e-13)
