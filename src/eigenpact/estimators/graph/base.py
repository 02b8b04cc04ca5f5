"""What ``GraphKernelPCA`` and ``GraphPCA`` share: nodes of a graph that talk to their neighbours only."""

from __future__ import annotations

import dataclasses
import hashlib
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...algorithms.graph.features import dense
from ...algorithms.graph.network import GraphProblem, GraphSolution, Network
from ...errors import InputError
from ...numerics.kernels import Kernel, function_name
from ...numerics.linalg import Array
from ...runtime import Connection, Engine, Plan, Program, Spreading
from ...runtime.consensus import Graph
from ..base import SiteEstimator
from ..inputs import check_new_rows
from ..plans import plan_of
from ..results import PRIVATE, OfSites, Result
from .graphs import find_graph


@dataclass(frozen=True, eq=False, kw_only=True)
class GraphResult(Result):
    """Attributes of a fitted estimator on a graph that all processes know.

    ``notes`` is what the solver tells besides.
    """

    n_iterations: int
    notes: dict[str, Any]
    seed_in_use: int = field(metadata=PRIVATE)


class GraphEstimator(SiteEstimator):
    """What estimators on a graph share: the graph, the program, and results that stay at their nodes."""

    n_components: int
    graph: Any
    solver: Any
    center: bool
    max_iterations: int | None
    _computes_there = True
    _result_type: type[Result] = GraphResult

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

    def _network(self) -> Network:
        """What is known of the graph, found out once."""
        known: Network | None = self.__dict__.get("_known_network")
        if known is None or known.graph is not self.graph_:
            known = self._known_network = Network(self.graph_)
        return known

    def _told(self) -> dict[str, str]:
        """Parameters by name, in words that are the same for the same values: every process builds its models by its own."""
        apart = ("engine", "callback", "random_state", "graph")  # the seed in use is told to all, and graphs are compared as such
        return {name: _in_words(value) for name, value in self.get_params(deep=False).items() if name not in apart}

    def _meet(self, connection: Connection, order: tuple[str, ...]) -> None:  # noqa: ARG002
        self.n_features_in_ = next(iter(connection.n_features().values()))

    def _plan(self, algorithm: Any) -> Plan:
        rounds = algorithm.most_rounds(self._network(), self._iterations(algorithm), int(self.n_components))
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
            network=self._network(),
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

    def _result(self, found: tuple[GraphSolution, int], **told: Any) -> GraphResult:
        return GraphResult(**self._facts(found), **told)

    def _facts(self, found: tuple[GraphSolution, int]) -> dict[str, Any]:
        """Fields of a result that belong to the solution."""
        solution, seed = found
        return {
            "n_features_in": self.n_features_in_,
            "n_iterations": solution.iterations,
            "converged": solution.converged,
            "stop_reason": solution.reason,
            "notes": solution.notes,
            "seed_in_use": seed,
        }

    def _of_nodes(self, held: dict[str, Any], what: str = "the model") -> OfSites:
        """What the nodes of this process have, by name."""
        return OfSites(self.sites_, held, what, "ask the process that holds it", "node")

    def _rows(self, X: Any) -> Array:
        return dense(check_new_rows(self, X, accept_sparse=["csr", "csc"]))


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
