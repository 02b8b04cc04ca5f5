"""Where a solver may begin: at random, or at the merged principal directions of the single sites.

The one-shot start asks every site once for its own leading eigenvectors V_i (at most k of them), scaled by the square roots of
their eigenvalues, and takes the leading left singular vectors of A = [V_1, V_2, ...].  A A^T is also a model of the pooled
scatter, good enough to serve as a proxy afterwards.  It uses ``Gather``: the coordinator must see the single replies to merge
them, and they tell most of a site's scatter.  It is therefore never chosen unless asked for.

References
    J. Fan, D. Wang, K. Wang, Z. Zhu, "Distributed estimation of principal eigenspaces", Ann. Stat. 47 (2019);
    Y. Liang et al., "Improved distributed principal component analysis", NIPS 2014 (scaled vectors).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.linalg

from ..errors import InputError
from ..numerics.linalg import Array, orthonormalize, random_orthonormal
from ..runtime import Gather, Progress, Site, local
from .method import Part
from .setup import CENTRE, Setup, rows_of
from .told import doubt_directions

Start = Literal["random", "one-shot"]

STIR = 1e-3
"""Size of the random part mixed into a given start, without which one inside an invariant subspace of C would stay there for
long."""


@local(
    takes={"k": ""},
    sends={"V": "d <=k"},
    reads=CENTRE,
    bound="none",
    means={"k": "count"},
    doubt=doubt_directions,
)
def leading_directions(site: Site, k: Any) -> Array:
    """The site's own leading eigenvectors times the square roots of their eigenvalues, at most min(n_i, k) of them."""
    values, vectors = rows_of(site).top(int(k))
    return vectors * np.sqrt(np.maximum(values, 0.0))


async def merged_directions(setup: Setup, k: int, keep: int) -> Array:
    """A (d x at most ``keep``): orthogonal columns by decreasing length with A A^T close to the pooled scatter.  One round."""
    if setup.max_rounds < 2:
        raise InputError(f"max_rounds={setup.max_rounds} leaves no round after a one-shot start; use start='random', or raise it")
    merged: Array | None = None
    for V in (await Gather(leading_directions, np.int64(k))).values():
        side_by_side = V if merged is None else np.concatenate([merged, V], axis=1)
        U, lengths, _ = scipy.linalg.svd(side_by_side, full_matrices=False, check_finite=False)
        merged = np.ascontiguousarray((U * lengths)[:, :keep])
    assert merged is not None
    return merged


async def given_start(setup: Setup, k: int, kind: Start, start: Array | None) -> tuple[Array | None, int]:
    """Directions to begin with (d x at most k), None for random ones, and the rounds it took to learn them."""
    if start is not None or kind == "random":
        return start, 0
    merged = orthonormalize(await merged_directions(setup, k, k))
    await Progress(basis=merged)
    return merged, 1


async def first_block(setup: Setup, k: int, kind: Start, start: Array | None) -> tuple[Array, int]:
    """An orthonormal block (d x k), the given ``start`` if there is one, else random or one-shot; and the rounds it took."""
    given, rounds = await given_start(setup, k, kind, start)
    if given is None:
        return random_orthonormal(setup.n_features, k, setup.seed), rounds
    return stirred(given, k, setup.seed), rounds


def stirred(start: Array, k: int, seed: int) -> Array:
    """An orthonormal block (d x k) that nearly contains the columns of ``start`` and misses no direction entirely."""
    block = STIR * random_orthonormal(start.shape[0], k, seed)
    width = min(k, start.shape[1])
    block[:, :width] += start[:, :width]
    return orthonormalize(block)


ONE_SHOT_START = Part("One-shot start (only when asked for)", {Gather: (leading_directions,)})
