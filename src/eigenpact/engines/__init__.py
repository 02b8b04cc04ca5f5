"""Where a run takes place."""

from .dask import Dask
from .flower import Flower
from .inprocess import InProcess
from .mpi import MPI
from .nvflare import NVFlare

__all__ = ["MPI", "Dask", "Flower", "InProcess", "NVFlare"]
