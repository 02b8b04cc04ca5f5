"""Goldfarb, Ma and Scheinberg's alternating linearization for principal component pursuit: the robust PCA paper's ALM.

Problem
    min f(X) + g(Z) subject to X = Z, with f(X) = ||X||_* and g(Z) = lambda ||M - Z||_1, all of M (n x d) in one place.  Both are
    smoothed by sigma: the slope of a singular value, or of an entry over lambda, is x / sigma up to 1.

Iterations
    1. mu <- ||M||_2 / 1.25;  Z <- M;  G <- 0, the gradient of g at Z
    2. X <- argmin f(X) + <G, X - Z> + ||X - Z||_F^2 / (2 mu): with A = Z - mu G, a singular value s of A becomes
       s - mu s / max(s, mu + sigma);  F <- (A - X) / mu is the gradient of f at X
    3. Z <- argmin g(Z) + <F, Z - X> + ||Z - X||_F^2 / (2 mu): with B = M - X + mu F, S = M - Z is B - mu clip(B / (mu + sigma)),
       clipped to +- lambda;  G <- (S - B) / mu
    4. mu <- max(2/3 mu, sigma) (continuation);  stop when ||M - X - S||_F <= tol ||M||_F

Differences from its paper
    The robust PCA paper names it and says no setting.  Here sigma is 1e-6 and mu falls to it: the basic method, with continuation
    and without acceleration or skipped steps.  Both multipliers are known as the gradients F and G; Lin's inexact ALM
    (``inexact_alm.py``) has one, which it updates once in an iteration.

References
    D. Goldfarb, S. Ma, K. Scheinberg, "Fast alternating linearization methods for minimizing the sum of two convex functions",
    Math. Program. 141 (2013), Algorithm 1 and its section on robust PCA.

>>> import numpy as np
>>> rng = np.random.default_rng(0)
>>> L0 = rng.normal(size=(60, 2)) @ rng.normal(size=(2, 50))
>>> found = alternating_linearization(L0 + np.where(rng.random(L0.shape) < 0.05, 9.0, 0.0))
>>> bool(np.linalg.norm(found.low_rank - L0) < 1e-4 * np.linalg.norm(L0))
True
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...numerics.linalg import Array
from .pursuit import Iterate, Pursuit, Watcher, leading, pursue, usual_weight

SIGMA = 1e-6
CONTINUATION = 2 / 3


def alternating_linearization(M: Array, *, tol: float = 1e-7, max_iterations: int = 200, watch: Watcher | None = None) -> Pursuit:
    """Split M (n x d) into a low-rank part and errors."""
    return pursue(M, _iterates(M, usual_weight(M), tol), max_iterations, watch)


def _iterates(M: Array, lam: float, tol: float) -> Iterator[Iterate]:
    norm, mu = float(np.linalg.norm(M)), float(np.linalg.norm(M, 2)) / 1.25  # line 1
    Z, G, expected = M, np.zeros_like(M), 11
    while True:
        A = Z - mu * G  # line 2
        U, values, axes = leading(A, mu + SIGMA, expected)
        expected, small = len(axes) + 1, SIGMA / (mu + SIGMA)
        X = small * A + (U * (values - mu - small * values)) @ axes
        F = (A - X) / mu
        B = M - X + mu * F  # line 3
        S = B - mu * np.clip(B / (mu + SIGMA), -lam, lam)
        Z, G = M - S, (S - B) / mu
        yield Iterate(X, S, axes, float(np.linalg.norm(Z - X)) / norm <= tol)
        mu = max(CONTINUATION * mu, SIGMA)  # line 4
