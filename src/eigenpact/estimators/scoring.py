"""What a fitted joint PCA does with new rows: scores and back, and how likely rows are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..data.checks import check_finite
from ..errors import InputError
from ..numerics.linalg import Array
from ..numerics.preparation import prepared, taken_out
from ..numerics.rows import Rows
from ..runtime import RoundRecord
from .base import PooledEstimator
from .missing import likelihoods
from .preparing import Preparing
from .round_lines import shown_in_place


class ScoringPCA(Preparing, PooledEstimator):
    """Scores of rows on the components of a ``FederatedPCA``, and the likelihood of rows."""

    whiten: bool
    verbose: bool

    @contextmanager
    def _watched(self) -> Iterator[Callable[[RoundRecord], Any] | None]:
        if not self.verbose:
            yield self.callback
            return
        with shown_in_place(self.callback) as callback:
            yield callback

    @property
    def _spread_of_scores(self) -> Array:
        """What ``whiten`` divides scores by (k,): their standard deviations; where there is none, as scikit-learn."""
        spread: Array = np.sqrt(self.explained_variance_)
        return np.maximum(spread, np.finfo(spread.dtype).eps)

    def transform(self, X: Any) -> Any:
        """Scores (n, k) of rows (n, n_features): centred by ``mean_``, scaled by ``scale_``, projected on the components; with
        ``whiten``, divided by the standard deviations that they have over all rows of the fit.

        Missing entries (NaN) are filled as ``missing`` says: with the agreed means, or with what the model expects of them, given
        the other entries of their row.
        """
        rows = self._new_rows(X)
        scores = rows.project(self.components_.T.astype(np.float64))
        return (scores / self._spread_of_scores if self.whiten else scores).astype(rows.X.dtype)

    def inverse_transform(self, T: Any) -> Any:
        """Rows (n, n_features) whose scores are T (n, k)."""
        check_is_fitted(self)
        scores = np.asarray(T)
        wide = scores.ndim == 2 and scores.shape[1] == self.n_components_  # else it is told there
        return super().inverse_transform(scores * self._spread_of_scores if self.whiten and wide else scores)

    def _new_rows(self, X: Any) -> Rows:
        """Checked rows (n, n_features), centred and scaled as the model's."""
        check_is_fitted(self)
        X = prepared(self._checked_rows(X), self.preparation_)
        if self._left_out and not self.fills_holes:
            check_finite("X", X, getattr(self, "feature_names_in_", None))  # of features that not all sites have, NaN was allowed
        return Rows(X, self.mean_.astype(np.float64), self.scale_.astype(np.float64))

    def score_samples(self, X: Any) -> Any:
        """Log-likelihood (n,) of rows under the probabilistic PCA model (Tipping and Bishop 1999).

        With ``missing="em"`` that of the entries that are there; with "mean", that of filled rows.
        """
        check_is_fitted(self)
        if any(step.kind == "expect" for step in self.preparation_):
            return likelihoods(self, self._checked_rows(X))
        rows = self._new_rows(X)
        variances = self.explained_variance_.astype(np.float64)
        empty = {*self.dropped_features_, *taken_out(self.preparation_)}
        noise, d, k = self.noise_variance_, rows.d - len(empty), len(variances)
        scores = rows.project(self.components_.T.astype(np.float64))
        distances = (scores**2 / variances).sum(axis=1)
        log_determinant = np.log(variances).sum() + 2 * np.log(self.scale_.astype(np.float64)).sum()
        if k < d:
            if noise <= 0:
                raise InputError("score needs noise outside the components: the data have rank n_components; ask for fewer")
            distances += (rows.row_squares() - (scores**2).sum(axis=1)) / noise
            log_determinant += (d - k) * np.log(noise)
        return -0.5 * (d * np.log(2 * np.pi) + log_determinant + distances)

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002
        """Average log-likelihood of rows, as ``sklearn.decomposition.PCA.score``."""
        return float(np.mean(self.score_samples(X)))
