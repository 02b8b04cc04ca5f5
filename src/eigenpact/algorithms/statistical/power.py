"""The distributed power method, for k > 1 as simultaneous iteration.

Problem
    Find the leading k eigenvectors of C = sum_i Y_i^T Y_i (d x d), site i holding the centred rows Y_i (n_i x d).

Rounds
    1. w <- a random unit vector (k > 1: an orthonormal d x k block), or the one-shot merge of the sites' own directions
    2. for each round: the coordinator sends w, every site returns Y_i^T (Y_i w); w <- their sum, at length one (orthonormalized)
    3. stop if the residual is at most tol tr C, or if residual over gap is at most ``angle_tol``, once that is confirmed
    This is subspace iteration (``consensus/subspace.py``), which carries it out.

Leaves the site
    Y_i^T Y_i w (d x k) each round, to be summed.  Whoever sees the single replies of enough rounds can solve for Y_i^T Y_i.

Cost
    8 d k bytes each way and 4 n_i d k flops per site and round; O(lambda_1 / delta log(d / (p eps))) rounds, delta the gap.

Differences from the paper
    It gives the rate only (Section 2.2.2, Table 1).  The gap of the stopping rule is read off the contraction.

References
    D. Garber, O. Shamir, N. Srebro, ICML 2017, Section 2.2.2.

>>> import numpy as np, eigenpact as ep
>>> X = np.random.default_rng(0).normal(size=(60, 4)) * [9, 3, 1, 1]
>>> pca = ep.FederatedPCA(n_components=1, solver=ep.solvers.Power(angle_tol=1e-4), random_state=0).fit({"A": X[:20], "B": X[20:]})
>>> pca.converged_, pca.angle_estimate_ <= 1e-4
(True, True)
"""

from __future__ import annotations

from ..consensus.subspace import Subspace
from ..method import method


@method("statistical", includes=(Subspace,))
class Power(Subspace):
    """The power method.

    Parameters
    ----------
    start : "random" or "one-shot"
        The one-shot start costs one round and reveals every site's leading directions to the coordinator.
    angle_tol : float, optional
        Stop as soon as the estimated sine of the largest angle to the exact answer is at most this; without ``tol`` the default
        is 1e-6, or what rounding allows.
    """

    name = "power"
