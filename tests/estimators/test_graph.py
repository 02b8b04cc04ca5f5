"""GraphPCA and GraphKernelPCA: truth by numpy and scikit-learn, what crosses edges, graphs, errors."""

from __future__ import annotations

import contextlib
import pickle
import warnings

import networkx
import numpy as np
import pytest
from scipy.linalg import eigh, subspace_angles
from sklearn.base import clone
from sklearn.decomposition import KernelPCA
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import eigenpact as ep
from eigenpact.algorithms.graph import baselines, deflation, gossip, neighbourhood, projection_consensus, signs, trust
from eigenpact.errors import InputError
from eigenpact.estimators.graph.graphs import find_graph, natural_order
from eigenpact.numerics.kernels import WORTH_ROUNDING, Kernel, function_name, landmark_features, random_features
from eigenpact.runtime import LocalFunction, wire_table

QUIET = pytest.mark.filterwarnings("ignore::eigenpact.errors.NotConvergedWarning")


def uneven(nodes=20, d=9, seed=0, sort=False):
    """Nodes with 5 to 24 rows of one population, or sorted by the first feature: nodes unlike each other."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(sum(5 + j for j in range(nodes)), d)) * np.linspace(3, 0.5, d) + 5
    X = X[np.argsort(X[:, 0])] if sort else X
    ends = np.cumsum([5 + j for j in range(nodes)])
    return {f"n{j}": part for j, part in enumerate(np.split(X, ends[:-1]))}


# -- GraphPCA -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graph", "nodes", "sort"),
    [("erdos:0.3", 20, True), ("ring:4", 9, False)]
    + [(graph, 9, True) for graph in ("ring:2", "ring:4", "grid", "regular:4", "small-world:4")],
)
def test_graph_pca_is_pooled_pca_at_every_node(graph, nodes, sort):
    tables = uneven(nodes, d=8, sort=sort)
    pca = ep.GraphPCA(3, graph=graph, random_state=0).fit(tables)
    X = np.concatenate(list(tables.values()))
    exact = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    assert pca.converged_, pca.stop_reason_
    for components in pca.node_components_.values():
        assert np.sin(subspace_angles(components.T, exact[2][:3].T)).max() <= 1e-8
    np.testing.assert_allclose(pca.explained_variance_, exact[1][:3] ** 2 / (len(X) - 1), rtol=1e-8)
    np.testing.assert_allclose(pca.mean_, X.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(np.abs(pca.transform(X)), np.abs((X - X.mean(axis=0)) @ exact[2][:3].T), atol=1e-6)


def test_graph_pca_without_centring_and_with_more_columns_than_features():
    tables = uneven(4, 3)
    pca = ep.GraphPCA(3, graph="ring:2", center=False, random_state=0).fit(tables)
    X = np.concatenate(list(tables.values()))
    np.testing.assert_allclose(pca.explained_variance_ * (len(X) - 1), np.linalg.svd(X)[1] ** 2, rtol=1e-8)
    assert (pca.mean_ == 0).all()


def test_not_converging_is_a_warning():
    with pytest.warns(
        ep.errors.NotConvergedWarning, match="max_iterations=2 reached at residual .* > tol 1.0e-11; raise max_iterations"
    ):
        ep.GraphPCA(2, graph="ring:2", max_iterations=2, random_state=0).fit(uneven(5))


# -- kernels and references ---------------------------------------------------------------------------------------------


def doubled_cosine(X, Y):
    """A kernel that is not normalised."""
    return 2 * np.exp(-0.1 * ((X[:, None] - Y) ** 2).sum(-1))


@pytest.mark.parametrize(
    ("options", "truth"),
    [
        ({"kernel": "rbf", "gamma": 0.1}, {"kernel": "rbf", "gamma": 0.1}),
        ({"kernel": "laplacian", "gamma": 0.1}, {"kernel": lambda x, y: np.exp(-0.1 * np.abs(x - y).sum())}),
        ({"kernel": doubled_cosine}, {"kernel": "rbf", "gamma": 0.1}),
        ({"kernel": "linear"}, {"kernel": "cosine"}),
    ],
    ids=["rbf", "laplacian", "function", "linear"],
)
def test_central_and_one_node_are_scikit_learns(options, truth):
    tables = uneven(6, 4)
    X = np.concatenate(list(tables.values()))
    exact = KernelPCA(2, **truth).fit(X)
    wanted = np.abs(exact.transform(X))
    central = ep.GraphKernelPCA(2, graph="ring:2", solver="central", **options).fit(tables)
    np.testing.assert_allclose(np.abs(central.transform(X)), wanted, atol=1e-7)
    alone = ep.GraphKernelPCA(2, random_state=0, **options).fit(X)
    np.testing.assert_allclose(np.abs(alone.transform(X)), wanted, atol=1e-4)


def test_polynomial_kernel_is_normalised():
    X = np.random.default_rng(0).normal(size=(5, 3))
    K = (0.5 * X @ X.T + 1) ** 2
    scale = np.sqrt(np.diag(K))
    np.testing.assert_allclose(Kernel("poly", 0.5, 2, 1)(X, X), K / np.outer(scale, scale))


def test_features_approximate_their_kernels():
    X = np.random.default_rng(0).normal(size=(40, 8))
    for name in ("rbf", "laplacian"):
        kernel = Kernel(name, 0.05)
        F = random_features(X, kernel.frequencies(8, 4096, 0))
        assert np.abs(F @ F.T - kernel(X, X)).max() < 0.05
    blocks = Kernel("rbf", 0.05).frequencies(8, 8, 0)
    angles = blocks @ blocks.T / np.outer(np.linalg.norm(blocks, axis=1), np.linalg.norm(blocks, axis=1))
    np.testing.assert_allclose(angles, np.eye(8), atol=1e-12)  # orthogonal
    kernel = Kernel("rbf", 0.05)
    F = landmark_features(kernel, X, X)  # the rows themselves: exact
    np.testing.assert_allclose(F @ F.T, kernel(X, X), atol=1e-8)


def test_best_local_direction_solves_problem_5():
    tables = uneven(5, 4)
    best = ep.GraphKernelPCA(1, gamma=0.1, graph="ring:2", solver="best-local").fit(tables)
    X = np.concatenate(list(tables.values()))
    K = KernelPCA(1, kernel="rbf", gamma=0.1).fit(X)._centerer.fit_transform(Kernel("rbf", 0.1)(X, X))
    start = 0
    for name, part in tables.items():
        own = slice(start, start + len(part))
        start += len(part)
        value = eigh(K[own] @ K[own].T, K[own, own] + 1e-10 * np.eye(len(part)), eigvals_only=True)[-1]
        alpha = best.models_[name].alpha[:, 0]
        assert np.sum((alpha @ K[own]) ** 2) / (alpha @ K[own, own] @ alpha) == pytest.approx(value, rel=1e-5)


def test_own_and_neighbourhood_baselines():
    tables = uneven(6, 4)
    own = ep.GraphKernelPCA(2, gamma=0.1, graph="ring:2", solver="own").fit(tables)
    exact = KernelPCA(2, kernel="rbf", gamma=0.1).fit(tables["n3"])
    np.testing.assert_allclose(np.abs(own.transform(tables["n1"], site="n3")), np.abs(exact.transform(tables["n1"])), atol=1e-8)
    assert own.ledger_.since(0) == []
    near = ep.GraphKernelPCA(2, gamma=0.1, graph="ring:2", solver="neighbourhood").fit(tables)
    exact = KernelPCA(2, kernel="rbf", gamma=0.1).fit(np.concatenate([tables[n] for n in ("n3", "n2", "n4")]))
    np.testing.assert_allclose(np.abs(near.transform(tables["n1"], site="n3")), np.abs(exact.transform(tables["n1"])), atol=1e-8)


# -- methods ------------------------------------------------------------------------------------------------------------


def sorted_groups():
    """Nodes of four groups far from each other, sorted: neighbours hold different groups."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, 10)) * 2
    return {f"n{j}": centres[j // 3] + rng.normal(size=(30, 10)) for j in range(12)}


@pytest.mark.parametrize("method", ["random-features", "landmarks"])
def test_methods_without_rows_find_the_central_scores_on_sorted_nodes(method):
    tables = sorted_groups()
    new = np.concatenate([part + 0.1 for part in tables.values()])
    public = np.concatenate(list(tables.values()))[::4] + 0.3 if method == "landmarks" else None
    pca = ep.GraphKernelPCA(2, gamma=0.03, graph="ring:2", solver=method, landmarks=public, random_state=0).fit(tables)
    exact = KernelPCA(2, kernel="rbf", gamma=0.03).fit(np.concatenate(list(tables.values()))).transform(new)
    for node in ("n0", "n7"):
        T = pca.transform(new, site=node)
        assert min(abs(np.corrcoef(T[:, c], exact[:, c])[0, 1]) for c in range(2)) > 0.995


def test_projection_consensus_says_when_it_fails():
    with pytest.warns(ep.errors.NotConvergedWarning, match=r"component 1 is not to be trusted: .* express only 0"):
        pca = ep.GraphKernelPCA(1, gamma=0.2, graph="ring:2", random_state=0).fit(sorted_groups())
    assert not pca.converged_
    assert min(pca.agreement_, pca.coverage_) < 0.5


def test_a_kernel_that_sees_no_two_rows_alike_is_a_failure_and_no_crash():
    """All eigenvalues are equal, of which LAPACK's search for the largest may find none."""
    tables = {name: 10 * part for name, part in sorted_groups().items()}
    with pytest.warns(ep.errors.NotConvergedWarning, match="not to be trusted"):
        ep.GraphKernelPCA(1, gamma=0.2, graph="ring:2", random_state=0).fit(tables)


@pytest.mark.parametrize(
    "options",
    [{}, {"kernel": "laplacian", "gamma": 0.05}, {"kernel": "poly", "degree": 2, "landmarks": "rows"}, {"center": False}],
    ids=["rbf", "laplacian", "poly", "uncentred"],
)
def test_projection_consensus_with_every_kernel(options):
    rng = np.random.default_rng(1)
    tables = {f"n{j}": rng.normal(size=(40, 4)) * [3, 1, 1, 0.5] for j in range(8)}
    options = options | ({"landmarks": rng.normal(size=(60, 4)) * [3, 1, 1, 0.5]} if "landmarks" in options else {})
    shared = {"gamma": 0.05, "graph": "ring:4"} | options
    pca = ep.GraphKernelPCA(1, random_state=0, **shared).fit(tables)
    central = ep.GraphKernelPCA(1, solver="central", **shared).fit(tables)
    own = ep.GraphKernelPCA(1, solver="own", **shared).fit(tables)
    found = np.array([abs(c[0, 0]) for c in pca.similarity(central).values()])
    assert found.mean() > np.mean([abs(c[0, 0]) for c in own.similarity(central).values()])
    assert found.min() > 0.97


def test_iterates_of_every_component_end_with_the_answer():
    rng = np.random.default_rng(3)
    tables = {f"n{j}": rng.normal(size=(40, 3)) * [3, 1.5, 0.4] for j in range(6)}
    shared = {"gamma": 0.01, "graph": "ring:4", "random_state": 0}
    pca = ep.GraphKernelPCA(2, solver=ep.solvers.ProjectionConsensus(keep_iterates=True), **shared).fit(tables)
    central = ep.GraphKernelPCA(2, solver="central", **shared).fit(tables)
    for c in range(2):
        curve = pca.iterate_similarity(central, c)
        assert curve.shape == (pca.notes_["iterations"][c], 6)
        np.testing.assert_allclose(curve[-1], [abs(found[c, c]) for found in pca.similarity(central).values()], rtol=1e-10)
    with pytest.raises(InputError, match=r"kept no iterates; fit two nodes or more with solver=ep.solvers.ProjectionConsensus"):
        ep.GraphKernelPCA(1, **shared).fit(tables).iterate_similarity(central)


# -- what crosses edges -------------------------------------------------------------------------------------------------


def test_projection_consensus_sends_rows_once_and_the_table_says_so():
    tables = uneven(6, 4)
    pca = ep.GraphKernelPCA(1, gamma=0.05, graph="ring:2", random_state=0).fit(tables)
    modules = (projection_consensus, neighbourhood, signs, deflation, trust, gossip, baselines)
    functions = [f for m in modules for f in vars(m).values() if isinstance(f, LocalFunction)]
    assert {row["function"] for row in wire_table(functions) if "d" in row["shape"].split() and row["way"] == "from site"} == {
        "send_rows"
    }
    rows = [message for message in pca.ledger_ if message.function == "send_rows"]
    assert {(m.sender, m.shapes) for m in rows} == {(name, ((len(part), 4),)) for name, part in tables.items()}
    assert len(rows) == 12


# -- graphs, errors, scikit-learn ---------------------------------------------------------------------------------------


def test_every_way_to_give_a_graph():
    names = [f"n{j}" for j in range(12)]
    assert all(len(others) == 4 for others in find_graph("ring:4", names).values())
    assert find_graph("ring:4", names)["n0"] == ("n1", "n10", "n11", "n2")  # by number, not by letters
    assert len(find_graph("complete", names)["n3"]) == 11
    assert find_graph("ring:2", ["a"]) == {"a": ()}
    assert find_graph("grid", names)["n0"] == ("n1", "n4")
    path = networkx.path_graph(3)
    assert find_graph(path, ["0", "1", "2"])["1"] == ("0", "2")
    assert find_graph({"a": ["b"], "b": ["c"]}, "abc") == find_graph([("a", "b"), ("b", "c")], "abc")
    assert find_graph("regular:4:1", names) != find_graph("regular:4:2", names)
    assert natural_order(["s10", "s9", "a"]) == ["a", "s9", "s10"]


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ("wheel", "unknown graph 'wheel'; the short names are ring:M"),
        ("ring:3", "cannot be made for 4 nodes .3 is not an even number"),
        ("erdos", "'erdos' cannot be made"),
        (7, "graph=7 must be a networkx Graph, a list of edges or a short name"),
        ([1, 2], "every edge is a pair of node names .*, and 1 is none"),
        ({"n0": 1}, "the neighbours of 'n0' are a list of node names, not 1"),
        ({"n0": "n1"}, "the neighbours of 'n0' are a list of node names, not 'n1'"),
        ([("n0", "n1"), ("n2", "n3")], "not connected, it has 2 parts: n0, n1; n2, n3; add edges"),
        ([("n0", "n1"), ("n2", "n9")], r"differ in \['n9'\]"),
        ([("n0", "n1", "n2")], "every edge is a pair"),
        (networkx.DiGraph([("n0", "n1")]), "directed"),
    ],
)
def test_graphs_that_are_refused(graph, message):
    with pytest.raises(InputError, match=message):
        ep.GraphPCA(1, graph=graph).fit(uneven(4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_components": 0}, "n_components=0 must be a whole number"),
        ({"n_components": 1000}, "must be at most the number of rows"),
        ({"kernel": "sigmoid"}, "unknown kernel 'sigmoid'; the kernels are rbf"),
        ({"kernel": 3}, "kernel=3 must be one of"),
        ({"gamma": -1.0}, "gamma=-1.0 must be a number > 0"),
        ({"gamma": float("inf")}, "gamma=inf must be a number > 0"),
        ({"gamma": "scale"}, "gamma='scale' must be a number > 0"),
        ({"n_components": True}, "n_components=True must be a whole number"),
        ({"kernel": "poly", "degree": 2.5}, "degree=2.5, coef0=1: 'poly' needs a whole degree"),
        ({"kernel": "linear", "n_components": 10, "center": False}, "must be at most n_features=9 with kernel 'linear'"),
        ({"kernel": lambda X, Y: -X @ Y.T, "center": False}, r"K\(x, x\) < 0"),
        ({"kernel": lambda X, Y: X, "center": False}, r"gave a table of shape \(1, 9\) for tables of 1 and 1 rows"),  # noqa: ARG005
        (
            {"solver": ep.solvers.RandomFeatures(8), "n_components": 12},
            "n_components=12 must be at most the number of features, 8",
        ),
        ({"solver": "own", "n_components": 6}, "5 rows give at most as many components"),
        ({"engine": ep.engines.InProcess(round_timeout=1.0)}, "round_timeout is for runs that can go on without a site"),
        (
            {"solver": "admm"},
            "unknown solver 'admm'; the solvers of GraphKernelPCA are .*projection-consensus, .*, neighbourhood, own, central",
        ),
        ({"solver": "landmarks"}, "needs public rows: pass landmarks="),
        ({"solver": "landmarks", "landmarks": np.ones((3, 2))}, "landmarks have 2 features, the nodes' rows 9"),
        ({"solver": "random-features", "kernel": "poly"}, "kernel='poly' has no random features; give public rows"),
        (
            {"kernel": "poly"},
            "no random features to describe the common mean with; give public rows",
        ),
        ({"max_iterations": 0}, "max_iterations=0 must be a whole number >= 1"),
        ({"tol": -1}, "tol=-1 must be a number >= 0"),
    ],
)
def test_parameters_that_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        ep.GraphKernelPCA(**{"graph": "ring:2", "random_state": 0} | options).fit(uneven(4))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ep.solvers.ProjectionConsensus(schedule="x"), "schedule='x' must be"),
        (lambda: ep.solvers.ProjectionConsensus(start="x"), "start='x' must be"),
        (lambda: ep.solvers.ProjectionConsensus(noise=-1), "noise=-1 must be"),
        (lambda: ep.solvers.ProjectionConsensus(rho=0), "rho=0 must be"),
        (lambda: ep.solvers.RandomFeatures(7), "n_features=7 must be an even number"),
        (lambda: ep.solvers.ProjectionConsensus(centring_features=1), "centring_features=1 must be an even number >= 2"),
        (lambda: ep.solvers.Tracking(columns=-3), "columns=-3 must be a whole number >= 0"),
        (lambda: ep.solvers.Landmarks(min_rows=0), "min_rows=0 must be a whole number >= 1"),
    ],
)
def test_methods_that_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_unfitted_estimators_say_so():
    for act in (
        lambda: ep.GraphPCA().transform(np.ones((3, 2))),
        lambda: ep.GraphKernelPCA().transform(np.ones((3, 2))),
        lambda: ep.GraphKernelPCA().similarity(ep.GraphKernelPCA()),
        lambda: ep.GraphKernelPCA().lagrangian_,
    ):
        with pytest.raises(NotFittedError):
            act()


