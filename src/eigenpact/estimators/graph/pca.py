"""``GraphPCA``: exact PCA of the rows of all nodes of a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sklearn.utils.validation import check_is_fitted

from ...errors import InputError
from ...numerics.kernels import Kernel
from ...runtime import Engine, RoundRecord
from ..choices import find_solver
from ..results import Result
from .base import GraphEstimator, as_given
from .graphs import natural_order


class GraphPCA(GraphEstimator):
    """Exact PCA of the rows of all nodes of a graph, by gradient-tracking subspace iteration.

    Rows as such are not sent, but sums and products of them are, and a neighbour that keeps all it gets may learn a node's whole
    scatter matrix: see docs/explanation/what-leaves-a-site.md.

    Parameters
    ----------
    n_components, graph, center, tol, max_iterations, random_state, engine, callback
        As for ``GraphKernelPCA``; ``tol`` bounds the Ritz residual over the trace, 1e-11 by default: a
        component with a small share s of the variance has about tol / s of its own size as error.
    solver : str or instance
        "tracking", or ``ep.solvers.Tracking(columns=...)``.

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
        solver: Any = "tracking",
        center: bool = True,
        tol: float | None = None,
        max_iterations: int | None = None,
        random_state: Any = None,
        engine: Any = "inprocess",
        callback: Callable[[RoundRecord], Any] | None = None,
    ) -> None:
        self.n_components = n_components
        self.graph = graph
        self.solver = solver
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
        return find_solver("GraphPCA", self.solver)

    def _kernel(self) -> Kernel:
        return Kernel("linear", 1.0)

    def _adopt(self, result: Result, kept: Mapping[str, Mapping[str, Any]]) -> None:
        super()._adopt(result, kept)
        self.node_components_ = self._of_nodes({node: found["components"].T for node, found in kept.items()})
        self.node_means_ = self._of_nodes({node: found["mean"] for node, found in kept.items()})
        for node in natural_order(kept)[:1]:
            found = kept[node]
            self.components_, self.mean_ = found["components"].T, found["mean"]
            self.explained_variance_ = found["eigenvalues"] / (float(found["rows"]) - 1.0 / len(self.sites_))

    def transform(self, X: Any, *, site: str | None = None) -> Any:
        """Scores (n, k) of rows (n, n_features), with mean and components of node ``site``; None: the first one here."""
        check_is_fitted(self)
        node = natural_order(self.node_components_)[0] if site is None else site
        return as_given((self._rows(X) - self.node_means_[node]) @ self.node_components_[node].T, X)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components)
