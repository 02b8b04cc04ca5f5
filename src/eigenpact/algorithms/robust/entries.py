"""Rows with wrong and missing entries: read a block at a time, fitted by scores on the entries that are trusted.

A block M (n x d) is explained as V U^T + S with the common U (d x k, orthonormal).  Given which entries are trusted, the scores V
of different rows do not depend on one another; conjugate gradients solve for all of them at once, in products of n d k.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import PolicyError
from ...numerics.blocks import Mask, blocks
from ...numerics.linalg import Array
from ...runtime import Site
from .thresholds import NORMAL_MEDIAN, START

MEDIANS = ("mean", "scale")
"""Names under which a site keeps the agreed centre and scale: declare ``reads=MEDIANS`` where you call :func:`entries_of`."""

GOOD_ENOUGH = 1e-2
"""Scores are iterated until their gradient is this small, compared with where it was."""

UNSEEN = 1e-14
"""If trusted entries hold no more than this share of a direction's square, they do not show it."""

PACE, ROOM = 0.7, 2.0
"""Each pass over new rows lowers a row's threshold by PACE, or to ROOM times its largest trusted residual if that is less."""

STEPS, MOST_PASSES = 4, 200
"""Conjugate gradient steps in a pass over new rows, and passes after which a row is left as it is."""


def entries_of(site: Site) -> Iterator[tuple[slice, Array, Mask | None]]:
    """The site's centred and scaled rows by ``blocks``, for use inside local functions that declare ``reads=MEDIANS``."""
    return blocks(site.X, site.kept["mean"], site.kept["scale"])


def trusted(R: Array, observed: Mask | None, threshold: Any) -> Mask:
    """Where the residual R (n x d) is observed and at most the threshold (a number, or one per row: n x 1)."""
    W: Mask = np.abs(R) <= threshold
    return W if observed is None else W & observed


def check_many(by_feature: NDArray[np.int64], least: int) -> None:
    """Withhold a reply about fewer than ``least`` trusted entries of a feature, unless there is none."""
    if np.any((by_feature > 0) & (by_feature < least)):
        raise PolicyError(f"rule min_rows = {least}: the threshold trusts fewer entries of a feature; the reply is withheld")


def check_not_all_cut(inside: NDArray[np.int64], least: int) -> None:
    """Withhold a reply in which fewer than ``least`` entries of a feature are left as they are: the others would be signs."""
    if least > 1 and np.any(inside < least):
        raise PolicyError(
            f"rule min_rows = {least}: the threshold cuts all but fewer entries of a feature; the reply is withheld"
        )


