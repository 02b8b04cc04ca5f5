"""FAPS: every site keeps a subspace of its own, and penalties and low-rank multipliers bring the subspaces together.

Problem
    min sum_i -1/2 tr(X_i^T C_i X_i)  subject to  X_i X_i^T = Z Z^T,  X_i and Z orthonormal d x k,  C_i = Y_i^T Y_i (d x d), site
    i holding the centred rows Y_i (n_i x d).  At the solution Z spans the leading k eigenvectors of C = sum_i C_i.

Rounds
    1. Z <- a first basis; X_i <- Z
    2. for each round, the coordinator sends Z; at site i:
    3.     H_i = C_i + Lambda_i + beta_i Z Z^T;  X_i <- about its leading k eigenvectors, by a few inner steps         (11), (12)
    4.     L_i <- -(I - X_i X_i^T) C_i X_i, the paper's W_i; Lambda_i = X_i L_i^T + L_i X_i^T: kept as two factors     (15), (16)
    5.     the site returns M_i = (beta_i X_i X_i^T - Lambda_i) Z, the paper's Y_i                                     (18), (19)
    6. Z <- orth(sum_i M_i)                                                                                                 (19)
    7. once ||(I - Z Z^T) sum_i M_i||_F is small, have Z confirmed (``confirmation.py``); if it is not good enough, go on
    Robust rule (default): the inner steps begin at Z, and beta_i = max(.12 lambda_1(C_i), kappa delta_i), where delta_i is how
    much C_i prefers a direction outside Z to one inside: lambda_max((I - ZZ^T) C_i (I - ZZ^T)) - lambda_min(Z^T C_i Z), as far
    as the last round's products show it.  kappa = 1.1, times 1.5 (up to 4) when line 7 has not fallen for 8 rounds.
    ``literal=True`` is the paper's text: inner steps begin at X_i and stop by (26), beta_i = .15 lambda_1(C_i) raised by (25),
    random start, stop when the captured variance changes by less than 1e-10 of itself (27).

Leaves the site
    M_i (d x k) and eight numbers each round, to be summed; with the one-shot start also the leading directions (see
    ``algorithms/start.py``); in the end C_i B for the blocks of the confirmation, to be summed.  Whoever sees single replies
    learns more than the paper says: with X_i = Z the first M_i is beta_i Z + (I - Z Z^T) C_i Z (see
    docs/explanation/what-faps-hides.md).

Cost
    8 (d k + 8) bytes up and 8 (d k + 5) down per site and round.  At the site 4 passes over the rows with ``steps=3`` (literal
    mode and ``inner="exact"``: as many as they need), 16 n_i d k + O(d k^2) flops, 2 d k kept numbers.

Differences from the paper
    Read literally the text stalls: with X_i = Z the subspace Z is invariant under H_i, so the inner iteration leaves it only by
    rounding, and (26) measures how the basis turns, not whether the subspace moves.  Hence the robust rule: with beta_i
    below delta_i a site would prefer some direction outside Z, and a tenth more makes up for delta_i being estimated.  The
    quantity of line 7 need not bound the residual (it was ten times smaller in trials), so products confirm it.
    ``history_`` watches the augmented Lagrangian (9), the distances d_p(X_i, Z) (21), decrease and gradients of conditions (13)
    and (14), and at how many sites these were met, (14) with the delta_i that Assumption 6 asks for.

    What is told of a round is Z of line 6, and the answer spans the last Z, turned to its own axes.  The Rayleigh-Ritz step on
    the space that confirms it is ours: its rounds are marked "confirming" in ``history_``, with the residual of its own answer as
    "ritz_kkt".  Where that shows that Z missed a direction, the method goes on from there: later rounds are marked "set_right".

References
    L. Wang, X. Liu, Y. Zhang, "Seeking consensus on subspaces in federated principal component analysis", Algorithm 1, Sections 3
    and 5.2; equation numbers are theirs.

>>> import numpy as np, eigenpact as ep
>>> X = np.random.default_rng(0).normal(size=(60, 4)) * [9, 3, 1, 1]
>>> pca = ep.FederatedPCA(n_components=2, solver="faps", random_state=0).fit({"A": X[:20], "B": X[20:]})
>>> pca.converged_, sorted(pca.history_[2].details)[:3]
(True, ['decrease', 'distance', 'estimate'])
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np

from ...numerics.krylov_space import SMALLEST_STEP
from ...numerics.linalg import Array, orthonormalize
from ...numerics.metrics import kkt
from ...runtime import Local, Progress, Reply, Site, Sum, local
from ...runtime.doubts import Told
from ..confirmation import Verdict, confirm, confirmed_solution
from ..goal import LINEAR_ANGLE, Goal
from ..method import method
from ..parameters import check, check_choice, check_positive, check_whole
from ..products import PRODUCTS
from ..setup import CENTRE, Setup, rows_of
from ..solution import Solution, State
from ..start import Start, first_block
from ..told import doubt_size
from .subproblem import WATCHED, Inner, Subproblem, distance, largest_outside, solve, strictness, watch

BETA, KAPPA = 0.12, 1.1
"""The robust rule's beta_i in units of lambda_1(C_i) and of delta_i, both near the smallest that do not diverge."""

