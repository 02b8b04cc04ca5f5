"""All sites in this process: for trying things out, for tests, and for one machine with many files.

Sites run in threads where that pays (their time in BLAS is long enough to share the cores), and one after the other where it
does not; a site that is alone shares its rows among them.  BLAS itself runs one thread per call when there are several sites, so
that cores are not fought over and the result does not depend on how many there are, and when matrices are small.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

from ..errors import InputError
from ..numerics.blas import limited_blas
from ..numerics.parts import threads_for_rows
from ..runtime import (
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
from .extras import check_limits
from .threads import ThreadPost

THREADS_PAY = 1e-3
"""Seconds a site must spend in a local function before threads over sites are worth their hand-over."""

WIDE = 2000
"""Features from which on the coordinator's matrices are large enough for more than one thread in BLAS."""

READ_RATE = 1e9
"""Entries of its rows that a site looks at in a second, at most: what its first answer is taken to need."""


@dataclass(frozen=True)
class InProcess:
    """Run every site in this process.

    Parameters
    ----------
    threads : int, optional
        Sites, or parts of the rows of a site that is alone, that may be worked on at the same time; the number of cores by
        default, 1 for never more than one.
    blas_threads : int, optional
        Threads inside one BLAS call.  By default 1; with one site of 2000 features or more BLAS is left as it is, but where rows
        are shared among threads.
    min_sites : int
        A run goes on as long as this many sites are left.
    round_timeout : float, optional
        Seconds a site may take to answer before the run goes on without it.  With it every site has a thread of its own and is
        spoken to by message, as sites elsewhere are; without it a site that hangs is waited for.
    """

    threads: int | None = None
    blas_threads: int | None = None
    min_sites: int = 1
    round_timeout: float | None = None

    spread = False
    costs = Costs(latency=1e-4, bandwidth=5e9, flops=4.5e10)

    def __post_init__(self) -> None:
        check_limits(self, counts=("threads", "blas_threads", "min_sites"), seconds=("round_timeout",))

    def execute(self, sites: Sites, job: Job, *, graph: Graph | None = None) -> Outcome:
        """Serve the sites and run the job, here."""
        if graph is not None and self.round_timeout is not None:
            raise InputError(
                "round_timeout is for runs that can go on without a site; graph programs need every node: leave it out"
            )
        servers = {name: SiteServer(name, X, neighbours=(graph or {}).get(name, ())) for name, X in sites.items()}
        threads = self.threads or os.cpu_count() or 1
        alone, wide = len(servers) == 1, any(server.n_features >= WIDE for server in servers.values())
        blas = self.blas_threads if self.blas_threads is not None or (alone and wide) else 1
        with limited_blas(blas), threads_for_rows(threads if alone else 1):
            if self.round_timeout is not None:
                with closing(ThreadPost({name: SiteEndpoint(server) for name, server in servers.items()})) as post:
                    outcome = job(MailConnection(post, servers, round_timeout=self.round_timeout, own_sites=servers))
                return with_kept(outcome, servers)
            with InProcessConnection(servers, threads) as connection:
                return with_kept(job(connection), servers)


class InProcessConnection(Connection):
    """Site servers called directly, or through a pool of threads."""

    def __init__(self, servers: Mapping[str, SiteServer], threads: int) -> None:
        self._servers = dict(servers)
        self._threads = min(threads, len(self._servers))
        self._pool: ThreadPoolExecutor | None = None
        self._seconds: dict[str, float] = {}  # how long a site took for each function, when last run alone

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

    def positions(self, run: str, epoch: int) -> Mapping[str, int]:
        """The last step each site executed."""
        return {name: server.position(run, epoch) for name, server in self._servers.items()}

    def call(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        """Run a request at each named site, in sorted order."""
        names = [name for name in sorted(after) if name in self._servers]
        yield from (Response(name, lost=True, reason="not here") for name in sorted(after) if name not in self._servers)
        if self._threads > 1 and len(names) > 1 and self._needs(request.function, names[0]) > THREADS_PAY:
            yield from self._in_threads(request, names, after)
            return
        for name in names:
            begin = time.perf_counter()
            response = self._servers[name].execute(request, after[name])
            self._seconds[request.function] = time.perf_counter() - begin
            yield response

    def _needs(self, function: str, name: str) -> float:
        """Seconds that a site needs for a function: as it needed before, or else to look at its rows once."""
        return self._seconds.get(function, self._servers[name].n_entries / READ_RATE)

    def _in_threads(self, request: Request, names: list[str], after: Mapping[str, int]) -> Iterator[Response]:
        """At most two replies per thread are under way or waiting to be consumed."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="eigenpact-site")
        under_way: deque[Future[Response]] = deque()
        try:
            for name in names:
                if len(under_way) == 2 * self._threads:
                    yield under_way.popleft().result()
                under_way.append(self._pool.submit(self._servers[name].execute, request, after[name]))
            while under_way:
                yield under_way.popleft().result()
        finally:
            for future in under_way:
                future.cancel()

    def exchange(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        """Run a request at each node, then put every message into its receiver's inbox."""
        responses = list(self.call(request, after))
        for receiver, server in self._servers.items():
            server.deliver({r.site: r.messages[receiver] for r in responses if receiver in r.messages})
        yield from responses
