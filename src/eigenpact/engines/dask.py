"""Sites on the workers of a Dask cluster: each is an actor pinned to one worker, the coordinator is the client's process.

Rows in this process are scattered, each site's to one worker.  Of a dask array or DataFrame every worker's own blocks become one
site, put together and checked there; no row comes to the client.  Requests and replies are the bytes of ``runtime/mail.py``.
A worker that dies is noticed from the scheduler's list of workers within about a second, not from a connection that times out.
"""

from __future__ import annotations

import asyncio
import importlib
import queue
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import KW_ONLY, dataclass
from itertools import cycle
from typing import Any, Self

import numpy as np
import scipy.sparse

from ..errors import EigenpactError, InputError, SiteError
from ..numerics.blas import limited_blas
from ..runtime import Costs, Graph, Job, MailConnection, Outcome, SiteEndpoint, Sites, SiteServer
from .devices import AUTO, by_worker, check_device, placed, visible
from .extras import bring, check_limits, refuse_graph

LOOK_AFTER = 0.5
"""Seconds without a reply after which the scheduler is asked which workers are left."""

REACH_WITHIN = 2.0
"""Seconds a worker may take to greet this process; else messages go through the scheduler."""


@dataclass(frozen=True)
class Dask:
    """Run sites on the workers of a Dask cluster.

    Parameters
    ----------
    client : distributed.Client, optional
        A synchronous client.  It is not pickled, and stays open.
    address : str, optional
        A scheduler to connect to for the length of a run, such as "tcp://10.0.0.5:8786" or "tls://..." (certificates from Dask's
        configuration).  With neither, the current client is used.
    min_sites : int
        A run goes on as long as this many sites are left.
    round_timeout : float
        Seconds a site may take to answer before the run goes on without it.
    blas_threads : int, optional
        Threads inside one BLAS call, 1 by default: workers share the cores.  None leaves BLAS as it is.
    device : str, optional
        Where workers multiply dense rows (``ep.OnDevice``): "auto" for the GPU that the cluster gave each of them (dask-cuda), or
        those of its machine in turn; or a device as torch names it.
    """

    client: Any = None
    address: str | None = None
    _: KW_ONLY
    min_sites: int = 1
    round_timeout: float = 60.0
    blas_threads: int | None = 1
    device: str | None = None

    spread = False
    costs = Costs(latency=1e-2, bandwidth=3e8, flops=2e10)

    def __post_init__(self) -> None:
        check_limits(self, counts=("blas_threads", "min_sites"), seconds=("round_timeout",))
        check_device(self.device)
        if self.client is not None and self.address is not None:
            raise InputError(f"give a client or address={self.address!r}, not both")
        if self.client is not None and not hasattr(self.client, "scheduler_info"):
            raise InputError(f"client={self.client!r} is not a Dask client; for a scheduler's address pass address=")

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:  # scikit-learn clones by copying; a client is shared
        return self

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"client": None}

    def adopt(self, X: Any, check: Callable[[str, Any], Any]) -> Mapping[str, Any] | None:
        """Each worker's blocks of a dask array or DataFrame as a site; None if X is something else."""
        if not type(X).__module__.startswith("dask"):
            return None
        client = self._connect()
        try:
            with client.as_current():
                return _adopt(client, X, check)
        except BaseException:
            self._disconnect(client)
            raise

    def execute(self, sites: Sites, job: Job, *, graph: Graph | None = None) -> Outcome:
        """Put the sites on workers and run the job here."""
        refuse_graph("dask", graph)
        if not sites:
            raise InputError("no sites were given; pass rows, or a dask array or DataFrame, to fit")
        adopted = next((part.client for part in sites.values() if isinstance(part, WorkerRows)), None)
        client = adopted or self._connect()
        try:
            with _placed(client, sites, self.blas_threads, self.device) as actors, closing(DaskPost(client, actors)) as post:
                return job(MailConnection(post, actors, round_timeout=self.round_timeout))
        finally:
            self._disconnect(client)

    def _connect(self) -> Any:
        distributed = bring("dask", "distributed")
        client = self.client
        if self.address is not None:
            try:
                client = distributed.Client(self.address, set_as_default=False)
            except (OSError, ValueError) as error:
                raise InputError(f"no Dask scheduler answers at address={self.address!r}: {error}") from error
        elif client is None:
            try:
                client = distributed.get_client()
            except ValueError as error:
                raise InputError(
                    "engine 'dask' needs a cluster and there is no current client; pass ep.engines.Dask(client) or "
                    "ep.engines.Dask(address='tcp://...')"
                ) from error
        if client.asynchronous:
            raise InputError("the Dask client is asynchronous; fit waits for its answers, so pass Client(asynchronous=False)")
        if client.status != "running":
            raise InputError(f"the Dask client is {client.status}; pass one that is connected")
        return client

    def _disconnect(self, client: Any) -> None:
        """Close a client that was opened for this run."""
        if self.address is not None:
            client.close()


