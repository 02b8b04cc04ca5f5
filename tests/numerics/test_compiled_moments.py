"""The compiled loop of sums and squares, against sums in long doubles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eigenpact.numerics import compiled_moments as loops
from eigenpact.numerics.machine_code import processor
from eigenpact.numerics.parts import threads_for_rows
from eigenpact.numerics.rows import Rows
from eigenpact.numerics.sources import ArraySource

pytestmark = pytest.mark.skipif(processor() is None, reason="llvmlite is not here, or not for this processor")


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "WORTH", 1)


@pytest.mark.parametrize("kind", ["f8", "f4", "u1", ">f8"])
@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (127, 33), (129, 64), (1000, 100), (40, 3001)])
def test_moments_are_those_of_long_doubles(shape: tuple[int, int], kind: str) -> None:
    rng = np.random.default_rng(shape)
    X = (rng.standard_normal(shape) * 3 + 9).astype(kind)
    exact = X.astype(np.longdouble)
    mean = exact.mean(axis=0)
    for rows in (X, np.asfortranarray(X), X[:, ::-1][:, ::-1], np.pad(X, ((0, 0), (0, 3)))[:, : shape[1]]):
        sums, own, within = Rows(rows).about_mean()
        np.testing.assert_allclose(sums, exact.sum(axis=0).astype(float), rtol=1e-15)
        np.testing.assert_allclose(own.sum(axis=0), mean.astype(float), rtol=1e-15)
        np.testing.assert_allclose(within, ((exact - mean) ** 2).sum(axis=0).astype(float), rtol=1e-13, atol=1e-28)


def test_constant_columns_have_no_squares_and_whole_numbers_exact_sums() -> None:
    X = np.column_stack([np.full(100_000, 0.3), np.arange(100_000.0), np.full(100_000, 1e300)])
    sums, own, within = Rows(X).about_mean()
    assert own[0, 0] == 0.3
    assert own[0, 2] == 1e300
    assert within[[0, 2]].tolist() == [0.0, 0.0]
    assert sums[1] == 99_999 * 50_000


def test_a_feature_far_from_its_first_rows_keeps_its_digits() -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((20_000, 65))
    X[10:] += 1e9
    exact = X.astype(np.longdouble)
    squares = ((exact - exact.mean(axis=0)) ** 2).sum(axis=0).astype(float)
    np.testing.assert_allclose(Rows(X).about_mean()[2], squares, rtol=1e-12)


def test_long_columns_of_few_distinct_numbers_keep_their_digits() -> None:
    """All sums of so many rows are rounded the same way: four digits were lost where the first rows were unlike the others."""
    X = np.full((1 << 22, 1), 0.1)
    X[::7], X[:5] = 0.7, 0.3
    values, counts = np.unique(X, return_counts=True)
    exact = values.astype(np.longdouble)
    mean = (exact @ counts) / len(X)
    sums, own, within = Rows(X).about_mean()
    np.testing.assert_allclose(sums, float(exact @ counts), rtol=5e-15)
    np.testing.assert_allclose(own.sum(axis=0), float(mean), rtol=5e-15)
    np.testing.assert_allclose(within, float((exact - mean) ** 2 @ counts), rtol=1e-14)


@pytest.mark.parametrize("d", [3, 700, 60_000])
def test_threads_and_sources_have_the_same_bits(d: int) -> None:
    X = np.random.default_rng(d).standard_normal((3_000_000 // d + 7, d))

    def found(rows: Any) -> list[Any]:
        return [a.tolist() for a in Rows(rows).about_mean()]

    alone = found(X)
    assert found(ArraySource(X)) == alone
    assert found(np.asfortranarray(X)) == alone
    with threads_for_rows(2):
        assert found(X) == alone


def test_what_is_not_finite_stays_in_its_column() -> None:
    X = np.ones((1000, 70))
    X[500, 3], X[600, 69] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        squares = Rows(X).about_mean()[2]
    assert np.flatnonzero(~np.isfinite(squares)).tolist() == [3, 69]
