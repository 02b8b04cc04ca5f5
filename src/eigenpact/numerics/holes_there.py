"""Probabilistic PCA of rows with holes (``holes.py``, ``ppca.py``) where rows of another library lie.

Numpy makes a matrix M once for all rows that lack the same entries.  Here every row has its own: products and inverses of many
small matrices are what a GPU is quick at, and nobody has to look for rows that are alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .either import there
from .elsewhere import namespace, to_numpy
from .linalg import Array


def _scores_there(Y: Any, weights: Any, W: Any, noise: float) -> tuple[Any, Any, Any]:
    """Scores (n x k) of rows Y (n x d) with zeros in their holes, M^-1 of each (n x k x k), and log |M| (n,)."""
    xp, (n, d), k = namespace(Y), Y.shape, W.shape[1]
    products = xp.reshape(W[:, :, None] * W[:, None, :], (d, k * k))
    M = xp.reshape(weights @ products, (n, k, k)) + there(noise * np.eye(k), Y)
    inverses = xp.linalg.inv(M)
    inverses = (inverses + xp.matrix_transpose(inverses)) / 2
    means = xp.matmul(inverses, (Y @ W)[:, :, None])[:, :, 0]
    return means, inverses, xp.linalg.slogdet(M)[1]


def likelihood_there(Y: Any, seen: Any, W: Array, noise: float) -> tuple[Array, Array, float, float]:
    """As ``ppca.likelihood``: s dl/dW (d x k), s dl/dm (d,), the log-likelihood, and expected squares of the noise.

    >>> import array_api_strict as strict
    >>> Y, W = np.array([[1.0, 2.0], [0.5, np.nan]]), np.array([[1.0], [1.0]])
    >>> found = likelihood_there(strict.asarray(Y), strict.asarray(~np.isnan(Y)), W, 0.5)
    >>> C = W @ W.T + 0.5 * np.eye(2)
    >>> first = np.log(np.linalg.det(2 * np.pi * C)) + Y[0] @ np.linalg.solve(C, Y[0])
    >>> bool(np.isclose(found[2], -(first + np.log(2 * np.pi * C[0, 0]) + 0.25 / C[0, 0]) / 2))
    True
    """
    xp, (n, d), k = namespace(Y), Y.shape, W.shape[1]
    W_there, weights = there(W, Y), xp.astype(seen, xp.float64)
    Y = xp.where(seen, Y, 0.0)
    means, inverses, log_determinants = _scores_there(Y, weights, W_there, noise)
    E = xp.where(seen, Y - means @ W_there.T, 0.0)
    spread = xp.reshape(weights.T @ xp.reshape(inverses, (n, k * k)), (d, k, k))  # sum of M^-1 where j is seen
    G = E.T @ means - noise * xp.matmul(spread, W_there[:, :, None])[:, :, 0]
    sums = (weights, E * E, log_determinants, means * means, xp.linalg.trace(inverses))
    entries, squares, determinants, lengths, traces = to_numpy(xp.stack([xp.sum(part) for part in sums])).tolist()
    value = entries * np.log(2 * np.pi) + (entries - n * k) * np.log(noise) + determinants + squares / noise + lengths
    return to_numpy(G), to_numpy(xp.sum(E, axis=0)), -float(value) / 2, squares + noise * (n * k - noise * traces)


def expected_scatter_there(Y: Any, seen: Any, W: Array, noise: float, B: Array) -> Array:
    """As ``ppca.expected_scatter_action``: what the model expects of the scatter of whole rows, times B (d x b)."""
    xp, (n, d), k, b = namespace(Y), Y.shape, W.shape[1], B.shape[1]
    W_there, B_there, weights = there(W, Y), there(B, Y), xp.astype(seen, xp.float64)
    means, inverses, _ = _scores_there(xp.where(seen, Y, 0.0), weights, W_there, noise)
    filled, lacks = xp.where(seen, Y, means @ W_there.T), 1.0 - weights
    products = xp.reshape(W_there[:, :, None] * B_there[:, None, :], (d, k * b))
    inner = xp.matmul(inverses, xp.reshape(lacks @ products, (n, k, b)))
    spread = xp.reshape(lacks.T @ xp.reshape(inner, (n, k * b)), (d, k, b))
    missing = xp.sum(lacks, axis=0)[:, None] * B_there + xp.matmul(W_there[:, None, :], spread)[:, 0, :]
    return to_numpy(filled.T @ (filled @ B_there) + noise * missing)
