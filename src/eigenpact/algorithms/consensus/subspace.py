"""Federated subspace iteration (SSI): every round multiplies the agreed basis by the pooled scatter.

Problem
    Find the leading k eigenvectors of C = sum_i Y_i^T Y_i (d x d), site i holding the centred rows Y_i (n_i x d).

Rounds
    1. Z <- a random orthonormal d x k basis (or the one-shot merge of the sites' own directions)
    2. for each round:
    3.     the coordinator sends Z; every site returns Y_i^T (Y_i Z); G <- their sum, that is C Z
    4.     if ||(I - Z Z^T) G||_F <= tol tr C, or if the estimated angle is at most ``angle_tol``: have Z confirmed, and stop
    5.     Z <- orth(G)
    The angle is estimated by the residual over the gap that the contraction of the residual tells of.  That is believed only once
    a space grown from Z and a random block agrees (``confirmation.py``).  If it does not, the method goes on, and believes its
    own estimate less; if Z missed a direction, it goes on from what the confirmation found.

Leaves the site
    Y_i^T Y_i Z (d x k) each round, to be summed, in the end also Y_i^T Y_i B for the blocks of the confirmation.  Whoever sees
    the single replies of enough rounds can solve for Y_i^T Y_i.

Cost
    8 d k bytes each way and 4 n_i d k flops per site and round.  Linear convergence with ratio lambda_{k+1} / lambda_k.

Differences from the paper
    None in the iteration (SSI, the baseline of Section 5 of the FAPS paper).  The stopping rule and the confirmation are ours,
    and the answer is rotated to the eigenvectors of Z^T C Z, so that components and variances come out separately.

References
    Lei Wang, Xin Liu, Yin Zhang, FAPS paper, Sections 1.2 and 5; H. Rutishauser, Numer. Math. 13 (1969).

>>> import numpy as np, eigenpact as ep
>>> X = np.random.default_rng(0).normal(size=(60, 4)) * [9, 3, 1, 1]
>>> pca = ep.FederatedPCA(n_components=2, solver="subspace", random_state=0).fit({"A": X[:20], "B": X[20:]})
>>> pca.converged_, pca.angle_estimate_ <= 1e-6
(True, True)
"""

from __future__ import annotations

import numpy as np

from ...numerics.linalg import Array, orthonormalize
from ...numerics.metrics import kkt
from ...runtime import Progress, Sum
from ..confirmation import confirm, confirmed_solution, unconfirmed
from ..goal import LINEAR_ANGLE, Goal, check_angle_tol
from ..method import method
from ..parameters import check_choice
from ..products import PRODUCTS, scatter_action
from ..setup import Setup
from ..solution import Solution, State, residual_angle
from ..start import Start, first_block

STEADY = 0.1
"""A contraction that changes by less than this share of its distance from 1 is taken for that of the gap."""


@method("consensus", parts=(PRODUCTS,))
class Subspace:
    """Federated subspace iteration.

    Parameters
    ----------
    start : "random" or "one-shot"
        The one-shot start costs one round and reveals every site's leading directions to the coordinator.
    angle_tol : float, optional
        Stop as soon as the estimated sine of the largest angle to the exact answer is at most this; without ``tol`` the default
        is 1e-6, or what rounding allows.
    """

    start: Start = "random"
    angle_tol: float | None = None

    name = "subspace"
    default_angle = LINEAR_ANGLE

    def __post_init__(self) -> None:
        check_choice("start", self.start, Start)
        check_angle_tol(self.angle_tol)

    async def fit(self, setup: Setup, start: Array | None = None, state: State | None = None) -> Solution:
        """Iterate until the answer is good enough and confirmed."""
        goal, k = Goal.of(setup, self.angle_tol, self.default_angle), setup.whole_components()
        if state is None:
            Z, rounds = await first_block(setup, k, self.start, start)  # line 1
            state = iteration_state(Z, rounds)
        Z, (ratio, residual_prev, rounds, caution) = state["Z"], state["counters"].tolist()
        while True:  # line 2
            G, rounds = await Sum(scatter_action, Z), int(rounds) + 1  # line 3
            residual = kkt(G, Z, setup.trace)
            ratio_prev, ratio = ratio, _contraction(residual, residual_prev, ratio)
            values = np.linalg.eigvalsh(Z.T @ G)
            inside = float(values[0])
            angle = residual_angle(residual * setup.trace, inside, ratio * inside) if k < setup.n_features else 0.0
            settled = abs(ratio - ratio_prev) <= STEADY * (1 - ratio)  # else it is not yet the last directions that it tells of
            good = (
                (goal.tol is not None and residual <= goal.tol)
                or caution * residual <= setup.tightest
                or setup.at_grain(residual)
            )
            good = good or (goal.angle is not None and caution * angle <= goal.angle and settled)  # line 4
            last = rounds + 1 >= setup.max_rounds  # the confirmation takes one round at least
            Z_next, residual_prev = orthonormalize(G), residual  # line 5
            here = iteration_state(Z_next, rounds, ratio, residual_prev, caution)
            await Progress(basis=Z, objective=setup.share(values), kkt=residual, state=None if good or last else here)
            if rounds >= setup.max_rounds:
                return confirmed_solution(setup, unconfirmed(Z, G, setup.trace, rounds), goal)
            if good or last:
                verdict = await confirm(setup, Z, goal, rounds)
                if verdict.good(goal) or verdict.rounds + 1 >= setup.max_rounds:
                    return confirmed_solution(setup, verdict, goal)
                rounds, caution = verdict.rounds, caution * verdict.caution(goal, caution * angle)
                if verdict.lost:
                    Z_next, ratio, residual_prev = verdict.better, 1.0, np.inf
            Z = Z_next


def iteration_state(
    Z: Array, rounds: int, ratio: float = 1.0, residual: float = np.inf, caution: float = 1.0
) -> dict[str, Array]:
    """Where the iteration stands: the basis, the contraction and residual of the round before, and how little to believe them."""
    return {"Z": Z, "counters": np.array([ratio, residual, rounds, caution])}


def _contraction(residual: float, before: float, known: float) -> float:
    """By what the residual fell; what was known where there is no residual before."""
    if not np.isfinite(before):
        return known
    return min(1.0, residual / before) if before > 0 else 0.0
