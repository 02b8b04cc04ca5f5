"""Sums over all nodes of a graph along a tree of shortest paths: up to its root, and what the root makes of them down again.

Problem
    Every node j holds a table x_j (m x c).  All nodes want the sum over nodes, or what one of them makes of it; sometimes the
    largest over nodes of other numbers, too (``mean_and_most``), which then travel beside it.

Rounds
    1. the root is the node whose farthest other is nearest, the first by name among several;  every other node's parent is its
       neighbour next to the root, the first by name.  Every node knows the graph, so that nothing need be agreed on
    2. for h = H, ..., 1, H the tree's height: nodes h steps from the root send x_j + what their children sent, to their parent
    3. the root has the sum, and may compute with it
    4. for h = 0, ..., H - 1: nodes h steps from the root send what came from it to their children

Leaves the site
    The sum over a node and all that are behind it, to one neighbour, its parent.  Where nobody is behind it - at a leaf of the
    tree, which may have more neighbours - that is the node's own table.  The root's answer goes to all.

Cost
    2 H rounds, H at most the graph's width; 8 m c bytes per node each way, whatever the number of its neighbours.

Differences from the paper
    ``gossip`` gives the same mean up to a precision.  It has no root, every node does the same in every round, and each sends its
    own table to all neighbours.  Here sums are exact but for rounding, all nodes have the same bits, rounds do not depend on a
    precision and messages are those of a tree, not of all edges in all rounds.  A program on a graph needs every node either way.

References
    A. Segall, "Distributed network protocols", IEEE Trans. Inf. Theory 29 (1983), on broadcast and convergecast.

>>> from eigenpact.algorithms.graph.network import Network
>>> tree = Network({"a": ("b",), "b": ("a", "c"), "c": ("b", "d"), "d": ("c",)}).tree
>>> tree.levels, tree.parents
((('b',), ('a', 'c'), ('d',)), {'a': 'b', 'c': 'b', 'd': 'c'})
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ...numerics.linalg import Array
from ...runtime import Exchange, Local, Reply, Site, local
from ..method import Part
from .gossip import NOW
from .network import Network

PLACE = "tree: place"
"""Under this name a node keeps its parent, None for the root, and its children."""

MOST = "tree: most"
"""Under this name a node keeps the numbers (l x c) of which the largest over nodes are wanted."""


@local(takes={"parents": "c"}, keeps=(PLACE,))
def take_place(site: Site, parents: Any) -> Reply:  # line 1
    """Learn who is the node's parent, and who its children are."""
    told: dict[str, str] = json.loads(bytes(parents).decode())
    return Reply(keep={PLACE: (told.get(site.name), tuple(sorted(n for n in site.neighbours if told.get(n) == site.name)))})


@local(sends={"sum": "m c"}, reads=(NOW, PLACE))
def send_up(site: Site) -> Reply:  # line 2
    """Send the node's own table, and what its children sent, to its parent."""
    return Reply(send={site.kept[PLACE][0]: _with_children(site)})


@local(takes={"nodes": ""}, reads=(NOW,), keeps=(NOW,))
def take_mean(site: Site, nodes: Any) -> Reply:  # line 3
    """Keep the mean over so many nodes: at the root."""
    return Reply(keep={NOW: _with_children(site) / float(nodes)})


@local(sends={"sum": "m c", "most": "l c"}, reads=(NOW, MOST, PLACE))
def send_both_up(site: Site) -> Reply:  # line 2
    """As ``send_up``, with the largest of the node's own numbers and of those that its children sent."""
    return Reply(send={site.kept[PLACE][0]: (_with_children(site), _most(site))})


@local(takes={"nodes": ""}, reads=(NOW, MOST), keeps=(NOW,))
def take_both(site: Site, nodes: Any) -> Reply:  # line 3
    """Keep the mean over so many nodes (m x c), and below it the largest numbers (l x c): at the root."""
    return Reply(keep={NOW: np.concatenate([_with_children(site) / float(nodes), _most(site)])})


@local(sends={"answer": "m c"}, reads=(NOW, PLACE), keeps=(NOW,))
def send_down(site: Site) -> Reply:  # line 4
    """Keep what came from the root and send it to the children."""
    answer = _from_parent(site)
    return Reply(send=dict.fromkeys(site.kept[PLACE][1], answer), keep={NOW: answer})


@local(reads=(NOW, PLACE), keeps=(NOW,))
def take_answer(site: Site) -> Reply:
    """Keep what came from the root: at the nodes that are farthest from it."""
    return Reply(keep={NOW: _from_parent(site)})


def _with_children(site: Site) -> Array:
    total: Array = site.kept[NOW]
    for child in sorted(site.inbox):
        total = total + site.inbox[child][0]
    return total


def _most(site: Site) -> Array:
    most: Array = site.kept[MOST]
    for child in sorted(site.inbox):
        most = np.maximum(most, site.inbox[child][1])
    return most


def _from_parent(site: Site) -> Array:
    parent = site.kept[PLACE][0]
    answer: Array = site.kept[NOW] if parent is None else site.inbox[parent][0]
    return answer


async def join(network: Network) -> None:
    """Give every node its place in the graph's tree: what the functions below need, once in a fit.  Nothing is sent."""
    await Local(take_place, np.frombuffer(json.dumps(dict(network.tree.parents)).encode(), dtype=np.uint8))


async def to_root(network: Network) -> None:
    """Replace what the root keeps as ``NOW`` by the mean over all nodes."""
    for level in reversed(network.tree.levels[1:]):
        await Exchange(send_up, nodes=level)  # line 2
    await Local(take_mean, np.float64(len(network.graph)), nodes=network.tree.root)  # line 3


async def from_root(network: Network) -> None:
    """Replace what every node keeps as ``NOW`` by what the root does."""
    *levels, last = network.tree.levels
    for level in levels:
        await Exchange(send_down, nodes=level)  # line 4
    if levels:
        await Local(take_answer, nodes=last)


async def mean(network: Network) -> None:
    """Replace what every node keeps as ``NOW`` by the mean over nodes, the same bits at all."""
    await to_root(network)
    await from_root(network)


async def mean_and_most(network: Network) -> None:
    """Replace what every node keeps as ``NOW`` by the mean over nodes, and below it the largest of what they keep as ``MOST``."""
    for level in reversed(network.tree.levels[1:]):
        await Exchange(send_both_up, nodes=level)  # line 2
    await Local(take_both, np.float64(len(network.graph)), nodes=network.tree.root)  # line 3
    await from_root(network)


TREE = Part(
    "Graph: sums along a tree",
    {Exchange: (send_up, send_both_up, send_down), Local: (take_place, take_mean, take_both, take_answer)},
)