def test_values_whose_squares_vanish_are_refused():
    with pytest.raises(InputError, match="the squares of the values underflow or overflow; give the data in other units"):
        ep.GraphPCA(1, graph="ring:2", random_state=0).fit({name: part * 1e-160 for name, part in uneven(4).items()})


def test_scores_at_a_node_are_by_its_own_mean():
    tables = uneven(5, 4, sort=True)
    pca = ep.GraphPCA(1, graph="ring:2", random_state=0).fit(tables)
    assert np.any(pca.node_means_["n3"] != pca.node_means_["n0"])  # in their last digits
    scores = (tables["n0"] - pca.node_means_["n3"]) @ pca.node_components_["n3"].T
    np.testing.assert_array_equal(pca.transform(tables["n0"], site="n3"), scores)


def closure(gamma):
    """Two of these have the same name and are not the same."""

    def kernel(X, Y):
        return np.exp(-gamma * ((X[:, None] - Y) ** 2).sum(-1))

    return kernel


def test_kernel_functions_of_one_name_are_kept_apart():
    tables = uneven(5, 3)
    first = ep.GraphKernelPCA(1, kernel=closure(0.01), graph="ring:2", center=False, random_state=0).fit(tables)
    before = first.transform(tables["n0"])
    second = ep.GraphKernelPCA(1, kernel=closure(0.3), graph="ring:2", center=False, random_state=0)
    with contextlib.suppress(ep.errors.NotConvergedWarning):
        second.fit(tables)
    np.testing.assert_array_equal(first.transform(tables["n0"]), before)
    assert function_name(doubled_cosine) == f"{__name__}:doubled_cosine"
    assert function_name(closure(1)) is None


