"""What vectors add to a space: orthonormal directions outside it."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from .linalg import Array, without
from .tall import inner, projected_out, straightened, times

ONCE_IS_ENOUGH = 1e-10
"""What unit vectors may have in a space so that one projection leaves of it nothing but rounding errors."""


def new_directions(A: Array, Q: Array, floor: float, beside: Array | None = None) -> Array:
    """Orthonormal basis of what A (d x b) adds to the span of Q (d x m): directions longer than ``floor``, at most b.

    With ``beside`` (d x l), orthonormal and orthogonal to Q, of what it adds to both.
    """
    rest = projected_out(A, Q)
    return directions_of(rest if beside is None else without(rest, beside), Q, floor, beside)


def directions_of(rest: Array, Q: Array, floor: float, beside: Array | None = None) -> Array:
    """Orthonormal directions, longer than ``floor``, of the ``rest`` (d x b) of some vectors outside the span of Q (d x m).

    With ``beside``, outside that of both, as in :func:`new_directions`.
    """
    U, lengths, _ = scipy.linalg.svd(rest, full_matrices=False, check_finite=False, lapack_driver="gesdd")
    return kept_outside(U[:, lengths > floor], Q, beside)


def kept_outside(U: Array, Q: Array, beside: Array | None = None) -> Array:
    """Those of the orthonormal directions U (d x b) that lie outside the span of Q (d x m), and of ``beside``, made to do so."""
    return straight_outside(U, Q, beside)[0]


def straight_outside(U: Array, Q: Array, beside: Array | None = None) -> tuple[Array, bool]:
    """As :func:`kept_outside`, and whether what they have of Q is now known to be rounding errors.

    Of vectors that are almost in span(Q), what is left after one projection may be mostly rounding and lie in span(Q) again.  So
    unit directions are projected until they stay as long as they were; one that shrinks was rounding and is dropped.
    """
    d, m = Q.shape[0], Q.shape[1] + (0 if beside is None else beside.shape[1])
    U = U[:, : d - m]
    for _ in range(3):
        inside = inner(Q, U)
        U = U - times(Q, inside)
        if beside is not None:
            inside = np.concatenate([inside, beside.T @ U])
            U = U - beside @ inside[Q.shape[1] :]
        stays = np.linalg.norm(U, axis=0) > 0.5
        U = straightened(U if stays.all() else U[:, stays])
        if np.abs(inside).max(initial=0.0) < ONCE_IS_ENOUGH:
            return U, True
    return U, False
