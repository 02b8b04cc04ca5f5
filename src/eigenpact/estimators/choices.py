"""Names a user may write for solvers and engines, and what they stand for."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

from ..algorithms.auto import GRAM_FEATURES, Auto
from ..algorithms.consensus.gram import Gram
from ..algorithms.consensus.krylov import Krylov
from ..algorithms.method import declaration_of
from ..algorithms.solution import Algorithm
from ..data.checks import check_not_masked, check_real
from ..engines import MPI, Dask, InProcess
from ..errors import InputError, JournalError
from ..runtime import Connection, Costs, Engine
from ..runtime.forms import fits
from ..runtime.journal import described
from .registry import estimator_of, solvers_for, unusable

ENGINES: dict[str, Callable[[], Engine]] = {"inprocess": InProcess, "mpi": MPI, "dask": Dask}


def joint_solvers() -> dict[str, Any]:
    """Classes of the solvers of FederatedPCA by name, without "auto", which chooses among them."""
    return {name: solver for name, solver in solvers_for("FederatedPCA").items() if declaration_of(solver).role != "choice"}


def find_solver(estimator: str, solver: Any, also: Sequence[str] = ()) -> Any:
    """The algorithm that the ``solver`` argument of an estimator stands for: by name, or an instance of a declared class.

    ``also`` names what the estimator makes otherwise.
    """
    known = solvers_for(estimator)
    if isinstance(solver, str) and solver in known:
        try:
            return known[solver]()
        except TypeError as error:
            raise InputError(f"solver={solver!r} has parameters without a default ({error}); pass an instance") from error
    allowed = ", ".join([*known, *also])
    if isinstance(solver, str) and (reason := unusable(solver)) is not None:
        raise InputError(f"solver={solver!r} of an installed package cannot be used: {reason}; repair or uninstall that package")
    if isinstance(solver, str):
        raise InputError(f"unknown solver {solver!r}; the solvers of {estimator} are {allowed}")
    if not hasattr(solver, "fit") or not dataclasses.is_dataclass(solver) or isinstance(solver, type):
        raise InputError(f"solver={solver!r} must be one of {allowed}, or an instance such as ep.solvers.{_example(known)}()")
    if estimator_of(solver) != estimator:
        raise InputError(f"solver={solver!r} is one of {estimator_of(solver)}; the solvers of {estimator} are {allowed}")
    return solver


def _example(known: dict[str, Any]) -> str:
    return next(str(solver.__name__) for solver in known.values() if declaration_of(solver).role != "choice")


def find_joint_solver(solver: Any) -> Algorithm:
    """The algorithm that the ``solver`` argument of FederatedPCA stands for."""
    found: Algorithm = find_solver("FederatedPCA", solver)
    return found


def informed(algorithm: Any, engine: Engine, connection: Connection, journal: Any, *, secured: bool) -> Any:
    """ "auto" with what it chooses by: costs that were measured before the run, and the only site where it is here.

    A run that is resumed from a ``journal`` has what stands there, whatever would be measured now.
    """
    if not isinstance(algorithm, Auto):
        return algorithm
    own = connection.own_sites()
    alone = own[0] if len(own) == 1 and own == connection.invited() and not secured else None
    written = None if journal is None else described(journal)
    if written is not None and isinstance(known := written.get("solver"), dict) and known.get("name") == algorithm.name:
        costs = algorithm.costs or costs_from(known.get("costs"), journal)
        return dataclasses.replace(algorithm, costs=costs, alone=alone if "alone" in known else None)
    return dataclasses.replace(algorithm, costs=algorithm.costs or connection.measured(engine.costs), alone=alone)


def costs_from(written: Any, where: Any) -> Costs:
    """Costs as a journal's description holds them."""
    optional = {f.name for f in dataclasses.fields(Costs) if f.metadata.get("later")}
    names = {f.name for f in dataclasses.fields(Costs)}
    good = isinstance(written, dict) and names - optional <= set(written) <= names
    if not good or not all(fits(value, float) and value > 0 for value in written.values()):
        raise JournalError(
            f"{where}: the journal's description is damaged (costs are {written!r}); restore the file, or start afresh"
        )
    return Costs(**written)


def candidates_of(algorithm: Any, connection: Connection) -> list[Algorithm]:
    """Among which solvers "auto" would choose, for sites that allow some of them and not "auto" itself; else none."""
    if not isinstance(algorithm, Auto):
        return []
    wide = max(connection.n_features().values(), default=0) > GRAM_FEATURES
    found: list[Algorithm] = [Gram(), Krylov(start=algorithm.start)]
    return found[::-1] if wide else found


def place_proxy(algorithm: Algorithm, sites: Sequence[str]) -> tuple[Algorithm, str | None]:
    """The algorithm with its proxy given by name, and that name: the coordinator's own site, if it has one."""
    proxy = getattr(algorithm, "proxy", None)
    if isinstance(proxy, bool):
        raise InputError(f"proxy={proxy} must be a site's name or index, a table of public rows, or None")
    if isinstance(proxy, int | np.integer):
        if not -len(sites) <= proxy < len(sites):
            raise InputError(f"proxy={proxy} is not an index of the {len(sites)} sites; give 0 to {len(sites) - 1} or a name")
        proxy = sites[int(proxy)]
        return dataclasses.replace(algorithm, proxy=proxy), proxy  # type: ignore[type-var]
    if proxy is None:
        return algorithm, None
    if not isinstance(proxy, str):
        return dataclasses.replace(algorithm, proxy=_public_rows(proxy)), None  # type: ignore[type-var]
    if proxy not in sites:
        raise InputError(f"proxy={proxy!r} is not a site; the sites are {', '.join(sorted(sites)[:10])}")
    return algorithm, proxy


def _public_rows(proxy: Any) -> Any:
    """Public rows as a float64 table (n x d)."""
    check_not_masked("proxy", proxy)
    check_real("proxy", proxy)
    try:
        return check_array(proxy, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"proxy is neither a site nor a dense table of finite numbers: {error}") from error


def find_engine(engine: Any) -> Engine:
    """The engine an ``engine`` argument stands for."""
    if isinstance(engine, str):
        if engine not in ENGINES:
            raise InputError(f"unknown engine {engine!r}; the engines are {', '.join(ENGINES)}")
        return ENGINES[engine]()
    if not hasattr(engine, "execute"):
        raise InputError(f"engine={engine!r} must be one of {', '.join(ENGINES)} or an instance such as ep.engines.InProcess()")
    return engine  # type: ignore[no-any-return]


def describe_solver(algorithm: Algorithm) -> dict[str, Any]:
    """A solver and its parameters as JSON can hold them, for journals and saved models."""
    return {"name": algorithm.name} | _fields(algorithm)


def _fields(value: Any) -> dict[str, Any]:
    """Fields of a dataclass by name, without those that an earlier release did not have where they are as then."""
    found = {f: getattr(value, f.name) for f in dataclasses.fields(value)}
    return {f.name: plain(one) for f, one in found.items() if not (f.metadata.get("later") and one == f.default)}


def plain(value: Any) -> Any:
    """A parameter's value as JSON can hold it: arrays by shape and digest, what JSON does not know in words.

    >>> plain(np.float64(0.5)), plain((1, None)), plain(np.eye(2)).split()[:2], plain({2})
    (0.5, [1, None], ['array', '(2,'], '{2}')
    """
    if isinstance(value, np.ndarray):
        return f"array {value.shape} {hashlib.blake2b(value.tobytes(), digest_size=8).hexdigest()}"
    if isinstance(value, np.generic):
        return value.item()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str | dict) else repr(value)
