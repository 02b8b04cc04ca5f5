"""One round that tells how good an estimate is, for methods that end without knowing."""

from __future__ import annotations

import numpy as np

from ...numerics.certificate import certify
from ...numerics.directions import new_directions
from ...numerics.krylov_space import KrylovSpace
from ...numerics.linalg import Array, top_eigenpairs
from ...numerics.metrics import kkt, largest_sine
from ...runtime import Progress, Sum
from ..expansion import ritz_gap_angle
from ..products import scatter_action
from ..setup import Setup
from ..solution import Solution, cut_in_words
from ..stand import random_block

WORTH_A_LOOK = 1e-12
"""Other directions shorter than this share of the longest are not multiplied."""


async def judged(setup: Setup, Z: Array, others: Array, what: str) -> Solution:
    """The estimate Z (d x k, orthonormal), turned to its own principal axes, with variances, residual and angle.  One round.

    C is multiplied with Z, with up to k of the ``others`` (d x any) and with a random block.  The leading Ritz vectors Z' of all
    of them are closer to the answer than Z.  Where the random block excludes that a direction was missed (``certificate.py``),
    the angle is at most that between Z and Z' plus the bound for Z'.  One product seldom excludes that unless features are few;
    then the angle is unknown, and the reason tells what it would be if none was missed.  ``what`` names the method.
    """
    k = Z.shape[1]
    longest = float(np.linalg.norm(others, axis=0).max(initial=0.0))
    behind = new_directions(others, Z, WORTH_A_LOOK * longest)[:, :k] if longest > 0 else others[:, :0]
    known = np.concatenate([Z, behind], axis=1)
    omega = random_block(setup)
    Q = np.ascontiguousarray(np.concatenate([known, new_directions(omega, known, WORTH_A_LOOK)], axis=1))
    space = KrylovSpace(Q, await Sum(scatter_action, Q))
    CZ = space.CQ[:, :k]
    values, rotation = top_eigenpairs(Z.T @ CZ)
    residual = kkt(CZ, Z, setup.trace)
    ritz = space.ritz(lambda _: k)
    found, turned = certify(space, ritz, omega, setup.noise), largest_sine(Z, ritz.Z)
    hoped = min(1.0, turned + ritz_gap_angle(ritz)) if k < setup.n_features else 0.0
    angle = None if found.angle is None or found.rank < k else min(1.0, turned + found.angle)
    basis = np.ascontiguousarray(Z @ rotation)
    await Progress(basis=basis, objective=setup.share(values), kkt=residual, details={"angle": hoped if angle is None else angle})
    within = setup.tol is None or residual <= setup.stopping_tol(0.0)
    converged = within and (setup.tol is None or not found.missed)
    reason = f"{what}: scaled KKT residual {residual:.1e}, "
    if found.cut != "clear":
        reason += cut_in_words(found.cut, k)
    elif angle is None:
        reason += (
            f"sine to the pooled answer unknown: about {hoped:.1e} if no direction was missed, which one round cannot exclude"
        )
    else:
        reason += f"estimated sine {angle:.1e} to the pooled answer"
    if within and not converged:
        reason += f", within tol {setup.tol:.1e}, but perhaps not of the leading directions: use solver='krylov', or no tol"
    elif not converged:
        reason += f", not within tol {setup.tol:.1e}: it makes no further rounds, use solver='krylov'"
    return Solution(basis, np.maximum(values, 0.0), residual, angle, converged, reason, cut=found.cut)
