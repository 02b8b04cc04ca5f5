"""Scores, likelihood, gradient and EM step of rows with holes, against the plainest Gaussian formulas in numpy and scipy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from eigenpact.errors import InputError
from eigenpact.numerics.holes import filled, loadings, scores_with_holes
from eigenpact.numerics.patterns import patterns
from eigenpact.numerics.ppca import Frame, Model, em_step, expected_scatter_action, likelihood, row_likelihoods
from eigenpact.numerics.preparation import Step

Array = np.ndarray[Any, Any]


def problem(seed: int = 0, n: int = 40, d: int = 7, k: int = 2) -> tuple[Array, Array, float]:
    rng = np.random.default_rng(seed)
    Y = rng.normal(size=(n, d)) * rng.uniform(1, 3, size=d)
    Y[rng.random(Y.shape) < 0.3] = np.nan
    Y[0], Y[1, 1:] = np.nan, np.nan  # nothing, and one entry, is there
    Y[3:9] = Y[2]
    return Y, rng.normal(size=(d, k)), 0.7


def conditional(y: Array, W: Array, noise: float) -> tuple[Array, Array]:
    """Mean and covariance of a whole row, given what is seen of it."""
    C, o = W @ W.T + noise * np.eye(len(W)), ~np.isnan(y)
    gain = C[:, o] @ np.linalg.pinv(C[np.ix_(o, o)])
    return gain @ y[o], C - gain @ C[o]


def test_scores_are_those_of_the_conditional_gaussian() -> None:
    Y, W, noise = problem()
    found = scores_with_holes(Y, ~np.isnan(Y), W, noise)
    for i, y in enumerate(Y):
        o = ~np.isnan(y)
        joint = np.block([[np.eye(2), W[o].T], [W[o], W[o] @ W[o].T + noise * np.eye(o.sum())]])
        gain = joint[:2, 2:] @ np.linalg.pinv(joint[2:, 2:])
        np.testing.assert_allclose(found.means[i], gain @ y[o], atol=1e-12)
        np.testing.assert_allclose(noise * found.inverses[found.pattern[i]], np.eye(2) - gain @ joint[2:, :2], atol=1e-12)


def test_without_noise_scores_are_least_squares() -> None:
    Y, W, _ = problem()
    found = scores_with_holes(Y, ~np.isnan(Y), W, 0.0).means
    for y, t in zip(Y, found, strict=True):
        o = ~np.isnan(y)
        np.testing.assert_allclose(t, np.linalg.lstsq(W[o], y[o])[0] if o.any() else 0.0, atol=1e-10)


def test_rows_with_the_same_holes_share_a_pattern() -> None:
    seen = np.random.default_rng(0).random((50, 3)) < 0.5
    first, pattern = patterns(seen)
    assert len(first) == len(np.unique(seen, axis=0))
    np.testing.assert_array_equal(seen[first][pattern], seen)


def test_filled_rows_are_the_conditional_means_and_a_step_does_the_same() -> None:
    Y, W, noise = problem()
    wanted = np.array([np.where(np.isnan(y), conditional(y, W, noise)[0], y) for y in Y])
    np.testing.assert_allclose(filled(Y, W, noise), wanted, atol=1e-12)
    mean, scale = np.arange(7.0), np.linspace(1, 2, 7)
    step = Step("expect", {"W": W, "mean": mean, "scale": scale, "noise": np.array(noise)})
    np.testing.assert_allclose(step.apply(Y * scale + mean), wanted * scale + mean, atol=1e-12)
    with pytest.raises(InputError, match="array 'mean' of 'expect' has shape"):
        Step("expect", {"W": W, "mean": mean[:3], "scale": scale, "noise": np.array(noise)})


def test_likelihood_is_that_of_the_entries_that_are_there() -> None:
    Y, W, noise = problem()
    C = W @ W.T + noise * np.eye(len(W))
    rows = [0.0]  # of the first row nothing is there
    for y in Y[1:]:
        o = ~np.isnan(y)
        rows.append(multivariate_normal(np.zeros(o.sum()), C[np.ix_(o, o)]).logpdf(y[o]))
    np.testing.assert_allclose(row_likelihoods(Y, ~np.isnan(Y), W, noise), rows, rtol=1e-12, atol=1e-12)
    assert likelihood(Y, ~np.isnan(Y), W, noise).value == pytest.approx(sum(rows), rel=1e-13)


def value_and_gradient(Y: Array, theta: Array, k: int) -> tuple[float, Array]:
    model, seen = Model.of(theta, k), ~np.isnan(Y)
    found = likelihood(Y - model.mean, seen, model.W, model.noise)
    s = model.noise
    return found.value, Model(found.W / s, found.mean / s, (found.squares - s * seen.sum()) / (2 * s)).flat()


def test_the_gradient_is_the_slope() -> None:
    Y, W, noise = problem()
    theta = Model(W, np.linspace(-1, 1, 7), np.log(noise)).flat()
    _, gradient = value_and_gradient(Y, theta, 2)
    for i in range(len(theta)):
        e = 1e-5 * np.eye(len(theta))[i]
        slope = (value_and_gradient(Y, theta + e, 2)[0] - value_and_gradient(Y, theta - e, 2)[0]) / 2e-5
        assert slope == pytest.approx(gradient[i], rel=1e-6, abs=1e-6)


def expected_moments(Y: Array, model: Model) -> tuple[Array, Array]:
    """Sum of expected whole rows about the mean, and of their expected outer products."""
    both = [conditional(y - model.mean, model.W, model.noise) for y in Y]
    return sum(m for m, _ in both), sum(np.outer(m, m) + C for m, C in both)  # type: ignore[return-value]


def test_the_expected_scatter_is_that_of_whole_rows() -> None:
    Y, W, noise = problem()
    B = np.random.default_rng(1).normal(size=(7, 3))
    _, S = expected_moments(Y, Model(W, np.zeros(7), np.log(noise)))
    np.testing.assert_allclose(expected_scatter_action(Y, ~np.isnan(Y), W, noise, B), S @ B, rtol=1e-11)


@pytest.mark.parametrize("free_mean", [True, False])
def test_a_step_of_em_is_made_from_the_gradient_alone(free_mean: bool) -> None:
    """Against the M-step from sums of E[y], E[y y^T] over rows, one after the other."""
    Y, W, noise = problem()
    model = Model(W, np.linspace(-1, 1, 7), np.log(noise))
    n, d = Y.shape
    b, S = expected_moments(Y, model)
    inverse = np.linalg.inv(W.T @ W + noise * np.eye(2))
    F, scores = S @ W @ inverse, n * noise * inverse + inverse @ W.T @ S @ W @ inverse
    if free_mean:
        F, scores = np.column_stack([F, b]), np.block([[scores, (inverse @ W.T @ b)[:, None]], [b @ W @ inverse, np.array(n)]])
    found = F @ np.linalg.inv(scores)
    s = (np.trace(S) - np.sum(found * F)) / (n * d)
    value, gradient = value_and_gradient(Y, model.flat(), 2)
    stepped = em_step(model, Model.of(gradient, 2), n, free_mean)
    np.testing.assert_allclose(stepped.W, found[:, :2], rtol=1e-10)
    assert stepped.noise == pytest.approx(s, rel=1e-10)
    assert value_and_gradient(Y, stepped.flat(), 2)[0] > value
    if free_mean:
        np.testing.assert_allclose(stepped.mean, model.mean + found[:, 2], rtol=1e-10)


def test_a_frame_is_the_inverse_curvature_where_nothing_is_missing() -> None:
    """At the maximum, of whole rows: minus the Hessian times the frame is one, but where W only turns within itself."""
    rng, n, d, k = np.random.default_rng(3), 400, 5, 2
    Y = rng.normal(size=(n, d)) * np.array([6.0, 4.0, 2.0, 1.0, 0.5])
    Y -= Y.mean(axis=0)
    values, vectors = np.linalg.eigh(Y.T @ Y / n)
    values, vectors = values[::-1], vectors[:, ::-1]
    s = values[k:].mean()
    frame = Frame(vectors[:, :k], values[:k], vectors[:, k:], values[k:], s, np.full(d, float(n)), n, True)
    theta = Model(loadings(vectors[:, :k], values[:k], s), np.zeros(d), np.log(s)).flat()
    for _ in range(5):
        g = rng.normal(size=len(theta))
        way = frame(g)
        way[-1] = 0.0  # the noise, whose curvature is that of noise alone
        bent = -(value_and_gradient(Y, theta + 1e-5 * way, k)[1] - value_and_gradient(Y, theta - 1e-5 * way, k)[1]) / 2e-5
        again = frame(bent)
        np.testing.assert_allclose(again[:-1], way[:-1], rtol=1e-4, atol=1e-6 * np.abs(way).max())
