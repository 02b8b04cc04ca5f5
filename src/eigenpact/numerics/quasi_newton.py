"""Steps uphill from gradients alone: L-BFGS about a known guess of the inverse curvature.

References
    J. Nocedal, S. J. Wright, "Numerical Optimization", 2nd ed. (2006), Algorithm 7.4; M. Jamshidian, R. I. Jennrich,
    "Acceleration of the EM algorithm by using quasi-Newton methods", J. R. Stat. Soc. B 59 (1997), on such guesses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .linalg import Array

CURVED = 1e-14
"""Pairs are forgotten whose curvature along the step is less than this share of what their lengths allow: rounding."""


@dataclass(frozen=True, eq=False)
class Memory:
    """Past steps (m x p) and by how much the gradient fell over each (m x p), the oldest first; at most ``most`` of them."""

    steps: Array
    falls: Array
    most: int = 40

    @classmethod
    def empty(cls, p: int) -> Memory:
        """Nothing known yet."""
        return cls(np.zeros((0, p)), np.zeros((0, p)))

    def add(self, step: Array, fall: Array) -> Memory:
        """With one more pair, if the function is curved along the step as it is near a maximum."""
        if not step @ fall > CURVED * np.linalg.norm(step) * np.linalg.norm(fall):
            return self
        steps, falls = np.concatenate([self.steps, step[None]]), np.concatenate([self.falls, fall[None]])
        return Memory(steps[-self.most :], falls[-self.most :], self.most)

    def direction(self, gradient: Array, guess: Callable[[Array], Array]) -> Array:
        """Inverse curvature times the gradient (p,); ``guess`` is what is taken for it where the pairs say nothing.

        >>> memory, curvature = Memory.empty(2), np.array([2.0, 8.0])
        >>> for step in np.eye(2):
        ...     memory = memory.add(step, curvature * step)
        >>> memory.direction(np.array([2.0, 8.0]), lambda g: g).tolist()
        [1.0, 1.0]
        """
        rest, shares = gradient, []
        pairs = list(zip(self.steps, self.falls, strict=True))
        for step, fall in reversed(pairs):
            shares.append(float(step @ rest) / float(step @ fall))
            rest = rest - shares[-1] * fall
        way = guess(rest)
        for (step, fall), share in zip(pairs, reversed(shares), strict=True):
            way = way + (share - float(fall @ way) / float(step @ fall)) * step
        return way
