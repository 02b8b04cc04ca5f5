"""Whether a basis that a method stopped at is the answer: a space is grown from it and a random block until that is certain.

Methods that keep only their last iterate (subspace iteration, LocalPower, FAPS, shift-and-invert) cannot tell by themselves
whether they missed a direction, nor how close the next eigenvalue is.  So before such a method is called converged, the loop of
``expansion.py`` is run from [Z, Omega] until its own answer Z' is certain, and Z is compared with it: sin angle(Z, exact) is at
most sin angle(Z, Z') plus the bound for Z'.  The method's answer stays Z; nothing is earned by the confirmation.  It takes a few
rounds, about as many as block Krylov would from there, where these methods take tens to hundreds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..numerics.certificate import Cut
from ..numerics.linalg import Array, top_eigenpairs
from ..numerics.metrics import kkt, largest_sine
from .expansion import begin, expand, space_of
from .goal import Goal, in_words
from .setup import Setup
from .solution import Solution

BLOCKS = 16
"""Blocks that the space may have."""

CLEARLY, LOST = 0.3, 0.5
"""Z' must be so much closer to the exact answer than Z is to Z'; and beyond this sine Z has missed a direction."""

MORE = 2.0
"""How much more cautious a method is at least after it stopped too early."""


@dataclass(frozen=True, eq=False)
class _Comparison(Goal):
    """Stop once Z' is much closer to the answer than Z (d x k) is to Z', or than anybody asked for."""

    Z: Array | None = None

    def met(self, residual: float, angle: float | None, basis: Callable[[], Array] | None = None) -> bool:  # noqa: ARG002
        if angle is None or self.Z is None or basis is None:
            return False
        return angle <= CLEARLY * max(largest_sine(self.Z, basis()), self.angle or 0.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Verdict:
    """What a confirmation found out about Z.

    Attributes
    ----------
    basis : (d, k) array
        Z turned to its own principal axes.
    values : (k,) array
        Variances along them.
    kkt : float
        Scaled KKT residual of Z.
    angle : float or None
        Bound on the sine of the largest angle to the exact answer; None where there is none: the cut is not clear.
    cut : "clear", "tied", "hidden" or "empty"
        What lies behind the last component.
    behind : float
        The eigenvalue behind the last one, or a bound on it; 0 where it is not known.
    certain : bool
        Whether the confirmation came to its end.
    lost : bool
        Whether Z has missed a direction.
    at_grain : bool
        Whether the residual is as small as sites that round their replies let it become.
    better : (d, k) array
        The answer that the confirmation itself found.
    rounds : int
        Rounds of the run so far.
    """

    basis: Array
    values: Array
    kkt: float
    angle: float | None = None
    cut: Cut = "clear"
    behind: float = 0.0
    certain: bool = False
    lost: bool = False
    at_grain: bool = False
    better: Array
    rounds: int

    def good(self, goal: Goal) -> bool:
        """Whether the answer may be called converged: by its angle, or where equal variances leave none, by its residual."""
        if not self.certain or self.lost:
            return False
        if self.at_grain:
            return True
        if goal.tol is not None and self.kkt <= goal.tol:
            return True
        return goal.angle is not None and (self.kkt if self.angle is None else self.angle) <= goal.angle

    def solution(self, converged: bool, reason: str) -> Solution:
        """As a solver's answer."""
        return Solution(self.basis, self.values, self.kkt, self.angle, converged, reason, cut=self.cut, behind=self.behind)

    def told(self) -> str:
        """Residual and angle, in words."""
        return f"scaled KKT residual {self.kkt:.1e}, estimated sine {in_words(self.angle)}"

    def caution(self, goal: Goal, believed: float) -> float:
        """By how much the method's own estimate, ``believed`` when it stopped, must be smaller the next time."""
        if goal.angle is None or self.angle is None or self.lost:
            return MORE
        return max(MORE, MORE * self.angle / goal.angle * min(1.0, believed / goal.angle))


async def confirm(setup: Setup, Z: Array, goal: Goal, rounds: int) -> Verdict:
    """Compare Z (d x k, orthonormal) with what a space grown from it and a random block finds; ``rounds`` were used before."""
    k = Z.shape[1]
    state = await begin(setup, Z, rounds)
    Z, CZ = (np.ascontiguousarray(columns[:, :k]) for columns in (space_of(state).Q, space_of(state).CQ))
    known = unconfirmed(Z, CZ, setup.trace, rounds + 1)
    comparison = _Comparison(None, goal.angle, Z)
    found = await expand(setup, None, state, goal=comparison, max_blocks=BLOCKS, own=Z)
    turned = largest_sine(Z, found.basis) if k < setup.n_features else 0.0
    short = float(found.eigenvalues.sum() - known.values.sum())
    allowed = k * max(known.kkt, goal.tol or 0.0) * setup.trace
    return replace(
        known,
        angle=None if found.angle is None else min(1.0, turned + found.angle),
        cut=found.cut,
        behind=found.behind,
        certain=found.converged,
        lost=short > allowed if found.angle is None else turned > LOST and short > allowed,
        at_grain=setup.at_grain(known.kkt),
        better=found.basis,
        rounds=int(found.notes["rounds"]),
    )


def unconfirmed(Z: Array, CZ: Array, trace: float, rounds: int) -> Verdict:
    """What is known of Z (d x k, orthonormal) with its product C Z where no round is left to confirm it."""
    values, rotation = top_eigenpairs(Z.T @ CZ)
    basis = np.ascontiguousarray(Z @ rotation)
    return Verdict(basis=basis, values=np.maximum(values, 0.0), kkt=kkt(CZ, Z, trace), better=Z, rounds=rounds)


def confirmed_solution(setup: Setup, verdict: Verdict, goal: Goal) -> Solution:
    """The answer that a confirmation was about."""
    converged = verdict.good(goal)
    if converged:
        reason = goal.reached(verdict.kkt, verdict.angle, verdict.cut, len(verdict.values))
    else:
        short = "a direction was missed" if verdict.lost else f"at {verdict.told()}"
        reason = (
            f"max_rounds={setup.max_rounds} reached {short}, asked for {goal.told()}; raise max_rounds or use solver='krylov'"
        )
    return verdict.solution(converged, reason)
