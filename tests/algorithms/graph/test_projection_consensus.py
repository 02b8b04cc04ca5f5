"""Algorithm 1 against the paper's formulas written densely with explicit features, and the paper's theory."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import KernelPCA
from tests.algorithms.graph.dense import RING, WITH_ITSELF, Dense, blocks, unit_rows

import eigenpact as ep
from eigenpact.errors import InputError, ProgramError


def fitted(tables, **options):
    method = ep.solvers.ProjectionConsensus(**{"start": "own", "keep_iterates": True} | options.pop("solver", {}))
    settings = {"kernel": "linear", "graph": RING, "center": False, "tol": 0.0, "max_iterations": 7, "random_state": 0} | options
    with pytest.warns(ep.errors.NotConvergedWarning):
        return ep.GraphKernelPCA(1, solver=method, **settings).fit(tables)


def test_iterates_and_lagrangians_are_the_papers_formulas():
    tables = blocks()
    phi = unit_rows(tables)
    dense = Dense(phi, WITH_ITSELF, 2 * max(np.linalg.eigvalsh(F @ F.T)[-1] for F in phi.values()))
    states = dense.run(dense.own_start(), 7)
    pca, wide = fitted(tables), fitted(tables, solver={"span": "neighbourhood"})
    for j, F in phi.items():
        found = pca.node_iterates_[j][0] @ F  # w_j of every iteration
        np.testing.assert_allclose(found, [dense.w(s.alpha, j) for s in states[1:]], rtol=0, atol=1e-8)
        seen = np.concatenate([F, *(phi[other] for other in RING[j])])
        found = wide.node_iterates_[j][0] @ seen  # z_j of every iteration
        np.testing.assert_allclose(found, [s.z[j] for s in states[:-1]], rtol=0, atol=1e-8)
        direction, last = wide.models_[j].alpha[:, 0] @ seen, states[-2].z[j]
        np.testing.assert_allclose(direction, last / np.linalg.norm(last), rtol=0, atol=1e-8)
    np.testing.assert_allclose(pca.lagrangian_[0], dense.of_theorem_2(states)[:-1], rtol=1e-8)
    np.testing.assert_allclose(pca.lagrangian_after_update_[0], dense.after_update(states), rtol=1e-8)


def test_nodes_find_the_projections_of_the_central_direction():
    """w_j of the answer is the projection of u on the node's own rows, as Theorem 1 says; truth by scikit-learn."""
    rng = np.random.default_rng(2)
    tables = {name: rng.normal(size=(40, 3)) * [3, 1.0, 0.5] for name in RING}
    pca = ep.GraphKernelPCA(1, gamma=0.05, graph=RING, tol=1e-3, max_iterations=60, random_state=0).fit(tables)
    X = np.concatenate([tables[name] for name in RING])
    K = np.exp(-0.05 * ((X[:, None] - X) ** 2).sum(-1))
    H = np.eye(len(X)) - 1 / len(X)
    Kc = H @ K @ H
    truth = KernelPCA(1, kernel="precomputed").fit(K)
    alpha = truth.eigenvectors_[:, 0] / np.sqrt(truth.eigenvalues_[0])
    for i, name in enumerate(RING):
        own = slice(40 * i, 40 * i + 40)
        best = np.linalg.pinv(Kc[own, own], rcond=1e-6, hermitian=True) @ (Kc[own] @ alpha)
        found = pca.models_[name].alpha[:, 0]
        cosine = (found @ Kc[own, own] @ best) / np.sqrt((best @ Kc[own, own] @ best) * (found @ Kc[own, own] @ found))
        assert abs(cosine) > 0.995


def test_too_small_a_rho_is_refused():
    tables = {
        name: np.tile([[1.0, 0.1]], (200, 1)) + 0.01 * np.random.default_rng(i).normal(size=(200, 2))
        for i, name in enumerate(RING)
    }
    method = ep.solvers.ProjectionConsensus(schedule="paper", start="own")  # 100 + 2 * 10 < 2 * 200
    with pytest.raises(ProgramError, match=r"rho .* = 120 must exceed 2 lambda_1\(K_j\) = 400; use schedule='constant'"):
        ep.GraphKernelPCA(1, kernel="linear", graph=RING, center=False, solver=method, random_state=0).fit(tables)


def test_further_components_are_those_of_the_central_kernel_pca():
    rng = np.random.default_rng(3)
    tables = {f"n{j}": rng.normal(size=(60, 3)) * [3, 1.5, 0.4] for j in range(6)}
    pca = ep.GraphKernelPCA(2, gamma=0.01, graph="ring:4", random_state=0).fit(tables)
    central = ep.GraphKernelPCA(2, gamma=0.01, graph="ring:4", solver="central").fit(tables)
    cosines = np.array(list(pca.similarity(central).values()))
    for c in range(2):
        assert np.abs(cosines[:, c, c]).min() > 0.95
        assert abs(np.sign(cosines[:, c, c]).sum()) == 6  # the same sign at all nodes
    T, exact = pca.transform(tables["n0"], site="n3"), central.transform(tables["n0"])
    for c in range(2):
        assert abs(np.corrcoef(T[:, c], exact[:, c])[0, 1]) > 0.99


