"""Small dense linear algebra that several methods share: bases, the sign rule, packed triangles.

Everything here works on the coordinator's side of the boundary, on blocks with n_features rows and few columns.  Results are in C
order: a block that went through a journal or over a wire comes back so, and a product rounds differently in another order.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from .lapack import largest_in_place

Array = NDArray[np.float64]

NARROW = 16
"""Up to so many columns LAPACK's QR works column by column, and is called directly."""

_geqrf, _orgqr = scipy.linalg.get_lapack_funcs(("geqrf", "orgqr"), dtype=np.float64)

GRADED = 1e4
"""Eigenvalues that differ by more than this factor are found one after the other, so that small ones keep their digits."""

SIDE = 64
"""Rows and columns of a square that is turned over at a time: a CPU's cache holds them."""

SIGN_TIE = 1e-8
"""Entries within this relative distance of the largest one count as equally large in :func:`fix_signs`."""


def orthonormalize(A: Array) -> Array:
    """An orthonormal basis (d x k) whose leading columns span those of A (d x k); full even if A is rank deficient.

    >>> Q = orthonormalize(np.array([[3.0, 1.0], [0.0, 2.0], [4.0, 0.0]]))
    >>> bool(np.allclose(Q.T @ Q, np.eye(2)))
    True
    """
    if not 0 < A.shape[1] <= min(NARROW, A.shape[0]):
        return np.ascontiguousarray(scipy.linalg.qr(A, mode="economic", check_finite=False)[0])
    factored, scalars, _, _ = _geqrf(A)  # the same bits, without a microsecond wasted: sites call this all the time
    return np.ascontiguousarray(_orgqr(factored, scalars)[0])


def polar_factor(A: Array) -> Array:
    """The orthonormal matrix (d x k) nearest to A (d x k): U V^T of its singular value decomposition.

    >>> polar_factor(np.array([[3.0, 0.0], [0.0, 0.5], [0.0, 0.0]]))
    array([[1., 0.],
           [0., 1.],
           [0., 0.]])
    """
    U, _, Vt = scipy.linalg.svd(A, full_matrices=False, check_finite=False)
    return np.ascontiguousarray(U @ Vt)


def q_factor(A: Array) -> Array:
    """Q (d x k) of A = Q R with a positive diagonal of R: it is continuous, where other signs may jump from side to side."""
    Q, R = scipy.linalg.qr(A, mode="economic", check_finite=False)
    return np.ascontiguousarray(Q * np.where(np.diagonal(R) < 0, -1.0, 1.0))


def without(A: Array, Q: Array) -> Array:
    """What A (d x k) has outside the span of the orthonormal Q (d x m): (I - Q Q^T) A.

    >>> without(np.array([[3.0], [4.0]]), np.array([[1.0], [0.0]])).T
    array([[0., 4.]])
    """
    return A - Q @ (Q.T @ A)


def unit_columns(V: Array) -> Array:
    """The columns of V (d x k) that are not zero, at length one."""
    lengths = np.linalg.norm(V, axis=0)
    units: Array = V[:, lengths > 0] / lengths[lengths > 0]
    return units


def soft(R: Array, threshold: float) -> Array:
    """Entries moved towards zero by the threshold."""
    return np.sign(R) * np.maximum(np.abs(R) - threshold, 0.0)


def random_orthonormal(n_features: int, k: int, seed: int) -> Array:
    """A uniformly distributed orthonormal basis (n_features x k), determined by the seed."""
    return orthonormalize(np.random.default_rng(seed).standard_normal((n_features, k)))


def top_eigenpairs(S: Array, k: int | None = None) -> tuple[Array, Array]:
    """The k largest eigenvalues (descending) of a matrix S (d x d), symmetric but for rounding, and their eigenvectors (columns);
    k=None: all.

    LAPACK finds eigenvalues to rounding errors of the largest one.  So where the others are much smaller, those are found once
    more in the space that the large ones leave, where small entries of S keep their digits.

    >>> S = np.diag([1e15, 0.0, 0.0])
    >>> S[1:, 1:] = [[2.0, 0.5], [0.5, 1.0]]
    >>> bool(abs(top_eigenpairs(S, 2)[0][1] - top_eigenpairs(S[1:, 1:], 1)[0][0]) < 1e-12)
    True
    """
    d, S = S.shape[0], symmetrize(S)
    k = d if k is None else k
    values, vectors = _eigenpairs(S, k)
    large = int(np.sum(values > values[0] / GRADED)) if k else 0
    if large in (0, k) or values[0] <= 0:  # none is large if one is not a number
        return values, vectors
    basis = scipy.linalg.qr(vectors[:, :large], check_finite=False)[0][:, large:]
    smaller, inside = top_eigenpairs(basis.T @ (S @ basis), k - large)
    return np.append(values[:large], smaller), np.ascontiguousarray(np.concatenate([vectors[:, :large], basis @ inside], axis=1))


