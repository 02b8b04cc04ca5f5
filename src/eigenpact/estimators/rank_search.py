"""How many global and local components: every pair of a grid is fitted with rows held out, and one is suggested."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone

from ..errors import InputError, NotIdentifiableWarning

SEPARATE = 1e-2
"""Below this misalignment local parts have a direction in common that could as well be global."""

ALIKE = 0.05
"""The fewest components are suggested whose noise is at most this share above the least."""

NO_NOISE = 1e-12
"""Noise below this share of the global variance is rounding."""


def is_count(value: Any, least: int) -> bool:
    """Whether a value is a whole number that is large enough."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def tried(trial: Any, X: Any, sites: Any, n_global: Sequence[int], n_local: Sequence[int]) -> list[dict[str, Any]]:
    """Fit clones of ``trial`` with every pair that the rows can have and that leaves a dimension over; what came of each."""
    found = []
    most, features = np.inf, np.inf  # known after the first fit
    for r1, r2 in ((r1, r2) for r1 in n_global for r2 in n_local):
        if r1 > most or r1 + r2 >= features:
            continue
        pca = clone(trial).set_params(n_global=r1, n_local=r2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotIdentifiableWarning)
            pca.fit(X, sites=sites)
        features = pca.n_features_in_
        most = min(pca.n_samples_seen_, features)
        if (left := features - r1 - r2) > 0:
            found.append(
                {
                    "n_global": r1,
                    "n_local": r2,
                    "validation_error": pca.validation_error_,
                    "noise": pca.validation_error_ / left,
                    "misalignment": pca.misalignment_,
                    "identifiable": bool(pca.misalignment_ >= SEPARATE),
                    "rounding": NO_NOISE * float(pca.explained_variance_.sum()),
                }
            )
    if not found:
        raise InputError(f"n_global={n_global!r}, n_local={n_local!r}: no pair leaves one of {features} features over")
    return found


def suggested(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The pairs that were tried, the best first: identifiable, nearly the least noise, fewest components."""
    rounding = max(row.pop("rounding") for row in found)
    least = min((row["noise"] for row in found if row["identifiable"]), default=np.inf)

    def order(row: dict[str, Any]) -> tuple[Any, ...]:
        near = row["identifiable"] and row["noise"] <= (1 + ALIKE) * least + rounding
        size = row["n_global"] + row["n_local"] if near else 0
        return not row["identifiable"], not near, size, row["noise"]

    return sorted(found, key=order)
