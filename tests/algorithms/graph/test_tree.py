"""Sums along a tree: against the mean, the same bits at all nodes, and no more messages than a tree has edges."""

from __future__ import annotations

import numpy as np
import pytest
from tests.algorithms.graph.tables import NODES, put_forward, ran

from eigenpact.algorithms.graph.network import Network
from eigenpact.algorithms.graph.tree import join, mean, mean_and_most
from eigenpact.estimators.graph.graphs import find_graph
from eigenpact.runtime import Local


def meant(graph, nodes=NODES):
    """Node -> table after all were added up along the tree, the tables, the network, the outcome."""

    async def program(network):
        await join(network)
        for _ in range(2):  # the second is not about what the first left
            await Local(put_forward)
            await mean(network)

    return ran(program, graph, nodes)


@pytest.mark.parametrize("graph", ["ring:2", "ring:4", "grid", "regular:4", "erdos:0.3", "small-world:4", "complete"])
def test_all_nodes_have_the_mean_to_the_bit(graph):
    found, tables, network, outcome = meant(graph)
    np.testing.assert_allclose(found["n7"], np.mean(list(tables.values()), axis=0), rtol=0, atol=1e-15)
    assert len({table.tobytes() for table in found.values()}) == 1
    assert outcome.facts["rounds"] == 2 * 2 * network.radius
    assert len(outcome.ledger) == 2 * 2 * (len(NODES) - 1)
    edges = {(m.sender, m.receiver) for m in outcome.ledger}
    assert edges == {edge for child, parent in network.tree.parents.items() for edge in ((child, parent), (parent, child))}
    assert all(receiver in network.graph[sender] for sender, receiver in edges)


@pytest.mark.parametrize("graph", ["ring:2", "grid", "complete"])
@pytest.mark.parametrize("nodes", [NODES, NODES[:1]])
def test_the_largest_numbers_come_beside_the_mean(graph, nodes):
    """In as many rounds and messages; below the mean, also where all of them are less than 0."""

    async def program(network):
        await join(network)
        await Local(put_forward)
        await mean_and_most(network)

    found, tables, network, outcome = ran(program, graph, nodes)
    most = np.max([X[1:] ** 2 - X[0] ** 2 for X in tables.values()], axis=0)
    for table in found.values():
        np.testing.assert_allclose(table[:3], np.mean(list(tables.values()), axis=0), rtol=0, atol=1e-15)
        np.testing.assert_array_equal(table[3:], most)
    assert outcome.facts["rounds"] == 2 * network.radius
    assert len(outcome.ledger) == 2 * (len(nodes) - 1)


def test_a_node_alone_has_its_own():
    found, tables, _, outcome = meant("ring:2", ["n0"])
    np.testing.assert_array_equal(found["n0"], tables["n0"])
    assert outcome.facts["rounds"] == 0


def test_the_tree_has_the_middle_for_its_root_and_shortest_paths():
    line = Network({"a": ("b",), "b": ("a", "c"), "c": ("b", "d"), "d": ("c", "e"), "e": ("d",)})
    assert line.tree.levels == (("c",), ("b", "d"), ("a", "e"))
    assert (line.radius, line.diameter) == (2, 4)
    grid = Network(find_graph("grid", NODES))
    assert len(grid.tree.levels) == grid.radius + 1 < grid.diameter + 1
    for height, level in enumerate(grid.tree.levels[1:], start=1):
        assert all(grid.tree.parents[name] in grid.tree.levels[height - 1] for name in level)