def test_functions_that_cannot_be_imported_are_refused_where_nodes_are_in_other_processes():
    engine = ep.engines.MPI()
    with pytest.raises(InputError, match="cannot be imported by name"):
        ep.GraphKernelPCA(1, kernel=closure(1.0), engine=engine)._find_algorithm(engine)
    ep.GraphKernelPCA(1, kernel=doubled_cosine, engine=engine)._find_algorithm(engine)


@pytest.mark.parametrize("method", [ep.solvers.ProjectionConsensus(), ep.solvers.RandomFeatures(64), "neighbourhood", "tracking"])
def test_plans_announce_what_runs_and_enough_rounds(method):
    tables = uneven(6, 4)
    options = {"graph": "ring:2", "random_state": 0, "max_iterations": 7}
    pca = ep.GraphPCA(2, **options) if method == "tracking" else ep.GraphKernelPCA(2, solver=method, gamma=0.02, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ep.errors.NotConvergedWarning)
        pca.fit(tables)
    plan = pca._plan(pca._find_algorithm(ep.engines.InProcess()))
    assert {message.function for message in pca.ledger_} - {"maximum", "pass_on_maximum"} <= {
        name.rpartition(":")[2].partition("/")[0] for name in plan.functions
    }
    assert pca.n_rounds_ + pca.n_setup_rounds_ <= plan.max_rounds <= 4 * pca.n_rounds_ + 30
    assert "exchange" in plan.kinds


