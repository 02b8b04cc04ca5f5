"""Where a solver may begin: at random, or at the merged principal directions of the single sites.

The one-shot start asks every site once for its own leading eigenvectors V_i (at most k of them), scaled by the square roots of
their eigenvalues, and takes the leading left singular vectors of W = [V_1, V_2, ...].  W W^T is also a model of the pooled
scatter, good enough to serve as a proxy afterwards.  It uses ``Gather``: the coordinator must see the single replies to merge
them, and they tell most of a site's scatter.  It is therefore never chosen unless asked for.

References
    J. Fan, D. Wang, K. Wang, Z. Zhu, "Distributed estimation of principal eigenspaces", Ann. Stat. 47 (2019);
    Y. Liang et al., "Improved distributed principal component analysis", NIPS 2014 (scaled vectors).
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
import scipy.linalg

from ..errors import InputError
from ..linalg import Array, orthonormalize, random_orthonormal
from ..runtime import Gather, Progress, Site, local
from .setup import Setup, rows_of

Start = Literal["random", "one-shot"]

STIR, STIR_MARGIN = 1e-3, 30.0
"""Least size of the random part mixed into a given start, without which one inside an invariant subspace of C would stay there;
and how far above the tolerance what it meets must show."""


@local(takes={"k": ""}, sends={"V": "d <=k"}, bound="none")
def leading_directions(site: Site, k: Any) -> Array:
    """The site's own leading eigenvectors times the square roots of their eigenvalues, at most min(n_i, k) of them."""
    values, vectors = rows_of(site).top(int(k))
    return vectors * np.sqrt(np.maximum(values, 0.0))


def check_start(start: str) -> None:
    """Refuse a start that does not exist."""
    if start not in get_args(Start):
        raise InputError(f"start={start!r} must be one of {', '.join(get_args(Start))}")


async def merged_directions(k: int, keep: int) -> Array:
    """W (d x at most ``keep``): orthogonal columns by decreasing length with W W^T close to the pooled scatter.  One round."""
    merged: Array | None = None
    for V in (await Gather(leading_directions, np.int64(k))).values():
        side_by_side = V if merged is None else np.concatenate([merged, V], axis=1)
        U, lengths, _ = scipy.linalg.svd(side_by_side, full_matrices=False, check_finite=False)
        merged = np.ascontiguousarray((U * lengths)[:, :keep])
    assert merged is not None
    return merged


async def first_block(setup: Setup, k: int, kind: Start, start: Array | None, sine: float | None = None) -> Array:
    """An orthonormal block (d x k): the given ``start`` if there is one, else random or one-shot.

    ``sine`` is that of a solver which stops by its angle.
    """
    if start is None and kind == "random":
        return random_orthonormal(setup.n_features, k, setup.seed)
    if start is None:
        if setup.max_rounds < 2:
            raise InputError(
                f"max_rounds={setup.max_rounds} leaves no round after a one-shot start; use start='random', or raise it"
            )
        start = orthonormalize(await merged_directions(k, k))
        await Progress(basis=start)
    return stirred(start, k, setup, sine)


def stir_size(setup: Setup, sine: float | None = None) -> float:
    """How much to stir: enough that a missed direction, if it matters, keeps the residual (or the angle) above the tolerance.

    A direction that is met only by the stir is met at ``size / sqrt(d)``.  If its eigenvalue exceeds the smallest one found by
    Delta, this adds about ``size / sqrt(d) Delta / tr C`` to the residual; Delta is taken to be at least a tenth of tr C / k.
    """
    k = setup.n_components if isinstance(setup.n_components, int) else 1
    enough = max(setup.stopping_tol(0.0) * 10 * k, sine or 0.0)
    return float(np.clip(STIR_MARGIN * enough * np.sqrt(setup.n_features), STIR, 1.0))


def stirred(start: Array, k: int, setup: Setup, sine: float | None = None) -> Array:
    """An orthonormal block (d x k) that nearly contains the columns of ``start`` and misses no direction entirely."""
    block = random_orthonormal(start.shape[0], k, setup.seed)
    block *= stir_size(setup, sine)
    width = min(k, start.shape[1])
    block[:, :width] += start[:, :width]
    return orthonormalize(block)
