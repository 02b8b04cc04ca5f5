"""Distributed block Lanczos with full reorthogonalization and thick restart.

Problem
    Find the leading k eigenvectors of C = sum_i Y_i^T Y_i (d x d), site i holding the centred rows Y_i (n_i x d).

Rounds
    1. B <- a random orthonormal block (d x b, b = k + max(4, k // 5)); before it, if asked for, the one-shot merge of the
       sites' own directions
    2. for each round:
    3.     the coordinator sends B; every site returns Y_i^T (Y_i B); the sum is C B
    4.     Q <- [Q, B]; Rayleigh-Ritz on span(Q): leading Ritz vectors Z and their residuals R = C Z - Z Theta
    5.     stop if ||R||_F <= tol tr C, or if the estimated angle is at most ``angle_tol``, once nothing can have been missed
           (``certificate.py``)
    6.     thick restart: if another block would exceed max_blocks, keep the leading half of the Ritz vectors and the random block
    7.     B <- orthonormal basis of C B, orthogonalized against all of Q: the three-term recurrence with full reorthogonalization
    The loop is that of ``expansion.py``.  After a restart, or beside a one-shot start, line 7 takes R, whose columns lie in the
    span of the next Lanczos block, and as many directions for the proof.

Leaves the site
    Y_i^T Y_i B (d x b, from a one-shot start d x (k + max(k, 4)), and at most once, where one variance dwarfs the others,
    for a basis of the whole space) each round, to be summed.  Whoever sees the single replies of enough rounds can solve for
    Y_i^T Y_i.  With ``start="one-shot"`` also the leading directions (see ``algorithms/start.py``).

Cost
    8 d b bytes each way and 4 n_i d b flops per site and round; the coordinator keeps 2 max_blocks d b numbers.

Differences from the paper
    The paper names distributed Lanczos and its rate O(sqrt(lambda_1 / delta) log(d / (p eps))) for k = 1 (Section 2.2.2, Table
    1), not how it stops and what it keeps.  This is the classical method in the paper's setting, with blocks four columns wider
    than the answer: a space grown from k columns cannot show that k eigenvalues are more often there than found.
    ``consensus/krylov.py`` uses the same space, with a model of what is not yet known of C.

References
    D. Garber, O. Shamir, N. Srebro, "Communication-efficient algorithms for distributed stochastic principal component
    analysis", ICML 2017, Section 2.2.2; G. H. Golub, R. Underwood, 1977; K. Wu, H. Simon, SIMAX 22 (2000).

>>> import numpy as np, eigenpact as ep
>>> X = np.random.default_rng(0).normal(size=(200, 30)) * np.linspace(3, 1, 30)
>>> pca = ep.FederatedPCA(1, solver=ep.solvers.Lanczos(angle_tol=1e-4), random_state=0).fit({"A": X[:80], "B": X[80:]})
>>> pca.converged_, pca.angle_estimate_ <= 1e-4
(True, True)
"""

from __future__ import annotations

from ...numerics.linalg import Array
from ..expansion import begin, check_expansion, expand
from ..goal import EXACT_ANGLE, Goal
from ..method import method
from ..products import PRODUCTS
from ..setup import Setup
from ..solution import Solution, State
from ..start import Start, given_start


@method("statistical", parts=(PRODUCTS,))
class Lanczos:
    """Block Lanczos with full reorthogonalization and thick restart.

    Parameters
    ----------
    start : "random" or "one-shot"
        The one-shot start costs one round and reveals every site's leading directions to the coordinator.
    angle_tol : float, optional
        Stop as soon as the estimated sine of the largest angle to the exact answer is at most this; without ``tol`` the default
        is 1e-8, or what rounding allows.
    max_blocks : int, optional
        At most this many blocks of k + max(4, k // 5) columns are kept, at least 3; by default 30, or up to 60 where these take
        no more than 1 GiB with their products.
    """

    start: Start = "random"
    angle_tol: float | None = None
    max_blocks: int | None = None

    name = "lanczos"
    default_angle = EXACT_ANGLE

    def __post_init__(self) -> None:
        check_expansion(self.start, self.angle_tol, self.max_blocks)

    async def fit(self, setup: Setup, start: Array | None = None, state: State | None = None) -> Solution:
        """Expand by the next Lanczos block until the answer is good enough."""
        k, goal = setup.whole_components(), Goal.of(setup, self.angle_tol, self.default_angle)
        if state is None:
            state = await begin(setup, *await given_start(setup, k, self.start, start))  # lines 1, 3
        return await expand(setup, None, state, goal=goal, max_blocks=self.max_blocks)  # lines 2 to 7