def test_features_have_no_similarity():
    pca = ep.GraphKernelPCA(1, graph="ring:2", solver=ep.solvers.RandomFeatures(64), random_state=0).fit(uneven(4))
    with pytest.raises(InputError, match="similarity is with a fit of solver='central', and this one is of 'random-features'"):
        pca.similarity(pca)
    with pytest.raises(InputError, match="compare scores on new rows instead"):
        pca.similarity(ep.GraphKernelPCA(1, graph="ring:2", solver="central").fit(uneven(4)))
    with pytest.raises(InputError, match="solver 'random-features' has no augmented Lagrangian"):
        _ = pca.lagrangian_


def test_clone_pickle_labels_and_determinism():
    rng = np.random.default_rng(5)
    tables = {f"n{j}": rng.normal(size=(30 + j, 4)) * [3, 1, 1, 0.5] for j in range(5)}
    pca = ep.GraphKernelPCA(1, gamma=0.05, graph="ring:2", random_state=3).fit(tables)
    X, labels = np.concatenate(list(tables.values())), np.repeat(list(tables), [len(part) for part in tables.values()])
    again = clone(pca).fit(X, sites=labels)
    new = X[:7] + 0.1
    assert (again.transform(new, site="n2") == pca.transform(new, site="n2")).all()
    assert (pickle.loads(pickle.dumps(pca)).transform(new, site="n2") == pca.transform(new, site="n2")).all()
    with pytest.raises(InputError, match="give one table of rows"):
        pca.transform(tables)
    with pytest.raises(InputError, match="fit_transform takes one matrix"):
        pca.fit_transform(tables)


