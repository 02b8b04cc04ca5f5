"""``GraphKernelPCA`` and ``GraphPCA``: nodes of a graph that talk to their neighbours only."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from ..algorithms.graph import baselines, features, projection_consensus
from ..algorithms.graph.features import dense
from ..algorithms.graph.network import GraphProblem, GraphSolution, Network
from ..errors import InputError, NotConvergedWarning, SiteElsewhereError
from ..kernels import Kernel, MeanFeatures, kernel_of
from ..linalg import Array
from ..runtime import Connection, Driver, Engine, Outcome, Plan, Program, RoundRecord, Spreading
from ..runtime.consensus import Graph
from .base import SiteEstimator
from .choices import GRAPH_METHODS, find_graph_method
from .graph_models import FeatureMap, FeatureModel, KernelModel, best_local_model, central_model
from .graphs import find_graph, natural_order
from .inputs import is_several_sites
from .plans import plan_of

REFERENCES = ("central", "best-local")
"""Baselines that need all rows in one place."""


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

    journal = None
    max_rounds = 1  # a journal's and a coordinator's word; here ``max_iterations`` ends a run
    n_components: int
    graph: Any
    method: Any
    center: bool
    max_iterations: int | None

    def _check_parameters(self) -> None:
        if not (isinstance(self.n_components, int | np.integer) and self.n_components >= 1):
            raise InputError(f"n_components={self.n_components!r} must be a whole number >= 1")
        if self.max_iterations is not None:
            self._check_limit("max_iterations", self.max_iterations)
        super()._check_parameters()

    def _find_graph(self, engine: Engine, held: tuple[str, ...]) -> Graph:
        names = engine.everyone(held) if isinstance(engine, Spreading) else held
        self.graph_: Graph = find_graph(self.graph, names)
        return self.graph_

    def _run(self, connection: Connection, *more: Any) -> Outcome:
        self.n_features_in_ = next(iter(connection.n_features().values()))
        return super()._run(connection, *more)

    def _plan(self, algorithm: Any) -> Plan:
        return plan_of(algorithm, self._iterations(algorithm), int(self.n_components))

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
            "method": algorithm.name,
            "seed": seed,
        }
        return Outcome({}, facts, driver.ledger, driver.history, results=RESULTS_OF[algorithm.name])

    def _adopt(self, outcome: Outcome) -> None:
        facts = outcome.facts
        self.n_features_in_ = facts["n_features"]
        self.sites_ = tuple(facts["nodes"])
        self.n_rounds_, self.n_setup_rounds_ = facts["rounds"], facts["setup_rounds"]
        self.n_iterations_ = facts["iterations"]
        self.converged_, self.stop_reason_ = facts["converged"], facts["reason"]
        self.method_ = facts["method"]
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
        return dense(validate_data(self, X, reset=False, accept_sparse=["csr", "csc"], dtype=[np.float64, np.float32]))

    def fit_transform(self, X: Any, y: Any = None, *, sites: Any = None) -> Any:
        """Fit on one matrix and return its scores; for several nodes use ``fit``, then ``transform`` for each node's rows."""
        if is_several_sites(X):
            raise InputError("fit_transform takes one matrix; call fit(X), then transform(rows, site=...) for each node")
        return self.fit(X, y, sites=sites).transform(X)


def _as_given(scores: Array, X: Any) -> Any:
    """Scores in single precision if the rows were."""
    return scores.astype(np.float32) if getattr(X, "dtype", None) == np.float32 else scores


RESULTS_OF = {
    "projection-consensus": projection_consensus.RESULTS,
    "random-features": features.RESULTS,
    "landmarks": features.RESULTS,
    "tracking": features.RESULTS,
    "own": baselines.RESULTS,
    "neighbourhood": baselines.RESULTS,
}


