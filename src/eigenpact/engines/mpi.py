"""Sites on MPI ranks: rank 0 advances the program, every rank serves the sites it holds (zero or more).

Every rank calls ``fit`` with its own sites.  Rank 0 broadcasts each request - a function's name and arrays, never code - and
takes the replies one by one in sorted site-name order, so that the answer has the same bits for any number of ranks.  At the end
the outcome is broadcast and every rank has the fitted estimator.  Messages are plain bytes (see ``runtime/wire.py``); nothing is
pickled.

Messages of an exchange on a graph travel from rank to rank by a neighbourhood collective, and stay where they are between two
sites of one rank.  Rank 0 conducts such a run: it says which step comes next, learns what the ledger writes - who sent what
shapes to whom - and reads the values that nodes agree on (largest residuals and the like), because it decides when to stop.  It
sees no message between other ranks' nodes.

A local function that fails ends the run on every rank, with its reason.  A rank that fails otherwise ends the whole job
(``MPI_Abort``) after printing its traceback, because the others may be waiting for it.  Before the engine is first used only
``python -m mpi4py`` does so.
"""

from __future__ import annotations

import hashlib
import json
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError, ProgramError, SiteError
from ..numerics.blas import limited_blas
from ..runtime import Arrays, Connection, Costs, Job, Outcome, Request, Response, SiteServer, wire, with_kept
from ..runtime.consensus import Graph
from ..runtime.engine import Sites
from .devices import AUTO, check_device, in_turn, placed
from .measuring import measured_here
from .ranks import broadcast, cut, local_rank, receive, send, share, world

Servers = Mapping[str, SiteServer]
Owners = Mapping[str, tuple[int, int]]
"""Name -> (rank, n_features)."""


@dataclass(frozen=True)
class MPI:
    """Run under ``mpiexec``; every rank passes its own sites (or none) to ``fit``.

    Parameters
    ----------
    blas_threads : int, optional
        Threads inside one BLAS call, 1 by default: ranks share the cores.
    device : str, optional
        Where dense rows of numpy, or of a file, are multiplied (``ep.OnDevice``): "auto" for the GPU whose number is that of the
        rank on its machine, or a device as torch names it.
    """

    blas_threads: int | None = 1
    device: str | None = None

    min_sites = 1
    spread = True
    costs = Costs(latency=1e-3, bandwidth=1e9, flops=4.5e10, narrow=2.6e10)

    def __post_init__(self) -> None:
        check_device(self.device)

    def check_features(self, names: Sequence[str] | None) -> None:
        """Compare the feature names of all ranks; every rank raises if two of them differ."""
        told = share(world(), None if names is None else list(names))
        named = [(rank, columns) for rank, columns in enumerate(told) if columns is not None]
        for rank, columns in named[1:]:
            first, wanted = named[0]
            if columns != wanted:
                other = sorted(set(columns) ^ set(wanted))[:5]
                what = f"differ in {other}" if other else "are in another order"
                raise InputError(f"the features of ranks {first} and {rank} {what}; give all the same columns, in one order")

    def check_same(self, what: str, mine: Mapping[str, str]) -> None:
        """Compare what all ranks were given, by name and in words; every rank raises if two of them differ."""
        told = share(world(), dict(mine))
        for rank, words in enumerate(told):
            other = sorted(name for name in {*words, *told[0]} if words.get(name) != told[0].get(name))
            if other:
                first, second = told[0].get(other[0]), words.get(other[0])
                raise InputError(
                    f"the {what} of ranks 0 and {rank} differ in {', '.join(other)} ({other[0]}: {first} and {second}); "
                    "pass the same on every rank"
                )

    def everyone(self, names: Sequence[str]) -> tuple[str, ...]:
        """The sites of all ranks, given this rank's."""
        return tuple(name for told in share(world(), list(names)) for name in told)

    def execute(self, sites: Sites, job: Job, *, graph: Graph | None = None) -> Outcome:
        """Rank 0 runs the job, the others serve; the outcome is the same everywhere."""
        comm = world()
        device = in_turn(self.device, local_rank(comm) if self.device == AUTO else 0)
        servers = {name: SiteServer(name, placed(X, device), neighbours=(graph or {}).get(name, ())) for name, X in sites.items()}
        owners = _owners(comm, servers, graph)
        neighbourhood = None if graph is None else Neighbourhood(comm, owners, graph)
        try:
            with limited_blas(self.blas_threads):
                return _serve(comm, servers, neighbourhood) if comm.rank > 0 else _run(comm, servers, owners, neighbourhood, job)
        finally:
            if neighbourhood is not None:
                neighbourhood.close()


