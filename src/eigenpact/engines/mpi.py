"""Sites on MPI ranks: rank 0 advances the program, every rank serves the sites it holds (zero or more).

Every rank calls ``fit`` with its own sites.  Rank 0 broadcasts each request - a function's name and arrays, never code - and
takes the replies one by one in sorted site-name order, so that the answer has the same bits for any number of ranks.  At the end
the outcome is broadcast and every rank has the fitted estimator.  Messages are plain bytes (see ``runtime/wire.py``); nothing is
pickled.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..errors import InputError, MissingExtraError, ProgramError, SiteFailure
from ..runtime import Connection, Costs, Job, Outcome, Request, Response, SiteServer, Summation, wire
from .blas import limited_blas


@dataclass(frozen=True)
class MPI:
    """Run under ``mpiexec``; every rank passes its own sites (or none) to ``fit``.

    Parameters
    ----------
    blas_threads : int, optional
        Threads inside one BLAS call, 1 by default: ranks share the cores.
    """

    blas_threads: int | None = 1

    min_sites = 1
    spread = True
    costs = Costs(latency=1e-3, bandwidth=1e9, flops=2e10)

    def execute(
        self,
        sites: Mapping[str, Any],
        job: Job,
        *,
        graph: Mapping[str, tuple[str, ...]] | None = None,
        summation: Summation | None = None,
    ) -> Outcome:
        """Rank 0 runs the job, the others serve; the outcome is the same everywhere."""
        if graph is not None:
            raise ProgramError("graph programs do not run on this engine yet; use engine='inprocess'")
        comm = world()
        servers = {name: SiteServer(name, X, summation=summation) for name, X in sites.items()}
        owners = _owners(comm, servers)
        with limited_blas(self.blas_threads):
            if comm.rank > 0:
                return _serve(comm, servers)
            connection = MPIConnection(comm, servers, owners)
            try:
                outcome = job(connection)
            except BaseException as error:
                _broadcast(comm, wire.pack({"stop": f"{type(error).__name__}: {error}"}))
                raise
            _broadcast(comm, wire.pack({"stop": ""}))
            _broadcast(comm, outcome.pack())
            return outcome


class MPIConnection(Connection):
    """The ranks' sites as rank 0 sees them."""

    def __init__(self, comm: Any, servers: Mapping[str, SiteServer], owners: Mapping[str, tuple[int, int]]) -> None:
        self._comm = comm
        self._servers = servers
        self._owners = owners  # name -> (rank, n_features)

    def sites(self) -> tuple[str, ...]:
        """All sites of all ranks, sorted."""
        return tuple(sorted(self._owners))

    def own_sites(self) -> tuple[str, ...]:
        """The sites of rank 0."""
        return tuple(sorted(self._servers))

    def n_features(self) -> Mapping[str, int]:
        """Number of features at each site."""
        return {name: features for name, (_, features) in self._owners.items()}

    def positions(self, run: str, epoch: int) -> Mapping[str, int]:  # noqa: ARG002
        """Sites live as long as the job: a new one always begins at 0."""
        return dict.fromkeys(self._owners, 0)

    def call(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        """Broadcast a request; receive the replies in sorted site order."""
        header = {"request": {k: v for k, v in asdict(request).items() if k != "args"}, "after": dict(after)}
        _broadcast(self._comm, wire.pack(header, request.args))
        waiting = sorted(after, reverse=True)
        try:
            while waiting:
                name = waiting.pop()
                rank = self._owners[name][0]
                if rank == 0:
                    yield _execute(self._servers[name], request, after[name])
                else:
                    facts, arrays = wire.unpack(_receive(self._comm, rank))
                    yield Response(name, arrays, error=facts["error"])
        finally:  # the run may fail at one reply; the other ranks are still sending theirs
            for name in reversed(waiting):
                if self._owners[name][0] != 0:
                    _receive(self._comm, self._owners[name][0])

    def exchange(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:  # noqa: ARG002
        """Not offered by this engine yet."""
        raise ProgramError("graph programs do not run on this engine yet; use engine='inprocess'")


def _serve(comm: Any, servers: Mapping[str, SiteServer]) -> Outcome:
    """Answer requests for the sites of this rank until rank 0 says stop."""
    while True:
        header, args = wire.unpack(_broadcast(comm))
        if "stop" in header:
            if header["stop"]:
                raise SiteFailure(f"the run was stopped by rank 0: {header['stop']}")
            return Outcome.unpack(_broadcast(comm))
        request = Request(args=args, **header["request"])
        for name in sorted(set(header["after"]) & set(servers)):
            response = _execute(servers[name], request, header["after"][name])
            _send(comm, wire.pack({"error": response.error}, response.arrays))


def _execute(server: SiteServer, request: Request, after: int) -> Response:
    """Run a request; a failure travels to rank 0 as text, where it ends the run on every rank."""
    try:
        return server.execute(request, after)
    except Exception as error:  # reported, not swallowed: rank 0 raises SiteFailure with this text
        return Response(server.name, error="".join(traceback.format_exception(error)))


def _owners(comm: Any, servers: Mapping[str, SiteServer]) -> dict[str, tuple[int, int]]:
    """Tell every rank which rank holds which site, and how many features it has."""
    mine = wire.pack({name: server.n_features for name, server in servers.items()})
    owners: dict[str, tuple[int, int]] = {}
    for rank, packed in enumerate(all_gather(comm, mine)):
        held, _ = wire.unpack(packed)
        for name, features in held.items():
            if name in owners:
                raise InputError(f"site {name!r} is on rank {owners[name][0]} and on rank {rank}; name the sites apart")
            owners[name] = (rank, features)
    if not owners:
        raise InputError("no rank holds a site; pass sites to fit on at least one rank")
    return owners


def all_gather(comm: Any, data: bytes | bytearray) -> list[memoryview]:
    """Every rank's bytes, by rank, on every rank."""
    sizes = np.zeros(comm.size, dtype=np.int64)
    comm.Allgather(np.array([len(data)], dtype=np.int64), sizes)
    packed = np.zeros(int(sizes.sum()), dtype=np.uint8)
    comm.Allgatherv(np.frombuffer(data, dtype=np.uint8), [packed, sizes.tolist()])
    ends = np.cumsum(sizes)
    return [packed[end - size : end].data for size, end in zip(sizes, ends, strict=True)]


def _broadcast(comm: Any, data: bytearray | None = None) -> bytearray:
    """Send bytes from rank 0 to all; other ranks pass nothing and receive."""
    size = np.array([len(data or b"")], dtype=np.int64)
    comm.Bcast(size, root=0)
    buffer = data if data is not None else bytearray(int(size[0]))
    comm.Bcast(np.frombuffer(buffer, dtype=np.uint8), root=0)
    return buffer


def _send(comm: Any, data: bytearray) -> None:
    comm.Send(np.frombuffer(data, dtype=np.uint8), dest=0)


def _receive(comm: Any, rank: int) -> bytearray:
    status = importlib.import_module("mpi4py.MPI").Status()
    comm.Probe(source=rank, status=status)
    buffer = bytearray(status.Get_count())
    comm.Recv(np.frombuffer(buffer, dtype=np.uint8), source=rank)
    return buffer


def world() -> Any:
    """The communicator of all ranks."""
    try:
        return importlib.import_module("mpi4py.MPI").COMM_WORLD
    except ImportError as error:
        raise MissingExtraError(f"engine 'mpi' needs mpi4py and MPI ({error}): pip install 'eigenpact[mpi]'") from error
