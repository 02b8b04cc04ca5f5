"""Generalized Davidson: Lanczos whose residuals are preconditioned by one site's rows, so that fewer rounds are needed.

Problem
    Find the leading k eigenvectors of C = sum_i Y_i^T Y_i (d x d), site i holding the centred rows Y_i (n_i x d).

Rounds
    1. B <- a random orthonormal d x k block, or the one-shot merge of the sites' own directions
    2. for each round:
    3.     the coordinator sends B; every site returns Y_i^T (Y_i B); the sum is C B
    4.     Q <- [Q, B]; Rayleigh-Ritz on span(Q): leading Ritz pairs (theta_j, z_j), residuals r_j = C z_j - theta_j z_j
    5.     stop if ||R||_F <= tol tr C, or if the estimated angle is at most ``sine``
    6.     thick restart: if another block would exceed max_blocks, keep the leading half of the Ritz vectors with their products
    7.     t_j <- ((theta_j + mu) I - C_1)^-1 r_j, at the coordinator's own site;  B <- orth of t_1 ... t_k against Q
    C_1 is the scatter of one site, scaled to tr C, and mu its estimated distance to C (``preconditioner.py``).  A site unlike the
    others makes a poor preconditioner, which costs rounds, a few more than Lanczos in trials, and never the answer.

Leaves the site
    Y_i^T Y_i B (d x k) each round, to be summed.  Whoever sees the single replies of enough rounds can solve for Y_i^T Y_i.
    With ``start="one-shot"`` also the leading directions (see ``algorithms/start.py``).
    ``At`` is used at the coordinator's own site only: the preconditioner is applied where the rows are, nothing travels.

Cost
    8 d k bytes each way and 4 n_i d k flops per site and round, as Lanczos; the own site once decomposes its scatter.

Differences from the paper
    Not in the paper: it solves linear systems with this preconditioner (``shift_invert.py``), each of which takes several rounds.
    Used for residuals in a growing space, every round counts for all that follow.

References
    D. Garber, O. Shamir, N. Srebro, ICML 2017, Section 4.2 (the preconditioner); R. B. Morgan, D. S. Scott, "Generalizations of
    Davidson's method for computing eigenvalues of sparse symmetric matrices", SIAM J. Sci. Stat. Comput. 7 (1986).

>>> import numpy as np, eigenpact as ep
>>> X = np.random.default_rng(0).normal(size=(2000, 60)) * np.linspace(3, 1, 60)
>>> sites = {"A": X[:1000], "B": X[1000:]}
>>> davidson = ep.FederatedPCA(1, solver=ep.Davidson(proxy="A"), random_state=0).fit(sites)
>>> davidson.converged_, davidson.n_rounds_ < ep.FederatedPCA(1, solver="lanczos", random_state=0).fit(sites).n_rounds_
(True, True)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...krylov_space import Ritz
from ...linalg import Array
from ..setup import Setup
from ..solution import Solution, check_sine
from ..start import Start, check_start, first_block
from .expansion import check_max_blocks, expand, first_state
from .preconditioner import preconditioner


@dataclass(frozen=True, eq=False)
class Davidson:
    """Generalized Davidson with one site's rows as the preconditioner.

    Parameters
    ----------
    proxy : str, int, array or None
        Whose rows precondition: the name or index of the coordinator's own site, or public rows (n x d).  Without one this is
        Lanczos.
    start : "random" or "one-shot"
        The one-shot start costs one round and reveals every site's leading directions to the coordinator.
    sine : float, optional
        Stop as soon as the estimated sine of the largest angle to the exact answer is at most this, even before tol is reached.
    max_blocks : int
        At most this many blocks of k columns are kept, at least 3.
    """

    proxy: str | int | Array | None = None
    start: Start = "random"
    sine: float | None = None
    max_blocks: int = 30

    name = "davidson"
    default_tol = 1e-12

    def __post_init__(self) -> None:
        check_start(self.start)
        check_sine(self.sine)
        check_max_blocks(self.max_blocks)

    async def fit(self, setup: Setup, start: Array | None = None, state: Mapping[str, Array] | None = None) -> Solution:
        """Expand by preconditioned residuals until the answer is good enough."""
        k, tol = setup.whole_components(), setup.stopping_tol(self.default_tol)
        inverse = await preconditioner(setup, self.proxy, k, None if state is None else state["facts"])
        if state is None:
            B = await first_block(setup, k, self.start, start, self.sine)  # line 1
            random = start is None and self.start == "random"
            state = await first_state(setup, B, 0 if random or start is not None else 1, random)  # line 3

        async def corrections(ritz: Ritz) -> Array:  # line 7
            if inverse is None:
                return ritz.residual
            T = await inverse.apply(ritz.residual, ritz.values[:k] + inverse.mu)
            lengths = np.linalg.norm(T, axis=0)
            rescaled: Array = T * (np.linalg.norm(ritz.residual, axis=0) / np.where(lengths > 0, lengths, 1.0))
            return rescaled

        facts = None if inverse is None else inverse.facts()
        columns = self.max_blocks * k
        return await expand(setup, corrections, state, tol=tol, sine=self.sine, max_columns=columns, facts=facts)  # lines 2 to 6
