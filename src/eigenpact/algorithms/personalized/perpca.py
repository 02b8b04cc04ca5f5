"""PerPCA: gradient steps on the Stiefel manifold for global and local parts together, as published (choices 1 and 2).

Problem
    maximize  1/N sum_i tr(U^T S_i U) + tr(V_i^T S_i V_i)   over orthonormal [U, V_i],  U (d x r1) the same everywhere,
    V_i (d x r2_i) of site i alone; S_i = Y_i^T Y_i / n_i, site i holding the centred rows Y_i (n_i x d).                      (7)

Rounds
    1. U <- a first global part;  V_i <- random
    2. for each round, the coordinator sends U; at site i:
    3.     V_i <- GR(V_i - U U^T V_i): deflate, then retract
    4.     choice 1: G_i <- (I - U U^T - V_i V_i^T) S_i [U, V_i], the tangent projection                                      (21)
    5.               U_i <- U + eta G_i[:, :r1];  V_i <- GR(V_i + eta G_i[:, r1:])
    6.     choice 2: [U_i, V_i] <- polar([U, V_i] + eta S_i [U, V_i])
    7.     the site returns U_i
    8. U <- GR(1/N sum_i U_i)
    GR is the polar factor or the Q factor (with a positive diagonal of R) of its argument.                   Propositions 6, 7

Leaves the site
    U_i (d x r1), U^T S_i U (r1 x r1) and three numbers each round, to be summed: tr(V_i^T S_i V_i), the gain that G_i's local
    part promises (``promised_gain``), and the error on rows held out.  For the step size the largest eigenvalue of S_i, once, by
    ``Max``: a mean would be no safe bound, and one variance per site says little.  With a merged start also leading directions
    (see ``start.py``).  V_i stays.

Cost
    8 (d r1 + r1^2 + 3) bytes up and 8 d r1 down per site and round; at the site one product of S_i with r1 + r2 columns.

Differences from the paper
    The step size is 1 / max_i lambda_1(S_i) unless given: 2 / is the limit, beyond it the iteration fails.  The start is the
    mean of projectors unless ``start="covariance"``.  A round's message belongs to the [U, V_i] of lines 2 and 3, and the answer
    is the last such pair, so that it needs no further broadcast.  Choice 2 has no gradient to stop on: it stops when U no longer
    moves, which is near, but in general not at, a stationary point of (7).

References
    N. Shi, R. A. Kontar, "Personalized PCA: decoupling shared and unique features", Algorithm 2; equation numbers are theirs.

>>> import numpy as np, eigenpact as ep
>>> rng = np.random.default_rng(0)
>>> rows = {name: rng.normal(size=(60, 5)) * scale for name, scale in [("A", [3, 9, 1, 1, 1]), ("B", [3, 1, 9, 1, 1])]}
>>> pca = ep.PersonalizedPCA(n_global=1, n_local=1, solver=ep.solvers.PerPCA(choice=1), random_state=0).fit(rows)
>>> pca.converged_, pca.history_[-1].kkt <= 5e-5
(True, True)
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ...numerics.linalg import Array, polar_factor, q_factor, top_eigenpairs, without
from ...runtime import Local, Max, Progress, Reply, Site, Sum, local
from ..method import method
from ..parameters import check, check_choice, check_positive
from ..solution import Solution, State
from .local_part import promised_gain
from .parts import PART, PATIENCE, PersonalSetup, covariance_of, held_out_error, settle
from .start import Start, first_global

Retraction = Literal["polar", "qr"]


@local(sends={"largest": ""}, reads=PART, bound="trace", setup=True)
def largest_variance(site: Site) -> float:
    """The largest eigenvalue of S_i."""
    return covariance_of(site).largest()


@local(
    takes={"U": "d k", "eta": "", "choice": "", "qr": ""},
    sends={"U_i": "d k", "B": "k k", "watched": "3"},
    reads=(*PART, "V_half", "seed", "rank"),
    keeps=("V", "V_half", "values"),
    bound={"B": "trace"},
    means={"U": "orthonormal", "eta": "threshold", "choice": "count", "qr": "count"},
)
def stiefel_step(site: Site, U: Array, eta: Any, choice: Any, qr: Any) -> Reply:
    """Lines 3 to 7."""
    S, (d, r1) = covariance_of(site), U.shape
    retract = q_factor if bool(qr) else polar_factor
    V_half = site.kept.get("V_half")
    if V_half is None:  # line 1
        V_half = site.rng(site.kept["seed"]).standard_normal((d, min(site.kept["rank"], d - r1)))
    V = _deflated(V_half, U, retract)  # line 3
    UV = np.concatenate([U, V], axis=1)
    SUV = S.action(UV)
    G = without(SUV, UV)  # line 4; [U V]^T S [U V] is symmetric
    if int(choice) == 1:
        U_i, V_half = U + float(eta) * G[:, :r1], retract(V + float(eta) * G[:, r1:])  # line 5
    else:
        stepped = polar_factor(UV + float(eta) * SUV)  # line 6
        U_i, V_half = stepped[:, :r1], stepped[:, r1:]
    values, rotation = top_eigenpairs(V.T @ SUV[:, r1:])
    gain = promised_gain(G[:, r1:], V.T @ SUV[:, r1:], S.trace)
    watched = np.array([values.sum(), gain, held_out_error(site, U, V)])
    real = values > S.rounding  # directions without variance are none of the answer's, but the next round's start has them
    keep = {"V": (V @ rotation)[:, real], "V_half": np.ascontiguousarray(V_half), "values": values[real]}
    return Reply((U_i, U.T @ SUV[:, :r1], watched), keep)  # line 7


def _deflated(V: Array, U: Array, retract: Any) -> Array:
    """GR(V - U U^T V), and once more: what rounding left of U is of U's size."""
    for _ in range(2 if V.shape[1] else 0):
        V = retract(without(V, U))
    return V