def _eigenpairs(S: Array, k: int) -> tuple[Array, Array]:
    """By LAPACK, rows and columns in the order of the diagonal, which suits its reduction.

    All eigenvectors come from its divide-and-conquer, which is quick and keeps them orthogonal to rounding; some of them from its
    robust representations, which may lose two digits of that, so they are made orthonormal again.
    """
    d = S.shape[0]
    order = np.argsort(-np.diagonal(S), kind="stable")
    ordered = S[np.ix_(order, order)].T  # which is symmetric
    if 3 * k > d or d <= NARROW:
        values, vectors = np.linalg.eigh(ordered)
    else:
        some = largest_in_place(ordered.copy(order="F"), k)
        if some is not None:
            values, vectors = some[0], orthonormalize(some[1][:, ::-1])[:, ::-1]
        else:  # where many eigenvalues are equal it may give fewer than asked for
            values, vectors = np.linalg.eigh(ordered)
    back = np.empty_like(vectors)
    back[order] = vectors
    return values[::-1][:k].copy(), np.ascontiguousarray(back[:, ::-1][:, :k])


def symmetrize(S: Array) -> Array:
    """(S + S^T) / 2."""
    return (S + S.T) / 2


def fix_signs(basis: Array) -> Array:
    """Flip columns so that the entry of largest magnitude is positive; the first of nearly equal ones decides.

    This is scikit-learn's rule with a tolerance, so that rounding cannot choose between two entries that tie.

    >>> fix_signs(np.array([[0.6, -0.8], [-0.8, -0.6]]))
    array([[-0.6,  0.8],
           [ 0.8,  0.6]])
    """
    magnitude = np.abs(basis)
    decisive = np.argmax(magnitude >= (1 - SIGN_TIE) * magnitude.max(axis=0), axis=0)
    signs = np.where(basis[decisive, np.arange(basis.shape[1])] < 0, -1.0, 1.0)
    return basis * signs


def procrustes(A: Array, B: Array) -> Array:
    """A R (d x k) for the A (d x j, orthonormal columns) turned as close as can be to B (d x k): R = argmin ||A R - B||_F.

    R is the orthogonal factor of A^T B (with j < k, orthonormal rows).

    >>> B = np.eye(3)[:, :2]
    >>> bool(np.allclose(procrustes(B[:, ::-1], B), B))
    True
    """
    if A.shape[1] == 0 or B.shape[1] == 0:
        return np.zeros(B.shape)
    U, _, Vt = scipy.linalg.svd(A.T @ B, full_matrices=False, check_finite=False)
    return np.ascontiguousarray(A @ (U @ Vt))


def pack_triangle(S: Array) -> Array:
    """The upper triangle of a symmetric d x d matrix as a vector of d(d+1)/2 entries, row by row."""
    return np.concatenate([S[i, i:] for i in range(len(S))])


def unpack_triangle(packed: Array, d: int) -> Array:
    """Inverse of :func:`pack_triangle`.

    >>> S = np.array([[1.0, 2.0], [2.0, 5.0]])
    >>> bool((unpack_triangle(pack_triangle(S), 2) == S).all())
    True
    """
    return _mirror(scipy.linalg.lapack.dtpttr(d, packed, uplo="L")[0].T)


def mirrored(lower: Array) -> Array:
    """The symmetric matrix (d x d) with this lower triangle; what is above is not looked at.

    >>> mirrored(np.array([[1.0, 7.0], [2.0, 5.0]])).tolist()
    [[1.0, 2.0], [2.0, 5.0]]
    """
    return _mirror(np.array(lower.T, order="C"))


def _mirror(S: Array) -> Array:
    """S (d x d), what is below its upper triangle overwritten by that."""
    for first in range(0, len(S), SIDE):
        last = min(first + SIDE, len(S))
        S[last:, first:last] = S[first:last, last:].T
        corner = np.triu(S[first:last, first:last])
        S[first:last, first:last] = corner + np.triu(corner, 1).T
    return S
