"""Whether what is said of a scatter matrix can be true: tests of its products that need none of its rows.

C is a scatter matrix (d x d): symmetric, without negative eigenvalues, of a known trace t.  G is said to be C Z for an
orthonormal block Z (d x k).

One product.  Some such C exists if and only if Z^T G is symmetric without negative eigenvalues, and the least C that would do,
G (Z^T G)^+ G^T, has a trace of at most t.  (A C that does is at least as large as that one, by Schur complements; and what
is left of the trace can lie outside.)  Rounding makes a pseudo-inverse useless, so C + delta I is looked at instead.

Several products.  Z_a^T G_b = (Z_b^T G_a)^T for any two blocks.  A few random combinations W of all vectors asked about so far,
and the same ones of the replies, V = C W, stand for all earlier blocks: W^T G = V^T Z for every later one.  Whoever does not know
the combinations cannot contradict an earlier reply and keep this, but with probability zero.  And the least C is taken of [Z, W]
and [G, V] together, so that a narrow block is not judged alone: its trace, too, is at most t.  Directions in which these vectors
are too short beside the errors of V are left out, which only makes the least trace smaller.

Numbers are off by rounding: ``slack`` is how much the product of a unit vector with a column of G may be.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from .linalg import Array, symmetrize

SHIFT, STEEP = 1e-5, 1e4
"""delta in units of the trace, and how many times the slack it is at least: errors of the inverse are below a STEEP-th then."""

EXCESS = 1e-3
"""By what share the least trace may exceed the one that is known: errors of the inverse."""

MARGIN = 8.0
"""How many times the slack a random combination of errors may be."""

COMBINATIONS = 12
"""How many combinations of earlier products are remembered."""

JOINT_SHIFT, JOINT_STEEP, JOINT_EXCESS = 1e-2, 1e2, 2e-2
"""The same for a block together with what is remembered, whose errors are larger; the shift is that of all k directions."""

SHORTEST = 1e-4
"""Directions in which unit vectors are shorter are not looked at: they are found by squares, which have half of the digits."""


def product_doubt(Z: Array, G: Array, trace: float, slack: float) -> str:
    """Why G (d x k) is not C Z for any scatter C of this trace and orthonormal Z (d x k); empty if it may be.

    >>> C, Z = np.diag([3.0, 2.0, 1.0]), np.eye(3)[:, :2]
    >>> product_doubt(Z, C @ Z, 6.0, 1e-12), product_doubt(Z, -C @ Z, 6.0, 1e-12), product_doubt(Z, C @ Z, 4.0, 1e-12)
    ('', 'it has a negative variance, -3.0e+00', 'it needs a trace of 5.0e+00, and the site told 4.0e+00')
    """
    if Z.shape[1] == 0:
        return ""
    k, B = Z.shape[1], Z.T @ G
    uneven = float(np.abs(B - B.T).max())
    if uneven > 2 * slack:
        return f"Z^T G is not symmetric, by {uneven:.1e} beside a trace of {trace:.1e}"
    values, vectors = np.linalg.eigh(symmetrize(B))
    if values[0] < -k * slack:
        return f"it has a negative variance, {values[0]:.1e}"
    delta = SHIFT * trace + STEEP * k * slack
    shifted = (G + delta * Z) @ vectors
    least = float(np.sum(shifted**2 / (np.maximum(values, 0.0) + delta))) if delta > 0 else float(np.sum(G**2))
    if least > (1 + EXCESS) * (trace + 2 * k * delta):
        return f"it needs a trace of {least:.1e}, and the site told {trace:.1e}"
    return ""


def joint_doubt(A: Array, B: Array, trace: float, slack: float) -> str:
    """The same for vectors A (d x k) of about unit length that may depend on each other; ``slack`` is that of B (d x k).

    >>> C, A = np.diag([3.0, 2.0, 1.0]), np.array([[1.0, 1.0], [0.0, 1e-3], [0.0, 0.0]])
    >>> joint_doubt(A, C @ A, 6.0, 1e-12), joint_doubt(A, C @ A, 4.0, 1e-12)
    ('', 'with earlier replies it needs a trace of 5.0e+00, and the site told 4.0e+00')
    """
    k, delta = A.shape[1], JOINT_SHIFT / A.shape[1]  # in units of the trace, as everything below
    squares, turn = np.linalg.eigh(A.T @ A)
    lengths = np.sqrt(np.maximum(squares, 0.0))
    long = (lengths > SHORTEST) & (lengths * trace > JOINT_STEEP * k * slack / delta)
    if not long.any():
        return ""
    B, turn = B / trace, turn[:, long] / lengths[long]  # A turn is orthonormal
    values, vectors = np.linalg.eigh(symmetrize(turn.T @ (A.T @ B) @ turn))
    if values[0] < -delta / JOINT_STEEP:
        return f"with earlier replies it has a negative variance, {values[0] * trace:.1e}"
    turn = turn @ vectors
    shifted = np.sum(turn * (B.T @ B @ turn), axis=0) + 2 * delta * values + delta**2
    least = float(np.sum(shifted / (np.maximum(values, 0.0) + delta)))
    if least > (1 + JOINT_EXCESS) * (1 + 2 * k * delta):
        return f"with earlier replies it needs a trace of {least * trace:.1e}, and the site told {trace:.1e}"
    return ""


def triangle_doubt(packed: Array, d: int, trace: float, slack: float) -> str:
    """Why a packed triangle (d(d+1)/2) is of no scatter matrix of this trace; empty if it may be.

    >>> triangle_doubt(np.array([1.0, 2.0, 1.0]), 2, 2.0, 1e-12), triangle_doubt(np.array([1.0, 0.5, 1.0]), 2, 2.0, 1e-12)
    ('it has a negative variance', '')
    """
    lower, off = scipy.linalg.lapack.dtpttr(d, packed, uplo="L")[0], MARGIN * float(np.sqrt(d)) * slack
    told = float(np.trace(lower))
    if abs(told - trace) > off:
        return f"its trace is {told:.6e}, and the site told {trace:.6e}"
    if off == 0:
        return "it is not zero, and the site told a trace of zero" if packed.any() else ""
    lower[np.diag_indices(d)] += off
    negative = scipy.linalg.lapack.dpotrf(lower, lower=1, clean=0, overwrite_a=1)[1] != 0  # no Cholesky factor
    return "it has a negative variance" if negative else ""


@dataclass(frozen=True, eq=False)
class Memory:
    """Random combinations W (d x COMBINATIONS) of the ``asked`` vectors asked about so far, and V, said to be C W."""

    W: Array
    V: Array
    asked: int = 0

    @classmethod
    def empty(cls, d: int) -> Memory:
        """Nothing asked yet."""
        return cls(np.zeros((d, COMBINATIONS)), np.zeros((d, COMBINATIONS)))

    def doubt(self, Z: Array, G: Array, trace: float, slack: float) -> str:
        """Why G (d x k) is not C Z (d x k) for the C of all earlier products, of this trace; empty if it may be."""
        if self.asked == 0:
            return ""
        length = float(np.sqrt(self.asked))
        off = float(np.abs(self.W.T @ G - self.V.T @ Z).max(initial=0.0)) / length
        if off > MARGIN * slack:
            return f"it contradicts earlier replies, by {off:.1e}"
        return joint_doubt(np.hstack([Z, self.W / length]), np.hstack([G, self.V / length]), trace, MARGIN * slack)

    def add(self, Z: Array, G: Array, rng: np.random.Generator) -> Memory:
        """With one more product, combined at random."""
        R = rng.standard_normal((Z.shape[1], COMBINATIONS))
        return Memory(self.W + Z @ R, self.V + G @ R, self.asked + Z.shape[1])
