"""The personalized PCA paper's theorems, propositions and lemmas as numbers; each check is also seen to fail where it must.

Equation numbers are the paper's.  Where its text is garbled, the constant is the one that its proof gives.
"""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.datasets import personalized_problem
from eigenpact.numerics.linalg import polar_factor, q_factor
from eigenpact.reproduce.personalized.fitting import distance2, fitted, subspace_error


def orthonormal(rng, d, r):
    return np.linalg.qr(rng.standard_normal((d, r)))[0]


def covariances(sites):
    return [X.T @ X / len(X) for X in sites.values()]


def parts(pca):
    return pca.components_.T, [pca.local_components_[site].T for site in pca.sites_]


# -- Theorem 1: the statistical error (12) -----------------------------------------------------------


def spiked(seed, rows, aligned=False):
    """Population covariances of one global and one local direction of variance 3 and 2, noise .5, and what rows of them give.

    Returns sites, Sigma_i, U, V_i and the eigengap; ``aligned`` gives all sites one local direction.
    """
    rng = np.random.default_rng(seed)
    W = orthonormal(rng, 6, 6)
    U, rest = W[:, :1], W[:, 1:]
    V = [rest @ (np.eye(5, 1) if aligned else orthonormal(rng, 5, 1)) for _ in range(8)]
    Sigma = [0.5 * np.eye(6) + 2.5 * U @ U.T + 1.5 * v @ v.T for v in V]
    sites = {f"site{i}": rng.multivariate_normal(np.zeros(6), s, size=rows, method="cholesky") for i, s in enumerate(Sigma)}
    return sites, Sigma, U, V, 1.5


def theorem1(sites, Sigma, U, V, delta, found, theta=None):
    """(12): squared errors of the parts found are at most 8 / (theta delta^2) times the mean of ||Sigma_i - S_i||_F^2."""
    if theta is None:
        theta = 1 - np.linalg.eigvalsh(np.mean([v @ v.T for v in V], axis=0))[-1]
    off = np.mean([np.sum((s - t) ** 2) for s, t in zip(Sigma, covariances(sites), strict=True)])
    error = distance2(found[0], U) + np.mean([distance2(a, b) for a, b in zip(found[1], V, strict=True)])
    return bool(error * theta * delta**2 <= 8 * off)


@pytest.mark.parametrize("seed", range(3))
def test_theorem_1_bounds_the_statistical_error(seed):
    for rows in (30, 300, 3000):
        sites, *truth = spiked(seed, rows)
        assert theorem1(sites, *truth, parts(fitted(sites, 1, 1, seed, tol=1e-7)))
    far = fitted(sites, 1, 1, seed, solver=ep.solvers.PerPCA(start="random"), max_rounds=2)
    assert not theorem1(sites, *truth, parts(far))  # no optimum of (7)


def test_theorem_1_needs_misalignment():
    """With one local direction everywhere U and V_i may change places at the optimum: no positive theta makes (12) true."""
    sites, Sigma, U, V, delta = spiked(0, 3000, aligned=True)
    exact = {name: np.sqrt(6) * np.linalg.cholesky(s).T for name, s in zip(sites, Sigma, strict=True)}
    swapped = V[0], [U] * 8
    assert objective(Sigma, *swapped) == pytest.approx(objective(Sigma, U, V), rel=1e-12)
    assert theorem1(exact, Sigma, U, V, delta, (U, V), theta=0.01)
    assert not theorem1(exact, Sigma, U, V, delta, swapped, theta=0.01)


# -- Theorem 8 and Lemma 9: PerPCA comes to rest -----------------------------------------------------


def iterates(sites, rounds, step, r1=1, r2=2):
    """(U, V_i) of rounds 1, 2, ... of choice 1 from one random start."""
    solver = ep.solvers.PerPCA(step=step, start="random")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            parts(fitted(sites, r1, r2, 3, solver=solver, tol=0.0, max_rounds=k, misalignment=False))
            for k in range(1, rounds + 1)
        ]


def objective(S, U, V):
    """f of (9), with its halves."""
    return sum(np.trace(U.T @ s @ U) + np.trace(v.T @ s @ v) for s, v in zip(S, V, strict=True)) / 2


