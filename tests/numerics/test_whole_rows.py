"""Rows in whole numbers: exact, bounded, and each by itself."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from eigenpact.numerics.linalg import random_orthonormal
from eigenpact.numerics.whole_rows import STEPS, whole_blocks, whole_product, whole_sum, whole_triangle

FINITE = st.floats(allow_nan=False, allow_infinity=False)
ANY_ROWS = arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=FINITE)


def rows(n: int = 50, d: int = 7, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d)) * np.linspace(3, 0.1, d)


def whole(X: np.ndarray, centre: np.ndarray, bound: float) -> list[list[int]]:
    return [[int(z) for z in row] for block in whole_blocks(X, centre, bound) for row in block]


@settings(max_examples=200, deadline=None)
@given(ANY_ROWS, st.floats(1e-3, 1e3))
def test_no_row_is_longer_than_the_bound_whatever_it_holds(X: np.ndarray, bound: float) -> None:
    """In whole numbers, so to the last digit; this is the sensitivity."""
    made = whole(X, np.full(X.shape[1], -1e308), bound) + whole(X, np.zeros(X.shape[1]), bound)
    assert all(sum(z * z for z in row) <= STEPS**2 for row in made)


def test_short_rows_are_rounded_and_long_ones_keep_their_direction() -> None:
    X = rows()
    for z, x in zip(whole(X, np.zeros(7), 4.0), X, strict=True):
        wanted = x * min(1.0, 4.0 / np.linalg.norm(x))
        assert np.linalg.norm(np.array(z) * 4.0 / STEPS - wanted) < 4.0 / STEPS * np.sqrt(7) * 2


def test_sums_and_products_are_exact() -> None:
    X, centre = rows(), np.full(7, 0.3)
    Z = whole(X, centre, 4.0)
    assert whole_sum(X, centre, 4.0).tolist() == [sum(column) for column in zip(*Z, strict=True)]
    gram = [sum(z[a] * z[b] for z in Z) for a in range(7) for b in range(a, 7)]
    assert whole_triangle(X, centre, 4.0).tolist() == gram
    assert (whole_triangle(scipy.sparse.csr_matrix(X), centre, 4.0) == whole_triangle(X, centre, 4.0)).all()


def test_one_row_more_changes_sums_by_its_own_part_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it comes, and however rows are blocked: otherwise the sensitivity would hold up to rounding only."""
    X, one = rows(40, 13), rows(1, 13, seed=1) * 9
    V, centre = random_orthonormal(13, 3, 0), np.zeros(13)
    for made, most in [
        (lambda A: whole_sum(A, centre, 2.0), STEPS),
        (lambda A: whole_product(A, centre, 2.0, V), STEPS**2),
        (lambda A: whole_triangle(A, centre, 2.0), STEPS**2),
    ]:
        alone = made(one)
        assert np.linalg.norm(alone.astype(float)) <= most
        for where in (0, 17, 40):
            assert (made(np.insert(X, where, one[0], axis=0)) - made(X) == alone).all()
        monkeypatch.setattr("eigenpact.numerics.whole_rows.BLOCK_ELEMENTS", 13 * 3)
        assert (made(np.insert(X, 0, one[0], axis=0)) - made(X) == alone).all()
        monkeypatch.undo()


def test_the_triangle_of_one_row_has_its_largest_norm_with_weights() -> None:
    """Off the diagonal counted twice, it is ||z||^2 for every row, and not only for rows along an axis."""
    for row in (np.eye(5)[:1], np.full((1, 5), 1 / np.sqrt(5)), rows(1, 5)):
        packed = whole_triangle(row * 100, np.zeros(5), 1.0).astype(float)
        weights = np.where(np.equal(*np.triu_indices(5)), 1.0, 2.0)
        assert np.sqrt((weights * packed**2).sum()) == pytest.approx(STEPS**2, rel=1e-4)


def test_products_are_near_those_of_the_rows() -> None:
    X, V = rows(2000), random_orthonormal(7, 3, 0)
    exact = X.T @ (X @ V)
    assert np.abs(whole_product(X, np.zeros(7), 50.0, V) * (50.0 / STEPS) ** 2 - exact).max() < 1e-2 * np.abs(exact).max()
