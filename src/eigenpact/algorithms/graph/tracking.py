"""Gradient-tracking subspace iteration: exact PCA of all nodes' features, by talking to neighbours only (DeEPCA).

Problem
    Node j holds a table of features F_j (n_j x m), centred at the mean of all nodes.  Find the leading k eigenvectors of the
    mean A = (1/J) sum_j A_j, A_j = F_j^T F_j (m x m), at every node.

Rounds
    1. Z <- one random orthonormal m x b basis at all nodes (b >= k);  S_j <- A_j Z
    2. for each iteration:
    3.     S_j <- the mean over nodes of the S_j, by ``gossip.average`` to a fixed precision
    4.     stop if the Ritz residual of the first k, ||S_j V - Z_j V T||_F / tr A, is at most tol at every node
    5.     Z_j' <- Q of S_j = Q R with diag R > 0;  S_j <- S_j + A_j Z_j' - A_j Z_j;  Z_j <- Z_j'
    6. components <- the first k Ritz vectors Z_j V

Leaves the site
    S_j (m x b) and its running averages, to every neighbour.  No table of features is sent, and yet a neighbour that keeps what
    it gets learns much.  The first message is A_j Z with a Z that all know: with b >= m it gives A_j.  Every later iteration
    begins with S_j + A_j (Z' - Z), unmixed.  A neighbour that is a node's only one (a leaf's) knows all that went in and has Z'
    to the precision of averages, so each iteration gives it b more directions of A_j, and ceil(m / b) iterations the whole
    scatter; a test does this.  With several neighbours no single one has all that went in; together they have.

Cost
    8 m b bytes per neighbour and round, ``network.rounds_to(MIXING)`` rounds and 4 n_j m b flops per iteration.  Converges
    linearly with ratio lambda_(b+1) / lambda_k, whatever the nodes hold: tracking removes the error that averaging leaves.

Differences from the paper
    b > k columns, because neighbouring eigenvalues of kernels nearly tie, and Ritz vectors in the end.  Signs are those of a QR
    factorisation with positive diagonal, which is continuous, instead of the paper's adjustment to W^0.  Own stopping rule: nodes
    agree on the largest residual (max-consensus) every ``CHECK_EVERY`` iterations.

References
    H. Ye, T. Zhang, "DeEPCA: Decentralized exact PCA with linear convergence rate", JMLR 22 (2021), Algorithm 1.

>>> import numpy as np, eigenpact as ep
>>> X = np.random.default_rng(0).normal(size=(90, 5)) * [9, 4, 1, 1, 1] + 3
>>> pca = ep.GraphPCA(2, graph="ring:2", random_state=0).fit([X[:20], X[20:50], X[50:]])
>>> exact = np.linalg.svd(X - X.mean(axis=0))[2][:2]
>>> bool(np.linalg.norm(pca.components_ - pca.components_ @ exact.T @ exact) < 1e-8)
True
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import InputError
from ...numerics.either import there
from ...numerics.elsewhere import namespace, to_numpy
from ...numerics.linalg import fix_signs, q_factor, random_orthonormal, top_eigenpairs
from ...runtime import Local, Max, Progress, Reply, Site, local
from ..method import Part
from ..setup import LARGEST_TRACE
from .gossip import NOW, average
from .network import GraphProblem, GraphSolution, Network

MIXING = 1e-3
"""What an averaging leaves of the nodes' differences, in every iteration."""

EXACTLY = 1e-14
"""Precision of the averages before the first iteration: of means and traces."""

CHECK_EVERY = 3


@local(takes={"center": ""}, reads=("features", NOW), keeps=("features", "mean", NOW))
def centre_features(site: Site, center: Any) -> Reply:
    """Subtract the mean feature (m), known since the last average; put the trace of A_j and n_j forward for the next."""
    sums, count = site.kept[NOW][:-1, 0], site.kept[NOW][-1, 0]
    mean = sums / count if center else np.zeros(len(sums))
    F = site.kept["features"]
    F = F - there(mean, F)
    square = float(namespace(F).sum(F * F))
    return Reply(keep={"features": F, "mean": mean, NOW: np.array([[square], [float(F.shape[0])]])})


