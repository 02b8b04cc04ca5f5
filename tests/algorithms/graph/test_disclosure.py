"""What neighbours see in methods that send no rows: messages are recorded, and attacked."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.algorithms.graph.gossip import weights
from eigenpact.algorithms.graph.network import Network
from eigenpact.errors import InputError
from eigenpact.numerics.kernels import Kernel, random_features
from eigenpact.numerics.linalg import q_factor, random_orthonormal
from eigenpact.runtime import LocalFunction, Reply


def recorded(pca, tables):
    """A fit, and everything that local functions sent: (node, function, arrays)."""
    sent = []
    run = LocalFunction.__call__

    def listening(function, site, *args):
        reply = run(function, site, *args)
        send = reply.send if isinstance(reply, Reply) else reply
        if function.sends and send is not None:
            for message in send.values() if isinstance(send, dict) else [send]:
                arrays = message if isinstance(message, tuple) else (message,)
                sent.append((site.name, function.short_name, [np.array(a) for a in arrays]))
        return reply

    with patch.object(LocalFunction, "__call__", listening):
        return pca.fit(tables), sent


def vectors_in(sent, length):
    """Every vector of this length in a message: rows and columns, whole or with one entry more (a count)."""
    for node, function, arrays in sent:
        for a in arrays:
            for table in (np.atleast_2d(a), np.atleast_2d(a).T):
                if table.shape[1] in (length, length + 1):
                    yield from ((node, function, vector[:length]) for vector in table)


def shown(sent, things):
    """Who sent what: messages that have a row of one of these tables in them, up to a factor."""
    table = np.concatenate(list(things.values()))
    units = table / np.linalg.norm(table, axis=1, keepdims=True)
    return {
        (node, function)
        for node, function, vector in vectors_in(sent, table.shape[1])
        if np.any(vector) and np.abs(units @ (vector / np.linalg.norm(vector))).max() > 1 - 1e-9
    }


def tables_of(sizes, d=7):
    rng = np.random.default_rng(0)
    return {f"n{j}": rng.normal(size=(n, d)) * np.linspace(3, 0.5, d) + 1 for j, n in enumerate(sizes)}


def method_and_features(name, tables, **options):
    """An estimator, and each node's rows as the method has them."""
    shared = {"graph": "ring:2", "random_state": 0}
    seed = int(np.random.RandomState(0).randint(np.iinfo(np.int32).max))
    kernel, public = Kernel("rbf", 1 / 7), np.random.default_rng(9).normal(size=(9, 7)) * 2
    if name == "tracking":
        return ep.GraphPCA(1, solver=ep.solvers.Tracking(**options), **shared), tables
    if name == "landmarks":
        pca = ep.GraphKernelPCA(1, solver=ep.solvers.Landmarks(**options), landmarks=public, **shared)
        return pca, {node: kernel(X, public) for node, X in tables.items()}
    frequencies = kernel.frequencies(7, 8, seed)
    pca = ep.GraphKernelPCA(1, solver=ep.solvers.RandomFeatures(16, **options), **shared)
    return pca, {node: random_features(X, frequencies) for node, X in tables.items()}


METHODS = {
    "tracking": {"send_own", "mix"},
    "random-features": {"send_up", "send_down"},
    "landmarks": {"send_up", "send_down"},
}
"""Methods that send no rows, and the functions whose messages have something of the rows."""


@pytest.mark.parametrize("name", METHODS)
def test_no_message_has_a_row_or_its_feature(name):
    tables = tables_of([5, 6, 8, 9])
    pca, features = method_and_features(name, tables)
    _, sent = recorded(pca, tables)
    assert {function for _, function, _ in sent} >= METHODS[name]
    assert shown(sent, tables) == set()
    assert shown(sent, features) == set()


@pytest.mark.parametrize("name", METHODS)
def test_a_node_of_one_row_would_show_it_and_is_refused(name):
    """Why min_rows is there, and proof that the test above can fail."""
    tables = tables_of([5, 9, 8, 1])  # n3 is a leaf of the ring's tree
    pca, features = method_and_features(name, tables, min_rows=1)
    _, sent = recorded(pca, tables)
    shows = {function for node, function in shown(sent, {"n3": features["n3"]}) if node == "n3"}
    assert shows & {"send_own", "send_up"}
    pca, _ = method_and_features(name, tables)
    with pytest.raises(InputError, match=r"at site 'n3': it has 1 rows, fewer than min_rows=5.* join it with another node"):
        pca.fit(tables)


