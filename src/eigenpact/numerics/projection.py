"""New rows on known components where features are missing: scores by least squares, and how far they may be off.

Rows y (d,) are centred and scaled, Z (d x k) has orthonormal columns, and the model is that of probabilistic PCA (Tipping and
Bishop 1999): y = Z t + e with t ~ N(0, P), P = diag(variances - noise), e ~ N(0, noise I).  Of a row only y_O is observed; with
G = Z_O^T Z_O and b = Z_O^T y_O,

- least squares gives t = G^-1 b.  Its error has covariance noise G^-1; noise (G^-1 - I) of it comes from the missing entries,
  and is that of t - Z^T y, the distance from the score that the whole row would have.
- where the observed features do not determine t (fewer than components, or nearly dependent), the posterior mean
  (G + noise P^-1)^-1 b is given, with its covariance noise (G + noise P^-1)^-1.

Rows with the same features missing share one decomposition of G.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .linalg import Array
from .patterns import patterns

UNDETERMINED = 1e-6
"""Eigenvalues of G are between 0 and 1; where the least is below this, the observed features do not determine the scores."""

MARGIN = 1.05
"""By how much a component must be larger than noise makes it before shrinkage is undone: the largest of noise varies."""

BLOCK = 1 << 22
"""Numbers that products of loadings may hold at a time."""


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores (n x k) of rows, and what is known of their errors for each pattern of missing features (p of them).

    ``pattern`` (n,) is the number of each row's pattern.  ``covariance`` (p x k x k) is that of the errors, ``missing``
    (p x k x k) that of the distance from the score of the whole row; ``by_prior`` (p,) tells where the posterior mean was taken,
    and ``solution`` (p x k x k) makes scores of b.  ``residual`` (n,) is the sum of squares that the scores leave of the observed
    entries, ``observed`` (n,) the number of these.
    """

    scores: Array
    pattern: NDArray[np.intp]
    covariance: Array
    missing: Array
    by_prior: NDArray[np.bool_]
    solution: Array
    residual: Array
    observed: NDArray[np.int64]


def scores_of(Y: Array, seen: NDArray[np.bool_], Z: Array, variances: Array, noise: float) -> Scores:
    """Scores of rows Y (n x d, zeros where not ``seen``) on Z (d x k); features of which no component holds any do not count.

    >>> Y, seen = np.array([[0.0, 1.0, 0.0], [2.0, 1.0, 0.0]]), np.array([[0, 1, 1], [1, 1, 0]], dtype=bool)
    >>> found = scores_of(Y, seen, np.array([[0.6], [0.8], [0.0]]), np.array([5.0]), 1.0)
    >>> found.scores.round(2).tolist(), found.by_prior[found.pattern].tolist(), found.observed.tolist()
    ([[1.25], [2.0]], [False, False], [1, 2])
    >>> found.covariance[found.pattern].ravel().round(4).tolist()  # noise / 0.8^2, and noise
    [1.5625, 1.0]
    """
    matters = np.any(Z != 0, axis=1)
    seen = seen & matters
    first, pattern = patterns(seen)
    kinds = seen[first]
    G = _products(kinds, Z)
    whole = np.count_nonzero(kinds, axis=1) == np.count_nonzero(matters)
    G[whole] = np.eye(Z.shape[1])  # what rounding leaves of orthonormal columns is no missing feature
    solution, covariance, missing, by_prior = _solutions(G, np.maximum(variances - noise, 0.0), noise)
    b = Y @ Z
    scores = np.where(whole[pattern, None], b, np.einsum("nij,nj->ni", solution[pattern], b))
    explained = 2 * np.einsum("ni,ni->n", scores, b) - np.einsum("ni,nij,nj->n", scores, G[pattern], scores)
    residual = np.maximum(np.einsum("ij,ij->i", Y, Y) - explained, 0.0)
    return Scores(scores, pattern, covariance, missing, by_prior, solution, residual, np.count_nonzero(kinds, axis=1)[pattern])


