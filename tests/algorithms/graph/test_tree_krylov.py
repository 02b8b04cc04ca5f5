"""Block Krylov along a tree: against eigenvectors of all features in one place; and what a loose tolerance must not hide."""

from __future__ import annotations

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.algorithms.graph import tree_krylov
from eigenpact.errors import NotConvergedWarning
from eigenpact.numerics import compiled_action
from eigenpact.numerics.kernels import Kernel, landmark_features, random_features
from eigenpact.numerics.machine_code import processor


def tables_of(sizes=(30, 50, 20, 41, 35, 27, 60), d=6, away=0.0):
    rng = np.random.default_rng(1)
    return {f"n{j}": rng.normal(size=(n, d)) * np.linspace(2, 0.5, d) + away for j, n in enumerate(sizes)}


def exact(F, center, k):
    """Leading eigenvalues and eigenvectors of all nodes' features in one place."""
    F = F - F.mean(axis=0) if center else F
    values, vectors = np.linalg.eigh(F.T @ F)
    return values[::-1][:k], vectors[:, ::-1][:, :k]


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("solver", ["landmarks", "random-features"])
def test_components_are_those_of_all_features(solver, center):
    tables, k = tables_of(), 3
    X = np.concatenate(list(tables.values()))
    public = X[::9] + 0.1
    kernel, seed = Kernel("rbf", 0.1), int(np.random.RandomState(0).randint(np.iinfo(np.int32).max))
    method = solver if solver == "landmarks" else ep.solvers.RandomFeatures(64)
    options = {"landmarks": public} if solver == "landmarks" else {}
    pca = ep.GraphKernelPCA(k, gamma=0.1, graph="ring:2", solver=method, center=center, tol=1e-11, random_state=0, **options).fit(
        tables
    )
    F = landmark_features(kernel, X, public) if options else random_features(X, kernel.frequencies(6, 32, seed))
    _, vectors = exact(F, center, k)
    for model in pca.models_.values():
        assert np.linalg.norm(model.components - vectors @ (vectors.T @ model.components)) < 1e-8
        np.testing.assert_allclose(model.mean, F.mean(axis=0) if center else 0.0, atol=1e-14)
    assert len({model.components.tobytes() for model in pca.models_.values()}) == 1
    assert pca.converged_
    assert "no direction was missed" in pca.stop_reason_
    assert pca.n_rounds_ == 2 * 3 * (pca.n_iterations_ + 1)  # the ring of seven is three steps wide


def test_a_loose_tolerance_does_not_hide_a_direction():
    """At first any Ritz vector has a residual of less than all variance; what counts is that none better was missed."""
    rng = np.random.default_rng(3)
    tables = {f"n{j}": np.column_stack([3 * rng.normal(size=40), rng.normal(size=(40, 59))]) for j in range(5)}
    public = np.eye(60)
    options = {"kernel": "linear", "landmarks": public, "center": False, "graph": "ring:2"}
    pca = ep.GraphKernelPCA(1, solver="landmarks", tol=0.5, random_state=0, **options).fit(tables)
    assert pca.n_iterations_ > 1
    unit = {node: X / np.linalg.norm(X, axis=1, keepdims=True) for node, X in tables.items()}
    _, vectors = exact(np.concatenate(list(unit.values())), center=False, k=1)
    assert abs(pca.models_["n0"].components[:, 0] @ vectors[:, 0]) > 0.9


def test_more_iterations_than_features_are_not_needed():
    tables = tables_of()
    pca = ep.GraphKernelPCA(1, graph="ring:2", solver=ep.solvers.RandomFeatures(16), tol=0.0, random_state=0).fit(tables)
    assert pca.converged_
    assert "no direction is left" in pca.stop_reason_
    assert pca.n_iterations_ <= 4


def test_too_few_iterations_are_told():
    with pytest.warns(NotConvergedWarning, match=r"max_iterations=1 reached at residual .* and a proof; raise max_iterations"):
        pca = ep.GraphKernelPCA(1, graph="ring:2", solver=ep.solvers.RandomFeatures(64), max_iterations=1, random_state=0).fit(
            tables_of()
        )
    assert not pca.converged_
    assert pca.transform(tables_of()["n0"], site="n3").shape == (30, 1)


def test_rows_that_are_all_alike_have_no_direction():
    tables = {f"n{j}": np.ones((6, 3)) for j in range(3)}
    pca = ep.GraphKernelPCA(1, graph="ring:2", solver=ep.solvers.RandomFeatures(8), random_state=0).fit(tables)
    assert np.abs(pca.transform(np.ones((2, 3)), site="n1")).max() < 1e-12


def test_features_of_single_precision_have_components_of_the_exact_ones():
    """Of 600 features, whose angles are made in single precision: the same answer as by double precision, to its digits."""
    rng = np.random.default_rng(2)
    tables = {f"n{j}": rng.uniform(-1, 1, size=(60, 600)) + np.linspace(-1, 1, 60)[:, None] for j in range(3)}
    pca = ep.GraphKernelPCA(1, graph="ring:2", solver=ep.solvers.RandomFeatures(1024), random_state=0).fit(tables)
    X, kernel, seed = np.concatenate(list(tables.values())), Kernel("rbf", 1 / 600), pca._seed_in_use
    assert kernel.random_features(tables["n0"], 512, seed, exact=False).dtype == np.float32
    F = random_features(X, kernel.frequencies(600, 512, seed))
    _, vectors = exact(F, center=True, k=1)
    found = pca.models_["n0"].components
    assert np.linalg.norm(found - vectors @ (vectors.T @ found)) < 1e-5
    np.testing.assert_allclose(np.abs(pca.transform(X)), np.abs((F - F.mean(axis=0)) @ vectors), atol=1e-5)


@pytest.mark.skipif(processor() is None, reason="llvmlite is not here, or not for this processor")
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_large_nodes_are_multiplied_by_a_compiled_loop(kind, monkeypatch):
    """Features as they are, in double precision."""
    rng = np.random.default_rng(3)
    F, B = rng.standard_normal((90, 130)).astype(kind), rng.standard_normal((130, 5))
    centre = rng.standard_normal(130)
    W = F.astype(float) - centre
    monkeypatch.setattr(compiled_action, "WORTH", 1)
    np.testing.assert_allclose(tree_krylov._product(F, centre, B), W.T @ (W @ B), rtol=0, atol=1e-11)
