"""eigenpact: principal components across sites that cannot, or would rather not, pool their data."""

from . import datasets, engines
from .algorithms.consensus.faps import FAPS
from .algorithms.consensus.gram import Gram
from .algorithms.consensus.krylov import Krylov
from .algorithms.consensus.localpower import LocalPower
from .algorithms.consensus.subspace import Subspace
from .errors import EigenpactError, NotConvergedWarning
from .estimators import FederatedPCA
from .estimators.model_files import load_model, save_model

__version__ = "0.1.0"

__all__ = [
    "FAPS",
    "EigenpactError",
    "FederatedPCA",
    "Gram",
    "Krylov",
    "LocalPower",
    "NotConvergedWarning",
    "Subspace",
    "datasets",
    "engines",
    "load_model",
    "save_model",
]
