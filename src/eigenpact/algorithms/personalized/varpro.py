"""Personalized PCA by variable projection: sites solve for their local parts exactly, the coordinator takes quasi-Newton steps.

Problem
    maximize  f(U) = 1/N sum_i max over V_i of  tr(U^T S_i U) + tr(V_i^T S_i V_i)   over orthonormal [U, V_i], U (d x r1) the same
    everywhere, V_i (d x r2_i) of site i alone; S_i = Y_i^T Y_i / n_i, site i holding the centred rows Y_i (n_i x d).          (7)

Rounds
    1. U <- a first global part; H <- what is known of the curvature, nothing
    2. the coordinator sends U; site i: V_i <- leading r2_i eigenvectors of (I - U U^T) S_i (I - U U^T), kept
    3.     the site returns M_i = (I - V_i V_i^T) S_i U, tr(U^T S_i U) + tr(V_i^T S_i V_i), and its error on rows held out
    4. M <- 1/N sum_i M_i;  G <- (I - U U^T) M, half of f's gradient;  g <- tr(G^T G (U^T M)^-1)
       stop if g <= tol^2 (1/N sum_i tr S_i - f): the step to what M spans promises too little of what is missed;
       and so does line 5's, tr(P^T G), once H knows something: where U lies in local directions g is small for any U
    5. P <- H G (limited-memory BFGS), by 45 degrees at most;  t <- 1
    6. U_new <- polar(U + t P);  lines 2 and 3 at U_new
    7. if f has not risen enough: t <- shorter by interpolation, line 6 again;  else H learns from the step, U <- U_new, line 4

Leaves the site
    M_i (d x r1) and two numbers each round, to be summed; with a merged start also leading directions (see ``start.py``).
    V_i stays.  Whoever sees single replies of many rounds can fit S_i to them.

Cost
    8 (d r1 + 2) bytes up and 8 d r1 down per site and round.  At the site d^2 (r1 + r2) + O(d^3) flops if d <= n_i, else
    4 n_i d (r1 + r2) + O(n_i^3), and the smaller of S_i and Y_i Y_i^T kept.

Differences from the paper
    The same problem and the same message as PerPCA (``perpca.py``), whose gradient steps move U and V_i together.  Here V_i is
    eliminated: by the envelope theorem the gradient of f is that of the whole at the best V_i, so d x r1 numbers are all that the
    coordinator needs to go uphill faster than the gradient.  Every evaluation is a round, also one whose step is refused.

References
    N. Shi, R. A. Kontar, "Personalized PCA: decoupling shared and unique features", Section 3; G. Golub, V. Pereyra, "The
    differentiation of pseudo-inverses and nonlinear least squares problems", SIAM J. Numer. Anal. 10 (1973).

>>> import numpy as np, eigenpact as ep
>>> rng = np.random.default_rng(0)
>>> rows = {name: rng.normal(size=(60, 5)) * scale for name, scale in [("A", [3, 9, 1, 1, 1]), ("B", [3, 1, 9, 1, 1])]}
>>> pca = ep.PersonalizedPCA(n_global=1, n_local=1, random_state=0).fit(rows)
>>> [int(np.abs(c[0]).argmax()) for c in (pca.components_, pca.local_components_["A"], pca.local_components_["B"])]
[0, 1, 2]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...numerics.linalg import Array, polar_factor, top_eigenpairs, without
from ...runtime import Local, Progress, Reply, Site, Sum, local
from ..method import method
from ..parameters import check_choice
from ..solution import Solution, State
from .local_part import hidden_gain, promised_gain
from .parts import PART, PATIENCE, PersonalSetup, covariance_of, held_out_error, settle
from .secants import Secants
from .start import Start, first_global

ENOUGH = 1e-4
"""A step is taken if f rises by this share of what its gradient promises."""

SHORTER, SHORTEST = 0.5, 0.1
"""A refused step is shortened by interpolation, by a factor between these."""

NOISE = 1e-13
"""Changes of f below this share of the mean of tr S_i are rounding."""


@local(
    takes={"U": "d k"},
    sends={"M": "d k", "captured": "", "held_out": ""},
    reads=(*PART, "rank"),
    keeps=("V", "values"),
    bound={"M": "trace", "captured": "trace", "held_out": "trace"},
    means={"U": "orthonormal"},
)
def exact_local_part(site: Site, U: Array) -> Reply:
    """Lines 2 and 3: V_i given U, and what the coordinator needs to improve U."""
    values, V, SU = covariance_of(site).split(U, site.kept["rank"])  # line 2
    captured = float(np.sum(U * SU) + values.sum())
    send = without(SU, V), captured, held_out_error(site, U, V)  # line 3
    return Reply(send, {"V": V, "values": values})


@dataclass(frozen=True, eq=False)
class Point:
    """f and its half gradient at one U.

    U, M, G (d x r1): the global part, the mean message and its tangent part.  ``captured`` is f, ``held_out`` the mean error on
    rows held out, ``kkt`` the scaled residual, sqrt(g / (mean of tr S_i - f)).
    """

    U: Array
    M: Array
    G: Array
    captured: float
    held_out: float
    kkt: float


@method("personalized", {Sum: (exact_local_part,)})
class VarPro:
    """Variable projection with quasi-Newton steps.

    Finds a stationary point, which may be a local maximum: compare ``captured_`` over ``random_state`` with ``start="random"``.

    Parameters
    ----------
    start : "distpca", "covariance", "random" or None
        Merged starts cost one round and reveal every site's leading r1 + r2 directions to the coordinator.  None takes
        "distpca", or "random" where sums are secured.
    """

    start: Start | None = None

    name = "varpro"
    default_tol = 5e-6

    def __post_init__(self) -> None:
        if self.start is not None:
            check_choice("start", self.start, Start)

    @property
    def chosen_start(self) -> Start:
        """What ``start`` stands for; where sums are secured, "random" takes its place before."""
        return self.start or "distpca"

    async def fit(self, setup: PersonalSetup, start: Array | None = None, state: State | None = None) -> Solution:  # noqa: ARG002
        """Climb until the gradient is small, or until the error on rows held out no longer falls."""
        tol = setup.stopping_tol(self.default_tol)
        U, rounds = await first_global(setup, self.chosen_start, start)  # line 1
        here = best = await _evaluate(setup, U)
        secants, rounds, idle, settled = Secants(), rounds + 1, 0, True
        await _tell(setup, here, here)
        while rounds < setup.max_rounds and idle < PATIENCE:
            P = secants.direction(here.U, here.M, here.G)  # line 5
            if _stationary(setup, tol, here, secants, P):
                break
            promise, t = 2 * float(np.sum(P * here.G)), 1.0
            while True:
                there = await _evaluate(setup, polar_factor(here.U + t * P))  # line 6
                rounds, gain = rounds + 1, there.captured - here.captured
                settled = gain >= ENOUGH * t * promise - NOISE * setup.total
                await _tell(setup, there if settled else here, there)
                if settled or rounds >= setup.max_rounds:
                    break
                t *= float(np.clip(t * promise / (2 * (t * promise - gain)), SHORTEST, SHORTER))  # line 7
            if settled:
                secants = secants.moved(there.U, t * P, here.G, there.G)
                here = there
                if setup.n_held_out:
                    best, idle = (here, 0) if here.held_out < best.held_out else (best, idle + 1)
        chosen = best if setup.n_held_out else here
        if setup.n_held_out or not settled:  # the sites hold the local part of another U, or of fewer rows
            await Local(settle, chosen.U, np.int64(0))
        values, rotation = top_eigenpairs(chosen.U.T @ chosen.M)
        stationary = _stationary(setup, tol, here, secants, secants.direction(here.U, here.M, here.G))
        seen = setup.scaled_kkt(hidden_gain(here.U.T @ here.M, setup.n_features, setup.total), here.captured) <= tol
        converged = (stationary and seen) or idle >= PATIENCE
        notes = {"captured": chosen.captured / setup.total if setup.total > 0 else 0.0, "held_out": chosen.held_out}
        reason = self._reason(setup, tol, here, idle, stationary, seen)
        return Solution(chosen.U @ rotation, np.maximum(values, 0.0), chosen.kkt, None, converged, reason, notes)

    def _reason(self, setup: PersonalSetup, tol: float, here: Point, idle: int, stationary: bool, seen: bool) -> str:
        residual = f"scaled KKT residual {here.kkt:.1e}"
        if idle >= PATIENCE:
            return f"the error on rows held out has not fallen for {PATIENCE} rounds; {residual}"
        if stationary and seen:
            return f"{residual} reached tol {tol:.1e}"
        if stationary:
            return (
                f"{residual} is all that rounding leaves to see: variances along the global part are too small beside all "
                "others; centre the rows, give features like units (scale='pooled'), or raise tol"
            )
        return f"max_rounds={setup.max_rounds} reached at {residual}, tol {tol:.1e}; raise max_rounds, or tol if that is enough"


def _stationary(setup: PersonalSetup, tol: float, here: Point, secants: Secants, P: Array) -> bool:
    """Line 4: neither a step of subspace iteration nor P, the next one, promises more than a share tol^2 of what is missed."""
    if here.kkt > tol or here.kkt == 0:
        return here.kkt <= tol
    return bool(secants.pairs) and setup.scaled_kkt(float(np.sum(P * here.G)), here.captured) <= tol


async def _evaluate(setup: PersonalSetup, U: Array) -> Point:
    """Lines 2 to 4 at U.  One round."""
    M, captured, held_out = await Sum(exact_local_part, U)
    M = M / setup.n_sites
    G = without(M, U)
    f = float(captured) / setup.n_sites
    kkt = setup.scaled_kkt(promised_gain(G, U.T @ M, setup.total), f)
    return Point(U, M, G, f, float(held_out) / max(1, setup.n_held_out), kkt)


async def _tell(setup: PersonalSetup, stands: Point, tried: Point) -> None:
    """Where the run stands after a round; ``tried`` differs from it if the step was refused."""
    share = stands.captured / setup.total if setup.total > 0 else 0.0
    details = {"accepted": float(stands is tried)} | ({"held_out": stands.held_out} if setup.n_held_out else {})
    await Progress(basis=stands.U, objective=share, kkt=stands.kkt, details=details)
