"""Sums, means and squares of columns in one pass, or in two where the first rows are far from the others."""

from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import pytest

from eigenpact.numerics.column_moments import FIRST
from eigenpact.numerics.rows import Rows


def columns(n: int) -> Any:
    """Near and far from zero, sorted, constant, with a first row, or first rows, that no other is like, and whole numbers."""
    rng = np.random.default_rng(3)
    X = np.stack([rng.normal(size=n) * 10**j + 10 ** (2 * j) for j in range(4)], axis=1)
    odd = np.stack([np.sort(rng.normal(size=n)) * 1e4, np.full(n, 0.3), np.full(n, 0.7), np.full(n, 0.1)], axis=1)
    odd[0, 2], odd[:FIRST, 3] = 1e9, 1e6
    return np.concatenate([X, odd, rng.integers(0, 256, size=(n, 2)).astype(float)], axis=1)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 127, 1000, 30_001])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_against_longer_numbers(n: int, elsewhere: bool) -> None:
    """To the last digits of what is left after the mean is subtracted."""
    X = columns(n)
    sums, own, within = Rows(array_api_strict.asarray(X) if elsewhere else X).about_mean()
    exact = X.astype(np.longdouble)
    mean = exact[n // 2] + (exact - exact[n // 2]).mean(axis=0)  # so that it is that of a constant column
    squares = np.asarray(((exact - mean) ** 2).sum(axis=0), dtype=float)
    spread, total = np.sqrt(squares / n), np.asarray(exact.sum(axis=0), dtype=float)
    digits = 1e-13 if elsewhere else 1e-14  # another library adds up as it likes
    assert np.all(np.abs(sums - total) <= 4e-16 * np.abs(total) + digits * n * spread)
    off = np.abs(np.asarray((own[0].astype(np.longdouble) - mean) + own[1], dtype=float))
    assert np.all(off <= digits * spread + 1e-30 * np.abs(own[0]))
    np.testing.assert_allclose(within, squares, rtol=1e-11 if elsewhere else 1e-13, atol=1e-30)
    np.testing.assert_array_equal(sums[-2:], X[:, -2:].sum(axis=0))  # whole numbers: exactly
    assert (own[0, 5], own[1, 5], within[5]) == (0.3, 0.0, 0.0)


def test_rows_are_read_once_or_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice only where the first rows are far from the mean of the others."""
    passes = []
    blocks = Rows._blocks
    monkeypatch.setattr(Rows, "_blocks", lambda self, **options: passes.append(1) or blocks(self, **options))
    X = columns(100)
    Rows(X[:, [0, 1, 2, 5, 8]]).about_mean()
    assert len(passes) == 1
    Rows(X).about_mean()
    assert len(passes) == 3


@pytest.mark.parametrize("large", [1e200, 1e308])
def test_numbers_that_overflow(large: float) -> None:
    """Squares are infinite then, without a warning; sums that are finite stay so."""
    X = np.array([[large, 1.0], [-large, 2.0], [large / 2, 3.0]])
    sums, _, within = Rows(X).about_mean()
    assert sums[1] == 6.0
    assert within[1] == 2.0
    assert within[0] == np.inf


def test_equal_numbers_that_are_all_rounded_the_same_way() -> None:
    """Of 0.1 and 0.3, in any order, the mean was off by 1000 units of its last digit, and with it X^T X - n u u^T."""
    first = np.random.default_rng(0).random(50000) < 0.5
    X = np.where(first, 0.1, 0.3)[:, None]
    exact = (np.longdouble(0.1) * int(first.sum()) + np.longdouble(0.3) * int((~first).sum())) / len(X)
    assert abs(np.longdouble(Rows(X).about_mean()[1].sum()) - exact) < 1e-16
