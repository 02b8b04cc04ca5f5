"""Features with which nodes that may not see each other's rows describe the mean of phi(x) in common."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from .kernels import Kernel, inverse_root
from .linalg import Array


@dataclass(frozen=True, eq=False)
class MeanFeatures:
    """Features with which nodes describe the mean of phi over rows.

    Attributes
    ----------
    kernel : Kernel
    basis : (l, d) array
        Rows B, the same at all nodes: what lies within the span of phi(B) is described exactly.
    count : int
        Pairs of random features for what lies beyond; 0 for none.
    seed : int
    """

    kernel: Kernel
    basis: Array
    count: int
    seed: int

    def __call__(self, X: Array, *, exact_angles: bool = True) -> tuple[Array, int]:
        """Features (n x m) of rows X (n x d), and how many of them, the first ones, are the exact part.

        If not ``exact_angles``, random features are made in single precision where that will do.
        """
        root = self._root
        exact = self.exact(X)
        if not self.count:
            return exact, exact.shape[1]
        seen, base = self._beyond(X, exact_angles), self._beyond(self.basis)
        both = np.empty((len(X), exact.shape[1] + seen.shape[1]))
        both[:, : exact.shape[1]], beyond = exact, both[:, exact.shape[1] :]
        np.subtract(seen, exact @ (root @ base), out=beyond)
        return both, exact.shape[1]

    def _beyond(self, X: Array, exact_angles: bool = True) -> Array:
        """Random features of rows about the first of the basis: angles are then as exact as differences between rows are."""
        X = X - self.basis[0]
        if len(X) == 1 and not X.any():
            return np.repeat([[1 / np.sqrt(self.count), 0.0]], self.count, axis=1)  # cosines and sines of 0
        return self.kernel.random_features(X, self.count, self.seed, exact=exact_angles)

    def exact(self, X: Array) -> Array:
        """The exact part of them (n x l)."""
        return self.kernel(X, self.basis) @ self._root

    @functools.cached_property
    def _root(self) -> Array:
        return inverse_root(self.kernel(self.basis, self.basis))
