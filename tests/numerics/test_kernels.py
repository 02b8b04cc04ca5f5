"""Kernels and their features against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from eigenpact.numerics.kernels import Kernel, landmark_features, random_features


@pytest.mark.parametrize("far", [0.0, 1e6])
def test_rbf_is_that_of_distances(far: float) -> None:
    """However far from 0 the rows lie, and without changing them."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(30, 5)) + far, rng.normal(size=(20, 5)) + far
    before = X.copy(), Y.copy()
    np.testing.assert_allclose(Kernel("rbf", 0.3)(X, Y), np.exp(-0.3 * cdist(X, Y, "sqeuclidean")), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(Y, before[1])


def test_landmark_features_are_those_of_the_landmarks_given() -> None:
    """Their inner products are K(X, L) K(L, L)^-1 K(L, X), also for landmarks that were changed since the last call."""
    rng = np.random.default_rng(0)
    X, L, kernel = rng.normal(size=(30, 4)), rng.normal(size=(10, 4)), Kernel("rbf", 0.5)
    for other in (kernel, Kernel("rbf", 0.1)):
        for _ in range(2):
            F, K = landmark_features(other, X, L), other(X, L)
            np.testing.assert_allclose(F @ F.T, K @ np.linalg.solve(other(L, L), K.T), atol=1e-8)
            L += 0.5


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e5, 1e15])
def test_random_features_are_cosines_and_sines(size: float) -> None:
    """To an eps or two, for angles of any size, also where the tangent of half of them has a pole."""
    angles = np.random.default_rng(0).normal(size=(300, 1)) * size
    angles[:8, 0] = np.pi * np.array([0.0, 0.5, 1.0, 1.5, -1.0, 3.0, 7.0, 1e6])
    frequencies = np.linspace(-1.0, 1.0, 201)[:, None]
    exact = np.hstack([np.cos(angles * frequencies.T), np.sin(angles * frequencies.T)]) / np.sqrt(201)
    np.testing.assert_allclose(random_features(angles, frequencies), exact, rtol=0, atol=4 * np.finfo(float).eps)


def test_random_features_approximate_the_kernel() -> None:
    """A cosine and a sine of each frequency; squares are 1."""
    X, kernel = np.random.default_rng(0).normal(size=(20, 4)), Kernel("rbf", 0.2)
    F = random_features(X, kernel.frequencies(4, 4000, 0))
    np.testing.assert_allclose(F @ F.T, kernel(X, X), atol=0.05)
    np.testing.assert_allclose(np.sum(F * F, axis=1), 1.0, rtol=1e-12)


def test_single_precision_where_angles_allow_it() -> None:
    """Of many angles near each other: features then differ from exact ones by less than from the kernel.  Of others not."""
    rng, kernel = np.random.default_rng(0), Kernel("rbf", 1 / 600)
    X = rng.uniform(-1, 1, size=(60, 600))
    frequencies = kernel.frequencies(600, 512, 0)
    for far in (0.0, 1.0, 1e5):  # what rows share is taken out in double precision, where it must be
        found, wanted = kernel.random_features(X + far, 512, 0, exact=False), random_features(X + far, frequencies)
        assert found.dtype == np.float32
        assert 0 < np.abs(found - wanted).max() < 1e-5 / np.sqrt(512)
    one_far = np.concatenate([X, np.full((1, 600), 1e3)])
    for few_or_apart in (X[:40], one_far, 1e3 * X, 1e-6 * X, 1e160 * X):
        found = kernel.random_features(few_or_apart, 512, 0, exact=False)
        np.testing.assert_array_equal(found, random_features(few_or_apart, frequencies))
    np.testing.assert_array_equal(kernel.random_features(X, 512, 0), random_features(X, frequencies))
    assert Kernel("laplacian", 1 / 600).random_features(X, 512, 0, exact=False).dtype == np.float64  # some frequencies are large


@pytest.mark.parametrize("far", [0.0, 3.0, 30.0, 1e3, 1e5])
def test_features_in_single_precision_have_six_digits_however_far_rows_lie(far: float) -> None:
    """At thirty and more times their spread three were lost, and a fit of their components was said to have converged."""
    kernel, X = Kernel("rbf", 0.05), np.random.default_rng(0).normal(size=(2100, 8)) + far
    found, wanted = kernel.random_features(X, 1024, 0, exact=False), kernel.random_features(X, 1024, 0)
    assert found.dtype == np.float32
    assert np.abs(found - wanted).max() < 1e-5 / np.sqrt(1024)


@pytest.mark.parametrize("unit", [1e-60, 1e-42, 1e-15, 1e15, 1e39, 1e60])
def test_features_in_single_precision_do_not_depend_on_units(unit: float) -> None:
    """They were not numbers where single precision overflows, or has no digits near zero."""
    X = np.random.default_rng(0).normal(size=(2100, 8))
    found = Kernel("rbf", 0.05 / unit / unit).random_features(unit * X, 1024, 0, exact=False)
    assert np.abs(found - Kernel("rbf", 0.05).random_features(X, 1024, 0)).max() < 1e-5 / np.sqrt(1024)


def test_a_table_whose_squares_overflow_has_a_kernel_all_the_same() -> None:
    X = 1e160 * np.random.default_rng(0).normal(size=(5, 5))
    K = Kernel("rbf", 1e-320)(X, X)
    assert np.isfinite(K).all()
    np.testing.assert_allclose(np.diagonal(K), 1.0)


def test_kernel_of_a_table_with_itself_is_that_of_two_equal_tables() -> None:
    X, kernel = np.random.default_rng(0).normal(size=(40, 5)) + 1e3, Kernel("rbf", 0.3)
    K = kernel(X, X)
    np.testing.assert_allclose(K, kernel(X, X.copy()), rtol=0, atol=1e-14)
    np.testing.assert_allclose(K, K.T, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(np.diagonal(K), 1.0)
    assert kernel(X[:0], X[:0]).shape == (0, 0)


def test_landmarks_that_are_nearly_equal_have_features_all_the_same() -> None:
    """Where K(L, L) is nearly singular its Cholesky factor is not inverted: what rounding made of it has no part."""
    rng, kernel = np.random.default_rng(0), Kernel("rbf", 0.5)
    L = rng.normal(size=(10, 4))
    X = np.concatenate([L, rng.normal(size=(30, 4))])
    both = np.concatenate([L, L + 1e-9])
    F, once = landmark_features(kernel, X, both), landmark_features(kernel, X, L)
    np.testing.assert_allclose(F @ F.T, once @ once.T, atol=1e-6)
