"""Distributed block Lanczos with full reorthogonalization and thick restart.

Problem
    Find the leading k eigenvectors of C = sum_i Y_i^T Y_i (d x d), site i holding the centred rows Y_i (n_i x d).

Rounds
    1. B <- a random orthonormal d x k block, or the one-shot merge of the sites' own directions
    2. for each round:
    3.     the coordinator sends B; every site returns Y_i^T (Y_i B); the sum is C B
    4.     Q <- [Q, B]; Rayleigh-Ritz on span(Q): leading Ritz vectors Z and their residuals R = C Z - Z Theta
    5.     stop if ||R||_F <= tol tr C, or if the estimated angle is at most ``sine``
    6.     thick restart: if another block would exceed max_blocks, keep the leading half of the Ritz vectors with their products
    7.     B <- orthonormal basis of R, orthogonalized against all of Q
    Ritz residuals all lie in the span of the next Lanczos block, so line 7 is the three-term recurrence with full
    reorthogonalization; columns that have converged drop out of B.

Leaves the site
    Y_i^T Y_i B (d x k) each round, to be summed.  Whoever sees the single replies of enough rounds can solve for Y_i^T Y_i.
    With ``start="one-shot"`` also the leading directions (see ``algorithms/start.py``).

Cost
    8 d k bytes each way and 4 n_i d k flops per site and round; the coordinator keeps 2 max_blocks d k numbers.

Differences from the paper
    The paper names distributed Lanczos and its rate O(sqrt(lambda_1 / delta) log(d / (p eps))) for k = 1 (Section 2.2.2, Table
    1), not how it stops and what it keeps.  This is the classical method in the paper's setting; ``consensus/krylov.py`` uses the
    same space, with a model of what is not yet known of C.

References
    D. Garber, O. Shamir, N. Srebro, "Communication-efficient algorithms for distributed stochastic principal component
    analysis", ICML 2017, Section 2.2.2; G. H. Golub, R. Underwood, 1977; K. Wu, H. Simon, SIMAX 22 (2000).

>>> import numpy as np, eigenpact as ep
>>> X = np.random.default_rng(0).normal(size=(200, 30)) * np.linspace(3, 1, 30)
>>> pca = ep.FederatedPCA(n_components=1, solver=ep.Lanczos(sine=1e-4), random_state=0).fit({"A": X[:80], "B": X[80:]})
>>> pca.converged_, pca.angle_estimate_ <= 1e-4
(True, True)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...krylov_space import Ritz
from ...linalg import Array
from ..setup import Setup
from ..solution import Solution, check_sine
from ..start import Start, check_start, first_block
from .expansion import check_max_blocks, expand, first_state


@dataclass(frozen=True, eq=False)
class Lanczos:
    """Block Lanczos with full reorthogonalization and thick restart.

    Parameters
    ----------
    start : "random" or "one-shot"
        The one-shot start costs one round and reveals every site's leading directions to the coordinator.
    sine : float, optional
        Stop as soon as the estimated sine of the largest angle to the exact answer is at most this, even before tol is reached.
    max_blocks : int
        At most this many blocks of k columns are kept, at least 3.
    """

    start: Start = "random"
    sine: float | None = None
    max_blocks: int = 30

    name = "lanczos"
    default_tol = 1e-12

    def __post_init__(self) -> None:
        check_start(self.start)
        check_sine(self.sine)
        check_max_blocks(self.max_blocks)

    async def fit(self, setup: Setup, start: Array | None = None, state: Mapping[str, Array] | None = None) -> Solution:
        """Expand by residuals until the answer is good enough."""
        k, tol = setup.whole_components(), setup.stopping_tol(self.default_tol)
        if state is None:
            B = await first_block(setup, k, self.start, start, self.sine)  # line 1
            random = start is None and self.start == "random"
            state = await first_state(setup, B, 0 if random or start is not None else 1, random)  # line 3

        async def residuals(ritz: Ritz) -> Array:  # line 7
            return ritz.residual

        return await expand(setup, residuals, state, tol=tol, sine=self.sine, max_columns=self.max_blocks * k)  # lines 2 to 6