def test_first_product_gives_the_scatter_where_columns_are_as_many_as_features():
    tables = tables_of([9, 9, 9], d=5)
    _, sent = recorded(ep.GraphPCA(1, graph="ring:2", random_state=0), tables)
    F = tables["n1"] - np.concatenate(list(tables.values())).mean(axis=0)
    seed = int(np.random.RandomState(0).randint(np.iinfo(np.int32).max))
    W = random_orthonormal(5, 5, seed)
    first = next(a[0] for node, function, a in sent if node == "n1" and function == "send_own" and a[0].shape == (5, 5))
    np.testing.assert_allclose(first @ W.T, F.T @ F, atol=1e-8)


def test_a_leafs_neighbour_recovers_its_whole_scatter():
    """All that goes into a leaf comes from one node, which can therefore repeat what the leaf computes and solve for A_j."""
    d, b, iterations = 12, 5, 6
    graph = {"n0": ["n1"], "n1": ["n2"], "n2": ["n3"]}
    tables = tables_of([20, 30, 25, 30], d=d)
    pca = ep.GraphPCA(1, graph=graph, random_state=0, max_iterations=iterations, tol=0.0)
    with pytest.warns(ep.errors.NotConvergedWarning):
        _, sent = recorded(pca, tables)
    network = Network(pca.graph_)
    # what the neighbour n1 has: its own messages and the leaf's, of the products (d x b), round by round
    mine, leaf = ([a[0] for node, _, a in sent if node == who and a[0].shape == (d, b)] for who in ("n1", "n0"))
    rounds = network.rounds_to(1e-3)
    W = random_orthonormal(d, b, int(np.random.RandomState(0).randint(np.iinfo(np.int32).max)))
    directions, products, S = [W], [leaf[0]], None
    for t in range(iterations):
        heard, said = leaf[t * rounds : (t + 1) * rounds], mine[t * rounds : (t + 1) * rounds]
        if S is not None:  # the leaf's first message of this iteration is S + A (Q - W)
            Q = q_factor(S)
            directions.append(Q - W)
            products.append(heard[0] - S)
            W = Q
        before, now = heard[-2], heard[-1]
        weight = weights(network, rounds)[-1]
        S = weight * (now - (now - said[-1]) / network.centre) + (1 - weight) * before
    D, Y = np.hstack(directions), np.hstack(products)
    A = Y @ np.linalg.pinv(D, rcond=1e-10)
    F = tables["n0"] - np.concatenate(list(tables.values())).mean(axis=0)
    assert np.linalg.norm(A - F.T @ F) < 1e-3 * np.linalg.norm(F.T @ F)


def test_the_parent_of_a_leaf_of_the_tree_recovers_its_whole_scatter():
    """A leaf's products are its own, and its parent has the blocks; what others have behind them is added to theirs."""
    m, b = 12, 5
    tables = tables_of([20, 30, 25, 30])
    public = np.random.default_rng(9).normal(size=(m, 7)) * 2
    pca = ep.GraphKernelPCA(1, solver="landmarks", landmarks=public, graph="ring:2", tol=0.0, random_state=0)
    _, sent = recorded(pca, tables)
    down = [a[0][:-3] for node, function, a in sent if (node, function, len(a[0])) == ("n0", "send_down", m + 3)]
    first = next(a[0][:-1, 1:] for _, function, a in sent if function == "send_down")  # beside the mean
    assert first.shape == (m, b)
    blocks = np.hstack([first, *down[:-2:2]])  # one for each of two children; the last is the answer
    features = {node: Kernel("rbf", 1 / 7)(X, public) for node, X in tables.items()}
    mean = np.concatenate(list(features.values())).mean(axis=0)

    def recovered(node):
        products = [a[0] for who, function, a in sent if (who, function, len(a[0])) == (node, "send_up", m)]
        assert len(products) == pca.n_iterations_
        return np.hstack(products) @ np.linalg.pinv(blocks)

    def scatter(*nodes):
        F = np.concatenate([features[node] for node in nodes]) - mean
        return F.T @ F

    assert np.linalg.norm(recovered("n3") - scatter("n3")) < 1e-8 * np.linalg.norm(scatter("n3"))
    assert np.linalg.norm(recovered("n1") - scatter("n1", "n2")) < 1e-8 * np.linalg.norm(scatter("n1", "n2"))
    assert {(m.sender, m.receiver) for m in pca.ledger_} == {("n3", "n0"), ("n1", "n0"), ("n2", "n1")} | {
        ("n0", "n3"),
        ("n0", "n1"),
        ("n1", "n2"),
    }  # n2 and n3 are neighbours, and see nothing of each other
