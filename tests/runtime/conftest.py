"""Connections to toy sites in this process, some of which get lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from eigenpact.engines.inprocess import InProcessConnection
from eigenpact.runtime import Connection, Request, Response, SiteServer


class Recording(Connection):
    """Sites in this process; notes every request, and loses sites when told.

    ``losing(request)`` names the sites that are gone from that request on.
    """

    def __init__(
        self, sites: Mapping[str, Any], graph: Mapping[str, tuple[str, ...]], losing: Callable[[Request], set[str]]
    ) -> None:
        self.servers = {name: SiteServer(name, X, neighbours=graph.get(name, ())) for name, X in sites.items()}
        self.inner = InProcessConnection(self.servers, threads=1)
        self.losing = losing
        self.lost: set[str] = set()
        self.requests: list[tuple[Request, tuple[str, ...]]] = []

    def sites(self) -> tuple[str, ...]:
        return tuple(name for name in self.inner.sites() if name not in self.lost)

    def own_sites(self) -> tuple[str, ...]:
        return self.sites()

    def n_features(self) -> Mapping[str, int]:
        return self.inner.n_features()

    def positions(self, run: str, epoch: int) -> Mapping[str, int]:
        return self.inner.positions(run, epoch)

    def call(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        yield from self._without_the_lost(self.inner.call, request, after)

    def exchange(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        yield from self._without_the_lost(self.inner.exchange, request, after)

    def _without_the_lost(self, carry_out: Any, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        self.requests.append((request, tuple(sorted(after))))
        self.lost |= self.losing(request) & set(after)
        replies = carry_out(request, {name: step for name, step in after.items() if name not in self.lost})
        for name in sorted(after):
            yield Response(name, lost=True) if name in self.lost else next(replies)


@pytest.fixture
def connect() -> Callable[..., Recording]:
    """connect(sites, graph={}, losing=...) -> a connection to sites given as name -> rows."""

    def make(sites: Mapping[str, Any], graph: Any = None, losing: Any = None) -> Recording:
        return Recording(sites, graph or {}, losing or (lambda _: set()))

    return make


@pytest.fixture
def three_sites() -> dict[str, Any]:
    """Three sites with 3 features and 4, 6 and 5 rows."""
    rng = np.random.default_rng(5)
    return {name: rng.normal(size=(n, 3)) * [3.0, 2.0, 1.0] for name, n in (("A", 4), ("B", 6), ("C", 5))}
