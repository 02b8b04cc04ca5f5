"""What the nodes of a graph agreed on before they begin, and what a method on a graph returns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...numerics.kernels import Kernel
from ...numerics.linalg import Array
from ...runtime.consensus import Graph, distances


@dataclass(frozen=True, eq=False)
class Tree:
    """Nodes by their distance from the root, and the parent of every node but the root."""

    levels: tuple[tuple[str, ...], ...]
    parents: Mapping[str, str]

    @classmethod
    def of(cls, graph: Graph, root: str) -> Tree:
        """Of shortest paths to the root; of several the one by the first neighbour."""
        away = distances(graph, root)
        levels: list[list[str]] = [[] for _ in range(max(away.values()) + 1)]
        for name in sorted(away):
            levels[away[name]].append(name)
        nearer = {name: [other for other in graph[name] if away[other] < away[name]] for name in away if name != root}
        return cls(tuple(map(tuple, levels)), {name: min(nearer[name]) for name in sorted(nearer)})

    @property
    def root(self) -> tuple[str, ...]:
        """The root, as the nodes of a collective."""
        return self.levels[0]


@dataclass(frozen=True, eq=False)
class Network:
    """A connected undirected graph, node -> neighbours.  Every node knows it.

    >>> ring = Network({"a": ("b", "c"), "b": ("a", "c"), "c": ("a", "b")})
    >>> ring.diameter, ring.rounds_to(1e-6)
    (1, 1)
    """

    graph: Mapping[str, tuple[str, ...]]

    @cached_property
    def _farthest(self) -> dict[str, int]:
        """How far the farthest other is from every node."""
        return {name: max(distances(self.graph, name).values()) for name in sorted(self.graph)}

    @property
    def diameter(self) -> int:
        """The largest distance between two nodes."""
        return max(self._farthest.values())

    @property
    def radius(self) -> int:
        """The least distance from a node to the one that is farthest from it."""
        return min(self._farthest.values())

    @cached_property
    def tree(self) -> Tree:
        """Shortest paths to the node whose farthest other is nearest, the first by name among several."""
        return Tree.of(self.graph, min(self._farthest, key=lambda name: (self._farthest[name], name)))

    @cached_property
    def waves(self) -> tuple[tuple[str, ...], ...]:
        """Nodes by their distance from the first by name: in which order they hear what it begins."""
        return Tree.of(self.graph, min(self.graph)).levels

    @cached_property
    def spectrum(self) -> tuple[float, float]:
        """Least non-zero and largest eigenvalue of the graph's Laplacian: how fast averages spread."""
        names = sorted(self.graph)
        place = {name: i for i, name in enumerate(names)}
        L = np.zeros((len(names), len(names)))
        for name in names:
            L[place[name], place[name]] = len(self.graph[name])
            for neighbour in self.graph[name]:
                L[place[name], place[neighbour]] = -1.0
        values = np.linalg.eigvalsh(L)
        return (float(values[1]), float(values[-1])) if len(names) > 1 else (1.0, 1.0)

    @property
    def centre(self) -> float:
        """Middle of the Laplacian's spectrum without 0."""
        low, high = self.spectrum
        return (low + high) / 2

    @property
    def narrowness(self) -> float:
        """Half width of that spectrum over its middle, in [0, 1)."""
        low, high = self.spectrum
        return (high - low) / (high + low)

    def rounds_to(self, precision: float) -> int:
        """Rounds of averaging after which what nodes differ by is ``precision`` of what it was."""
        if len(self.graph) == 1:
            return 0
        if self.narrowness < 1e-9:  # every pair are neighbours
            return 1
        return math.ceil(math.acosh(1 / precision) / math.acosh(1 / self.narrowness))


@dataclass(frozen=True, eq=False)
class GraphProblem:
    """What is to be solved on a graph.

    Attributes
    ----------
    network : Network
    n_components, n_features : int
    kernel : Kernel
        "linear" for PCA itself.
    center : bool
        Whether to subtract the mean over all nodes' rows in feature space.
    landmarks : (m, n_features) array, optional
        Public rows.
    tol : float or None
        None takes the method's own.
    max_iterations : int
    seed : int
    """

    network: Network
    n_components: int
    n_features: int
    kernel: Kernel
    center: bool
    landmarks: Array | None
    tol: float | None
    max_iterations: int
    seed: int

    def stopping_tol(self, default: float) -> float:
        """The user's tol, or the method's own."""
        return default if self.tol is None else float(self.tol)


@dataclass(frozen=True, eq=False)
class GraphSolution:
    """How a method on a graph ended; the components themselves stay at the nodes.

    ``iterations`` counts all components together; ``notes`` is what the method wants to tell besides, as JSON can hold it.
    """

    iterations: int
    converged: bool
    reason: str
    notes: dict[str, Any] = field(default_factory=dict)
