"""How far a basis is from the truth: angles computed from sines, and the scaled KKT residual.

Angles never go through ``arccos``, which cannot tell 1e-8 from 0 in double precision.
"""

from __future__ import annotations

import numpy as np

from .linalg import Array, without


def largest_sine(A: Array, B: Array) -> float:
    """Sine of the largest principal angle between the spans of orthonormal A (d x k) and B (d x l), k <= l.

    >>> largest_sine(np.eye(3)[:, :1], np.array([[1.0], [1e-10], [0.0]]))
    1e-10
    """
    if A.shape[1] == 0:
        return 0.0
    missed = without(A, B)
    largest = float(np.linalg.eigvalsh(missed.T @ missed)[-1])  # which has all its digits
    return min(1.0, float(np.sqrt(max(0.0, largest))))


def mean_sine(A: Array, B: Array) -> float:
    """Root mean square of the sines of the angles between the columns of A (d x k) and the span of orthonormal B (d x l)."""
    return float(np.linalg.norm(without(A, B))) / float(np.sqrt(A.shape[1]))


def kkt(G: Array, Z: Array, trace: float) -> float:
    """Scaled KKT residual ||(I - Z Z^T) C Z||_F / tr C from the product G = C Z (d x k); 0 for a zero matrix C."""
    if trace <= 0:
        return 0.0
    return float(np.linalg.norm(without(G, Z)) / trace)
