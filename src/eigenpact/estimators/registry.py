"""Which solvers there are, and who takes them.

Solvers are found where they are declared (``algorithms/method.py``): in the package's own algorithms, and in packages that say so
by an entry point of the group "eigenpact.solvers", which whoever runs this process has installed.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, get_args

from .. import algorithms
from ..algorithms.families import FAMILIES
from ..algorithms.method import FamilyName, Method, Role, declaration_of
from ..errors import InputError
from ..runtime.local import ENTRY_POINTS


def solvers_for(*estimators: str) -> dict[str, Any]:
    """Classes of the solvers that these estimators take, by name: "auto", exact ones, estimates, baselines.

    >>> list(solvers_for("RobustPCA", "GraphPCA"))
    ['dcf', 'shrinking', 'tracking']
    """
    roles, families = get_args(Role), get_args(FamilyName)

    def place(solver: Any) -> tuple[int, int, str]:
        declared: Method = solver.declared
        return roles.index(declared.role), families.index(declared.family), declared.name

    return {solver.name: solver for solver in sorted(_all(), key=place) if estimator_of(solver) in estimators}


def estimator_of(solver: Any) -> str:
    """The name of the estimator that takes a solver, or a class of solvers."""
    declared = declaration_of(solver)
    return declared.estimator or FAMILIES[declared.family].estimator


@cache
def _all() -> tuple[Any, ...]:
    """Every solver that is declared here or in an installed package."""
    found: dict[str, Any] = {}
    for solver in (*_own(), *_installed()):
        name = declaration_of(solver).name
        if name in found:
            first, second = (f"{other.__module__}.{other.__name__}" for other in (found[name], solver))
            raise InputError(f"two solvers are called {name!r}: {first} and {second}; rename one, or uninstall its package")
        found[name] = solver
    return tuple(found.values())


def _own() -> Iterator[Any]:
    for info in pkgutil.walk_packages(algorithms.__path__, f"{algorithms.__name__}."):
        module = importlib.import_module(info.name)
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__ == info.name and isinstance(vars(value).get("declared"), Method):
                yield value


def _installed() -> Iterator[Any]:
    for entry in entry_points(group=ENTRY_POINTS):
        yield _loaded(entry)


def _loaded(entry: EntryPoint) -> Any:
    try:
        solver = entry.load()
        declaration_of(solver)
    except Exception as error:  # whatever a stranger's package does when it is imported
        raise InputError(
            f"solver {entry.name!r} of an installed package ({entry.value}) cannot be used: {type(error).__name__}: {error}; "
            "repair or uninstall that package"
        ) from error
    return solver
