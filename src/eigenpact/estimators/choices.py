"""Names a user may write for solvers and engines, and what they stand for."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array

from ..algorithms.auto import Auto
from ..algorithms.consensus.faps import FAPS
from ..algorithms.consensus.gram import Gram
from ..algorithms.consensus.krylov import Krylov
from ..algorithms.consensus.localpower import LocalPower
from ..algorithms.consensus.subspace import Subspace
from ..algorithms.graph.baselines import Neighbourhood, Own
from ..algorithms.graph.features import Landmarks, RandomFeatures, Tracking
from ..algorithms.graph.projection_consensus import ProjectionConsensus
from ..algorithms.personalized.baselines import DistPCA, Individual, Pooled
from ..algorithms.personalized.perpca import PerPCA
from ..algorithms.personalized.varpro import VarPro
from ..algorithms.robust.dcf import DCF
from ..algorithms.robust.shrinking import Shrinking
from ..algorithms.robust.solution import RobustAlgorithm
from ..algorithms.solution import Algorithm
from ..algorithms.statistical.davidson import Davidson
from ..algorithms.statistical.hot_potato import HotPotato
from ..algorithms.statistical.lanczos import Lanczos
from ..algorithms.statistical.one_shot import OneShot
from ..algorithms.statistical.power import Power
from ..algorithms.statistical.shift_invert import ShiftInvert
from ..data.checks import check_not_masked, check_real
from ..engines import MPI, Dask, InProcess
from ..errors import InputError
from ..runtime import Engine

SOLVERS: dict[str, Callable[[], Algorithm]] = {
    "gram": Gram,
    "krylov": Krylov,
    "subspace": Subspace,
    "localpower": LocalPower,
    "faps": FAPS,
    "lanczos": Lanczos,
    "power": Power,
    "davidson": Davidson,
    "shift-invert": ShiftInvert,
    "hot-potato": HotPotato,
    "one-shot": OneShot,
}
"""Solvers of the joint PCA by name, besides "auto"; the last two are estimates and say how good they are."""

PERSONALIZED_SOLVERS: dict[str, Callable[[], Any]] = {
    "varpro": VarPro,
    "perpca": PerPCA,
    "distpca": DistPCA,
    "individual": Individual,
    "pooled": Pooled,
}
"""Solvers of PersonalizedPCA by name; the last three are baselines."""

ROBUST_SOLVERS: dict[str, Callable[[], RobustAlgorithm]] = {"shrinking": Shrinking, "dcf": DCF}
"""Solvers of RobustPCA by name."""

GRAPH_METHODS: dict[str, Callable[[], Any]] = {
    "projection-consensus": ProjectionConsensus,
    "random-features": RandomFeatures,
    "landmarks": Landmarks,
    "tracking": Tracking,
    "own": Own,
    "neighbourhood": Neighbourhood,
}
"""Methods on a graph by name; "tracking" is GraphPCA's, the last two are baselines."""

ENGINES: dict[str, Callable[[], Engine]] = {"inprocess": InProcess, "mpi": MPI, "dask": Dask}


def find_solver(solver: Any, engine: Engine) -> Algorithm:
    """The algorithm a ``solver`` argument stands for."""
    if solver == "auto":
        return Auto(engine.costs)
    if isinstance(solver, str):
        if solver not in SOLVERS:
            raise InputError(f"unknown solver {solver!r}; the solvers are {', '.join(['auto', *SOLVERS])}")
        return SOLVERS[solver]()
    if not hasattr(solver, "fit") or not dataclasses.is_dataclass(solver) or isinstance(solver, type):
        raise InputError(f"solver={solver!r} must be one of {', '.join(['auto', *SOLVERS])} or an instance such as ep.Krylov()")
    if isinstance(solver, Auto) and solver.costs is None:
        return dataclasses.replace(solver, costs=engine.costs)
    return solver  # type: ignore[return-value]


def find_personalized_solver(solver: Any) -> Any:
    """The algorithm a ``solver`` argument of PersonalizedPCA stands for."""
    allowed = ", ".join(PERSONALIZED_SOLVERS)
    if isinstance(solver, str):
        if solver not in PERSONALIZED_SOLVERS:
            raise InputError(f"unknown solver {solver!r}; the solvers of PersonalizedPCA are {allowed}")
        return PERSONALIZED_SOLVERS[solver]()
    if not hasattr(solver, "fit") or not dataclasses.is_dataclass(solver) or isinstance(solver, type):
        raise InputError(f"solver={solver!r} must be one of {allowed} or an instance such as ep.PerPCA(choice=2)")
    return solver


def find_robust_solver(solver: Any) -> RobustAlgorithm:
    """The algorithm that the ``solver`` argument of RobustPCA stands for."""
    if isinstance(solver, str) and solver in ROBUST_SOLVERS:
        return ROBUST_SOLVERS[solver]()
    if isinstance(solver, Shrinking | DCF):
        return solver
    raise InputError(f"solver={solver!r} must be one of {', '.join(ROBUST_SOLVERS)} or an instance such as ep.DCF(K=2)")


def find_graph_method(method: Any, exclude: Sequence[str] = (), more: Sequence[str] = ()) -> Any:
    """The algorithm a ``method`` argument of an estimator on a graph stands for; ``more`` names what is made otherwise."""
    allowed = [name for name in GRAPH_METHODS if name not in exclude]
    found = GRAPH_METHODS[method]() if isinstance(method, str) and method in GRAPH_METHODS else method
    if getattr(found, "name", None) not in allowed or isinstance(found, type):
        raise InputError(f"method={method!r} must be one of {', '.join([*allowed, *more])}, or an instance of one's class")
    return found


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
    """A solver and its parameters as JSON can hold them, for journals and saved models; arrays by shape and digest."""
    described: dict[str, Any] = {"name": algorithm.name}
    for field in dataclasses.fields(algorithm):  # type: ignore[arg-type]
        value = getattr(algorithm, field.name)
        if isinstance(value, np.ndarray):
            value = f"array {value.shape} {hashlib.blake2b(value.tobytes(), digest_size=8).hexdigest()}"
        elif isinstance(value, np.generic):
            value = value.item()
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = dataclasses.asdict(value)
        described[field.name] = value
    return described
