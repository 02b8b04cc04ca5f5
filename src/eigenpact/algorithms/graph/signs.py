"""Signs that neighbours agree on, once around the graph.

Every node has a direction w_j = phi(X_j) alpha_j of either sign.  Outwards from one node, all that are equally far at once, a
node takes the sign that gives the larger sum of inner products w_j . w_l with its neighbours whose signs stand, and sends alpha_j
(n_j numbers) to its neighbours, who have the rows it belongs to.  As many rounds as nodes are far from the first.  The first
node's own sign is that of the sum of cubes of its rows' projections, which does not depend on the order of the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...numerics.linalg import Array
from ...runtime import Exchange, Local, Reply, Site, local
from ..method import Part
from .neighbourhood import SEEN, blocks_of, own_kernel
from .network import Network


@local(takes={"root": "c"}, sends={"alpha": "n"}, reads=(*SEEN, "now", "settled"), keeps=("now", "settled"), version=2)
def offer_sign(site: Site, root: Any) -> Reply:  # line 2
    """Send the direction, whose sign stands now."""
    alpha = _signed(site, bytes(root).decode())
    return Reply(send=alpha, keep={"now": alpha, "settled": True})


@local(takes={"root": "c"}, reads=(*SEEN, "now", "settled"), keeps=("now", "settled"))
def take_sign(site: Site, root: Any) -> Reply:
    """Take in the last messages, where the sign does not stand yet."""
    return Reply(keep={"now": _signed(site, bytes(root).decode()), "settled": True})


def _signed(site: Site, root: str) -> Array:
    """The node's alpha with the sign that stands, the root's, or what the directions ask for that came from neighbours."""
    G, blocks = site.kept["gram"], blocks_of(site)
    alpha: Array = site.kept["now"]
    if site.kept["settled"]:
        overlap = 1.0
    elif site.name == root:
        overlap = float(np.sum((own_kernel(site) @ alpha) ** 3))
    else:
        heard = sorted(site.inbox)
        overlap = sum(float(alpha @ G[blocks[site.name], blocks[name]] @ site.inbox[name][0]) for name in heard)
    return -alpha if overlap < 0 else alpha


async def agree_on_signs(network: Network) -> None:
    """Give every node's "now" the sign that the first node's asks for."""
    root = np.frombuffer(min(network.graph).encode(), dtype=np.uint8)
    for nodes in network.waves[:-1]:
        await Exchange(offer_sign, root, nodes=nodes)
    await Local(take_sign, root)


SIGNS = Part("Graph: signs", {Exchange: (offer_sign,), Local: (take_sign,)})