@local(takes={"b": "", "seed": ""}, reads=("features", NOW), keeps=("trace", "rows", "Z", "AZ", NOW))
def begin(site: Site, b: Any, seed: Any) -> Reply:  # line 1
    """Begin with the same random basis everywhere."""
    F = site.kept["features"]
    if bool(namespace(F).any(F)) and not 1 / LARGEST_TRACE < site.kept[NOW][0, 0] < LARGEST_TRACE:
        raise InputError("the squares of the values underflow or overflow; give the data in other units, nearer to 1")
    Z = random_orthonormal(F.shape[1], int(b), int(seed))
    AZ = to_numpy(F.T @ (F @ there(Z, F)))
    trace, rows = site.kept[NOW][:, 0]
    return Reply(keep={"trace": trace, "rows": rows, "Z": Z, "AZ": AZ, NOW: AZ})


@local(
    takes={"k": ""},
    sends={"residual": ""},
    reads=("Z", NOW, "features", "trace", "AZ"),
    keeps=("components", "eigenvalues", "Z", "AZ", "residual", NOW),
)
def advance(site: Site, k: Any) -> Reply:  # lines 4, 5, 6
    """Ritz vectors of the basis and its tracked product; then the next basis."""
    Z, S, F = site.kept["Z"], site.kept[NOW], site.kept["features"]
    values, V = top_eigenpairs(Z.T @ S, int(k))
    trace = float(site.kept["trace"])
    residual = float(np.linalg.norm(S @ V - (Z @ V) * values)) / trace if trace > 0 else 0.0
    Q = q_factor(S)
    AQ = to_numpy(F.T @ (F @ there(Q, F)))
    found = {"components": fix_signs(Z @ V), "eigenvalues": np.maximum(values, 0.0), "residual": residual}
    return Reply(send=residual, keep=found | {"Z": Q, "AZ": AQ, NOW: S + AQ - site.kept["AZ"]})


def most_rounds(network: Network, iterations: int) -> int:
    """Rounds after which ``track`` has ended."""
    checks = iterations // CHECK_EVERY + 1
    return 2 * network.rounds_to(EXACTLY) + iterations * network.rounds_to(MIXING) + checks * network.diameter


async def track(problem: GraphProblem, more_columns: int, default_tol: float, max_columns: int) -> GraphSolution:
    """Run the method on features that every node keeps as "features" (n_j x m), their sums and number kept as ``NOW``."""
    network, k, tol = problem.network, problem.n_components, problem.stopping_tol(default_tol)
    if k > max_columns:
        raise InputError(
            f"n_components={k} must be at most the number of features, {max_columns}; ask for fewer, or give more features"
        )
    await average(network, EXACTLY)
    await Local(centre_features, np.float64(problem.center))
    await average(network, EXACTLY)
    columns = min(k + more_columns, max_columns)
    await Local(begin, np.int64(columns), np.int64(problem.seed))  # line 1
    for t in range(1, problem.max_iterations + 1):  # line 2
        await average(network, MIXING)  # line 3
        if t % CHECK_EVERY and t < problem.max_iterations:
            await Local(advance, np.int64(k))  # line 5
            continue
        residual = float(await Max(advance, np.int64(k)))  # lines 4, 5
        await Progress(kkt=residual)
        if residual <= tol:  # line 4
            return GraphSolution(t, True, f"largest residual over the nodes {residual:.1e} reached tol {tol:.1e}")
    advice = "raise max_iterations, or ask for a number of components after which eigenvalues drop"
    reason = f"max_iterations={problem.max_iterations} reached at residual {residual:.1e} > tol {tol:.1e}; {advice}"
    return GraphSolution(problem.max_iterations, False, reason)


TRACKING = Part("Graph: tracking", {Max: (advance,), Local: (centre_features, begin, advance)})
