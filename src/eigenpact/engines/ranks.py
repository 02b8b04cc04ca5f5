"""Bytes between MPI ranks, and the end of the whole job when one rank fails."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .extras import bring


class Alone:
    """The communicator of a process without MPI."""

    rank, size = 0, 1


def all_gather(comm: Any, data: bytes | bytearray) -> list[memoryview]:
    """Every rank's bytes, by rank, on every rank."""
    sizes = np.zeros(comm.size, dtype=np.int64)
    comm.Allgather(np.array([len(data)], dtype=np.int64), sizes)
    packed = np.empty(int(sizes.sum()), dtype=np.uint8)
    comm.Allgatherv(np.frombuffer(data, dtype=np.uint8), [packed, sizes.tolist()])
    return cut(packed, sizes)


def share(comm: Any, facts: Any) -> list[Any]:
    """Every rank's facts, as JSON can hold them, by rank, on every rank."""
    packed = json.dumps(facts).encode()
    return [json.loads(bytes(told)) for told in ([packed] if comm.size == 1 else all_gather(comm, packed))]


def cut(data: np.ndarray[Any, Any], sizes: np.ndarray[Any, Any]) -> list[memoryview]:
    """Consecutive pieces of these sizes."""
    return [data[end - size : end].data for size, end in zip(sizes, np.cumsum(sizes), strict=True)]


def local_rank(comm: Any) -> int:
    """The number of this rank among those of its machine; all ranks ask together."""
    if comm.size == 1:
        return 0
    here = comm.Split_type(bring("mpi", "mpi4py.MPI").COMM_TYPE_SHARED)
    rank = int(here.rank)
    here.Free()
    return rank


def broadcast(comm: Any, data: bytearray | None = None) -> memoryview:
    """Send bytes from rank 0 to all; other ranks pass nothing and receive."""
    size = np.array([len(data or b"")], dtype=np.int64)
    comm.Bcast(size, root=0)
    buffer = np.empty(int(size[0]), dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
    comm.Bcast(buffer, root=0)
    return buffer.data


def send(comm: Any, data: bytearray) -> None:
    """Send bytes to rank 0."""
    comm.Send(np.frombuffer(data, dtype=np.uint8), dest=0)


def receive(comm: Any, rank: int) -> memoryview:
    """The next bytes from a rank."""
    status = bring("mpi", "mpi4py.MPI").Status()
    comm.Probe(source=rank, status=status)
    buffer = np.empty(status.Get_count(), dtype=np.uint8)
    comm.Recv(buffer, source=rank)
    return buffer.data


def world() -> Any:
    """The communicator of all ranks.  From here on, an exception that nobody catches on one rank ends them all."""
    comm = bring("mpi", "mpi4py.MPI").COMM_WORLD
    if comm.size > 1 and not isinstance(sys.excepthook, _AbortingHook):
        sys.excepthook = _AbortingHook(comm, sys.excepthook)
    return comm


class _AbortingHook:
    """Tells of an uncaught exception as before, then ends the job: a rank that just left would be waited for by the others."""

    def __init__(self, comm: Any, tell: Callable[..., Any]) -> None:
        self._comm = comm
        self._tell = tell

    def __call__(self, *exception: Any) -> None:
        self._tell(*exception)
        sys.stderr.flush()
        self._comm.Abort(1)
