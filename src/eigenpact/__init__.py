"""eigenpact: principal components across sites that cannot, or would rather not, pool their data."""

from . import datasets, engines
from .algorithms.consensus.faps import FAPS
from .algorithms.consensus.gram import Gram
from .algorithms.consensus.krylov import Krylov
from .algorithms.consensus.localpower import LocalPower
from .algorithms.consensus.subspace import Subspace
from .algorithms.robust.dcf import DCF
from .algorithms.robust.shrinking import Shrinking
from .errors import EigenpactError, NotConvergedWarning
from .estimators import FederatedPCA, RobustPCA
from .estimators.model_files import load_model, save_model

__version__ = "0.1.0"

__all__ = [
    "DCF",
    "FAPS",
    "EigenpactError",
    "FederatedPCA",
    "Gram",
    "Krylov",
    "LocalPower",
    "NotConvergedWarning",
    "RobustPCA",
    "Shrinking",
    "Subspace",
    "datasets",
    "engines",
    "load_model",
    "save_model",
]