class GraphKernelPCA(GraphEstimator):
    """Kernel PCA of the rows of all nodes of a graph; nodes talk to their neighbours only.

    Parameters
    ----------
    n_components : int
    kernel : "rbf", "laplacian", "poly", "linear" or a function of two tables
        Normalised to K(x, x) = 1.  Under MPI a function's module must be imported on every rank.
    gamma, degree, coef0 : float
        Of the kernel; ``gamma=None`` is 1 / n_features.
    graph : networkx Graph, edge list, mapping or short name
        "ring:4" (every node has 4 neighbours), "grid", "regular:4", "erdos:0.3", "small-world:4", "complete".
    method : str or instance
        "projection-consensus" (Algorithm 1; rows go to neighbours), "random-features" and "landmarks" (no row leaves a node); the
        baselines "own", "neighbourhood" and, where this process holds all nodes, "central" and "best-local".
    center : bool
        Subtract the mean of all nodes' rows in feature space.
    landmarks : (m, n_features) array, optional
        Public rows: for method "landmarks", and to describe the mean with kernels that have no random features.
    tol : float, optional
    max_iterations : int, optional
        For each component; None is the method's own.
    random_state : int, RandomState or None
    engine : str or engine
        "inprocess" or "mpi".
    callback : callable, optional
        Called with a record whenever the nodes have agreed on how far they are.

    Attributes
    ----------
    models_ : node -> model
        Of the nodes that this process holds; ``transform(X, site=...)`` uses them.
    agreement_, coverage_ : float or None
        Of projection consensus, the least over components: cosine between neighbours' directions, and length of a node's
        direction, which is what its rows express of the common one.  Below 0.5 either is reported as a failure.
    node_history_ : node -> list of arrays (iterations x 4), one per component
        How far the direction moved, the constraint's residual, the node's part of the augmented Lagrangian (8), its length.
    converged_, stop_reason_, n_iterations_, n_rounds_, n_setup_rounds_, sites_, graph_, history_, ledger_, n_features_in_

    Examples
    --------
    >>> import numpy as np, eigenpact as ep
    >>> X = np.random.default_rng(0).normal(size=(120, 3)) * [3, 1, 1]
    >>> nodes = {f"n{j}": X[30 * j : 30 * j + 30] for j in range(4)}
    >>> pca = ep.GraphKernelPCA(1, gamma=0.05, graph="ring:2", random_state=0).fit(nodes)
    >>> central = ep.GraphKernelPCA(1, gamma=0.05, graph="ring:2", method="central").fit(nodes)
    >>> all(abs(cosine[0, 0]) > 0.95 for cosine in pca.similarity(central).values())
    True
    """

    models_: NodeResults

    def __init__(
        self,
        n_components: int = 1,
        *,
        kernel: Any = "rbf",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        graph: Any = "ring:4",
        method: Any = "projection-consensus",
        center: bool = True,
        landmarks: Any = None,
        tol: float | None = None,
        max_iterations: int | None = None,
        random_state: Any = None,
        engine: Any = "inprocess",
        callback: Callable[[RoundRecord], Any] | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.graph = graph
        self.method = method
        self.center = center
        self.landmarks = landmarks
        self.tol = tol
        self.max_iterations = max_iterations
        self.random_state = random_state
        self.engine = engine
        self.callback = callback

    def fit(self, X: Any = None, y: Any = None, *, sites: Any = None) -> GraphKernelPCA:
        """Fit on one matrix (with a node's name per row in ``sites``), a list of tables, or a dict of named tables."""
        if not (isinstance(self.method, str) and self.method in REFERENCES):
            return super().fit(X, y, sites=sites)
        # all rows in one place: every node is given the central answer, or the best its own rows allow
        base = GraphKernelPCA(**(self.get_params() | {"method": "own", "callback": None})).fit(X, sites=sites)
        if len(base.models_) < len(base.sites_):
            raise InputError(f"method={self.method!r} needs all rows in one process; here are {len(base.models_)} nodes")
        self.__dict__ |= {name: value for name, value in vars(base).items() if name.endswith("_") and not name.startswith("_")}
        rows = {node: base.models_[node].rows for node in natural_order(base.sites_)}
        central = central_model(base._kernel(), np.concatenate(list(rows.values())), int(self.n_components), bool(self.center))
        best = self.method == "best-local"
        self.models_ = NodeResults(
            self.sites_, {node: best_local_model(central, part) if best else central for node, part in rows.items()}
        )
        self.method_, self.stop_reason_ = self.method, "all rows in one place"
        return self

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.gamma is not None and not self.gamma > 0:
            raise InputError(f"gamma={self.gamma!r} must be a number > 0, or None for 1 / n_features")

    def _check_sizes(self, rows: int, features: int) -> None:  # noqa: ARG002
        if self.n_components > rows:
            raise InputError(f"n_components={self.n_components} must be at most the number of rows, {rows}")

    def _find_algorithm(self, engine: Engine) -> Any:  # noqa: ARG002
        return find_graph_method(self.method, exclude=("tracking",), more=REFERENCES)

    def _kernel(self) -> Kernel:
        return kernel_of(self.kernel, self.gamma, self.degree, self.coef0, self.n_features_in_)

    def _landmarks(self) -> Array | None:
        if self.landmarks is None:
            return None
        rows = np.ascontiguousarray(check_array(self.landmarks, dtype=np.float64))
        if rows.shape[1] != self.n_features_in_:
            raise InputError(f"landmarks have {rows.shape[1]} features, the nodes' rows {self.n_features_in_}")
        return rows

    def _adopt_nodes(self, facts: dict[str, Any], kept: dict[str, dict[str, Any]]) -> None:
        self.notes_ = facts["notes"]
        self.agreement_ = min(facts["notes"].get("agreement", ()), default=None)
        self.coverage_ = min(facts["notes"].get("coverage", ()), default=None)
        self.models_ = NodeResults(self.sites_, {node: self._model(found, facts["seed"]) for node, found in kept.items()})
        history = {node: found["history"] for node, found in kept.items() if "history" in found}
        self.node_history_ = NodeResults(self.sites_, history)
        self.node_iterates_ = NodeResults(self.sites_, {n: found["iterates"] for n, found in kept.items() if "iterates" in found})

    def _model(self, found: dict[str, Any], seed: int) -> FeatureModel | KernelModel:
        kernel, landmarks = self._kernel(), self._landmarks()
        public = np.zeros((0, self.n_features_in_)) if landmarks is None else landmarks
        method = find_graph_method(self.method)
        if "components" in found:
            count = method.n_features // 2 if method.name == "random-features" else 0
            return FeatureModel(FeatureMap(kernel, public, count, seed), found["components"], found["mean"])
        if "table" in found:
            return KernelModel(kernel, found["table"], found["alpha"], found["mean values"], found["centre square"])
        n, described = len(found["alpha"]), "feature mean" in found
        count = 0 if landmarks is not None else method.centring_features // 2
        return KernelModel(
            kernel,
            found["own table"],
            found["alpha"],
            found.get("mean values", np.zeros(n))[:n],
            found.get("centre square", 0.0),
            MeanFeatures(kernel, found["basis"], count, seed) if described else None,
            found.get("feature mean", np.zeros(0)),
        )

    # -- using ----------------------------------------------------------------------------------

    def transform(self, X: Any, *, site: str | None = None) -> Any:
        """Scores (n, k) of rows (n, n_features), as the node ``site`` computes them; None: the first node of this process."""
        rows = self._rows(X)
        model = self.models_[site if site is not None else natural_order(self.models_)[0]]
        return _as_given(model.scores(rows), X)

    def similarity(self, central: GraphKernelPCA) -> dict[str, Array]:
        """Node -> cosines (k x l) between its directions and those of a central fit: the paper's similarity, with sign."""
        reference = next(iter(central.models_.values()))
        return {node: self._kernel_model(node).cosines(reference) for node in natural_order(self.models_)}

    def iterate_similarity(self, central: GraphKernelPCA, component: int = 0) -> Array:
        """Absolute cosines (iterations x nodes) of the first component's iterates with a central fit's first direction."""
        reference = next(iter(central.models_.values()))
        columns = []
        for node in natural_order(self.node_iterates_):
            model = self._kernel_model(node)
            iterates = KernelModel(model.kernel, model.rows, self.node_iterates_[node][component].T, model.means, model.square)
            columns.append(np.abs(iterates.cosines(reference)[:, component]))
        return np.array(columns).T

    def _kernel_model(self, node: str) -> KernelModel:
        model = self.models_[node]
        if not isinstance(model, KernelModel):
            raise InputError(f"method {self.method_!r} has directions in a space of features; compare scores on new rows instead")
        return model

    @property
    def lagrangian_(self) -> list[Array]:
        """The augmented Lagrangian (8) after every iteration, one array per component; needs all nodes in this process."""
        if len(self.node_history_) < len(self.sites_):
            raise SiteElsewhereError("the Lagrangian is a sum over all nodes, and not all are in this process")
        per_node = list(self.node_history_.values())
        return [np.sum([history[c][:, 2] for history in per_node], axis=0) for c in range(len(per_node[0]))]

    @property
    def lagrangian_rises_(self) -> list[int]:
        """In how many iterations the augmented Lagrangian rose, by component; Theorem 2 of the paper says in none."""
        return [int(np.sum(np.diff(values) > 1e-12 * np.abs(values[1:]))) for values in self.lagrangian_]

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components)


