"""``ep.suggest_components``: how many components, by held-out entries, by permuted columns, or by the elbow, across sites.

Held-out entries
    Each site hides a share of its entries, chosen by a stream of its own, and takes part in fits with ``missing="em"`` for 1, 2,
    3, ... components; for none, means predict.  It predicts what it hid, and tells sums of squared errors, and of their products,
    no more.  Suggested is the smallest number whose error is not clearly above the least: not by more than one standard error of
    the difference.
Parallel analysis
    Each site permutes every column among its own rows, which leaves variances and its mean as they are and takes correlations
    away.  Suggested are the leading components with more variance than 95 % of those of permuted rows.  What lies between the
    sites' means is not permuted, so it does not count as a component.  Beside a few components with most of the variance, weaker
    ones are overlooked.
Elbow
    The logarithms of the variances are divided into two groups, each normal about its own mean, with one variance in common.
    Suggested is the division that is most likely (Zhu and Ghodsi, there without logarithms).

References
    S. Wold, "Cross-validatory estimation of the number of components", Technometrics 20 (1978); J. L. Horn, "A rationale and test
    for the number of factors in factor analysis", Psychometrika 30 (1965); M. Zhu, A. Ghodsi, "Automatic dimensionality selection
    from the scree plot via the use of profile likelihood", Comput. Stat. Data Anal. 51 (2006).

>>> import numpy as np, eigenpact as ep
>>> rng = np.random.default_rng(0)
>>> X = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 12)) * 2 + rng.normal(size=(200, 12))
>>> [ep.suggest_components(X, max_components=6, method=m, random_state=0).n_components for m in ("held-out", "parallel", "elbow")]
[3, 3, 3]
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse
from sklearn.base import clone
from sklearn.utils import check_random_state

from ..algorithms.missing.em import EM
from ..errors import InputError
from ..estimators.inputs import hold
from ..estimators.pca import FederatedPCA
from ..numerics.elsewhere import is_elsewhere, to_numpy
from ..numerics.linalg import Array
from .watching import unwarned

Way = Literal["held-out", "parallel", "elbow"]

QUANTILE = 0.95
"""Of the variances of permuted rows, which a component must exceed."""

ROUGHLY, MOST_ROUNDS = 1e-3, 100
"""Where fits to what is left of held-out entries may stop: components beyond the true ones have nothing to come to rest at."""

PERMUTATIONS = 20
"""Times that columns are permuted."""


@dataclass(frozen=True)
class Suggestion:
    """How many components are suggested, and why.

    Attributes
    ----------
    n_components : int
    method : str
    table : list of dict
        A row for each number of components: "components" and, by method, "error" (mean square of what was held out, in the scale
        in use) and "above_least" (in standard errors of the difference); or "variance" and "permuted"; or "variance" and
        "log_likelihood".
    """

    n_components: int
    method: str
    table: list[dict[str, float]]

    def __str__(self) -> str:
        names = list(self.table[0])
        lines = ["  ".join(f"{name:>14}" for name in names)]
        lines += [
            "  ".join(f"{row[name]:14d}" if name == names[0] else f"{row[name]:14.6g}" for name in names) for row in self.table
        ]
        return "\n".join([*lines, f"suggested by {self.method}: {self.n_components}"])

    def picture(self) -> Any:
        """The table as a matplotlib ``Figure``."""
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        figure = Figure(figsize=(6.5, 4), dpi=110, layout="constrained")
        ax = figure.subplots()
        numbers = [row["components"] for row in self.table]
        for name in ("error", "variance", "permuted"):
            if name in self.table[0]:
                ax.plot(numbers, [row[name] for row in self.table], marker="o", label=name)
        ax.axvline(self.n_components, color="0.6", linestyle="--", label=f"suggested: {self.n_components}")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set(xlabel="components", ylabel="mean square error" if self.method == "held-out" else "variance", title=self.method)
        ax.legend()
        return figure


def suggest_components(
    X: Any,
    *,
    sites: Any = None,
    max_components: int = 10,
    method: Way = "held-out",
    share: float = 0.1,
    center: Any = "pooled",
    scale: Any = None,
    prepare: Sequence[Any] = (),
    random_state: Any = None,
    engine: Any = "inprocess",
    secure: Any = False,
) -> Suggestion:
    """How many components the rows of all sites together have; X and ``sites`` as for ``FederatedPCA.fit``.

    Entries may be missing (NaN).  What is hidden or permuted is done to copies of the rows, where they are; so the rows must be
    given to this call, not held by an engine.

    Parameters
    ----------
    max_components : int
        The most that are tried.
    method : "held-out", "parallel" or "elbow"
        By the error of predicting held-out entries; by variances of permuted columns; by where variances stop falling.
    share : float
        Of the entries of each site that is held out.
    center, scale, prepare, engine, secure
        As for ``FederatedPCA``; "held-out" takes no ``center="site"``.  Prepared rows are hidden or permuted.
    random_state : int, RandomState or None
    """
    _check(method, max_components, share)
    estimator = FederatedPCA(1, center=center, scale=scale, engine=engine, secure=secure)
    seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    held = hold(estimator, _here(X), sites, gaps=True)
    rows = {name: _dense(part) for name, part in (_prepared(estimator, held, prepare) if len(prepare) else held).items()}
    n, d = sum(len(part) for part in rows.values()), next(iter(rows.values())).shape[1]
    most = min(d - 1, n - 1) if method == "held-out" else min(d, n)
    if max_components > most:
        raise InputError(f"max_components={max_components} is more than {most}, which {n} rows of {d} features allow; give fewer")
    if method == "held-out":
        return _held_out(estimator, rows, max_components, share, seed)
    whole = "mean" if any(np.isnan(part).any() for part in rows.values()) else "refuse"
    estimator.set_params(n_components=max_components, missing=whole, random_state=seed)
    with unwarned():
        variances = estimator.fit(rows).explained_variance_
        return _elbow(variances) if method == "elbow" else _parallel(estimator, rows, variances, seed)


def _check(method: str, max_components: Any, share: Any) -> None:
    if method not in get_args(Way):
        raise InputError(f"method={method!r} must be 'held-out', 'parallel' or 'elbow'")
    least = 2 if method == "elbow" else 1
    if not isinstance(max_components, Integral) or isinstance(max_components, bool) or max_components < least:
        raise InputError(f"max_components={max_components!r} must be a whole number >= {least}")
    if not isinstance(share, float) or not 0 < share < 1:
        raise InputError(f"share={share!r} must be a share of the entries between 0 and 1, for example 0.1")


def _here(X: Any) -> Any:
    """Rows, or those of each site, in numpy where another library holds them: copies are made anyway."""
    if isinstance(X, Mapping) and not scipy.sparse.issparse(X):
        return {name: _here(part) for name, part in X.items()}
    if isinstance(X, list | tuple):
        return [_here(part) for part in X]
    return to_numpy(X) if is_elsewhere(X) else X


def _prepared(estimator: FederatedPCA, rows: Mapping[str, Any], prepare: Sequence[Any]) -> dict[str, Array]:
    """Rows by site as ``prepare`` makes them, of which the sites agree once; without features that it leaves out of all rows."""
    with unwarned():
        model = clone(estimator).set_params(prepare=prepare).fit(rows)
    made = {}
    for name, part in rows.items():
        own = model.for_site(part)
        X: Any = own._checked_rows(part)
        for step in own.preparation_:
            X = step.apply(X)
        made[name] = _dense(X)
    used = np.any([part.any(axis=0) for part in made.values()], axis=0)
    return {name: part[:, used] for name, part in made.items()}


def _dense(part: Any) -> Array:
    part = part.toarray() if scipy.sparse.issparse(part) else part[:]
    return np.array(part.toarray() if scipy.sparse.issparse(part) else part, dtype=np.float64)


def _stream(name: str, seed: int, turn: int = 0) -> np.random.Generator:
    """A site's own."""
    told = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    return np.random.default_rng([seed, turn, told])


