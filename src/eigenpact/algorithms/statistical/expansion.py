"""Rayleigh-Ritz on a space that grows by one block a round: the loop of Lanczos and Davidson, which differ in the block only.

Stopping is by the scaled KKT residual (``tol``), or by an estimate of the angle to the answer (``sine``), if one is given.  The
estimate is residual over gap, corrected by hindsight: an iterate of some rounds ago is compared with the present one, which is
much closer to the answer, and where it turns out to have been farther away than estimated then, the present estimate is raised
by that factor.  In trials, residual over the next Ritz gap was 20 times too large, residual over gap without hindsight up to 4
times too small.  No estimate sees what the space has not met: where eigenvalue k + 1 is so close to eigenvalue k that the space
holds only one direction for the two, the angle is that to the pair, and the estimate too small however small the sine.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from ...errors import InputError
from ...krylov_space import SMALLEST_STEP, KrylovSpace, Ritz
from ...linalg import Array, new_directions
from ...metrics import largest_sine
from ...runtime import Progress, Sum
from ..products import scatter_action
from ..setup import Setup
from ..solution import Solution, residual_angle, ritz_angle

HINDSIGHT = 4
"""Rounds whose estimates are compared with what was learnt later.  Chosen among 2, 3, 4 and 6 on the results table's own problem
(6 draws at .9^j, 4 at .99^j): with 2 some stops came too early, with 6 davidson took 10 rounds in one draw, the bar is 9."""

Directions = Callable[[Ritz], Coroutine[Any, Any, Array]]
"""From Ritz pairs to a block (d x k), its columns as long as the residuals, that is to be added to the space."""


@dataclass(frozen=True, eq=False)
class Past:
    """Bases (d x k) of the last rounds, side by side, and the angles that were estimated for them then."""

    bases: Array
    angles: Array

    @classmethod
    def empty(cls, d: int) -> Past:
        """No rounds yet."""
        return cls(np.zeros((d, 0)), np.zeros(0))

    def correction(self, Z: Array) -> float:
        """How many times too small past estimates were, as far as Z (d x k) can tell; at least 1."""
        k = Z.shape[1]
        seen = (largest_sine(self.bases[:, i * k : (i + 1) * k], Z) / a for i, a in enumerate(self.angles.tolist()) if a > 0)
        return max(1.0, *seen) if self.angles.size else 1.0

    def add(self, Z: Array, angle: float) -> Past:
        """With one more round, without the oldest one beyond HINDSIGHT."""
        k = Z.shape[1]
        bases = np.concatenate([self.bases, Z], axis=1)[:, -HINDSIGHT * k :]
        return Past(np.ascontiguousarray(bases), np.append(self.angles, angle)[-HINDSIGHT:])


async def expand(
    setup: Setup,
    directions: Directions,
    state: Mapping[str, Array],
    *,
    tol: float,
    sine: float | None,
    max_columns: int,
    facts: Array | None = None,
) -> Solution:
    """Grow the space Q, C Q of ``state`` by ``directions`` until the answer is good enough.

    ``state`` is that of :func:`first_state` or of an earlier Progress; ``facts`` is kept with it for whoever resumes.
    """
    k = setup.whole_components()
    space, past = KrylovSpace(state["Q"], state["CQ"]), Past(state["bases"], state["angles"])
    rounds, confirmed, probed, least = state["counters"]
    while True:
        ritz = space.ritz(lambda _: k)
        residual = float(np.linalg.norm(ritz.residual)) / setup.trace if setup.trace > 0 else 0.0
        plain = _angle(setup, ritz, space)
        looked_back = len(past.angles) >= HINDSIGHT
        angle = min(1.0, past.correction(ritz.Z) * plain) if past.angles.size or plain == 0 else _ritz_gap_angle(ritz)
        angle = max(angle, least)
        reached = residual <= tol or (sine is not None and angle <= sine and looked_back)
        last = rounds >= setup.max_rounds or (reached and confirmed and probed)
        here = {"Q": space.Q, "CQ": space.CQ, "bases": past.bases, "angles": past.angles}
        here |= {"counters": np.array([rounds, confirmed, probed, least]), "facts": np.zeros(0) if facts is None else facts}
        await Progress(
            basis=ritz.Z,
            objective=setup.share(ritz.values[:k]),
            kkt=residual,
            details={"angle": angle},
            state=None if last else here,
        )
        if last:
            break
        past = past.add(ritz.Z, plain)
        if reached and not confirmed:  # products were rotated in restarts: make the wanted ones anew
            space, least = space.shrunk(space.size), angle  # the newest columns, which tell the gap, are no longer the last
            fresh = await Sum(scatter_action, np.ascontiguousarray(space.Q[:, :k]))
            space, confirmed = KrylovSpace(space.Q, np.concatenate([fresh, space.CQ[:, k:]], axis=1)), True
        else:
            if space.size + k > max_columns:
                space, confirmed = space.shrunk((max_columns + k) // 2), False
                ritz = space.ritz(lambda _: k)
            B = new_directions(await directions(ritz), space.Q, SMALLEST_STEP * setup.trace)[:, :k]
            if B.shape[1] == 0:  # nothing is left that C would add to span(Q)
                reached = confirmed = probed = np.isfinite(residual)
                break
            space, probed, least = space.add(B, await Sum(scatter_action, B)), True, 0.0
        rounds += 1
    converged = bool(reached and confirmed and probed)
    reason = _reason(setup, residual, angle, tol, sine, converged)
    return Solution(ritz.Z, np.maximum(ritz.values[:k], 0.0), residual, angle, converged, reason)


async def first_state(setup: Setup, B: Array, rounds: int, probed: bool) -> dict[str, Array]:
    """The state after a first round with the orthonormal block B (d x b); ``rounds`` were used before.

    ``probed`` tells that B is random, so that no direction can have been missed; else one more block is asked for before a small
    residual is believed.
    """
    past = Past.empty(setup.n_features)
    counters = np.array([rounds + 1, True, probed, 0.0])
    CB = await Sum(scatter_action, B)
    return {"Q": B, "CQ": CB, "bases": past.bases, "angles": past.angles, "counters": counters}


def _angle(setup: Setup, ritz: Ritz, space: KrylovSpace) -> float:
    return 0.0 if ritz.Z.shape[1] == setup.n_features else ritz_angle(ritz, space, setup.trace)


def _ritz_gap_angle(ritz: Ritz) -> float:
    """Residual over the gap to the next Ritz value; 1 if there is none."""
    k = ritz.Z.shape[1]
    if k == len(ritz.values):
        return 1.0
    return residual_angle(float(np.linalg.norm(ritz.residual)), float(ritz.values[k - 1]), float(ritz.values[k]))


def _reason(setup: Setup, residual: float, angle: float, tol: float, sine: float | None, converged: bool) -> str:
    kkt_residual = f"scaled KKT residual {residual:.1e}"
    if not converged:
        return f"max_rounds={setup.max_rounds} reached at {kkt_residual} > tol {tol:.1e}; raise max_rounds"
    if residual <= tol:
        return f"{kkt_residual} reached tol {tol:.1e}"
    if sine is not None and angle <= sine:
        return f"the estimated sine of the angle, {angle:.1e}, reached {sine:.1e}; {kkt_residual}"
    return f"the space became invariant at {kkt_residual}: nothing new can be found"


def check_max_blocks(max_blocks: int) -> None:
    """Refuse a space too small to restart in."""
    if not (isinstance(max_blocks, Integral) and max_blocks >= 3):
        raise InputError(f"max_blocks={max_blocks!r} must be a whole number >= 3: two blocks to keep and one to add")
