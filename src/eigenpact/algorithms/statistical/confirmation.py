"""One product that tells how good an estimate is, for methods that end without knowing."""

from __future__ import annotations

import numpy as np

from ...linalg import Array, new_directions, random_orthonormal, top_eigenpairs
from ...metrics import kkt
from ...runtime import Progress, Sum
from ..products import scatter_action
from ..setup import Setup
from ..solution import Solution, residual_angle

WORTH_A_LOOK = 1e-12
"""Other directions shorter than this share of the longest are not multiplied."""


async def confirmed(setup: Setup, Z: Array, others: Array, what: str) -> Solution:
    """The estimate Z (d x k, orthonormal), turned to its own principal axes, with variances, residual and angle.  One round.

    C is multiplied with Z, with up to k of the ``others`` (d x any), and with one random direction g, which say where the
    spectrum goes on behind Z: at the largest variance among the others, or ||A g||^2 / g^T A g for what C leaves out of them, A.
    Both are lower bounds: a large direction that none of them meets keeps the estimate too small.  ``what`` names the method.
    """
    k = Z.shape[1]
    longest = float(np.linalg.norm(others, axis=0).max(initial=0.0))
    behind = new_directions(others, Z, WORTH_A_LOOK * longest)[:, :k] if longest > 0 else others[:, :0]
    known = np.concatenate([Z, behind], axis=1)
    anything = new_directions(random_orthonormal(len(Z), 1, setup.seed + 1), known, WORTH_A_LOOK)
    product = await Sum(scatter_action, np.concatenate([known, anything], axis=1))
    CZ, CB, Cg = product[:, :k], product[:, k : known.shape[1]], product[:, known.shape[1] :]
    values, rotation = top_eigenpairs(Z.T @ CZ)
    residual = kkt(CZ, Z, setup.trace)
    following = float(top_eigenpairs(behind.T @ CB, 1)[0][0]) if behind.shape[1] else 0.0
    Ag = Cg - known @ (known.T @ Cg)
    if float(np.sum(anything * Ag)) > 0:
        following = max(following, float(np.sum(Ag**2) / np.sum(anything * Ag)))
    angle = 0.0 if k == setup.n_features else residual_angle(residual * setup.trace, float(values[-1]), following)
    basis = np.ascontiguousarray(Z @ rotation)
    await Progress(basis=basis, objective=setup.share(values), kkt=residual, details={"angle": angle})
    converged = setup.tol is None or residual <= setup.stopping_tol(0.0)
    reason = f"{what}: scaled KKT residual {residual:.1e}, estimated sine {angle:.1e} to the pooled answer"
    if not converged:
        reason += f", not within tol {setup.tol:.1e}: it makes no further rounds, use solver='krylov'"
    return Solution(basis, np.maximum(values, 0.0), residual, angle, converged, reason)
