"""Personalized PCA's solvers against a dense optimisation written here, and the paper's theory as tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize
from tests.runtime.conftest import Recording

import eigenpact as ep
from eigenpact.algorithms import products, setup
from eigenpact.algorithms.consensus import krylov
from eigenpact.algorithms.personalized import baselines, local_part, parts, perpca, start, varpro
from eigenpact.algorithms.personalized.local_part import Covariance
from eigenpact.algorithms.personalized.secants import Secants
from eigenpact.errors import InputError
from eigenpact.estimators.choices import find_solver
from eigenpact.estimators.plans import functions_of, plan_of
from eigenpact.numerics.metrics import largest_sine
from eigenpact.numerics.rows import Rows
from eigenpact.numerics.site_rows import own_mean
from eigenpact.runtime import COORDINATOR, Driver, LocalFunction, RoundRecord, Site

PROBLEMS = {
    "local much larger": ((1.0, 0.01, 0.01), 1000),
    "noise above global": ((10.0, 0.1, 0.5), 3000),
    "alike": ((1.0, 1.0, 0.1), 1000),
}
"""Variances (local, global, noise) and rows of the three problems on which rounds are counted."""


def rows_of_problem(name: str, seed: int, n_sites: int = 30) -> dict[str, Any]:
    """30 sites, 15 features, 2 global and 10 local directions, half the sites with a tenth of the rows."""
    variances, rows = PROBLEMS[name]
    counts = [rows if i % 2 == 0 else rows // 10 for i in range(n_sites)]
    return ep.datasets.personalized_problem(n_sites, 15, 2, 10, variances=variances, rows=counts, seed=seed).sites


def covariances(sites: dict[str, Any]) -> list[Any]:
    return [X.T @ X / len(X) for X in sites.values()]


def best_captured(S: list[Any], U: Any, r2: int) -> float:
    """The objective (7) with the best local parts, from dense eigenvalues."""
    P = np.eye(len(U)) - U @ U.T
    return float(np.mean([np.trace(U.T @ s @ U) + np.linalg.eigvalsh(P @ s @ P)[-r2:].sum() for s in S]))


def dense_optimum(S: list[Any], r1: int, r2: int, starts: list[Any]) -> tuple[float, Any]:
    """The largest objective found by scipy's BFGS over free d x r1 matrices, orthonormalized inside; gradient by hand."""
    d = len(S[0])

    def loss(x: Any) -> tuple[float, Any]:
        A = x.reshape(d, r1)
        U, R = np.linalg.qr(A)
        P = np.eye(d) - U @ U.T
        gradient = np.zeros((d, r1))
        for s in S:
            V = np.linalg.eigh(P @ s @ P)[1][:, -r2:]
            gradient += 2 * P @ (s @ U - V @ (V.T @ s @ U)) / len(S)
        return -best_captured(S, U, r2), -(gradient @ np.linalg.inv(R).T).ravel()

    found = [scipy.optimize.minimize(loss, U.ravel(), jac=True, method="BFGS", options={"gtol": 1e-9}) for U in starts]
    best = min(found, key=lambda result: result.fun)
    return -float(best.fun), np.linalg.qr(best.x.reshape(d, r1))[0]


@pytest.mark.parametrize("name", PROBLEMS)
def test_reaches_the_dense_optimum(name: str) -> None:
    """The default solver finds the objective and the subspace that a dense optimisation from several starts finds."""
    sites = rows_of_problem(name, seed=0, n_sites=12)
    S = covariances(sites)
    rng = np.random.default_rng(0)
    truth, U = dense_optimum(S, 2, 10, [np.linalg.qr(rng.normal(size=(15, 2)))[0] for _ in range(4)])
    pca = ep.PersonalizedPCA(2, 10, center=False, random_state=0).fit(sites)
    total = np.mean([np.trace(s) for s in S])
    assert pca.converged_
    assert pca.captured_ * total >= truth - 1e-8 * (total - truth)
    assert pca.captured_ * total == pytest.approx(best_captured(S, pca.components_.T, 10), rel=1e-12)
    assert largest_sine(pca.components_.T, U) < 1e-3