def typical_sizes(M: Array, observed: Mask | None) -> Array:
    """Robust standard deviation (n x 1) of each row's observed entries about zero; 0 for a row that has none.

    >>> typical_sizes(np.array([[1.0, -3.0, 2.0]]), np.array([[True, True, False]])).round(2).tolist()
    [[1.48]]
    """
    sizes = np.abs(M)
    if observed is None:
        half = sizes.shape[1] // 2
        sizes.partition(half, axis=1)  # half of what np.median does, which looks for both middle entries and for the largest
        middle = sizes[:, half : half + 1]
        lower = middle if sizes.shape[1] % 2 else sizes[:, :half].max(axis=1, keepdims=True)
        return np.asarray((lower + middle) / 2 / NORMAL_MEDIAN)
    seen = observed.sum(axis=1, keepdims=True)
    sizes[~observed] = np.inf
    sizes.sort(axis=1)
    return np.where(seen > 0, np.take_along_axis(sizes, np.maximum(seen - 1, 0) // 2, axis=1), 0.0) / NORMAL_MEDIAN


def fit_scores(R: Array, W: Mask, U: Array, V: Array, steps: int, good_enough: float = GOOD_ENOUGH) -> tuple[Array, Array]:
    """Least squares scores on the trusted entries W (n x d), by at most ``steps`` conjugate gradient steps from V (n x k).

    R (n x d) is M - V U^T; returns the new V and R, R on all entries.

    >>> U, V = np.eye(3)[:, :1], np.array([[2.0]])
    >>> M = V @ U.T + [[0, 0, 7.0]]
    >>> fit_scores(M, np.array([[True, True, False]]), U, np.zeros((1, 1)), 1)[0]
    array([[2.]])
    """
    weights, rows_of_U = W.astype(np.float64), np.ascontiguousarray(U.T)
    E = R * weights
    G, first = E @ U, V
    P, size = G, np.vecdot(G, G)
    enough = good_enough**2 * float(size.sum())
    rounding = np.finfo(float).eps ** 2 * np.maximum(size, np.vecdot(E, E))  # a gradient below it has no direction
    for _ in range(steps):
        if float(size.sum()) <= enough:
            break
        Q = np.matmul(P, rows_of_U, out=E)
        Q *= weights
        bend = Q @ U  # its product with P is the square of what trusted entries show of P
        bent = np.vecdot(P, bend)
        seen = bent > UNSEEN * np.vecdot(P, P)  # a direction that no trusted entry shows has no length
        length = np.divide(size, bent, out=np.zeros_like(size), where=seen & (size > rounding))[:, None]
        V = V + length * P
        G = G - length * bend
        size_prev, size = size, np.vecdot(G, G)
        P = G + np.divide(size, size_prev, out=np.zeros_like(size), where=size_prev > 0)[:, None] * P
    return V, R - np.matmul(V - first, rows_of_U, out=E)


def remove_errors(M: Array, observed: Mask | None, U: Array, first: float, last: float) -> tuple[Array, Mask]:
    """Scores V (n x k) of rows M (n x d) and where their errors are: beyond a threshold that shrinks from ``first`` to ``last``.

    Each row has its own threshold, so that a row's answer does not depend on the others.  A row in which errors are found and
    whose entries are large is tried again from a first threshold of its own size; the answer with fewer errors stays.
    """
    first = max(first, last)
    V, errors = _remove_from(M, observed, U, np.full((len(M), 1), first), last)
    own = START * typical_sizes(M, observed)
    again = np.flatnonzero((own[:, 0] > first) & errors.any(axis=1))
    if again.size:
        V_own, errors_own = _remove_from(M[again], None if observed is None else observed[again], U, own[again], last)
        fewer = errors_own.sum(axis=1) < errors[again].sum(axis=1)
        V[again[fewer]], errors[again[fewer]] = V_own[fewer], errors_own[fewer]
    return V, errors


def _remove_from(M: Array, observed: Mask | None, U: Array, thresholds: Array, last: float) -> tuple[Array, Mask]:
    """As above from these thresholds (n x 1), beginning with the scores of the rows cut back to them.

    At least 2 k entries of a row are trusted, or all that are observed if they are fewer.
    """
    n, d = M.shape
    cut = np.clip(M, -thresholds, thresholds)
    V, errors = (cut if observed is None else cut * observed) @ U, np.zeros((n, d), dtype=np.bool_)
    least = min(2 * U.shape[1], d)
    active, R = np.arange(n), M - V @ U.T
    for _ in range(MOST_PASSES):
        seen = None if observed is None else observed[active]
        W = _with_enough(trusted(R, seen, thresholds), R, seen, least)
        V_new, R = fit_scores(R, W, U, V[active], STEPS, good_enough=0.0)
        W_new = _with_enough(trusted(R, seen, thresholds), R, seen, least)
        V[active] = V_new
        errors[active] = ~W_new if seen is None else seen & ~W_new
        reached = thresholds[:, 0] <= last
        done = reached & (W_new == W).all(axis=1)
        largest = np.where(W_new, np.abs(R), 0.0).max(axis=1, keepdims=True, initial=0.0)
        thresholds = np.maximum(last, np.minimum(PACE * thresholds, ROOM * largest))
        if done.any():
            active, R, thresholds = active[~done], R[~done], thresholds[~done]
        if active.size == 0:
            break
    return V, errors


def _with_enough(W: Mask, R: Array, observed: Mask | None, least: int) -> Mask:
    """W with at least ``least`` trusted entries in each row, those with the smallest residuals among the observed."""
    few = np.flatnonzero(W.sum(axis=1) < least)
    if few.size:
        sizes = np.abs(R[few])
        if observed is not None:
            sizes[~observed[few]] = np.inf
        bound = np.partition(sizes, least - 1, axis=1)[:, least - 1 : least]
        W[few] = (sizes <= bound) & np.isfinite(sizes)
    return W
