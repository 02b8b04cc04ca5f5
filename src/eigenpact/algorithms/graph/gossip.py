"""Averages over the nodes of a graph by talking to neighbours, accelerated by Chebyshev polynomials.

Problem
    Every node j holds a table x_j (m x c).  All nodes want the mean over nodes.

Rounds
    1. x^0 <- x_j
    2. for t = 1, ..., T: send x^(t-1) to the neighbours;  d <- deg(j) x^(t-1) - sum of what came in
    3.     x^t <- w_t (x^(t-1) - d / c) + (1 - w_t) x^(t-2),   w_1 = 1, w_2 = 2 / (2 - e^2), w_(t+1) = 1 / (1 - w_t e^2 / 4)
    with c the middle of the Laplacian's spectrum without 0 and e its half width over c.  The mean over nodes never changes; what
    nodes differ by shrinks by 1 / T_T(1/e), T_T the Chebyshev polynomial: the best any T rounds can do without knowing more.

Leaves the site
    The running average (m x c), to every neighbour, T times.  The first message is the node's own table, unmixed.

Cost
    8 m c bytes per neighbour and round.

Differences from the paper
    Written on the Laplacian instead of a mixing matrix, so that no weights need be agreed on: the spectrum of the graph, which
    every node knows, is all there is to choose.

References
    H. Ye, T. Zhang, "DeEPCA: Decentralized exact PCA with linear convergence rate", JMLR 22 (2021), Algorithm 2 (FastMix);
    M. Arioli, J. Scott, "Chebyshev acceleration of iterative refinement", Numer. Algorithms 66 (2014).

>>> from eigenpact.algorithms.graph.network import Network
>>> weights(Network({"a": ("b",), "b": ("a", "c"), "c": ("b",)}), 3)
[1.0, 1.1428..., 1.0769...]
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...numerics.linalg import Array
from ...runtime import Exchange, Local, Reply, Site, local
from ..method import Part
from .network import Network

NOW, BEFORE = "gossip: now", "gossip: before"
"""Under these names a node keeps the running average (m x c) and the one before it."""


@local(sends={"average": "m c"}, reads=(NOW,), keeps=(BEFORE,))
def send_own(site: Site) -> Reply:
    """Send the node's own table to all neighbours."""
    return Reply(send=site.kept[NOW], keep={BEFORE: site.kept[NOW]})


@local(takes={"centre": "", "weight": ""}, sends={"average": "m c"}, reads=(NOW, BEFORE), keeps=(NOW, BEFORE))
def mix(site: Site, centre: Any, weight: Any) -> Reply:
    """Mix in what came from the neighbours and send the result to them."""
    mixed = _mixed(site, float(centre), float(weight))
    return Reply(send=mixed, keep={NOW: mixed, BEFORE: site.kept[NOW]})


@local(takes={"centre": "", "weight": ""}, reads=(NOW, BEFORE), keeps=(NOW,))
def mix_last(site: Site, centre: Any, weight: Any) -> Reply:
    """Mix in the last messages; nothing leaves."""
    return Reply(keep={NOW: _mixed(site, float(centre), float(weight))})


def _mixed(site: Site, centre: float, weight: float) -> Array:
    now = site.kept[NOW]
    difference = len(site.inbox) * now
    for sender in sorted(site.inbox):
        difference = difference - site.inbox[sender][0]
    mixed: Array = weight * (now - difference / centre) + (1.0 - weight) * site.kept[BEFORE]
    return mixed


def weights(network: Network, rounds: int) -> list[float]:
    """w_1, w_2, ... of line 3."""
    e2 = network.narrowness**2
    found = [1.0, 2.0 / (2.0 - e2)]
    while len(found) < rounds:
        found.append(1.0 / (1.0 - found[-1] * e2 / 4.0))
    return found[:rounds]


async def average(network: Network, precision: float) -> None:
    """Replace what every node keeps as ``NOW`` by the mean over nodes, up to ``precision`` of what nodes differed by."""
    rounds = network.rounds_to(precision)
    if rounds == 0:
        return
    centre = np.float64(network.centre)
    await Exchange(send_own)  # line 2
    *earlier, last = (np.float64(weight) for weight in weights(network, rounds))
    for weight in earlier:
        await Exchange(mix, centre, weight)  # lines 2, 3
    await Local(mix_last, centre, last)


GOSSIP = Part("Graph: averages by gossip", {Exchange: (send_own, mix), Local: (mix_last,)})