def violation(S, U, V):
    """N ||mean of the global gradients||^2 + sum of ||local gradients||^2: what (24) says is zero."""
    rest = [np.eye(len(U)) - U @ U.T - v @ v.T for v in V]
    shared = np.mean([P @ s @ U for P, s in zip(rest, S, strict=True)], axis=0)
    return len(S) * np.sum(shared**2) + sum(np.sum((P @ s @ v) ** 2) for P, s, v in zip(rest, S, V, strict=True))


def lemma9(S, steps, eta):
    """(64): every round f rises by at least eta / 2 times the violation."""
    f = [objective(S, U, V) for U, V in steps]
    least = [eta / 2 * violation(S, U, V) for U, V in steps]
    return all(after - before >= gain - 1e-12 for before, after, gain in zip(f, f[1:], least, strict=False))


def theorem8(S, steps, eta):
    """The least violation of R rounds is at most 2 (f after them - f before) / (R eta)."""
    R = len(steps) - 1
    risen = objective(S, *steps[-1]) - objective(S, *steps[0])
    return min(violation(S, U, V) for U, V in steps[:-1]) <= 2 * risen / (R * eta)


def test_theorem_8_and_lemma_9_hold_for_a_short_step_and_not_for_a_long_one():
    sites = personalized_problem(4, 7, 1, 2, variances=(2.0, 1.0, 0.1), rows=60, seed=1).sites
    S = covariances(sites)
    largest = max(np.linalg.eigvalsh(s)[-1] for s in S)
    short, long = 0.5 / (largest * np.sqrt(2)), 6.0 / largest
    steps = iterates(sites, 25, short)
    assert lemma9(S, steps, short)
    assert theorem8(S, steps, short)
    jumps = iterates(sites, 25, long)
    assert not lemma9(S, jumps, long)
    assert not theorem8(S, jumps, long)


# -- Theorem 10, Lemma 12: linear convergence near the optimum ---------------------------------------


def two_projectors(theta):
    """Two noiseless sites with covariances U U^T + V_i V_i^T in three dimensions: rows, covariances, U and V_i."""
    half = np.arcsin(np.sqrt(theta))
    U, V = np.eye(3, 1), [np.array([[0.0], [np.cos(a)], [np.sin(a)]]) for a in (half, -half)]
    sites = {f"site{i}": np.sqrt(2) * np.concatenate([U, v], axis=1).T for i, v in enumerate(V)}
    return sites, covariances(sites), U, V


def gaps(theta, step, rounds=30):
    """f of the optimum minus f by round."""
    sites, S, U, V = two_projectors(theta)
    return [objective(S, U, V) - objective(S, *pair) for pair in iterates(sites, rounds, step, 1, 1)]


def theorem10(found, eta, theta, mu=1.0):
    """Near the optimum a round takes at least the share eta mu theta / 32 of the gap."""
    near = [gap for gap in found if 1e-13 < gap < 0.05]
    return len(near) > 5 and all(after <= (1 - eta * mu * theta / 32) * before for before, after in pairwise(near))


def test_theorem_10_converges_linearly_and_faster_with_theta():
    slow, fast = gaps(0.1, 0.3), gaps(0.4, 0.3)
    assert theorem10(slow, 0.3, 0.1)
    assert theorem10(fast, 0.3, 0.4)
    assert fast[-1] < slow[-1]
    assert not theorem10(gaps(0.4, 3.5), 3.5, 0.4)  # a step beyond 2 / lambda_1
    assert not theorem10(slow, 0.3, 0.1, mu=500.0)  # an eigenvalue that the covariances do not have


def lemma12(S, U, V, gap, theta, mu=1.0):
    """The Polyak-Lojasiewicz inequality: the violation is at least mu theta / 16 times the gap."""
    return violation(S, U, V) >= mu * theta / 16 * gap