def test_directions_made_of_all_rows_seen_come_closer_than_those_of_own():
    """Every component at every node, by the same messages; a node's model then has its neighbours' rows, too."""
    rng = np.random.default_rng(3)
    tables = {f"n{j}": rng.normal(size=(25, 10)) * [3, 2, *[0.7] * 8] for j in range(8)}
    new = rng.normal(size=(200, 10)) * [3, 2, *[0.7] * 8]
    shared = {"gamma": 0.03, "graph": "ring:4", "random_state": 0}
    central = ep.GraphKernelPCA(2, **shared, solver="central").fit(tables)
    own = ep.GraphKernelPCA(2, **shared).fit(tables)
    wide = ep.GraphKernelPCA(2, **shared, solver=ep.solvers.ProjectionConsensus(span="neighbourhood")).fit(tables)
    assert own.converged_
    sent = [[(m.round, m.sender, m.receiver, m.bytes) for m in pca.ledger_] for pca in (own, wide)]
    assert sent[0] == sent[1]
    exact = central.transform(new)
    for node in tables:
        assert [len(pca.models_[node].rows) for pca in (own, wide)] == [25, 125]
        for c in range(2):
            apart, errors = [], []
            for pca in (own, wide):
                apart.append(1 - abs(pca.similarity(central)[node][c, c]))
                errors.append(1 - abs(np.corrcoef(pca.transform(new, site=node)[:, c], exact[:, c])[0, 1]))
            assert apart[1] < apart[0] / 2
            assert errors[1] < errors[0]


def test_wrong_spans_starts_signs_and_centrings_are_refused():
    for wrong in ({"span": "all"}, {"start": "neighbourhood"}, {"signs": "drawn"}, {"centring": "site"}):
        with pytest.raises(InputError, match=r"must be "):
            ep.solvers.ProjectionConsensus(**wrong)


@pytest.mark.parametrize("noise", [0.02, 0.1, 0.5])
def test_noise_costs_what_noise_costs(noise):
    """A node uses the noisy copy that its neighbours have; similarity falls with the noise, and not more."""
    rng = np.random.default_rng(4)
    tables = {name: rng.normal(size=(40, 3)) * [3, 1.0, 0.5] for name in RING}
    central = ep.GraphKernelPCA(1, gamma=0.05, graph=RING, solver="central").fit(tables)
    method = ep.solvers.ProjectionConsensus(noise=noise)
    noisy = [ep.GraphKernelPCA(1, gamma=0.05, graph=RING, solver=method, random_state=0).fit(tables) for _ in range(2)]
    assert noisy[0].converged_
    assert min(abs(found[0, 0]) for found in noisy[0].similarity(central).values()) > 0.995 - 0.03 * noise
    drawn = np.stack([[pca.models_[name].rows - X for name, X in tables.items()] for pca in noisy])
    assert 0.8 * noise < drawn.std() < 1.2 * noise  # 960 numbers: over eight standard errors, for nothing seeds this noise
    assert np.abs(drawn[0] - drawn[1]).min() > 0  # the seed does not tell it


@pytest.mark.parametrize("graph", [[("a", "b")], [("a", "b"), ("b", "c"), ("c", "d")]], ids=["two nodes", "path"])
def test_nodes_with_one_neighbour_converge(graph):
    """With rho |Omega_j| = 4 lambda_1 lengths swung beyond 30 iterations, and a right direction was called a failure."""
    names = sorted({name for edge in graph for name in edge})
    rng = np.random.default_rng(4)
    tables = {name: rng.normal(size=(60, 3)) * [3, 1.0, 0.5] for name in names}
    pca = ep.GraphKernelPCA(1, gamma=0.02, graph=graph, random_state=0).fit(tables)
    central = ep.GraphKernelPCA(1, gamma=0.02, graph=graph, solver="central").fit(tables)
    assert pca.converged_
    assert min(abs(found[0, 0]) for found in pca.similarity(central).values()) > 0.99


def test_random_starts_follow_the_seed():
    tables = blocks(20)
    options = {"solver": {"start": "random", "keep_iterates": True}, "max_iterations": 2}

    def first(seed):
        return fitted(tables, **options, random_state=seed).node_iterates_["a"][0][0]

    assert (first(1) == first(1)).all()
    assert np.abs(first(1) - first(2)).max() > 1e-6


def test_signs_as_drawn_are_the_papers_random_start():
    """No message about signs; half of random directions have the sign on which nodes would have agreed."""
    tables = blocks(20)
    drawn, agreed = (fitted(tables, solver={"start": "random", "signs": signs}) for signs in ("as drawn", "agreed"))
    assert [m.function for m in agreed.ledger_ if m.function != "offer_sign"] == [m.function for m in drawn.ledger_]
    assert len(agreed.ledger_) > len(drawn.ledger_)
    assert max(np.abs(drawn.node_iterates_[j][0][0] - agreed.node_iterates_[j][0][0]).max() for j in RING) > 1e-3


def test_signs_do_not_depend_on_the_order_of_rows():
    tables = blocks(20)
    shared = {"gamma": 0.05, "graph": RING, "random_state": 0}
    one = ep.GraphKernelPCA(1, **shared).fit(tables)
    other = ep.GraphKernelPCA(1, **shared).fit({name: X[::-1] for name, X in tables.items()})
    new = tables["a"][:5]
    np.testing.assert_allclose(one.transform(new), other.transform(new), atol=1e-6)