@pytest.mark.parametrize("name", PROBLEMS)
def test_rounds_to_a_small_gap(name: str) -> None:
    """1 + 18 rounds suffice for a gap of 1e-8 of the residual variance, the start and refused steps counted."""
    for seed in range(3):
        sites = rows_of_problem(name, seed)
        S = covariances(sites)
        bases: list[tuple[int, Any]] = []

        def keep(record: RoundRecord, bases: list[tuple[int, Any]] = bases) -> None:
            bases.append((record.round, record.basis))

        exact = ep.PersonalizedPCA(2, 10, center=False, tol=1e-10, random_state=1, misalignment=False).fit(sites)
        pca = ep.PersonalizedPCA(2, 10, center=False, random_state=0, callback=keep, misalignment=False).fit(sites)
        truth = best_captured(S, exact.components_.T, 10)
        residual = float(np.mean([np.trace(s) for s in S])) - truth
        reached = [at for at, U in bases if truth - best_captured(S, U, 10) <= 1e-8 * residual]
        assert reached, (name, seed)
        assert reached[0] <= 19, (name, seed)
        assert pca.n_rounds_ <= 19
        sent = {m.round for m in pca.ledger_ if m.sender == COORDINATOR and m.function in ("leading_part", "exact_local_part")}
        assert sent == set(range(1, pca.n_rounds_ + 1))


@pytest.mark.parametrize("begin", ["random", "covariance", "distpca"])
def test_every_start_ends_at_the_same_optimum(begin: Any) -> None:
    sites = rows_of_problem("noise above global", seed=2)
    one = ep.PersonalizedPCA(2, 10, center=False, random_state=0).fit(sites)
    other = ep.PersonalizedPCA(2, 10, center=False, random_state=3, solver=ep.solvers.VarPro(start=begin)).fit(sites)
    assert other.captured_ == pytest.approx(one.captured_, abs=1e-10)
    assert other.n_rounds_ <= 60


@pytest.mark.parametrize(
    "solver", [ep.solvers.VarPro(), ep.solvers.PerPCA(), ep.solvers.PerPCA(retraction="qr"), ep.solvers.PerPCA(start="random")]
)
def test_stationary_points_satisfy_the_kkt_conditions(solver: Any) -> None:
    """(24): every local part of the gradient is zero, and the mean of the global parts is."""
    problem = ep.datasets.personalized_problem(8, 10, 2, 3, variances=(2.0, 1.0, 0.2), rows=100, seed=4)
    pca = ep.PersonalizedPCA(2, 3, solver=solver, center=False, tol=1e-9, random_state=0).fit(problem.sites)
    U, S = pca.components_.T, covariances(problem.sites)
    total = np.mean([np.trace(s) for s in S])
    global_parts = []
    for s, V in zip(S, pca.local_components_.values(), strict=True):
        W = np.concatenate([U, V.T], axis=1)
        G = s @ W - W @ (W.T @ s @ W)
        global_parts.append(G[:, :2])
        assert np.linalg.norm(G[:, 2:]) <= 1e-7 * total
    assert np.linalg.norm(np.mean(global_parts, axis=0)) <= 2e-9 * total
    assert pca.history_[-1].kkt <= 1e-9


def test_choice_1_is_algorithm_2() -> None:
    """Five rounds against the paper's loop, written here with dense matrices."""
    problem = ep.datasets.personalized_problem(4, 9, 2, 3, variances=(2.0, 1.0, 0.2), rows=60, seed=5)
    S = covariances(problem.sites)
    for choice in (1, 2):
        seen: list[Any] = []
        solver = ep.solvers.PerPCA(choice=choice, step=0.1, start="random")
        pca = ep.PersonalizedPCA(2, 3, solver=solver, center=False, max_rounds=5, random_state=0, misalignment=False)
        pca.set_params(callback=lambda record, seen=seen: seen.append(record.basis))
        with pytest.warns(ep.errors.NotConvergedWarning, match="max_rounds=5"):
            pca.fit(problem.sites)
        U, V = seen[0], [site_start(name, pca, 9, 3) for name in problem.sites]
        for basis in seen:
            np.testing.assert_allclose(basis, U, atol=1e-10)
            sent = []
            for i, s in enumerate(S):
                V[i] = polar(V[i] - U @ (U.T @ V[i]))
                W = np.concatenate([U, V[i]], axis=1)
                G = s @ W - W @ (W.T @ s @ W) if choice == 1 else s @ W
                stepped = W + 0.1 * G if choice == 1 else polar(W + 0.1 * G)
                sent.append(stepped[:, :2])
                V[i] = polar(stepped[:, 2:]) if choice == 1 else stepped[:, 2:]
            U = polar(np.mean(sent, axis=0))