def test_lemma_12_bounds_the_gap_near_the_optimum_only():
    _, S, best, V = two_projectors(0.3)
    rng = np.random.default_rng(0)
    for _ in range(50):
        U = np.linalg.qr(best + 0.05 * rng.standard_normal((3, 1)))[0]
        near = [np.linalg.qr((np.eye(3) - U @ U.T) @ (v + 0.05 * rng.standard_normal((3, 1))))[0] for v in V]
        assert lemma12(S, U, near, objective(S, best, V) - objective(S, U, near), 0.3)
    saddle = np.eye(3)[:, 1:2], [np.eye(3)[:, 2:]] * 2  # the plane of the local directions
    assert not lemma12(S, *saddle, objective(S, best, V) - objective(S, *saddle), 0.3)


def test_corollary_11_enough_rounds_reach_the_statistical_error():
    problem = personalized_problem(6, 8, 1, 2, variances=(2.0, 2.0, 0.1), rows=400, seed=0)
    solver = ep.solvers.PerPCA(start="covariance")
    best = subspace_error(fitted(problem.sites, 1, 2, 0, tol=1e-7), problem)[0]
    few, enough = (
        subspace_error(fitted(problem.sites, 1, 2, 0, solver=solver, tol=0.0, max_rounds=k, misalignment=False), problem)[0]
        for k in (4, 150)
    )
    assert enough < 2 * best < few


# -- Propositions 6 and 7: generalized retractions ---------------------------------------------------

M, RADIUS = 2.0, 0.25
"""M_1 = M_2 and M_3 of Definition 5, which asks only that there be such constants."""


def generalized_retraction(retract):
    """Definition 5 for xi of all sizes up to ``RADIUS``: orthonormal, the same span, and U + P_T(xi) to second order."""
    rng = np.random.default_rng(0)
    for size in (RADIUS, 1e-2, 1e-4):
        for _ in range(20):
            U, xi = orthonormal(rng, 6, 3), rng.standard_normal((6, 3))
            normal = U @ (U.T @ xi + xi.T @ U) / 2
            tangent = xi - normal
            xi = size * (tangent + size * normal) / np.linalg.norm(tangent + size * normal)  # both terms of the bound matter
            normal = U @ (U.T @ xi + xi.T @ U) / 2
            tangent = xi - normal
            Q = retract(U + xi)
            spans = np.linalg.norm(Q @ (Q.T @ (U + xi)) - (U + xi)) < 1e-12
            away = np.linalg.norm(Q - U - tangent)
            bound = M * np.sum(tangent**2) + M * np.linalg.norm(normal)
            if not (spans and np.allclose(Q.T @ Q, np.eye(3), atol=1e-12) and away <= bound + 1e-14):
                return False
    return True


def test_propositions_6_and_7_both_retractions_are_generalized():
    assert generalized_retraction(polar_factor)
    assert generalized_retraction(q_factor)
    assert not generalized_retraction(lambda A: np.linalg.svd(A, full_matrices=False)[0])  # rotated within the span
    assert not generalized_retraction(lambda A: -q_factor(A))  # the Q factor with the other signs
    assert not generalized_retraction(lambda A: A / np.linalg.norm(A, axis=0))  # columns of length 1, not orthogonal
    assert not generalized_retraction(lambda A: polar_factor(A + 1e-3))  # another span


def test_equations_19_and_20_the_polar_factor_is_the_nearest():
    rng = np.random.default_rng(1)
    U, xi = orthonormal(rng, 6, 3), 0.3 * rng.standard_normal((6, 3))
    values, vectors = np.linalg.eigh(np.eye(3) + xi.T @ U + U.T @ xi + xi.T @ xi)
    printed = (U + xi) @ (vectors / np.sqrt(values)) @ vectors.T
    np.testing.assert_allclose(polar_factor(U + xi), printed, atol=1e-12)

    def away(Q):
        return np.linalg.norm(Q - U - xi)

    others = [polar_factor(printed + 0.1 * rng.standard_normal((6, 3))) for _ in range(50)]
    assert all(away(printed) < away(Q) for Q in [q_factor(U + xi), *others])


# -- Lemmas ------------------------------------------------------------------------------------------


def lemma13(U, V, U_other, V_other, theta):
    """(35) and (36): how far the sums of projectors are from one another, and how far the projectors themselves."""
    apart = len(V) * distance2(U, U_other) / 2 + sum(distance2(a, b) / 2 for a, b in zip(V, V_other, strict=True))
    pairs = [(np.concatenate([U, a], axis=1), np.concatenate([U_other, b], axis=1)) for a, b in zip(V, V_other, strict=True)]
    together = sum(distance2(A, B) / 2 for A, B in pairs)
    return theta / 2 * apart - 1e-12 <= together <= apart + 1e-12


