"""Where a run takes place."""

from .dask import Dask
from .flare.engine import NVFlare
from .flower.engine import Flower
from .inprocess import InProcess
from .mpi import MPI

__all__ = ["MPI", "Dask", "Flower", "InProcess", "NVFlare"]