def _held_out(estimator: FederatedPCA, rows: Mapping[str, Array], most: int, share: float, seed: int) -> Suggestion:
    """By the squares of errors (K + 1 of each hidden entry), of which sites tell sums and sums of products."""
    hidden = {name: (_stream(name, seed).random(part.shape) < share) & ~np.isnan(part) for name, part in rows.items()}
    left = {name: np.where(hidden[name], np.nan, part) for name, part in rows.items()}
    _check_left(hidden, left, share)
    squares: dict[str, list[Array]] = {name: [] for name in rows}
    estimator.set_params(missing="em", solver=EM(angle_tol=ROUGHLY), max_rounds=MOST_ROUNDS, random_state=seed)
    for k in range(1, most + 1):
        with unwarned():
            pca = estimator.set_params(n_components=k).fit(left)
        for name, part in rows.items():
            at = hidden[name]
            if k == 1:
                squares[name].append((((part - pca.preparation_[0].arrays["mean"]) / pca.scale_)[at]) ** 2)
            expected = pca.preparation_[0].apply(left[name])
            squares[name].append((((part - expected) / pca.scale_)[at]) ** 2)
    errors = {name: np.array(found) for name, found in squares.items()}
    count = sum(found.shape[1] for found in errors.values())
    sums: Array = np.sum([found.sum(axis=1) for found in errors.values()], axis=0)
    products: Array = np.sum([found @ found.T for found in errors.values()], axis=0)
    mean = sums / count
    covariance = (products - count * np.outer(mean, mean)) / (count - 1)
    best = int(np.argmin(mean))
    spread = np.diagonal(covariance) + covariance[best, best] - 2 * covariance[best]
    error = np.sqrt(np.maximum(spread, 0.0) / count)
    above = np.divide(mean - mean[best], error, out=np.zeros(len(mean)), where=error > 0)
    table = [
        {"components": k, "error": float(e), "above_least": float(a)} for k, (e, a) in enumerate(zip(mean, above, strict=True))
    ]
    return Suggestion(int(np.flatnonzero(above <= 1)[0]), "held-out", table)


