"""Exact joint PCA in one round: add up the sites' scatter matrices.

Problem
    Find the leading eigenvectors of C = sum_i Y_i^T Y_i (d x d), site i holding the centred rows Y_i (n_i x d).

Rounds
    1. Every site sends the upper triangle of Y_i^T Y_i; the coordinator adds them up and factorizes the sum.

Leaves the site
    Its scatter's triangle, d(d+1)/2 numbers, to be summed.  The sum is the whole second moment of the pooled data.

Cost
    4 d(d+1) bytes and n_i d^2 flops per site, once; the coordinator needs memory for d^2 numbers.

Differences from the paper
    This is the textbook baseline; there is no paper.  The triangle is sent instead of the square, which halves the message.

>>> import numpy as np, eigenpact as ep
>>> X = np.random.default_rng(0).normal(size=(60, 4)) * [4, 3, 2, 1]
>>> pca = ep.FederatedPCA(n_components=2, solver="gram").fit({"A": X[:20], "B": X[20:]})
>>> pca.n_rounds_, pca.converged_
(1, True)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...linalg import Array, pack_triangle, top_eigenpairs, unpack_triangle
from ...metrics import kkt
from ...runtime import Progress, Site, Sum, local
from ..setup import Setup, rows_of
from ..solution import Solution, residual_angle


@local(sends={"S": "d*(d+1)//2"}, bound="trace")
def scatter_triangle(site: Site) -> Array:
    """Upper triangle of Y_i^T Y_i."""
    return pack_triangle(rows_of(site).scatter())


@dataclass(frozen=True, eq=False)
class Gram:
    """Sum of the scatter matrices; exact in one round."""

    name = "gram"
    default_tol = 1e-12

    async def fit(self, setup: Setup, start: Array | None = None, state: Mapping[str, Array] | None = None) -> Solution:  # noqa: ARG002
        """Add up, factorize.  There is nothing to start from."""
        d = setup.n_features
        C = unpack_triangle(await Sum(scatter_triangle), d)  # line 1
        asked = setup.n_components if isinstance(setup.n_components, int) else d
        values, vectors = top_eigenpairs(C, min(asked + 1, d))
        values = np.maximum(values, 0.0)
        k = setup.wanted(values) or len(values)
        Z = np.ascontiguousarray(vectors[:, :k])
        residual = kkt(C @ Z, Z, setup.trace)
        await Progress(basis=Z, objective=setup.share(values[:k]), kkt=residual)
        next_value = float(values[k]) if k < len(values) else -np.inf
        rounding = np.finfo(float).eps * float(values[0])
        angle = 0.0 if k == d else residual_angle(rounding, float(values[k - 1]), next_value)
        return Solution(Z, values[:k], residual, angle, True, "exact: the sum of all scatter matrices was factorized")
