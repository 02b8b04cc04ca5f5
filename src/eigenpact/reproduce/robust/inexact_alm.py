"""Inexact augmented Lagrange multipliers for principal component pursuit, centralised; the strongest peer of the robust solvers.

Problem
    min ||L||_* + lambda ||S||_1 subject to M = L + S, all of M (n x d) in one place.

Iterations
    1. Y <- M / max(||M||_2, ||M||_inf / lambda);  mu <- 1.25 / ||M||_2
    2. L <- singular values of M - S + Y / mu shrunk by 1 / mu
    3. S <- entries of M - L + Y / mu shrunk by lambda / mu
    4. Y <- Y + mu (M - L - S);  mu <- 1.5 mu, up to 1e7 times its first value;  stop when ||M - L - S||_F <= tol ||M||_F

References
    Z. Lin, M. Chen, Y. Ma, "The augmented Lagrange multiplier method for exact recovery of corrupted low-rank matrices", 2010,
    Algorithm 5.

>>> import numpy as np
>>> rng = np.random.default_rng(0)
>>> L0 = rng.normal(size=(60, 2)) @ rng.normal(size=(2, 50))
>>> found = inexact_alm(L0 + np.where(rng.random(L0.shape) < 0.05, 9.0, 0.0))
>>> bool(np.linalg.norm(found.low_rank - L0) < 1e-5 * np.linalg.norm(L0))
True
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...numerics.linalg import Array, soft
from .pursuit import Iterate, Pursuit, Watcher, pursue, shrink_singular_values, usual_weight

GROWTH, MOST_GROWTH = 1.5, 1e7


def inexact_alm(M: Array, *, tol: float = 1e-7, max_iterations: int = 200, watch: Watcher | None = None) -> Pursuit:
    """Split M (n x d) into a low-rank part and errors."""
    return pursue(M, _iterates(M, usual_weight(M), tol), max_iterations, watch)


def _iterates(M: Array, lam: float, tol: float) -> Iterator[Iterate]:
    longest, norm = float(np.linalg.norm(M, 2)), float(np.linalg.norm(M))
    Y = M / max(longest, float(np.abs(M).max()) / lam)  # line 1
    mu = 1.25 / longest
    highest = MOST_GROWTH * mu
    S, expected = np.zeros_like(M), 11
    while True:
        L, axes = shrink_singular_values(M - S + Y / mu, 1 / mu, expected)  # line 2
        expected = len(axes) + 1
        S = soft(M - L + Y / mu, lam / mu)  # line 3
        R = M - L - S
        yield Iterate(L, S, axes, float(np.linalg.norm(R)) / norm <= tol)
        Y += mu * R  # line 4
        mu = min(GROWTH * mu, highest)