STIFFEN, STIFFEST, STALL = 1.5, 4.0, 8
"""kappa is multiplied by STIFFEN, up to STIFFEST times its value, when the estimate has not fallen for STALL rounds."""

LITERAL_BETA, LITERAL_GROWTH, LITERAL_SLACK, LITERAL_PERIOD = 0.15, 0.1, 0.01, 5
"""beta_i^(0) in units of lambda_1(C_i), theta, mu and the period of the paper's rule (25)."""

FIRST_TRY = 1e-8
"""Where line 7 looks first, if no tol is given; a confirmation then tells how much closer it must be."""

LITERAL_CHANGE, LITERAL_STEPS, LITERAL_TOL = 1e-2, 100, 1e-10
"""epsilon_x of (26), a cap on the inner iterations that the paper does not state, and the relative change of (27)."""


@local(reads=CENTRE, keeps=("largest",), setup=True)
def measure(site: Site) -> Reply:
    """Remember the largest eigenvalue of C_i, the unit of beta_i."""
    values, _ = rows_of(site).top(1)
    return Reply(keep={"largest": float(values[0]) if len(values) else 0.0})


def _doubt_message(told: Told, Z: Array, _inner: Any, _steps: Any, beta: Any, stiffness: Any, *rest: Any) -> str:
    """M_i has at most beta_i sqrt(k) and what its multiplier adds; the variance captured is within the trace."""
    most = max(float(beta), KAPPA * float(stiffness)) * float(np.sqrt(Z.shape[1])) + 2
    _strict, M, captured, _watched = rest
    return doubt_size(told, M, most) or doubt_size(told, captured)


@local(
    takes={"Z": "d k", "inner": "", "steps": "", "beta": "", "stiffness": "", "strict": ""},
    sends={"M": "d k", "captured": "", "watched": "7"},
    reads=(*CENTRE, "delta", "X", "L", "captured", "largest"),
    keeps=("X", "L", "captured", "delta"),
    bound={"M": "traces", "captured": "trace"},
    means={"Z": "orthonormal", "inner": "count", "steps": "count"} | dict.fromkeys(("beta", "stiffness", "strict"), "threshold"),
    doubt=_doubt_message,
)
def consensus_step(site: Site, Z: Array, inner: Any, steps: Any, beta: Any, stiffness: Any, strict: Any) -> Reply:
    """Lines 3 to 5 by the robust rule."""
    rows, kept = rows_of(site), site.kept
    CZ = rows.scatter_action(Z)
    X, L, captured = (kept["X"], kept["L"], kept["captured"]) if "X" in kept else _first_iterate(Z, CZ)
    delta = kept.get("delta", 0.0)
    beta_i = max(float(beta) * kept["largest"], KAPPA * float(stiffness) * delta)
    H = Subproblem(rows.scatter_action, X, L, Z, beta_i, seen=[(Z, CZ)])
    X_new, CX = solve(H, Z, CZ, get_args(Inner)[int(inner)], int(steps))  # line 3
    outside = largest_outside(H)
    if outside is not None:
        delta = min(outside, kept["largest"]) - float(np.linalg.eigvalsh(Z.T @ CZ)[0])
    L_new, M = _multiplier_and_message(H, X_new, CX)  # lines 4, 5
    send = M, np.float64(np.sum(Z * CZ)), watch(H, captured, X_new, CX, kept["largest"], float(strict))
    return Reply(send, {"X": X_new, "L": L_new, "captured": float(np.sum(X_new * CX)), "delta": delta})


