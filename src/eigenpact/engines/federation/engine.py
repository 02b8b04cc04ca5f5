"""What engines between institutions share: the coordinator's kit, who takes part, and sites that can be called.

FLARE's server, or Flower's SuperLink, starts a process of its own for every run: the relay (``relay.py``).  The driver runs in
the process that called ``fit``.  So timeouts are the driver's own: a site that is dead or silent is waited for once and then left
out.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import KW_ONLY, dataclass, field
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, ClassVar, Self

from ...errors import InputError, TooFewSitesError
from ...release import __version__
from ...runtime import Costs, Graph, Identity, Job, MailConnection, Outcome, Plan, Post, Request, Response, Sites
from ..extras import check_limits, refuse_graph
from .kits import PartyKit
from .relay import STILL, RelayPost

ALL_WITHIN = 15.0
"""Seconds that sites are waited for when ``min_sites`` are connected already."""

log = logging.getLogger("eigenpact.coordinator")


def _silent(_connected: tuple[str, ...], _missing: tuple[str, ...], _begins: bool) -> None:
    """Nobody is told."""


@dataclass(frozen=True)
class FederationEngine(ABC):
    """An engine between institutions; a subclass says how a job is started at the sites.

    Parameters are told by the subclasses; ``kit`` may also be a kit that was read already, ``run`` names the run at all parties,
    and ``waiting`` is told, whenever that changes, which sites are connected, which are missing, and whether the run begins so.
    """

    kit: str | Path | PartyKit
    _: KW_ONLY
    sites: tuple[str, ...] | None = None
    min_sites: int = 0
    round_timeout: float = 60.0
    start_timeout: float = 120.0
    run: str = ""
    waiting: Callable[[tuple[str, ...], tuple[str, ...], bool], object] = field(default=_silent, repr=False, compare=False)
    owned: Any = field(init=False, repr=False, compare=False)

    kits: ClassVar[type[PartyKit]]
    costs: ClassVar[Costs]
    spread: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_limits(self, seconds=("round_timeout", "start_timeout"))
        owned = self.kits.read(self.kit, "coordinator")
        wanted, least = owned.federation.taking_part(self.sites, self.min_sites, owned.revoked())
        for name, value in {"owned": owned, "sites": wanted, "min_sites": least}.items():
            object.__setattr__(self, name, value)

    @contextmanager
    def open(self) -> Iterator[OpenFederation]:
        """Start a job at the sites; an engine for any number of fits while the context lasts."""
        with self._job() as (pipe, names):
            post, sites, features = RelayPost(pipe, names), self.sites or (), self.owned.federation.features
            limits = self.min_sites, self.round_timeout
            yield OpenFederation(self.kits.engine, post, sites, features, self.costs, *limits, self.owned.identity(), self.run)

    def execute(self, sites: Sites, job: Job, *, graph: Graph | None = None) -> Outcome:
        """Start a job at the sites, run the driver's here, and end both."""
        with self.open() as connected:
            return connected.execute(sites, job, graph=graph)

    @abstractmethod
    def _job(self) -> AbstractContextManager[tuple[Pipe, tuple[str, ...]]]:
        """A job at the sites for the length of the context: the pipe to its relay, and the sites that are in it."""

    def _wait_for_sites(self, connected: Callable[[], Collection[str]]) -> tuple[str, ...]:
        """Wait until all sites are connected; after a while go on with fewer, if those are enough."""
        begin, sites, told = time.monotonic(), self.sites or (), None
        while True:
            there = connected()
            found = tuple(name for name in sites if name in there)
            missing = tuple(name for name in sites if name not in found)
            waited = time.monotonic() - begin
            begins = not missing or (len(found) >= self.min_sites and waited > ALL_WITHIN)
            if found != told or begins:
                told = found
                self.waiting(found, missing, begins)
            if begins:
                for name in missing:
                    log.warning("site %s is not connected within %.0f s: the run begins without it", name, waited)
                return found
            if waited > self.start_timeout:
                raise TooFewSitesError(
                    f"not connected within {self.start_timeout:g} s: {', '.join(missing)}; min_sites is {self.min_sites}: "
                    "have them run eigenpact site start, each with the kit it was given, or lower min_sites"
                )
            time.sleep(STILL)


@dataclass(eq=False)
class OpenFederation:
    """An engine whose sites can be called; made by an engine's ``open``.

    Attributes
    ----------
    engine : str
        Its name.
    post : Post
        Brings messages to the sites and back.
    sites : tuple of str
        Sites that are to take part.
    features : tuple of str, int or None
        The agreed columns in order, or their number; None if they are not known.
    costs : Costs
    min_sites : int
        A run goes on only with this many sites.
    round_timeout : float
        Seconds a site may take to answer before the run goes on without it.
    identity : Identity, optional
        With what letters are signed and replies checked; none where there are no kits.
    run : str
        What runs are called that have a journal; empty if any name will do.
    """

    engine: str
    post: Post
    sites: tuple[str, ...]
    features: tuple[str, ...] | int | None
    costs: Costs
    min_sites: int
    round_timeout: float
    identity: Identity | None = None
    run: str = ""

    spread: ClassVar[bool] = False

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:  # scikit-learn clones by copying; a connection is shared
        return self

    def execute(self, sites: Sites, job: Job, *, graph: Graph | None = None) -> Outcome:
        """Run the job here, with the sites as they are."""
        refuse_graph(self.engine, graph)
        if sites:
            raise InputError(f"with engine {self.engine!r} the rows lie at the sites; call fit() without data")
        options: dict[str, Any] = {"round_timeout": self.round_timeout, "announces": True, "features": self.features}
        options |= {"identity": self.identity, "tell": lambda site, reason: log.warning("site %s: %s", site, reason)}
        connection = LoggedConnection(self.post, self.sites, **options)
        connection.run = self.run
        return job(connection)


class LoggedConnection(MailConnection):
    """Writes to the coordinator's log what sites refuse; ``run`` is what the run is called, if that was said."""

    run = ""

    def announce(self, run: str, *plans: Plan) -> tuple[int, Mapping[str, str]]:
        """Tell every site what the run is about to do; give by which plan, and why for each that takes no part."""
        chosen, absent = super().announce(run, *plans)
        if chosen:
            log.info("run %s takes solver %s: not all sites allow %s", run, plans[chosen].solver, plans[0].solver)
        for party in self.speakers().values():
            if party.release != __version__:
                log.warning(
                    "%s, and the coordinator %s: run %s speaks protocol %d", party.told(), __version__, run, self.protocol
                )
        for name, reason in sorted(absent.items()):
            log.warning("site %s takes no part in run %s: %s", name, run, reason)
        return chosen, absent

    def call(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        """Send a request; yield the replies in sorted site order."""
        for response in super().call(request, after):
            if response.error or response.lost:
                log.warning("site %s, %s: %s", response.site, request.function, response.error or response.reason)
            yield response
