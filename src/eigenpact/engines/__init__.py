"""Where a run takes place."""

from .dask import Dask
from .inprocess import InProcess
from .mpi import MPI
from .nvflare import NVFlare

__all__ = ["MPI", "Dask", "InProcess", "NVFlare"]
