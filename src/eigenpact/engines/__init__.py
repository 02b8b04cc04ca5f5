"""Where a run takes place."""

from .inprocess import InProcess
from .mpi import MPI

__all__ = ["MPI", "InProcess"]
