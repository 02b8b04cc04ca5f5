"""Which solvers there are, and who takes them.

Solvers are found where they are declared (``algorithms/method.py``): in the package's own algorithms, and in packages that say so
by an entry point of the group "eigenpact.solvers", which whoever runs this process has installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

from ..algorithms.families import FAMILIES
from ..algorithms.method import FamilyName, Method, Role, declaration_of
from ..errors import InputError
from ..runtime.local import installed_solvers, own_modules

ESTIMATORS = tuple(dict.fromkeys([*(family.estimator for family in FAMILIES.values()), "GraphPCA"]))


def all_solvers() -> tuple[Any, ...]:
    """Classes of all solvers, the package's own first."""
    return _found()[0]


def solvers_for(*estimators: str) -> dict[str, Any]:
    """Classes of the solvers that these estimators take, by name: "auto", exact ones, estimates, baselines.

    >>> list(solvers_for("RobustPCA", "GraphPCA"))
    ['dcf', 'shrinking', 'tracking']
    """
    roles, families = get_args(Role), get_args(FamilyName)

    def place(solver: Any) -> tuple[int, int, str]:
        declared: Method = solver.declared
        return roles.index(declared.role), families.index(declared.family), declared.name

    return {solver.declared.name: solver for solver in sorted(all_solvers(), key=place) if estimator_of(solver) in estimators}


def estimator_of(solver: Any) -> str:
    """The name of the estimator that takes a solver, or a class of solvers."""
    declared = declaration_of(solver)
    return declared.estimator or FAMILIES[declared.family].estimator


def unusable(name: str) -> str | None:
    """Why the solver of that name, which an installed package tells of, cannot be used; None if none does, or it can."""
    return _found()[1].get(name)


@cache
def _found() -> tuple[tuple[Any, ...], dict[str, str]]:
    """Every solver that is declared here or in an installed package; and the others that packages tell of, with the reason.

    What is wrong with a package costs its own solver only.
    """
    found = {solver.declared.name: solver for solver in _own()}
    reasons: dict[str, str] = {}
    for entry, solver in installed_solvers():
        try:
            name = _checked(solver)
        except InputError as error:
            reasons[entry] = str(error)
            continue
        if name in found:
            reasons[entry] = f"the name {name!r} is taken by {found[name].__module__}"
        else:
            found[name] = solver
    return tuple(found.values()), reasons


def _checked(solver: Any) -> str:
    """The name of a solver that an installed package tells of; an error if it is none."""
    if isinstance(solver, BaseException):
        raise InputError(f"{type(solver).__name__}: {solver}")
    if not isinstance(solver, type):
        raise InputError(f"{solver!r} is not a class")
    if estimator_of(solver) not in ESTIMATORS:
        raise InputError(f"{solver.__name__} is for {estimator_of(solver)}; the estimators are {', '.join(ESTIMATORS)}")
    return declaration_of(solver).name


def _own() -> Iterator[Any]:
    for module in own_modules():
        classes = (value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__)
        yield from (value for value in classes if isinstance(vars(value).get("declared"), Method))
