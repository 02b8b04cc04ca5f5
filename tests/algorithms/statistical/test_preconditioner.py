"""One site's rows as a preconditioner: inverse and distance, against dense matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from eigenpact.algorithms.statistical import preconditioner
from eigenpact.algorithms.statistical.preconditioner import bounded_spectrum, half_distance, spectrum_of
from eigenpact.numerics.rows import Rows

Matrix = np.ndarray[Any, Any]


def rows(n: int, d: int, seed: int = 0) -> Matrix:
    return np.random.default_rng(seed).normal(size=(n, d)) * np.linspace(2, 0.5, d)


@pytest.mark.parametrize("shape", [(50, 8), (5, 8)])
def test_solve_is_the_inverse(shape: tuple[int, int]) -> None:
    """Above the spectrum by more than mu, solve is (s I - C_1)^-1, with C_1 scaled to the trace."""
    X, trace = rows(*shape), 7.0
    spectrum = spectrum_of(Rows(X), trace)
    C = X.T @ X * trace / np.sum(X * X)
    shifts = np.linalg.eigvalsh(C)[-1] + spectrum.mu + np.array([0.1, 3.0])
    R = np.random.default_rng(1).normal(size=(8, 2))
    expected = np.column_stack([np.linalg.solve(s * np.eye(8) - C, r) for s, r in zip(shifts, R.T, strict=True)])
    np.testing.assert_allclose(spectrum.solve(R, shifts), expected, atol=1e-12)


def test_with_a_bound_scale_and_mu_are_the_papers() -> None:
    """C_1 is X_1 times all rows, mu is 4 b sqrt(ln(3 d / p) / n) times all rows, and (lambda + mu) I - C_1 is not changed."""
    X, samples, b = rows(50, 8), 700, 30.0
    spectrum = bounded_spectrum(Rows(X), samples, b)
    C = samples * X.T @ X / 50
    assert spectrum.mu == pytest.approx(samples * 4 * b * np.sqrt(np.log(3 * 8 / 0.1) / 50))
    np.testing.assert_allclose(spectrum.values, np.linalg.eigvalsh(C)[::-1])
    shift = np.linalg.eigvalsh(C)[-1] + 0.01 * spectrum.mu  # nearer than mu: an estimated mu would be the least difference
    inverse = spectrum.solve(np.eye(8), np.full(8, shift))
    np.testing.assert_allclose(inverse, np.linalg.inv(shift * np.eye(8) - C), rtol=1e-8, atol=1e-14)


def test_solve_stays_positive_below_the_spectrum() -> None:
    """A shift inside the spectrum: the operator is positive all the same."""
    spectrum = spectrum_of(Rows(rows(50, 8)), 1.0)
    inverse = spectrum.solve(np.eye(8), np.full(8, float(spectrum.values[2])))
    assert np.linalg.eigvalsh((inverse + inverse.T) / 2)[0] > 0


@pytest.mark.parametrize("n", [40, 41])
@pytest.mark.parametrize("many_features", [False, True])
def test_half_distance(n: int, many_features: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half the spectral norm of the difference of twice the halves' scatters; dense, iterated and sparse."""
    X = rows(n, 12)
    order = np.random.default_rng(0).permutation(n)
    one, other = X[order[::2]], X[order[1::2]]
    expected = np.linalg.norm(n / len(one) * one.T @ one - n / len(other) * other.T @ other, 2) / 2
    if many_features:
        monkeypatch.setattr(preconditioner, "DENSE_SIDE", 4)
    tolerance = 0.05 if many_features else 1e-12
    assert half_distance(Rows(X)) == pytest.approx(expected, rel=tolerance)
    assert half_distance(Rows(scipy.sparse.csr_matrix(X))) == pytest.approx(expected, rel=tolerance)
    assert half_distance(Rows(X[:1])) == pytest.approx(np.sum(X[0] ** 2))
    assert half_distance(Rows(np.zeros((4, 12)))) == 0.0
    assert half_distance(Rows(np.ones((4, 12)))) == pytest.approx(0.0, abs=1e-12)


def test_part_of_the_spectrum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large site the leading eigenpairs and the mean of the others make up the trace."""
    monkeypatch.setattr(preconditioner, "DENSE_SIDE", 5)
    monkeypatch.setattr(preconditioner, "MOST_PAIRS", 4)
    spectrum = spectrum_of(Rows(rows(60, 12)), 3.0)
    assert len(spectrum.values) == 4
    assert spectrum.values.sum() + 8 * spectrum.rest == pytest.approx(3.0)
