"""The FAPS paper's propositions, lemmas and theorem, held against iterates of literal mode; each check is seen to fail.

n is the number of features, p of components, d of sites; C_i = A_i A_i^T.  Numbers are the paper's.  A check answers whether a
statement holds on a run; beside it stands a run, a constant or an assumption with which it must not.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.algorithms.consensus.faps import literal_step
from eigenpact.algorithms.consensus.subproblem import strictness
from eigenpact.numerics.linalg import orthonormalize
from eigenpact.privacy import Eavesdropper
from eigenpact.runtime import Site

pytestmark = pytest.mark.xdist_group("faps-theory")  # the runs are made once

Array = np.ndarray[Any, Any]
C1, C1_PRIME = 0.25, 2.0
"""The constants of (13) for which the iterates are checked."""


def perp(Z: Array) -> Array:
    return np.eye(len(Z)) - Z @ Z.T


def phi(C: Array, Y: Array) -> Array:
    """Lambda_i at Y (8)."""
    return -perp(Y) @ C @ Y @ Y.T - Y @ Y.T @ C @ perp(Y)


def apart(X: Array, Z: Array) -> float:
    """d_p."""
    return float(np.linalg.norm(X @ X.T - Z @ Z.T))


# -- runs of Algorithm 1 by the package's own function at a site --------------------------------------------------------------


@dataclass
class Step:
    """An iteration: X_i and Z before and after."""

    X: list[Array]
    Z: Array
    X_new: list[Array]
    Z_new: Array


@dataclass
class Run:
    """Iterates of Algorithm 1 with exact subproblems and penalties that stay as they are."""

    C: list[Array]
    beta: list[float]
    steps: list[Step]

    @property
    def looked_at(self) -> list[Step]:
        """A hundred steps or so: neighbours are much alike."""
        return self.steps[:: max(1, len(self.steps) // 100)]

    @cached_property
    def pooled(self) -> Array:
        return np.asarray(sum(self.C))

    @property
    def trace(self) -> float:
        """||A||_F^2."""
        return float(np.trace(self.pooled))

    @property
    def p(self) -> int:
        return int(self.steps[0].Z.shape[1])

    @property
    def sharing(self) -> float:
        """rho d."""
        return max(self.beta) / min(self.beta) * len(self.C)

    @property
    def sigma2(self) -> float:
        """The square of what the paper calls sigma with a bar below."""
        return 1 - 1 / (2 * self.sharing)

    @cached_property
    def largest(self) -> list[float]:
        """||A_i||_2^2."""
        return [float(np.linalg.eigvalsh(C)[-1]) for C in self.C]

    def sites(self) -> Iterator[tuple[Step, int]]:
        return ((step, i) for step in self.looked_at for i in range(len(self.C)))

    def H(self, step: Step, i: int) -> Array:
        """(12)."""
        return self.C[i] + phi(self.C[i], step.X[i]) + self.beta[i] * step.Z @ step.Z.T

    def decrease(self, step: Step, i: int) -> float:
        """h(X_i) - h(X_i^+)."""
        H, X, X_new = self.H(step, i), step.X[i], step.X_new[i]
        return float(np.trace(X_new.T @ H @ X_new) - np.trace(X.T @ H @ X)) / 2

    def Q(self, step: Step) -> Array:
        """(18)."""
        return np.asarray(sum(b * X @ X.T - phi(C, X) for b, X, C in zip(self.beta, step.X_new, self.C, strict=True)))

    def lagrangian(self, X: Sequence[Array], Z: Array, multipliers_at: Sequence[Array]) -> float:
        """(9), (10)."""
        total = 0.0
        for C, beta, X_i, Y in zip(self.C, self.beta, X, multipliers_at, strict=True):
            D = X_i @ X_i.T - Z @ Z.T
            total += float(-np.trace(X_i.T @ C @ X_i) / 2 - np.sum(phi(C, Y) * D) / 2 + beta / 4 * np.sum(D**2))
        return total

    @cached_property
    def levels(self) -> Array:
        """The Lagrangian before every step, and after the last."""
        last = self.steps[-1]
        before = [self.lagrangian(step.X, step.Z, step.X) for step in self.steps]
        return np.array([*before, self.lagrangian(last.X_new, last.Z_new, last.X_new)])

    @property
    def c2(self) -> float:
        """Of Lemma 12, which leaves it open: a quarter over a bound on the norm of Q."""
        return 0.25 / sum(b + 2 * largest for b, largest in zip(self.beta, self.largest, strict=True))

    @property
    def c4(self) -> float:
        pairs = zip(self.beta, self.largest, strict=True)
        return min(C1 * self.sigma2 * b / 4 - (1 + np.sqrt(2 * self.sharing)) / self.sharing * a for b, a in pairs)

    @property
    def c3(self) -> float:
        stiff = sum(b + 4 * a for b, a in zip(self.beta, self.largest, strict=True))
        return float((stiff / np.sqrt(2 * self.sharing * self.c4) + np.sqrt(1 / self.c2)) ** -2)

    def residual2(self, step: Step) -> float:
        """||R||_F^2."""
        return float(np.sum((perp(step.Z) @ self.pooled @ step.Z) ** 2))

    def distances2(self, step: Step) -> list[float]:
        """The squares of d_i."""
        return [apart(X, step.Z) ** 2 for X in step.X]

    @cached_property
    def smallest(self) -> Array:
        """The minimum of Theorem 8 for N = 1, 2, ..."""
        measured = [self.residual2(step) + float(np.mean(self.distances2(step))) for step in self.steps]
        return np.minimum.accumulate(measured)


def run(sites: dict[str, Array], penalties: Sequence[float], rounds: int, start: Array) -> Run:
    """Lines 3 to 10 of Algorithm 1 by ``literal_step``."""
    C = [X.T @ X for X in sites.values()]
    n, Z, X, steps = len(start), start, [start] * len(C), []
    kept = [{"mean": None, "scale": None, "own": np.zeros((2, n)), "largest": np.linalg.eigvalsh(S)[-1]} for S in C]
    for _ in range(rounds):
        replies = []
        for i, rows in enumerate(sites.values()):
            penalty = np.float64(0.0), np.float64(penalties[i]), np.bool_(False)
            replies.append(literal_step(Site("A", rows, kept[i]), Z, np.int64(2), *penalty, np.float64(strictness(len(C)))))
            kept[i] |= replies[-1].keep
        Z_new, X_new = orthonormalize(sum(reply.send[0] for reply in replies)), [reply.keep["X"] for reply in replies]
        steps.append(Step(X, Z, X_new, Z_new))
        X, Z = X_new, Z_new
    return Run(C, list(penalties), steps)


def assumption_6(p: int, d: int, c1: float = 0.25, c1_prime: float = 2.0, rho: float = 1.0, delta: float = 0.0) -> float:
    """omega of Assumption 6 (ii), as Appendix B gives it."""
    sigma = np.sqrt(1 - 1 / (2 * rho * d))
    return float(
        max(
            c1_prime,
            12 * rho * d * np.sqrt(p) / (c1 * sigma**2),
            4 * np.sqrt(2) * (1 + np.sqrt(2 * rho * d)) / (sigma - 2 * np.sqrt(rho * d) * delta),
            16 * rho * d * np.sqrt(p),
            4 * (1 + np.sqrt(2 * rho * d)) / (c1 * sigma**2 * rho * d),
        )
    )


def tiny_problem() -> dict[str, Array]:
    """Two sites, eight features, one leading direction."""
    rng = np.random.default_rng(1)
    long = np.array([4.0, 1, 1, 1, 1, 1, 1, 1])
    return {"A": rng.normal(size=(30, 8)) * long, "B": rng.normal(size=(40, 8)) * long * np.linspace(1, 0.5, 8)}


def pooled(sites: dict[str, Array]) -> Array:
    X = np.concatenate(list(sites.values()))
    X = X - X.mean(axis=0)
    return X.T @ X


def fit(sites: dict[str, Array], p: int, solver: ep.solvers.FAPS, **options: Any) -> ep.FederatedPCA:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ep.errors.NotConvergedWarning)
        return ep.FederatedPCA(p, solver=solver, random_state=0, **options).fit(sites)


def three_sites() -> dict[str, Array]:
    """Eight features, and three sites that prefer different directions."""
    rng = np.random.default_rng(0)
    lengths = np.linspace(3, 0.5, 8)[:, None]
    return {name: rng.normal(size=(30, 8)) @ (np.linalg.qr(rng.normal(size=(8, 8)))[0] * lengths) for name in "ABC"}


@pytest.fixture(scope="module")
def good() -> Run:
    """By Assumption 6 with rho = 1 and delta = 0, from halfway between the first eigenvector and the second."""
    sites = tiny_problem()
    C = sum(X.T @ X for X in sites.values())
    V, omega = np.linalg.eigh(C)[1][:, :-3:-1], assumption_6(p=1, d=2, c1=C1, c1_prime=C1_PRIME)
    start = (V[:, :1] + V[:, 1:]) / np.sqrt(2)
    return run(sites, [omega * np.trace(C)] * 2, 1500, start)


@pytest.fixture(scope="module")
def weak() -> Run:
    """Penalties of .05 lambda_1(C_i), far below what Assumption 6 asks for, where sites differ."""
    sites = three_sites()
    penalties = [0.05 * float(np.linalg.eigvalsh(X.T @ X)[-1]) for X in sites.values()]
    return run(sites, penalties, 150, np.linalg.qr(np.random.default_rng(0).normal(size=(8, 2)))[0])


# -- what they say ------------------------------------------------------------------------------------------------------------

TINY = 1e-13
"""Rounding, in units of penalties or of distances."""


def condition_13(run: Run, c1: float = C1) -> bool:
    return all(
        run.decrease(step, i) + TINY * run.beta[i]
        >= c1 / (C1_PRIME * run.largest[i] + run.beta[i]) * np.sum((perp(step.X[i]) @ run.H(step, i) @ step.X[i]) ** 2)
        for step, i in run.sites()
    )


def condition_14(run: Run, delta: float) -> bool:
    def gradient(step: Step, i: int, X: Array) -> float:
        return float(np.linalg.norm(perp(X) @ run.H(step, i) @ X))

    return all(
        gradient(step, i, step.X_new[i]) <= delta * gradient(step, i, step.X[i]) + TINY * run.beta[i] for step, i in run.sites()
    )


def lemma_10(run: Run, c1: float = C1) -> bool:
    return all(
        run.decrease(step, i) + TINY * run.beta[i] >= c1 * run.sigma2 * run.beta[i] / 4 * apart(step.X[i], step.Z) ** 2
        for step, i in run.sites()
    )


def lemma_11(run: Run, more: float = 12.0) -> bool:
    return all(
        apart(step.X_new[i], step.Z) ** 2
        <= (1 - C1 * run.sigma2) * apart(step.X[i], step.Z) ** 2 + more / run.beta[i] * np.sqrt(run.p) * np.trace(run.C[i]) + TINY
        for step, i in run.sites()
    )


def lemma_12(run: Run, times: float = 1.0) -> bool:
    for step in run.looked_at:
        Q, Z, Z_new = run.Q(step), step.Z, step.Z_new
        fall = float(np.trace(Z_new.T @ Q @ Z_new) - np.trace(Z.T @ Q @ Z)) / 2
        if fall + TINY * sum(run.beta) < times * run.c2 * np.sum((perp(Z) @ Q @ Z) ** 2):
            return False
    return True


def lemma_13(run: Run, more: float = 8.0) -> bool:
    rho = max(run.beta) / min(run.beta)
    return all(
        apart(step.X_new[i], step.Z_new) ** 2
        <= rho * sum(apart(X, step.Z) ** 2 for X in step.X_new) + more * np.sqrt(run.p) / run.beta[i] * run.trace + TINY**2
        for step, i in run.sites()
    )


def lemma_14(C: Array, p: int, constant: float = 4.0) -> bool:
    """For a hundred pairs, near and far."""
    rng = np.random.default_rng(0)
    largest = np.linalg.eigvalsh(C)[-1]
    for size in np.geomspace(1e-4, 10, 100):
        Y = np.linalg.qr(rng.normal(size=(len(C), p)))[0]
        other = np.linalg.qr(Y + size * rng.normal(size=Y.shape))[0]
        if np.linalg.norm(phi(C, Y) - phi(C, other)) > constant * largest * apart(Y, other):
            return False
    return True


def lemma_15(run: Run) -> bool:
    return all(square <= 1 / run.sharing for step in run.steps for square in run.distances2(step))


def corollary_16(run: Run, c1: float = C1) -> bool:
    return all(
        run.lagrangian(step.X, step.Z, step.X) - run.lagrangian(step.X_new, step.Z, step.X) + TINY * sum(run.beta)
        >= c1 * run.sigma2 / 4 * np.dot(run.beta, run.distances2(step))
        for step in run.looked_at
    )


def corollary_17(run: Run, sign: float = -1.0) -> bool:
    constant = (1 + np.sqrt(2 * run.sharing)) / run.sharing
    return all(
        run.lagrangian(step.X_new, step.Z, step.X) - run.lagrangian(step.X_new, step.Z, step.X_new) + TINY * sum(run.beta)
        >= sign * constant * np.dot(run.largest, run.distances2(step))
        for step in run.looked_at
    )


def gradient_of_z(run: Run, step: Step) -> float:
    """||G||_F^2 of Corollary 18."""
    parts = zip(run.C, run.beta, step.X_new, strict=True)
    Q_bar = sum(beta * X @ X.T + phi(C, step.Z) - phi(C, X) for C, beta, X in parts)
    return float(np.sum((perp(step.Z) @ (run.pooled + Q_bar) @ step.Z) ** 2))


def corollary_18(run: Run, times: float = 1.0) -> bool:
    return all(
        run.lagrangian(step.X_new, step.Z, step.X_new) - run.lagrangian(step.X_new, step.Z_new, step.X_new) + TINY * sum(run.beta)
        >= times * run.c2 * gradient_of_z(run, step)
        for step in run.looked_at
    )


def never_rises(run: Run) -> bool:
    """The first claim of Proposition 19."""
    return bool(np.diff(run.levels).max() <= TINY * sum(run.beta))


def proposition_19_34(run: Run, times: float = 1.0) -> bool:
    fraction = (1 + np.sqrt(2 * run.sharing)) / run.sharing
    weights = [C1 * run.sigma2 * b / 4 - fraction * a for b, a in zip(run.beta, run.largest, strict=True)]
    falls = -np.diff(run.levels) + TINY * sum(run.beta)
    least = [np.dot(weights, run.distances2(step)) + run.c2 * gradient_of_z(run, step) for step in run.steps]
    return bool(np.all(falls >= times * np.array(least)))


def proposition_19_35(run: Run, times: float = 1.0) -> bool:
    falls = -np.diff(run.levels) + TINY * sum(run.beta)
    return bool(np.all(falls >= times * run.c3 * np.array([run.residual2(step) for step in run.steps])))


def theorem_8(run: Run) -> bool:
    """At most C / N for all N, with the C of its proof and the lowest Lagrangian seen for its bound."""
    if run.c4 <= 0:
        return False
    C = (run.levels[0] - run.levels.min()) * (1 / run.c3 + 1 / run.c4)
    return bool(np.all(run.smallest * np.arange(1, len(run.smallest) + 1) <= C))


def falls_like_1_over_n(run: Run) -> bool:
    """That there is a C, whatever it is: the one that the first fifth of the run asks for does for the rest."""
    weighed = run.smallest * np.arange(1, len(run.smallest) + 1)
    fifth = len(weighed) // 5
    return bool(weighed[fifth:].max() <= weighed[:fifth].max())


# -- and whether it holds -----------------------------------------------------------------------------------------------------


def test_the_runs_are_what_they_are_said_to_be(good: Run, weak: Run) -> None:
    """Assumption 6 and (22) for the one, and clearly not for the other."""
    omega = assumption_6(p=1, d=2, c1=C1, c1_prime=C1_PRIME)
    assert all(beta >= omega * good.trace for beta in good.beta)
    assert max(good.distances2(good.steps[0])) <= 1 / good.sharing
    assert all(beta < weak.trace for beta in weak.beta)


def test_conditions_13_and_14(good: Run, weak: Run) -> None:
    """With exact subproblems c_1 = .25 and any delta are met; c_1 = 2 is not, nor delta by a site that does nothing."""
    assert condition_13(good)
    assert not condition_13(good, c1=2.0)
    assert condition_14(good, delta=0.0)
    assert condition_14(weak, delta=strictness(3))
    turned = [Step(step.X, step.Z, step.X, step.Z_new) for step in weak.steps]
    assert not condition_14(Run(weak.C, weak.beta, turned), delta=strictness(3))


def test_lemma_10(good: Run) -> None:
    assert lemma_10(good)
    assert not lemma_10(good, c1=2.0)


def test_lemma_11(good: Run, weak: Run) -> None:
    """Where penalties are small, the distance grows, and only the second term makes the lemma true."""
    assert lemma_11(good)
    assert lemma_11(weak)
    assert not lemma_11(weak, more=0.0)


def test_lemma_12(good: Run, weak: Run) -> None:
    """It is stated for any penalties.  With small ones Q is indefinite, and a step of subspace iteration can go the wrong way."""
    assert lemma_12(good)
    assert not lemma_12(good, times=3.0)
    assert not lemma_12(weak)
    assert not lemma_12(weak, times=0.0)  # it is not the constant


def test_lemma_13(good: Run) -> None:
    assert lemma_13(good)
    assert not lemma_13(good, more=0.0)


def test_lemma_14() -> None:
    C = next(iter(tiny_problem().values()))
    for p in (1, 3):
        assert lemma_14(C.T @ C, p)
        assert not lemma_14(C.T @ C, p, constant=0.4)


def test_lemma_15(good: Run, weak: Run) -> None:
    assert lemma_15(good)
    assert not lemma_15(weak)


def test_corollaries_16_to_18(good: Run) -> None:
    assert corollary_16(good)
    assert not corollary_16(good, c1=2.0)
    assert corollary_17(good)
    assert not corollary_17(good, sign=1.0)
    assert corollary_18(good)
    assert not corollary_18(good, times=3.0)


def test_proposition_19(good: Run, weak: Run) -> None:
    """The Lagrangian falls, by what (34) and (35) say; with small penalties it rises."""
    assert never_rises(good)
    assert good.levels[0] - good.levels[-1] > 0.1 * good.trace
    assert not never_rises(weak)
    assert proposition_19_34(good)
    assert not proposition_19_34(good, times=3.0)
    assert proposition_19_35(good)
    assert not proposition_19_35(good, times=30.0)


def test_theorem_8(good: Run, weak: Run) -> None:
    """Residual and distances vanish like 1 / N at least; where Assumption 6 does not hold they need not."""
    assert theorem_8(good)
    assert falls_like_1_over_n(good)
    assert good.smallest[-1] <= 1e-2 * good.smallest[0]
    assert not theorem_8(weak)
    assert not falls_like_1_over_n(weak)
    assert weak.residual2(weak.steps[-1]) > 1e-4 * weak.trace**2


def test_the_lagrangian_falls() -> None:
    """Proposition 19, with exact subproblems and beta_i = omega tr C for all sites, which the theory holds fixed: no (25)."""
    sites, omega = tiny_problem(), assumption_6(p=1, d=2)
    assert omega == pytest.approx(128)
    solver = ep.solvers.FAPS(literal=True, inner="exact", beta=omega, beta_unit="trace", start="random")
    pca = fit(sites, 1, solver, tol=0, max_rounds=3000)
    rounds = [record.details for record in pca.history_ if "lagrangian" in record.details]
    lagrangian, trace = np.array([details["lagrangian"] for details in rounds]), np.trace(pooled(sites))
    assert len(lagrangian) == 2999
    assert np.diff(lagrangian).max() <= 1e-13 * trace
    assert lagrangian[0] - lagrangian[-1] > 0.1 * trace
    assert all(details["met_13"] == details["met_14"] == 2 for details in rounds)
    assert max(details["distance"] for details in rounds) <= np.sqrt(1 / 2)  # (22) persists


@pytest.mark.parametrize("literal", [True, False])
@pytest.mark.parametrize("inner", ["exact", "subspace", "lanczos"])
def test_converged_points_are_stationary(inner: Any, literal: bool) -> None:
    """Theorem 8: the residual by the pooled rows and the distances d_p(X_i, Z) vanish."""
    sites = tiny_problem()
    pca = ep.FederatedPCA(1, solver=ep.solvers.FAPS(literal=literal, inner=inner, start="random"), random_state=0, tol=1e-14).fit(
        sites
    )
    assert pca.converged_
    C, Z = pooled(sites), pca.components_.T
    assert np.linalg.norm(C @ Z - Z @ (Z.T @ C @ Z)) <= 1e-6 * np.trace(C)
    distances = [record.details["distance"] for record in pca.history_ if "distance" in record.details]
    assert max(distances) > 1e-2
    assert distances[-1] <= (1e-3 if literal else 1e-6)


# -- multipliers and messages -------------------------------------------------------------------------------------------------


def least_violation_of_7(C: Sequence[Array], X: Sequence[Array], Z: Array) -> float:
    """How far (7) is from being met by any symmetric Lambda_i, Gamma_i and Theta: a linear least-squares problem."""
    n, p = Z.shape

    def symmetric(size: int) -> Array:
        made = []
        for a in range(size):
            for b in range(a + 1):
                E = np.zeros((size, size))
                E[a, b] = E[b, a] = 1.0
                made.append(E)
        return np.array(made)

    columns, d = [], len(C)
    for i in range(d):
        for E in symmetric(n):
            blocks = [E @ Z, *(E @ X[i] if j == i else np.zeros((n, p)) for j in range(d))]
            columns.append(np.concatenate([block.ravel() for block in blocks]))
        for E in symmetric(p):
            blocks = [np.zeros((n, p)), *(X[i] @ E if j == i else np.zeros((n, p)) for j in range(d))]
            columns.append(np.concatenate([block.ravel() for block in blocks]))
    for E in symmetric(p):
        columns.append(np.concatenate([(-Z @ E).ravel(), np.zeros(d * n * p)]))
    wanted = np.concatenate([np.zeros(n * p), *(-(S @ Y).ravel() for S, Y in zip(C, X, strict=True))])
    A = np.stack(columns, axis=1)
    return float(np.linalg.norm(A @ np.linalg.lstsq(A, wanted)[0] - wanted))


def test_proposition_3() -> None:
    """Multipliers exist where Z is stationary, and only there; then (8) and those of Remark 4 are such."""
    C = [X.T @ X for X in three_sites().values()]
    pooled, rng = np.asarray(sum(C)), np.random.default_rng(1)
    trace, turn = float(np.trace(pooled)), np.linalg.qr(rng.normal(size=(2, 2)))[0]
    values, V = np.linalg.eigh(pooled)
    somewhere = np.linalg.qr(rng.normal(size=(8, 2)))[0]
    for Z, stationary in ((V[:, [7, 6]], True), (V[:, [5, 2]] @ turn, True), (somewhere, False)):
        X = [Z @ np.linalg.qr(rng.normal(size=(2, 2)))[0] for _ in C]  # feasible: other bases of the same span
        assert (least_violation_of_7(C, X, Z) <= 1e-10 * trace) is stationary
        remark_4 = [-S @ perp(Y) - perp(Y) @ S for S, Y in zip(C, X, strict=True)]
        for multipliers, rank in (([phi(S, Y) for S, Y in zip(C, X, strict=True)], 4), (remark_4, 8)):
            violated = float(np.linalg.norm(sum(multipliers) @ Z))
            assert (violated <= 1e-10 * trace) is stationary
            for S, Y, L in zip(C, X, multipliers, strict=True):
                np.testing.assert_allclose(S @ Y - Y @ (Y.T @ S @ Y) + L @ Y, 0, atol=1e-10 * trace)
                assert np.linalg.matrix_rank(L) <= rank
    assert values[7] > values[6] > values[5]


def recovered(Z: Array, Y: Array) -> Array:
    """The formula of Proposition 2."""
    return np.linalg.lstsq(Z @ Z.T, Z @ Y.T)[0].T


def overheard(solver: Any, function: str) -> tuple[Array, Array, Array]:
    """All blocks sent in six rounds, one site's replies and its scatter."""
    sites, spy = three_sites(), Eavesdropper(ep.engines.InProcess())
    with pytest.warns(ep.errors.NotConvergedWarning):
        ep.FederatedPCA(2, solver=solver, center=False, engine=spy, random_state=0, max_rounds=7, tol=0).fit(sites)
    heard = spy.replies("A", function)[:6]
    return np.hstack([r.args[0] for r in heard]), np.hstack([r.arrays[0] for r in heard]), sites["A"].T @ sites["A"]


