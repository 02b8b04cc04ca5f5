"""A direction to begin with that all nodes agree on: the one along which the rows of all nodes vary most.

Problem
    A few hundred rows may vary most along another direction than all rows do.  Where neighbours begin with different directions,
    projection consensus takes long to turn them round, or ends between them.  What a neighbourhood's rows do tell is the span of
    their first F directions; only which of them comes first must be decided by all nodes together.

Rounds
    1. D_j <- the first F directions of node j's neighbourhood;  S_j <- the scatter of the node's own rows along them, so that
       every row counts once, whatever the number of neighbourhoods it is in;  D_root stands
    2. node by node outwards from the root, all that are equally far at once: a node turns its D by the rotation R closest to the
       D of the neighbours that are nearer, D_j <- D_j R, and sends its projection on its own rows to its neighbours
    3. S <- the mean over nodes of R^T S_j R (``tree``): in one frame for all nodes;  beside it the largest lambda_1(K_j)
    4. begin with D_j s, s the leading eigenvector of S, projected on the node's own rows

Leaves the site
    n_j x F coefficients of its own rows, to its neighbours, who have the rows; F x F numbers, added up along the tree.

Cost
    8 n_j F bytes per neighbour in line 2, once, in as many rounds as nodes are far from the root; 8 F^2 for each node and way in
    line 3.

Differences from the paper
    All of it; the paper begins with random directions.  Directions that neighbours do not share are turned into one another, for
    want of anything better: many strong directions of single nodes beside a weak common one can still mislead the start.

References
    P. H. Schoenemann, "A generalized solution of the orthogonal Procrustes problem", Psychometrika 31 (1966), for line 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...numerics.linalg import Array, top_eigenpairs
from ...runtime import Agreed, Exchange, Local, Reply, Site, local
from ..method import Part
from .gossip import NOW
from .neighbourhood import SEEN, blocks_of, own_kernel
from .network import Network
from .tree import MOST, mean_and_most

FRAME = 20
"""F: the direction that comes first for all rows is among so many first ones of every neighbourhood."""

LEAST = 1e-12
"""Directions with less than this share of the first one's variance are left out: rounding has made them."""

KEPT = ("frame", "own frame", "scatter", "settled")


@local(reads=("gram", "vectors", "values", "sizes"), keeps=(*KEPT, "ratio"))
def make_frame(site: Site) -> Reply:  # line 1
    """D_j as coefficients of all rows seen (N x F) and of own rows (n x F, projected); how near the second variance is."""
    G, n = site.kept["gram"], site.kept["sizes"][0]
    variances, vectors = top_eigenpairs(G, min(FRAME, len(G)))
    kept = variances > LEAST * max(variances[0], np.finfo(float).tiny)
    frame = np.zeros((len(G), FRAME))
    frame[:, : kept.sum()] = vectors[:, kept] / np.sqrt(variances[kept])
    scores = G[:n] @ frame
    V, values = site.kept["vectors"], site.kept["values"]
    own = V @ ((V.T @ scores) / values[:, None])
    ratio = _ratio(variances) if len(site.kept["sizes"]) > 1 else 0.0
    return Reply(keep={"frame": frame, "own frame": own, "scatter": scores.T @ scores, "settled": False, "ratio": ratio})


@local(takes={"root": "c"}, sends={"frame": "n f"}, reads=(*KEPT, *SEEN), keeps=KEPT, version=2)
def offer_frame(site: Site, root: Any) -> Reply:  # line 2
    """Send the projected frame, which stands now."""
    turned = _turned(site, bytes(root).decode())
    return Reply(send=turned["own frame"], keep=turned)


@local(takes={"root": "c"}, reads=(*KEPT, *SEEN, "values"), keeps=(*KEPT, NOW, MOST))
def take_frame(site: Site, root: Any) -> Reply:
    """Take in the last messages, where the frame does not stand yet; put the scatter and lambda_1(K_j) forward."""
    turned = _turned(site, bytes(root).decode())
    return Reply(keep=turned | {NOW: turned["scatter"], MOST: np.full((1, FRAME), site.kept["values"][-1])})


def _turned(site: Site, root: str) -> dict[str, Any]:
    """The node's frame, turned towards those that came from neighbours if it does not stand yet."""
    kept = site.kept
    frame, own, scatter = kept["frame"], kept["own frame"], kept["scatter"]
    if not kept["settled"] and site.name != root:
        G, blocks = kept["gram"], blocks_of(site)
        products = np.sum([site.inbox[name][0].T @ (G[blocks[name]] @ frame) for name in sorted(site.inbox)], axis=0)
        R = closest_rotation(products)
        frame, own, scatter = frame @ R, own @ R, R.T @ scatter @ R
    return {"frame": frame, "own frame": own, "scatter": scatter, "settled": True}


def closest_rotation(products: Array) -> Array:
    """The orthogonal R for which D R is closest to E, given the inner products E^T D.

    >>> closest_rotation(np.array([[0.0, -2.0], [0.5, 0.0]])) + 0.0
    array([[ 0.,  1.],
           [-1.,  0.]])
    """
    left, _, right = np.linalg.svd(products.T)
    R: Array = left @ right
    return R


@local(reads=(NOW, "own frame", "sizes", "gram"), keeps=("now", "z values", "settled", "ratio"))
def begin_in_frame(site: Site) -> Reply:  # line 4
    """The agreed direction's projection on the node's own rows; its sign is yet to be agreed on.  How near the second one is."""
    variances, leading = top_eigenpairs(site.kept[NOW][:-1], 2)
    now = site.kept["own frame"] @ leading[:, 0]
    ratio = _ratio(variances) if len(site.kept["sizes"]) > 1 else 0.0
    return Reply(keep={"now": now, "z values": (own_kernel(site) @ now)[:, None], "settled": False, "ratio": ratio})


def _ratio(variances: Array) -> float:
    return float(max(variances[1], 0.0) / variances[0]) if len(variances) > 1 and variances[0] > 0 else 0.0


@local(sends={"largest": ""}, reads=(NOW,), bound="none")
def largest_value(site: Site) -> Any:
    """The largest lambda_1(K_j), which all nodes have."""
    return site.kept[NOW][-1, 0]


async def agree_on_direction(network: Network) -> float:
    """Leave the start at every node as "now"; the largest lambda_1(K_j)."""
    root = np.frombuffer(min(network.graph).encode(), dtype=np.uint8)
    for nodes in network.waves[:-1]:
        await Exchange(offer_frame, root, nodes=nodes)
    await Local(take_frame, root)
    await mean_and_most(network)  # line 3
    largest = float(await Agreed(largest_value, nodes=network.tree.root))
    await Local(begin_in_frame)
    return largest


def most_rounds(network: Network) -> int:
    """Exchanges and averages of one start."""
    return len(network.waves) - 1 + 2 * network.radius


FRAMES = Part(
    "Graph: a common first direction",
    {Agreed: (largest_value,), Exchange: (offer_frame,), Local: (make_frame, take_frame, begin_in_frame)},
)