@dataclass(frozen=True)
class WorkerRows:
    """A site's rows that lie at a worker already.

    ``header`` is an empty table with the site's columns; ``shape`` is that of the rows (n, n_features).
    """

    client: Any
    worker: str
    future: Any
    shape: tuple[int, int]
    header: Any


class SiteActor:
    """A site at its worker: bytes in, bytes out."""

    def __init__(self, name: str, X: Any, blas_threads: int | None, device: str | None = None) -> None:
        self._endpoint = SiteEndpoint(SiteServer(name, placed(X, device)))
        self._blas_threads = blas_threads

    def handle(self, data: bytes) -> bytes:
        """Answer one message."""
        with limited_blas(self._blas_threads):
            return self._endpoint.handle(data)


class DaskPost:
    """Messages to actors and back; replies come in on the client's event loop and wait in a queue."""

    def __init__(self, client: Any, actors: Mapping[str, tuple[str, str]]) -> None:
        self._client = client
        self._loop = client.loop.asyncio_loop
        self._to_serialize = importlib.import_module("distributed.protocol").to_serialize
        self._actors = actors  # name -> (worker's address, actor's key)
        self._arrived: queue.SimpleQueue[tuple[str, bytes | Exception | None]] = queue.SimpleQueue()
        self._waiting: dict[Future[None], str] = {}
        self._look: Future[None] | None = None
        reach = client.direct_to_workers is not False
        self._direct = reach and asyncio.run_coroutine_threadsafe(self._reach_all(), self._loop).result()

    def now(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    def send(self, site: str, data: bytes) -> None:
        """Call the actor, without waiting for it."""
        task = asyncio.run_coroutine_threadsafe(self._ask(site, data), self._loop)
        self._waiting[task] = site
        task.add_done_callback(lambda done: self._waiting.pop(done, None))

    def receive(self, until: float) -> tuple[str, bytes | None] | None:
        """The next reply; now and then, while none comes, see whether the workers are still there."""
        while True:
            left = until - self.now()
            try:
                site, reply = self._arrived.get(timeout=max(0.0, min(left, LOOK_AFTER)))
            except queue.Empty:
                if left <= LOOK_AFTER:
                    return None
                if self._look is None or self._look.done():
                    self._look = asyncio.run_coroutine_threadsafe(self._look_for_the_dead(), self._loop)
                continue
            if isinstance(reply, Exception):
                raise reply
            return site, reply

    def close(self) -> None:
        """Forget replies that have not come."""
        for task in [*self._waiting, *filter(None, [self._look])]:
            task.cancel()

    async def _ask(self, site: str, data: bytes) -> None:
        reply: bytes | Exception | None
        try:
            reply = await self._call_actor(*self._actors[site], data)
        except (OSError, KeyError):  # the worker is gone, or began anew without the actor
            reply = None
        except Exception as error:  # raised again by receive, where the run can see it
            reply = error
        self._arrived.put((site, reply))

    async def _call_actor(self, worker: str, key: str, data: bytes) -> bytes:
        """As ``actor.handle(data)``, which would keep every request in a reference cycle until the garbage is collected."""
        call = {"actor": key, "function": "handle", "args": [self._to_serialize(data)], "kwargs": {}}
        if self._direct:
            answer = await self._client.rpc(worker).actor_execute(**call)
        else:
            answer = await self._client.scheduler.proxy(worker=worker, msg=call | {"op": "actor_execute"})
        if answer["status"] == "error":
            raise SiteError(f"a site's actor at worker {worker} failed: {answer['exception']!r}")
        return bytes(answer["result"])

    async def _reach_all(self) -> bool:
        """Whether this process can connect to every worker, without the scheduler in between."""
        workers = {worker for worker, _ in self._actors.values()}
        try:
            await asyncio.wait_for(asyncio.gather(*(self._client.rpc(worker).identity() for worker in workers)), REACH_WITHIN)
        except (OSError, TimeoutError):
            return False
        return True

    async def _look_for_the_dead(self) -> None:
        alive = set(await self._client.nthreads())
        for site in set(self._waiting.values()):
            if self._actors[site][0] not in alive:
                self._arrived.put((site, None))


@contextmanager
def _placed(
    client: Any, sites: Mapping[str, Any], blas_threads: int | None, device: str | None = None
) -> Iterator[dict[str, tuple[str, str]]]:
    """Actors for the sites, name -> (worker's address, actor's key), as long as the context lasts."""
    named = _workers(client)
    workers, devices = cycle(named), _devices(client, named, device)
    placed: dict[str, tuple[str, Any]] = {}
    for name, part in sites.items():
        if isinstance(part, WorkerRows):
            worker, rows = part.worker, part.future
        else:
            worker = next(workers)
            rows = client.scatter(part, workers=[worker], hash=False)
        placed[name] = worker, _at(client, worker, SiteActor, name, rows, blas_threads, devices.get(worker), actor=True)
        del rows  # the actor has them
    try:
        for name, (worker, future) in placed.items():
            _made(client, name, worker, future)
        for part in sites.values():
            if isinstance(part, WorkerRows):
                part.future.release()  # the actor has them; Dask need not save them from a worker that dies
        yield {name: (worker, future.key) for name, (worker, future) in placed.items()}
    finally:
        for _, future in placed.values():
            future.release()


def _at(client: Any, worker: str, function: Any, *args: Any, **options: Any) -> Any:
    """A future of function(*args) at that worker and at no other."""
    return client.submit(function, *args, workers=[worker], allow_other_workers=False, pure=False, **options)


def _made(client: Any, name: str, worker: str, future: Any) -> Any:
    """What a future holds; waits as long as its worker is there."""
    with client.as_current():
        while True:
            try:
                return future.result(timeout=LOOK_AFTER)
            except EigenpactError:
                raise
            except TimeoutError as error:
                if worker not in client.nthreads():
                    raise SiteError(f"site {name!r} could not be made: worker {worker} is gone; fit again") from error
            except Exception as error:
                raise SiteError(f"site {name!r} could not be made at worker {worker}: {type(error).__name__}: {error}") from error


def _workers(client: Any) -> dict[str, str]:
    """Addresses of the workers and names for people, in order of the names.

    The scheduler is asked: what the client remembers of it is replaced every two seconds by an answer without workers.
    """
    told = client.sync(client.scheduler.identity)["workers"]
    named = {address: _readable(info["name"]) for address, info in told.items()}
    if not named:
        raise InputError("the Dask cluster has no workers; start some, or wait with client.wait_for_workers(n)")
    return dict(sorted(named.items(), key=lambda item: (len(item[1]), item[1])))


def _devices(client: Any, workers: Iterable[str], device: str | None) -> dict[str, str | None]:
    """Worker's address -> the device for its rows."""
    if device != AUTO:
        return dict.fromkeys(workers, device)
    seen = client.run(visible)
    hosts = {worker: worker.rpartition("://")[2].rpartition(":")[0] for worker in workers}
    return by_worker(device, {worker: (hosts[worker], seen.get(worker, ())) for worker in workers})


def _readable(name: Any) -> str:
    """A worker's name: numbers as "worker-0", addresses without their protocol.

    >>> _readable(0), _readable("gpu-3"), _readable("tcp://10.0.0.5:4001")
    ('worker-0', 'gpu-3', '10.0.0.5:4001')
    """
    return f"worker-{name}" if isinstance(name, int) or str(name).isdigit() else str(name).rpartition("://")[2]


# -- dask arrays and DataFrames -----------------------------------------------------------------


def _adopt(client: Any, X: Any, check: Callable[[str, Any], Any]) -> dict[str, WorkerRows]:
    blocks, header = _blocks(client, X)
    names = _workers(client)
    local = _by_worker(client, blocks, names)
    rows = {worker: _at(client, worker, _join, names[worker], parts, check) for worker, parts in local.items()}
    shapes = {worker: _at(client, worker, _shape, future) for worker, future in rows.items()}
    found = {worker: _made(client, names[worker], worker, future) for worker, future in shapes.items()}
    return {
        names[worker]: WorkerRows(client, worker, rows[worker], found[worker], header)
        for worker in sorted(rows, key=list(names).index)
        if found[worker][0] > 0
    }


def _blocks(client: Any, X: Any) -> tuple[list[Any], Any]:
    """Futures of the blocks of X, in order, each with all columns; and an empty table with the columns."""
    distributed = bring("dask", "distributed")
    kind = f"a dask {type(X).__name__}"
    if getattr(X, "ndim", 0) != 2 or not (hasattr(X, "chunks") or hasattr(X, "partitions")):
        raise InputError(
            f"{kind} with {getattr(X, 'ndim', 'no')} dimensions is not a table; give a dask array or DataFrame of rows"
        )
    if hasattr(X, "columns"):
        header = X._meta
    else:
        if any(np.isnan(size) for sizes in X.chunks for size in sizes):
            raise InputError("the chunk sizes of the dask array are not known; call X.compute_chunk_sizes() first")
        if 0 in X.shape:
            raise InputError(f"the dask array has shape {X.shape}; give at least one row and one column")
        X = X.rechunk({1: -1})
        header = np.empty((0, X.shape[1]))
    blocks = sorted(distributed.futures_of(client.persist(X)), key=lambda future: future.key[1:])  # (name, index of rows, ...)
    distributed.wait(blocks)
    for block in blocks:
        if block.status != "finished":
            raise InputError(f"a block of {kind} could not be computed: {block.exception()!r}") from block.exception()
    return blocks, header


def _by_worker(client: Any, blocks: list[Any], workers: Mapping[str, str]) -> dict[str, list[Any]]:
    """Blocks by the worker that holds them, in order; of several holders, the one with the fewest so far."""
    holders = client.who_has(blocks)
    local: dict[str, list[Any]] = {}
    for block in blocks:
        here = [worker for worker in holders[block.key] if worker in workers]
        if not here:
            raise SiteError(f"no worker holds block {block.key} any more; compute the blocks again")
        local.setdefault(min(here, key=lambda worker: (len(local.get(worker, ())), worker)), []).append(block)
    return local


def _join(name: str, blocks: list[Any], check: Callable[[str, Any], Any]) -> Any:
    """A worker's blocks as one table, checked; runs at the worker."""
    if len(blocks) > 1 and sum(block.shape[0] for block in blocks) > 0:
        filled = [block for block in blocks if block.shape[0] > 0]
        if hasattr(blocks[0], "columns"):
            table = importlib.import_module("pandas").concat(filled)
        else:
            table = scipy.sparse.vstack(filled) if scipy.sparse.issparse(blocks[0]) else np.concatenate(filled)
    else:
        table = blocks[0]
    return check(name, table) if table.shape[0] > 0 else table


def _shape(rows: Any) -> tuple[int, int]:
    return int(rows.shape[0]), int(rows.shape[1])
