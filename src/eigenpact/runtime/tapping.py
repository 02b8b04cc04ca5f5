"""Listening in on a run: every request and every reply, as the coordinator sees them, without changing any."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .engine import Connection, Costs, Engine, Job, Outcome
from .plan import Plan
from .site import Request, Response

Hear = Callable[[Request, Response], Any]


def tapped(job: Job, hear: Hear) -> Job:
    """The same job; ``hear(request, response)`` is called for every response before the driver gets it."""

    def run(connection: Connection) -> Outcome:
        return job(_Tapped(connection, hear))

    return run


@dataclass(frozen=True, eq=False)
class AroundEngine:
    """An engine that runs as the ``engine`` inside it, but for what a subclass does in ``execute``."""

    engine: Engine

    @property
    def costs(self) -> Costs:
        """Those of the engine."""
        return self.engine.costs

    @property
    def min_sites(self) -> int:
        """Those of the engine."""
        return self.engine.min_sites

    @property
    def spread(self) -> bool:
        """Whether other processes may hold sites too."""
        return self.engine.spread


class PassingOn(Connection):
    """A connection that passes on what another one does."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def sites(self) -> tuple[str, ...]:
        return self._connection.sites()

    def invited(self) -> tuple[str, ...]:
        return self._connection.invited()

    def own_sites(self) -> tuple[str, ...]:
        return self._connection.own_sites()

    def n_features(self) -> Mapping[str, int]:
        return self._connection.n_features()

    def measured(self, usual: Costs) -> Costs:
        return self._connection.measured(usual)

    def announce(self, run: str, *plans: Plan) -> tuple[int, Mapping[str, str]]:
        return self._connection.announce(run, *plans)

    def positions(self, run: str, epoch: int) -> Mapping[str, int]:
        return self._connection.positions(run, epoch)

    def call(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        return self._connection.call(request, after)

    def exchange(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        return self._connection.exchange(request, after)


class _Tapped(PassingOn):
    """Lets somebody hear every response."""

    def __init__(self, connection: Connection, hear: Hear) -> None:
        super().__init__(connection)
        self._hear = hear

    def call(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        return self._heard(request, super().call(request, after))

    def exchange(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        return self._heard(request, super().exchange(request, after))

    def _heard(self, request: Request, responses: Iterator[Response]) -> Iterator[Response]:
        for response in responses:
            self._hear(request, response)
            yield response
