"""Which process of a run this is, when several read their own files."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from ..engines.ranks import all_gather, world
from ..errors import InputError

SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS")
"""Environment variables in which MPI launchers tell how many ranks they started."""


def check_ranks(engine: str) -> None:
    """Refuse several ranks that would all do the same: started by mpiexec, but not told to work together."""
    started = max((int(os.environ[name]) for name in SIZES if os.environ.get(name, "").isdigit()), default=1)
    if engine != "mpi" and started > 1:
        raise InputError(f"{started} ranks were started, and each would do all the work; add --engine mpi, or leave out mpiexec")


@dataclass(frozen=True)
class Ranks:
    """This process among ``size``; without MPI, the only one."""

    rank: int = 0
    size: int = 1
    comm: Any = None

    @classmethod
    def of(cls, engine: str) -> Ranks:
        """The ranks of an engine given by name."""
        if engine != "mpi":
            return cls()
        comm = world()
        return cls(comm.rank, comm.size, comm)

    def share(self, facts: dict[str, Any]) -> list[dict[str, Any]]:
        """Tell all ranks what this one knows (as JSON can hold it); return what each rank told, by rank."""
        if self.comm is None:
            return [json.loads(json.dumps(facts))]
        return [json.loads(bytes(told)) for told in all_gather(self.comm, json.dumps(facts).encode())]
