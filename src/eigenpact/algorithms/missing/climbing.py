"""Uphill on a likelihood whose value and gradient cost a round: which point to ask for next, and how far the top still is.

A point is accepted if the likelihood rises by a share of what its slope promised (Armijo); else the step is shortened.  So the
likelihood never falls, beyond rounding errors.  The steps that L-BFGS proposes become shorter at a rate that is seen; what is left
to go is about the next step over one minus that rate.
"""

from __future__ import annotations

import numpy as np

from ...numerics.linalg import Array, orthonormalize
from ...numerics.metrics import largest_sine
from ...numerics.ppca import Frame, Model
from ...numerics.quasi_newton import Memory

PROMISED, ROUNDING = 1e-4, 1e-13
"""Share of the promised rise that is asked for; and of the likelihood itself that may be rounding errors."""

LARGEST_CHANGE = 2.0
"""Of the logarithm of the noise in one step; of W no more than its own length."""

SHORTEST = 1e-6
"""Shorter steps than this share of the proposed one are not tried."""

SLOWEST, FASTEST = 0.95, 0.1
"""Between these a rate is believed at which steps become shorter."""

LOOK_BACK, STALL = 3, 8
"""Steps over which the rate is looked at; and steps without a shorter one after which rounding errors allow no more."""

MARGIN = 2.0
"""By how much the way that is left may be longer than it seems."""


class Climb:
    """Where the search stands: ``trial`` (d k + d + 1) is the point to ask for next, ``model`` the best one so far.

    Attributes
    ----------
    model : Model, value : float
        The point that was accepted last, and its log-likelihood.
    gradient : (d k + d + 1) array
    angle : float or None
        Estimated sine between the span of W and where it would come to rest; None while no rate is known.
    stalled : bool
        Whether steps do not become shorter any more, or none leads upward.
    """

    def __init__(self, frame: Frame, model: Model) -> None:
        self.frame, self.model, self.value = frame, model, -np.inf
        self.trial = model.flat()
        self.gradient = np.zeros(len(self.trial))
        self.stalled = False
        self._memory, self._turns = Memory.empty(len(self.trial)), [np.inf]
        self._way, self._promise, self._length, self._idle = self.gradient, 0.0, 1.0, 0

    @property
    def angle(self) -> float | None:
        """From the next step, and the rate at which steps became shorter."""
        turns = self._turns[-LOOK_BACK - 1 :]
        if len(turns) <= LOOK_BACK or not np.isfinite(turns[0]):
            return None
        rates = [after / before if before > 0 else 0.0 for before, after in zip(turns, turns[1:], strict=False)]
        rate = float(np.clip(max(rates), FASTEST, SLOWEST))
        return min(1.0, MARGIN * turns[-1] / (1 - rate))

    def take(self, value: float, gradient: Array) -> None:
        """Go on with what the sites told of the trial."""
        wanted = self.value + PROMISED * self._length * self._promise - ROUNDING * abs(self.value)
        if np.isfinite(self.value) and not value >= wanted:
            self._shorten(value)
            return
        if np.isfinite(self.value):
            self._memory = self._memory.add(self.trial - self.model.flat(), self.gradient - gradient)
        self.model = Model.of(self.trial, self.model.W.shape[1])
        self.value, self.gradient = max(value, self.value), gradient
        self._aim()

    def _aim(self) -> None:
        """The next step from the model."""
        theta, k = self.model.flat(), self.model.W.shape[1]
        self._way = self._memory.direction(self.gradient, self.frame)
        if not self._way @ self.gradient > 0 and len(self._memory.steps):
            self._memory = Memory.empty(len(theta))
            self._way = self.frame(self.gradient)
        self._promise = max(0.0, float(self._way @ self.gradient))
        step = Model.of(self._way, k)
        turn = largest_sine(orthonormalize(self.model.W), orthonormalize(self.model.W + step.W))
        self._idle = 0 if turn < min(self._turns) else self._idle + 1
        self._turns.append(turn)
        self.stalled = self._idle >= STALL
        longest = max(abs(step.log_noise) / LARGEST_CHANGE, float(np.linalg.norm(step.W) / np.linalg.norm(self.model.W)))
        self._length = 1 / max(1.0, longest)
        self.trial = theta + self._length * self._way

    def _shorten(self, value: float) -> None:
        """Where a parabola through what is known would have its top."""
        rise = self._length * self._promise
        short = self.value + rise - value
        share = rise / (2 * short) if np.isfinite(short) and short > 0 else 0.1
        self._length *= float(np.clip(share, 0.1, 0.5))
        if self._length < SHORTEST:
            self.stalled = not len(self._memory.steps)
            self._memory = Memory.empty(len(self.trial))
            self._aim()
            return
        self.trial = self.model.flat() + self._length * self._way