@method("personalized", {Max: (largest_variance,), Sum: (stiefel_step,)})
class PerPCA:
    """Distributed Stiefel gradient ascent with a correction of the local parts.

    Parameters
    ----------
    choice : 1 or 2
        Tangent steps, or polar projection of the whole; choice 2 drifts away from the optimum.
    retraction : "polar" or "qr"
    step : float, optional
        Step size eta; None takes 1 / max_i lambda_1(S_i).
    start : "distpca", "covariance", "random" or None
        "covariance" is the paper's.  Merged starts cost one round and reveal every site's leading directions.  None takes
        "distpca", or "random" where sums are secured.
    """

    choice: Literal[1, 2] = 1
    retraction: Retraction = "polar"
    step: float | None = None
    start: Start | None = None

    name = "perpca"
    default_tol = 5e-5

    def __post_init__(self) -> None:
        if self.start is not None:
            check_choice("start", self.start, Start)
        check("choice", self.choice, self.choice in (1, 2) and not isinstance(self.choice, bool), "1 or 2")
        check_choice("retraction", self.retraction, Retraction)
        if self.step is not None:
            check_positive("step", self.step, ", or None for 1 / max_i lambda_1(S_i)")

    @property
    def chosen_start(self) -> Start:
        """What ``start`` stands for; where sums are secured, "random" takes its place before."""
        return self.start or "distpca"

    async def fit(self, setup: PersonalSetup, start: Array | None = None, state: State | None = None) -> Solution:  # noqa: ARG002
        """Climb with steps of constant size."""
        tol = setup.stopping_tol(self.default_tol)
        eta = self.step
        if eta is None:
            largest = float(await Max(largest_variance))
            eta = 1.0 / largest if largest > 0 else 1.0
        U_next, rounds = await first_global(setup, self.chosen_start, start)  # line 1
        options = np.float64(eta), np.int64(self.choice), np.bool_(self.retraction == "qr")
        retract = q_factor if self.retraction == "qr" else polar_factor
        least, idle = np.inf, 0
        while True:  # line 2
            U = U_next
            total, B, watched = await Sum(stiefel_step, U, *options)  # lines 3 to 7
            rounds, mean, B = rounds + 1, total / setup.n_sites, B / setup.n_sites
            local_captured, local_gain, held_out = (watched / setup.n_sites).tolist()
            moved = without(mean, U) / eta  # choice 1: the mean of the global gradients, which is tangent
            gain = promised_gain(moved, B, setup.total) + (local_gain if self.choice == 1 else 0.0)
            captured = float(np.trace(B)) + local_captured
            residual = setup.scaled_kkt(gain, captured)
            share = captured / setup.total if setup.total > 0 else 0.0
            held_out *= setup.n_sites / max(1, setup.n_held_out)
            details = {"held_out": held_out} if setup.n_held_out else {}
            await Progress(basis=U, objective=share, kkt=residual if self.choice == 1 else None, details=details)
            if held_out < least or not setup.n_held_out:
                least, idle, chosen = held_out, 0, (U, B, share)
            else:
                idle += 1
            if residual <= tol or rounds >= setup.max_rounds or idle >= PATIENCE:
                break
            U_next = retract(mean)  # line 8
        U, B, share = chosen
        if setup.n_held_out:
            await Local(settle, U, np.int64(0))
        values, rotation = top_eigenpairs(B)
        kkt = residual if self.choice == 1 else None
        converged, notes = residual <= tol or idle >= PATIENCE, {"captured": share, "held_out": least}
        reason = self._reason(setup, tol, residual, idle)
        return Solution(U @ rotation, np.maximum(values, 0.0), kkt, None, converged, reason, notes)

    def _reason(self, setup: PersonalSetup, tol: float, residual: float, idle: int) -> str:
        what = "scaled KKT residual (24)" if self.choice == 1 else "scaled motion of U"
        if residual <= tol:
            return f"{what} {residual:.1e} reached tol {tol:.1e}"
        if idle >= PATIENCE:
            return f"the error on rows held out has not fallen for {PATIENCE} rounds; {what} {residual:.1e}"
        return (
            f"max_rounds={setup.max_rounds} reached at {what} {residual:.1e} > tol {tol:.1e}; "
            "raise max_rounds, or use solver='varpro': it needs fewer"
        )
