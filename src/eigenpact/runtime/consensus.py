"""Agreement without a coordinator: the maximum over a graph's nodes, by passing on the largest value seen."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from ..errors import ProgramError
from .collectives import Call
from .local import Reply, local
from .site import MAXIMUM, Site

Graph = Mapping[str, tuple[str, ...]]


class Consider(Call):
    """Every node computes its own value and keeps it."""

    kind = "consider"


@local(sends={"maximum": "..."}, reads=(MAXIMUM,), keeps=(MAXIMUM,), bound="none")
def pass_on_maximum(site: Site) -> Reply:
    """Send the largest value seen so far to all neighbours."""
    best = _largest_seen(site)
    return Reply(send=best, keep={MAXIMUM: best})


@local(sends={"maximum": "..."}, reads=(MAXIMUM,), bound="none")
def agreed_maximum(site: Site) -> Any:
    """The agreed value, read by the node's own program."""
    return _largest_seen(site)


def _largest_seen(site: Site) -> Any:
    best = site.kept[MAXIMUM]
    for (value,) in site.inbox.values():
        best = np.maximum(best, value)
    return best


def check_nodes(graph: Graph, sites: Collection[str]) -> None:
    """Refuse a graph whose nodes are not the sites, or that mentions a neighbour which is no node."""
    strangers = set(graph) ^ set(sites) | {name for neighbours in graph.values() for name in neighbours} - set(graph)
    if strangers:
        raise ProgramError(f"the graph's nodes and the sites differ in {sorted(strangers)[:5]}; they must be the same")


def distances(graph: Graph, start: str) -> dict[str, int]:
    """How many steps every node is from one of them; refuses a graph that is not connected, naming what is cut off.

    >>> distances({"a": ("b",), "b": ("a", "c"), "c": ("b",)}, "a")
    {'a': 0, 'b': 1, 'c': 2}
    """
    found = _reached(graph, start)
    if len(found) < len(graph):
        unreached = sorted(set(graph) - set(found))
        raise ProgramError(f"the graph is not connected: {start!r} cannot reach {unreached[:5]}; add edges between them")
    return found


def _reached(graph: Mapping[str, Iterable[str]], start: str) -> dict[str, int]:
    """How many steps the nodes that one of them reaches are from it."""
    found = {start: 0}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for neighbour in graph[node]:
            if neighbour not in found:
                found[neighbour] = found[node] + 1
                queue.append(neighbour)
    return found


def check_connected(graph: Graph) -> None:
    """Refuse a graph in which some node cannot reach some other: all are reached from one, and it from all.

    >>> check_connected({"a": ("b",), "b": ("c",), "c": ("a",)})
    """
    if not graph:
        return
    towards: dict[str, list[str]] = {name: [] for name in graph}
    for name, neighbours in graph.items():
        for neighbour in neighbours:
            towards[neighbour].append(name)
    start = min(graph)
    if len(distances(graph, start)) == len(_reached(towards, start)):
        return
    cut_off = min(set(graph) - _reached(towards, start).keys())
    raise ProgramError(f"the graph is not connected: {cut_off!r} cannot reach [{start!r}]; add edges between them")


def diameter(graph: Graph) -> int:
    """The largest distance between two nodes; refuses a graph that is not connected.

    >>> diameter({"a": ("b",), "b": ("a", "c"), "c": ("b",)})
    2
    """
    return max(max(distances(graph, start).values()) for start in graph)
