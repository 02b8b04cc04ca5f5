"""A solver of the graph family in one file: every node by its own rows, without a centre."""

from dataclasses import dataclass

import numpy as np

from eigenpact.algorithms.graph.features import dense
from eigenpact.algorithms.graph.network import GraphSolution
from eigenpact.algorithms.method import method
from eigenpact.numerics.kernels import Kernel
from eigenpact.numerics.linalg import top_eigenpairs
from eigenpact.runtime import Local, Reply, local

KEPT = ("table", "alpha", "mean values", "centre square")


@local(name="four:by_itself", takes={"kernel": "c", "k": ""}, keeps=KEPT)
def by_itself(site, kernel, k):
    """Kernel PCA of the node's own rows about the origin."""
    X = dense(site.X)
    values, vectors = top_eigenpairs(Kernel.unpacked(kernel)(X, X), int(k))
    return Reply(keep=dict(zip(KEPT, (X, vectors / np.sqrt(values), np.zeros(len(X)), 0.0), strict=True)))


@method("graph", {Local: (by_itself,)}, role="baseline", results=KEPT)
@dataclass(frozen=True, eq=False)
class Alone:
    """Every node for itself, about the origin."""

    name = "alone"
    default_tol = 0.0

    @staticmethod
    def most_rounds(network, iterations, k):  # noqa: ARG004
        return 1

    async def fit(self, problem):
        await Local(by_itself, problem.kernel.packed(), np.int64(problem.n_components))
        return GraphSolution(0, True, "every node for itself")
