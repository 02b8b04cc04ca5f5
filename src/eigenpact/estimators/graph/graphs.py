"""From a ``graph`` argument to node -> neighbours: a short name, an edge list, a mapping or a networkx Graph.

``networkx`` is imported where it is first used: it takes a quarter of a second, and most processes have no graph.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from ...errors import InputError

Neighbours = dict[str, tuple[str, ...]]

SHORT_NAMES = (
    "ring:M (every node has M neighbours), grid, regular:M, erdos:P, small-world:M, complete; "
    "random ones with a seed as third part, e.g. regular:4:7"
)


def find_graph(graph: Any, names: Collection[str]) -> Neighbours:
    """Node -> neighbours, both sorted, for a ``graph`` argument; refuses one that is not connected, naming its parts.

    >>> find_graph("ring:2", ["n0", "n1", "n2", "n10"])["n10"]
    ('n0', 'n2')
    >>> find_graph([("a", "b"), ("b", "c")], ["a", "b", "c"])["b"]
    ('a', 'c')
    """
    import networkx

    nodes = natural_order(names)
    found = _built(graph, nodes)
    if found.is_directed():
        raise InputError("graph is directed; neighbours talk both ways, so pass graph.to_undirected()")
    found = networkx.relabel_nodes(networkx.Graph(found), {node: str(node) for node in found})
    found.remove_edges_from(list(networkx.selfloop_edges(found)))
    strangers = sorted(set(found) ^ set(nodes))
    if strangers:
        raise InputError(f"the graph's nodes and the sites differ in {strangers[:5]}; name every site in the graph, and no other")
    parts = [natural_order(part) for part in networkx.connected_components(found)]
    if len(parts) > 1:
        told = "; ".join(", ".join(part[:5]) + (", ..." if len(part) > 5 else "") for part in parts[:5])
        raise InputError(f"the graph is not connected, it has {len(parts)} parts: {told}; add edges between them")
    return {node: tuple(sorted(found[node])) for node in sorted(nodes)}


def natural_order(names: Iterable[str]) -> list[str]:
    """Names sorted with numbers in them by size: site2 before site10."""
    return sorted(names, key=lambda name: [(int(p), "") if p.isdigit() else (-1, p) for p in re.split(r"(\d+)", name)])


def _built(graph: Any, nodes: list[str]) -> Any:
    import networkx

    if isinstance(graph, str):
        return networkx.relabel_nodes(_named(graph, len(nodes)), dict(enumerate(nodes)))
    if isinstance(graph, networkx.Graph):
        return graph
    if isinstance(graph, Mapping):
        edges = [(a, b) for a, others in graph.items() for b in _neighbours(a, others)]
    elif isinstance(graph, Iterable):
        edges = list(graph)
    else:
        raise InputError(f"graph={graph!r} must be a networkx Graph, a list of edges or a short name: {SHORT_NAMES}")
    wrong = [edge for edge in edges if not isinstance(edge, Collection) or len(edge) != 2]
    if wrong:
        raise InputError(f"graph: every edge is a pair of node names such as ('north', 'south'), and {wrong[0]!r} is none")
    built = networkx.Graph()
    built.add_nodes_from(nodes)
    built.add_edges_from((str(a), str(b)) for a, b in edges)
    return built


def _neighbours(node: Any, others: Any) -> Iterable[Any]:
    """The neighbours that are named for a node."""
    if isinstance(others, str) or not isinstance(others, Iterable):
        raise InputError(f"graph: the neighbours of {node!r} are a list of node names, not {others!r}")
    return others


def _named(text: str, n: int) -> Any:
    """A graph on 0 .. n-1 by its short name."""
    import networkx

    name, *rest = text.split(":")
    makers: dict[str, Callable[[list[str]], Any]] = {
        "ring": lambda rest: networkx.circulant_graph(n, _offsets(int(rest[0]) if rest else 2, n)),
        "grid": lambda _: _grid(n),
        "regular": lambda rest: networkx.random_regular_graph(min(int(rest[0]), n - 1), n, seed=_seed(rest)),
        "erdos": lambda rest: networkx.gnp_random_graph(n, float(rest[0]), seed=_seed(rest)),
        "small-world": lambda rest: networkx.connected_watts_strogatz_graph(n, min(int(rest[0]), n - 1), 0.2, seed=_seed(rest)),
        "complete": lambda _: networkx.complete_graph(n),
    }
    if name not in makers:
        raise InputError(f"unknown graph {text!r}; the short names are {SHORT_NAMES}")
    try:
        return makers[name](rest)
    except (ValueError, IndexError, networkx.NetworkXException) as error:
        raise InputError(f"graph={text!r} cannot be made for {n} nodes ({error}); the short names are {SHORT_NAMES}") from error


def _offsets(neighbours: int, n: int) -> list[int]:
    """Distances along a ring at which nodes are joined."""
    if neighbours < 2 or neighbours % 2:
        raise ValueError(f"{neighbours} is not an even number >= 2")
    return list(range(1, min(neighbours // 2, n // 2) + 1))


def _grid(n: int) -> Any:
    """The grid of n nodes that is nearest to a square."""
    import networkx

    height = next(h for h in range(math.isqrt(n), 0, -1) if n % h == 0)
    grid = networkx.grid_2d_graph(height, n // height)
    return networkx.relabel_nodes(grid, {node: i for i, node in enumerate(sorted(grid))})


def _seed(rest: list[str]) -> int:
    return int(rest[1]) if len(rest) > 1 else 0
