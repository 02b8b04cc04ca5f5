"""Plots of fitted estimators on matplotlib axes.  None needs rows that are elsewhere: rows to draw are given by the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from sklearn.utils.validation import check_is_fitted

from ..errors import InputError
from ..estimators.frames import split_off_sites
from .messages import bytes_text, what_left
from .pictures import MOST_BARS, draw_loadings, draw_points, draw_residuals, draw_variance, plain_frame, rounds_axis, short
from .styles import COLOURS

SHARES = (" of the variance", "")


def scree(pca: Any, ax: Axes | None = None) -> Axes:
    """Explained variance of each component, and of all up to it.

    >>> import numpy as np, eigenpact as ep
    >>> pca = ep.FederatedPCA(2).fit({"A": np.eye(3), "B": np.diag([3.0, 2.0, 1.0])})
    >>> ep.plot.scree(pca).get_ylabel()
    'explained variance (%)'
    """
    check_is_fitted(pca)
    shares = getattr(pca, "explained_variance_ratio_", None)
    if shares is None:
        raise InputError(f"{type(pca).__name__} has no shares of variance to draw; ep.plot.loadings shows its components")
    ax = _axes(ax)
    draw_variance(ax, np.asarray(shares)[:MOST_BARS])
    return ax


def loadings(pca: Any, component: int = 1, ax: Axes | None = None) -> Axes:
    """The features that weigh most in a component (from 1), with their signs."""
    check_is_fitted(pca)
    _check_component(pca, component)
    ax = _axes(ax)
    draw_loadings(ax, pca.components_[component - 1], _features(pca), f"PC{component}")
    return ax


def scores(
    pca: Any, X: Any, *, sites: Sequence[Any] | None = None, components: tuple[int, int] = (1, 2), ax: Axes | None = None
) -> Axes:
    """Scores of rows on two components (from 1), each site in its own colour and marker.

    Parameters
    ----------
    pca : fitted estimator
    X : (n, n_features) table, or a dict of tables by site
        Rows that are here; those of other sites stay where they are.
    sites : length n, or str, optional
        Label of each row of one table, or the name of the column of a DataFrame that holds them.
    """
    check_is_fitted(pca)
    for component in components:
        _check_component(pca, component)
    ax = _axes(ax)
    at = [component - 1 for component in components]
    parts = {name: np.asarray(pca.transform(rows))[:, at] for name, rows in _by_site(X, sites).items()}
    draw_points(ax, parts)
    shares = getattr(pca, "explained_variance_ratio_", None)  # robust and graph PCA know no total
    told = ["", ""] if shares is None else [f" ({100 * float(shares[j]):.1f} %{of})" for j, of in zip(at, SHARES, strict=True)]
    ax.set_xlabel(f"score on PC{components[0]}{told[0]}")
    ax.set_ylabel(f"score on PC{components[1]}{told[1]}")
    plain_frame(ax)
    return ax


def biplot(
    pca: Any,
    X: Any,
    *,
    sites: Sequence[Any] | None = None,
    components: tuple[int, int] = (1, 2),
    features: int = 8,
    ax: Axes | None = None,
) -> Axes:
    """Scores as :func:`scores`, and an arrow for each of the features that weigh most in the two components."""
    ax = scores(pca, X, sites=sites, components=components, ax=ax)
    weights = pca.components_[[component - 1 for component in components]]
    order = np.argsort(-np.hypot(*weights), kind="stable")[: max(0, features)]
    names = _features(pca)
    drawn = np.vstack([np.asarray(points.get_offsets()) for points in ax.collections])
    length = 0.9 * np.abs(drawn).max(axis=0).min() / max(np.hypot(*weights).max(), np.finfo(float).tiny)
    for j in order:
        x, y = length * weights[:, j]
        ax.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "->", "color": "0.25", "linewidth": 1.2})
        text = ax.annotate(short(names[j]), (1.06 * x, 1.06 * y), fontsize=9, ha="center", va="center", parse_math=False)
        text.set_bbox({"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.8})
    ax.axhline(0, color="0.85", linewidth=0.8, zorder=0)
    ax.axvline(0, color="0.85", linewidth=0.8, zorder=0)
    ax.margins(0.12)
    return ax


def convergence(pca: Any, ax: Axes | None = None) -> Axes:
    """The scaled KKT residual by round, where the solver knows it; of one estimator, or of a dict of them by name."""
    ax = _axes(ax)
    curves = {}
    for name, each in (pca if isinstance(pca, Mapping) else {"": pca}).items():
        check_is_fitted(each)
        known = [(record.round, record.kkt) for record in each.history_ if record.kkt is not None]
        if known:
            curves[str(name) or getattr(each, "solver_", "") or "residual"] = [r for r, _ in known], [kkt for _, kkt in known]
    if not curves:
        joint = all(type(each).__name__ == "FederatedPCA" for each in (pca.values() if isinstance(pca, Mapping) else [pca]))
        advice = ", or fit with solver='krylov'" if joint else "; what its rounds tell instead is in history_"
        raise InputError(f"no round has a residual: the solver computes none; draw traffic{advice}")
    draw_residuals(ax, curves)
    rounds_axis(ax)
    ax.legend(frameon=False)
    return ax


def traffic(pca: Any, ax: Axes | None = None) -> Axes:
    """Bytes that left the sites, by the local function that computed them, and what went to the sites."""
    check_is_fitted(pca)
    ax = _axes(ax)
    left = what_left(pca.ledger_)
    names = [f"{row.function}\n{row.times} x {row.shapes}" for row in left] + ["to the sites"]
    sizes = [row.bytes for row in left] + [pca.ledger_.bytes_down]
    colours = [COLOURS[3] if row.setup else COLOURS[0] for row in left] + [COLOURS[2]]
    place = np.arange(len(names))[::-1]
    bars = ax.barh(place, sizes, color=colours)
    ax.bar_label(bars, [f" {bytes_text(size)}" for size in sizes], fontsize=9)
    ax.set_yticks(place, names, fontsize=9, parse_math=False)
    ax.margins(x=0.18)
    ax.xaxis.set_major_formatter(lambda size, _: bytes_text(size).replace(".0 ", " "))
    ax.set_xlabel("bytes, all sites (grey: set-up)")
    plain_frame(ax)
    return ax


def parts(model: Any, ax: Axes | None = None) -> Axes:
    """Variance of the shared components of a fitted ``PersonalizedPCA``, and of each site's own ones, for sites that are here."""
    check_is_fitted(model)
    if not hasattr(model, "local_explained_variance_"):
        raise InputError(f"{type(model).__name__} has no parts of single sites; give a fitted PersonalizedPCA")
    ax = _axes(ax)
    own = {"shared": model.explained_variance_, **model.local_explained_variance_.held}
    for i, values in enumerate(own.values()):
        below = 0.0
        for j, value in enumerate(np.asarray(values, dtype=float)):
            colour = COLOURS[0] if i == 0 else COLOURS[1]
            ax.bar(i, value, bottom=below, color=colour, alpha=max(0.35, 1 - 0.18 * j), edgecolor="white", linewidth=0.8)
            below += value
    ax.set_xticks(np.arange(len(own)), list(own), rotation=30 if len(own) > 6 else 0, parse_math=False)
    ax.set_ylabel("variance, one piece for each component")
    plain_frame(ax)
    return ax


def _axes(ax: Axes | None) -> Axes:
    """The axes to draw on; new ones of pyplot's, which notebooks show, if none are given."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained")[1]


def _by_site(X: Any, sites: Sequence[Any] | None) -> dict[str, Any]:
    if isinstance(X, Mapping):
        if sites is not None:
            raise InputError("sites= labels the rows of one table; X already comes by site, so leave sites out")
        return {str(name): rows for name, rows in X.items()}
    if sites is None:
        return {"": X}
    X, sites = split_off_sites(X, sites)
    labels = np.asarray(sites)
    if labels.shape != (len(X),):
        raise InputError(f"sites has {labels.size} labels for {len(X)} rows; give one label per row")
    take = X.iloc if hasattr(X, "iloc") else X
    return {str(label): take[np.flatnonzero(labels == label)] for label in dict.fromkeys(labels.tolist())}


def _features(pca: Any) -> list[str]:
    names = getattr(pca, "feature_names_in_", None)
    return [f"feature {j}" for j in range(pca.components_.shape[1])] if names is None else [str(name) for name in names]


def _check_component(pca: Any, component: int) -> None:
    k = len(pca.components_)
    if not 1 <= component <= k:
        raise InputError(f"component {component} is not there: the model has {k}, counted from 1")