def _check_left(hidden: Mapping[str, Any], left: Mapping[str, Array], share: float) -> None:
    """Refuse to compare by too few hidden entries, or to predict from too few that are left."""
    count = sum(int(at.sum()) for at in hidden.values())
    if count < 2:
        raise InputError(
            f"a share of {share:g} hides {count} entries of all sites, too few to compare by; hide more, or give more rows"
        )
    held: Array = np.sum([at.sum(axis=0) for at in hidden.values()], axis=0)
    rest: Array = np.sum([(~np.isnan(part)).sum(axis=0) for part in left.values()], axis=0)
    lost, advice = (
        np.flatnonzero((rest == 0) & (held > 0)),
        "hide a smaller share, give more rows, or use method parallel or elbow",
    )
    if len(lost):
        told = f"feature {lost[0]}" + (f" and {len(lost) - 1} more" if len(lost) > 1 else "")
        raise InputError(f"hiding a share of {share:g} of the entries leaves none of {told} to predict from; {advice}")
    if np.all(rest < 2):
        raise InputError(f"hiding a share of {share:g} of the entries leaves no feature with two of them; {advice}")


def _parallel(estimator: FederatedPCA, rows: Mapping[str, Array], variances: Array, seed: int) -> Suggestion:
    """By variances of rows whose columns each site has permuted."""
    found = []
    for turn in range(PERMUTATIONS):
        permuted = {name: _stream(name, seed, turn + 1).permuted(part, axis=0) for name, part in rows.items()}
        found.append(estimator.fit(permuted).explained_variance_)
    limits = np.quantile(found, QUANTILE, axis=0)
    table = [
        {"components": k + 1, "variance": float(v), "permuted": float(p)}
        for k, (v, p) in enumerate(zip(variances, limits, strict=True))
    ]
    return Suggestion(int(np.argmin(np.append(variances > limits, False))), "parallel", table)


def _elbow(variances: Array) -> Suggestion:
    """By the profile likelihood of two groups of variances."""
    m, tiny = len(variances), float(np.finfo(float).tiny)
    logs = np.log(np.maximum(variances, tiny))

    def likely(q: int) -> float:
        inside = sum(((part - part.mean()) ** 2).sum() for part in (logs[:q], logs[q:]) if len(part))
        return -0.5 * m * float(np.log(max(inside / max(1, m - 2), tiny)))

    told = [likely(q) for q in range(1, m + 1)]
    table = [
        {"components": k + 1, "variance": float(v), "log_likelihood": float(t)}
        for k, (v, t) in enumerate(zip(variances, told, strict=True))
    ]
    return Suggestion(int(np.argmax(told)) + 1, "elbow", table)
