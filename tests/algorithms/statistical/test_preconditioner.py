"""One site's rows as a preconditioner: inverse, distance and Lemma 6, against dense matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from eigenpact.algorithms.statistical import preconditioner
from eigenpact.algorithms.statistical.preconditioner import Spectrum, half_distance, spectrum_of
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


@pytest.mark.parametrize("seed", range(5))
def test_lemma_6(seed: int) -> None:
    """With mu >= ||C - C_1||, the preconditioned matrix has condition number at most 1 + 2 mu / (lambda - lambda_1)."""
    rng = np.random.default_rng(seed)
    X = rows(400, 15, seed)
    C, C_1 = X.T @ X / 400, X[:100].T @ X[:100] / 100
    mu, top = np.linalg.norm(C - C_1, 2), np.linalg.eigvalsh(C)[-1]
    values, V = np.linalg.eigh(C_1)
    spectrum = Spectrum(V[:, ::-1], values[::-1], 0.0, float(mu))
    for distance in rng.uniform(0.01, 1, size=4):
        shift = top + distance
        inverse = spectrum.solve(np.eye(15), np.full(15, shift + mu))
        eigenvalues = np.linalg.eigvals(inverse @ (shift * np.eye(15) - C)).real
        assert eigenvalues.max() <= 1 + 1e-10
        assert eigenvalues.min() >= distance / (distance + 2 * mu) * (1 - 1e-10)
        assert eigenvalues.max() / eigenvalues.min() <= 1 + 2 * mu / distance