def polar(A: Any) -> Any:
    left, _, right = np.linalg.svd(A, full_matrices=False)
    return left @ right


def site_start(name: str, pca: ep.PersonalizedPCA, d: int, r2: int) -> Any:
    """The random local start of a site: its own stream, from the run's seed."""
    return Site(name, None).rng(pca._seed()).standard_normal((d, r2))


@pytest.mark.filterwarnings("ignore::eigenpact.errors.NotConvergedWarning")
def test_choice_1_converges_linearly_and_faster_for_larger_theta() -> None:
    """Theorem 10 and Figure 3: two sites in three dimensions; noiseless, so that the error itself goes to zero."""
    rates = []
    for angle in (0.7, 0.9, 1.2):
        rng = np.random.default_rng(0)
        own = [np.array([0.0, np.cos(a), np.sin(a)]) for a in (angle / 2, -angle / 2)]
        sites = {
            f"s{i}": rng.normal(size=(1000, 1)) * np.array([[1.0, 0, 0]]) + rng.normal(size=(1000, 1)) * v[None]
            for i, v in enumerate(own)
        }
        solver = ep.solvers.PerPCA(step=0.1, start="random")
        pca = ep.PersonalizedPCA(1, 1, solver=solver, center=False, tol=0, max_rounds=600, random_state=2).fit(sites)
        assert pca.misalignment_ == pytest.approx(np.sin(angle / 2) ** 2, abs=1e-3)
        error = np.array([1 - record.objective for record in pca.history_])
        tail = np.log(error[(error < 1e-4) & (error > 1e-11)])
        slopes = np.diff(tail)
        half = len(slopes) // 2
        assert half > 50
        assert slopes.max() < 0
        assert slopes[half:].mean() == pytest.approx(slopes[:half].mean(), rel=0.15)  # a straight line
        rates.append(slopes.mean())
    assert rates[2] < 1.5 * rates[1]
    assert rates[1] < 1.3 * rates[0]


@pytest.mark.filterwarnings("ignore::eigenpact.errors.NotConvergedWarning")
def test_choice_2_ends_beside_the_optimum_and_choice_1_at_it() -> None:
    """Where choice 2 no longer moves, the objective is less than the best; choice 1 gets there."""
    problem = ep.datasets.personalized_problem(3, 10, 2, 3, variances=(2.0, 1.0, 0.2), rows=100, seed=4)
    fit = {"center": False, "tol": 1e-9, "random_state": 0, "max_rounds": 600}
    best, first, second = (
        ep.PersonalizedPCA(2, 3, solver=solver, **fit).fit(problem.sites)
        for solver in (ep.solvers.VarPro(), ep.solvers.PerPCA(choice=1), ep.solvers.PerPCA(choice=2))
    )
    assert second.converged_
    assert best.captured_ - first.captured_ == pytest.approx(0, abs=1e-12)
    assert best.captured_ - second.captured_ > 1e-6
    exact = ep.PersonalizedPCA(2, 3, solver=ep.solvers.PerPCA(choice=2, step=0.1), **fit).fit(problem.sites)
    assert best.captured_ - exact.captured_ < 0.2 * (best.captured_ - second.captured_)  # smaller steps drift less


@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e9])
def test_units_do_not_matter(scale: float) -> None:
    problem = ep.datasets.personalized_problem(5, 8, 2, 2, rows=60, seed=6)
    one = ep.PersonalizedPCA(2, 2, random_state=0).fit(problem.sites)
    other = ep.PersonalizedPCA(2, 2, random_state=0).fit({name: X * scale for name, X in problem.sites.items()})
    assert largest_sine(one.components_.T, other.components_.T) < 1e-6
    assert other.n_rounds_ == one.n_rounds_


@pytest.mark.parametrize("solver", ["varpro", "perpca", "distpca", "individual", "pooled"])
def test_rows_without_variance(solver: str) -> None:
    """Rows that are all alike: no failure, no local part, orthonormal global part."""
    sites = {"A": np.full((4, 3), 2.5), "B": np.full((5, 3), 2.5)}
    pca = ep.PersonalizedPCA(1, 1, solver=solver, random_state=0, misalignment=False).fit(sites)
    np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(len(pca.components_)), atol=1e-12)
    assert pca.captured_ == 0
    assert {len(V) for V in pca.local_components_.values()} == {0}


