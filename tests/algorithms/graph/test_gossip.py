"""Averages by talking to neighbours: against the mean, and against what Chebyshev polynomials promise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from eigenpact.algorithms.graph.gossip import NOW, average
from eigenpact.algorithms.graph.network import Network
from eigenpact.engines import InProcess
from eigenpact.estimators.graph.graphs import find_graph
from eigenpact.runtime import Driver, Local, Outcome, Reply, Site, local

NODES = [f"n{j}" for j in range(20)]


@local(keeps=(NOW,))
def put_forward(site: Site):
    """The node's own table."""
    return Reply(keep={NOW: np.asarray(site.X)})


def averaged(graph, precision):
    """Node -> table after averaging, the mean, and the run's rounds."""
    tables = {name: np.random.default_rng(i).normal(size=(3, 2)) for i, name in enumerate(NODES)}
    network = Network(find_graph(graph, NODES))

    async def program(_start, _state):
        await Local(put_forward)
        await average(network, precision)

    def job(connection):
        driver = Driver(connection, graph=network.graph)
        driver.run(program)
        return Outcome({}, {"rounds": driver.rounds}, driver.ledger, results=(NOW,))

    outcome = InProcess().execute(tables, job, graph=network.graph)
    return {name: kept[NOW] for name, kept in outcome.kept.items()}, tables, network, outcome


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
