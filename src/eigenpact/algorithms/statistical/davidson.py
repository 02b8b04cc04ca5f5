"""Generalized Davidson: Lanczos whose residuals are preconditioned by one site's rows, so that fewer rounds are needed.

Problem
    Find the leading k eigenvectors of C = sum_i Y_i^T Y_i (d x d), site i holding the centred rows Y_i (n_i x d).

Rounds
    1. B <- a random orthonormal block (d x b, b = k + max(4, k // 5)); before it, if asked for, the one-shot merge of the
       sites' own directions
    2. for each round:
    3.     the coordinator sends B; every site returns Y_i^T (Y_i B); the sum is C B
    4.     Q <- [Q, B]; Rayleigh-Ritz on span(Q): leading Ritz pairs (theta_j, z_j), residuals r_j = C z_j - theta_j z_j
    5.     stop if ||R||_F <= tol tr C, or if the estimated angle is at most ``angle_tol``, once nothing can have been missed
           (``certificate.py``)
    6.     thick restart: if another block would exceed max_blocks, keep the leading half of the Ritz vectors and the random block
    7.     t_j <- ((theta_j + mu) I - C_1)^-1 r_j, at the coordinator's own site;  B <- orth of t_1 ... t_k against Q, and as many
           directions for the proof of line 5
    The loop is that of ``expansion.py``.
    C_1 is the scatter of one site, scaled to tr C, and mu its estimated distance to C (``preconditioner.py``).  A site unlike the
    others makes a poor preconditioner, which costs rounds, a few more than Lanczos in trials, and never the answer.

Leaves the site
    Y_i^T Y_i B (d x (k + max(k, 4)), and at most once, where one variance dwarfs the others, for a basis of the whole space) each
    round, to be summed.  Whoever sees the single replies of enough rounds can solve for Y_i^T Y_i.
    With ``start="one-shot"`` also the leading directions (see ``algorithms/start.py``).
    ``At`` is used at the coordinator's own site only: the preconditioner is applied where the rows are, nothing travels.

Cost
    16 d k bytes each way and 8 n_i d k flops per site and round; the own site once decomposes its scatter.

Differences from the paper
    Not in the paper: it solves linear systems with this preconditioner (``shift_invert.py``), each of which takes several rounds.
    Used for residuals in a growing space, every round counts for all that follow.

References
    D. Garber, O. Shamir, N. Srebro, ICML 2017, Section 4.2 (the preconditioner); R. B. Morgan, D. S. Scott, "Generalizations of
    Davidson's method for computing eigenvalues of sparse symmetric matrices", SIAM J. Sci. Stat. Comput. 7 (1986).

>>> import numpy as np, eigenpact as ep
>>> X = np.random.default_rng(0).normal(size=(2000, 60)) * np.linspace(3, 1, 60)
>>> sites = {"A": X[:1000], "B": X[1000:]}
>>> davidson = ep.FederatedPCA(1, solver=ep.solvers.Davidson(proxy="A"), random_state=0).fit(sites)
>>> davidson.converged_, davidson.n_rounds_ <= ep.FederatedPCA(1, solver="lanczos", random_state=0).fit(sites).n_rounds_
(True, True)
"""

from __future__ import annotations

from ...numerics.krylov_space import KrylovSpace, Ritz
from ...numerics.linalg import Array
from ..expansion import begin, check_expansion, expand
from ..goal import EXACT_ANGLE, Goal
from ..method import method
from ..products import PRODUCTS
from ..setup import Setup
from ..solution import Solution, State
from ..start import Start, given_start
from .preconditioner import PRECONDITIONER, preconditioner


@method("statistical", parts=(PRODUCTS, PRECONDITIONER))
class Davidson:
    """Generalized Davidson with one site's rows as the preconditioner.

    Parameters
    ----------
    proxy : str, int, array or None
        Whose rows precondition: the name or index of the coordinator's own site, or public rows (n x d).  Without one this is
        Lanczos.
    start : "random" or "one-shot"
        The one-shot start costs one round and reveals every site's leading directions to the coordinator.
    angle_tol : float, optional
        Stop as soon as the estimated sine of the largest angle to the exact answer is at most this; without ``tol`` the default
        is 1e-8, or what rounding allows.
    max_blocks : int, optional
        At most this many blocks of k + max(4, k // 5) columns are kept, at least 3; by default 30, or up to 60 where these take
        no more than 1 GiB with their products.
    """

    proxy: str | int | Array | None = None
    start: Start = "random"
    angle_tol: float | None = None
    max_blocks: int | None = None

    name = "davidson"
    default_angle = EXACT_ANGLE

    def __post_init__(self) -> None:
        check_expansion(self.start, self.angle_tol, self.max_blocks)

    async def fit(self, setup: Setup, start: Array | None = None, state: State | None = None) -> Solution:
        """Expand by preconditioned residuals until the answer is good enough."""
        k, goal = setup.whole_components(), Goal.of(setup, self.angle_tol, self.default_angle)
        inverse = await preconditioner(setup, self.proxy, k, None if state is None else state.get("facts"))
        if state is None:
            state = await begin(setup, *await given_start(setup, k, self.start, start))  # lines 1, 3
        if inverse is None:
            return await expand(setup, None, state, goal=goal, max_blocks=self.max_blocks)

        async def corrections(_: KrylovSpace, ritz: Ritz, __: float) -> Array:  # line 7
            return await inverse.apply(ritz.residual, ritz.values[: ritz.k] + inverse.mu)

        facts = {"facts": inverse.facts()}
        return await expand(setup, corrections, state, goal=goal, max_blocks=self.max_blocks, facts=facts)  # lines 2 to 7
