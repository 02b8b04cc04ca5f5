"""Where the search for the likelihood's maximum begins: a Krylov space of an unbiased estimate of the covariance.

Rows with zeros in their holes have a scatter in which products of two features count only where both are there.  If entries are
missing at random, of feature j a share 1 - p_j, then with the variances v_j of entries that are there

    (Y^T Y / n - diag((1 - p_j) p_j v_j))_{jl} / (p_j p_l)

has the covariance as its expectation.  Its product with a block takes one of Y^T Y.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...numerics.either import there
from ...numerics.elsewhere import namespace, to_numpy
from ...numerics.krylov_space import KrylovSpace
from ...numerics.linalg import Array, orthonormalize, random_orthonormal
from ...numerics.ppca import Frame
from ...runtime import Progress, Site, Sum, local
from ...runtime.rare import DROPPED
from ..method import Part
from .observed import ObservedSetup, holed_rows

ROUNDS = 6
"""Blocks of the space."""

OVERSAMPLING = 4
"""Columns of a block beyond the components."""

LEAST_NOISE, ABOVE = 0.02, 1.5
"""The noise begins no lower than at this share of the mean variance, and a component's variance above this many times it."""


@local(takes={"Z": "d m"}, sends={"G": "d m"}, reads=("mean", "scale", DROPPED), holes=True)
def observed_action(site: Site, Z: Array) -> Array:
    """Y_i^T (Y_i Z) with zeros in place of missing entries."""
    G, Z_there = np.zeros(Z.shape), there(Z, site.X)
    for Y, seen in holed_rows(site, 1):
        whole = namespace(Y).where(seen, Y, 0.0)
        G += to_numpy(whole.T @ (whole @ Z_there))
    return G


@dataclass(frozen=True, eq=False)
class FirstSpace:
    """The space, the random block (d x b) that it was grown from, and the rounds that it took."""

    space: KrylovSpace
    omega: Array
    rounds: int

    def frame(self, setup: ObservedSetup, k: int) -> Frame:
        """Components, variances and noise that the space suggests."""
        ritz = self.space.ritz(lambda _: k)
        features = int(np.sum(setup.seen > 0))
        total = float(setup.variances.sum())
        noise = max((total - float(ritz.values[:k].sum())) / (features - k), LEAST_NOISE * total / features)
        others = self.space.Q @ ritz.turn[:, k:]
        return Frame(
            U=orthonormalize(ritz.Z),
            variances=np.maximum(ritz.values[:k], ABOVE * noise),
            others=others,
            other_variances=np.maximum(ritz.values[k:], 0.0),
            noise=noise,
            seen=setup.seen,
            rows=setup.n_samples,
            free_mean=setup.center == "pooled",
        )


async def first_space(setup: ObservedSetup, k: int, start: Array | None) -> FirstSpace:
    """Grow the space from a random block, and from ``start`` (d x k) if given, for a few rounds."""
    d, has = setup.n_features, setup.seen > 0
    shares = np.where(has, setup.seen / setup.n_samples, 1.0)[:, None]
    diagonal = (1 - shares) * shares * setup.variances[:, None]
    omega = random_orthonormal(d, min(k + OVERSAMPLING, int(has.sum())), setup.seed)
    omega = orthonormalize(np.where(has[:, None], omega, 0.0))
    B = omega if start is None else orthonormalize(np.concatenate([start, omega], axis=1)[:, : int(has.sum())])
    space, rounds = KrylovSpace.empty(d), 0
    while B.shape[1] and rounds < min(ROUNDS, max(1, setup.max_rounds - 1)):  # line 1
        product = await Sum(observed_action, np.ascontiguousarray(B / shares))
        space, rounds = space.add(B, (product / setup.n_samples - diagonal * (B / shares)) / shares), rounds + 1
        await Progress(basis=np.ascontiguousarray(space.ritz(lambda _: k).Z))
        B = space.next_block(omega.shape[1])
    return FirstSpace(space, omega, rounds)


FIRST_SPACE = Part("Where the search for the most likely components begins", {Sum: (observed_action,)})