def _products(kinds: NDArray[np.bool_], Z: Array) -> Array:
    """Z_O^T Z_O (p x k x k) for each pattern O (p x d)."""
    d, k = Z.shape
    upper = np.triu_indices(k)
    total = np.zeros((len(kinds), len(upper[0])))
    step = max(1, BLOCK // len(upper[0]))
    for at in range(0, d, step):
        part = Z[at : at + step]
        total += kinds[:, at : at + step].astype(np.float64) @ (part[:, upper[0]] * part[:, upper[1]])
    G = np.empty((len(kinds), k, k))
    G[:, upper[0], upper[1]] = total
    G[:, upper[1], upper[0]] = total
    return G


def _solutions(G: Array, prior: Array, noise: float) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
    """For each G (p x k x k): what makes scores of b, their covariance, the part of missing entries, where the prior was used.

    ``prior`` (k,) are the variances of t.
    """
    k = G.shape[1]
    rest = np.eye(k) - G
    values, vectors = np.linalg.eigh(G)
    by_prior = values[:, 0] < UNDETERMINED
    solution = (vectors / np.where(by_prior[:, None], 1.0, values)[:, None, :]) @ np.swapaxes(vectors, 1, 2)
    covariance = noise * solution
    missing = covariance - noise * np.eye(k)
    if by_prior.any():
        some = np.flatnonzero(by_prior)
        solution[some], covariance[some] = _posterior(G[some], prior, noise)
        # the whole row's score is b + (I - G) t + Z_M^T e_M, and b - G mean = noise P^-1 mean
        bent = noise * _inverse(prior)[:, None] * (np.diag(prior) - covariance[some]) * noise * _inverse(prior)
        missing[some] = rest[some] @ covariance[some] @ rest[some] + noise * rest[some] + bent
    return solution, covariance, missing, by_prior


def _posterior(G: Array, prior: Array, noise: float) -> tuple[Array, Array]:
    """The matrix (p x k x k) that makes posterior means of b, and the posterior covariance (p x k x k); noise may be zero."""
    root = np.sqrt(prior)
    values, U = np.linalg.eigh(root[:, None] * G * root)
    values = np.maximum(values, 0.0)
    known = values > 1e-12 * max(float(prior.max(initial=0.0)), noise)
    total = np.where(known, values + noise, max(noise, 1.0))  # where nothing is known the numerator is zero
    Ut = np.swapaxes(U, 1, 2) * root
    mean = np.where(known | (noise > 0), 1.0 / total, 0.0)
    left = np.where(known, noise / total, 1.0)
    return np.swapaxes(Ut, 1, 2) @ (mean[:, :, None] * Ut), np.swapaxes(Ut, 1, 2) @ (left[:, :, None] * Ut)


def _inverse(prior: Array) -> Array:
    return np.where(prior > 0, 1.0 / np.where(prior > 0, prior, 1.0), 0.0)


def without_shrinkage(scores: Array, residual: Array, lengths: Array, n: int, d: int, noise: float) -> tuple[Array, Array]:
    """Scores (m x k) as a joint fit would give them, and by how much (m x k) each was stretched, to first order.

    Scores of rows that took no part in a fit are too small where features outnumber rows: the components were fitted to the
    others' noise, too.  Each row is added to the decomposition, whose n rows are known by their singular values ``lengths`` (k,)
    alone, and the enlarged scores are turned back to the known ones (online augmentation, decomposition and Procrustes: Zhang,
    Dey and Lee 2020, Prive et al. 2020).  ``residual`` (m,) is the squared length that the row has outside the components, in all
    d features.  Components are left as they are from the first on that is not larger than ``noise`` alone makes them,
    noise (sqrt(n) + sqrt(d))^2 (Marchenko and Pastur 1967), or than the row's residual.

    >>> scores, stretched = without_shrinkage(np.array([[3.0, 1.0]]), np.array([100.0]), np.array([20.0, 11.0]), 25, 100, 1.0)
    >>> scores.round(2).tolist(), stretched.round(2).tolist()
    ([[3.96, 1.0]], [[1.33, 1.0]])
    """
    squares = lengths**2
    least = MARGIN * np.maximum(noise * (np.sqrt(n) + np.sqrt(d)) ** 2, residual)
    counts = np.count_nonzero(np.logical_and.accumulate(squares[None, :] > least[:, None], axis=1), axis=1)
    corrected, stretched = np.array(scores, dtype=np.float64), np.ones(scores.shape)
    for k in np.unique(counts[counts > 0]).tolist():
        rows = np.flatnonzero(counts == k)
        corrected[rows, :k] = _augmented(scores[rows, :k], residual[rows], lengths[:k])
        stretched[rows, :k] = squares[:k] / (squares[:k] - residual[rows, None])
    return corrected, stretched


def _augmented(scores: Array, residual: Array, lengths: Array) -> Array:
    """Scores (m x k) of rows in the decomposition that each is added to, turned to the known rows' scores."""
    m, k = scores.shape
    corrected = np.empty((m, k))
    step = max(1, BLOCK // (k + 1) ** 2)
    for at in range(0, m, step):
        part = slice(at, min(at + step, m))
        K = np.zeros((part.stop - at, k + 1, k + 1))
        K[:, :k, :k] = np.diag(lengths)
        K[:, k, :k], K[:, k, k] = scores[part], np.sqrt(residual[part])
        U, S, _ = np.linalg.svd(K)
        enlarged = U[:, :, :k] * S[:, None, :k]
        known = enlarged[:, :k]  # of the fitted rows, up to their left singular vectors, which Procrustes does not see
        A, s, B = np.linalg.svd(np.swapaxes(known, 1, 2) * lengths)
        size = s.sum(axis=1) / np.einsum("nij,nij->n", known, known)
        corrected[part] = size[:, None] * np.einsum("nk,nkj->nj", enlarged[:, k], A @ B)
    return corrected
