"""eigenpact: principal components across sites that cannot, or would rather not, pool their data.

Names are imported when they are first used: a site's process, which some engines start for every message, needs few of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .release import __version__ as __version__

if TYPE_CHECKING:
    from . import datasets, engines, errors, export, imports, plot, pp, prepare, solvers
    from .estimators import FederatedPCA, GraphKernelPCA, GraphPCA, PersonalizedPCA, PrivatePCA, RobustPCA
    from .estimators.model_files import load_model, save_model
    from .numerics import metrics
    from .numerics.on_device import OnDevice
    from .report.auditing import audit
    from .report.suggesting import suggest_components
    from .runtime import Secured

__all__ = [
    "FederatedPCA",
    "GraphKernelPCA",
    "GraphPCA",
    "OnDevice",
    "PersonalizedPCA",
    "PrivatePCA",
    "RobustPCA",
    "Secured",
    "audit",
    "datasets",
    "engines",
    "errors",
    "export",
    "imports",
    "load_model",
    "metrics",
    "plot",
    "pp",
    "prepare",
    "save_model",
    "solvers",
    "suggest_components",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        told = f"it has {', '.join(__all__)}"
        if not name.startswith("_"):  # what Python itself looks for needs no advice, and must not import everything
            places = (import_module(f"{__name__}.{place}") for place in ("errors", "solvers"))
            told = next((f"there is {place.__name__}.{name}" for place in places if hasattr(place, name)), told)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; {told}")
    if name in ("datasets", "engines", "errors", "export", "imports", "plot", "pp", "prepare", "solvers"):
        found = import_module(f"{__name__}.{name}")
    elif name == "metrics":
        found = import_module(f"{__name__}.numerics.metrics")
    elif name == "OnDevice":
        found = import_module(f"{__name__}.numerics.on_device").OnDevice
    elif name == "Secured":
        found = import_module(f"{__name__}.runtime").Secured
    elif name == "audit":
        found = import_module(f"{__name__}.report.auditing").audit
    elif name == "suggest_components":
        found = import_module(f"{__name__}.report.suggesting").suggest_components
    else:
        found = getattr(import_module(f"{__name__}.estimators"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
