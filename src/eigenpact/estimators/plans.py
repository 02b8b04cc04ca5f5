"""What a solver is about to do, for sites that have a policy: read off its source, so that it cannot be forgotten."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType
from typing import Any

from ..algorithms import setup, start
from ..algorithms.auto import Auto
from ..algorithms.personalized import parts
from ..algorithms.personalized import start as personal_start
from ..algorithms.solution import Algorithm
from ..runtime import Collective, LocalFunction, Plan, Progress
from .choices import PERSONALIZED_SOLVERS, SOLVERS


def plan_of(algorithm: Algorithm, max_rounds: int, n_components: int | float | None) -> Plan:
    """Functions and collectives that a run of this solver may use, the set-up's among them.

    >>> from ..algorithms.consensus.gram import Gram
    >>> plan_of(Gram(), 300, 5).kinds
    ('local', 'sum')
    """
    functions, kinds = _uses(setup)
    for module in _modules(type(algorithm)):
        more, others = _uses(module)
        functions, kinds = functions | more, kinds | others
    for module in _starts(algorithm):
        more, others = _uses(module)
        functions, kinds = functions | more, kinds | others
    if not isinstance(getattr(algorithm, "proxy", None), str):
        kinds = kinds - {"at"}  # the coordinator's own site, where there is one
    count = n_components if isinstance(n_components, int) else None
    return Plan(algorithm.name, tuple(sorted(functions)), tuple(sorted(kinds)), max_rounds, count)


def functions_of(solver: str) -> tuple[str, ...]:
    """Full names of the local functions that a solver given by name may use, with any start; for a site's policy."""
    modules = _modules(Auto if solver == "auto" else (SOLVERS | PERSONALIZED_SOLVERS)[solver])
    starts = (personal_start,) if solver in PERSONALIZED_SOLVERS else (start,)
    return tuple(sorted({name for module in (setup, *starts, *modules) for name in _uses(module)[0]}))


def _starts(algorithm: Any) -> list[ModuleType]:
    """Where the functions of the start are that a solver was given, or that it always begins with."""
    chosen = getattr(algorithm, "chosen_start", getattr(algorithm, "start", algorithm.name))
    return {"one-shot": [start], "distpca": [personal_start], "covariance": [personal_start]}.get(chosen, [])


def _modules(solver: Any) -> list[ModuleType]:
    """Where the functions of a solver's class are: its module, and those of the solvers that it imports and may hand over to."""
    own = _module(solver)
    others = {
        value for value in vars(own).values() if inspect.isclass(value) and value is not solver and value in SOLVERS.values()
    }
    family = [parts] if solver in PERSONALIZED_SOLVERS.values() else []
    return [own, *family, *(_module(other) for other in sorted(others, key=lambda cls: cls.__name__))]


def _module(cls: Any) -> ModuleType:
    return importlib.import_module(cls.__module__)


def _uses(module: ModuleType) -> tuple[frozenset[str], frozenset[str]]:
    """Names of local functions and kinds of collectives that a module has among its names."""
    values = list(vars(module).values())
    functions = frozenset(value.name for value in values if isinstance(value, LocalFunction))
    collectives = {value for value in values if inspect.isclass(value) and issubclass(value, Collective)}
    return functions, frozenset(c.kind for c in collectives if c is not Progress and hasattr(c, "kind"))
