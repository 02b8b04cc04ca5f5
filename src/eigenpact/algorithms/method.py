"""What a solver declares of itself, once.

``@method`` makes a class a solver: it names the family, the local functions that the solver calls and by which collectives, the
parts that it has in common with others, and what it leaves at sites.  Registries, the plans that sites with a policy admit, the
wire table, pages and shared tests read this declaration; tests hold it against the source and against what runs really send.

>>> from eigenpact.runtime import Local, Sum, local
>>> @local(sends={"n": ""})
... def count(site):
...     return float(site.n_rows)
>>> @method("consensus", {Sum: (count,)})
... class Counting:
...     name = "counting"
>>> declaration_of(Counting()).kinds
('sum',)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, dataclass_transform, get_args

from ..errors import InputError
from ..runtime import Collective, LocalFunction

Solver = TypeVar("Solver", bound=type)

FamilyName = Literal["consensus", "statistical", "personalized", "robust", "graph", "missing", "private"]

Role = Literal["choice", "exact", "estimate", "baseline"]
"""A solver chooses among others; or gives the answer to any accuracy; or an estimate; or is there to be compared with."""

Uses = Mapping[type[Collective], tuple[LocalFunction, ...]]
"""Local functions by the collective that calls them."""


@dataclass(frozen=True, eq=False)
class Part:
    """Local functions that several solvers have in common, or one solver's own.

    Attributes
    ----------
    title : str
        The heading in the wire table.
    uses : collective -> local functions
    remark : str
        When which of them run, for the wire table.
    """

    title: str
    uses: Uses
    remark: str = ""

    @property
    def functions(self) -> tuple[LocalFunction, ...]:
        """All of them, each once."""
        return tuple(dict.fromkeys(function for some in self.uses.values() for function in some))


@dataclass(frozen=True, eq=False)
class Method:
    """A solver's declaration: see :func:`method`."""

    name: str
    family: FamilyName
    own: Part
    shared: tuple[Part, ...]
    role: Role
    results: tuple[str, ...]
    estimator: str | None

    @property
    def parts(self) -> tuple[Part, ...]:
        """The solver's own part and those it shares."""
        return (self.own, *self.shared)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of the collectives it uses."""
        return kinds_of(self.parts)


@dataclass_transform(frozen_default=True, eq_default=False)
def method(
    family: FamilyName,
    uses: Uses | None = None,
    *,
    parts: Iterable[Part] = (),
    includes: Iterable[type] = (),
    role: Role = "exact",
    results: Iterable[str] = (),
    estimator: str | None = None,
    remark: str = "",
) -> Callable[[Solver], Solver]:
    """Declare a class with a ``name`` to be a solver, and make it a frozen dataclass of its parameters if it is none yet.

    Parameters
    ----------
    family : "consensus", "statistical", "personalized", "robust", "graph", "missing" or "private"
        What it solves, and so which estimator takes it, what ``fit`` is given and what it returns.
    uses : collective -> local functions
        What it calls itself, beyond the family's set-up.
    parts, includes
        Parts that it shares with other solvers, and solvers that it runs.
    role : "choice", "exact", "estimate" or "baseline"
    results : names
        What a fit leaves at every site for the estimator, among what the functions declare to keep.
    estimator : str, optional
        Who takes it, where that is not the family's usual one.
    remark : str
        When which function runs, for the wire table.
    """

    def declare(solver: Solver) -> Solver:
        name = getattr(solver, "name", None)
        if not isinstance(name, str) or not name:
            raise InputError(f"{solver.__name__} must have a name, as in name = 'my-solver': users and policies write it")
        for what, value, allowed in (("family", family, get_args(FamilyName)), ("role", role, get_args(Role))):
            if value not in allowed:
                raise InputError(f"{solver.__name__}: {what} {value!r} must be one of {', '.join(allowed)}")
        if "__dataclass_params__" not in vars(solver):
            dataclass(frozen=True, eq=False)(solver)
        own = Part(name, dict(uses or {}), remark)
        shared = [*parts, *(part for other in includes for part in declaration_of(other).parts)]
        solver.declared = Method(name, family, own, tuple(shared), role, tuple(results), estimator)  # type: ignore[attr-defined]
        return solver

    return declare


def declaration_of(solver: Any) -> Method:
    """What a solver, or its class, declared; what a class above it declared is not its own."""
    kind = solver if isinstance(solver, type) else type(solver)
    declared = vars(kind).get("declared")
    if not isinstance(declared, Method) or declared.name != getattr(kind, "name", None):
        raise InputError(
            f"{kind.__name__} is not declared to be a solver: write @method(family, uses) before the class, as "
            "docs/how-to/add-an-algorithm.md shows"
        )
    return declared


def kinds_of(parts: Iterable[Part]) -> tuple[str, ...]:
    """Names of the collectives that parts use."""
    return tuple(sorted({collective.kind for part in parts for collective in part.uses}))


def functions_in(parts: Iterable[Part], kinds: Collection[str] | None = None) -> tuple[str, ...]:
    """Names on the wire of the local functions that parts call by one of these collectives, by default by any."""
    called = (some for part in parts for kind, some in part.uses.items() if kinds is None or kind.kind in kinds)
    return tuple(sorted({function.name for some in called for function in some}))
