"""Products of rows in whole numbers: those of double precision to the bit, or none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eigenpact.numerics.parts import threads_for_rows
from eigenpact.numerics.site_rows import SiteRows, own_mean
from eigenpact.numerics.whole_gram import EXACT, whole_gram


def exact(X: Any) -> Any:
    """By Python's whole numbers, which have no end."""
    whole = np.array([[int(x) for x in row] for row in X.tolist()], dtype=object).reshape(X.shape)
    return (whole.T @ whole).astype(np.float64)


@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "u4", "i8", "f4", "f8", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_whole_numbers_are_multiplied_without_an_error(dtype: str, order: Any) -> None:
    rng = np.random.default_rng(0)
    X = np.asarray(rng.integers(0, 2 if dtype == "?" else 120, size=(300, 7)), dtype=dtype, order=order)
    for part in (1000, 64, 7):
        assert np.array_equal(whole_gram(X, part), exact(X))
    with threads_for_rows(2):
        assert np.array_equal(whole_gram(X, 64), exact(X))


@pytest.mark.parametrize("largest", [1, 255, 1023, 4095, 4096, 4097, 1 << 20, 1 << 24, (1 << 24) + 1])
@pytest.mark.parametrize("where", [0, 150, 299])
def test_sums_that_single_precision_may_round_are_left_to_double(largest: int, where: int) -> None:
    """One large row among small ones, which the choice of the size of a block may not see."""
    X = np.ones((300, 3))
    X[where] = [largest, largest - 1, 1]
    found = whole_gram(X, 1000)
    assert found is None or np.array_equal(found, exact(X))
    assert (found is None) == (largest >= 4096 or (where == 0 and largest > 1023))


def test_a_column_of_squares_just_below_and_at_what_is_exact() -> None:
    below, at = np.full((3, 2), 2048.0), np.full((300, 2), 236.0)
    assert 3 * 2048.0**2 < EXACT <= 1.5 * 3 * 2048.0**2  # too close to be tried
    assert whole_gram(below, 100) is None
    at[-1] = 4096.0
    assert whole_gram(at, 1000) is None


@pytest.mark.parametrize("dtype", ["u2", "i4", "f8"])
def test_numbers_so_large_that_blocks_would_be_small_are_not_tried(dtype: str) -> None:
    X = np.random.default_rng(0).integers(0, 60_000, size=(2000, 5)).astype(dtype)
    assert whole_gram(X, 1000) is None
    counts = np.random.default_rng(0).poisson(3.0, size=(2000, 5)).astype(dtype)
    assert whole_gram(counts, 1000) is not None


@pytest.mark.parametrize("bad", [0.5, 1e-9, 3 + 1e-12])
@pytest.mark.parametrize("where", [0, 100, 299])
def test_other_numbers_are_left_to_double_precision(bad: float, where: int) -> None:
    X = np.ones((300, 3))
    X[where, 1] = bad
    assert whole_gram(X, 50) is None


def test_a_site_has_the_same_bits_either_way(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(1).poisson(3.0, size=(500, 20)).astype(float)
    own, within = own_mean(X)
    site = SiteRows(X, own[0] + 0.25, None, own, within)
    single = site.scatter_triangle()
    monkeypatch.setattr("eigenpact.numerics.site_rows.whole_gram", lambda *_: None)
    assert site.scatter_triangle().tobytes() == single.tobytes()
    assert np.allclose(single, ((X - own[0] - 0.25).T @ (X - own[0] - 0.25))[np.triu_indices(20)], rtol=1e-12)


@pytest.mark.parametrize("scale", [None, 2.0])
def test_inner_products_of_rows_in_whole_numbers(scale: float | None) -> None:
    """From those of the rows themselves, which are exact, where their mean is not large beside their spread."""
    rng = np.random.default_rng(2)
    for offset in (0, 1000):
        X = rng.poisson(1.0, size=(30, 300)) + offset
        own, within = own_mean(X)
        scales = None if scale is None else np.full(300, scale)
        K = SiteRows(X, own[0], scales, own, within).row_products()
        Y = (X - own[0]) / (scale or 1.0)
        np.testing.assert_allclose(K, Y @ Y.T, atol=1e-13 * np.trace(Y @ Y.T))


@pytest.mark.filterwarnings("error")
def test_huge_numbers_are_left_to_double_precision_without_a_word() -> None:
    assert whole_gram(np.full((40, 2), 1e200), 10) is None
    X = np.ones((4000, 2))
    X[7] = 1e200
    assert whole_gram(X, 5000) is None
    wide = np.random.default_rng(0).poisson(2.0, size=(40, 700)).astype(float)
    wide[:, 3] = 1e160
    own, within = own_mean(wide)
    assert np.all(np.isfinite(SiteRows(wide, own[0], None, own, within).row_products()))


def test_of_no_rows() -> None:
    found = whole_gram(np.zeros((0, 2)), 10)
    assert found is not None
    assert found.tolist() == [[0.0, 0.0], [0.0, 0.0]]
