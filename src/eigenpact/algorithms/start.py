"""Where a solver may begin: at random, or at the merged principal directions of the single sites.

The one-shot start (distPCA) asks every site once for its own leading eigenvectors and takes the leading left singular vectors of
all of them side by side, which are those of the averaged projectors.  Eigenvalues are not asked for: on sites that resemble each
other the merge is better without them, and they would reveal more.  It uses ``Gather``: the coordinator must see the single
replies to merge them, and they tell much about a site.  It is therefore never chosen unless asked for.

References
    J. Fan, D. Wang, K. Wang, Z. Zhu, "Distributed estimation of principal eigenspaces", Ann. Stat. 47 (2019).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.linalg

from ..linalg import Array, orthonormalize, random_orthonormal
from ..runtime import Gather, Progress, Site, local
from .setup import Setup, rows_of

Start = Literal["random", "one-shot"]

RANK_FLOOR = 1e-12
"""Eigenvalues below this share of the largest are rounding errors; their vectors are not sent."""

STIR = 1e-3
"""Size of the random part mixed into a given start, without which a start inside an invariant subspace of C would stay there."""


@local(takes={"k": ""}, sends={"V": "d <=k"}, bound="unit")
def leading_directions(site: Site, k: Any) -> Array:
    """The site's own leading eigenvectors, at most min(n_i, k) of them: those that its rows determine."""
    values, vectors = rows_of(site).top(int(k))
    return vectors[:, values > RANK_FLOOR * values[0]]


async def first_block(setup: Setup, k: int, kind: Start, start: Array | None) -> Array:
    """An orthonormal block (d x k): the given ``start`` if there is one, else random or one-shot."""
    if start is None and kind == "one-shot":
        replies = await Gather(leading_directions, np.int64(k))
        start = _merge(list(replies.values()), k)
        await Progress(basis=start)
    if start is None:
        return random_orthonormal(setup.n_features, k, setup.seed)
    return stirred(start, k, setup.seed)


def stirred(start: Array, k: int, seed: int) -> Array:
    """An orthonormal block (d x k) that nearly contains the columns of ``start`` and misses no direction entirely."""
    block = random_orthonormal(start.shape[0], k, seed)
    block *= STIR
    width = min(k, start.shape[1])
    block[:, :width] += start[:, :width]
    return orthonormalize(block)


def _merge(replies: list[Array], k: int) -> Array:
    """Leading k left singular vectors of all replies side by side."""
    side_by_side = np.concatenate(replies, axis=1)
    U = scipy.linalg.svd(side_by_side, full_matrices=False, check_finite=False)[0]
    return np.ascontiguousarray(U[:, :k])
