"""The kernel paper's theory, statement by statement: what holds, what does not and where, and checks that can fail."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pytest
import scipy.linalg
from tests.algorithms.graph.dense import (
    RING,
    WITH_ITSELF,
    Dense,
    assumption_2,
    blocks,
    large_enough,
    rbf_features,
    rbf_tables,
    unit_rows,
)

import eigenpact as ep

ROUNDING = 1e-10
PAIR = {"a": ("b",), "b": ("a",)}
"""Two nodes, Omega_j without j: one column of multipliers at each."""


def fitted(tables, iterations, **options):
    """Algorithm 1 from the nodes' own directions, not centred, for so many iterations."""
    method = ep.solvers.ProjectionConsensus(**{"start": "own", "keep_iterates": True} | options.pop("solver", {}))
    shared = {"graph": RING, "center": False, "tol": 0.0, "max_iterations": iterations, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ep.errors.NotConvergedWarning)
        return ep.GraphKernelPCA(1, solver=method, **shared | options).fit(tables)


def linear(seed=0, omega=WITH_ITSELF):
    """Nodes whose rows span all of feature space, at Assumption 2's rho."""
    phi = {j: F for j, F in unit_rows(blocks(seed=seed)).items() if j in omega}
    return Dense(phi, omega, large_enough(phi, omega))


def rbf(omega=WITH_ITSELF):
    """Nodes whose rows span different parts of feature space, at Assumption 2's rho."""
    phi = {j: F for j, F in rbf_features(rbf_tables()).items() if j in omega}
    return Dense(phi, omega, large_enough(phi, omega))


def random_start(problem, seed=0):
    rng = np.random.default_rng(seed)
    return {j: rng.standard_normal(len(F)) for j, F in problem.phi.items()}


# -- problem (7), Assumption 1, Theorem 1 ---------------------------------------------------------------------------------


def solution_of_problem_7(phi, edges):
    """z_j of (7), by power iteration within z_j = z_q on all edges, every z_j of length 1."""
    names = list(phi)
    E = np.zeros((len(edges), len(names)))
    for i, (j, q) in enumerate(edges):
        E[i, names.index(j)], E[i, names.index(q)] = 1, -1
    agreed = scipy.linalg.null_space(E)
    z = np.random.default_rng(0).normal(size=(len(names), next(iter(phi.values())).shape[1]))
    projectors = [F.T @ np.linalg.pinv(F @ F.T) @ F for F in phi.values()]
    for _ in range(500):
        w = [P @ z[i] for i, P in enumerate(projectors)]  # the projection consensus constraint
        z = agreed @ (agreed.T @ np.array([F.T @ (F @ w[i]) for i, F in enumerate(phi.values())]))
        z /= np.linalg.norm(z, axis=1, keepdims=True)
    return z


def all_are_the_central_direction(z, phi):
    u = np.linalg.svd(np.concatenate(list(phi.values())))[2][0]
    return bool(np.abs(z @ u).min() > 1 - 1e-10)


def test_theorem_1_needs_a_connected_graph():
    phi = unit_rows(blocks())
    assert all_are_the_central_direction(solution_of_problem_7(phi, [("a", "b"), ("b", "c"), ("c", "d")]), phi)
    assert not all_are_the_central_direction(solution_of_problem_7(phi, [("a", "b"), ("c", "d")]), phi)  # no Assumption 1


@pytest.mark.parametrize(("power", "nearest"), [(-1, True), (-0.5, False), (1, False)])
def test_the_projection_consensus_constraint_is_the_nearest_direction(power, nearest):
    """phi(X_j) K_j^-1 phi(X_j)^T u solves (6); another power of K_j does not."""
    F, u = rbf().phi["a"], np.linalg.svd(np.concatenate(list(rbf().phi.values())))[2][0]
    values, V = np.linalg.eigh(F @ F.T)
    w = F.T @ (V @ (values**power * (V.T @ (F @ u))))
    best = F.T @ scipy.linalg.lstsq(F.T, u)[0]
    assert (np.linalg.norm(w - best) < 1e-8) == nearest


def test_figure_1_equal_directions_fail_on_a_node_whose_rows_lie_on_a_line():
    """Figure 1 (c): problem (4) has only that line to offer, problem (7) the projections of the central direction."""
    rng = np.random.default_rng(0)
    phi = {j: rng.normal(size=(40, 2)) * [3, 1] for j in "bc"} | {"a": np.outer(rng.normal(size=40), [0.5, 1.0])}
    line = np.array([0.5, 1.0]) / np.linalg.norm([0.5, 1.0])
    F = np.concatenate(list(phi.values()))
    u = np.linalg.svd(F)[2][0]
    z = solution_of_problem_7(phi, [("a", "b"), ("b", "c")])
    assert all_are_the_central_direction(z, phi)
    assert np.sum((F @ line) ** 2) < 0.6 * np.sum((F @ u) ** 2)  # the best that w_1 = w_2 = w_3 allows


