"""What an engine must offer.  Engines are descriptions (cheap to clone and compare); they connect only while a fit runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from . import wire
from .consensus import Graph
from .ledger import Ledger, RoundRecord
from .plan import Plan
from .site import Request, Response, SiteServer

LATER: Mapping[str, Any] = {"later": True}
"""Marks fields that journals of earlier releases lack: where they have their default, descriptions leave them out."""


@dataclass(frozen=True)
class Costs:
    """Constants for the time model of ``solver="auto"``.

    Attributes
    ----------
    latency, bandwidth : float
        Seconds a round, and bytes a second.
    flops : float
        Flops a second of one thread that makes scatter matrices.
    narrow : float, optional
        Flops a second of one thread that multiplies a block of 14 columns; None for what is usual beside ``flops``.
    at_once : int
        Sites that compute at the same time, or threads that share the rows of a site that is alone.
    device, device_narrow : float, optional
        Flops a second of scatter matrices, and of products with a block of 14 columns, of all devices together that hold the
        sites' rows, such as GPUs; None where rows are multiplied by the threads.
    """

    latency: float
    bandwidth: float
    flops: float
    narrow: float | None = field(default=None, metadata=LATER)
    at_once: int = field(default=1, metadata=LATER)
    device: float | None = field(default=None, metadata=LATER)
    device_narrow: float | None = field(default=None, metadata=LATER)


class Connection(Protocol):
    """A running set of sites, as the driver sees it."""

    def sites(self) -> tuple[str, ...]:
        """Names of the sites that can be called now, sorted."""
        ...

    def invited(self) -> tuple[str, ...]:
        """Names of the sites that are to take part, sorted; some may not be there yet."""
        return self.sites()

    def own_sites(self) -> tuple[str, ...]:
        """Sites in the coordinator's own process: ``At`` one of these sends nothing."""
        ...

    def n_features(self) -> Mapping[str, int]:
        """Number of features at each site."""
        ...

    def measured(self, usual: Costs) -> Costs:
        """The engine's constants, with what can be measured before the run, without asking sites for anything."""
        return usual

    def announce(self, run: str, *plans: Plan) -> tuple[int, Mapping[str, str]]:  # noqa: ARG002
        """Tell the sites what a run is about to do, by the first of the plans whose solver all of them allow.

        Give which that is, and why for each site that refuses.  Sites without a policy are not told.
        """
        return 0, {}

    def positions(self, run: str, epoch: int) -> Mapping[str, int]:
        """The last step each site executed in this run and epoch."""
        ...

    def call(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        """Run one request at the sites named in ``after`` (name -> last step); yield responses in sorted name order.

        Responses are produced as they are consumed: at most a few are held at a time, whatever the number of sites.
        """
        ...

    def exchange(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        """As :meth:`call`, but the messages are delivered to the neighbours' inboxes."""
        ...


class Post(Protocol):
    """Carries bytes to sites and back."""

    def now(self) -> float:
        """Seconds of the clock that timeouts are measured with."""
        ...

    def send(self, site: str, data: bytes) -> None:
        """Send bytes to a site; returns at once."""
        ...

    def receive(self, until: float) -> tuple[str, bytes | None] | None:
        """The next message and its site - without bytes if the site is known to be gone - or None if none came until then."""
        ...


@dataclass
class Outcome:
    """What a run ends with, in a form that can be sent to every process without pickle.

    ``results`` names what sites keep that belongs to the answer (a site's own components); ``kept`` holds it, site -> name ->
    value, for the sites of this process alone.  It is never packed: what a site keeps does not travel.
    """

    arrays: dict[str, Any]
    facts: dict[str, Any]
    ledger: Ledger = field(default_factory=Ledger)
    history: list[RoundRecord] = field(default_factory=list)
    results: tuple[str, ...] = ()
    kept: dict[str, dict[str, Any]] = field(default_factory=dict)

    def pack(self) -> bytearray:
        """Bytes for a broadcast."""
        header = {
            "names": list(self.arrays),
            "facts": self.facts,
            "ledger": self.ledger.since(0),
            "history": [record.to_dict() for record in self.history],
            "results": list(self.results),
        }
        return wire.pack(header, list(self.arrays.values()))

    @classmethod
    def unpack(cls, data: bytes | bytearray | memoryview) -> Outcome:
        """Inverse of :meth:`pack`."""
        header, arrays = wire.unpack(data)
        outcome = cls(dict(zip(header["names"], arrays, strict=True)), header["facts"])
        outcome.ledger.extend(header["ledger"])
        outcome.history = [RoundRecord(**record) for record in header["history"]]
        outcome.results = tuple(header["results"])
        return outcome


Job = Callable[[Connection], Outcome]
Sites = Mapping[str, Any]


def with_kept(outcome: Outcome, servers: Mapping[str, SiteServer]) -> Outcome:
    """An outcome with what the sites of this process keep of it; an engine calls this in the end, in every process."""
    results = getattr(outcome, "results", ())  # a job may return something of its own
    if results:
        outcome.kept = {name: server.results(results) for name, server in servers.items()}
    return outcome


class Engine(Protocol):
    """Where a run takes place.

    ``min_sites`` is how many sites must be left for a run to go on; ``spread`` tells that other processes may hold sites too.
    """

    @property
    def costs(self) -> Costs:
        """Constants of the engine for ``solver="auto"``, where nothing is measured."""
        ...

    @property
    def min_sites(self) -> int:
        """Fewest sites with which a run goes on."""
        ...

    @property
    def spread(self) -> bool:
        """Whether other processes may hold sites too."""
        ...

    def execute(self, sites: Sites, job: Job, *, graph: Graph | None = None) -> Outcome:
        """Serve ``sites`` (name -> rows held by this process), run ``job`` in one place, and return its outcome everywhere.

        ``graph`` (node -> neighbours) is given for graph programs.
        """
        ...


@runtime_checkable
class Adopter(Protocol):
    """An engine that can make sites of data that lie in it already, such as a collection of blocks on a cluster."""

    def adopt(self, X: Any, check: Callable[[str, Any], Any]) -> Mapping[str, Any] | None:
        """Sites this engine makes of X itself (name -> what ``execute`` takes), or None if X is ordinary data.

        ``check(name, table)`` returns the rows of a site's table or raises; it runs where the rows are.  Each site has a
        ``shape`` (n, n_features) and a ``header``, an empty table with its columns.
        """
        ...


@runtime_checkable
class Spreading(Protocol):
    """An engine whose processes each bring sites of their own."""

    def check_features(self, names: Sequence[str] | None) -> None:
        """Compare this process's feature names (None if it has none) with those of the others; all raise if they differ."""
        ...

    def check_same(self, what: str, mine: Mapping[str, str]) -> None:
        """Compare what processes were given, by name and in words; all raise if two of them differ."""
        ...

    def everyone(self, names: Sequence[str]) -> tuple[str, ...]:
        """The sites of all processes, given this one's."""
        ...
