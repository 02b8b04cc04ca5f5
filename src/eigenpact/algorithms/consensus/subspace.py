"""Federated subspace iteration (SSI): every round multiplies the agreed basis by the pooled scatter.

Problem
    Find the leading k eigenvectors of C = sum_i Y_i^T Y_i (d x d), site i holding the centred rows Y_i (n_i x d).

Rounds
    1. Z <- a random orthonormal d x k basis (or the one-shot merge of the sites' own directions)
    2. for each round:
    3.     the coordinator sends Z; every site returns Y_i^T (Y_i Z); G <- their sum, that is C Z
    4.     stop if ||(I - Z Z^T) G||_F <= tol tr C, or if the estimated angle is at most ``sine``;  else Z <- orth(G)

Leaves the site
    Y_i^T Y_i Z (d x k) each round, to be summed.  Whoever sees the single replies of enough rounds can solve for Y_i^T Y_i.

Cost
    8 d k bytes each way and 4 n_i d k flops per site and round.  Linear convergence with ratio lambda_{k+1} / lambda_k.

Differences from the paper
    None in the iteration (SSI, the baseline of Section 5 of the FAPS paper).  The stopping rule is the scaled KKT residual, and
    the answer is rotated to the eigenvectors of Z^T C Z, so that components and variances come out separately.

References
    Lei Wang, Xin Liu, Yin Zhang, FAPS paper, Sections 1.2 and 5; H. Rutishauser, Numer. Math. 13 (1969).

>>> import numpy as np, eigenpact as ep
>>> X = np.random.default_rng(0).normal(size=(60, 4)) * [9, 3, 1, 1]
>>> pca = ep.FederatedPCA(n_components=2, solver="subspace", random_state=0).fit({"A": X[:20], "B": X[20:]})
>>> pca.converged_, pca.history_[-1].kkt <= 1e-9
(True, True)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...linalg import Array, orthonormalize, top_eigenpairs
from ...metrics import kkt
from ...runtime import Progress, Sum
from ..products import scatter_action
from ..setup import Setup
from ..solution import Solution, check_sine, residual_angle
from ..start import Start, check_start, first_block

STEADY = 0.1
"""A contraction that changes by less than this share of its distance from 1 is taken for that of the gap."""


@dataclass(frozen=True, eq=False)
class Subspace:
    """Federated subspace iteration.

    Parameters
    ----------
    start : "random" or "one-shot"
        The one-shot start costs one round and reveals every site's leading directions to the coordinator.
    sine : float, optional
        Stop as soon as the estimated sine of the largest angle to the exact answer is at most this, even before tol is reached.
    """

    start: Start = "random"
    sine: float | None = None

    name = "subspace"
    default_tol = 1e-9

    def __post_init__(self) -> None:
        check_start(self.start)
        check_sine(self.sine)

    async def fit(self, setup: Setup, start: Array | None = None, state: Mapping[str, Array] | None = None) -> Solution:
        """Iterate until the KKT residual is small."""
        tol, k = setup.stopping_tol(self.default_tol), setup.whole_components()
        if state is None:
            Z, ratio, residual_prev = await first_block(setup, k, self.start, start, self.sine), 1.0, np.inf  # line 1
            first = 1 if self.start == "random" or start is not None else 2
        else:
            Z, (ratio, residual_prev, done) = state["Z"], state["counters"]
            first = int(done) + 1
        for t in range(first, max(first, setup.max_rounds) + 1):  # line 2
            G = await Sum(scatter_action, Z)  # line 3
            residual = kkt(G, Z, setup.trace)
            ratio_prev = ratio
            if np.isfinite(residual_prev):  # until then nothing is known of the contraction
                ratio = min(1.0, residual / residual_prev) if residual_prev > 0 else 0.0
            values, rotation = top_eigenpairs(Z.T @ G)
            Z_prev, Z, residual_prev = Z, orthonormalize(G), residual  # line 4
            next_value = ratio * values[-1]  # the iteration contracts by lambda_{k+1} / lambda_k, unless they are closer than tol
            angle = residual_angle(residual * setup.trace, float(values[-1]), float(next_value)) if k < setup.n_features else 0.0
            settled = abs(ratio - ratio_prev) <= STEADY * (1 - ratio)  # else it is not yet the last directions that it tells of
            converged = residual <= tol or (self.sine is not None and angle <= self.sine and settled)
            last = converged or t >= setup.max_rounds
            state = {"Z": Z, "counters": np.array([ratio, residual_prev, t])}
            await Progress(basis=Z_prev, objective=setup.share(values), kkt=residual, state=None if last else state)
            if last:
                break
        if residual <= tol:
            reason = f"scaled KKT residual {residual:.1e} reached tol {tol:.1e}"
        elif converged:
            reason = f"the estimated sine of the angle, {angle:.1e}, reached {self.sine:.1e}; scaled KKT residual {residual:.1e}"
        else:
            reason = (
                f"max_rounds={setup.max_rounds} reached at scaled KKT residual {residual:.1e} > tol {tol:.1e}; "
                "raise max_rounds or use solver='krylov'"
            )
        return Solution(Z_prev @ rotation, np.maximum(values, 0.0), residual, angle, converged, reason)