def test_figure_2_nodes_that_exchange_nothing_learn_of_each_other():
    """Nodes 1 and 3 have no edge; by way of 2 and 6 an iteration makes the direction at 1 depend on the rows at 3."""
    graph = {
        "1": ("2", "6"),
        "2": ("1", "3"),
        "3": ("2", "4", "5", "6"),
        "4": ("3", "5"),
        "5": ("3", "4", "6"),
        "6": ("1", "3", "5"),
    }
    rng = np.random.default_rng(0)
    tables = {j: rng.normal(size=(20, 4)) * [2, 1, 1, 1] for j in graph}
    other = rng.normal(size=(20, 4)) * [2, 1, 1, 1]
    rho = {"solver": {"rho": 40.0, "signs": "as drawn"}}
    one, two = (fitted(rows, 1, kernel="rbf", gamma=0.2, graph=graph, **rho) for rows in (tables, tables | {"3": other}))
    assert not [m for m in one.ledger_ if {m.sender, m.receiver} == {"1", "3"}]
    assert np.abs(one.node_iterates_["1"][0] - two.node_iterates_["1"][0]).max() > 1e-6
    two = fitted(tables | {"4": other}, 1, kernel="rbf", gamma=0.2, graph=graph, **rho)
    assert np.abs(one.node_iterates_["1"][0] - two.node_iterates_["1"][0]).max() == 0  # a change at 4 is not yet seen there


# -- the closed forms (10) to (14) ------------------------------------------------------------------------------------------


def solves_9(problem, s, z):
    """Whether no other feasible Z has a smaller U than z; U is convex, so trials around z and far away would find one."""
    if max(np.linalg.norm(v) for v in z.values()) > 1 + ROUNDING:
        return False
    rng, least = np.random.default_rng(0), problem.relaxed(s.alpha, z, s.eta)
    for size in np.repeat([1e-3, 1e-2, 0.1, 1.0], 50):
        trial = {j: v + size * rng.standard_normal(len(v)) / np.sqrt(len(v)) for j, v in z.items()}
        trial = {j: v / max(1.0, np.linalg.norm(v)) for j, v in trial.items()}
        if problem.relaxed(s.alpha, trial, s.eta) < least - ROUNDING:
            return False
    return True


@pytest.mark.parametrize("scale", [0.02, 1.0], ids=["within the ball", "on its boundary"])
def test_10_and_11_solve_the_relaxed_problem_9(scale):
    problem = linear()
    s = problem.run(problem.own_start(), 4)[-1]
    s = type(s)({j: scale * a for j, a in s.alpha.items()}, {pair: scale * v for pair, v in s.eta.items()}, s.z)
    z = problem.next_z(s.alpha, s.eta)
    assert (max(np.linalg.norm(v) for v in z.values()) < 1 - 1e-6) == (scale < 1)
    assert solves_9(problem, s, z)
    without = problem.next_z(s.alpha, {pair: 0 * v for pair, v in s.eta.items()})  # (10) without the multipliers
    assert not solves_9(problem, s, without)
    assert not solves_9(problem, s, {j: 1.3 * v for j, v in z.items()})


def solves_the_alpha_problem(problem, s, j, alpha):
    rng = np.random.default_rng(0)

    def value(a):
        return problem.lagrangian(s.alpha | {j: a}, s.z, s.eta)

    trials = [alpha + size * rng.standard_normal(len(alpha)) for size in np.repeat([1e-3, 0.1, 10.0], 50)]
    return min(map(value, trials)) >= value(alpha) - ROUNDING


def test_12_minimises_the_lagrangian_where_rho_is_large_enough():
    problem = linear()
    s = problem.run(problem.own_start(), 3)[-1]
    assert solves_the_alpha_problem(problem, s, "a", problem.next_alpha(s.eta, s.z, "a"))
    assert not solves_the_alpha_problem(problem, s, "a", problem.next_alpha(s.eta, s.z, "a", curvature=1.0))
    small = Dense(problem.phi, problem.omega, 0.9 * 2 * np.linalg.eigvalsh(problem.K["a"])[-1] / 3)  # rho |Omega| < 2 lambda_1
    assert not solves_the_alpha_problem(small, s, "a", small.next_alpha(s.eta, s.z, "a"))


def test_14_holds_after_an_iteration_and_not_before():
    problem = rbf()

    def holds(s):
        sums = {j: problem.phi[j] @ sum(s.eta[j, q] for q in problem.omega[j]) for j in problem.phi}
        return all(np.allclose(2 * problem.K[j] @ problem.K[j] @ s.alpha[j], sums[j], atol=1e-8) for j in problem.phi)

    begin, *rest = problem.run(problem.own_start(), 3)
    assert all(map(holds, rest))
    assert not holds(begin)  # eta = 0 there, and Lemma 4 uses (14) for both of its iterates


