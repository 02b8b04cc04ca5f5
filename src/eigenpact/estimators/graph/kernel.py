"""``GraphKernelPCA``: kernel PCA of the rows of all nodes of a graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, check_is_fitted

from ...algorithms.graph.network import GraphSolution
from ...data.checks import check_not_masked, check_real
from ...errors import InputError, SiteElsewhereError
from ...numerics.kernels import Kernel, function_name, kernel_of
from ...numerics.linalg import Array
from ...numerics.mean_features import MeanFeatures
from ...runtime import Engine, RoundRecord
from ..choices import find_solver
from ..results import OfSites, Result
from .base import GraphEstimator, GraphResult, as_given
from .graphs import natural_order
from .models import FeatureMap, FeatureModel, KernelModel, best_local_model, central_model

REFERENCES = ("central", "best-local")
"""Baselines that need all rows in one place."""


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelResult(GraphResult):
    """Attributes of a fitted :class:`GraphKernelPCA` that all processes know."""

    agreement: float | None
    coverage: float | None


class GraphKernelPCA(GraphEstimator):
    """Kernel PCA of the rows of all nodes of a graph; nodes talk to their neighbours only.

    Parameters
    ----------
    n_components : int
    kernel : "rbf", "laplacian", "poly", "linear" or a function of two tables
        Normalised to K(x, x) = 1.  A function goes to nodes by name if importing that name gives the function, and its module
        must then be imported on every rank; any other function works in one process only.
    gamma, degree, coef0 : float
        Of the kernel; ``gamma=None`` is 1 / n_features.
    graph : networkx Graph, edge list, mapping or short name
        "ring:4" (every node has 4 neighbours), "grid", "regular:4", "erdos:0.3", "small-world:4", "complete".
    solver : str or instance
        "projection-consensus" (Algorithm 1; rows go to neighbours), "random-features" and "landmarks" (sums over a
        node's rows do, which tell neighbours much, see docs/explanation/what-leaves-a-site.md); the
        baselines "own", "neighbourhood" and, where this process holds all nodes, "central" and "best-local".
    center : bool
        Subtract the mean of all nodes' rows in feature space.
    landmarks : (m, n_features) array, optional
        Public rows: for solver "landmarks", and to describe the mean with kernels that have no random features.
    tol : float, optional
    max_iterations : int, optional
        For each component; None is the solver's own.
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
    notes_ : dict
        By component, of projection consensus: iterations, agreement, coverage, what is left of the mean in all projections'
        squares ("constant"), how much of the component before was removed ("share"), how near the next one is ("tied").
    node_history_ : node -> list of arrays (iterations x 5), one per component
        How far the direction moved, the constraint's residual, the node's parts of ``lagrangian_`` and
        ``lagrangian_after_update_``, its length.
    converged_, stop_reason_, n_iterations_, n_rounds_, n_setup_rounds_, sites_, graph_, history_, ledger_, n_features_in_

    Examples
    --------
    >>> import numpy as np, eigenpact as ep
    >>> X = np.random.default_rng(0).normal(size=(120, 3)) * [3, 1, 1]
    >>> nodes = {f"n{j}": X[30 * j : 30 * j + 30] for j in range(4)}
    >>> pca = ep.GraphKernelPCA(1, gamma=0.05, graph="ring:2", random_state=0).fit(nodes)
    >>> central = ep.GraphKernelPCA(1, gamma=0.05, graph="ring:2", solver="central").fit(nodes)
    >>> all(abs(cosine[0, 0]) > 0.95 for cosine in pca.similarity(central).values())
    True
    """

    models_: OfSites
    _seed_in_use: int
    _result_type = KernelResult

    def __init__(
        self,
        n_components: int = 1,
        *,
        kernel: Any = "rbf",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        graph: Any = "ring:4",
        solver: Any = "projection-consensus",
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
        self.solver = solver
        self.center = center
        self.landmarks = landmarks
        self.tol = tol
        self.max_iterations = max_iterations
        self.random_state = random_state
        self.engine = engine
        self.callback = callback

    def fit(self, X: Any = None, y: Any = None, *, sites: Any = None) -> GraphKernelPCA:
        """Fit on one matrix (with a node's name per row in ``sites``), a list of tables, or a dict of named tables."""
        if not (isinstance(self.solver, str) and self.solver in REFERENCES):
            return super().fit(X, y, sites=sites)
        # all rows in one place: every node is given the central answer, or the best its own rows allow
        base = GraphKernelPCA(**(self.get_params() | {"n_components": 1, "solver": "own", "callback": None})).fit(X, sites=sites)
        if len(base.models_) < len(base.sites_):
            raise InputError(f"solver={self.solver!r} needs all rows in one process; here are {len(base.models_)} nodes")
        self.__dict__ |= {name: value for name, value in vars(base).items() if name.endswith("_") and not name.startswith("_")}
        rows = {node: base.models_[node].rows for node in natural_order(base.sites_)}
        central = central_model(base._kernel(), np.concatenate(list(rows.values())), int(self.n_components), bool(self.center))
        best = self.solver == "best-local"
        self.models_ = self._of_nodes({node: best_local_model(central, part) if best else central for node, part in rows.items()})
        self.solver_, self.stop_reason_ = self.solver, "all rows in one place"
        return self

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.gamma is not None and not (isinstance(self.gamma, Real) and 0 < self.gamma < math.inf):
            raise InputError(f"gamma={self.gamma!r} must be a number > 0, or None for 1 / n_features")
        if self.kernel == "poly" and not (self.degree >= 1 and float(self.degree).is_integer() and self.coef0 >= 0):
            raise InputError(f"degree={self.degree!r}, coef0={self.coef0!r}: 'poly' needs a whole degree >= 1 and coef0 >= 0")

    def _check_sizes(self, rows: int, features: int) -> None:
        if self.n_components > rows:
            raise InputError(f"n_components={self.n_components} must be at most the number of rows, {rows}")
        if self.kernel == "linear" and self.n_components > features:
            raise InputError(f"n_components={self.n_components} must be at most n_features={features} with kernel 'linear'")

    def _find_algorithm(self, engine: Engine) -> Any:
        if engine.spread and callable(self.kernel) and function_name(self.kernel) is None:
            raise InputError(
                f"kernel={self.kernel!r} cannot be imported by name, so nodes of other processes cannot find it; put it in a "
                "module that every process imports"
            )
        return find_solver("GraphKernelPCA", self.solver, REFERENCES)

    def _kernel(self) -> Kernel:
        return kernel_of(self.kernel, self.gamma, self.degree, self.coef0, self.n_features_in_)

    def _landmarks(self) -> Array | None:
        if self.landmarks is None:
            return None
        check_not_masked("landmarks", self.landmarks)
        check_real("landmarks", self.landmarks)
        rows = np.ascontiguousarray(check_array(self.landmarks, dtype=np.float64))
        if rows.shape[1] != self.n_features_in_:
            raise InputError(f"landmarks have {rows.shape[1]} features, the nodes' rows {self.n_features_in_}")
        return rows

    def _result(self, found: tuple[GraphSolution, int], **told: Any) -> KernelResult:
        notes = found[0].notes
        least: dict[str, Any] = {name: min(notes.get(name, ()), default=None) for name in ("agreement", "coverage")}
        return KernelResult(**self._facts(found), **least, **told)

    def _adopt(self, result: Result, kept: Mapping[str, Mapping[str, Any]]) -> None:
        super()._adopt(result, kept)
        self.models_ = self._of_nodes(self._models(kept))
        history = {node: found["history"] for node, found in kept.items() if "history" in found}
        self.node_history_ = self._of_nodes(history, "the history")
        iterates = {node: found["iterates"] for node, found in kept.items() if len(found.get("iterates", ((),))[0])}
        self.node_iterates_ = self._of_nodes(iterates, "what was kept")

    def _models(self, kept: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The models of the nodes of this process, of what they keep; they share the kernel and the public rows."""
        kernel, landmarks, solver = self._kernel(), self._landmarks(), find_solver("GraphKernelPCA", self.solver, REFERENCES)
        public = np.zeros((0, self.n_features_in_)) if landmarks is None else landmarks
        count = solver.n_features // 2 if solver.name == "random-features" else 0
        features = FeatureMap(kernel, public, count, self._seed_in_use)
        return {
            node: FeatureModel(features, found["components"], found["mean"])
            if "components" in found
            else self._kernel_model_of(
                found, kernel, 0 if landmarks is not None else getattr(solver, "centring_features", 0) // 2
            )
            for node, found in kept.items()
        }

    def _kernel_model_of(self, found: Mapping[str, Any], kernel: Kernel, count: int) -> KernelModel:
        if "table" in found:
            return KernelModel(kernel, found["table"], found["alpha"], found["mean values"], found["centre square"])
        n, described = len(found["alpha"]), "feature mean" in found
        return KernelModel(
            kernel,
            found["rows"],
            found["alpha"],
            found.get("mean values", np.zeros(n))[:n],
            found.get("centre square", 0.0),
            MeanFeatures(kernel, found["basis"], count, self._seed_in_use) if described else None,
            found.get("feature mean", np.zeros(0)),
        )

    # -- using ----------------------------------------------------------------------------------

    def transform(self, X: Any, *, site: str | None = None) -> Any:
        """Scores (n, k) of rows (n, n_features), as the node ``site`` computes them; None: the first node of this process.

        With projection consensus the mean's values at new rows are those of its features, without the correction that a node's
        own rows have from the neighbours': scores may be shifted a little, all by nearly the same.
        """
        check_is_fitted(self)
        rows = self._rows(X)
        model = self.models_[site if site is not None else natural_order(self.models_)[0]]
        return as_given(model.scores(rows), X)

    def similarity(self, central: GraphKernelPCA) -> dict[str, Array]:
        """Node -> cosines (k x l) between its directions and those of a central fit: the paper's similarity, with sign."""
        reference = self._reference(central)
        return {node: self._kernel_model(node).cosines(reference) for node in natural_order(self.models_)}

    def iterate_similarity(self, central: GraphKernelPCA, component: int = 0) -> Array:
        """Absolute cosines (iterations x nodes) of a component's iterates with a central fit's direction.

        Needs a fit with ``solver=ep.solvers.ProjectionConsensus(keep_iterates=True)``.
        """
        reference = self._reference(central)
        if not self.node_iterates_:
            raise InputError(
                "this fit kept no iterates; fit two nodes or more with solver=ep.solvers.ProjectionConsensus(keep_iterates=True)"
            )
        columns = []
        for node in natural_order(self.node_iterates_):
            model = self._kernel_model(node)
            iterates = KernelModel(model.kernel, model.rows, self.node_iterates_[node][component].T, model.means, model.square)
            columns.append(np.abs(iterates.cosines(reference)[:, component]))
        return np.array(columns).T

    def _reference(self, central: GraphKernelPCA) -> KernelModel:
        check_is_fitted(self)
        check_is_fitted(central)
        if central.solver_ != "central":
            raise InputError(f"similarity is with a fit of solver='central', and this one is of {central.solver_!r}")
        model: KernelModel = next(iter(central.models_.values()))
        return model

    def _kernel_model(self, node: str) -> KernelModel:
        model = self.models_[node]
        if not isinstance(model, KernelModel):
            raise InputError(f"solver {self.solver_!r} has directions in a space of features; compare scores on new rows instead")
        return model

    @property
    def lagrangian_(self) -> list[Array]:
        """The augmented Lagrangian (8) of Theorem 2, L(alpha^t, Z^t, eta^t), t = 0, 1, ...: one array per component.

        Z^t is what (10) and (11) make of alpha^t and eta^t.  Needs all nodes in this process.
        """
        return self._summed(2)

    @property
    def lagrangian_after_update_(self) -> list[Array]:
        """L(alpha^(t+1), Z^t, eta^(t+1)), after (12) and (13) and before Z is made anew; this is not Theorem 2's sequence."""
        return self._summed(3)

    def _summed(self, column: int) -> list[Array]:
        """A column of the nodes' histories, summed over nodes, by component."""
        check_is_fitted(self)
        if self.solver_ != "projection-consensus":
            raise InputError(f"solver {self.solver_!r} has no augmented Lagrangian; projection consensus has")
        if len(self.node_history_) < len(self.sites_):
            raise SiteElsewhereError("the Lagrangian is a sum over all nodes, and not all are in this process")
        per_node = list(self.node_history_.values())
        return [np.sum([history[c][:, column] for history in per_node], axis=0) for c in range(len(per_node[0]))]

    @property
    def lagrangian_rises_(self) -> list[int]:
        """In how many iterations ``lagrangian_`` rose, by component.

        Theorem 2 of the paper says in none, if rho is constant and as large as Assumption 2 asks; it can rise all the same.
        """
        return [int(np.sum(np.diff(values) > 1e-12 * np.abs(values[1:]))) for values in self.lagrangian_]

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components)
