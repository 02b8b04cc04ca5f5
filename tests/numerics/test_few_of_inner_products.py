"""Leading eigenvectors by Lanczos: those of LAPACK, or none where one was missed or the time is not worth it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eigenpact.numerics.few_of_inner_products import leading_of_inner_products, margin
from eigenpact.numerics.few_rows import leading_of_few_rows
from eigenpact.numerics.metrics import largest_sine
from eigenpact.numerics.rows import Rows


def turned(values: Any, seed: int = 0) -> Any:
    """A symmetric matrix with these eigenvalues, and its eigenvectors."""
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values), len(values))))[0]
    return (Q * values) @ Q.T, Q


def test_eigenvectors_are_those_of_the_matrix() -> None:
    for seed in range(3):
        K, Q = turned(np.concatenate([np.linspace(90, 30, 12), np.linspace(5, 0, 588)]), seed)
        for k in (1, 5, 12):
            found = leading_of_inner_products(K, k)
            assert found is not None
            assert largest_sine(found, Q[:, :k]) < 1e-12
            np.testing.assert_allclose(found.T @ found, np.eye(k), atol=1e-13)


@pytest.mark.parametrize("last", [9.0, 5.0 + 1e-9, 5.0])
def test_a_direction_that_the_first_vector_lacks_is_noticed(last: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In its place the next one is found; only where that has as much variance it will do."""
    K = np.diag(np.concatenate([[8.0, 7.0, last], [5.0], np.linspace(1, 0, 596)]))

    class Without:
        def standard_normal(self, n: int) -> Any:
            return np.where(np.arange(n) == 2, 0.0, 1.0)

    monkeypatch.setattr(np.random, "default_rng", lambda _: Without())
    found = leading_of_inner_products(K, 3)
    assert (found is None) == (last > 5.0)
    if found is not None:
        assert largest_sine(found, np.eye(600)[:, [0, 1, 3]]) < 1e-12


def test_equal_eigenvalues_are_not_missed() -> None:
    """Whatever is given holds them as often as there are, to rounding."""
    values = np.concatenate([[9.0] * 3, [7.0] * 2, np.linspace(2, 0, 595)])
    K, _ = turned(values)
    for k in (2, 3, 4, 5):
        found = leading_of_inner_products(K, k)
        if found is not None:
            np.testing.assert_allclose(np.linalg.eigvalsh(found.T @ K @ found)[::-1], values[:k], atol=2 * margin(K))


@pytest.mark.parametrize(
    "K",
    [np.full((600, 600), np.inf), np.diag([1e9, *np.ones(599)]), np.eye(10)],
    ids=["infinite", "graded", "small"],
)
def test_others_are_left_to_lapack(K: Any) -> None:
    with np.errstate(invalid="ignore"):
        assert leading_of_inner_products(K, 2) is None


def test_a_site_of_many_rows_takes_them() -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((520, 10)) * np.arange(20, 10, -1) @ rng.standard_normal((10, 700)) + rng.standard_normal((520, 700))
    mean = X.mean(axis=0)
    exact = np.linalg.svd(X - mean, full_matrices=False)[2][:6].T
    assert leading_of_inner_products((X - mean) @ (X - mean).T, 6) is not None
    assert largest_sine(leading_of_few_rows(Rows(X, mean), 6), exact) < 1e-12


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_where_all_eigenvalues_are_equal_any_directions_will_do(value: float) -> None:
    found = leading_of_inner_products(value * np.eye(600), 2)
    if found is not None:
        np.testing.assert_allclose(found.T @ found, np.eye(2), atol=1e-13)
