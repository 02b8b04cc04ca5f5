"""How the agreed basis changes: the exact consensus step, new columns beside the old ones, and where a spectrum falls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from ...numerics.linalg import Array, orthonormalize, polar_factor, top_eigenpairs, without
from ...numerics.metrics import mean_sine

NO_SPAN = 1e-13
"""Eigenvalues of the scores' products below this share of the largest are rounding: scores do not span there."""

NOTHING = 1e-4
"""Eigenvalues of the scores' scatter below this share of the largest are all the same."""


@dataclass(frozen=True)
class Fall:
    """Where a spectrum falls most steeply: behind the eigenvalue ``rank``, to ``ratio`` times it."""

    rank: int
    ratio: float


def steepest_fall(scatter: Array) -> Fall:
    """The steepest fall of the eigenvalues of the scores' scatter (k x k).

    >>> steepest_fall(np.diag([4.0, 3.0, 0.03]))
    Fall(rank=2, ratio=0.01)
    """
    values = top_eigenpairs(scatter)[0]
    values = np.maximum(values, NOTHING * values[0])
    ratios = np.divide(values[1:], values[:-1], out=np.ones(len(values) - 1), where=values[:-1] > 0)
    if not ratios.size:
        return Fall(1, 1.0)
    return Fall(int(ratios.argmin()) + 1, round(float(ratios.min()), 12))


def moved(U: Array, shift: Array, D: Array) -> tuple[Array, Array, float]:
    """U and m after the step D (d x k+1), and by how much U turns: a root mean square of sines, for small steps."""
    k = U.shape[1]
    return polar_factor(U + D[:, :k]), shift + D[:, k], mean_sine(D[:, :k], U)


def consensus_step(G: Array, B: Array, centred: bool) -> Array:
    """How [U m] changes (d x k+1): G B^-1, in the least squares sense where scores do not span; m stays if not centred."""
    k = len(B) if centred else len(B) - 1
    sizes = np.full(k, np.sqrt(np.diag(B)[:-1].max()))  # one for all scores: a column of rounding must stay small
    if centred:
        sizes[-1] = np.sqrt(B[-1, -1])  # scores and ones are of different units
    sizes = np.where(sizes > 0, sizes, 1.0)
    D = G[:, :k] / sizes @ scipy.linalg.pinvh(B[:k, :k] / np.outer(sizes, sizes), rtol=NO_SPAN) / sizes
    return np.asarray(D if centred else np.column_stack([D, np.zeros(len(G))]))


def beside(U: Array, A: Array) -> Array:
    """U (d x k) and then an orthonormal basis of what A (d x p) has beside it."""
    return np.column_stack([U, orthonormalize(without(A, U))]) if A.shape[1] else U
