"""Exact joint PCA in one round: add up the sites' scatter matrices.

Problem
    Find the leading eigenvectors of C = sum_i Y_i^T Y_i (d x d), site i holding the centred rows Y_i (n_i x d).

Rounds
    1. Every site sends the upper triangle of Y_i^T Y_i; the coordinator adds them up and factorizes the sum: with few components
       of many features by block Krylov with a proof (``numerics/proved.py``), to the residual that ``tol`` asks for if there is
       one, else by LAPACK.
    2. Of many rows in single precision, at sites in one process, under MPI or on Dask, the triangle is made in single precision
       (``rough.py``), and V, the k + 4 leading eigenvectors of the sum, is sent.  The sum of Y_i^T (Y_i V), in double precision,
       corrects it where that matters; what is left of the errors lies outside span(V) on both sides.  It acts on the answer by
       way of its tiny part outside span(V), and may hide a direction there whose variance is at most the next eigenvalue of the
       sum and ``ERROR`` of the trace (Weyl): component k must have more, or line 1 is repeated in double precision.  With a
       ``tol`` of 1e-4 or more line 1 will do.

Leaves the site
    Its scatter's triangle, d(d+1)/2 numbers, to be summed.  The sum is the whole second moment of the pooled data.  In line 2
    also Y_i^T Y_i V.

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

from ...numerics.certificate import TIE, ZERO, Cut, spare
from ...numerics.linalg import Array, symmetrize, top_eigenpairs, unpack_triangle, without
from ...numerics.metrics import kkt
from ...numerics.proved import few_of_many, proved_eigenpairs
from ...numerics.single import ERROR
from ...numerics.tall import times
from ...runtime import Progress, Site, Sum, local
from ..goal import Goal
from ..method import method
from ..products import scatter_action
from ..rough import rough_triangle, tolerance_allows
from ..setup import CENTRE, Setup, rows_of
from ..solution import Solution, State, cut_in_words
from ..told import doubt_triangle

MOST_ROUNDS = 3
"""Rounds that line 2 may take, with a triangle in double precision in the end."""

MANY_ROWS, WIDER = 16, 8
"""A triangle in single precision pays from so many rows for each feature on; with a product in double after it, from so many
features for each of its columns on: measured with 200 and 784 features."""

BELOW_TOL = 0.5
"""Share of the residual that ``tol`` allows at which eigenvectors are good enough: it is measured once more."""


@local(sends={"S": "d*(d+1)//2"}, reads=CENTRE, bound="trace", doubt=doubt_triangle)
def scatter_triangle(site: Site) -> Array:
    """Upper triangle of Y_i^T Y_i."""
    return rows_of(site).scatter_triangle()


@method("consensus", {Sum: (scatter_triangle,)})
class Gram:
    """Sum of the scatter matrices; exact in one round."""

    name = "gram"
    default_angle = 1e-8

    async def fit(self, setup: Setup, start: Array | None = None, state: State | None = None) -> Solution:  # noqa: ARG002
        """Add up, factorize.  There is nothing to start from."""
        solution = await _from_single(setup) if single_pays(setup) else None
        if solution is not None:
            return solution
        C = unpack_triangle(await Sum(scatter_triangle), setup.n_features)  # line 1
        reason = "the sum of all scatter matrices was factorized"
        reason = f"{reason} as precisely as tol asks" if _by_tol(setup) else f"exact: {reason}"
        solution = _solution(setup, C, _leading(C, setup), reason)
        await _told(setup, solution)
        return solution


def single_pays(setup: Setup) -> bool:
    """Whether a triangle in single precision saves more time than one product in double takes.

    There must be many rows, and rounds for the product and for a triangle in double precision, should that be needed.
    """
    k, few = setup.n_components, setup.n_samples < MANY_ROWS * setup.n_features or setup.max_rounds < MOST_ROUNDS
    if not (setup.in_house and setup.triangles and setup.single and isinstance(k, int)) or few:
        return False
    return tolerance_allows(setup) or setup.n_features >= WIDER * (k + spare(k))


async def _from_single(setup: Setup) -> Solution | None:
    """The answer from a triangle in single precision; None where it would be less certain than from one in double."""
    C, k = unpack_triangle(await Sum(rough_triangle), setup.n_features), setup.whole_components()  # line 1
    if tolerance_allows(setup):
        reason = "the sum of all scatter matrices, in single precision, was factorized"
        solution = _solution(setup, C, _leading(C, setup), reason, ERROR)
        good = Goal.of(setup, None, 0.0).met(solution.kkt or 0.0, None)
    else:
        V, beyond = _eigenvectors(C, min(k + spare(k), setup.n_features - 1), setup)
        C = corrected(C, V, await Sum(scatter_action, V))  # line 2
        leading = _leading(C, setup)
        leading[0][k] = max(leading[0][k], beyond + ERROR * setup.trace)
        turned = float(np.linalg.norm(without(leading[1][:, :k], V), 2))
        reason = "exact: the sum of all scatter matrices was factorized, and corrected by a product with the leading directions"
        solution = _solution(setup, C, leading, reason, ERROR * turned)
        good = solution.angle is not None and solution.angle <= Gram.default_angle
    if not good or solution.cut != "clear":
        return None
    await _told(setup, solution)
    return solution


def corrected(C: Array, V: Array, CV: Array) -> Array:
    """C (d x d), which is nearly right, so that its products with orthonormal V (d x m) are those given: the secant model.

    With E = C' - C for the right C', what is left of E lies outside span(V) on both sides.

    >>> right, V = np.diag([3.0, 2.0, 1.0]), np.eye(3)[:, :2]
    >>> corrected(right + 0.1, V, right @ V).round(12).tolist()
    [[3.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 1.1]]
    """
    off = CV - times(C, V)
    half = off - V @ symmetrize(V.T @ off) / 2
    return C + half @ V.T + V @ half.T


async def _told(setup: Setup, solution: Solution) -> None:
    await Progress(basis=solution.basis, objective=setup.share(solution.eigenvalues), kkt=solution.kkt)


def _solution(setup: Setup, C: Array, leading: tuple[Array, Array], reason: str, error: float = 0.0) -> Solution:
    """What the ``leading`` eigenpairs of the summed matrix C (d x d) say, whose products with them are off by this ``error``
    beside rounding, a share of the trace."""
    d, (values, vectors) = setup.n_features, leading
    k = setup.wanted(values) or len(values)
    Z = np.ascontiguousarray(vectors[:, :k])
    CZ, noise = times(C, Z), setup.noise + error * setup.trace
    residual = kkt(CZ, Z, setup.trace) + error
    angle, cut = (0.0, "clear") if k == d else rounding_angle(np.diagonal(C), Z, CZ, values, noise)
    if cut != "clear":
        reason += f"; {cut_in_words(cut, k)}"
    behind = float(values[k]) if k < len(values) else 0.0
    return Solution(Z, values[:k], residual, angle, True, reason, cut=cut, behind=behind)


def _eigenvectors(C: Array, count: int, setup: Setup) -> tuple[Array, float]:
    """So many leading eigenvectors (d x count), and the eigenvalue behind them or a bound on it."""
    values, vectors = proved_eigenpairs(C, count, setup.seed, setup.noise) or top_eigenpairs(C, count + 1)
    return np.ascontiguousarray(vectors[:, :count]), float(values[count])


def _by_tol(setup: Setup) -> bool:
    """Whether few of many eigenvectors are found, and ``tol`` says how precisely."""
    k = setup.n_components
    return setup.tol is not None and isinstance(k, int) and few_of_many(setup.n_features, k)


def _leading(C: Array, setup: Setup) -> tuple[Array, Array]:
    """The eigenvalues that are wanted and one more, or a bound on it, descending; and at least the wanted eigenvectors."""
    d, asked = setup.n_features, setup.n_components
    if not isinstance(asked, int):
        return _rayleigh(C, top_eigenpairs(C)[1])
    allowed = BELOW_TOL * setup.tol * setup.trace if setup.tol is not None else 0.0
    found = proved_eigenpairs(C, asked, setup.seed, setup.noise, allowed)
    return found or _rayleigh(C, top_eigenpairs(C, min(asked + 1, d))[1])


def _rayleigh(C: Array, vectors: Array) -> tuple[Array, Array]:
    """Rayleigh quotients of eigenvectors, descending, and these: beside a large eigenvalue, LAPACK's small ones have fewer
    digits."""
    quotients = np.maximum(np.sum(vectors * (C @ vectors), axis=0), 0.0)
    order = np.argsort(-quotients, kind="stable")
    return quotients[order], vectors[:, order]


def rounding_angle(diagonal: Array, Z: Array, CZ: Array, values: Array, coarse: float = 0.0) -> tuple[float | None, Cut]:
    """The sine of the angle that rounding errors can turn Z (d x k) by, None where the gap is one of them; and what the cut is.

    ``diagonal`` (d,) is that of C, and CZ the product C Z (d x k).

    An entry C_ab is a sum of products of features a and b, known to about eps sqrt(C_aa C_bb).  So C z_j is known to about
    eps ||D z_j|| D y with entries of y in [-1, 1], D the square roots of the diagonal: features of small units keep their digits
    beside large ones.  Errors within span(Z) turn nothing, so only the part (I - Z Z^T) D y counts.  Sites that round their
    replies add a column of length ``coarse``.
    """
    k, eps = Z.shape[1], float(np.finfo(float).eps)
    D = np.sqrt(np.maximum(diagonal, 0.0))
    squares = float(D @ D)
    outside = float(np.sqrt(max(squares - float(np.linalg.norm(Z.T * D)) ** 2, eps * squares)))
    residual = CZ - Z * values[:k]
    noise = coarse + np.linalg.norm(without(residual, Z), axis=0) + eps * outside * np.linalg.norm(D[:, None] * Z, axis=0)
    if values[k - 1] <= ZERO * noise.max():
        return None, "empty"  # no variance left: any directions would do
    gaps = values[:k] - values[k]
    if gaps[-1] <= TIE * noise[-1]:
        return None, "tied" if gaps[-1] <= noise[-1] else "hidden"
    return min(1.0, float(np.linalg.norm(noise / gaps))), "clear"
