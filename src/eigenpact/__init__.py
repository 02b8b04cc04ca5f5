"""eigenpact: principal components across sites that cannot, or would rather not, pool their data."""

from . import datasets, engines
from .algorithms.auto import Auto
from .algorithms.consensus.faps import FAPS
from .algorithms.consensus.gram import Gram
from .algorithms.consensus.krylov import Krylov
from .algorithms.consensus.localpower import LocalPower
from .algorithms.consensus.subspace import Subspace
from .algorithms.graph.features import Landmarks, RandomFeatures, Tracking
from .algorithms.graph.projection_consensus import ProjectionConsensus
from .algorithms.personalized.perpca import PerPCA
from .algorithms.personalized.varpro import VarPro
from .algorithms.robust.dcf import DCF
from .algorithms.robust.shrinking import Shrinking
from .algorithms.statistical.davidson import Davidson
from .algorithms.statistical.hot_potato import HotPotato
from .algorithms.statistical.lanczos import Lanczos
from .algorithms.statistical.one_shot import OneShot
from .algorithms.statistical.power import Power
from .algorithms.statistical.shift_invert import ShiftInvert
from .errors import EigenpactError, NotConvergedWarning, NotIdentifiableWarning
from .estimators import FederatedPCA, GraphKernelPCA, GraphPCA, PersonalizedPCA, RobustPCA
from .estimators.model_files import load_model, save_model

__version__ = "0.1.0"

__all__ = [
    "DCF",
    "FAPS",
    "Auto",
    "Davidson",
    "EigenpactError",
    "FederatedPCA",
    "Gram",
    "GraphKernelPCA",
    "GraphPCA",
    "HotPotato",
    "Krylov",
    "Lanczos",
    "Landmarks",
    "LocalPower",
    "NotConvergedWarning",
    "NotIdentifiableWarning",
    "OneShot",
    "PerPCA",
    "PersonalizedPCA",
    "Power",
    "ProjectionConsensus",
    "RandomFeatures",
    "RobustPCA",
    "ShiftInvert",
    "Shrinking",
    "Subspace",
    "Tracking",
    "VarPro",
    "datasets",
    "engines",
    "load_model",
    "save_model",
]
