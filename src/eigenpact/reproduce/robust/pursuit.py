"""What centralised principal component pursuit needs: min ||L||_* + lambda ||S||_1 with M = L + S, on one pooled matrix.

These methods are no federated programs - every step takes singular values of the whole matrix - so they are not in algorithms/.
They stand here for comparison with what the papers compare with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import scipy.linalg

from ...numerics.linalg import Array, orthonormalize

OVERSAMPLING, POWERS = 10, 2
"""Columns beside the wanted ones, and power iterations, of a randomized partial decomposition (Halko et al., 2011)."""

PARTIAL = 0.2
"""Up to this share of the smaller side a partial decomposition is worth it."""


@dataclass(frozen=True, eq=False)
class Pursuit:
    """Low-rank part and errors (n x d) of M, iterations taken, and the residual ||M - L - S||_F / ||M||_F in the end."""

    low_rank: Array
    sparse: Array
    iterations: int
    residual: float


@dataclass(frozen=True, eq=False)
class Iterate:
    """L and S (n x d), the leading right singular vectors of L (rows, the strongest first), and whether all is at rest."""

    L: Array
    S: Array
    axes: Array
    rests: bool


Watcher = Callable[[int, Iterate], object]
"""Called after every iteration with its number and where it is."""


def pursue(M: Array, iterates: Iterator[Iterate], most: int, watch: Watcher | None) -> Pursuit:
    """Take iterates from a method until they are at rest, or after so many."""
    for iteration, at in enumerate(islice(iterates, most), 1):
        if watch is not None:
            watch(iteration, at)
        if at.rests:
            break
    return Pursuit(at.L, at.S, iteration, float(np.linalg.norm(M - at.L - at.S)) / float(np.linalg.norm(M)))


def usual_weight(M: Array) -> float:
    """lambda = 1 / sqrt(max(n, d)), for which recovery is proved."""
    return 1.0 / float(np.sqrt(max(M.shape)))


def shrink_singular_values(A: Array, threshold: float, expected: int) -> tuple[Array, Array]:
    """A with its singular values moved towards zero by the threshold, and the right singular vectors (rows) that are left.

    >>> shrunk, axes = shrink_singular_values(np.diag([3.0, 1.0, 0.5]), 0.75, expected=1)
    >>> np.diag(shrunk).round(12).tolist(), len(axes)
    ([2.25, 0.25, 0.0], 2)
    """
    U, values, Vt = leading(A, threshold, expected)
    return np.asarray((U * (values - threshold)) @ Vt), Vt


def leading(A: Array, threshold: float, expected: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """The singular triplets of A above the threshold.

    As many singular values as ``expected`` are computed first, twice as many as long as they do not reach down to the threshold.
    """
    side = min(A.shape)
    wanted = max(1, expected)
    while True:
        if wanted > PARTIAL * side:
            U, values, Vt = scipy.linalg.svd(A, full_matrices=False, check_finite=False)
            break
        U, values, Vt = _partial(A, wanted, seed)
        if values[-1] <= threshold:
            break
        wanted *= 2
    rank = int(np.count_nonzero(values > threshold))
    return U[:, :rank], values[:rank], Vt[:rank]


def _partial(A: Array, wanted: int, seed: int) -> tuple[Array, Array, Array]:
    """The leading singular triplets, by a random range with power iterations."""
    Q = orthonormalize(A @ np.random.default_rng(seed).standard_normal((A.shape[1], wanted + OVERSAMPLING)))
    for _ in range(POWERS):
        Q = orthonormalize(A @ orthonormalize(A.T @ Q))
    U, values, Vt = scipy.linalg.svd(Q.T @ A, full_matrices=False, check_finite=False)
    return Q @ U[:, :wanted], values[:wanted], Vt[:wanted]
