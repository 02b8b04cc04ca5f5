"""Very many sites that cost nothing, so that what is measured is the coordinator."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from eigenpact.runtime import Connection, Request, Response, SiteServer


class Alike(Connection):
    """Sites that all hold the same rows, of which one answers for all: what is left is the coordinator's own work."""

    def __init__(self, sites: int, X: Any) -> None:
        self._names, self._server = tuple(f"s{i:07d}" for i in range(sites)), SiteServer("s0000000", X)
        self.seconds, self.replies = 0.0, 0

    def sites(self) -> tuple[str, ...]:
        """All of them."""
        return self._names

    def own_sites(self) -> tuple[str, ...]:
        """None is here."""
        return ()

    def n_features(self) -> Mapping[str, int]:
        """The same everywhere."""
        return dict.fromkeys(self._names, self._server.n_features)

    def positions(self, run: str, epoch: int) -> Mapping[str, int]:
        """All are where the one is."""
        return dict.fromkeys(self._names, self._server.position(run, epoch))

    def call(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        """One reply, so many times."""
        begin = time.process_time()
        reply = self._server.execute(request, next(iter(after.values())))
        self.seconds += time.process_time() - begin
        self.replies += 1
        yield from (Response(name, tuple(array.copy() for array in reply.arrays)) for name in after)
