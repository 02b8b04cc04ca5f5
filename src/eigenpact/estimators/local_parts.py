"""How alike the local parts of sites are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..numerics.linalg import Array


def distances(parts: Sequence[Array]) -> Array:
    """Distances (N x N) of the spans of orthonormal rows: 0 for the same span, 1 for orthogonal ones.

    >>> distances([np.eye(3)[:1], np.eye(3)[:1], np.eye(3)[1:]]).round(2).tolist()
    [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]]
    """
    overlaps, ranks = _overlaps(parts)
    sums = ranks[:, None] + ranks
    return np.where(sums > 0, np.sqrt(np.maximum(0.0, 1.0 - 2.0 * overlaps / np.maximum(sums, 1.0))), 0.0)


def clusters(parts: Sequence[Array], n_clusters: int, seed: Any) -> list[int]:
    """The number of each part's cluster, by spectral clustering."""
    from sklearn.cluster import SpectralClustering  # takes long to import, and few need it

    overlaps, ranks = _overlaps(parts)
    affinity = (overlaps / np.maximum(1.0, np.minimum(ranks[:, None], ranks))) ** 2
    spectral = SpectralClustering(n_clusters, affinity="precomputed", assign_labels="cluster_qr", random_state=seed)
    labels: list[int] = spectral.fit_predict(affinity).tolist()
    return labels


def _overlaps(parts: Sequence[Array]) -> tuple[Array, Array]:
    """tr P_i P_j (N x N) of the projectors on the parts, and the parts' ranks (N)."""
    ranks = np.array([len(V) for V in parts], dtype=float)
    stacked = np.concatenate(parts)
    first = np.concatenate([[0], np.cumsum(ranks)]).astype(int).tolist()
    squares = (stacked @ stacked.T) ** 2
    spans = [slice(a, b) for a, b in pairwise(first)]
    return np.array([[squares[a, b].sum() for b in spans] for a in spans]), ranks
