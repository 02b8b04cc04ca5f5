"""What a solver is about to do, for sites that have a policy: read off its source, so that it cannot be forgotten."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from threading import Lock
from types import ModuleType
from typing import Any

from ..algorithms import setup, start
from ..algorithms.auto import Auto
from ..algorithms.personalized import parts
from ..algorithms.personalized import start as personal_start
from ..algorithms.robust import agreement, shares
from ..runtime import Collective, LocalFunction, Plan, Progress
from .choices import GRAPH_METHODS, PERSONALIZED_SOLVERS, ROBUST_SOLVERS, SOLVERS

_reading = Lock()
"""Held while a source is parsed: fits may run in threads, and the parser of Python 3.11 fails when two of them use it at once."""


@dataclass(frozen=True)
class Family:
    """Solvers by name, the modules that all of them use, those of their starts by name, and those used on request only."""

    solvers: Mapping[str, Any]
    always: tuple[ModuleType, ...]
    starts: Mapping[str, ModuleType]
    on_request: tuple[ModuleType, ...] = ()


FAMILIES = (
    Family(SOLVERS | {"auto": Auto}, (setup,), {"one-shot": start}),
    Family(PERSONALIZED_SOLVERS, (setup, parts), {"distpca": personal_start, "covariance": personal_start}),
    Family(ROBUST_SOLVERS, (agreement,), {}, (shares,)),
    Family(GRAPH_METHODS, (), {}),
)


def plan_of(algorithm: Any, max_rounds: int, n_components: int | float | None, *, also: Iterable[ModuleType] = ()) -> Plan:
    """Functions and collectives that a run of this solver may use, the set-up's among them, and those of modules in ``also``.

    >>> from ..algorithms.consensus.gram import Gram
    >>> plan_of(Gram(), 300, 5).kinds
    ('local', 'sum')
    """
    family = next((f for f in FAMILIES if type(algorithm) in f.solvers.values()), FAMILIES[0])
    begun = getattr(algorithm, "chosen_start", getattr(algorithm, "start", algorithm.name))
    starts = [family.starts[begun]] if begun in family.starts else []
    modules = [*family.always, *_modules(type(algorithm)), *starts, *also]
    kinds = frozenset(kind for module in modules for kind in _kinds(module).values())
    if not isinstance(getattr(algorithm, "proxy", None), str):
        kinds = kinds - {"at"}  # the coordinator's own site, where there is one
    count = n_components if isinstance(n_components, int) else None
    return Plan(algorithm.name, _used(modules, kinds), tuple(sorted(kinds)), max_rounds, count)


def functions_of(solver: str, kinds: Collection[str] | None = None) -> tuple[str, ...]:
    """Full names of the local functions that a solver given by name may use, with any start; for a site's policy.

    With ``kinds``, the collectives that the site allows, those that are left out are used by none of them: a coordinator that
    may not gather a site's own directions could otherwise ask for them as part of a sum, and would see the same.

    >>> sorted(set(functions_of("gram")) - set(functions_of("gram", ["sum", "local"])))
    ['eigenpact.algorithms.start:leading_directions']
    """
    family = next(f for f in FAMILIES if solver in f.solvers)
    return _used([*family.always, *family.starts.values(), *family.on_request, *_modules(family.solvers[solver])], kinds)


ALGORITHMS = setup.__name__.rpartition(".")[0]
"""The folder of what all families share."""


def _modules(solver: Any) -> list[ModuleType]:
    """Where the functions of a solver's class are: its module, those of its folder that it uses, those of solvers it uses."""
    found: list[ModuleType] = []
    waiting = [importlib.import_module(solver.__module__)]
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
    """Whether a class or coroutine that a module uses is part of the method: from the same folder, another solver, or a coroutine
    that all families share (the growing space, the confirmation).  What only a start or a request brings in is not.
    """
    apart = {m.__name__ for family in FAMILIES for m in (*family.starts.values(), *family.on_request)}
    folder, home = module.__name__.rpartition(".")[0], value.__module__.rpartition(".")[0]
    shared = home == ALGORITHMS and inspect.iscoroutinefunction(value)
    beside = ((home == folder and folder.count(".") > 1) or shared) and value.__module__ not in apart
    return beside or any(value in family.solvers.values() for family in FAMILIES)


def _used(modules: Iterable[ModuleType], kinds: Collection[str] | None) -> tuple[str, ...]:
    """Names of the local functions that some module uses with one of these collectives.

    How a module uses one that it hands to no collective by name is not known; then all that the module knows must be among them.
    """
    found = set()
    for module in modules:
        every = frozenset(_kinds(module).values())
        for name, some in _uses(module).items():
            if kinds is None or (some.intersection(kinds) if some else every.issubset(kinds)):
                found.add(name)
    return tuple(sorted(found))


@cache
def _uses(module: ModuleType) -> dict[str, frozenset[str]]:
    """Local functions among a module's names, and the collectives that its source calls with each."""
    functions = {label: value for label, value in vars(module).items() if isinstance(value, LocalFunction)}
    kinds = _kinds(module)
    found: dict[str, set[str]] = {value.name: set() for value in functions.values()}
    for call in (node for node in ast.walk(_tree(module)) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Name) and call.func.id in kinds:
            for label in {arg.id for arg in call.args if isinstance(arg, ast.Name)} & functions.keys():
                found[functions[label].name].add(kinds[call.func.id])
    return {name: frozenset(some) for name, some in found.items()}


def _tree(module: ModuleType) -> ast.Module:
    """A module's source, parsed; empty where there is none, as for an algorithm typed into a notebook."""
    try:
        source = inspect.getsource(module)
    except (OSError, TypeError):
        return ast.Module([], [])
    with _reading:
        return ast.parse(source)


def _kinds(module: ModuleType) -> dict[str, str]:
    """Collectives among a module's names."""
    classes = {label: value for label, value in vars(module).items() if inspect.isclass(value) and issubclass(value, Collective)}
    return {label: value.kind for label, value in classes.items() if value is not Progress and hasattr(value, "kind")}
