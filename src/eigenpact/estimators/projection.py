"""New rows on a fitted model, with what is missing in them: scores, their errors, and ellipses about them.

Nothing leaves the machine on which this is called.  What is computed, and why, is in ``numerics/projection.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse
import scipy.stats
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ..errors import InputError
from ..numerics.columns import with_zeros
from ..numerics.linalg import Array
from ..numerics.preparation import prepared, taken_out
from ..numerics.projection import Scores, scores_of, without_shrinkage
from ..numerics.rows import slices
from .inputs import check_new_rows

DRAW_BLOCK = 1 << 22
"""Random signs that are drawn at a time."""

LEAST_DRAWS = 10
SHOWN = 5

ARRAYS = ("scores", "pattern", "covariance", "missing", "by_prior", "residual", "observed")
"""Of the scores of a block of rows, what is put together."""


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
    _drawn: Array | None = field(default=None, repr=False)

    def covariance(self, *, of: str = "true") -> Array:
        """Covariance (n, k, k) of each row's errors: of the "true" scores, or of those that the "whole" row would have.

        The bootstrap is for true scores; those of the whole row have the model's errors.
        """
        _check_choice("of", of, ("true", "whole"))
        if of == "true" and self._drawn is not None:
            plain = self._drawn
        else:
            plain = (self._covariance if of == "true" else self._missing)[self._pattern]
        return plain * self.stretched[:, :, None] * self.stretched[:, None, :]

    def standard_errors(self, *, of: str = "true") -> Array:
        """Standard error (n, k) of every score: of the "true" score, or of the score that the "whole" row would have.

        A true score is that of the model, t in row = mean + components^T t + noise: its error has the noise of observed entries,
        too.  The score of the whole row is what ``transform`` gives where nothing is missing, and its error is then zero.
        """
        _check_choice("of", of, ("true", "whole"))
        if of == "true" and self._drawn is not None:
            variances, at = np.diagonal(self._drawn, axis1=1, axis2=2), np.arange(len(self.scores))
        else:
            variances, at = np.diagonal(self._covariance if of == "true" else self._missing, axis1=1, axis2=2), self._pattern
        errors: Array = np.sqrt(np.maximum(variances, 0.0))[at] * self.stretched
        return errors

    def ellipses(self, components: tuple[int, int] = (0, 1), *, level: float = 0.95, of: str = "true") -> Array:
        """An ellipse for each row (n, 5): centre x, centre y, half axes a >= b, and the angle of the first axis in radians."""
        pair = self._pair(components)
        values, vectors = np.linalg.eigh(self.covariance(of=of)[np.ix_(range(len(self.scores)), pair, pair)])
        axes = np.sqrt(np.maximum(values[:, ::-1], 0.0) * self._radius(level, of)[:, None])
        angle = np.arctan2(vectors[:, 1, 1], vectors[:, 0, 1])
        return np.column_stack([self.scores[:, pair], axes, angle])

    def covers(
        self, truth: Any, components: tuple[int, int] = (0, 1), *, level: float = 0.95, of: str = "true"
    ) -> NDArray[np.bool_]:
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

    def _radius(self, level: float, of: str) -> Array:
        """Squared radius (n,) of the ellipses in standard errors; larger where these are of few residuals and draws."""
        if not 0 < level < 1:
            raise InputError(f"level={level!r} must be a share between 0 and 1, for example 0.95")
        known = np.full(len(self.scores), scipy.stats.chi2.ppf(level, 2))
        if self.n_draws is None or of == "whole":
            return known
        drawn = ~self.from_prior & (self.n_observed > self.scores.shape[1])
        freedom = 1 / (1 / np.maximum(self.n_observed - self.scores.shape[1], 1) + 1 / (self.n_draws - 1))
        return np.where(drawn, 2 * scipy.stats.f.ppf(level, 2, freedom), known)


class Projecting:
    """What an estimator with components shared by all rows can do with new rows that lack features."""

    whiten: bool

    def project(
        self, X: Any, *, shrinkage: str = "none", errors: str = "model", n_draws: int = 500, random_state: Any = 0
    ) -> Projection:
        """Scores of rows in which features are missing, with their errors.

        Scores are by least squares on the features that are there; where these do not determine them (fewer than components, or
        nearly dependent), they are the posterior means of probabilistic PCA, and marked (``from_prior``).  Where nothing is
        missing they are those of ``transform``.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame, (n, n_features)
            NaN is a missing entry.  The columns of a DataFrame are matched by name: those that it lacks count as missing, those
            that are not the model's are ignored, and the result names both.
        shrinkage : "none" or "corrected"
            Rows that took no part in the fit have scores that are too small where features outnumber rows, as with genotypes;
            "corrected" gives them the size that a joint fit would.  Not for rows of the fit itself.
        errors : "model" or "bootstrap"
            Standard errors from the model's noise, which is the same for all rows; or from each row's own residuals, drawn with
            replacement ``n_draws`` times by ``random_state``, for rows that differ in their noise.  That takes many features.

        Returns
        -------
        Projection
            ``scores``, ``standard_errors()``, ``covariance()``, ``ellipses()``, ``n_observed``, ``from_prior``.

        Examples
        --------
        >>> import numpy as np, eigenpact as ep
        >>> X = np.random.default_rng(0).normal(size=(100, 6)) * [5, 4, 1, 1, 1, 1]
        >>> found = ep.FederatedPCA(n_components=2).fit(X).project([[10.0, np.nan, 1, 1, 1, 1]])
        >>> found.n_observed.tolist(), found.standard_errors().round(1).shape
        ([5], (1, 2))
        """
        check_is_fitted(self)
        if self.whiten:
            raise InputError("whiten=True: project gives scores in the units of rows alone; call set_params(whiten=False) first")
        return _project(self, X, shrinkage=shrinkage, errors=errors, n_draws=n_draws, random_state=random_state)


def _project(
    pca: Any, X: Any, *, shrinkage: str = "none", errors: str = "model", n_draws: int = 500, random_state: Any = 0
) -> Projection:
    """Scores of rows with missing features on a fitted model; :meth:`Projecting.project` explains it."""
    _check_choice("shrinkage", shrinkage, ("none", "corrected"))
    _check_choice("errors", errors, ("model", "bootstrap"))
    whole = isinstance(n_draws, Integral) and not isinstance(n_draws, bool)
    if errors == "bootstrap" and not (whole and n_draws >= LEAST_DRAWS):
        raise InputError(f"n_draws={n_draws!r} must be a whole number >= {LEAST_DRAWS}")
    table, lacking, ignored = with_all_columns(pca, X)
    rows = check_new_rows(pca, table, accept_sparse=["csr", "csc"], ensure_all_finite="allow-nan")
    random = check_random_state(random_state) if errors == "bootstrap" else None
    Z, variances, noise = pca.components_.T.astype(np.float64), pca.explained_variance_.astype(np.float64), entry_noise(pca)
    found, drawn, first = [], [], 0
    for Y, seen in _blocks(pca, rows):
        part = scores_of(Y, seen, Z, variances, noise)
        drawn += [] if random is None else [_bootstrapped(Y, seen, Z, part, n_draws, random)]
        found.append(replace(part, pattern=part.pattern + first))
        first += len(part.covariance)
    every = {name: np.concatenate([getattr(part, name) for part in found]) for name in ARRAYS}
    n, k = every["scores"].shape
    stretched = np.ones((n, k))
    if shrinkage == "corrected":
        used = _n_used(pca)
        residual = every["residual"] * max(used - k, 0) / np.maximum(every["observed"] - k, 1)
        lengths = pca.singular_values_.astype(np.float64)
        every["scores"], stretched = without_shrinkage(every["scores"], residual, lengths, pca.n_samples_seen_, used, noise)
    return Projection(
        scores=every["scores"],
        n_observed=every["observed"],
        from_prior=every["by_prior"][every["pattern"]],
        stretched=stretched,
        noise_variance=noise,
        lacking_features=lacking,
        ignored_features=ignored,
        n_draws=None if random is None else int(n_draws),
        _pattern=every["pattern"],
        _covariance=every["covariance"],
        _missing=every["missing"],
        _drawn=np.concatenate(drawn) if drawn else None,
    )


def with_all_columns(pca: Any, X: Any) -> tuple[Any, tuple[str, ...], tuple[str, ...]]:
    """A DataFrame with the model's columns in their order, NaN where it lacks one; what it lacked, and what is not the model's.

    Other tables, and all where the model has no names, are given back as they are.
    """
    names = getattr(pca, "feature_names_in_", None)
    if names is None or not hasattr(X, "reindex"):
        return X, (), ()
    wanted, held = [str(name) for name in names], [str(name) for name in X.columns]
    lacking, ignored = tuple(sorted(set(wanted) - set(held))), tuple(sorted(set(held) - set(wanted)))
    if len(lacking) == len(wanted):
        raise InputError(
            f"the table has none of the model's features, which are {', '.join(wanted[:SHOWN])}, ...; its columns are "
            f"{', '.join(held[:SHOWN])}, ...: rename them"
        )
    if len(set(held)) < len(held):
        raise InputError("the table has two columns of one name; rename them apart")
    return X.set_axis(held, axis=1).reindex(columns=wanted), lacking, ignored


def entry_noise(pca: Any) -> float:
    """Variance of a single entry about the components, by maximum likelihood: over all features that the model uses.

    ``noise_variance_`` is, as in scikit-learn, a mean over at most as many directions as there are rows; the others have none.
    """
    used, k = _n_used(pca), pca.n_components_
    if used <= k:
        return 0.0
    if getattr(pca, "missing", "refuse") == "em":  # whose noise is that of an entry
        return float(pca.noise_variance_)
    empty = {*pca.dropped_features_, *taken_out(pca.preparation_)}
    directions = min(int(pca.n_samples_seen_), int(pca.n_features_in_) - len(empty))
    return float(pca.noise_variance_) * float(max(directions - k, 0) / (used - k))


def _n_used(pca: Any) -> int:
    """Features that components hold any of."""
    return int(np.count_nonzero(np.any(pca.components_ != 0, axis=0)))


def _blocks(pca: Any, rows: Any) -> Iterator[tuple[Array, NDArray[np.bool_]]]:
    """A few rows at a time: centred and scaled as the model's (m x d), zeros where entries are missing; and where none is."""
    mean, scale = pca.mean_.astype(np.float64), pca.scale_.astype(np.float64)
    dropped = np.array(pca.dropped_features_, dtype=int)
    for where in slices(*rows.shape):
        block = rows[where]
        part = block.toarray() if scipy.sparse.issparse(block) else np.asarray(block)
        seen = ~np.isnan(part)
        changed = prepared(with_zeros(block if pca.preparation_ else part, dropped), pca.preparation_)
        changed = changed.toarray() if scipy.sparse.issparse(changed) else np.asarray(changed)
        seen &= ~np.isnan(changed)  # where a step makes an entry of others, of which one is missing
        seen[:, dropped] = False
        yield np.where(seen, (changed.astype(np.float64) - mean) / scale, 0.0), seen


