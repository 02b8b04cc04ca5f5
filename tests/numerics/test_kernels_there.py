"""Graphs whose nodes have rows on a device that numpy cannot read: features stay there, and the answer is that for numpy's."""

from __future__ import annotations

import numpy as np
import pytest
from tests.checks.staying import forbid_copies, there

import eigenpact as ep
from eigenpact.numerics.elsewhere import to_numpy
from eigenpact.numerics.kernels import NAMES, Given, Kernel
from eigenpact.numerics.kernels_there import kernel_there, landmark_kernel_there, random_features_there

D = 6
MOST = 300
"""Entries that may be copied at a time: a node has 360 entries, and more features."""


def made():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(240, D)) * np.geomspace(3, 0.5, D) + 2
    return {f"node{i}": rows[60 * i : 60 * (i + 1)] for i in range(4)}


def own_kernel(X, Y):
    return np.exp(-0.05 * ((X[:, None] - Y) ** 2).sum(axis=2))


LANDMARKS = np.random.default_rng(1).normal(size=(12, D)) + 2
STAY = {
    "rows": lambda: ep.GraphPCA(2, graph="ring:2", random_state=0),
    "uncentred": lambda: ep.GraphPCA(2, graph="ring:2", center=False, random_state=0),
    "random": lambda: ep.GraphKernelPCA(2, solver=ep.solvers.RandomFeatures(n_features=20), graph="ring:2", random_state=0),
    **{
        name: lambda name=name: ep.GraphKernelPCA(
            2, kernel=name, solver="landmarks", landmarks=LANDMARKS, graph="ring:2", random_state=0
        )
        for name in NAMES
    },
}


def scores(model, X):
    return model.transform(X, site="node1")


@pytest.mark.parametrize("case", STAY)
def test_rows_stay_and_the_answer_is_that_for_numpy(case, monkeypatch):
    nodes = made()
    here, elsewhere = STAY[case]().fit(nodes), {name: there(X) for name, X in nodes.items()}
    with monkeypatch.context() as patched:
        sizes = forbid_copies(patched, MOST)
        found = STAY[case]().fit(elsewhere)
        assert sizes
    assert found.n_rounds_ == here.n_rounds_
    one = scores(here, nodes["node2"])
    np.testing.assert_allclose(scores(found, nodes["node2"]), one, rtol=0, atol=1e-10 * np.abs(one).max())


@pytest.mark.parametrize(
    "options", [{"solver": "projection-consensus", "n_components": 1}, {"kernel": own_kernel, "solver": "landmarks"}]
)
def test_what_needs_rows_in_numpy_gets_copies(options):
    """Rows that are sent, and those that a function of the user's own is given."""
    options = {"graph": "ring:2", "landmarks": LANDMARKS, "random_state": 0, "n_components": 2} | options
    nodes = made()
    here, found = (ep.GraphKernelPCA(**options).fit(rows) for rows in (nodes, {name: there(X) for name, X in nodes.items()}))
    one = scores(here, nodes["node2"])
    np.testing.assert_allclose(scores(found, nodes["node2"]), one, rtol=0, atol=1e-10 * np.abs(one).max())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_kernels_are_those_of_numpy(name, offset):
    X = made()["node0"] + offset
    X[3], Y = 0.0, X[:7] + 0.5  # a row of length 0
    kernel = Kernel(name, 0.3, degree=2.0)
    found = to_numpy(kernel_there(kernel, there(X), Y))
    np.testing.assert_allclose(found, kernel(X, Y), rtol=0, atol=1e-9 if offset else 1e-12)


def test_random_features_of_both_kernels():
    X = made()["node0"]
    for name in ("rbf", "laplacian"):
        kernel = Kernel(name, 0.2)
        np.testing.assert_allclose(
            to_numpy(random_features_there(kernel, there(X), 9, 3)), kernel.random_features(X, 9, 3), rtol=0, atol=1e-13
        )


def test_a_function_of_the_users_own_is_given_tables_of_numpy():
    given = []

    def kernel(X, Y):
        given.append(type(X))
        return own_kernel(X, Y)

    mine = Kernel("mine", 1.0, given=Given(kernel, "mine"))
    K, root = landmark_kernel_there(mine, there(made()["node0"]), LANDMARKS)
    assert set(given) == {np.ndarray}
    assert (type(K), K.shape, root.shape) == (np.ndarray, (60, 12), (12, 12))
