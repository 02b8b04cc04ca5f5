"""Uphill on a likelihood whose value and gradient cost a round: which point to ask for next, and how far the top still is.

A point is accepted if the likelihood rises by a share of what its slope promised (Armijo); else the step is shortened, and if
that does not help, a step of EM itself is taken, which never fails.  So the likelihood never falls, beyond rounding errors.  The
steps that L-BFGS proposes become shorter at a rate that is seen; what is left to go is about the next step over one minus that
rate.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ...numerics.linalg import Array, orthonormalize
from ...numerics.metrics import largest_sine
from ...numerics.ppca import Frame, Model, em_step
from ...numerics.quasi_newton import Memory

PROMISED, ROUNDING = 1e-4, 1e-13
"""Share of the promised rise that is asked for; and of the likelihood itself that may be rounding errors."""

LARGEST_CHANGE = 2.5
"""Of the logarithm of the noise, and of W over its own length, in one step."""

LOWEST = -0.9
"""To one tenth of it the noise may fall in a first step."""

BESIDE = 0.1
"""What relative changes of noise and variances count beside the sine by which W turns."""

TRIES = 2
"""Steps that may be too long before one of EM is taken."""

DRIFT = 0.3
"""A frame is made anew where the logarithm of the noise, or the sine of the components, has moved away from it by this."""

SLOWEST, FASTEST = 0.95, 0.1
"""Between these a rate is believed at which steps become shorter."""

LOOK_BACK, STALL = 3, 20
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
        Whether the likelihood does not rise any more and steps do not become shorter.
    """

    def __init__(self, frame: Frame, model: Model) -> None:
        self.frame, self.model, self.value = frame, model, -np.inf
        self.trial = model.flat()
        self.gradient = np.zeros(len(self.trial))
        self._memory, self._turns = Memory.empty(len(self.trial)), [np.inf]
        self._way, self._promise, self._length = self.gradient, 0.0, 1.0
        self._idle, self._tried, self._safe = 0, 0, False

    @property
    def stalled(self) -> bool:
        """Whether nothing is to be gained any more."""
        return self._idle >= STALL

    @property
    def angle(self) -> float | None:
        """From the next step, and the rate at which steps became shorter."""
        turns = self._turns[-LOOK_BACK - 1 :]
        if len(turns) <= LOOK_BACK or not np.isfinite(turns[0]):
            return None
        rates = [after / before if before > 0 else 0.0 for before, after in pairwise(turns)]
        rate = float(np.clip(max(rates), FASTEST, SLOWEST))
        return min(1.0, MARGIN * turns[-1] / (1 - rate))

    def take(self, value: float, gradient: Array) -> None:
        """Go on with what the sites told of the trial."""
        slack, first = ROUNDING * abs(self.value), not np.isfinite(self.value)
        wanted = -np.inf if first else self.value + PROMISED * self._length * self._promise * (not self._safe) - slack
        if not value >= wanted and not first:
            self._refuse(value)
            return
        rose = first or value > self.value + slack
        step = self.trial - self.model.flat()
        self._memory = self._memory if first or self._safe else self._memory.add(step, self.gradient - gradient)
        self.model = Model.of(self.trial, self.model.W.shape[1])
        self.value, self.gradient, self._tried = max(value, self.value), gradient, 0
        if self._safe or self._far():
            self._reframe()
        turn = self._aim()
        self._idle = 0 if rose or turn < min(self._turns[:-1]) else self._idle + 1

    def _far(self) -> bool:
        """Whether the frame was made at a model that is too different."""
        U, _ = self.model.components()
        drift = abs(self.model.log_noise - np.log(self.frame.noise))
        return bool(drift > DRIFT or largest_sine(U, self.frame.U) > DRIFT)

    def _reframe(self) -> None:
        """Make the frame anew at the model, and forget steps that were measured by another."""
        turn, k = self.model.turn(), self.model.W.shape[1]
        told = Model.of(self.gradient, k)
        self.model = Model(self.model.W @ turn, self.model.mean, self.model.log_noise)
        self.gradient = Model(told.W @ turn, told.mean, told.log_noise).flat()
        self.frame, self._memory, self._safe = self.frame.moved(self.model), Memory.empty(len(self.trial)), False

    def _aim(self) -> float:
        """The next step from the model; by how much it would turn W."""
        theta, k = self.model.flat(), self.model.W.shape[1]
        self._way = self._memory.direction(self.gradient, self.frame)
        if not self._way @ self.gradient > 0:
            self._memory = Memory.empty(len(theta))
            self._way = self.frame(self.gradient)
        if not len(self._memory.steps):  # with the squares as they are, this noise would be the most likely
            self._way[-1] = np.log1p(max(self._way[-1], LOWEST))
        self._promise = max(0.0, float(self._way @ self.gradient))
        step = Model.of(self._way, k)
        turn = largest_sine(orthonormalize(self.model.W), orthonormalize(self.model.W + step.W))
        others = max(abs(step.log_noise), float(np.linalg.norm(step.W) / np.linalg.norm(self.model.W)))
        self._turns.append(max(turn, BESIDE * others))
        self._length = 1 / max(1.0, others / LARGEST_CHANGE)
        self.trial = theta + self._length * self._way
        return self._turns[-1]

    def _refuse(self, value: float) -> None:
        """A shorter step, where a parabola through what is known would have its top; then that of EM, which cannot fail."""
        self._tried += 1
        if self._safe:
            self._idle = STALL  # not even that: rounding errors
            return
        if self._tried >= TRIES:
            told = Model.of(self.gradient, self.model.W.shape[1])
            self.trial = em_step(self.model, told, self.frame.rows, self.frame.free_mean).flat()
            self._safe = True
            return
        rise = self._length * self._promise
        short = self.value + rise - value
        share = rise / (2 * short) if np.isfinite(short) and short > 0 else 0.1
        self._length *= float(np.clip(share, 0.1, 0.5))
        self.trial = self.model.flat() + self._length * self._way
