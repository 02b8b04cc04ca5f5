"""eigenpact: principal components across sites that cannot, or would rather not, pool their data.

Names are imported when they are first used: a site's process, which some engines start for every message, needs few of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_WHERE = {
    "Auto": ".algorithms.auto",
    "DCF": ".algorithms.robust.dcf",
    "Davidson": ".algorithms.statistical.davidson",
    "EigenpactError": ".errors",
    "FAPS": ".algorithms.consensus.faps",
    "FederatedPCA": ".estimators",
    "Gram": ".algorithms.consensus.gram",
    "GraphKernelPCA": ".estimators",
    "GraphPCA": ".estimators",
    "HotPotato": ".algorithms.statistical.hot_potato",
    "Krylov": ".algorithms.consensus.krylov",
    "Lanczos": ".algorithms.statistical.lanczos",
    "Landmarks": ".algorithms.graph.features",
    "LocalPower": ".algorithms.consensus.localpower",
    "NotConvergedWarning": ".errors",
    "NotIdentifiableWarning": ".errors",
    "OneShot": ".algorithms.statistical.one_shot",
    "PerPCA": ".algorithms.personalized.perpca",
    "PersonalizedPCA": ".estimators",
    "Power": ".algorithms.statistical.power",
    "ProjectionConsensus": ".algorithms.graph.projection_consensus",
    "RandomFeatures": ".algorithms.graph.features",
    "RobustPCA": ".estimators",
    "ShiftInvert": ".algorithms.statistical.shift_invert",
    "Shrinking": ".algorithms.robust.shrinking",
    "Subspace": ".algorithms.consensus.subspace",
    "Tracking": ".algorithms.graph.features",
    "VarPro": ".algorithms.personalized.varpro",
    "datasets": ".datasets",
    "engines": ".engines",
    "load_model": ".estimators.model_files",
    "save_model": ".estimators.model_files",
}
"""Where each name is."""


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}{_WHERE[name]}")
    globals()[name] = found = module if _WHERE[name] == f".{name}" else getattr(module, name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