@pytest.mark.parametrize("solver", ["varpro", "perpca", "distpca", "individual", "pooled"])
def test_the_same_bits_in_any_order_of_sites(solver: str) -> None:
    problem = ep.datasets.personalized_problem(5, 8, 2, 2, rows=[40, 7, 3, 1, 90], seed=6)
    one = ep.PersonalizedPCA(2, 2, solver=solver, random_state=0, tol=1e-2).fit(problem.sites)
    other = ep.PersonalizedPCA(2, 2, solver=solver, random_state=0, tol=1e-2).fit(dict(reversed(problem.sites.items())))
    assert one.components_.tobytes() == other.components_.tobytes()
    assert one.local_components_["site0"].tobytes() == other.local_components_["site0"].tobytes()
    assert list(one.ledger_) == list(other.ledger_)


@pytest.mark.parametrize(("n", "d"), [(30, 8), (6, 25), (40, 60)])
@pytest.mark.parametrize("side", [0, 1500])
@pytest.mark.parametrize("far", [0.0, 1e3])
def test_local_part_tall_wide_and_iterated(n: int, d: int, side: int, far: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leading eigenvectors of the deflated covariance, whichever matrix is formed, against dense ones."""
    monkeypatch.setattr(local_part, "DENSE_SIDE", side)
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(n, d)) * np.sqrt(np.linspace(3, 0.1, d))
    U = np.linalg.qr(rng.normal(size=(d, 2)))[0]
    Y += far * rng.normal(size=(n, 2)) @ U.T  # the global part dwarfs the rest
    S = Covariance(Rows(Y))
    values, V, SU = S.split(U, 3)
    dense = Y.T @ Y / n
    P = np.eye(d) - U @ U.T
    expected, vectors = np.linalg.eigh(P @ dense @ P)
    np.testing.assert_allclose(values, expected[::-1][:3], rtol=1e-7, atol=1e-9 * far**2 * 1e-3)
    assert largest_sine(V, vectors[:, ::-1][:, :3]) < 1e-5
    np.testing.assert_allclose(SU, dense @ U, rtol=1e-9, atol=1e-9 * np.abs(dense).max())
    W = np.concatenate([U, V], axis=1)
    np.testing.assert_allclose(W.T @ W, np.eye(5), atol=1e-12)
    assert S.trace == pytest.approx(np.trace(dense))
    assert S.largest() == pytest.approx(np.linalg.eigvalsh(dense)[-1])
    assert max(S.products.shape) <= min(n, d)  # never features squared where rows are fewer


def test_secants_solve_a_quadratic() -> None:
    """On a quadratic in a flat corner of the manifold, the direction becomes Newton's."""
    rng = np.random.default_rng(0)
    d = 6
    U = np.eye(d, 1)
    curvature = np.diag([0.0, *np.linspace(1, 3, d - 1)])
    secants, x = Secants(), np.zeros((d, 1))
    target = np.concatenate([[[0.0]], 1e-3 * rng.normal(size=(d - 1, 1))])
    for _ in range(12):
        G = curvature @ (target - x)
        P = secants.direction(U, G + 2 * U, G)
        x = x + P
        secants = secants.moved(U, P, G, curvature @ (target - x))
    assert np.linalg.norm(x - target) < 1e-9
    assert np.allclose(Secants().direction(U, target + 2 * U, target), target / 2)  # subspace iteration's step
    upwards = Secants().moved(U, target, target, 2 * target)
    assert upwards.pairs == ()
    assert upwards.stride == 10.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ep.solvers.PerPCA(choice=3), "choice=3 must be 1 or 2"),
        (lambda: ep.solvers.PerPCA(choice=True), "choice=True"),
        (lambda: ep.solvers.PerPCA(retraction="cayley"), "retraction='cayley' must be one of polar, qr"),
        (lambda: ep.solvers.PerPCA(step=0), "step=0 must be a number > 0"),
        (lambda: ep.solvers.VarPro(start="one-shot"), "start='one-shot' must be one of distpca, covariance, random"),
    ],
)
def test_refused_parameters(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_a_run_that_ends_on_a_refused_step_is_whole() -> None:
    """At max_rounds the sites hold the local part of the U that is returned, whatever was tried last."""
    sites = rows_of_problem("noise above global", seed=1)
    for rounds in range(2, 9):
        pca = ep.PersonalizedPCA(2, 10, center=False, random_state=0, max_rounds=rounds, misalignment=False)
        with pytest.warns(ep.errors.NotConvergedWarning, match=f"max_rounds={rounds}"):
            pca.fit(sites)
        assert pca.n_rounds_ == rounds
        S = covariances(sites)
        total = np.mean([np.trace(s) for s in S])
        parts = [np.concatenate([pca.components_, V]) for V in pca.local_components_.values()]
        captured = np.mean([np.trace(W @ s @ W.T) for s, W in zip(S, parts, strict=True)])
        assert captured / total == pytest.approx(pca.captured_, rel=1e-10)


SOLVERS = {
    "varpro": "varpro",
    "varpro, random": ep.solvers.VarPro(start="random"),
    "perpca": "perpca",
    "perpca 2": ep.solvers.PerPCA(choice=2, start="covariance"),
    "distpca": "distpca",
    "individual": "individual",
    "pooled": "pooled",
}
MODULES = (setup, products, parts, start, varpro, perpca, baselines, krylov)
LOCALS = {f.short_name: f for m in MODULES for f in vars(m).values() if isinstance(f, LocalFunction)}


@pytest.mark.parametrize("label", SOLVERS)
def test_ledger_matches_the_declared_wire_table(label: str) -> None:
    """Every recorded message is one that a local function declares, shape by shape; the plan names it; the rounds add up."""
    sites = ep.datasets.personalized_problem(4, 8, 2, 3, rows=[40, 30, 2, 25], seed=6).sites
    solver = SOLVERS[label]
    share = None if label == "pooled" else 0.2
    pca = ep.PersonalizedPCA(2, 3, solver=solver, random_state=0, tol=1e-3, validation_fraction=share).fit(sites)
    algorithm = find_solver("PersonalizedPCA", solver)
    plan, rounds = plan_of(algorithm, 10, 2), set()
    for message in pca.ledger_:
        function = LOCALS[message.function]
        assert function.name in plan.functions
        declared = function.takes if message.sender == COORDINATOR else function.sends
        sizes = {"d": 8} | ({"k": 5} if message.function == "leading_part" else {})
        for shape, recorded in zip(declared.values(), message.shapes, strict=True):
            assert shape.fits(recorded, sizes), (message.function, shape.text, recorded)
        if not function.setup:
            rounds.add(message.round)
    assert rounds == set(range(1, pca.n_rounds_ + 1))
    assert set(plan.functions) <= set(functions_of(algorithm.name))
    gathers = any(message.function == "leading_part" for message in pca.ledger_)
    assert ("gather" in plan.kinds) == gathers


@pytest.mark.parametrize("solver", ["varpro", "perpca"])
def test_resume_gives_the_same_bits(solver: str, tmp_path: Any) -> None:
    """A run killed in its fifth round goes on from the journal to the same answer, local parts included."""
    sites = ep.datasets.personalized_problem(4, 8, 2, 3, rows=30, seed=7).sites
    options = {"solver": solver, "random_state": 0, "tol": 1e-4 if solver == "varpro" else 1e-2, "n_global": 2, "n_local": 3}

    def fail(record: RoundRecord) -> None:
        if record.round == 5:
            raise KeyboardInterrupt

    whole = ep.PersonalizedPCA(**options).fit(sites)
    assert whole.n_rounds_ > 5
    with pytest.raises(KeyboardInterrupt):
        ep.PersonalizedPCA(journal=tmp_path / "run", callback=fail, **options).fit(sites)
    resumed = ep.PersonalizedPCA(journal=tmp_path / "run", **options).fit(sites)
    assert resumed.components_.tobytes() == whole.components_.tobytes()
    assert resumed.local_components_["site2"].tobytes() == whole.local_components_["site2"].tobytes()
    assert resumed.n_rounds_ == whole.n_rounds_


def test_large_local_variances_do_not_end_a_run_early() -> None:
    """Global variances of 1e-7 of the local ones: what is missed is small beside the total, but U is not yet found."""
    problem = ep.datasets.personalized_problem(20, 15, 2, 5, variances=(1e4, 1e-3, 1e-5), rows=1000, seed=0)
    for begin in ("random", "distpca"):
        pca = ep.PersonalizedPCA(2, 5, center=False, random_state=0, solver=ep.solvers.VarPro(start=begin)).fit(problem.sites)
        assert pca.converged_
        assert largest_sine(pca.components_.T, problem.U) < 0.01
        assert pca.history_[-1].kkt <= ep.solvers.VarPro.default_tol


def test_a_large_mean_does_not_end_a_run_early() -> None:
    """Rows far from zero, not centred: the mean takes one global component, the rest is solved as well as without it."""
    problem = ep.datasets.personalized_problem(5, 12, 1, 3, variances=(4.0, 2.0, 0.05), rows=200, seed=1)
    sites = {name: X + 1e4 for name, X in problem.sites.items()}
    pca = ep.PersonalizedPCA(2, 3, center=False, random_state=0).fit(sites)
    errors = []
    for name, X in sites.items():
        W = np.concatenate([pca.components_, pca.local_components_[name]])
        errors.append(np.sum((X - X @ W.T @ W) ** 2) / len(X))
    assert pca.converged_
    assert np.mean(errors) == pytest.approx(0.33866, abs=1e-4)


@pytest.mark.filterwarnings("ignore::eigenpact.errors.NotConvergedWarning")
def test_perpca_does_not_call_itself_converged_far_from_the_optimum() -> None:
    """The same measure as varpro's: local variances that dwarf the global ones have no part in it."""
    problem = ep.datasets.personalized_problem(8, 10, 1, 2, variances=(1e4, 1e-3, 1e-5), rows=200, seed=0)
    solver = ep.solvers.PerPCA(start="random")
    pca = ep.PersonalizedPCA(1, 2, center=False, random_state=0, solver=solver, max_rounds=200).fit(problem.sites)
    assert not pca.converged_ or largest_sine(pca.components_.T, problem.U) < 0.05


def test_the_promised_gain_is_subspace_iterations() -> None:
    """tr(G^T G B^-1), in any basis of the same span; nothing where G is rounding."""
    rng = np.random.default_rng(0)
    S = np.diag(np.linspace(1, 9, 6))
    Z = np.linalg.qr(rng.normal(size=(6, 2)))[0]
    R = np.linalg.qr(rng.normal(size=(2, 2)))[0]
    expected = [np.trace(G.T @ G @ np.linalg.inv(Q.T @ S @ Q)) for Q in (Z, Z @ R) for G in [S @ Q - Q @ (Q.T @ S @ Q)]]
    for Q, gain in zip((Z, Z @ R), expected, strict=True):
        assert local_part.promised_gain(S @ Q - Q @ (Q.T @ S @ Q), Q.T @ S @ Q, np.trace(S)) == pytest.approx(gain, rel=1e-12)
    assert expected[0] == pytest.approx(expected[1])
    assert local_part.promised_gain(np.full((6, 2), 1e-16), np.eye(2), 1.0) == 0.0


@pytest.mark.parametrize(
    ("solver", "function"),
    [
        ("varpro", "leading_part"),
        ("varpro", "exact_local_part"),
        ("varpro", "local_share"),
        ("perpca", "stiefel_step"),
        ("distpca", "leading_part"),
        ("distpca", "exact_local_part"),
        ("distpca", "local_share"),
        ("individual", "local_share"),
        ("pooled", "own_part"),
    ],
)
def test_a_lost_site_has_no_part_in_the_answer(solver: str, function: str) -> None:
    """A site is gone from some step on, also after a merge or after the last round: the answer is that of the others alone."""
    sites = ep.datasets.personalized_problem(4, 8, 1, 2, variances=(4.0, 2.0, 0.1), rows=60, seed=3).sites
    sites["site3"] = sites["site3"] @ np.diag([30.0, *[1.0] * 7])  # a large direction that the others have not
    pca = ep.PersonalizedPCA(1, 2, solver=solver, center=False, random_state=0)
    connection = Recording(sites, {}, lambda request: {"site3"} if request.function.endswith(f"{function}/1") else set())
    driver = Driver(connection)
    found = driver.run(pca._program(find_solver("PersonalizedPCA", solver), pca._seed()))[1]
    assert driver.roster == ("site0", "site1", "site2")
    del sites["site3"]
    alone = pca.fit(sites)
    assert found.basis.shape == alone.components_.T.shape
    assert not found.basis.size or largest_sine(found.basis, alone.components_.T) < 1e-3
    assert found.notes["captured"] == pytest.approx(alone.captured_, abs=1e-7)


def test_error_on_rows_held_out_is_their_reconstruction_error():
    rng = np.random.default_rng(3)
    X, mean, out = rng.normal(size=(20, 6)), rng.normal(size=6), np.array([1, 5, 11])
    W = np.linalg.qr(rng.normal(size=(6, 3)))[0]
    Y = X[out] - mean
    expected = np.mean(np.sum((Y - Y @ W @ W.T) ** 2, axis=1))
    site = Site("A", X, {"mean": mean, "scale": None, "own": own_mean(X)[0], "held_out": out})
    assert parts.held_out_error(site, W[:, :1], W[:, 1:]) == pytest.approx(expected, rel=1e-12)
    kept = parts.training(Rows(X, mean), out)
    np.testing.assert_array_equal(kept.X, np.delete(X, out, axis=0))


@pytest.mark.parametrize(
    ("start", "variances", "tol"),
    [
        ("covariance", (1e4, 1e-5, 1e-7), None),
        ("random", (1e4, 1e-7, 1e-9), None),
        ("covariance", (1e4, 1.0, 0.01), 1e-2),
    ],
)
def test_does_not_stop_in_local_directions(start, variances, tol):
    """Where U lies in large local directions, what subspace iteration promises is small, however far the optimum is."""
    problem = ep.datasets.personalized_problem(6, 10, 2, 2, variances=variances, rows=200, seed=0)
    pca = ep.PersonalizedPCA(2, 2, center=False, random_state=0, tol=tol, solver=ep.solvers.VarPro(start=start)).fit(
        problem.sites
    )
    assert pca.converged_
    assert largest_sine(pca.components_.T, problem.U) < 0.02


def test_sites_of_very_different_scales_reach_the_dense_optimum():
    rng = np.random.default_rng(4)
    for _ in range(4):
        sites = {f"s{i}": rng.normal(size=(20, 6)) * np.exp(3 * rng.normal(size=6)) for i in range(5)}
        pca = ep.PersonalizedPCA(1, 2, center=False, random_state=0).fit(sites)
        S = covariances(sites)
        U = pca.components_.T
        best, _ = dense_optimum(S, 1, 2, [U])  # uphill from the answer: is it a stationary point?
        missed = np.mean([np.trace(s) for s in S]) - best
        assert best - best_captured(S, U, 2) <= 1e-6 * missed


def test_what_rounding_hides_is_not_called_converged():
    problem = ep.datasets.personalized_problem(6, 10, 2, 2, variances=(2.0, 0.5, 0.02), rows=60, seed=0)
    far = {site: X + 1e6 for site, X in problem.sites.items()}
    with pytest.warns(ep.errors.NotConvergedWarning, match=r"all that rounding leaves to see.*centre the rows"):
        ep.PersonalizedPCA(3, 2, center=False, random_state=0, misalignment=False).fit(far)
    centred = ep.PersonalizedPCA(2, 2, center="site", random_state=0, misalignment=False).fit(far)
    assert centred.converged_


@pytest.mark.parametrize("solver", ["varpro", "perpca", "distpca", "individual"])
def test_local_parts_are_of_all_rows_in_the_end(solver):
    sites = ep.datasets.personalized_problem(4, 8, 2, 3, rows=[40, 30, 20, 25], seed=6).sites
    pca = ep.PersonalizedPCA(2, 3, solver=solver, center=False, tol=1e-3, random_state=0, validation_fraction=0.25).fit(sites)
    for site, X in sites.items():
        V = pca.local_components_[site]
        np.testing.assert_allclose(pca.local_explained_variance_[site], np.sum((X @ V.T) ** 2, axis=0) / len(X), rtol=1e-10)
        assert largest_sine(pca.local_part(X).T, V.T) < 1e-7


def test_pooled_holds_no_rows_out():
    sites = ep.datasets.personalized_problem(3, 6, 1, 1, rows=30, seed=0).sites
    with pytest.raises(InputError, match="holds no rows out"):
        ep.PersonalizedPCA(1, 1, solver="pooled", validation_fraction=0.2).fit(sites)


def test_sites_without_a_local_part_do_not_count_for_theta():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 5)) * [5, 3, 1, 1, 1]
    with pytest.warns(ep.errors.NotIdentifiableWarning):
        pca = ep.PersonalizedPCA(1, {"a": 1, "b": 1, "c": 0}, center=False, random_state=0).fit({"a": X, "b": X, "c": X})
    assert pca.misalignment_ < 1e-6
    none = ep.PersonalizedPCA(1, 0, center=False, random_state=0).fit({"a": X, "b": X})
    assert none.misalignment_ == 1.0
