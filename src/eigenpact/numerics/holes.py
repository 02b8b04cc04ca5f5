"""Scores of rows with holes, given a low-rank model of the rows.

Model (probabilistic PCA): a row is y = m + W x + e, with scores x ~ N(0, I_k), noise e ~ N(0, sigma^2 I_d) and W (d x k).  Of a
row only the entries o are seen.  With W_o their rows of W,

    M = W_o^T W_o + sigma^2 I,    E[x | y_o] = M^-1 W_o^T (y_o - m_o),    Cov[x | y_o] = sigma^2 M^-1.

With sigma^2 = 0 the scores are those of least squares on the entries that are seen.  Rows that lack the same entries share M.

References
    M. E. Tipping, C. M. Bishop, "Probabilistic principal component analysis", J. R. Stat. Soc. B 61 (1999);
    A. Ilin, T. Raiko, "Practical approaches to principal component analysis in the presence of missing values", JMLR 11 (2010).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .linalg import Array
from .patterns import patterns

BLOCK_ELEMENTS = 1 << 20
"""Rows are taken in blocks of about so many entries, or of small matrices that belong to them."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Scores:
    """What rows tell of their scores.

    Attributes
    ----------
    means : (n, k) array
        E[x | y_o], or the least squares scores for no noise.
    inverses : (p, k, k) array
        M^-1 for each pattern of missing entries.
    pattern : (n,) array
        The pattern of each row.
    log_determinants : (p,) array
        Of M; of what is not zero of it, where entries do not determine all scores.
    """

    means: Array
    inverses: Array
    pattern: NDArray[np.intp]
    log_determinants: Array


def scores_with_holes(Y: Array, seen: Mask, W: Array, noise: float) -> Scores:
    """Scores of rows Y (n x d, deviations from the mean) of which the entries ``seen`` (n x d) count, under W (d x k).

    >>> W = np.array([[2.0], [1.0], [2.0]])
    >>> Y = np.array([[4.0, 2.0, np.nan], [4.0, 2.0, 4.0]])
    >>> scores_with_holes(Y, ~np.isnan(Y), W, 0.0).means.round(12).tolist()
    [[2.0], [2.0]]
    """
    k = W.shape[1]
    first, pattern = patterns(seen)
    products = (W[:, :, None] * W[:, None, :]).reshape(len(W), k * k)
    M = (seen[first].astype(np.float64) @ products).reshape(-1, k, k)
    if noise > 0:
        M += noise * np.eye(k)
        inverses = np.asarray(np.linalg.inv(M), dtype=np.float64)
        inverses = (inverses + inverses.transpose(0, 2, 1)) / 2
        log_determinants = np.linalg.slogdet(M)[1]
    else:
        inverses = np.asarray(np.linalg.pinv(M, hermitian=True), dtype=np.float64)
        values = np.linalg.eigvalsh(M)
        clear = values > k * np.finfo(float).eps * np.maximum(values[:, -1:], np.finfo(float).tiny)
        log_determinants = np.where(clear, np.log(np.where(clear, values, 1.0)), 0.0).sum(axis=1)
    right = np.where(seen, Y, 0.0) @ W
    means = np.matmul(inverses[pattern], right[:, :, None])[:, :, 0]
    return Scores(means, inverses, pattern, log_determinants)


def filled(Y: Array, W: Array, noise: float) -> Array:
    """Rows Y (n x d, deviations from the mean, NaN where missing) with what the model expects of the missing entries.

    >>> filled(np.array([[4.0, 2.0, np.nan]]), np.array([[2.0], [1.0], [2.0]]), 0.0).round(12).tolist()
    [[4.0, 2.0, 4.0]]
    """
    whole = np.array(Y, dtype=np.float64)
    for where in blocks_of(len(whole), *W.shape):
        seen = ~np.isnan(whole[where])
        if not seen.all():
            means = scores_with_holes(whole[where], seen, W, noise).means
            whole[where] = np.where(seen, whole[where], means @ W.T)
    return whole


def loadings(basis: Array, variances: Array, noise: float) -> Array:
    """W (d x k) of the model that has these components (d x k), variances (k,) along them and noise elsewhere.

    >>> loadings(np.eye(2)[:, :1], np.array([5.0]), 1.0).tolist()
    [[2.0], [0.0]]
    """
    return np.asarray(basis * np.sqrt(np.maximum(variances - noise, 0.0)))


def blocks_of(n: int, d: int, k: int) -> Iterator[slice]:
    """Slices of n rows, small enough for d entries and a k x k matrix each."""
    step = max(1, BLOCK_ELEMENTS // max(1, d, k * k))
    return (slice(first, min(n, first + step)) for first in range(0, n, step))
