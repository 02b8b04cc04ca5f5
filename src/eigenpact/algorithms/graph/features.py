"""Kernel PCA without sending rows: features whose inner products are the kernel, then exact PCA of the features on the graph.

Problem
    Node j holds rows X_j (n_j x d).  Find the leading k directions of all nodes' phi(x), without sending tables of rows.

Rounds
    1. every node maps its rows to the same m features:  random features cos(w.x), sin(w.x) with frequencies w from a shared
       seed, orthogonal in blocks, so that <z(x), z(y)> ~ K(x, y);  or, with public landmark rows L, K(x, L) R with
       R R^T = K(L, L)^-1, the projection on the span of phi(L);  or the rows themselves, which is PCA
    2. sums and counts go along a ``tree``, so that features are centred at the mean of all rows
    3. block Krylov along the tree (``tree_krylov``);  for the rows themselves averages by ``gossip`` and gradient-tracking
       subspace iteration (``tracking``)

Leaves the site
    To one neighbour, the node's parent in the tree: the sum of the features of its rows and of those of all behind it (m), then
    m x b products with their covariance.  Of a node with nobody behind it both are unmixed.  No message is a table of rows, but
    sums over few rows are nearly rows: with one row the first message is its feature, and random features of a known seed give
    the row itself; with no more rows than columns b the products give the rows' span.  Nodes with fewer than ``min_rows`` rows
    are refused.  ``tree_krylov`` and ``tracking`` say what a neighbour learns that keeps everything.

Cost
    As ``tree_krylov``, with m features: 2048 random features, or as many as there are landmarks; for rows as ``tracking``.

Differences from the paper
    The paper on kernel PCA by projection consensus names random features as future work (Section 7).

References
    A. Rahimi, B. Recht, "Random features for large-scale kernel machines", NIPS 2007; F. Yu et al., "Orthogonal random features",
    NIPS 2016; C. Williams, M. Seeger, "Using the Nystrom method to speed up kernel machines", NIPS 2000.

>>> import numpy as np, eigenpact as ep
>>> X = np.random.default_rng(0).normal(size=(90, 5))
>>> pca = ep.GraphKernelPCA(1, solver="random-features", graph="ring:2", random_state=0).fit([X[:20], X[20:50], X[50:]])
>>> pca.transform(X, site="site0").shape
(90, 1)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from ...errors import InputError
from ...numerics.elsewhere import is_elsewhere, namespace, to_numpy
from ...numerics.kernels import Kernel
from ...numerics.kernels_there import landmark_kernel_there, random_features_there
from ...numerics.linalg import Array
from ...numerics.sources import RowSource
from ...runtime import Local, Reply, Site, local
from ..method import method
from ..parameters import check, check_whole
from . import tracking, tree_krylov
from .gossip import GOSSIP, NOW
from .network import GraphProblem, GraphSolution, Network
from .tracking import TRACKING, track
from .tree import TREE
from .tree_krylov import METRIC, TREE_KRYLOV, solve

RESULTS = ("components", "mean", "eigenvalues", "rows")
"""What nodes keep of the answer: directions (m x k) and mean (m) in feature space, eigenvalues of A (k), mean number of rows."""

FEWEST_ROWS = 5
"""A node that has neighbours needs so many rows, unless a method's ``min_rows`` says otherwise."""


@local(takes={"kernel": "c", "count": "", "seed": "", "fewest": ""}, keeps=("features", NOW))
def map_randomly(site: Site, kernel: Any, count: Any, seed: Any, fewest: Any) -> Reply:
    """Random features of the node's rows."""
    given, X = Kernel.unpacked(kernel), dense_there(site.X)
    if is_elsewhere(X):
        return _begin(site, random_features_there(given, X, int(count), int(seed)), int(fewest))
    return _begin(site, given.random_features(X, int(count), int(seed), exact=False), int(fewest))


@local(takes={"kernel": "c", "landmarks": "m d", "fewest": ""}, keeps=("features", NOW, METRIC))
def map_to_landmarks(site: Site, kernel: Any, landmarks: Any, fewest: Any) -> Reply:
    """The kernel between the node's rows and landmarks; Nystrom features are that times the metric."""
    K, root = landmark_kernel_there(Kernel.unpacked(kernel), dense_there(site.X), landmarks)
    begun = _begin(site, K, int(fewest))
    return Reply(keep={**begun.keep, METRIC: root})


@local(takes={"fewest": ""}, keeps=("features", NOW))
def take_rows(site: Site, fewest: Any) -> Reply:
    """The rows themselves."""
    return _begin(site, dense_there(site.X), int(fewest))


