"""Accelerated proximal gradients for principal component pursuit, centralised: the robust PCA paper's APGM.

Problem
    min mu ||L||_* + mu lambda ||S||_1 + 1/2 ||M - L - S||_F^2 with mu falling to a small value, all of M (n x d) in one place.

Iterations
    1. mu <- .99 ||M||_2, its lowest value 1e-9 times that;  t, t_prev <- 1
    2. extrapolate: L~ <- L + (t_prev - 1) / t (L - L_prev), and S~ alike
    3. L <- singular values of L~ - (L~ + S~ - M) / 2 shrunk by mu / 2;  S <- entries of S~ - (L~ + S~ - M) / 2 by lambda mu / 2
    4. t_prev, t <- t, (1 + sqrt(1 + 4 t^2)) / 2;  mu <- max(.9 mu, the lowest)
    5. stop when L and S change by less than tol of ||M||_F

References
    Z. Lin, A. Ganesh, J. Wright, L. Wu, M. Chen, Y. Ma, "Fast convex optimization algorithms for exact recovery of a corrupted
    low-rank matrix", 2009, Algorithm 2.

>>> import numpy as np
>>> rng = np.random.default_rng(0)
>>> L0 = rng.normal(size=(60, 2)) @ rng.normal(size=(2, 50))
>>> found = apgm(L0 + np.where(rng.random(L0.shape) < 0.05, 9.0, 0.0))
>>> bool(np.linalg.norm(found.low_rank - L0) < 1e-4 * np.linalg.norm(L0))
True
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np

from ...numerics.linalg import Array, soft
from .pursuit import Iterate, Pursuit, Watcher, pursue, shrink_singular_values, usual_weight

DECAY, LOWEST = 0.9, 1e-9


def apgm(M: Array, *, tol: float = 1e-7, max_iterations: int = 300, watch: Watcher | None = None) -> Pursuit:
    """Split M (n x d) into a low-rank part and errors."""
    return pursue(M, _iterates(M, usual_weight(M), tol), max_iterations, watch)


def _iterates(M: Array, lam: float, tol: float) -> Iterator[Iterate]:
    norm = float(np.linalg.norm(M))
    mu = 0.99 * float(np.linalg.norm(M, 2))  # line 1
    lowest = LOWEST * mu
    L = L_prev = S = S_prev = np.zeros_like(M)
    t = t_prev = 1.0
    expected = 11
    for iteration in count(1):
        ahead = (t_prev - 1) / t  # line 2
        L_ahead, S_ahead = L + ahead * (L - L_prev), S + ahead * (S - S_prev)
        half = (L_ahead + S_ahead - M) / 2
        L_prev, S_prev = L, S
        L, axes = shrink_singular_values(L_ahead - half, mu / 2, expected)  # line 3
        expected = len(axes) + 1
        S = soft(S_ahead - half, lam * mu / 2)
        t_prev, t = t, (1 + np.sqrt(1 + 4 * t * t)) / 2  # line 4
        mu = max(DECAY * mu, lowest)
        change = float(np.sqrt(np.linalg.norm(L - L_prev) ** 2 + np.linalg.norm(S - S_prev) ** 2)) / norm
        yield Iterate(L, S, axes, change <= tol and iteration > 1)  # line 5
