"""What ``GraphKernelPCA`` and ``GraphPCA`` share: nodes of a graph that talk to their neighbours only."""

from __future__ import annotations

import dataclasses
import hashlib
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ...algorithms.graph.features import dense
from ...algorithms.graph.network import GraphProblem, GraphSolution, Network
from ...algorithms.method import declaration_of
from ...errors import InputError, NotConvergedWarning, SiteElsewhereError
from ...numerics.kernels import Kernel, function_name
from ...numerics.linalg import Array
from ...runtime import Connection, Driver, Engine, Outcome, Plan, Program, Spreading
from ...runtime.consensus import Graph
from ..base import SiteEstimator
from ..inputs import check_new_rows, is_several_sites
from ..plans import plan_of
from .graphs import find_graph


class NodeResults(Mapping[str, Any]):
    """What belongs to single nodes, by name: there for the nodes that this process holds, an error with advice for others."""

    def __init__(self, nodes: tuple[str, ...], held: dict[str, Any]) -> None:
        self.nodes, self.held = nodes, held

    def __getitem__(self, node: str) -> Any:
        if node in self.held:
            return self.held[node]
        if node in self.nodes:
            raise SiteElsewhereError(
                f"what node {node!r} found is at that node, not in this process (here: {', '.join(self.held) or 'none'}); "
                "ask the process that holds it"
            )
        raise InputError(f"no node {node!r} in this model; the nodes are {', '.join(self.nodes[:10])}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)


class GraphEstimator(SiteEstimator):
    """What estimators on a graph share: the graph, the program, and results that stay at their nodes."""

    n_components: int
    graph: Any
    solver: Any
    center: bool
    max_iterations: int | None

    def _check_parameters(self) -> None:
        whole = isinstance(self.n_components, int | np.integer) and not isinstance(self.n_components, bool)
        if not (whole and self.n_components >= 1):
            raise InputError(f"n_components={self.n_components!r} must be a whole number >= 1")
        if self.max_iterations is not None:
            self._check_limit("max_iterations", self.max_iterations)
        super()._check_parameters()

    def _find_graph(self, engine: Engine, held: tuple[str, ...]) -> Graph:
        names = held
        if isinstance(engine, Spreading):
            engine.check_same("parameters", self._told())
            names = engine.everyone(held)
        self.graph_: Graph = find_graph(self.graph, names)
        return self.graph_

    def _told(self) -> dict[str, str]:
        """Parameters by name, in words that are the same for the same values: every process builds its models by its own."""
        apart = ("engine", "callback", "random_state", "graph")  # the seed in use is told to all, and graphs are compared as such
        return {name: _in_words(value) for name, value in self.get_params(deep=False).items() if name not in apart}

    def _run(self, connection: Connection, *more: Any) -> Outcome:
        self.n_features_in_ = next(iter(connection.n_features().values()))
        return super()._run(connection, *more)

    def _plan(self, algorithm: Any) -> Plan:
        rounds = algorithm.most_rounds(Network(self.graph_), self._iterations(algorithm), int(self.n_components))
        return plan_of(algorithm, rounds, int(self.n_components))

    @staticmethod
    def _own_limit(algorithm: Any) -> int:
        return int(getattr(algorithm, "default_iterations", 1000))

    def _iterations(self, algorithm: Any) -> int:
        return self._own_limit(algorithm) if self.max_iterations is None else int(self.max_iterations)

    @abstractmethod
    def _kernel(self) -> Kernel:
        """The kernel in use."""

    def _landmarks(self) -> Array | None:
        """Public rows, if there are any."""
        return None

    def _program(self, algorithm: Any, seed: int) -> Program:
        problem = GraphProblem(
            network=Network(self.graph_),
            n_components=int(self.n_components),
            n_features=self.n_features_in_,
            kernel=self._kernel(),
            center=bool(self.center),
            landmarks=self._landmarks(),
            tol=None if self.tol is None else float(self.tol),
            max_iterations=self._iterations(algorithm),
            seed=seed,
        )

        async def program(start: Any, state: Any) -> tuple[GraphSolution, int]:  # noqa: ARG001
            return await algorithm.fit(problem), seed

        return program

    def _settings(self) -> dict[str, Any]:
        return {}

    def _outcome(self, driver: Driver, result: tuple[GraphSolution, int], algorithm: Any) -> Outcome:
        solution, seed = result
        facts = {
            "n_features": self.n_features_in_,
            "nodes": list(driver.roster),
            "rounds": driver.rounds,
            "setup_rounds": driver.setup_rounds,
            "iterations": solution.iterations,
            "converged": solution.converged,
            "reason": solution.reason,
            "notes": solution.notes,
            "solver": algorithm.name,
            "seed": seed,
        }
        return Outcome({}, facts, driver.ledger, driver.history, results=declaration_of(algorithm).results)

    def _adopt(self, outcome: Outcome) -> None:
        facts = outcome.facts
        self.n_features_in_ = facts["n_features"]
        self.sites_ = tuple(facts["nodes"])
        self.n_rounds_, self.n_setup_rounds_ = facts["rounds"], facts["setup_rounds"]
        self.n_iterations_ = facts["iterations"]
        self.converged_, self.stop_reason_ = facts["converged"], facts["reason"]
        self.solver_ = facts["solver"]
        self.history_, self.ledger_ = outcome.history, outcome.ledger
        self._adopt_nodes(facts, outcome.kept)
        if not self.converged_:
            warnings.warn(f"not converged: {self.stop_reason_}", NotConvergedWarning, stacklevel=3)

    @abstractmethod
    def _adopt_nodes(self, facts: dict[str, Any], kept: dict[str, dict[str, Any]]) -> None:
        """Turn what the nodes of this process keep into fitted attributes."""

    def _rows(self, X: Any) -> Array:
        check_is_fitted(self)
        if is_several_sites(X):
            raise InputError("transform takes one table of rows; call it once for each node, where the scores are to stay")
        return dense(check_new_rows(self, X, accept_sparse=["csr", "csc"]))

    def fit_transform(self, X: Any, y: Any = None, *, sites: Any = None) -> Any:
        """Fit on one matrix and return its scores; for several nodes use ``fit``, then ``transform`` for each node's rows."""
        if is_several_sites(X):
            raise InputError("fit_transform takes one matrix; call fit(X), then transform(rows, site=...) for each node")
        return self.fit(X, y, sites=sites).transform(X)


def as_given(scores: Array, X: Any) -> Any:
    """Scores in single precision if the rows were."""
    return scores.astype(np.float32) if getattr(X, "dtype", None) == np.float32 else scores


def _in_words(value: Any) -> str:
    if isinstance(value, np.ndarray) or hasattr(value, "__array__"):
        table = np.ascontiguousarray(value, dtype=np.float64)
        return f"table {table.shape} {hashlib.blake2b(table.tobytes(), digest_size=8).hexdigest()}"
    if callable(value):
        return f"function {function_name(value)}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return f"{type(value).__name__} {sorted(dataclasses.asdict(value).items())}"
    return repr(value)
