"""Leading eigenvectors of a symmetric matrix that lies here, by block Krylov with the proof that none was missed.

LAPACK reduces the whole matrix to a tridiagonal one, d^3 steps of which half run at the speed of memory.  Where few of many
eigenvectors are wanted, products with a block of few more than k columns take a fraction of that, until ``certificate.py`` is
satisfied.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from .certificate import TIE, Certificate, certify, certify_again, spare
from .krylov_space import KrylovSpace
from .linalg import GRADED, Array
from .tall import random_block, times

MANY, FEW = 1000, 1 / 4
"""From so many features on LAPACK is slower, if at most this share of the eigenvectors may be looked at."""

AT_ONCE = 2
"""Blocks that are added before the space is looked at, which takes longer than a product with C; once there is a bound on the
angle, as many as it should take to lower it enough, at the pace so far."""

AT_ROUNDING, FINE = 8.0, 1e-12
"""A bound on the angle is good enough within this many times the rounding errors, or if it is that small."""

TURNED = 1 / (2 * TIE)
"""The largest angle at which a residual that is allowed will do: beside a larger one the next eigenvalue counts as tied."""


def few_of_many(d: int, k: int) -> bool:
    """Whether k eigenvectors of d are few enough to try.

    >>> few_of_many(1000, 10), few_of_many(500, 10), few_of_many(1000, 100)
    (True, False, False)
    """
    return d >= MANY and 3 * (k + spare(k)) <= FEW * d


def proved_eigenpairs(C: Array, k: int, seed: int, coarse: float = 0.0, allowed: float = 0.0) -> tuple[Array, Array] | None:
    """The k largest eigenvalues of C (d x d) and a bound on the next (k + 1,), and the k eigenvectors (d x k); or None.

    Products are known to be off by ``coarse``, the length of a column.  Residuals (I - Z Z^T) C Z of a length of ``allowed`` will
    do if they turn Z by little; none of the k directions is missed all the same.  None is for small matrices, for those whose
    leading eigenvectors hardly differ in variance from the next, and where one variance dwarfs others that are wanted.

    >>> C = np.diag(1 / np.arange(1.0, 1201.0))
    >>> values, vectors = proved_eigenpairs(C, 2, 0)
    >>> bool(np.allclose(values[:2], [1, 1 / 2]) and 1 / 3 <= values[2] < 1 / 2), bool(np.abs(vectors[2:]).max() < 1e-12)
    (True, True)
    """
    d, width = len(C), k + spare(k)
    if not few_of_many(d, k):
        return None
    omega = random_block(d, width, seed)
    space = KrylovSpace(omega, times(C, omega), width)
    blocks, last, found = AT_ONCE, np.inf, Certificate(None, 1.0, missed=True, cut="clear", rank=k)
    while True:
        for _ in range(blocks):
            B = space.next_block(width)
            if B.shape[1] == 0 or space.size + B.shape[1] > FEW * d:
                return None
            space = space.add(B, times(C, B))
        ritz = space.ritz(lambda _: k)
        found = certify_again(space, ritz, found, coarse) or certify(space, ritz, omega, coarse)
        enough = max(FINE, AT_ROUNDING * found.rounding)
        residual = float(np.linalg.norm(ritz.off))
        enough = max(enough, TURNED) if residual <= allowed else enough
        if found.bound is not None and found.angle is not None and found.angle <= enough:
            return np.append(ritz.values[:k], found.bound), ritz.Z
        graded = ritz.values[0] > GRADED * abs(ritz.values[k - 1])  # products lose digits of small values that LAPACK keeps
        if graded or found.cut != "clear":
            return None
        pace, last = (residual / last) ** (1 / blocks), residual
        missing = 0.0 if found.angle is None or not 0 < pace < 1 else np.log(enough / found.angle) / np.log(pace)
        blocks = max(1, ceil(missing)) if missing else AT_ONCE
