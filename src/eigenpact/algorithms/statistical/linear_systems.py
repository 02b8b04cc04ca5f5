"""(lambda I - C) z = w over sites, one round a product: preconditioned conjugate gradients and Nesterov's accelerated gradient.

Both take the first-order oracle of the paper's Algorithm 2 in the variable z = C_1^{-1/2} y, where only products with the inverse
of the preconditioner appear, not with its root.  Both return z with its residual w - (lambda I - C) z, so that C z is known
without another round.

References
    D. Garber, O. Shamir, N. Srebro, ICML 2017, Algorithm 2, Lemmas 6 and 7.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...numerics.linalg import Array, without
from ...numerics.metrics import kkt
from ...runtime import Progress, Sum
from ..products import scatter_action
from ..setup import Setup
from .preconditioner import Preconditioner

PATIENCE = 4.0
"""How many times the number of steps that theory promises Nesterov's method may take."""


@dataclass(eq=False)
class Deflated:
    """P C P with P = I - Z Z^T for the vectors Z (d x j) found so far, whose products CZ = C Z are known; counts its rounds."""

    Z: Array
    CZ: Array
    rounds: int
    max_rounds: int

    @property
    def exhausted(self) -> bool:
        """Whether no round is left."""
        return self.rounds >= self.max_rounds

    def project(self, v: Array) -> Array:
        """P v (d)."""
        return without(v, self.Z)

    async def times(self, v: Array) -> Array:
        """P C P v (d).  One round, none where P v is zero."""
        direction = self.project(v)
        length = float(np.linalg.norm(direction))
        if length == 0:
            return np.zeros_like(v)
        self.rounds += 1
        G: Array = await Sum(scatter_action, (direction / length)[:, None])  # a unit vector, whatever is asked for
        return self.project(G[:, 0]) * length

    def with_vector(self, w: Array, Cw: Array) -> tuple[Array, Array]:
        """Z and C Z with one more vector w (d), orthogonal to Z, and its deflated product P C P w (d)."""
        return np.column_stack([self.Z, w]), np.column_stack([self.CZ, Cw + self.Z @ (self.CZ.T @ w)])

    def deflate(self, w: Array, Cw: Array) -> None:
        """Count w among what was found."""
        self.Z, self.CZ = self.with_vector(w, Cw)

    async def tell(self, setup: Setup, w: Array, Cw: Array, angle: float) -> None:
        """Report what was found so far, with w."""
        Z, CZ = self.with_vector(w, Cw)
        share = setup.share(np.sum(Z * CZ, axis=0))
        await Progress(basis=Z, objective=share, kkt=kkt(CZ, Z, setup.trace), details={"angle": angle})


@dataclass(frozen=True, eq=False)
class System:
    """lambda I - P C P, positive definite for shifts lambda above the spectrum, with its preconditioner."""

    C: Deflated
    shift: float
    inverse: Preconditioner | None

    async def precondition(self, r: Array) -> Array:
        """About (lambda I - C)^-1 r (d), in no round."""
        if self.inverse is None:
            return r
        z = await self.inverse.apply(r[:, None], np.array([self.shift + self.inverse.mu]))
        return self.C.project(z[:, 0])


@dataclass(frozen=True, eq=False)
class Solved:
    """z (d), its residual (d), and, if one was met, a direction p of negative curvature (d) with C p (d)."""

    z: Array
    residual: Array
    negative: tuple[Array, Array] | None = None


async def conjugate_gradient(system: System, z: Array, residual: Array, enough: float) -> Solved:
    """Preconditioned conjugate gradients from z until the residual's norm is at most ``enough``."""
    y = await system.precondition(residual)
    p, slope = y, float(residual @ y)
    while float(np.linalg.norm(residual)) > enough and slope > 0 and not system.C.exhausted:
        Cp = await system.C.times(p)
        Mp = system.shift * p - Cp
        curvature = float(p @ Mp)
        if curvature <= 0:
            return Solved(z, residual, (p, Cp))
        step = slope / curvature
        z, residual = z + step * p, residual - step * Mp
        y = await system.precondition(residual)
        slope_prev, slope = slope, float(residual @ y)
        p = y + (slope / slope_prev) * p
    return Solved(z, residual)


async def nesterov(system: System, z: Array, residual: Array, enough: float, distance: float) -> Solved:
    """Accelerated gradient from z until the residual's norm is at most ``enough``; ``distance`` is lambda - lambda_1.

    Smoothness and strong convexity are at first those of Lemma 6, or of lambda I - C without a preconditioner.  Smoothness is
    raised where a step shows more, momentum dropped where it leads uphill.  It gives up after a few times as many steps as the
    lemma promises: then lambda is not above the spectrum, and the next outer step has a better one.
    """
    smooth = 1.0 if system.inverse is not None else system.shift
    convex = distance / (distance + 2 * system.inverse.mu) if system.inverse is not None else distance
    v, residual_v = z, residual
    first = float(np.linalg.norm(residual))
    for _ in range(int(PATIENCE * np.sqrt(smooth / convex) * np.log(first / enough)) + 1):
        if float(np.linalg.norm(residual)) <= enough or system.C.exhausted:
            break
        step = (await system.precondition(residual_v)) / smooth
        Cstep = await system.C.times(step)
        change = system.shift * step - Cstep
        if float(step @ change) <= 0:
            return Solved(z, residual, (step, Cstep))
        length = min(1.0, float(step @ residual_v) / float(step @ change))  # below 1 where the smoothness was too small
        smooth /= length
        z_prev, residual_prev = z, residual
        z, residual = v + length * step, residual_v - length * change
        uphill = float(residual_v @ (z - z_prev)) < 0
        momentum = 0.0 if uphill else (1 - np.sqrt(convex / smooth)) / (1 + np.sqrt(convex / smooth))
        v, residual_v = z + momentum * (z - z_prev), residual + momentum * (residual - residual_prev)
    return Solved(z, residual)
