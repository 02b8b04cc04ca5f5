"""Leading eigenvectors by block Krylov against LAPACK's, and where LAPACK is left to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.numerics.certificate import TIE
from eigenpact.numerics.linalg import top_eigenpairs
from eigenpact.numerics.metrics import largest_sine
from eigenpact.numerics.proved import MANY, proved_eigenpairs

Matrix = np.ndarray[Any, Any]


def with_values(values: Matrix, seed: int = 0) -> Matrix:
    """A symmetric matrix with these eigenvalues, in a random basis."""
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(values), len(values))))[0]
    return (turn * values) @ turn.T


@pytest.mark.parametrize("first", [1.0, 1e3])
def test_the_same_as_lapack(first: float) -> None:
    """And the next value is below the bound."""
    values = (1.0 + np.arange(MANY)) ** -0.7
    values[0] = first
    C, k = with_values(values), 6
    found = proved_eigenpairs(C, k, 0)
    assert found is not None
    assert largest_sine(found[1], top_eigenpairs(C, k)[1]) < 1e-11
    np.testing.assert_allclose(found[0][:k], values[:k], rtol=1e-9)
    assert values[k] <= found[0][k] < values[k - 1]


def test_a_residual_that_is_allowed_misses_no_direction() -> None:
    """Fewer products, a larger residual, the same eigenvalues to its square, and the bound holds."""
    values = (1.0 + np.arange(MANY)) ** -0.7
    C, k, allowed = with_values(values), 6, 1e-3
    found = proved_eigenpairs(C, k, 0, allowed=allowed)
    assert found is not None
    residual = np.linalg.norm(C @ found[1] - found[1] * found[0][:k])
    assert 1e-10 < residual <= allowed
    np.testing.assert_allclose(found[0][:k], values[:k], rtol=1e-4)
    assert values[k] <= found[0][k] < values[k - 1]
    assert largest_sine(found[1], top_eigenpairs(C, k)[1]) <= residual / (found[0][k - 1] - found[0][k])


@pytest.mark.parametrize("seed", range(4))
def test_however_much_is_allowed_the_next_value_is_not_called_tied(seed: int) -> None:
    """It is beside a residual of a sixteenth of the gap, which one of these had."""
    gap, k = 1e-4, 3
    values = np.concatenate([[3, 2.5, 2.0, 2.0 * (1 - gap)], np.linspace(1, 0.1, MANY + 196)])
    found = proved_eigenpairs(np.diag(values), k, seed, allowed=1e9)
    assert found is not None
    residual = np.linalg.norm(values[:, None] * found[1] - found[1] * found[0][:k], axis=0)
    assert residual[-1] * TIE <= found[0][k - 1] - found[0][k]


@pytest.mark.parametrize("what", ["small", "tied", "flat", "many", "graded"])
def test_left_to_lapack(what: str) -> None:
    values = {
        "small": (1.0 + np.arange(MANY // 2)) ** -0.7,
        "tied": np.concatenate([[3.0, 2.0, 2.0], np.linspace(1, 0.1, MANY - 3)]),
        "flat": np.linspace(1, 0.999, MANY),
        "graded": np.concatenate([[1e6], (2.0 + np.arange(MANY - 1)) ** -0.7]),
        "many": (1.0 + np.arange(MANY)) ** -0.7,
    }[what]
    assert proved_eigenpairs(np.diag(values), MANY // 10 if what == "many" else 2, 0) is None


def test_gram_of_many_features() -> None:
    """The angle that is told is true."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, MANY + 100)) * (1.0 + np.arange(MANY + 100)) ** -0.6 + 1
    Y = X - X.mean(axis=0)
    exact = np.linalg.svd(Y, full_matrices=False)[2]
    pca = ep.FederatedPCA(4, solver="gram").fit({"A": X[:100], "B": X[100:]})
    assert pca.converged_
    sine = largest_sine(pca.components_.T, exact[:4].T)
    assert sine < 1e-11
    assert sine < 10 * pca.angle_estimate_


def test_gram_of_many_features_is_as_precise_as_tol_asks() -> None:
    """And says so; the angle that is told is that of the coarser answer."""
    X = np.random.default_rng(0).normal(size=(300, MANY + 100)) * (1.0 + np.arange(MANY + 100)) ** -0.6 + 1
    exact = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2]
    fits = [ep.FederatedPCA(4, solver="gram", tol=tol).fit({"A": X[:100], "B": X[100:]}) for tol in (1e-4, None)]
    coarse, fine = ([pca.history_[-1].kkt, largest_sine(pca.components_.T, exact[:4].T)] for pca in fits)
    assert fine[0] < 1e-14 < coarse[0] <= 1e-4
    assert fits[0].converged_
    assert "as precisely as tol asks" in fits[0].stop_reason_
    assert "exact" in fits[1].stop_reason_
    assert fine[1] < coarse[1] <= fits[0].angle_estimate_