def _bootstrapped(Y: Array, seen: NDArray[np.bool_], Z: Array, found: Scores, n_draws: int, random: Any) -> Array:
    """Covariance (m x k x k) of scores made anew ``n_draws`` times, with the row's own residuals drawn with replacement as noise.

    Residuals are enlarged for what the fit to the row took from them.  Rows whose scores are posterior means keep the model's
    covariance.
    """
    covariance = found.covariance[found.pattern]
    k, step, matters = Z.shape[1], max(1, DRAW_BLOCK // Z.shape[0]), np.any(Z != 0, axis=1)
    for i in np.flatnonzero(~found.by_prior[found.pattern] & (found.observed > Z.shape[1])):
        at = np.flatnonzero(seen[i] & matters)
        residual = Y[i, at] - Z[at] @ found.scores[i]
        residual = (residual - residual.mean()) * np.sqrt(len(at) / (len(at) - k))
        response = Z[at] @ found.solution[found.pattern[i]]
        sizes = (min(step, n_draws - n) for n in range(0, n_draws, step))
        drawn = [residual[random.randint(0, len(at), size=(size, len(at)))] @ response for size in sizes]
        covariance[i] = np.atleast_2d(np.cov(np.concatenate(drawn), rowvar=False))
    return covariance


def _check_choice(name: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise InputError(f"{name}={value!r} must be {' or '.join(map(repr, allowed))}")
