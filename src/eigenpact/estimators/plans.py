"""What a solver is about to do, for sites that have a policy: read off its source, so that it cannot be forgotten."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType
from typing import Any

from ..algorithms import setup, start
from ..algorithms.auto import Auto
from ..algorithms.solution import Algorithm
from ..runtime import Collective, LocalFunction, Plan, Progress
from .choices import SOLVERS


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
    if getattr(algorithm, "chosen_start", getattr(algorithm, "start", "random")) == "one-shot":
        more, others = _uses(start)
        functions, kinds = functions | more, kinds | others
    if not isinstance(getattr(algorithm, "proxy", None), str):
        kinds = kinds - {"at"}  # the coordinator's own site, where there is one
    count = n_components if isinstance(n_components, int) else None
    return Plan(algorithm.name, tuple(sorted(functions)), tuple(sorted(kinds)), max_rounds, count)


def functions_of(solver: str) -> tuple[str, ...]:
    """Full names of the local functions that a solver given by name may use, with any start; for a site's policy."""
    modules = _modules(Auto if solver == "auto" else SOLVERS[solver])
    return tuple(sorted({name for module in (setup, start, *modules) for name in _uses(module)[0]}))


def _modules(solver: Any) -> list[ModuleType]:
    """Where the functions of a solver's class are: its module, those of its folder that it uses, those of solvers it uses."""
    found: list[ModuleType] = []
    waiting = [_module(solver)]
    while waiting:
        module = waiting.pop()
        if module in found:
            continue
        found.append(module)
        named = [value for value in vars(module).values() if inspect.isclass(value) or inspect.iscoroutinefunction(value)]
        others = {value.__module__ for value in named if _belongs(value, module)}
        waiting += [importlib.import_module(name) for name in sorted(others)]
    return found


def _belongs(value: Any, module: ModuleType) -> bool:
    """Whether a class or coroutine that a module uses is part of the method: from the same folder, or another solver."""
    folder = module.__name__.rpartition(".")[0]
    beside = value.__module__.rpartition(".")[0] == folder and folder.count(".") > 1
    return beside or value in SOLVERS.values()


def _module(cls: Any) -> ModuleType:
    return importlib.import_module(cls.__module__)


def _uses(module: ModuleType) -> tuple[frozenset[str], frozenset[str]]:
    """Names of local functions and kinds of collectives that a module has among its names."""
    values = list(vars(module).values())
    functions = frozenset(value.name for value in values if isinstance(value, LocalFunction))
    collectives = {value for value in values if inspect.isclass(value) and issubclass(value, Collective)}
    return functions, frozenset(c.kind for c in collectives if c is not Progress and hasattr(c, "kind"))
