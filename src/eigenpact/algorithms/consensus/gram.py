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

import numpy as np

from ...numerics.certificate import TIE, ZERO, Cut
from ...numerics.linalg import Array, pack_triangle, top_eigenpairs, unpack_triangle, without
from ...numerics.metrics import kkt
from ...runtime import Progress, Site, Sum, local
from ..method import method
from ..setup import CENTRE, Setup, rows_of
from ..solution import Solution, State, cut_in_words
from ..told import doubt_triangle


@local(sends={"S": "d*(d+1)//2"}, reads=CENTRE, bound="trace", doubt=doubt_triangle)
def scatter_triangle(site: Site) -> Array:
    """Upper triangle of Y_i^T Y_i."""
    return pack_triangle(rows_of(site).scatter())


@method("consensus", {Sum: (scatter_triangle,)})
class Gram:
    """Sum of the scatter matrices; exact in one round."""

    name = "gram"
    default_angle = 1e-8

    async def fit(self, setup: Setup, start: Array | None = None, state: State | None = None) -> Solution:  # noqa: ARG002
        """Add up, factorize.  There is nothing to start from."""
        d = setup.n_features
        C = unpack_triangle(await Sum(scatter_triangle), d)  # line 1
        asked = setup.n_components if isinstance(setup.n_components, int) else d
        values, vectors = _rayleigh(C, top_eigenpairs(C, min(asked + 1, d))[1])
        k = setup.wanted(values) or len(values)
        Z = np.ascontiguousarray(vectors[:, :k])
        residual = kkt(C @ Z, Z, setup.trace)
        await Progress(basis=Z, objective=setup.share(values[:k]), kkt=residual)
        reason = "exact: the sum of all scatter matrices was factorized"
        angle, cut = (0.0, "clear") if k == d else rounding_angle(C, Z, values, setup.noise)
        if cut != "clear":
            reason += f"; {cut_in_words(cut, k)}"
        return Solution(Z, values[:k], residual, angle, True, reason, cut=cut)


def _rayleigh(C: Array, vectors: Array) -> tuple[Array, Array]:
    """Rayleigh quotients of eigenvectors, descending, and these: beside a large eigenvalue, LAPACK's small ones have fewer
    digits."""
    quotients = np.maximum(np.sum(vectors * (C @ vectors), axis=0), 0.0)
    order = np.argsort(-quotients, kind="stable")
    return quotients[order], vectors[:, order]


def rounding_angle(C: Array, Z: Array, values: Array, coarse: float = 0.0) -> tuple[float | None, Cut]:
    """The sine of the angle that rounding errors can turn Z (d x k) by, None where the gap is one of them; and what the cut is.

    An entry C_ab is a sum of products of features a and b, known to about eps sqrt(C_aa C_bb).  So C z_j is known to about
    eps ||D z_j|| D y with entries of y in [-1, 1], D the square roots of the diagonal: features of small units keep their digits
    beside large ones.  Errors within span(Z) turn nothing, so only the part (I - Z Z^T) D y counts.  Sites that round their
    replies add a column of length ``coarse``.
    """
    k, eps = Z.shape[1], float(np.finfo(float).eps)
    D = np.sqrt(np.maximum(np.diagonal(C), 0.0))
    outside = float(np.linalg.norm(np.diag(D) - Z @ (Z.T * D)))
    residual = C @ Z - Z * values[:k]
    noise = coarse + np.linalg.norm(without(residual, Z), axis=0) + eps * outside * np.linalg.norm(D[:, None] * Z, axis=0)
    if values[k - 1] <= ZERO * noise.max():
        return None, "empty"  # no variance left: any directions would do
    gaps = values[:k] - values[k]
    if gaps[-1] <= TIE * noise[-1]:
        return None, "tied" if gaps[-1] <= noise[-1] else "hidden"
    return min(1.0, float(np.linalg.norm(noise / gaps))), "clear"
