"""Features of kernels for rows of another library than numpy, made where the rows lie, in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np

from .either import quotient, there
from .elsewhere import is_elsewhere, namespace, to_numpy
from .kernels import NAMES, Kernel, landmark_kernel
from .linalg import Array


def random_features_there(kernel: Kernel, X: Any, count: int, seed: int) -> Any:
    """Features (n x 2 count) of rows X (n x d) where they lie: cosines and sines of their angles, as numpy's have them.

    >>> import array_api_strict as strict
    >>> kernel, X = Kernel("rbf", 0.5), np.array([[1.0, 2.0], [3.0, -1.0]])
    >>> found = random_features_there(kernel, strict.asarray(X), 3, 0)
    >>> bool(np.allclose(np.asarray(found), kernel.random_features(X, 3, 0), rtol=0, atol=1e-15))
    True
    """
    xp = namespace(X)
    angles = X @ there(np.ascontiguousarray(kernel.frequencies(int(X.shape[1]), count, seed).T), X)
    return xp.concat([xp.cos(angles), xp.sin(angles)], axis=1) / float(np.sqrt(count))


def landmark_kernel_there(kernel: Kernel, X: Any, landmarks: Array) -> tuple[Any, Array]:
    """The two factors of Nystrom features, K(X, L) (n x m) where rows X lie, and R (m x m).

    A function of the user's own is given tables of numpy, and what it gives stays there.
    """
    if kernel.name not in NAMES or not is_elsewhere(X):
        return landmark_kernel(kernel, to_numpy(X), landmarks)
    _, root = landmark_kernel(kernel, landmarks[:0], landmarks)
    return kernel_there(kernel, X, landmarks), root


def kernel_there(kernel: Kernel, X: Any, Y: Array) -> Any:
    """The kernel (n x m) between rows X (n x d), where they lie, and Y (m x d) of numpy, for a kernel that has a name.

    >>> import array_api_strict as strict
    >>> X, Y = np.array([[1.0, 2.0], [0.0, 0.0], [3.0, -1.0]]), np.array([[1.0, 1.0], [0.0, 2.0]])
    >>> kernels = [Kernel(name, 0.5) for name in NAMES]
    >>> [bool(np.allclose(np.asarray(kernel_there(k, strict.asarray(X), Y)), k(X, Y))) for k in kernels]
    [True, True, True, True]
    """
    xp = namespace(X)
    if kernel.name == "laplacian":
        rows = there(Y, X)
        distances = [xp.sum(abs(X - rows[j, :]), axis=1) for j in range(len(Y))]
        return xp.exp(-kernel.gamma * xp.stack(distances, axis=1))
    if kernel.name == "rbf":  # about a point among the rows: squares of rows far from 0 would lose the digits of distances
        origin = Y[0]
        X, away = X - there(origin, X), Y - origin
        logs = X @ there(2 * kernel.gamma * away.T, X) - kernel.gamma * xp.vecdot(X, X)[:, None]
        logs -= there(kernel.gamma * np.vecdot(away, away), X)
        return xp.exp(xp.where(logs < 0.0, logs, 0.0))
    left, right, K = xp.vecdot(X, X), np.vecdot(Y, Y), X @ there(np.ascontiguousarray(Y.T), X)
    if kernel.name == "poly":
        left, right, K = ((kernel.gamma * products + kernel.coef0) ** kernel.degree for products in (left, right, K))
    lengths = xp.sqrt(xp.where(left > 0.0, left, 0.0))[:, None] * there(np.sqrt(np.maximum(right, 0.0)), X)
    return quotient(K, lengths, lengths > 0.0)