def test_proposition_2() -> None:
    """Once SSI's blocks span all features, one site's replies give its scatter; with a block too few, or FAPS' replies, not."""
    Z, Y, C = overheard(ep.solvers.Subspace(), "scatter_action")
    assert np.linalg.norm(recovered(Z, Y) - C) <= 1e-6 * np.linalg.norm(C)
    assert np.linalg.norm(recovered(Z[:, :6], Y[:, :6]) - C) > 0.01 * np.linalg.norm(C)
    Z, Y, C = overheard(ep.solvers.FAPS(literal=True), "literal_step")
    assert np.linalg.norm(recovered(Z, Y) - C) > 0.1 * np.linalg.norm(C)


def test_proposition_5(weak: Run) -> None:
    """(20): what a site sends, by X_i^(k+1), which it keeps; by X_i^(k) it is not so.  That this hides C_i is not proved by it:
    tests/privacy/test_recovery.py."""
    names = list(three_sites())
    for k in (3, 20):
        step = weak.steps[k]
        total, wrong = np.zeros_like(step.Z), np.zeros_like(step.Z)
        for i in range(len(names)):
            for X, into in ((step.X_new[i], total), (step.X[i], wrong)):
                into += (weak.beta[i] * X @ X.T + perp(X) @ weak.C[i] @ X @ X.T + X @ X.T @ weak.C[i] @ perp(X)) @ step.Z
        assert apart(np.linalg.qr(total)[0], step.Z_new) <= 1e-10
        assert apart(np.linalg.qr(wrong)[0], step.Z_new) > 1e-4
