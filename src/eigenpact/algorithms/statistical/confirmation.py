"""One product that tells how good an estimate is, for methods that end without knowing."""

from __future__ import annotations

import numpy as np

from ...linalg import Array, new_directions, top_eigenpairs
from ...metrics import kkt
from ...runtime import Progress, Sum
from ..products import scatter_action
from ..setup import Setup
from ..solution import Solution, residual_angle

WORTH_A_LOOK = 1e-12
"""Other directions shorter than this share of the longest are not multiplied."""


async def confirmed(setup: Setup, Z: Array, others: Array, what: str) -> Solution:
    """The estimate Z (d x k, orthonormal), turned to its own principal axes, with variances, residual and angle.  One round.

    C is multiplied with Z and with up to k of the ``others`` (d x any), which say where the spectrum goes on behind Z: the
    largest variance among them gives the gap, and where there are none, the mean of what is left.  ``what`` names the method in
    the reason.
    """
    k = Z.shape[1]
    longest = float(np.linalg.norm(others, axis=0).max(initial=0.0))
    behind = new_directions(others, Z, WORTH_A_LOOK * longest)[:, :k] if longest > 0 else others[:, :0]
    product = await Sum(scatter_action, np.concatenate([Z, behind], axis=1))
    CZ, CB = product[:, :k], product[:, k:]
    values, rotation = top_eigenpairs(Z.T @ CZ)
    residual = kkt(CZ, Z, setup.trace)
    following = (setup.trace - float(values.sum())) / max(1, setup.n_features - k)
    if behind.shape[1]:
        following = float(top_eigenpairs(behind.T @ CB, 1)[0][0])
    angle = 0.0 if k == setup.n_features else residual_angle(residual * setup.trace, float(values[-1]), following)
    basis = np.ascontiguousarray(Z @ rotation)
    await Progress(basis=basis, objective=setup.share(values), kkt=residual, details={"angle": angle})
    converged = setup.tol is None or residual <= setup.stopping_tol(0.0)
    reason = f"{what}: scaled KKT residual {residual:.1e}, estimated sine {angle:.1e} to the pooled answer"
    if not converged:
        reason += f", not within tol {setup.tol:.1e}: it makes no further rounds, use solver='krylov'"
    return Solution(basis, np.maximum(values, 0.0), residual, angle, converged, reason)
