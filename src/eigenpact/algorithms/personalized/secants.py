"""Limited-memory BFGS on the Grassmann manifold: the direction that the last steps and gradients suggest.

References
    J. Nocedal, S. J. Wright, Numerical Optimization (2006), Algorithm 7.4; W. Huang, K. Gallivan, P.-A. Absil, "A Broyden class
    of quasi-Newton methods for Riemannian optimization", SIAM J. Optim. 25 (2015), on moving pairs to a new tangent space.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...linalg import Array

MEMORY = 10
"""Pairs that are remembered."""

CURVED = 1e-8
"""A pair is used only if the cosine of step and change of gradient is at least this."""

GROWTH = 10.0
"""Where the objective curves upwards along the step, quasi-Newton has nothing to say, and the next step is so much longer."""

LONGEST = 1.0
"""Tangent of the largest angle that one step may turn the subspace by."""


@dataclass(frozen=True, eq=False)
class Secants:
    """What is known of the curvature of a function to be maximized.

    ``pairs`` are steps and what the gradient lost along them (d x r each, tangent at the current point); ``scale`` stands for
    the inverse curvature in directions that no pair knows.
    """

    scale: float
    pairs: tuple[tuple[Array, Array], ...] = ()

    def direction(self, U: Array, G: Array) -> Array:
        """An ascent direction (d x r, tangent at U, turning by 45 degrees at most) for the gradient G (d x r)."""
        P = _tangent(self._apply(G), U)
        if np.sum(P * G) <= 0:
            P = self.scale * G
        length = float(np.linalg.norm(P, 2))
        return P if length <= LONGEST else P * (LONGEST / length)

    def _apply(self, G: Array) -> Array:
        """The two-loop recursion."""
        Q, weights = G, []
        for S, Y in reversed(self.pairs):
            weights.append(np.sum(S * Q) / np.sum(S * Y))
            Q = Q - weights[-1] * Y
        Q = self.scale * Q
        for (S, Y), weight in zip(self.pairs, reversed(weights), strict=True):
            Q = Q + (weight - np.sum(Y * Q) / np.sum(S * Y)) * S
        return Q

    def moved(self, U: Array, step: Array, G_prev: Array, G: Array) -> Secants:
        """After a step from where the gradient was ``G_prev`` to U, where it is G."""
        there = [(_tangent(S, U), _tangent(Y, U)) for S, Y in self.pairs]
        S, Y = _tangent(step, U), _tangent(G_prev, U) - G
        known = replace(self, pairs=tuple(pair for pair in there if _curved(*pair)))
        if not _curved(S, Y):
            return replace(known, scale=GROWTH * self.scale)
        return Secants(float(np.sum(S * Y) / np.sum(Y * Y)), (*known.pairs, (S, Y))[-MEMORY:])


def _tangent(Z: Array, U: Array) -> Array:
    """(I - U U^T) Z."""
    rest: Array = Z - U @ (U.T @ Z)
    return rest


def _curved(S: Array, Y: Array) -> bool:
    return bool(np.sum(S * Y) > CURVED * np.linalg.norm(S) * np.linalg.norm(Y))
