"""Signs that neighbours agree on, once around the graph.

Every node has a direction w_j = phi(X_j) alpha_j of either sign.  Beginning at one node, a node whose neighbours' signs stand
takes the one that gives the larger sum of inner products w_j . w_l with them.  As many exchanges as the graph is wide; alpha_j
(n_j numbers) goes to the neighbours, who have the rows it belongs to.  The first node's own sign is that of the sum of cubes of
its rows' projections, which does not depend on the order of the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...numerics.linalg import Array
from ...runtime import Exchange, Local, Reply, Site, local
from ..method import Part
from .neighbourhood import SEEN, blocks_of, own_kernel
from .network import Network


@local(takes={"root": "c"}, sends={"alpha": "n", "settled": ""}, reads=(*SEEN, "now", "settled"), keeps=("now", "settled"))
def offer_sign(site: Site, root: Any) -> Reply:  # line 2
    """Send the direction, and whether its sign stands; it stands at the root, and where a neighbour's stood."""
    alpha, settled = _sign(site, bytes(root).decode())
    return Reply(send=(alpha, np.float64(settled)), keep={"now": alpha, "settled": settled})


@local(takes={"root": "c"}, reads=(*SEEN, "now", "settled"), keeps=("now", "settled"))
def take_sign(site: Site, root: Any) -> Reply:
    """Take in the last messages."""
    alpha, settled = _sign(site, bytes(root).decode())
    return Reply(keep={"now": alpha, "settled": settled})


def _sign(site: Site, root: str) -> tuple[Array, bool]:
    """The node's alpha with the sign that its settled neighbours' directions ask for, and whether there were any."""
    alpha, G, blocks = site.kept["now"], site.kept["gram"], blocks_of(site)
    if site.kept["settled"]:
        return alpha, True
    if site.name == root:
        scores = own_kernel(site) @ alpha
        return (-alpha if np.sum(scores**3) < 0 else alpha), True
    settled = [name for name, (_, flag) in site.inbox.items() if flag > 0]
    overlap = sum(float(alpha @ G[blocks[site.name], blocks[name]] @ site.inbox[name][0]) for name in sorted(settled))
    return (-alpha if overlap < 0 else alpha), bool(settled)


async def agree_on_signs(network: Network) -> None:
    """Give every node's "now" the sign that the first node's asks for."""
    root = np.frombuffer(min(network.graph).encode(), dtype=np.uint8)
    for _ in range(network.diameter):
        await Exchange(offer_sign, root)
    await Local(take_sign, root)


SIGNS = Part("Graph: signs", {Exchange: (offer_sign,), Local: (take_sign,)})
