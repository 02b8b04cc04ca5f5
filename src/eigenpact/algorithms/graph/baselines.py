"""What a node finds without projection consensus: kernel PCA of its own rows, or of its own and its neighbours'.

Problem
    Node j holds rows X_j and may see its neighbours'.  Find the leading k directions of the rows it has.

Rounds
    1. ("neighbourhood" only) every node sends its rows to its neighbours
    2. every node centres its kernel matrix at its own mean and takes the leading eigenvectors

Leaves the site
    Nothing ("own"), or the rows (n_j x d), to the neighbours ("neighbourhood").

Cost
    One round or none; one eigenproblem of the size of the rows seen.

Differences from the paper
    None: these are its baselines (alpha_j)_local of Figure 4 and (alpha_j)_Nei of Figure 5.  The paper does not say whether the
    latter has a coefficient for every row seen or only for the node's own; ``projected`` is the second.

References
    F. He, R. Yang, L. Shi, X. Huang, "A decentralized framework for kernel PCA with projection consensus constraints",
    Section 6.2.

>>> import numpy as np, eigenpact as ep
>>> X = np.random.default_rng(0).normal(size=(40, 3))
>>> ep.GraphKernelPCA(1, solver="own", graph="ring:2").fit([X[:20], X[20:]]).ledger_.since(0)
[]
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import InputError
from ...numerics.kernels import Kernel
from ...numerics.linalg import fix_signs, top_eigenpairs
from ...runtime import Exchange, Local, Reply, Site, local
from ..method import method
from .features import dense
from .neighbourhood import send_rows
from .network import GraphProblem, GraphSolution, Network

RESULTS = ("table", "alpha", "mean values", "centre square")
"""What nodes keep of the answer: the rows seen, coefficients (n x k), row means of the kernel (n) and their mean."""


@local(takes={"kernel": "c", "k": "", "center": "", "projected": ""}, keeps=RESULTS)
def node_directions(site: Site, kernel: Any, k: Any, center: Any, projected: Any) -> Reply:
    """Kernel PCA of the rows seen here, perhaps projected on the span of the node's own."""
    X = np.concatenate([dense(site.X), *(site.inbox[name][0] for name in sorted(site.inbox))])
    if int(k) > len(X):
        raise InputError(f"{len(X)} rows give at most as many components, not n_components={int(k)}; ask for fewer")
    K = Kernel.unpacked(kernel)(X, X)
    means = K.mean(axis=0) if center else np.zeros(len(K))
    square = float(means.mean())
    G, n = K - means - means[:, None] + square, site.X.shape[0]
    values, vectors = top_eigenpairs(G, int(k))
    alpha = fix_signs(vectors) / np.sqrt(np.maximum(values, np.finfo(float).tiny))
    if projected:
        own = np.linalg.pinv(G[:n, :n], rcond=1e-6, hermitian=True) @ (G[:n] @ alpha)
        alpha = np.concatenate([own, np.zeros_like(alpha[n:])])
    return Reply(keep={"table": X, "alpha": alpha, "mean values": means, "centre square": square})


@method("graph", {Local: (node_directions,)}, role="baseline", results=RESULTS)
class Own:
    """Every node for itself."""

    name = "own"
    default_tol = 0.0

    @staticmethod
    def most_rounds(network: Network, iterations: int, k: int) -> int:  # noqa: ARG004
        """None."""
        return 1  # a plan has at least one

    async def fit(self, problem: GraphProblem) -> GraphSolution:
        """Nothing is sent."""
        await Local(node_directions, *_about(problem), np.float64(0))
        return GraphSolution(0, True, "every node for itself")


@method("graph", {Exchange: (send_rows,), Local: (node_directions,)}, role="baseline", results=RESULTS)
class Neighbourhood:
    """Every node with its neighbours' rows.

    ``projected``: directions are projected on the span of the node's own rows, where those of Algorithm 1 are.
    """

    projected: bool = False

    name = "neighbourhood"
    default_tol = 0.0

    @staticmethod
    def most_rounds(network: Network, iterations: int, k: int) -> int:  # noqa: ARG004
        """One, of rows."""
        return 1

    async def fit(self, problem: GraphProblem) -> GraphSolution:
        """Rows are sent once."""
        await Exchange(send_rows, np.float64(0))
        await Local(node_directions, *_about(problem), np.float64(self.projected))
        return GraphSolution(0, True, "every node with its neighbours' rows")


def _about(problem: GraphProblem) -> tuple[Any, ...]:
    return problem.kernel.packed(), np.int64(problem.n_components), np.float64(problem.center)
