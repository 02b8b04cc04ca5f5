"""What a solver is about to do, for sites that have a policy: read off its source, so that it cannot be forgotten."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType
from typing import Any

from ..algorithms import setup, start
from ..algorithms.auto import Auto
from ..algorithms.robust import agreement, shares
from ..algorithms.robust.solution import RobustAlgorithm
from ..algorithms.solution import Algorithm
from ..runtime import Collective, LocalFunction, Plan, Progress
from .choices import ROBUST_SOLVERS, SOLVERS


def plan_of(
    algorithm: Algorithm | RobustAlgorithm, max_rounds: int, n_components: int | float | None, *, tell_shares: bool = False
) -> Plan:
    """Functions and collectives that a run of this solver may use, the set-up's among them.

    >>> from ..algorithms.consensus.gram import Gram
    >>> plan_of(Gram(), 300, 5).kinds
    ('local', 'sum')
    """
    functions, kinds = _uses(_setup_of(type(algorithm)))
    for module in _modules(type(algorithm)):
        more, others = _uses(module)
        functions, kinds = functions | more, kinds | others
    if getattr(algorithm, "chosen_start", getattr(algorithm, "start", "random")) == "one-shot":
        more, others = _uses(start)
        functions, kinds = functions | more, kinds | others
    if not isinstance(getattr(algorithm, "proxy", None), str):
        kinds = kinds - {"at"}  # the coordinator's own site, where there is one
    if tell_shares:
        more, others = _uses(shares)
        functions, kinds = functions | more, kinds | others
    count = n_components if isinstance(n_components, int) else None
    return Plan(algorithm.name, tuple(sorted(functions)), tuple(sorted(kinds)), max_rounds, count)


def functions_of(solver: str) -> tuple[str, ...]:
    """Full names of the local functions that a solver given by name may use, with any start; for a site's policy."""
    if solver in ROBUST_SOLVERS:
        modules = [agreement, shares, *_modules(ROBUST_SOLVERS[solver])]
    else:
        modules = [setup, start, *_modules(Auto if solver == "auto" else SOLVERS[solver])]
    return tuple(sorted({name for module in modules for name in _uses(module)[0]}))


def _setup_of(solver: Any) -> ModuleType:
    """Where the set-up of a solver's class is."""
    return agreement if solver in ROBUST_SOLVERS.values() else setup


def _modules(solver: Any) -> list[ModuleType]:
    """Where the functions of a solver's class are: its module, and those of the solvers that it imports and may hand over to."""
    own = _module(solver)
    others = {
        value for value in vars(own).values() if inspect.isclass(value) and value is not solver and value in SOLVERS.values()
    }
    return [own, *(_module(other) for other in sorted(others, key=lambda cls: cls.__name__))]


def _module(cls: Any) -> ModuleType:
    return importlib.import_module(cls.__module__)


def _uses(module: ModuleType) -> tuple[frozenset[str], frozenset[str]]:
    """Names of local functions and kinds of collectives that a module has among its names."""
    values = list(vars(module).values())
    functions = frozenset(value.name for value in values if isinstance(value, LocalFunction))
    collectives = {value for value in values if inspect.isclass(value) and issubclass(value, Collective)}
    return functions, frozenset(c.kind for c in collectives if c is not Progress and hasattr(c, "kind"))
