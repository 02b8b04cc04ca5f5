"""Averages by talking to neighbours: against the mean, and against what Chebyshev polynomials promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.algorithms.graph.tables import NODES, put_forward, ran

from eigenpact.algorithms.graph.gossip import average
from eigenpact.algorithms.graph.network import Network
from eigenpact.estimators.graph.graphs import find_graph
from eigenpact.runtime import Local


def averaged(graph, precision):
    """Node -> table after averaging, the tables, the network, the outcome."""

    async def program(network):
        await Local(put_forward)
        await average(network, precision)

    return ran(program, graph)


@pytest.mark.parametrize("graph", ["ring:2", "ring:4", "grid", "regular:4", "erdos:0.3", "small-world:4", "complete"])
def test_average_reaches_the_mean_to_its_precision(graph):
    found, tables, network, outcome = averaged(graph, 1e-6)
    mean = np.mean(list(tables.values()), axis=0)
    before = np.linalg.norm([table - mean for table in tables.values()])
    after = np.linalg.norm([table - mean for table in found.values()])
    assert after <= 1e-6 * before
    assert outcome.facts["rounds"] == network.rounds_to(1e-6)
    assert len(outcome.ledger) == network.rounds_to(1e-6) * sum(len(n) for n in network.graph.values())
    np.testing.assert_allclose(np.mean(list(found.values()), axis=0), mean, rtol=0, atol=1e-13)  # never changed


def test_chebyshev_takes_about_the_square_root_of_plain_averaging():
    network = Network(find_graph("ring:2", NODES))
    low, high = network.spectrum
    assert low == pytest.approx(2 - 2 * math.cos(2 * math.pi / 20))  # the ring's Laplacian, in closed form
    assert high == pytest.approx(4)
    plain = math.ceil(math.log(1e-6) / math.log((high - low) / (high + low)))  # the best fixed step
    assert network.rounds_to(1e-6) < 0.25 * plain