# -- Assumption 2, (15), Lemmas 3 and 4, Theorem 2 --------------------------------------------------------------------------


def decrease_coefficient(values, rho, curvature):
    """c_j / 2 - 4 sum lambda^3 / rho of Theorem 2."""
    return curvature / 2 - 4 * np.sum(values**3) / rho


def test_assumption_2_is_the_root_for_c_with_twice_lambda_1():
    """Its rho makes Theorem 2's coefficient 0 for c = (rho |Omega| - 2 lambda_1) lambda_1, not for the c that is printed."""
    K = rbf().K["a"]
    values, rho = np.linalg.eigvalsh(K), assumption_2(K, 3)
    first, least = values[-1], min((rho * 3 - 2 * values) * values)
    assert abs(decrease_coefficient(values, rho, (rho * 3 - 2 * first) * first)) < 1e-10 * first**2
    assert decrease_coefficient(values, rho, (rho * 3 - first) * first) > 0.1 * first**2
    assert decrease_coefficient(values, 0.9 * rho, (0.9 * rho * 3 - 2 * first) * first) < 0
    assert decrease_coefficient(values, rho, least) < 0  # the true curvature: nothing is promised at this rho


def differences(problem, states):
    """E_1 (Lemma 3), E_2 (Lemma 4), E_3 (15), step by step."""
    L = problem.lagrangian
    E = [
        (
            L(new.alpha, new.z, new.eta) - L(new.alpha, s.z, new.eta),
            L(new.alpha, s.z, new.eta) - L(new.alpha, s.z, s.eta),
            L(new.alpha, s.z, s.eta) - L(s.alpha, s.z, s.eta),
        )
        for s, new in pairwise(states)
    ]
    return np.array(E).T


def bounds(problem, states, curvature):
    """What Lemma 3, Lemma 4 and (15) say that these are at most."""
    found = []
    spectra = {j: np.linalg.eigvalsh(K) for j, K in problem.K.items()}
    c = {j: curvature(problem.rho, len(problem.omega[j]), spectra[j]) for j in problem.phi}
    for s, new in pairwise(states):
        steps = {j: np.sum((new.alpha[j] - s.alpha[j]) ** 2) for j in problem.phi}
        first = -problem.rho / 2 * sum(np.sum((problem.P[j] @ (new.z[q] - s.z[q])) ** 2) for j, q in problem.pairs())
        second = 4 / problem.rho * sum(np.sum(spectra[j] ** 3) * steps[j] for j in problem.phi)
        found.append((first, second, -sum(c[j] / 2 * steps[j] for j in problem.phi)))
    return np.array(found).T


def printed(rho, size, values):
    """The paper's c_j."""
    decides = values[-1] if (values[-1] + values[0]) / (2 * size) <= rho else values[0]
    return (rho * size - decides) * decides


def curvature_of(rho, size, values):
    """The least eigenvalue of rho |Omega| K - 2 K^2, the Hessian of the alpha-problem."""
    return min((rho * size - 2 * values) * values)


def last_true_line(problem, states):
    """What Lemma 3's proof shows before its last inequality."""
    outside = [sum(np.sum((s.z[q] - problem.P[j] @ s.z[q]) ** 2) for j, q in problem.pairs()) for s in states]
    moved = [sum(np.sum((new.z[q] - s.z[q]) ** 2) for _, q in problem.pairs()) for s, new in pairwise(states)]
    return problem.rho / 2 * (-np.diff(outside) - moved)


def multipliers_moved(problem, states):
    """E_2, as Lemma 4's proof has it before its first inequality."""
    return np.array([sum(np.sum((new.eta[k] - s.eta[k]) ** 2) for k in s.eta) for s, new in pairwise(states)]) / problem.rho


def kept_to(found, bound):
    return bool(np.all(found <= bound + ROUNDING))


def test_15_holds_with_the_least_curvature_and_not_with_the_printed_one():
    for problem in (linear(), rbf()):
        states = problem.run(problem.own_start(), 15)
        E_3 = differences(problem, states)[2]
        assert kept_to(E_3, bounds(problem, states, curvature_of)[2])
        assert not kept_to(E_3, bounds(problem, states, printed)[2])


def test_lemma_3_holds_where_every_nodes_rows_span_feature_space_and_fails_elsewhere():
    """Its last step, |b|^2 - |a|^2 <= |b - a|^2 for parts outside span phi(X_j), is false; where there are none it is idle."""
    problem = linear()
    states = problem.run(problem.own_start(), 15)
    assert kept_to(differences(problem, states)[0], bounds(problem, states, printed)[0])
    problem = rbf()
    states = problem.run(problem.own_start(), 15)
    E_1 = differences(problem, states)[0]
    assert not kept_to(E_1, bounds(problem, states, printed)[0])
    assert kept_to(E_1, last_true_line(problem, states))