@local(
    takes={"Z": "d k", "inner": "", "share": "", "absolute": "", "adapt": "", "strict": ""},
    sends={"M": "d k", "captured": "", "watched": "7"},
    reads=(*CENTRE, "beta", "X", "L", "captured", "largest", "distance"),
    keeps=("X", "L", "captured", "beta", "distance"),
    bound={"captured": "trace"},
    means={"Z": "orthonormal", "inner": "count", "adapt": "count"} | dict.fromkeys(("share", "absolute", "strict"), "threshold"),
)
def literal_step(site: Site, Z: Array, inner: Any, share: Any, absolute: Any, adapt: Any, strict: Any) -> Reply:
    """Lines 3 to 5 by the paper; beta_i begins at ``share`` lambda_1(C_i) and grows if ``adapt``, or is ``absolute``."""
    rows, kept = rows_of(site), site.kept
    CX = rows.scatter_action(kept.get("X", Z))
    X, L, captured = (kept["X"], kept["L"], kept["captured"]) if "X" in kept else _first_iterate(Z, CX)
    beta_i = kept.get("beta", float(share) * kept["largest"] + float(absolute))
    H = Subproblem(rows.scatter_action, X, L, Z, beta_i)
    X_new, CX = solve(H, X, CX, get_args(Inner)[int(inner)], LITERAL_STEPS, LITERAL_CHANGE)  # line 3
    L_new, M = _multiplier_and_message(H, X_new, CX)  # lines 4, 5
    send = M, np.float64(np.sum(rows.project(Z) ** 2)), watch(H, captured, X_new, CX, kept["largest"], float(strict))
    keep = {"X": X_new, "L": L_new, "captured": float(np.sum(X_new * CX)), "beta": beta_i}
    if bool(adapt) and float(share) > 0:  # (25)
        apart = distance(X, Z)
        grows = kept.get("distance", np.inf) <= (1 + LITERAL_SLACK) * apart
        keep |= {"beta": (1 + LITERAL_GROWTH) * beta_i if grows else beta_i, "distance": apart}
    return Reply(send, keep)


def _first_iterate(Z: Array, CZ: Array) -> tuple[Array, Array, float]:
    """X_i = Z, its multiplier L_i (16) and the variance tr(X_i^T C_i X_i) it captures."""
    inside = Z.T @ CZ
    return Z, Z @ inside - CZ, float(np.trace(inside))


def _multiplier_and_message(H: Subproblem, X: Array, CX: Array) -> tuple[Array, Array]:
    """L_i = -(I - X X^T) C X (16) and M_i = (beta X X^T - X L^T - L X^T) Z (18), (19)."""
    L = X @ (X.T @ CX) - CX
    overlap = X.T @ H.Z
    return L, X @ (H.beta * overlap - L.T @ H.Z) - L @ overlap