def test_lemmas_13_and_27_sums_of_projectors_tell_parts_apart_if_theta_is_positive():
    rng = np.random.default_rng(0)

    def draw():
        W = orthonormal(rng, 7, 7)
        return W[:, :2], [W[:, 2:] @ orthonormal(rng, 5, 2) for _ in range(6)]

    for _ in range(30):
        U, V = draw()
        theta = 1 - np.linalg.eigvalsh(np.mean([v @ v.T for v in V], axis=0))[-1]
        assert lemma13(U, V, *draw(), theta)
    U, (v, *_) = draw()
    assert not lemma13(U, [v] * 6, v, [U] * 6, 0.1)  # theta = 0: U and V may change places


def lyapunov_gradients(S, U, V):
    """Gradients in U and V of L_1 + L_2, (50) to (52)."""
    P, Q, one = U @ U.T, V @ V.T, np.eye(len(U))
    in_V = P @ S @ V + S @ P @ V - P @ Q @ S @ V - S @ Q @ P @ V - S @ V
    return np.concatenate([-(one - Q) @ S @ (one - Q) @ U, in_V], axis=1)


def lemma14(L):
    """Gradients of the Lyapunov functions are Lipschitz with L times the largest eigenvalue, where U and V have norms up to 1."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        S = np.diag(rng.uniform(0, 1, 6))
        U, V = orthonormal(rng, 6, 1), rng.uniform(0.5, 1) * orthonormal(rng, 6, 2)
        near = rng.choice([0.01, 1.0])
        U2, V2 = polar_factor(U + near * rng.standard_normal((6, 1))), polar_factor(V + near * rng.standard_normal((6, 2)))
        change = np.linalg.norm(lyapunov_gradients(S, U, V) - lyapunov_gradients(S, U2, V2))
        if change > L * S.max() * np.hypot(np.linalg.norm(U - U2), np.linalg.norm(V - V2)):
            return False
    return True


def test_lemma_14_gradients_are_lipschitz():
    assert lemma14(9 * np.sqrt(2))
    assert not lemma14(0.5)


def lemmas_24_to_26(U, Q):
    """||I - M||_F <= t, tr (I - M)^k <= t^k and t <= ||U - U*||^2 <= 2 t, where M = U^T Q Q^T U and t = tr (I - M)."""
    values = 1 - np.linalg.svd(U.T @ Q, compute_uv=False) ** 2
    t = values.sum()
    nearest = Q @ polar_factor(Q.T @ U)
    moved = np.sum((U - nearest) ** 2)
    powers = all((values**k).sum() <= t**k + 1e-12 for k in (1, 2, 3))
    return bool(np.sqrt((values**2).sum()) <= t + 1e-12 and powers and t <= moved + 1e-12 and moved <= 2 * t + 1e-12)


def test_lemmas_24_to_26_projections_of_a_basis():
    rng = np.random.default_rng(0)
    for _ in range(30):
        U = orthonormal(rng, 6, 2)
        assert lemmas_24_to_26(U, polar_factor(U + 0.1 * rng.standard_normal((6, 2))))
    assert not lemmas_24_to_26(2 * U, U)  # not orthonormal


def test_lemmas_22_and_23_traces_and_norms_of_products():
    rng = np.random.default_rng(0)
    for _ in range(30):
        A, B = (rng.standard_normal((5, 5)) for _ in range(2))
        assert np.trace(A @ A.T @ B @ B.T) >= 0
        assert np.linalg.norm(A @ B) <= np.linalg.norm(A, 2) * np.linalg.norm(B)
        assert np.linalg.norm(A @ B) <= np.linalg.norm(A) * np.linalg.norm(B, 2)
    assert np.trace(np.diag([1.0, -3.0]) @ np.diag([1.0, 1.0])) < 0  # not positive
    assert np.linalg.norm(np.eye(5) @ np.eye(5)) > np.linalg.norm(np.eye(5), 2) * np.linalg.norm(
        np.eye(5), 2
    )  # no Frobenius norm
