"""A table at every node of a graph, and programs that make something of all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from eigenpact.algorithms.graph.gossip import NOW
from eigenpact.algorithms.graph.network import Network
from eigenpact.algorithms.graph.tree import MOST
from eigenpact.engines import InProcess
from eigenpact.estimators.graph.graphs import find_graph
from eigenpact.runtime import Driver, Outcome, Reply, Site, local

NODES = [f"n{j}" for j in range(20)]


@local(keeps=(NOW, MOST))
def put_forward(site: Site) -> Reply:
    """The node's own table, and its squares less its first row's."""
    X = np.asarray(site.X)
    return Reply(keep={NOW: X, MOST: X[1:] ** 2 - X[0] ** 2})


def ran(program: Callable[[Network], Awaitable[None]], graph: Any, nodes: list[str] = NODES) -> tuple[Any, ...]:
    """Node -> table after a program on the network, the tables before, the network, the outcome."""
    tables = {name: np.random.default_rng(i).normal(size=(3, 2)) for i, name in enumerate(nodes)}
    network = Network(find_graph(graph, nodes))

    def job(connection: Any) -> Outcome:
        driver = Driver(connection, graph=network.graph)
        driver.run(lambda _start, _state: program(network))
        return Outcome({}, {"rounds": driver.rounds}, driver.ledger, results=(NOW,))

    outcome = InProcess().execute(tables, job, graph=network.graph)
    return {name: kept[NOW] for name, kept in outcome.kept.items()}, tables, network, outcome
