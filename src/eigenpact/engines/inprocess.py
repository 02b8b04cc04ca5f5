"""All sites in this process: for trying things out, for tests, and for one machine with many files.

Sites run in threads where that pays (their time in BLAS is long enough to share the cores), and one after the other where it
does not; a site that is alone shares its rows among them, and the coordinator those of a wide basis.  BLAS itself runs one thread
per call, so that cores are not fought over and the result does not depend on how many there are.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass

from ..errors import InputError
from ..numerics.blas import limited_blas
from ..numerics.parts import threads_for_rows
from ..runtime import (
    Arrays,
    Connection,
    Costs,
    Job,
    MailConnection,
    Outcome,
    Request,
    Response,
    SiteEndpoint,
    SiteServer,
    with_kept,
)
from ..runtime.consensus import Graph
from ..runtime.engine import Sites
from .devices import check_device, in_turn, placed
from .extras import check_limits
from .measuring import measured_here
from .threads import ThreadPost

THREADS_PAY = 1e-3
"""Seconds sites must spend in a local function, on average, before threads over sites are worth their hand-over."""

READ_RATE = 1e9
"""Entries of its rows that a site looks at in a second, at most: what its first answer is taken to need."""

MAY_TAKE = 10.0
"""A function that a site runs for the first time may take so many times as long as a look at its rows.  Where that would be long
enough for threads, the other sites do not wait until the first one has shown it."""


TOGETHER = 2e-4
"""Where a site needs less than pays, but more than this, it is mostly arithmetic, which others need not wait for: a thread takes
several sites before it hands over."""

HANDED_OVER_TOGETHER = frozenset({"local", "consider", "exchange"})
"""Collectives whose replies are none, or are held until all are there."""


@dataclass(frozen=True)
class InProcess:
    """Run every site in this process.

    Parameters
    ----------
    threads : int, optional
        Sites, or parts of the rows of a site that is alone, that may be worked on at the same time; the number of cores by
        default, 1 for never more than one.
    blas_threads : int, optional
        Threads inside one BLAS call; 1 by default, because threads over sites, rows and features do more, and BLAS's own spin.
    min_sites : int
        A run goes on as long as this many sites are left.
    round_timeout : float, optional
        Seconds a site may take to answer before the run goes on without it.  With it every site has a thread of its own and is
        spoken to by message, as sites elsewhere are; without it a site that hangs is waited for.
    device : str, optional
        Where dense rows of numpy, or of a file, are multiplied (``ep.OnDevice``): "auto" for GPUs, one site after the other, or a
        device as torch names it, such as "cuda:0".
    """

    threads: int | None = None
    blas_threads: int | None = None
    min_sites: int = 1
    round_timeout: float | None = None
    device: str | None = None

    spread = False
    costs = Costs(latency=1e-4, bandwidth=5e9, flops=4.5e10, narrow=2.6e10)

    def __post_init__(self) -> None:
        check_limits(self, counts=("threads", "blas_threads", "min_sites"), seconds=("round_timeout",))
        check_device(self.device)

    def execute(self, sites: Sites, job: Job, *, graph: Graph | None = None) -> Outcome:
        """Serve the sites and run the job, here."""
        if graph is not None and self.round_timeout is not None:
            raise InputError(
                "round_timeout is for runs that can go on without a site; graph programs need every node: leave it out"
            )
        placed_sites = {name: placed(sites[name], in_turn(self.device, i)) for i, name in enumerate(sorted(sites))}
        servers = {name: SiteServer(name, X, neighbours=(graph or {}).get(name, ())) for name, X in placed_sites.items()}
        threads = self.threads or os.cpu_count() or 1
        with limited_blas(self.blas_threads or 1), threads_for_rows(threads):
            if self.round_timeout is not None:
                with closing(ThreadPost({name: SiteEndpoint(server) for name, server in servers.items()})) as post:
                    outcome = job(MailConnection(post, servers, round_timeout=self.round_timeout, own_sites=servers))
                return with_kept(outcome, servers)
            with InProcessConnection(servers, threads, forget=True) as connection:
                return with_kept(job(connection), servers)


class InProcessConnection(Connection):
    """Site servers called directly, or through a pool of threads.

    With ``forget``, they do not remember their last replies: for servers that end with the connection, so that no run which is
    resumed asks for one again.
    """

    def __init__(self, servers: Mapping[str, SiteServer], threads: int, *, forget: bool = False) -> None:
        self._forget = forget
        self._servers = dict(servers)
        self._cores, self._threads = threads, min(threads, len(self._servers))
        self._pool: ThreadPoolExecutor | None = None
        self._looks = {name: server.n_entries / READ_RATE for name, server in servers.items()}
        self._received: list[str] = []  # nodes that had messages of the last exchange
        self._seconds: dict[
            str, dict[str, float]
        ] = {}  # function -> site -> how long it took, alone the last time, or less since

    def __enter__(self) -> InProcessConnection:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def sites(self) -> tuple[str, ...]:
        """All sites, sorted."""
        return tuple(sorted(self._servers))

    def own_sites(self) -> tuple[str, ...]:
        """All of them."""
        return self.sites()

    def n_features(self) -> Mapping[str, int]:
        """Number of features at each site."""
        return {name: server.n_features for name, server in self._servers.items()}

    def measured(self, usual: Costs) -> Costs:
        """Arithmetic is measured, where rows lie; sites, or the rows of one that is alone, share the threads."""
        return measured_here(usual, self._cores, [server.device for server in self._servers.values()])

    def positions(self, run: str, epoch: int) -> Mapping[str, int]:
        """The last step each site executed."""
        return {name: server.position(run, epoch) for name, server in self._servers.items()}

    def call(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        """Run a request at each named site, in sorted order."""
        names = [name for name in sorted(after) if name in self._servers]
        yield from (Response(name, lost=True, reason="not here") for name in sorted(after) if name not in self._servers)
        if at_a_time := self._at_a_time(request, names):
            yield from self._in_threads(request, names, after, at_a_time)
            return
        new = request.function not in self._seconds and len(names) * THREADS_PAY < MAY_TAKE * self._reading(names)
        known, taken = self._seconds.setdefault(request.function, {}), 0.0
        known.clear()  # the last time counts; among threads, which wait for one another, the least
        if new and self._threads > 1 and len(names) > 1:  # nobody knows how long it takes: others wait for no longer than pays
            first = self._started().submit(self._execute_all, names[:1], request, after)
            if not wait([first], timeout=THREADS_PAY).done:
                yield from self._in_threads(request, names[1:], after, 1, first)
                return
            yield from first.result()
            taken, names = known[names[0]], names[1:]
        for done, name in enumerate(names, 1):
            yield self._execute(name, request, after[name])
            taken += known[name]
            if self._threads > 1 and len(names) - done > 1 and taken > THREADS_PAY * len(known):  # more than a look at the rows
                yield from self._in_threads(request, names[done:], after, 1)
                return

    def _at_a_time(self, request: Request, names: list[str]) -> int:
        """Sites that a thread works on before it hands over their replies; 0 where threads do not pay."""
        if self._threads == 1 or len(names) < 2:
            return 0
        if self._needs(request.function, names) > THREADS_PAY:
            return 1
        known = self._seconds.get(request.function, {})
        taken = sum(known.get(name, 0.0) for name in names)
        if request.kind not in HANDED_OVER_TOGETHER or taken < max(TOGETHER * len(names), self._threads * THREADS_PAY):
            return 0
        return max(1, math.ceil(THREADS_PAY * len(names) / taken), len(names) // (4 * self._threads))

    def _needs(self, function: str, names: list[str]) -> float:
        """Seconds that these sites need for a function, each: as they did, or to look at their rows once if that is longer."""
        known = self._seconds.get(function, {})
        taken = sum(known.get(name, 0.0) for name in names)
        return max(taken, self._reading(names)) / len(names)

    def _reading(self, names: list[str]) -> float:
        """Seconds that a look at all rows of these sites takes."""
        return sum(map(self._looks.__getitem__, names))

    def _started(self) -> ThreadPoolExecutor:
        """The threads for sites."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="eigenpact-site")
        return self._pool

    def _in_threads(
        self, request: Request, names: list[str], after: Mapping[str, int], at_a_time: int, *begun: Future[list[Response]]
    ) -> Iterator[Response]:
        """So many sites ``at_a_time`` by each thread; at most twice as many are under way, those that were ``begun`` among them,
        or waiting to be consumed."""
        pool, under_way = self._started(), deque(begun)
        try:
            for first in range(0, len(names), at_a_time):
                if len(under_way) == 2 * self._threads:
                    yield from under_way.popleft().result()
                under_way.append(pool.submit(self._execute_all, names[first : first + at_a_time], request, after))
            while under_way:
                yield from under_way.popleft().result()
        finally:
            for future in under_way:
                future.cancel()

    def _execute_all(self, names: list[str], request: Request, after: Mapping[str, int]) -> list[Response]:
        """Run a request at some sites, one after the other."""
        return [self._execute(name, request, after[name]) for name in names]

    def _execute(self, name: str, request: Request, after: int) -> Response:
        """Run a request at a site."""
        begin = time.perf_counter()
        response = self._servers[name].execute(request, after)
        taken, known = time.perf_counter() - begin, self._seconds.setdefault(request.function, {})
        known[name] = min(taken, known.get(name, taken))
        if self._forget:
            self._servers[name].forget_reply()
        return response

    def exchange(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        """Run a request at each node, then put every message into its receiver's inbox."""
        responses = list(self.call(request, after))
        inboxes: dict[str, dict[str, Arrays]] = {name: {} for name in self._received}  # what was not read by now is gone
        for response in responses:
            for receiver, arrays in response.messages.items():
                inboxes.setdefault(receiver, {})[response.site] = arrays
        for receiver, inbox in inboxes.items():
            self._servers[receiver].deliver(inbox)
        self._received = [receiver for receiver, inbox in inboxes.items() if inbox]
        yield from responses