def _begin(site: Site, F: Any, fewest: int) -> Reply:
    """Keep features (n_j x m); put their sums and number forward to be averaged."""
    rows = F.shape[0]
    if rows < fewest and site.neighbours:
        raise InputError(
            f"it has {rows} rows, fewer than min_rows={fewest}, and sums over so few would show its neighbours nearly the rows "
            "themselves; join it with another node, or lower the method's min_rows if neighbours may see them"
        )
    sums = to_numpy(namespace(F).sum(F, axis=0, dtype=namespace(F).float64))
    return Reply(keep={"features": F, NOW: np.append(sums, rows)[:, None]})


def dense_there(X: Any) -> Any:
    """Rows as a table in double precision, of another library where they are."""
    return namespace(X).astype(X, namespace(X).float64) if is_elsewhere(X) else dense(X)


def dense(X: Any) -> Array:
    """Rows as a float64 table of numpy."""
    X = X[:] if isinstance(X, RowSource) else to_numpy(X) if is_elsewhere(X) else X
    return np.asarray(X.toarray() if scipy.sparse.issparse(X) else X, dtype=np.float64)


class Tracked:
    """What the three methods share.

    Parameters
    ----------
    columns : int
        Columns to iterate with, besides the components wanted: more take fewer iterations, each of them larger.
    min_rows : int
        A node with neighbours and fewer rows is refused: the first sums that it sends would nearly be its rows.
    """

    columns: int
    min_rows: int

    def __post_init__(self) -> None:
        check_whole("columns", self.columns, 0)
        check_whole("min_rows", self.min_rows)

    @staticmethod
    def most_rounds(network: Network, iterations: int, k: int) -> int:  # noqa: ARG004
        """No fit takes more."""
        return tree_krylov.most_rounds(network, iterations)


@method("graph", {Local: (map_randomly,)}, parts=(TREE, TREE_KRYLOV), results=RESULTS)
class RandomFeatures(Tracked):
    """Kernel PCA by random features.

    Parameters
    ----------
    n_features : int
        Random features, an even number; errors shrink as its square root grows.
    columns, min_rows : int
        Columns to iterate with, besides the components wanted; and the fewest rows that a node with neighbours may have.
    """

    n_features: int = 2048
    columns: int = 4
    min_rows: int = FEWEST_ROWS

    name = "random-features"
    default_tol = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        even = self.n_features >= 2 and self.n_features % 2 == 0
        check("n_features", self.n_features, even, "an even number >= 2: a cosine and a sine of each frequency")

    async def fit(self, problem: GraphProblem) -> GraphSolution:
        """Map, centre, iterate."""
        count, seed = np.int64(self.n_features // 2), np.int64(problem.seed)
        problem.kernel.frequencies(problem.n_features, int(count), int(seed))  # refuses a kernel without, before anything runs
        await Local(map_randomly, problem.kernel.packed(), count, seed, np.int64(self.min_rows))
        return await solve(problem, self.columns, self.default_tol, self.n_features)


@method("graph", {Local: (map_to_landmarks,)}, parts=(TREE, TREE_KRYLOV), results=RESULTS)
class Landmarks(Tracked):
    """Kernel PCA on the span of public rows.  ``columns``, ``min_rows``: as for RandomFeatures."""

    columns: int = 4
    min_rows: int = FEWEST_ROWS

    name = "landmarks"
    default_tol = 1e-6

    async def fit(self, problem: GraphProblem) -> GraphSolution:
        """Map, centre, iterate."""
        if problem.landmarks is None:
            raise InputError("solver 'landmarks' needs public rows: pass landmarks=, a table with the same features")
        await Local(map_to_landmarks, problem.kernel.packed(), problem.landmarks, np.int64(self.min_rows))
        return await solve(problem, self.columns, self.default_tol, len(problem.landmarks))


@method("graph", {Local: (take_rows,)}, parts=(GOSSIP, TRACKING), results=RESULTS, estimator="GraphPCA")
class Tracking(Tracked):
    """PCA of the rows themselves.  ``columns``, ``min_rows``: as for RandomFeatures."""

    columns: int = 4
    min_rows: int = FEWEST_ROWS

    name = "tracking"
    default_tol = 1e-11

    @staticmethod
    def most_rounds(network: Network, iterations: int, k: int) -> int:  # noqa: ARG004
        """No fit takes more."""
        return tracking.most_rounds(network, iterations)

    async def fit(self, problem: GraphProblem) -> GraphSolution:
        """Centre, iterate."""
        await Local(take_rows, np.int64(self.min_rows))
        return await track(problem, self.columns, self.default_tol, problem.n_features)