@method(
    "consensus",
    {Local: (measure,), Sum: (consensus_step, literal_step)},
    parts=(PRODUCTS,),
    remark="`literal_step` replaces `consensus_step` with `literal=True`.",
)
class FAPS:
    """Consensus on subspaces by penalties and low-rank multipliers.

    Parameters
    ----------
    start : "one-shot", "random" or None
        None takes "one-shot", with ``literal``, or where sums are secured, "random".  The one-shot start costs one round and
        reveals every site's leading directions to the coordinator.
    literal : bool
        The paper's text instead of the robust rule; it needs many more rounds or stalls.
    inner : "subspace", "lanczos" or "exact"
        How a site solves its subproblem.
    steps : int
        Inner steps a round under the robust rule (not for "exact"); a round takes one pass over the rows more than that.
    beta : float, optional
        Penalty in units of ``beta_unit``; None takes .12, with ``literal`` .15.  Under the robust rule a lower bound, <= 4.4.
    beta_unit : "site" or "trace"
        The largest eigenvalue of the site's own scatter; or, with ``literal``, the trace of the pooled one, as the theory has it,
        and then fixed: (25) would raise it for ever.
    """

    start: Start | None = None
    literal: bool = False
    inner: Inner = "subspace"
    steps: int = 3
    beta: float | None = None
    beta_unit: Literal["site", "trace"] = "site"

    name = "faps"
    default_angle = LINEAR_ANGLE

    def __post_init__(self) -> None:
        if self.start is not None:
            check_choice("start", self.start, Start)
        check_choice("inner", self.inner, Inner)
        check_whole("steps", self.steps)
        unit = self.beta_unit == "site" or (self.beta_unit == "trace" and self.literal)
        check("beta_unit", self.beta_unit, unit, "'site', or 'trace' together with literal=True")
        if self.beta is not None:
            check_positive("beta", self.beta, ", or None for the rule's own")
            small = self.literal or self.beta <= KAPPA * STIFFEST
            check("beta", self.beta, small, f"at most {KAPPA * STIFFEST:g} under the robust rule; or use literal=True")

    @property
    def chosen_start(self) -> Start:
        """What ``start`` stands for."""
        return self.start or ("random" if self.literal else "one-shot")

    async def fit(self, setup: Setup, start: Array | None = None, state: State | None = None) -> Solution:  # noqa: ARG002
        """Seek consensus until the sites' subspaces agree, then have it confirmed."""
        goal, k = Goal.of(setup, None, self.default_angle), setup.whole_components()
        tol = setup.stopping_tol(LITERAL_TOL if self.literal else FIRST_TRY)
        Z, rounds = await first_block(setup, k, self.chosen_start, start)  # line 1
        await Local(measure)
        captured, caution, change, estimate = np.inf, 1.0, np.inf, np.inf
        stiffness, best, idle = 1.0, np.inf, 0
        helped: dict[str, float] = {}
        while True:  # line 2
            exhausted = rounds + 1 >= setup.max_rounds  # the last round is for line 7
            settled = False
            if not exhausted:
                M, captured_new, watched = await self._step(setup, Z, stiffness, rounds)  # lines 3 to 5
                estimate = kkt(M, Z, setup.trace)
                Z, rounds = orthonormalize(M), rounds + 1  # line 6
                await Progress(basis=Z, objective=setup.share(captured_new), details=_details(estimate, watched, setup) | helped)
                change, captured = abs(float(captured_new) - captured), float(captured_new)
                settled = change <= tol * captured if self.literal else caution * estimate <= tol
                best, idle = (estimate, 0) if estimate < best else (best, idle + 1)
                if idle >= STALL:
                    stiffness, idle = min(STIFFEST, STIFFEN * stiffness), 0
            if settled or exhausted:  # line 7
                verdict = await confirm(setup, Z, goal, rounds)
                rounds, ended = verdict.rounds, verdict.rounds + 1 >= setup.max_rounds
                if self.literal or verdict.good(goal) or ended:
                    break
                caution *= verdict.caution(goal, goal.angle or 1.0)
                if goal.tol is not None:
                    caution = max(caution, verdict.kkt / max(estimate, SMALLEST_STEP))
                if verdict.lost:
                    Z, helped = verdict.better, {"set_right": 1.0}
        change = change / captured if captured > 0 else 0.0
        return self._literal_solution(verdict, tol, change, settled) if self.literal else confirmed_solution(setup, verdict, goal)

    def _step(self, setup: Setup, Z: Array, stiffness: float, rounds: int) -> Sum:
        """The round that the chosen rule asks for."""
        inner, strict = np.int64(get_args(Inner).index(self.inner)), np.float64(strictness(setup.n_sites))
        if not self.literal:
            rule = np.int64(self.steps), np.float64(self.beta or BETA), np.float64(stiffness)
            return Sum(consensus_step, Z, inner, *rule, strict)
        share, absolute = (self.beta or LITERAL_BETA), 0.0
        if self.beta_unit == "trace":
            share, absolute = 0.0, share * setup.trace
        adapt = np.bool_(rounds % LITERAL_PERIOD == 0)
        return Sum(literal_step, Z, inner, np.float64(share), np.float64(absolute), adapt, strict)

    def _literal_solution(self, verdict: Verdict, tol: float, change: float, settled: bool) -> Solution:
        """The paper's stopping rule (27), and what the confirmation says of it."""
        known = verdict.told()
        converged = settled and verdict.certain and not verdict.lost
        if settled:
            reason = f"the captured variance changed by {change:.1e} of itself, within tol {tol:.1e} (27); {known}"
        else:
            reason = f"max_rounds reached before the captured variance settled; {known}; raise max_rounds, or use solver='krylov'"
        if settled and verdict.lost:
            reason += ": a direction was missed"
        return verdict.solution(converged, reason)


def _details(estimate: float, watched: Array, setup: Setup) -> dict[str, float]:
    """What ``history_`` tells of a round: root mean squares over sites, and for how many of them (13) and (14) held."""
    sums = dict(zip(WATCHED, watched.tolist(), strict=True))
    return {
        "estimate": estimate,
        "distance": float(np.sqrt(sums["distance2"] / setup.n_sites)),
        "lagrangian": sums["lagrangian"],
        "decrease": sums["decrease"],
        "gradient": float(np.sqrt(sums["gradient2"])),
        "gradient_after": float(np.sqrt(sums["gradient_after2"])),
        "met_13": sums["met_13"],
        "met_14": sums["met_14"],
    }
