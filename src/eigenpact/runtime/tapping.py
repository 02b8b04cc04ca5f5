"""Listening in on a run: every request and every reply, as the coordinator sees them, without changing any."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .engine import Connection, Job, Outcome
from .plan import Plan
from .site import Request, Response

Hear = Callable[[Request, Response], Any]


def tapped(job: Job, hear: Hear) -> Job:
    """The same job; ``hear(request, response)`` is called for every response before the driver gets it."""

    def run(connection: Connection) -> Outcome:
        return job(_Tapped(connection, hear))

    return run


class _Tapped(Connection):
    """A connection that passes on what another one does."""

    def __init__(self, connection: Connection, hear: Hear) -> None:
        self._connection, self._hear = connection, hear

    def sites(self) -> tuple[str, ...]:
        return self._connection.sites()

    def invited(self) -> tuple[str, ...]:
        return self._connection.invited()

    def own_sites(self) -> tuple[str, ...]:
        return self._connection.own_sites()

    def n_features(self) -> Mapping[str, int]:
        return self._connection.n_features()

    def announce(self, run: str, plan: Plan) -> Mapping[str, str]:
        return self._connection.announce(run, plan)

    def positions(self, run: str, epoch: int) -> Mapping[str, int]:
        return self._connection.positions(run, epoch)

    def call(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        return self._heard(request, self._connection.call(request, after))

    def exchange(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        return self._heard(request, self._connection.exchange(request, after))

    def _heard(self, request: Request, responses: Iterator[Response]) -> Iterator[Response]:
        for response in responses:
            self._hear(request, response)
            yield response
