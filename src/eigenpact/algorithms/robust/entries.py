"""Rows with wrong and missing entries: read a block at a time, fitted by scores on the entries that are trusted.

A block M (n x d) is explained as V U^T + S with the common U (d x k, orthonormal).  Given which entries are trusted, the scores V
of different rows do not depend on one another; conjugate gradients solve for all of them at once, in products of n d k.

What is said here of arrays holds for those of another library, too, where rows lie: a block from :func:`entries_there`, and U,
are then of that library, and so is what comes of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import PolicyError
from ...numerics.blocks import Mask, blocks, blocks_there
from ...numerics.either import (
    by_rows,
    cut_back,
    full,
    in_order,
    kept_where,
    numbers,
    only_seen,
    product,
    quotient,
    rows_where,
    take,
    up_to,
    with_rows,
    zeros,
)
from ...numerics.elsewhere import namespace, to_numpy
from ...numerics.linalg import Array
from ...numerics.rows import block_rows
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


def entries_there(site: Site) -> Iterator[tuple[slice, Any, Any]]:
    """As :func:`entries_of`, where the rows lie: another library's are not copied to numpy."""
    return blocks_there(site.X, site.kept["mean"], site.kept["scale"])


def trusted(R: Any, observed: Any, threshold: Any) -> Any:
    """Where the residual R (n x d) is observed and at most the threshold (a number, or one per row: n x 1)."""
    W = abs(R) <= threshold
    return W if observed is None else W & observed


def seen_by_feature(M: Any, observed: Any) -> NDArray[np.int64]:
    """How many entries of each feature of a block M (n x d) are there (d,)."""
    if observed is None:
        return np.full(M.shape[1], M.shape[0])
    return to_numpy(namespace(observed).count_nonzero(observed, axis=0)).astype(np.int64)


def seen_rows(observed: Any) -> Any:
    """Of which rows (n x 1) any entry is there; None if all are whole.

    A row without any is none: its scores would be whatever they began with, and means and variances with them.

    >>> seen_rows(np.array([[True, False], [False, False]])).tolist()
    [[True], [False]]
    """
    return None if observed is None else namespace(observed).any(observed, axis=1, keepdims=True)


def count_rows(M: Any, observed: Any) -> int:
    """How many rows of a block M (n x d) have any entry."""
    return int(M.shape[0]) if observed is None else int(namespace(observed).count_nonzero(seen_rows(observed)))


def check_many(by_feature: NDArray[np.int64], least: int) -> None:
    """Withhold a reply about fewer than ``least`` trusted entries of a feature, unless there is none."""
    if np.any((by_feature > 0) & (by_feature < least)):
        raise PolicyError(f"rule min_rows = {least}: the threshold trusts fewer entries of a feature; the reply is withheld")


def check_not_all_cut(inside: NDArray[np.int64], seen: NDArray[np.int64], least: int) -> None:
    """Withhold a reply in which fewer than ``least`` of a feature's entries that are ``seen`` are left as they are, unless there
    is none: the others would be signs."""
    if least > 1 and np.any((inside < least) & (seen > 0)):
        raise PolicyError(
            f"rule min_rows = {least}: the threshold cuts all but fewer entries of a feature; the reply is withheld"
        )


