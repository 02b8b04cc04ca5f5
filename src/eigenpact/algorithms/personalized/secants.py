"""Limited-memory BFGS on the Grassmann manifold: the direction that the last steps and gradients suggest.

Where nothing is known of the curvature, the gradient G is divided by the variances along U: U + G (U^T M)^-1 spans what M does,
so the first step is one of subspace iteration.  (Without that a component of small variance waits until large ones have settled.)

References
    J. Nocedal, S. J. Wright, Numerical Optimization (2006), Algorithm 7.4; W. Huang, K. Gallivan, P.-A. Absil, "A Broyden class
    of quasi-Newton methods for Riemannian optimization", SIAM J. Optim. 25 (2015), on moving pairs to a new tangent space.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...numerics.linalg import Array, top_eigenpairs, without

MEMORY = 10
"""Pairs that are remembered."""

CURVED = 1e-8
"""A pair is used only if the cosine of step and change of gradient is at least this."""

GROWTH = 10.0
"""Where the objective curves upwards along the step, quasi-Newton has nothing to say, and the next step is so much longer."""

FLAT = 1e-8
"""Variances along U are taken to be at least this share of the largest."""

LONGEST = 1.0
"""Tangent of the largest angle that one step may turn the subspace by."""


@dataclass(frozen=True, eq=False)
class Secants:
    """What is known of the curvature of a function to be maximized.

    ``pairs`` are steps and what the gradient lost along them (d x r each, tangent at the current point); ``stride`` multiplies
    what is taken for the inverse curvature in directions that no pair knows.
    """

    stride: float = 1.0
    pairs: tuple[tuple[Array, Array], ...] = ()

    def direction(self, U: Array, M: Array, G: Array) -> Array:
        """An ascent direction (d x r, tangent at U, turning by 45 degrees at most) for the gradient G = (I - U U^T) M (d x r)."""
        values, rotation = top_eigenpairs(U.T @ M)
        inverse = (rotation / np.maximum(values, max(FLAT * values[0], np.finfo(float).tiny))) @ rotation.T
        P = without(self._apply(G, inverse), U)
        if np.sum(P * G) <= 0:
            P = self.stride * G @ inverse
        length = float(np.linalg.norm(P, 2))
        return P if length <= LONGEST else P * (LONGEST / length)

    def _apply(self, G: Array, inverse: Array) -> Array:
        """The two-loop recursion, with ``inverse`` (r x r) from the right where no pair speaks."""
        Q, weights = G, []
        for S, Y in reversed(self.pairs):
            weights.append(np.sum(S * Q) / np.sum(S * Y))
            Q = Q - weights[-1] * Y
        known = [np.sum(S * Y) / np.sum(Y * (Y @ inverse)) for S, Y in self.pairs[-1:]]
        Q = self.stride * (known[0] if known else 1.0) * Q @ inverse
        for (S, Y), weight in zip(self.pairs, reversed(weights), strict=True):
            Q = Q + (weight - np.sum(Y * Q) / np.sum(S * Y)) * S
        return Q

    def moved(self, U: Array, step: Array, G_prev: Array, G: Array) -> Secants:
        """After a step from where the gradient was ``G_prev`` to U, where it is G."""
        there = [(without(S, U), without(Y, U)) for S, Y in self.pairs]
        S, Y = without(step, U), without(G_prev, U) - G
        known = replace(self, pairs=tuple(pair for pair in there if _curved(*pair)))
        if not _curved(S, Y):
            return replace(known, stride=GROWTH * self.stride)
        return Secants(pairs=(*known.pairs, (S, Y))[-MEMORY:])


def _curved(S: Array, Y: Array) -> bool:
    return bool(np.sum(S * Y) > CURVED * np.linalg.norm(S) * np.linalg.norm(Y))
