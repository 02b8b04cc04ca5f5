"""A node's components, ready for new rows; and the two references that need all rows in one place."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

from ...numerics.kernels import Kernel, landmark_features
from ...numerics.linalg import Array, fix_signs, top_eigenpairs
from ...numerics.mean_features import MeanFeatures


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """From rows (n x d) to features (n x m): ``count`` random pairs, or those of landmarks, or the rows themselves."""

    kernel: Kernel
    public: Array  # was called landmarks while features were by another root: what was pickled then is not read as if it were now
    count: int
    seed: int

    def __call__(self, X: Array) -> Array:
        if self.count:
            return self.kernel.random_features(X, self.count, self.seed)
        return landmark_features(self.kernel, X, self.public) if len(self.public) else X


@dataclass(frozen=True, eq=False)
class FeatureModel:
    """Directions (m x k) in a space of features, with their mean (m)."""

    features: FeatureMap
    components: Array
    mean: Array

    def scores(self, X: Array) -> Array:
        """Scores (n x k) of rows (n x d)."""
        scores: Array = (self.features(X) - self.mean) @ self.components
        return scores


@dataclass(frozen=True, eq=False)
class KernelModel:
    """Directions in the span of rows: sum_i alpha_i (phi(x_i) - mu).

    Attributes
    ----------
    kernel : Kernel
    rows : (n, d) array
    alpha : (n, k) array
    means : (n,) array
        <phi(x_i), mu>.
    square : float
        <mu, mu>; the mean is not subtracted at all if it is 0.
    mean_features, feature_mean : MeanFeatures and (m,) array, optional
        How mu is known; without it is the mean of ``rows``.
    """

    kernel: Kernel
    rows: Array
    alpha: Array
    means: Array
    square: float
    mean_features: MeanFeatures | None = None
    feature_mean: Array = field(default_factory=lambda: np.zeros(0))

    def centred(self, X: Array) -> Array:
        """Centred kernel (n x len(rows)) between rows X (n x d) and the model's."""
        K = self.kernel(X, self.rows)
        if self.square == 0:
            return K
        about = K.mean(axis=1) if self.mean_features is None else self.mean_features(X)[0] @ self.feature_mean
        centred: Array = K - about[:, None] - self.means + self.square
        return centred

    def scores(self, X: Array) -> Array:
        """Scores (n x k) of rows (n x d)."""
        found: Array = self.centred(X) @ self.alpha
        return found

    def cosines(self, other: KernelModel) -> Array:
        """Cosines (k x l) between this model's directions and those of one whose rows include all nodes' (the central one)."""
        K, across = self.kernel(self.rows, self.rows), other.kernel(self.rows, other.rows)
        if other.square:
            about = across.mean(axis=1)
            K = K - about - about[:, None] + other.square
            across = across - about[:, None] - other.means + other.square
        products = self.alpha.T @ (across @ other.alpha)
        squares = np.sum(self.alpha * (K @ self.alpha), axis=0)
        cosines: Array = products / np.sqrt(np.maximum(squares, np.finfo(float).tiny))[:, None]
        return np.clip(cosines, -1.0, 1.0)  # rounding


def central_model(kernel: Kernel, X: Array, k: int, center: bool) -> KernelModel:
    """Kernel PCA of all rows X (N x d) in one place: the only place where an N x N kernel exists."""
    K = kernel(X, X)
    means = K.mean(axis=0) if center else np.zeros(len(K))
    square = float(means.mean())
    if len(K) < 200 or 3 * k > len(K):
        values, vectors = top_eigenpairs(K - means - means[:, None] + square, k)
    else:

        def product(v: Array) -> Array:
            v = v.reshape(-1)
            w: Array = K @ v + (square * v.sum() - means @ v) - means * v.sum()
            return w

        found, basis = eigsh(
            LinearOperator(K.shape, matvec=product, dtype=np.float64), k, v0=np.cos(np.arange(len(K))), tol=1e-10
        )
        values, vectors = found[::-1], basis[:, ::-1]
    alpha = fix_signs(np.ascontiguousarray(vectors)) / np.sqrt(np.maximum(values, np.finfo(float).tiny))
    return KernelModel(kernel, X, alpha, means, square)


def best_local_model(central: KernelModel, rows: Array) -> KernelModel:
    """Problem (5): the directions in span phi(rows) along which all rows vary most."""
    C = central.centred(rows)
    K = central.kernel(rows, rows)
    if central.square:
        about = central.kernel(rows, central.rows).mean(axis=1)
        K = K - about - about[:, None] + central.square
    values, V = np.linalg.eigh(K)
    kept = values > 1e-6 * values[-1]
    B = V[:, kept] / np.sqrt(values[kept])
    _, U = top_eigenpairs(B.T @ (C @ C.T) @ B, central.alpha.shape[1])
    means = central.kernel(rows, central.rows).mean(axis=1) if central.square else np.zeros(len(rows))
    return KernelModel(central.kernel, rows, fix_signs(B @ U), means, central.square)
