"""Scores of rows with missing features, and their correction for shrinkage."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from scipy.linalg import block_diag

from eigenpact.numerics.projection import scores_of, without_shrinkage

RNG = np.random.default_rng(3)


def problem(d: int = 12, k: int = 3, n: int = 40, share: float = 0.3) -> tuple[np.ndarray, ...]:
    """Orthonormal components (d x k), rows (n x d), and which of their entries are there."""
    Z = np.linalg.qr(RNG.normal(size=(d, k)))[0]
    return Z, RNG.normal(size=(n, d)), RNG.random((n, d)) > share


def test_scores_are_those_of_numpys_least_squares():
    Z, Y, seen = problem()
    found = scores_of(np.where(seen, Y, 0.0), seen, Z, np.full(3, 4.0), 0.5)
    for i in range(len(Y)):
        at = seen[i]
        expected, left, _, _ = np.linalg.lstsq(Z[at], Y[i, at], rcond=None)
        assert np.allclose(found.scores[i], expected, atol=1e-9)
        assert np.isclose(found.residual[i], left[0])
        assert np.allclose(found.covariance[found.pattern[i]], 0.5 * np.linalg.inv(Z[at].T @ Z[at]), rtol=1e-8)
        assert found.observed[i] == at.sum()
    assert not found.by_prior.any()


def test_whole_rows_are_projected_and_have_no_error_of_missing_entries():
    Z, Y, _ = problem()
    found = scores_of(Y, np.ones(Y.shape, dtype=bool), Z, np.full(3, 4.0), 0.5)
    assert found.scores.tobytes() == (Y @ Z).tobytes()
    assert np.all(found.missing == 0)
    assert len(found.covariance) == 1


def test_rows_with_the_same_features_share_a_pattern():
    Z, Y, seen = problem(n=60)
    seen = seen[np.arange(60) % 4]
    found = scores_of(np.where(seen, Y, 0.0), seen, Z, np.full(3, 4.0), 0.5)
    assert len(found.covariance) == 4
    assert all(np.array_equal(seen[found.pattern == p], seen[found.pattern == p][:1].repeat(15, 0)) for p in range(4))


@pytest.mark.parametrize("noise", [0.5, 0.0])
def test_too_few_features_give_the_posterior_of_the_gaussian_model(noise: float):
    """Against the conditional distribution of the joint Gaussian, by its covariance matrix."""
    Z, Y, _ = problem(n=1)
    variances = np.array([9.0, 4.0, 2.0])
    seen = np.zeros((1, 12), dtype=bool)
    seen[0, [1, 7]] = True
    found = scores_of(np.where(seen, Y, 0.0), seen, Z, variances, noise)
    P = np.diag(variances - noise)
    joint = Z @ P @ Z.T + noise * np.eye(12)
    at = seen[0]
    gain = P @ Z[at].T @ np.linalg.inv(joint[np.ix_(at, at)])
    assert found.by_prior.tolist() == [True]
    assert np.allclose(found.scores[0], gain @ Y[0, at])
    assert np.allclose(found.covariance[0], P - gain @ Z[at] @ P)


def test_the_error_of_the_whole_rows_score_is_that_of_the_gaussian_model():
    """By the covariance of (whole score - given score), which is linear in t and e."""
    Z, _, seen = problem(n=6, share=0.4)
    seen[-1] = False
    seen[-1, :2] = True
    variances, noise = np.array([9.0, 4.0, 2.0]), 0.5
    found = scores_of(np.zeros(seen.shape), seen, Z, variances, noise)
    for i in range(6):
        p = found.pattern[i]
        off = found.solution[p] @ Z.T * seen[i] - Z.T  # of a row y = Z t + e
        spread = Z @ np.diag(variances - noise) @ Z.T + noise * np.eye(12)
        assert np.allclose(found.missing[p], off @ spread @ off.T, atol=1e-9)
    assert found.by_prior[found.pattern].tolist() == [False] * 5 + [True]


def test_nothing_observed_gives_zero_and_the_prior():
    Z, _, _ = problem(n=1)
    found = scores_of(np.zeros((1, 12)), np.zeros((1, 12), dtype=bool), Z, np.array([9.0, 4.0, 2.0]), 0.5)
    assert np.all(found.scores == 0)
    assert np.allclose(found.covariance[0], np.diag([8.5, 3.5, 1.5]))


def test_the_correction_is_the_decomposition_with_the_row_in_it():
    """Where rows have no variance outside the components, adding a row and turning back is exact: by numpy's and scipy's own."""
    n, d, k = 30, 50, 3
    U, Z = np.linalg.qr(RNG.normal(size=(n, k)))[0], np.linalg.qr(RNG.normal(size=(d, k)))[0]
    lengths = np.array([40.0, 30.0, 25.0])
    X = U * lengths @ Z.T
    y = RNG.normal(size=d)
    scores, residual = y @ Z, np.sum((y - Z @ (Z.T @ y)) ** 2)
    found, _ = without_shrinkage(scores[None], np.array([residual]), lengths, n, d, 0.0)
    _, _, Vt = np.linalg.svd(np.vstack([X, y]), full_matrices=False)
    before, after = U * lengths, np.vstack([X, y]) @ Vt[:k].T
    R, size = scipy.linalg.orthogonal_procrustes(after[:n], before)
    size /= np.sum(after[:n] ** 2)
    assert np.allclose(found[0], size * after[n] @ R)


def test_components_that_are_no_larger_than_noise_keep_their_scores():
    lengths = np.array([100.0, 12.0])
    scores, stretched = without_shrinkage(np.array([[5.0, 1.0]]), np.array([100.0]), lengths, 100, 100, 1.0)
    assert scores[0, 1] == 1.0
    assert stretched[0, 1] == 1.0
    assert 5.0 < scores[0, 0] < 5.1


def test_features_without_loadings_do_not_count():
    Z, Y, seen = problem()
    wider = block_diag(Z, np.zeros((2, 0)))
    other = np.hstack([seen, np.zeros((len(seen), 2), dtype=bool)])
    found = scores_of(np.where(other, np.hstack([Y, np.ones((len(Y), 2))]), 0.0), other, wider, np.full(3, 4.0), 0.5)
    plain = scores_of(np.where(seen, Y, 0.0), seen, Z, np.full(3, 4.0), 0.5)
    assert np.allclose(found.scores, plain.scores)
    assert np.array_equal(found.observed, plain.observed)