def _run(comm: Any, servers: Servers, owners: Owners, neighbourhood: Neighbourhood | None, job: Job) -> Outcome:
    """Rank 0: run the job, then tell the others how it ended."""
    connection = MPIConnection(comm, servers, owners, neighbourhood)
    try:
        outcome = job(connection)
        packed = outcome.pack()
    except BaseException as error:
        with _abort_on_failure(comm):
            connection.drain()
            broadcast(comm, wire.pack({"stop": f"{type(error).__name__}: {error}"}))
        raise
    with _abort_on_failure(comm):
        connection.drain()
        broadcast(comm, wire.pack({"stop": ""}))
        broadcast(comm, packed)
    return with_kept(outcome, servers)


class MPIConnection(Connection):
    """The ranks' sites as rank 0 sees them."""

    def __init__(self, comm: Any, servers: Servers, owners: Owners, neighbourhood: Neighbourhood | None = None) -> None:
        self._comm = comm
        self._servers = servers
        self._owners = owners
        self._neighbourhood = neighbourhood
        self._waiting: list[int] = []  # ranks whose replies are still to be received, the next one last

    def sites(self) -> tuple[str, ...]:
        """All sites of all ranks, sorted."""
        return tuple(sorted(self._owners))

    def own_sites(self) -> tuple[str, ...]:
        """The sites of rank 0."""
        return tuple(sorted(self._servers))

    def n_features(self) -> Mapping[str, int]:
        """Number of features at each site."""
        return {name: features for name, (_, features) in self._owners.items()}

    def measured(self, usual: Costs) -> Costs:
        """Rank 0 measures its arithmetic, and takes the others to be like it; ranks compute at the same time."""
        ranks = len({rank for rank, _ in self._owners.values()}) or 1
        return measured_here(usual, ranks, [server.device for server in self._servers.values()], ranks)

    def positions(self, run: str, epoch: int) -> Mapping[str, int]:  # noqa: ARG002
        """Sites live as long as the job: a new one always begins at 0."""
        return dict.fromkeys(self._owners, 0)

    def call(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        """Broadcast a request; receive the replies in sorted site order."""
        names = [name for name in sorted(after) if name in self._owners]
        yield from (Response(name, lost=True, reason="not here") for name in sorted(after) if name not in self._owners)
        self._ask(request, after, [self._owners[name][0] for name in names])
        for name in names:
            if name in self._servers:
                yield _execute(self._servers[name], request, after[name])
            else:
                facts, arrays = wire.unpack(self._next_reply())
                yield Response(name, arrays, error=facts["error"])

    def exchange(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        """Broadcast a request; the messages travel between the ranks, and only their shapes come here."""
        if self._neighbourhood is None:
            raise ProgramError("Exchange needs a graph: pass graph= to the engine's execute")
        ranks = sorted({self._owners[name][0] for name in after})
        self._ask(request, after, ranks)
        with _abort_on_failure(self._comm):
            responses = {response.site: response for response in _exchange(self._servers, self._neighbourhood, request, after)}
        while self._waiting:
            facts, _ = wire.unpack(self._next_reply())
            responses |= {name: _described(name, told) for name, told in facts.items()}
        yield from (responses[name] for name in sorted(responses))

    def drain(self) -> None:
        """Receive what is still being sent: a run may fail at one reply, and the ranks of the others must get on."""
        while self._waiting:
            self._next_reply()

    def _ask(self, request: Request, after: Mapping[str, int], ranks: Iterable[int]) -> None:
        self.drain()
        fields = ("run", "epoch", "step", "kind", "function", "digest")
        header = {"request": {name: getattr(request, name) for name in fields}, "after": dict(after)}
        with _abort_on_failure(self._comm):
            broadcast(self._comm, wire.pack(header, request.args))
        self._waiting = [rank for rank in ranks if rank > 0][::-1]

    def _next_reply(self) -> memoryview:
        with _abort_on_failure(self._comm):
            return receive(self._comm, self._waiting.pop())


class Neighbourhood:
    """The ranks whose sites are neighbours of this rank's sites, and the way to them.

    Parameters
    ----------
    comm : communicator of all ranks, each of which makes its own neighbourhood at the same time
    owners : name -> (rank, n_features)
    graph : node -> neighbours
        Edges to unknown nodes are left to the driver to refuse.
    """

    def __init__(self, comm: Any, owners: Owners, graph: Graph) -> None:
        self._ranks = {name: rank for name, (rank, _) in owners.items()}
        known = ((a, b) for a, neighbours in graph.items() for b in neighbours if a in owners and b in owners)
        edges = {(self._ranks[a], self._ranks[b]) for a, b in known}
        self._here: int = comm.rank
        self._sources = sorted(a for a, b in edges if b == self._here != a)
        self._destinations = sorted(b for a, b in edges if a == self._here != b)
        self._comm = comm.Create_dist_graph_adjacent(self._sources, self._destinations, reorder=False)

    def close(self) -> None:
        """Give the communicator back."""
        self._comm.Free()

    def exchange(self, responses: Iterable[Response]) -> dict[str, dict[str, Arrays]]:
        """Carry the messages of this rank's sites to their receivers; give receiver -> sender -> arrays for the sites here."""
        parcels = {rank: _Parcel() for rank in (*self._destinations, self._here)}
        for response in responses:
            for receiver, arrays in response.messages.items():
                parcels[self._ranks[receiver]].put(response.site, receiver, arrays)
        mine = parcels.pop(self._here)
        letters = [*mine.letters(), *(letter for data in self._swap(parcels) for letter in _Parcel.open(data))]
        inboxes: dict[str, dict[str, Arrays]] = {}
        for sender, receiver, arrays in sorted(letters, key=lambda letter: letter[:2]):  # in one order on any number of ranks
            inboxes.setdefault(receiver, {})[sender] = arrays
        return inboxes

    def _swap(self, parcels: Mapping[int, _Parcel]) -> list[memoryview]:
        """Send a parcel to every rank with neighbours, and receive theirs."""
        packed = [parcels[rank].pack() for rank in self._destinations]
        out_sizes = np.array([len(data) for data in packed], dtype=np.int64)
        in_sizes = np.zeros(len(self._sources), dtype=np.int64)
        self._comm.Neighbor_alltoall(out_sizes, in_sizes)
        received = np.empty(int(in_sizes.sum()), dtype=np.uint8)
        sent = np.frombuffer(b"".join(packed), dtype=np.uint8)
        self._comm.Neighbor_alltoallv([sent, out_sizes.tolist()], [received, in_sizes.tolist()])
        return cut(received, in_sizes)


class _Parcel:
    """Messages from the sites of one rank to the sites of one other; arrays that go to several sites there travel once."""

    def __init__(self) -> None:
        self._contents: dict[tuple[int, ...], tuple[Arrays, list[tuple[str, str]]]] = {}

    def put(self, sender: str, receiver: str, arrays: Arrays) -> None:
        """Add a message."""
        _, addresses = self._contents.setdefault(tuple(id(a) for a in arrays), (arrays, []))
        addresses.append((sender, receiver))

    def letters(self) -> Iterator[tuple[str, str, Arrays]]:
        """Sender, receiver and arrays of each message."""
        for arrays, addresses in self._contents.values():
            yield from ((sender, receiver, arrays) for sender, receiver in addresses)

    def pack(self) -> bytearray:
        """Bytes to travel."""
        letters = [[len(arrays), addresses] for arrays, addresses in self._contents.values()]
        return wire.pack({"letters": letters}, [a for arrays, _ in self._contents.values() for a in arrays])

    @staticmethod
    def open(data: memoryview) -> Iterator[tuple[str, str, Arrays]]:
        """Inverse of :meth:`pack`: what :meth:`letters` gave where it came from."""
        header, arrays = wire.unpack(data)
        at = 0
        for length, addresses in header["letters"]:
            yield from ((sender, receiver, arrays[at : at + length]) for sender, receiver in addresses)
            at += length


def _serve(comm: Any, servers: Servers, neighbourhood: Neighbourhood | None) -> Outcome:
    """Answer requests for the sites of this rank until rank 0 says stop."""
    with _abort_on_failure(comm):
        while True:
            header, args = wire.unpack(broadcast(comm))
            if "stop" in header:
                break
            request, after = Request(args=args, **header["request"]), header["after"]
            here = sorted(set(after) & set(servers))
            if request.kind == "exchange" and neighbourhood is not None:
                responses = _exchange(servers, neighbourhood, request, after)
                if here:
                    send(comm, wire.pack({response.site: _description(response) for response in responses}))
                continue
            for name in here:
                response = _execute(servers[name], request, after[name])
                send(comm, wire.pack({"error": response.error}, response.arrays))
        packed = None if header["stop"] else broadcast(comm)
    if packed is None:
        raise SiteError(f"the run was stopped by rank 0: {header['stop']}")
    return with_kept(Outcome.unpack(packed), servers)


def _exchange(servers: Servers, neighbourhood: Neighbourhood, request: Request, after: Mapping[str, int]) -> list[Response]:
    """Run a request at the sites of this rank and deliver the messages; every rank takes part, also one without sites."""
    responses = [_execute(servers[name], request, after[name]) for name in sorted(set(after) & set(servers))]
    inboxes = neighbourhood.exchange(responses)
    for name, server in servers.items():
        server.deliver(inboxes.get(name, {}))
    return responses


def _description(response: Response) -> dict[str, Any]:
    """What rank 0 is told of a site's messages: dtypes and shapes."""
    messages = {name: [[a.dtype.name, a.shape] for a in arrays] for name, arrays in response.messages.items()}
    return {"error": response.error, "messages": messages}


def _described(name: str, told: Mapping[str, Any]) -> Response:
    """A response with arrays of the right dtypes and shapes, all of one zero: enough for checks and ledger."""
    messages = {
        neighbour: tuple(np.broadcast_to(np.zeros((), dtype), shape) for dtype, shape in described)
        for neighbour, described in told["messages"].items()
    }
    return Response(name, messages=messages, error=told["error"])


def _execute(server: SiteServer, request: Request, after: int) -> Response:
    """Run a request; a failure travels to rank 0 as text, where it ends the run on every rank."""
    try:
        return server.execute(request, after)
    except Exception as error:  # reported, not swallowed: rank 0 raises SiteError with this text
        return Response(server.name, error="".join(traceback.format_exception(error)))


@contextmanager
def _abort_on_failure(comm: Any) -> Iterator[None]:
    """End the job if this rank fails where the others would wait for it for ever."""
    try:
        yield
    except BaseException:
        if comm.size == 1:
            raise
        traceback.print_exc()
        print(f"rank {comm.rank} failed as told above; the whole job ends", file=sys.stderr, flush=True)
        comm.Abort(1)
        raise


def _owners(comm: Any, servers: Servers, graph: Graph | None) -> dict[str, tuple[int, int]]:
    """Tell every rank which rank holds which site, and how many features it has; all must have been given the same graph."""
    edges = json.dumps(None if graph is None else {name: list(graph[name]) for name in sorted(graph)})
    mine = {
        "sites": {name: server.n_features for name, server in servers.items()},
        "graph": hashlib.blake2b(edges.encode(), digest_size=16).hexdigest(),
    }
    owners: dict[str, tuple[int, int]] = {}
    graphs: list[str] = []
    for rank, held in enumerate(share(comm, mine)):
        graphs.append(held["graph"])
        if graphs[rank] != graphs[0]:
            raise InputError(f"rank {rank} was given another graph than rank 0; pass the same graph on every rank")
        for name, features in held["sites"].items():
            if name in owners:
                raise InputError(f"site {name!r} is on rank {owners[name][0]} and on rank {rank}; name the sites apart")
            owners[name] = (rank, features)
    if not owners:
        raise InputError("no rank holds a site; pass sites to fit on at least one rank")
    return owners