class GraphPCA(GraphEstimator):
    """Exact PCA of the rows of all nodes of a graph, by gradient-tracking subspace iteration; no row leaves a node.

    Parameters
    ----------
    n_components, graph, center, tol, max_iterations, random_state, engine, callback
        As for ``GraphKernelPCA``; ``tol`` bounds the Ritz residual over the trace, 1e-11 by default.
    method : str or instance
        "tracking", or ``ep.Tracking(columns=...)``.

    Attributes
    ----------
    components_ : (k, n_features) array
        As the first node of this process has them; ``node_components_[node]`` is each node's own.
    explained_variance_ : (k,) array
    mean_ : (n_features,) array
    converged_, stop_reason_, n_iterations_, n_rounds_, n_setup_rounds_, sites_, graph_, history_, ledger_, n_features_in_

    Examples
    --------
    >>> import numpy as np, eigenpact as ep
    >>> X = np.random.default_rng(0).normal(size=(60, 4)) * [5, 3, 1, 1]
    >>> pca = ep.GraphPCA(2, graph="ring:2", random_state=0).fit([X[:20], X[20:40], X[40:]])
    >>> pca.components_.shape, pca.converged_
    ((2, 4), True)
    """

    def __init__(
        self,
        n_components: int = 1,
        *,
        graph: Any = "ring:4",
        method: Any = "tracking",
        center: bool = True,
        tol: float | None = None,
        max_iterations: int | None = None,
        random_state: Any = None,
        engine: Any = "inprocess",
        callback: Callable[[RoundRecord], Any] | None = None,
    ) -> None:
        self.n_components = n_components
        self.graph = graph
        self.method = method
        self.center = center
        self.tol = tol
        self.max_iterations = max_iterations
        self.random_state = random_state
        self.engine = engine
        self.callback = callback

    def _check_sizes(self, rows: int, features: int) -> None:
        if self.n_components > min(rows, features):
            raise InputError(f"n_components={self.n_components} must be at most min(n_samples, n_features)={min(rows, features)}")

    def _find_algorithm(self, engine: Engine) -> Any:  # noqa: ARG002
        return find_graph_method(self.method, exclude=tuple(name for name in GRAPH_METHODS if name != "tracking"))

    def _kernel(self) -> Kernel:
        return Kernel("linear", 1.0)

    def _adopt_nodes(self, facts: dict[str, Any], kept: dict[str, dict[str, Any]]) -> None:  # noqa: ARG002
        self.node_components_ = NodeResults(self.sites_, {node: found["components"].T for node, found in kept.items()})
        for node in natural_order(kept)[:1]:
            found = kept[node]
            self.components_, self.mean_ = found["components"].T, found["mean"]
            self.explained_variance_ = found["eigenvalues"] / (float(found["rows"]) - 1.0 / len(self.sites_))

    def transform(self, X: Any, *, site: str | None = None) -> Any:
        """Scores (n, k) of rows (n, n_features), with the components of node ``site``; None: the first node of this process."""
        components = self.components_ if site is None else self.node_components_[site]
        return _as_given((self._rows(X) - self.mean_) @ components.T, X)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components)
