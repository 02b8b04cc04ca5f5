"""Private PCA where the scatter matrix does not fit: subspace iteration with noise in every product.

Problem
    As for ``noisy_gram.py``: the leading eigenvectors of C = sum_i Z_i^T Z_i (d x d) such that no single row can be told; but
    only d k numbers a round travel and are held.

Rounds
    Q_0 a random orthonormal block (d x k); for t = 1, ..., L:
    1. Every site sends Z_i^T (Z_i Q_(t-1)) + E_i; the coordinator adds them up to G_t;
    2. Q_t is an orthonormal basis of G_t.

Leaves the site
    d k whole numbers a round, to be summed, L times; each round costs rho / L.

Noise
    One row z changes the product by z (z^T Q), of Frobenius norm at most ||z||^2 ||Q|| <= S^2.  Scores z^T Q are whole numbers,
    too, and none is longer than S, so rounding is included.  All entries get noise of variance S^4 L / (2 rho).

Cost
    8 d k bytes, 4 n_i d k flops and d k draws per site and round.

Differences from the paper
    [1] scales the noise to the largest entry of the block, which is small where components are spread over the features, and so
    asks for coherent data; here rows have bounded length, and the noise is that of any block.  The length L is given, not found:
    to look whether one has converged costs as much as a round.  On data whose scatter fits, ``noisy-gram`` has less noise.

References
    [1] M. Hardt, E. Price, "The noisy power method: a meta algorithm with applications", NeurIPS 2014, Algorithm 1 and Section 3.

>>> import numpy as np, eigenpact as ep
>>> X = np.random.default_rng(0).normal(size=(20000, 3)) * [2, 0.2, 0.1]
>>> solver = ep.solvers.NoisySubspace(rounds=2)
>>> pca = ep.PrivatePCA(1, epsilon=1, delta=1e-6, row_bound=5, solver=solver, random_state=0).fit({"A": X[:9000], "B": X[9000:]})
>>> bool(abs(pca.components_[0, 0]) > 0.99), pca.n_rounds_
(True, 2)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import InputError
from ...numerics.accounting import deviation_for
from ...numerics.linalg import Array, orthonormalize, random_orthonormal, symmetrize, top_eigenpairs
from ...numerics.whole_rows import STEPS, whole_product
from ...runtime import Progress, Site, Sum, local
from ..method import method
from ..solution import Solution, State
from .moments import MEANS, PrivateSetup


@local(
    takes={"mean": "d", "Q": "d k", "bound": "", "rho": "", "honest": ""},
    sends={"G": "d k"},
    bound="whole",
    means={"mean": "centre", "Q": "orthonormal"} | MEANS,
)
def noisy_product(site: Site, mean: Array, Q: Array, bound: Any, rho: Any, honest: Any) -> Any:
    """Z_i^T (Z_i Q) with this site's share of the noise, in squares of steps."""
    noise = site.noise(float(rho), int(honest), [(deviation_for(STEPS**2, float(rho)), Q.size)])
    return whole_product(site.X, mean, float(bound), Q) + noise.reshape(Q.shape)


@method("private", {Sum: (noisy_product,)}, role="estimate")
class NoisySubspace:
    """Subspace iteration with noise in every product; for features whose scatter does not fit.

    Parameters
    ----------
    rounds : int
        Its length L.  Every round more divides the budget further; on MNIST 8 did best at epsilon 1.
    """

    rounds: int = 8

    name = "noisy-subspace"
    default_angle = np.inf

    def __post_init__(self) -> None:
        if not (isinstance(self.rounds, int) and self.rounds >= 1):
            raise InputError(f"rounds={self.rounds!r} must be a whole number >= 1")

    async def fit(self, setup: PrivateSetup, start: Array | None = None, state: State | None = None) -> Solution:  # noqa: ARG002
        """Multiply and orthonormalize, as often as was said."""
        d, k, rho = setup.n_features, setup.n_components, setup.rho / self.rounds
        unit = setup.step**2
        Q = random_orthonormal(d, k, setup.seed)
        values = np.zeros(k)
        for _ in range(self.rounds):
            G = unit * await Sum(noisy_product, setup.mean, Q, *setup.asks(rho))  # line 1
            values, inside = top_eigenpairs(symmetrize(Q.T @ G))
            Q = orthonormalize(G @ inside)  # line 2
            await Progress(basis=Q)
        noise = deviation_for(STEPS**2, rho) * unit * float(np.sqrt(setup.surplus))
        reason = f"{self.rounds} rounds as asked for; an entry of their products has noise of {noise:.3g}"
        return Solution(Q, values, None, None, True, reason, {"trace": None, "noise": noise})