@QUIET
@parametrize_with_checks([ep.GraphPCA(random_state=0), ep.GraphKernelPCA(random_state=0)])
def test_scikit_learn(estimator, check):
    check(estimator)


def test_random_features_of_rows_far_from_zero_find_what_varies():
    """Metres on a map: 5e6 from the origin, a fraction of a metre apart.  So wide a kernel is PCA of the rows."""
    rng = np.random.default_rng(0)
    X = np.column_stack([5e5 + 0.1 * rng.normal(size=6000), 5.4e6 + 0.2 * rng.normal(size=6000)])
    kernel = ep.GraphKernelPCA(2, gamma=1e-6, graph="complete", solver="random-features", random_state=0)
    scores = kernel.fit({"a": X[:3000], "b": X[3000:]}).transform(X)
    Y = X - X.mean(axis=0)
    exact = Y @ np.linalg.svd(Y, full_matrices=False)[2].T
    assert min(abs(np.corrcoef(scores[:, i], exact[:, i])[0, 1]) for i in (0, 1)) > 0.9999


@pytest.mark.parametrize("solver", ["random-features", "projection-consensus"])
@pytest.mark.parametrize("far", [0.0, 1e3])
@QUIET
def test_a_row_has_the_same_scores_alone_and_among_others(solver, far):
    """Also where the features of many rows were of single precision in the fit."""
    X = np.random.default_rng(1).normal(size=(1200, 30)) + far
    kernel = ep.GraphKernelPCA(2, gamma=1 / 60, graph="ring:2", solver=solver, random_state=0)
    kernel.fit({"a": X[:400], "b": X[400:800], "c": X[800:]})
    assert X[:400].size * 2048 > WORTH_ROUNDING
    scores = kernel.transform(X, site="a")
    alone = np.concatenate([kernel.transform(row[None], site="a") for row in X[:5]])
    np.testing.assert_allclose(alone, scores[:5], rtol=0, atol=1e-9 * np.abs(scores).max())
