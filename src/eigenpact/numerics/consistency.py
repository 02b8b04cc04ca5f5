"""Whether what is said of a scatter matrix can be true: tests of its products that need none of its rows.

C is a scatter matrix (d x d): symmetric, without negative eigenvalues, of a known trace t.  G is said to be C Z for an
orthonormal block Z (d x k).

One product.  Some such C exists if and only if Z^T G is symmetric without negative eigenvalues, and the least C that would do,
G (Z^T G)^+ G^T, has a trace of at most t.  (A C that does is at least as large as that one, by Schur complements; and what
is left of the trace can lie outside.)  Rounding makes a pseudo-inverse useless, so C + delta I is looked at instead.

Several products.  Z_a^T G_b = (Z_b^T G_a)^T for any two blocks.  One random combination w of all vectors asked about so far, and
the same one of the replies, v = C w, stand for all earlier blocks: w^T G = v^T Z for every later one.  Whoever does not know the
combination cannot contradict an earlier reply and keep this, but with probability zero.

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
class Probe:
    """A random combination w (d) of the vectors asked about so far, and v (d), said to be C w; ``weight`` is its length."""

    w: Array
    v: Array
    weight: float

    @classmethod
    def empty(cls, d: int) -> Probe:
        """Nothing asked yet."""
        return cls(np.zeros(d), np.zeros(d), 0.0)

    def doubt(self, Z: Array, G: Array, slack: float) -> str:
        """Why G (d x k) is not C Z (d x k) for the C of all earlier products; empty if it may be."""
        off = float(np.abs(self.w @ G - self.v @ Z).max(initial=0.0))
        return f"it contradicts earlier replies, by {off:.1e}" if off > MARGIN * self.weight * slack else ""

    def add(self, Z: Array, G: Array, rng: np.random.Generator) -> Probe:
        """With one more product, combined at random."""
        r = rng.standard_normal(Z.shape[1])
        return Probe(self.w + Z @ r, self.v + G @ r, float(np.hypot(self.weight, np.linalg.norm(r))))