def test_lemma_4_holds_for_one_neighbour_after_the_first_iteration_and_fails_elsewhere():
    """It takes the norm of a sum of columns for at least that of the columns; for one column it is."""
    problem = rbf(PAIR)
    states = problem.run(random_start(problem), 15)
    E_2, most = differences(problem, states)[1], bounds(problem, states, printed)[1]
    np.testing.assert_allclose(E_2, multipliers_moved(problem, states), rtol=1e-8, atol=ROUNDING)
    assert kept_to(E_2[1:], most[1:])
    problem = rbf()
    states = problem.run(problem.own_start(), 15)
    assert not kept_to(differences(problem, states)[1][1:], bounds(problem, states, printed)[1][1:])


def never_rises(values):
    return bool(np.all(np.diff(values) <= ROUNDING))


@pytest.mark.parametrize("seed", range(4))
def test_theorem_2s_sequence_falls_where_rows_span_feature_space(seed):
    """The solver's record is Theorem 2's sequence; with rho = .75 lambda_1, near (12)'s limit, it rises."""
    problem, tables = linear(seed), blocks(seed=seed)
    pca = fitted(tables, 25, kernel="linear", solver={"rho": problem.rho})
    states = problem.run(problem.own_start(), 25)
    np.testing.assert_allclose(pca.lagrangian_[0], problem.of_theorem_2(states)[:-1], rtol=1e-8)
    np.testing.assert_allclose(pca.lagrangian_after_update_[0], problem.after_update(states), rtol=1e-8)
    assert never_rises(pca.lagrangian_[0])
    assert pca.lagrangian_rises_ == [0]
    first = max(np.linalg.eigvalsh(K)[-1] for K in problem.K.values())
    assert not never_rises(fitted(tables, 25, kernel="linear", solver={"rho": 0.75 * first}).lagrangian_[0])


def test_theorem_2s_sequence_rises_although_assumption_2_holds():
    """An rbf kernel, no pseudo-inverse at work; a larger rho makes it rise more often, and so without j in Omega_j."""
    problem = rbf()
    assert min(np.linalg.eigvalsh(K)[0] for K in problem.K.values()) > 1e-3
    pca = fitted(rbf_tables(), 30, kernel="rbf", gamma=0.3, solver={"rho": problem.rho})
    states = problem.run(problem.own_start(), 30)
    np.testing.assert_allclose(pca.lagrangian_[0], problem.of_theorem_2(states)[:-1], rtol=1e-8)
    assert pca.lagrangian_rises_[0] > 10
    assert np.diff(pca.lagrangian_[0]).max() > 0.01
    assert np.argmax(np.diff(pca.lagrangian_[0]) > 0) > 0  # not only where (14) does not hold yet
    for times in (2, 10):
        larger = fitted(rbf_tables(), 30, kernel="rbf", gamma=0.3, solver={"rho": times * problem.rho})
        assert larger.lagrangian_rises_[0] > 5
    without = rbf(RING)
    assert not never_rises(without.of_theorem_2(without.run(without.own_start(), 30)))


def test_theorem_2s_inequality_with_what_its_proof_does_show():
    """Lemma 3 without its last step, Lemma 4's E_2 itself, and (15) with the least curvature: their sum bounds the change."""
    for problem in (linear(), rbf()):
        states = problem.run(problem.own_start(), 15)
        change = np.diff(problem.of_theorem_2(states))
        np.testing.assert_allclose(differences(problem, states).sum(axis=0), change, atol=1e-8)
        shown = last_true_line(problem, states) + bounds(problem, states, curvature_of)[2]
        assert kept_to(change, shown + multipliers_moved(problem, states))
    assert not kept_to(change, shown)  # rbf: the multipliers' step is what raises it


# -- Section 4.2: what an iteration sends -----------------------------------------------------------------------------------


def test_an_iteration_sends_a_neighbour_two_vectors_where_the_paper_sends_three():
    """N_j + N_l numbers from j to l: the sum of the paper's alpha_j and eta_j part, and the values of z_j at X_l."""
    tables = blocks()
    pca = fitted(tables, 1, kernel="linear")
    sent = {}
    for m in pca.ledger_:
        if m.function in ("send_coefficients", "send_values"):
            sent[m.sender, m.receiver] = sent.get((m.sender, m.receiver), 0) + sum(int(np.prod(shape)) for shape in m.shapes)
    assert sent == {(j, q): len(tables[j]) + len(tables[q]) for j in RING for q in RING[j]}
