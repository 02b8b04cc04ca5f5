"""What a solver is about to do, for sites that have a policy: read off its declaration."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from ..algorithms.families import FAMILIES, PREPARING
from ..algorithms.lacking import COMMON
from ..algorithms.method import Part, declaration_of, functions_in, kinds_of
from ..algorithms.missing.mean import MeanFill
from ..algorithms.prepare.moments import MOMENTS as BEFORE
from ..algorithms.preparing import Preparer
from ..algorithms.rare import RARE
from ..algorithms.rough import ROUGH
from ..errors import InputError
from ..runtime import At, Plan
from ..runtime.local import find_local
from .preparers import PARTS
from .registry import ESTIMATORS, solvers_for, unusable


def plan_of(
    algorithm: Any,
    max_rounds: int,
    n_components: int | float | None,
    *,
    also: Iterable[Part] = (),
    min_nonzero: int = 0,
    weighted: bool = False,
) -> Plan:
    """Functions and collectives that a run of this solver may use: its family's set-up, its own, and those of parts in ``also``.

    Of functions that do the same with and without weights of rows, one is in it, by ``weighted``: sites tell by it.

    >>> from ..algorithms.consensus.gram import Gram
    >>> plan_of(Gram(), 300, 5).kinds
    ('local', 'sum')
    """
    declared = declaration_of(algorithm)
    family = FAMILIES[declared.family]
    begun = getattr(algorithm, "chosen_start", getattr(algorithm, "start", None))
    starts = [family.starts[begun]] if isinstance(begun, str) and begun in family.starts else []
    parts = [*family.always, *declared.parts, *starts, *also]
    kinds = set(kinds_of(parts))
    chosen = [getattr(algorithm, name) for name in ("proxy", "alone") if hasattr(algorithm, name)]
    if not any(isinstance(site, str) for site in chosen) and (chosen or At not in declared.own.uses):
        kinds -= {At.kind}  # solvers with a proxy, and "auto", ask one site only if it is the coordinator's own
    count = n_components if isinstance(n_components, int) else None
    other = not weighted
    functions = tuple(name for name in functions_in(parts, kinds) if find_local(name).weights is not other)
    return Plan(declared.name, functions, tuple(sorted(kinds)), max_rounds, count, min_nonzero=min_nonzero)


def functions_to_prepare(preparers: Iterable[Preparer]) -> tuple[str, ...]:
    """Names of the local functions by which sites agree on how rows are prepared; for a site's policy."""
    return functions_in(parts_to_prepare(preparers))


def parts_to_prepare(preparers: Iterable[Preparer]) -> list[Part]:
    """Parts of a run whose rows are prepared; none if there are no preparers."""
    own = [preparer.part for preparer in preparers]
    return [BEFORE, *own] if own else []


def functions_to_fill() -> tuple[str, ...]:
    """Names of the local functions by which sites fill in missing entries; for the policy of one that allows it."""
    return functions_to_prepare([MeanFill()])


def functions_of_steps(names: Iterable[str]) -> tuple[str, ...]:
    """Names of the local functions of preparers that are named as on the command line; for the policy of a site.

    >>> "eigenpact:keep_genotypes/1" in functions_of_steps(["genotypes"])
    True
    """
    chosen = [PARTS[name] for name in names]
    return functions_in([BEFORE, *chosen]) if chosen else ()


def functions_to_compare() -> tuple[str, ...]:
    """Names of the local functions by which sites compare columns; for the policy of one that allows it."""
    return functions_in([COMMON])


def functions_of(solver: str, kinds: Collection[str] | None = None) -> tuple[str, ...]:
    """Names of the local functions that a solver given by name may use, with any start; for a site's policy.

    With ``kinds``, the collectives that the site allows, those that are left out are used by none of them: a coordinator that
    may not gather a site's own directions could otherwise ask for them as part of a sum, and would see the same.

    >>> sorted(set(functions_of("gram")) - set(functions_of("gram", ["sum", "local"])))
    ['eigenpact:leading_directions/1']
    """
    solvers = solvers_for(*ESTIMATORS)
    if solver not in solvers:
        why = unusable(solver)
        told = f"the solvers are {', '.join(solvers)}" if why is None else f"an installed package tells of it, but: {why}"
        raise InputError(f"unknown solver {solver!r}; {told}")
    declared = declaration_of(solvers[solver])
    by_choice: list[Part] = [
        RARE,
        COMMON,
        ROUGH,
        *PREPARING,
    ]  # of a rule of their own, listed by who wants rows prepared, or of no site elsewhere
    if declared.role == "choice":  # what it asks by itself it asks in the coordinator's own process, where no policy is
        by_choice.append(declared.own)
    parts = [part for part in (*FAMILIES[declared.family].parts, *declared.parts) if part not in by_choice]
    return functions_in(parts, kinds)
