"""Rayleigh-Ritz on a space that grows by one block a round: the one loop of krylov, lanczos and davidson.

Rounds
    1. B <- Omega, a random orthonormal block (d x b, b = k + 4), beside a given start if there is one
    2. for each round:
    3.     the coordinator sends B; every site returns Y_i^T (Y_i B); the sum is C B
    4.     Q <- [Q, B], C Q <- [C Q, C B]; Rayleigh-Ritz on span(Q): leading Ritz vectors Z with residuals R
    5.     stop if Z is good enough **and** the random block proves that no direction was missed (``certificate.py``)
    6.     thick restart: if another block would exceed max_blocks, keep leading Ritz vectors, three columns of Omega and the
           solutions of (lambda I - C) X = Omega that the space has, lambda >= theta_k: F(lambda) then stays as small as it was
    7.     B <- what the method adds (k directions), and k that make the proof: those of F(theta_k), where a missed direction
           would show
    From a random start, and until the first restart, both are the next block of the Krylov space of Omega, so that is B.

Stopping
    With ``tol`` given, at a scaled KKT residual of ``tol``; else, or in addition, at an estimated sine of the angle.  The
    certificate bounds the angle by residuals over gaps.  That is too large by a factor that hardly changes from round to round,
    because residuals point mostly to directions of low variance.  So past bounds are compared with how far past iterates turned
    out to be from the present one, and the present bound is lowered by the same factor, times ``SAFETY``.  Where rounding
    errors, measured by the asymmetry of Q^T C Q, do not allow the angle asked for, the loop stops there and says so.  Values
    that tie at the cut, and components without variance, have no angle: that is said, too.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np

from ..certificate import LOOKED_AT, NARROW, OVERSAMPLING, Behind, Certificate, certify
from ..errors import InputError
from ..krylov_space import SMALLEST_STEP, KrylovSpace, Ritz
from ..linalg import GRADED, Array, new_directions, orthonormalize, random_orthonormal
from ..metrics import kkt, largest_sine
from ..runtime import Progress, Sum
from .products import scatter_action
from .setup import Setup
from .solution import Solution

EXACT_ANGLE = 1e-8
"""The sine at which exact solvers stop if nothing else is asked for."""

HINDSIGHT, LEARNT, SAFETY = 4, 0.5, 2.0
"""Rounds that are looked back upon; how much lower the bound must be now for a past iterate to count; and a margin."""

AT_ROUNDING, STALL, FINE = 4.0, 10, 1e-12
"""Bounds within this many times the rounding errors fall no more; nor do those that did not fall for so many rounds with a
residual that small."""

NEW = 1e-11
"""How much of a unit vector must be new to be taken for more than rounding."""

PROOF = NARROW * (1 + len(LOOKED_AT))
"""Columns that a restart keeps for the proof."""

SHARE_BLOCK = 10
"""Components looked for while their number is still to be found from a share of the variance."""

Directions = Callable[[KrylovSpace, Ritz, float], Coroutine[Any, Any, Array]]
"""From the space, Ritz pairs and scaled residual to the directions (d x k) that a method wants to add, of any length."""


@dataclass(frozen=True, eq=False)
class Goal:
    """When to stop: at a scaled KKT residual, at an estimated sine of the angle, or at whichever comes first."""

    tol: float | None
    angle: float | None

    @classmethod
    def of(cls, setup: Setup, angle_tol: float | None, default: float) -> Goal:
        """The user's tol and angle_tol; without either, the solver's own angle."""
        if setup.tol is not None:
            return cls(setup.stopping_tol(0.0), angle_tol)
        return cls(None, default if angle_tol is None else angle_tol)

    def met(self, residual: float, angle: float | None, Z: Array) -> bool:  # noqa: ARG002
        """Whether one of them is reached by the basis Z (d x k)."""
        return (self.tol is not None and residual <= self.tol) or (
            self.angle is not None and angle is not None and angle <= self.angle
        )

    def told(self) -> str:
        """What was asked for, in words."""
        asked = [] if self.tol is None else [f"tol {self.tol:.1e}"]
        return " or ".join(asked + ([] if self.angle is None else [f"a sine of {self.angle:.1e}"]))


def check_angle_tol(angle_tol: float | None) -> None:
    """Refuse a sine that no angle has."""
    if angle_tol is not None and not (isinstance(angle_tol, Real) and 0 < angle_tol < 1):
        raise InputError(f"angle_tol={angle_tol!r} must be a sine between 0 and 1, or None for the solver's own")


def check_max_blocks(max_blocks: int) -> None:
    """Refuse a space too small to restart in."""
    if not (isinstance(max_blocks, Integral) and max_blocks >= 3):
        raise InputError(f"max_blocks={max_blocks!r} must be a whole number >= 3: two blocks to keep and one to add")


def width_of(setup: Setup) -> int:
    """Components that a block is made for."""
    wanted = setup.n_components
    return wanted if isinstance(wanted, int) else min(SHARE_BLOCK, setup.n_features, setup.n_samples)


def random_block(setup: Setup) -> Array:
    """Omega (d x b): the same whenever it is asked for."""
    return random_orthonormal(setup.n_features, min(width_of(setup) + OVERSAMPLING, setup.n_features), setup.seed)


@dataclass(frozen=True, eq=False)
class Past:
    """Bases (d x k) of the last rounds, side by side, and the bounds on their angles that were known then."""

    bases: Array
    bounds: Array

    @classmethod
    def empty(cls, d: int) -> Past:
        """No rounds yet."""
        return cls(np.zeros((d, 0)), np.zeros(0))

    def factor(self, Z: Array, bound: float) -> float:
        """By how much bounds were too large, as far as Z (d x k) with its own ``bound`` can tell; at most 1."""
        k, ratios = Z.shape[1], []
        for i, before in enumerate(self.bounds.tolist()):
            if bound <= LEARNT * before < LEARNT:
                seen = largest_sine(self.bases[:, i * k : (i + 1) * k], Z) / (1 - bound / before)
                ratios.append(seen / before)
        return min(1.0, SAFETY * max(ratios)) if len(ratios) > 1 else 1.0

    def add(self, Z: Array, bound: float) -> Past:
        """With one more round, without the oldest one beyond HINDSIGHT."""
        k = Z.shape[1]
        if self.bounds.size and self.bases.shape[1] != k * self.bounds.size:  # the number of components has changed
            return Past(Z, np.array([bound]))
        bases = np.concatenate([self.bases, Z], axis=1)[:, -HINDSIGHT * k :]
        return Past(np.ascontiguousarray(bases), np.append(self.bounds, bound)[-HINDSIGHT:])


async def begin(setup: Setup, start: Array | None, rounds: int) -> dict[str, Array]:
    """The state after the first round (lines 1, 3), with the directions ``start`` (d x any) if given; ``rounds`` were used
    before."""
    B = random_block(setup)
    if start is not None:
        first = orthonormalize(start)[:, : setup.n_features]
        B = np.concatenate([first, new_directions(B, first, SMALLEST_STEP)], axis=1)
    CB = await Sum(scatter_action, np.ascontiguousarray(B))
    past = Past.empty(setup.n_features)
    counters = np.array([rounds + 1, B.shape[1], True, start is None, np.inf, 0, False])
    return {"Q": B, "CQ": CB, "bases": past.bases, "bounds": past.bounds, "counters": counters}


async def expand(
    setup: Setup,
    directions: Directions | None,
    state: Mapping[str, Array],
    *,
    goal: Goal,
    max_blocks: int,
    facts: Mapping[str, Array] | None = None,
    own: Array | None = None,
) -> Solution:
    """Grow the space Q, C Q of ``state`` until the goal is met and nothing can have been missed (lines 2 to 7).

    ``state`` is that of :func:`begin` or of an earlier Progress; ``facts`` are kept with it for whoever resumes.  A method that
    only has its basis ``own`` (d x k), the first columns of Q, confirmed is told of with that basis, and keeps no state here.
    """
    omega, width = random_block(setup), width_of(setup)
    rounds, fresh, confirmed, pure, best, idle, restarted = state["counters"].tolist()
    omega = omega[:, :NARROW] if restarted else omega
    space, past = KrylovSpace(state["Q"], state["CQ"], int(fresh)), Past(state["bases"], state["bounds"])
    while True:  # line 2
        ritz = space.ritz(lambda values: setup.wanted(values) or len(values))  # line 4
        enough = setup.wanted(ritz.values) is not None
        residual = float(np.linalg.norm(ritz.residual)) / setup.trace if setup.trace > 0 else 0.0
        found = certify(space, ritz, omega)
        rough = ritz_gap_angle(ritz)
        angle = None if found.angle is None else max(found.rounding, past.factor(ritz.Z, rough) * found.angle)
        best, idle = (rough, 0) if rough < 0.9 * best else (best, idle + 1)
        met = goal.met(residual, angle, ritz.Z)
        settled = _settled(found, idle, residual) or setup.trace <= 0
        again = (
            settled and not met and not restarted and _uneven(ritz)
        )  # rounding errors of the first products: go on without them
        reached = enough and not found.missed and (met or (settled and not again))
        last = rounds >= setup.max_rounds or (reached and bool(confirmed))
        counters = np.array([rounds, space.fresh, confirmed, pure, best, idle, restarted])
        here = {"Q": space.Q, "CQ": space.CQ, "bases": past.bases, "bounds": past.bounds, "counters": counters}
        if own is None:
            details = {} if angle is None else {"angle": angle}
            share = setup.share(ritz.values[: ritz.Z.shape[1]])
            saved = None if last else here | dict(facts or {})
            await Progress(basis=ritz.Z, objective=share, kkt=residual, details=details, state=saved)
        else:
            confirming = {"confirming": 1.0 if angle is None else angle}
            await Progress(basis=own, kkt=kkt(state["CQ"][:, : own.shape[1]], own, setup.trace), details=confirming)
        if last:  # line 5
            break
        past = past.add(ritz.Z, rough)
        if reached:  # products were rotated in a restart: make the wanted ones anew
            space = await _refreshed(space, ritz.Z.shape[1])
            confirmed = True
        else:
            most = _most_columns(setup, max_blocks, ritz.Z.shape[1])
            if again or space.size + width > most:  # line 6
                omega, confirmed, pure, restarted = np.ascontiguousarray(omega[:, :NARROW]), False, False, True
                space = _restarted(space, ritz, omega, most)
                ritz = space.ritz(lambda values: setup.wanted(values) or len(values))
            B = space.next_block(omega.shape[1]) if pure and directions is None else None
            if B is None:
                wanted = ritz.residual if directions is None else await directions(space, ritz, residual)
                B = _with_proof(space, ritz, omega, wanted, width, NARROW if restarted else max(width, OVERSAMPLING))
            B = np.ascontiguousarray(B[:, : max(1, most - space.size)])
            if B.shape[1] == 0:  # C adds nothing to span(Q), which holds the random block: nothing was missed
                if enough:
                    reached = confirmed = True
                    break
                anything = random_orthonormal(setup.n_features, width, setup.seed + space.size)
                B = new_directions(anything, space.Q, SMALLEST_STEP)
            space = space.add(B, await Sum(scatter_action, B))  # lines 3, 4
        rounds += 1
    converged = bool(reached and confirmed)
    solution = _solution(setup, ritz, residual, angle, found, goal, converged)
    return replace(solution, notes={"rounds": int(rounds)})


def ritz_gap_angle(ritz: Ritz) -> float:
    """Residuals over gaps to the next Ritz value, at most 1; 1 if there is none."""
    k = ritz.Z.shape[1]
    if k == len(ritz.values):
        return 1.0
    gaps = ritz.values[:k] - ritz.values[k]
    if gaps[-1] <= 0:
        return 1.0
    return min(1.0, float(np.linalg.norm(np.linalg.norm(ritz.residual, axis=0) / gaps)))


def _settled(found: Certificate, idle: float, residual: float) -> bool:
    """Whether more rounds would not tell more: a tie, no variance left, or rounding errors reached."""
    if found.tied or found.rank == 0:
        return True
    at_rounding = found.angle is not None and found.angle <= AT_ROUNDING * found.rounding
    return at_rounding or (idle >= STALL and residual <= FINE)


def _uneven(ritz: Ritz) -> bool:
    """Whether the largest value dwarfs those wanted, so that products with blocks that contain both have lost digits."""
    return bool(ritz.values[0] > GRADED * abs(ritz.values[ritz.Z.shape[1] - 1]))


def _with_proof(space: KrylovSpace, ritz: Ritz, omega: Array, wanted: Array, width: int, more: int) -> Array:
    """Up to ``width`` directions that a method wants, and ``more`` that show what the random block still hides (line 7)."""
    lengths = np.linalg.norm(wanted, axis=0)
    units = wanted[:, lengths > 0] / lengths[lengths > 0]
    B = new_directions(units, space.Q, NEW)[:, :width]
    F = Behind(space, ritz, omega).left() if ritz.Z.shape[1] < space.size else omega[:, :0]
    both = np.concatenate([space.Q, B], axis=1)
    size = float(np.linalg.norm(F))
    proof = new_directions(F / size, both, NEW)[:, :more] if size > 0 else F[:, :0]
    return np.concatenate([B, proof], axis=1)


def _restarted(space: KrylovSpace, ritz: Ritz, omega: Array, most: int) -> KrylovSpace:
    """Leading Ritz vectors, the random block, and the solutions that keep F as small as it is; half of ``most`` columns or so."""
    k = ritz.Z.shape[1]
    behind = Behind(space, ritz, omega).solved()
    lengths = np.linalg.norm(behind, axis=0)
    proof = np.concatenate([behind[:, lengths > 0] / lengths[lengths > 0], omega], axis=1)
    return space.shrunk(max(k + 1, (most - proof.shape[1]) // 2), proof)


def _most_columns(setup: Setup, max_blocks: int, k: int) -> int:
    """Columns that may be kept: max_blocks blocks, but room for the answer, the proof and two blocks more."""
    width = width_of(setup) + OVERSAMPLING
    return max(max_blocks * width, 2 * k + PROOF + 2 * width)


async def _refreshed(space: KrylovSpace, k: int) -> KrylovSpace:
    """The space turned to its Ritz vectors, the leading k products made anew.  One round."""
    turned = space.shrunk(space.size)
    CZ = await Sum(scatter_action, np.ascontiguousarray(turned.Q[:, :k]))
    return KrylovSpace(turned.Q, np.concatenate([CZ, turned.CQ[:, k:]], axis=1))


def _solution(
    setup: Setup, ritz: Ritz, residual: float, angle: float | None, found: Certificate, goal: Goal, converged: bool
) -> Solution:
    k = ritz.Z.shape[1]
    angle = None if found.rank < k or found.tied else angle
    reason = _reason(setup, residual, angle, found, goal, converged, k)
    return Solution(ritz.Z, np.maximum(ritz.values[:k], 0.0), residual, angle, converged, reason, tied=found.tied)


def _reason(setup: Setup, residual: float, angle: float | None, found: Certificate, goal: Goal, converged: bool, k: int) -> str:
    kkt_residual = f"scaled KKT residual {residual:.1e}"
    sine = "unknown" if angle is None else f"{angle:.1e}"
    if not converged:
        open_question = "; a direction of larger variance is not excluded yet" if found.missed else ""
        return (
            f"max_rounds={setup.max_rounds} reached at {kkt_residual}, estimated sine {sine}, asked for {goal.told()}"
            f"{open_question}; raise max_rounds"
        )
    if found.tied:
        return f"components {k} and {k + 1} have the same variance as far as rounding tells; {kkt_residual}"
    if found.rank < k:
        return f"the rows have variance in {found.rank} directions, the other components are arbitrary; {kkt_residual}"
    if goal.tol is not None and residual <= goal.tol:
        return f"{kkt_residual} reached tol {goal.tol:.1e}"
    if goal.angle is not None and angle is not None and angle <= goal.angle:
        return f"the estimated sine of the angle, {sine}, reached {goal.angle:.1e}; {kkt_residual}"
    return f"the estimated sine of the angle, {sine}, is what rounding allows ({goal.told()} asked for); {kkt_residual}"
