"""The start that nodes agree on: the direction that comes first for all rows, not for a neighbourhood's."""

from __future__ import annotations

import warnings

import networkx as nx
import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes

import eigenpact as ep
from eigenpact.algorithms.graph.frames import FRAME, closest_rotation


def differing(seed, d=5, nodes=16):
    """Nodes whose rows vary most along different features: neighbours would begin with different directions."""
    rng = np.random.default_rng(seed)
    return {f"n{j:02}": rng.normal(size=(60, d)) * rng.permutation(np.r_[3, 2, np.ones(d - 2)]) for j in range(nodes)}


def similarity(tables, **options):
    """Mean cosine with the central direction, the best that own rows allow, and whether the fit says that it converged."""
    return similarities(tables, {}, {"solver": "best-local"}, **options)


def similarities(tables, *kinds, **options):
    """Mean cosines with the central direction, one for each kind of fit; then the first fit, which need not have converged."""
    shared = {"gamma": 0.02, "graph": "ring:4", "random_state": 0} | options
    central = ep.GraphKernelPCA(1, **shared | {"solver": "central"}).fit(tables)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ep.errors.NotConvergedWarning)
        fits = [ep.GraphKernelPCA(1, **shared | kind).fit(tables) for kind in kinds]
    return *(np.mean([abs(c[0, 0]) for c in fit.similarity(central).values()]) for fit in fits), fits[0]


def test_the_closest_rotation_is_scipys():
    rng = np.random.default_rng(0)
    D, E = rng.normal(size=(2, 30, 4))
    np.testing.assert_allclose(closest_rotation(E.T @ D), orthogonal_procrustes(D, E)[0], atol=1e-12)


@pytest.mark.parametrize("seed", [45, 53, 57, 58])
def test_nodes_that_vary_most_along_different_features(seed):
    """Right, or said to nearly tie; nodes that begin with directions of their own end elsewhere."""
    apart = {"solver": ep.solvers.ProjectionConsensus(start="own")}
    found, most, begun_apart, pca = similarities(differing(seed), {}, {"solver": "best-local"}, apart)
    assert found > most - 0.02
    assert pca.converged_ or "component 1 nearly ties with the next" in pca.stop_reason_
    assert begun_apart < found - 0.03


HUBS = {
    "star": nx.star_graph(8),
    "barabasi-albert": nx.barabasi_albert_graph(15, 1, seed=1),
    "two hubs": nx.from_edgelist([(0, 1), *((0, j) for j in range(2, 7)), *((1, j) for j in range(7, 12))]),
}


@pytest.mark.parametrize("graph", HUBS)
@pytest.mark.parametrize("hub_rows", [60, 300])
def test_rows_of_a_hub_count_once(graph, hub_rows):
    """Rows of a node with many neighbours are in many neighbourhoods, and vary along another feature than all others."""
    net, rng = HUBS[graph], np.random.default_rng(0)
    hub = max(net, key=net.degree)
    names = {j: f"n{j:02}" for j in net}
    tables = {
        name: rng.normal(size=(hub_rows, 5)) * [1, 3, 1, 1, 1] if j == hub else rng.normal(size=(60, 5)) * [3, 1, 1, 1, 1]
        for j, name in names.items()
    }
    found, most, pca = similarity(tables, graph=nx.relabel_nodes(net, names))
    assert pca.converged_
    assert found > most - 0.02


def test_where_two_directions_tie_for_all_rows_it_is_told():
    """Each node has one long feature, another one for half of them: neighbourhoods see a first direction, all rows see two."""
    rng = np.random.default_rng(0)
    scales = [[3, 1, 1, 1], [1, 3, 1, 1]]
    tables = {f"n{j:02}": rng.normal(size=(80, 4)) * scales[j // 6] for j in range(12)}
    _, _, pca = similarity(tables, graph="ring:2")
    assert not pca.converged_
    assert "component 1 nearly ties with the next" in pca.stop_reason_


def test_two_neighbours_are_enough():
    """On a thin ring a few nodes' neighbourhoods have the second direction first."""
    rng = np.random.default_rng(5)
    tables = {f"n{j:02}": rng.normal(size=(12, 6)) * [2, 1.6, 1, 1, 1, 1] for j in range(20)}
    found, most, pca = similarity(tables, graph="ring:2", gamma=0.01)
    assert pca.converged_
    assert found > most - 0.05


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_fewer_directions_than_a_frame_has(kernel):
    """Rows on a line, and fewer rows in a neighbourhood than FRAME: the frame's empty columns change nothing."""
    rng = np.random.default_rng(1)
    line = {name: np.outer(rng.normal(size=3), [3.0, 4.0]) for name in "abc"}
    assert FRAME > 9
    pca = ep.GraphKernelPCA(1, kernel=kernel, gamma=0.01, graph="ring:2", center=False, random_state=0).fit(line)
    assert all(np.isfinite(model.alpha).all() for model in pca.models_.values())
    central = ep.GraphKernelPCA(1, kernel=kernel, gamma=0.01, graph="ring:2", center=False, solver="central").fit(line)
    assert min(abs(c[0, 0]) for c in pca.similarity(central).values()) > 0.99


def test_the_order_of_rows_and_equal_nodes_do_not_matter():
    tables = differing(3, nodes=6)
    options = {"gamma": 0.02, "graph": "ring:2", "random_state": 0, "tol": 0.02}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ep.errors.NotConvergedWarning)
        one = ep.GraphKernelPCA(1, **options).fit(tables)
        other = ep.GraphKernelPCA(1, **options).fit({name: X[::-1] for name, X in tables.items()})
        same = ep.GraphKernelPCA(1, **options).fit(dict.fromkeys(tables, tables["n00"]))
    new = tables["n01"][:7]
    np.testing.assert_allclose(one.transform(new), other.transform(new), atol=1e-6)
    central = ep.GraphKernelPCA(1, **options | {"solver": "central"}).fit(dict.fromkeys(tables, tables["n00"]))
    assert min(abs(c[0, 0]) for c in same.similarity(central).values()) > 0.999


def test_every_node_sends_its_frame_and_its_sign_once():
    """Outwards from n00, all nodes that are equally far at once; those that are farthest have nobody to tell."""
    tables = differing(3, nodes=7)
    pca = ep.GraphKernelPCA(1, gamma=0.02, graph="ring:2", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ep.errors.NotConvergedWarning)
        pca.fit(tables)
    for function in ("offer_frame", "offer_sign"):
        sent = [message for message in pca.ledger_ if message.function == function]
        rounds = sorted({message.round for message in sent})
        by_round = [sorted({message.sender for message in sent if message.round == t}) for t in rounds]
        assert by_round == [["n00"], ["n01", "n06"], ["n02", "n05"]]
        assert len(sent) == 2 * 5