def typical_sizes(M: Any, observed: Any) -> Any:
    """Robust standard deviation (n x 1) of each row's observed entries about zero; 0 for a row that has none.

    >>> typical_sizes(np.array([[1.0, -3.0, 2.0]]), np.array([[True, True, False]])).round(2).tolist()
    [[1.48]]
    """
    xp, sizes = namespace(M), abs(M)
    if observed is None:
        half = sizes.shape[1] // 2
        sizes = up_to(sizes, half)  # half of what np.median does, which looks for both middle entries and for the largest
        middle = sizes[:, half : half + 1]
        lower = middle if sizes.shape[1] % 2 else xp.max(sizes[:, :half], axis=1, keepdims=True)
        return (lower + middle) / 2 / NORMAL_MEDIAN
    seen = xp.count_nonzero(observed, axis=1, keepdims=True)
    sizes = in_order(only_seen(sizes, observed))
    return xp.where(seen > 0, xp.take_along_axis(sizes, xp.where(seen > 0, seen - 1, 0) // 2, axis=1), 0.0) / NORMAL_MEDIAN


def fit_scores(R: Any, W: Any, U: Any, V: Any, steps: int, good_enough: float = GOOD_ENOUGH) -> tuple[Any, Any]:
    """Least squares scores on the trusted entries W (n x d), by at most ``steps`` conjugate gradient steps from V (n x k).

    R (n x d) is M - V U^T; returns the new V and R, R on all entries.

    >>> U, V = np.eye(3)[:, :1], np.array([[2.0]])
    >>> M = V @ U.T + [[0, 0, 7.0]]
    >>> fit_scores(M, np.array([[True, True, False]]), U, np.zeros((1, 1)), 1)[0]
    array([[2.]])
    """
    xp = namespace(R)
    weights, rows_of_U = xp.astype(W, xp.float64), by_rows(U.T)
    E = R * weights
    G, first = E @ U, V
    P, size = G, xp.vecdot(G, G)
    enough = good_enough**2 * _of_block(size, R.shape[1])
    rounding = float(np.finfo(float).eps) ** 2 * xp.maximum(size, xp.vecdot(E, E))  # a gradient below it has no direction
    for _ in range(steps):
        going = _of_block(size, R.shape[1]) > enough
        if going is False:
            break
        Q = product(P, rows_of_U, into=E)
        Q *= weights
        bend = Q @ U  # its product with P is the square of what trusted entries show of P
        bent = xp.vecdot(P, bend)
        seen = bent > UNSEEN * xp.vecdot(P, P)  # a direction that no trusted entry shows has no length
        length = quotient(size, bent, seen & (size > rounding) & going)[:, None]
        V = V + length * P
        G = G - length * bend
        size_prev, size = size, xp.vecdot(G, G)
        P = G + quotient(size, size_prev, size_prev > 0)[:, None] * P
    return V, R - product(V - first, rows_of_U, into=E)


def _of_block(sizes: Any, d: int) -> Any:
    """The sum of sizes (n,) of rows of a block; of another library's, where blocks are joined, the sum for every row of its own.

    So rows are fitted alike wherever they lie, and nobody waits to hear whether to go on.
    """
    if isinstance(sizes, np.ndarray):
        return float(sizes.sum())
    xp, n, step = namespace(sizes), sizes.shape[0], block_rows(d)
    whole = xp.concat([sizes, zeros((-n % step,), sizes)])
    sums = xp.sum(xp.reshape(whole, (-1, step)), axis=1, keepdims=True)
    return xp.reshape(xp.broadcast_to(sums, (sums.shape[0], step)), (-1,))[:n]


def remove_errors(M: Any, observed: Any, U: Any, first: float, last: float) -> tuple[Any, Any]:
    """Scores V (n x k) of rows M (n x d) and where their errors are: beyond a threshold that shrinks from ``first`` to ``last``.

    Each row has its own threshold, so that a row's answer does not depend on the others.  A row in which errors are found and
    whose entries are large is tried again from a first threshold of its own size; the answer with fewer errors stays.
    """
    xp, first = namespace(M), max(first, last)
    V, errors = _remove_from(M, observed, U, full((M.shape[0], 1), first, M), last)
    own = START * typical_sizes(M, observed)
    again = rows_where((own[:, 0] > first) & xp.any(errors, axis=1))
    if again.shape[0]:
        V_own, errors_own = _remove_from(take(M, again), take(observed, again), U, take(own, again), last)
        fewer = rows_where(xp.count_nonzero(errors_own, axis=1) < xp.count_nonzero(take(errors, again), axis=1))
        at = take(again, fewer)
        V, errors = with_rows(V, at, take(V_own, fewer)), with_rows(errors, at, take(errors_own, fewer))
    return V, errors


def _remove_from(M: Any, observed: Any, U: Any, thresholds: Any, last: float) -> tuple[Any, Any]:
    """As above from these thresholds (n x 1), beginning with the scores of the rows cut back to them.

    At least 2 k entries of a row are trusted, or all that are observed if they are fewer.
    """
    xp, (n, d) = namespace(M), M.shape
    V = kept_where(cut_back(M, thresholds), observed) @ U
    least = min(2 * U.shape[1], d)
    active, R, found = numbers(n, M), M - V @ U.T, []
    for i in range(MOST_PASSES):
        W = _with_enough(trusted(R, observed, thresholds), R, observed, least)
        V, R = fit_scores(R, W, U, V, STEPS, good_enough=0.0)
        W_new = _with_enough(trusted(R, observed, thresholds), R, observed, least)
        errors = ~W_new if observed is None else observed & ~W_new
        done = (thresholds[:, 0] <= last) & xp.all(W_new == W, axis=1)
        going = rows_where(~done) if i + 1 < MOST_PASSES else numbers(0, M)
        if 0 < going.shape[0] == active.shape[0]:
            thresholds = _lower(thresholds, R, W_new, last)
            continue
        ended = rows_where(done) if going.shape[0] else numbers(active.shape[0], M)
        found.append((take(active, ended), take(V, ended), take(errors, ended)))
        if not going.shape[0]:
            break
        thresholds = _lower(take(thresholds, going), take(R, going), take(W_new, going), last)
        active, V, R, observed = (take(array, going) for array in (active, V, R, observed))
    rows, V, errors = (xp.concat(list(parts)) for parts in zip(*found, strict=True))
    order = xp.argsort(rows)
    return take(V, order), take(errors, order)


def _lower(thresholds: Any, R: Any, W: Any, last: float) -> Any:
    """The thresholds (n x 1) of the next pass, from residuals and where they are trusted."""
    xp = namespace(R)
    largest = xp.max(xp.where(W, abs(R), 0.0), axis=1, keepdims=True)
    lower = xp.minimum(PACE * thresholds, ROOM * largest)
    return xp.where(lower > last, lower, last)


def _with_enough(W: Any, R: Any, observed: Any, least: int) -> Any:
    """W with at least ``least`` trusted entries in each row, those with the smallest residuals among the observed."""
    xp = namespace(R)
    few = rows_where(xp.count_nonzero(W, axis=1) < least)
    if few.shape[0]:
        sizes = abs(take(R, few))
        sizes = only_seen(sizes, take(observed, few))
        bound = up_to(xp.astype(sizes, xp.float64, copy=True), least - 1)[:, least - 1 : least]
        W = with_rows(W, few, (sizes <= bound) & xp.isfinite(sizes))
    return W
