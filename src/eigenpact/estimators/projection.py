"""New rows on a fitted model, with what is missing in them: scores, their errors, and ellipses about them.

Nothing leaves the machine on which this is called.  What is computed, and why, is in ``numerics/projection.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse
import scipy.stats
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from ..errors import InputError
from ..numerics.linalg import Array
from ..numerics.projection import Scores, scores_of, without_shrinkage
from ..numerics.rows import Rows, slices
from .inputs import check_new_rows

DRAW_BLOCK = 1 << 22
"""Random signs that are drawn at a time."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Projection:
    """Scores of n rows on k components, and how far they may be off.

    Attributes
    ----------
    scores : (n, k) array
    n_observed : (n,) array of int
        How many features of each row were there, of those that the model uses.
    from_prior : (n,) array of bool
        Rows whose features do not determine the scores: theirs are posterior means, which lie towards zero.
    stretched : (n, k) array
        What ``shrinkage="corrected"`` multiplied scores by, to first order; ones where nothing was corrected.
    noise_variance : float
        Variance of a single entry about the components, centred and scaled.
    lacking_features, ignored_features : tuples of str
        Features of the model that the table lacks, which count as missing, and columns that are none of the model's.
    n_draws : int or None
        Of the bootstrap; None where errors are the model's.
    """

    scores: Array
    n_observed: NDArray[np.int64]
    from_prior: NDArray[np.bool_]
    stretched: Array
    noise_variance: float
    lacking_features: tuple[str, ...] = ()
    ignored_features: tuple[str, ...] = ()
    n_draws: int | None = None
    _pattern: NDArray[np.intp] = field(repr=False)
    _covariance: Array = field(repr=False)
    _missing: Array = field(repr=False)

    def covariance(self, *, of: str = "true") -> Array:
        """Covariance (n, k, k) of each row's errors: of the "true" scores, or of those that the "whole" row would have."""
        by_pattern = self._covariance if _checked_truth(of) else self._missing
        return by_pattern[self._pattern] * self.stretched[:, :, None] * self.stretched[:, None, :]

    def standard_errors(self, *, of: str = "true") -> Array:
        """Standard error (n, k) of every score: of the "true" score, or of the score that the "whole" row would have.

        A true score is that of the model, t in row = mean + components^T t + noise: its error has the noise of observed entries,
        too.  The score of the whole row is what ``transform`` gives where nothing is missing, and its error is then zero.
        """
        by_pattern = self._covariance if _checked_truth(of) else self._missing
        errors: Array = np.sqrt(np.maximum(np.diagonal(by_pattern, axis1=1, axis2=2), 0.0))
        return errors[self._pattern] * self.stretched

    def ellipses(self, components: tuple[int, int] = (0, 1), *, level: float = 0.95, of: str = "true") -> Array:
        """An ellipse for each row (n, 5): centre x, centre y, half axes a >= b, and the angle of the first axis in radians."""
        pair = self._pair(components)
        values, vectors = np.linalg.eigh(self.covariance(of=of)[np.ix_(range(len(self.scores)), pair, pair)])
        axes = np.sqrt(np.maximum(values[:, ::-1], 0.0) * self._radius(level))
        angle = np.arctan2(vectors[:, 1, 1], vectors[:, 0, 1])
        return np.column_stack([self.scores[:, pair], axes, angle])

    def covers(self, truth: Any, components: tuple[int, int] = (0, 1), *, level: float = 0.95, of: str = "true") -> NDArray[np.bool_]:
        """Whether each row's ellipse holds the truth (n, k), for tests of how often it does."""
        pair = self._pair(components)
        x, y, a, b, angle = self.ellipses(components, level=level, of=of).T
        off = np.asarray(truth)[:, pair] - np.column_stack([x, y])
        along = off[:, 0] * np.cos(angle) + off[:, 1] * np.sin(angle)
        across = off[:, 1] * np.cos(angle) - off[:, 0] * np.sin(angle)
        inside: NDArray[np.bool_] = (along * b) ** 2 + (across * a) ** 2 <= (a * b) ** 2
        return inside

    def _pair(self, components: tuple[int, int]) -> list[int]:
        pair, k = list(components), self.scores.shape[1]
        if len(pair) != 2 or not all(0 <= j < k for j in pair):
            raise InputError(f"components={components!r} must be two of the numbers 0 to {k - 1}")
        return pair

    def _radius(self, level: float) -> float:
        """Squared radius of the ellipse in standard errors; a covariance of few draws takes a larger one."""
        if not 0 < level < 1:
            raise InputError(f"level={level!r} must be a share between 0 and 1, for example 0.95")
        if self.n_draws is None:
            return float(scipy.stats.chi2.ppf(level, 2))
        return float(2 * (self.n_draws - 1) / (self.n_draws - 2) * scipy.stats.f.ppf(level, 2, self.n_draws - 2))


def _checked_truth(of: str) -> bool:
    if of not in ("true", "whole"):
        raise InputError(f"of={of!r} must be 'true' (the model's score) or 'whole' (that of the row without missing features)")
    return of == "true"


def project(
    pca: Any, X: Any, *, shrinkage: str = "none", errors: str = "model", n_draws: int = 500, random_state: Any = 0
) -> Projection:
    """Scores of rows with missing features on a fitted model; ``FederatedPCA.project`` explains it."""
    _check_choice("shrinkage", shrinkage, ("none", "corrected"))
    _check_choice("errors", errors, ("model", "bootstrap"))
    if errors == "bootstrap" and n_draws < 10:
        raise InputError(f"n_draws={n_draws!r} must be a whole number >= 10")
    table, lacking, ignored = with_all_columns(pca, X)
    rows = check_new_rows(pca, table, accept_sparse=["csr", "csc"], ensure_all_finite="allow-nan")
    Z, variances = pca.components_.T.astype(np.float64), pca.explained_variance_.astype(np.float64)
    noise, used = entry_noise(pca), pca.n_features_in_ - len(pca.dropped_features_)
    draws = check_random_state(random_state) if errors == "bootstrap" else None
    parts = []
    for Y, seen in _blocks(pca, rows):
        found = scores_of(Y, seen, Z, variances, noise)
        covariance = found.covariance[found.pattern] if draws is None else _bootstrapped(Y, seen, Z, found, n_draws, draws)
        parts.append((found, covariance if draws is not None else found.covariance))
    scores = np.concatenate([found.scores for found, _ in parts])
    stretched = np.ones(scores.shape)
    if shrinkage == "corrected":
        observed = np.concatenate([found.observed for found, _ in parts])
        residual = np.concatenate([found.residual for found, _ in parts])
        k = scores.shape[1]
        residual = residual * max(used - k, 0) / np.maximum(observed - k, 1)
        scores, stretched = without_shrinkage(
            scores, residual, pca.singular_values_.astype(np.float64), pca.n_samples_seen_, used
        )
    return _assembled(parts, draws is not None, scores=scores, stretched=stretched, noise_variance=noise,
                      lacking_features=lacking, ignored_features=ignored, n_draws=n_draws if draws is not None else None)
