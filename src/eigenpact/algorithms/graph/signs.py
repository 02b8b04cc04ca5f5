"""Signs that neighbours agree on, once around the graph, and how far their directions agree in the end.

Every node has a direction w_j = phi(X_j) alpha_j of either sign.  Beginning at one node, a node whose neighbours' signs stand
takes the one that gives the larger sum of inner products w_j . w_l with them.  As many exchanges as the graph is wide; alpha_j
(n_j numbers) goes to the neighbours, who have the rows it belongs to.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...linalg import Array
from ...runtime import Exchange, Local, Reply, Site, local
from .neighbourhood import blocks_of, own_kernel
from .network import Network


@local(takes={"root": "c"}, sends={"alpha": "n", "settled": ""}, keeps=("now", "settled"))
def offer_sign(site: Site, root: Any) -> Reply:  # line 2
    """Send the direction, and whether its sign stands; it stands at the root, and where a neighbour's stood."""
    alpha, settled = _sign(site, bytes(root).decode())
    return Reply(send=(alpha, np.float64(settled)), keep={"now": alpha, "settled": settled})


@local(takes={"root": "c"}, keeps=("now", "settled"))
def take_sign(site: Site, root: Any) -> Reply:
    """Take in the last messages."""
    alpha, settled = _sign(site, bytes(root).decode())
    return Reply(keep={"now": alpha, "settled": settled})


def _sign(site: Site, root: str) -> tuple[Array, bool]:
    """The node's alpha with the sign that its settled neighbours' directions ask for, and whether there were any."""
    alpha, G, blocks = site.kept["now"], site.kept["gram"], blocks_of(site)
    if site.kept["settled"] or site.name == root:
        return alpha, True
    settled = [name for name, (_, flag) in site.inbox.items() if flag > 0]
    overlap = sum(float(alpha @ G[blocks[site.name], blocks[name]] @ site.inbox[name][0]) for name in sorted(settled))
    return (-alpha if overlap < 0 else alpha), bool(settled)


@local(sends={"alpha": "n"}, keeps=("alpha", "lengths", "history", "iterates"))
def send_direction(site: Site) -> Reply:
    """Keep the direction, of length 1, and send it to the neighbours, who see how far they agree."""
    alpha, K = site.kept["now"], own_kernel(site)
    length = np.sqrt(max(float(alpha @ K @ alpha), np.finfo(float).tiny))
    unit = alpha / length
    keep = {
        "alpha": np.column_stack([*site.kept.get("alpha", np.zeros((len(K), 0))).T, unit]),
        "lengths": np.append(site.kept.get("lengths", ()), length),
        "history": [*site.kept.get("history", ()), np.array(site.kept["moves"]).reshape(-1, 4)],
        "iterates": [*site.kept.get("iterates", ()), np.array(site.kept["trail"]).reshape(-1, len(K))],
    }
    return Reply(send=unit, keep=keep)


@local(sends={"diagnosis": "2"})
def diagnosis(site: Site) -> Array:
    """1 - the least cosine between this node's direction and a neighbour's, and 1 - ||w_j||, what its rows miss of z."""
    unit, G, blocks = site.kept["alpha"][:, -1], site.kept["gram"], blocks_of(site)
    cosines = []
    for name in sorted(site.inbox):
        other = site.inbox[name][0]
        length = np.sqrt(max(float(other @ G[blocks[name], blocks[name]] @ other), np.finfo(float).tiny))
        cosines.append(float(unit @ G[blocks[site.name], blocks[name]] @ other) / length)
    return 1.0 - np.array([min(cosines, default=1.0), float(site.kept["lengths"][-1])])


async def agree_on_signs(network: Network) -> None:
    """Give every node's "now" the sign that the first node's asks for."""
    root = np.frombuffer(min(network.graph).encode(), dtype=np.uint8)
    for _ in range(network.diameter):
        await Exchange(offer_sign, root)
    await Local(take_sign, root)
