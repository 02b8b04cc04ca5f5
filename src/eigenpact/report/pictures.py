"""Pictures of a fitted model.  Every function returns a matplotlib ``Figure`` of its own; nothing global is touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, LogLocator, MaxNLocator, NullLocator

from ..numerics.linalg import Array
from ..storage import replacing
from .messages import bytes_text
from .styles import COLOURS, MARKERS, draw_curves, looks

Shape = tuple[int, int]
Curves = Mapping[str, tuple[Sequence[int], Sequence[float]]]

SMALLEST_KKT = 1e-17
"""Residuals of zero are drawn here, on a logarithmic axis."""

MOST_NAMED = 25
"""Sites that have a line in a legend."""

LINES_OF_A_COLUMN = 13
"""Of a legend."""

MANY_POINTS = 5000
"""From here on points are small."""

MOST_BARS = 50
"""Components in a scree plot."""

LOADED_COMPONENTS, LOADED_FEATURES = 4, 8
"""How many components, and how many features of each, the loadings show."""


def components_and_scores(
    components: Array, image_shape: Shape, scores: Mapping[str, Array], shares: Sequence[float], convergence: Curves, title: str
) -> Figure:
    """Components as images above; below, scores by site and the KKT residual by round.

    Parameters
    ----------
    components : (k, height * width) array
    image_shape : (height, width)
    scores : site -> (n_i, 2) array
    shares : length k, explained variance ratios
    convergence : solver -> (rounds, residuals)
    title : str
    """
    figure = Figure(figsize=(13, 8), dpi=110, layout="constrained")
    above, below = np.asarray(figure.subfigures(2, 1, height_ratios=(1.2, 3)), dtype=object)
    above.suptitle(f"{title}\n", fontsize=13)
    _images(above, components, image_shape, shares)
    left, right = below.subplots(1, 2, width_ratios=(1.25, 1))
    _scores(left, scores, shares)
    _convergence(right, convergence)
    return figure


def scree(components: Array, shares: Sequence[float], feature_names: Sequence[str] | None, title: str) -> Figure:
    """Explained variance by component, and the features that weigh most in the first components.

    Parameters
    ----------
    components : (k, n_features) array
    shares : length k, explained variance ratios
    feature_names : length n_features, or None for numbers
    title : str
    """
    names = [f"feature {j}" for j in range(components.shape[1])] if feature_names is None else list(feature_names)
    shown = min(LOADED_COMPONENTS, len(components))
    figure = Figure(figsize=(6 + 2.6 * shown, 5), dpi=110, layout="constrained")
    figure.suptitle(title, fontsize=12, parse_math=False)
    axes = figure.subplots(1, 1 + shown, width_ratios=(2.2, *(1,) * shown))
    draw_variance(axes[0], np.asarray(shares)[:MOST_BARS])
    for j in range(shown):
        draw_loadings(axes[1 + j], components[j], names, f"PC{j + 1}")
    return figure


def scores(points: Array, shares: Sequence[float], labels: Sequence[str] | None = None) -> Figure:
    """Scores (n x 2) of rows on two components; of one component (n x 1), how many rows have which.

    Rows have a colour and a marker by their label, if there are some.
    """
    figure = Figure(figsize=(7, 6), dpi=110, layout="constrained")
    ax = figure.subplots()
    ax.set_xlabel(f"score on PC1 ({100 * shares[0]:.1f} % of the variance)")
    if points.shape[1] == 1:
        ax.hist(points[:, 0], bins="auto" if len(points) < 10_000 else 100, color=COLOURS[0])
        ax.set_ylabel("rows")
    else:
        by = np.asarray([""] * len(points) if labels is None else labels, dtype=object)
        draw_points(ax, {str(name): points[by == name] for name in dict.fromkeys(by.tolist())}, rasterized=True)
        ax.set_ylabel(f"score on PC2 ({100 * shares[1]:.1f} %)")
    ax.set_title(f"Scores of {len(points)} rows", fontsize=11)
    plain_frame(ax)
    return figure


def convergence(
    curves: Mapping[str, tuple[Sequence[int], Sequence[int], Sequence[float]]], tol: float, pooled_bytes: int, title: str
) -> Figure:
    """The KKT residual of every solver against rounds, and against bytes.

    Parameters
    ----------
    curves : solver -> (rounds, bytes so far, residuals)
    tol : float
        Drawn as a line.
    pooled_bytes : int
        What sending all rows takes, drawn as a line.
    title : str
    """
    figure = Figure(figsize=(13, 6), dpi=110, layout="constrained")
    figure.suptitle(title, fontsize=13, parse_math=False)
    left, right = figure.subplots(1, 2, sharey=True)
    draw_residuals(left, {solver: (rounds, residuals) for solver, (rounds, _, residuals) in curves.items()})
    draw_residuals(right, {solver: (sizes, residuals) for solver, (_, sizes, residuals) in curves.items()})
    for ax in (left, right):
        ax.axhline(tol, color="0.35", linestyle="--", linewidth=1.2, label=f"tolerance {tol:g}")
    rounds_axis(left)
    _bytes_axis(right, pooled_bytes)
    handles, labels = right.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    return figure


def save_picture(figure: Figure, path: Path) -> None:
    """Write a figure to .png, .pdf or .svg; the file appears complete or not at all."""
    with replacing(path) as part:
        figure.savefig(part)


def _images(figure: Any, components: Array, image_shape: Shape, shares: Sequence[float]) -> None:
    axes = np.atleast_1d(figure.subplots(1, len(components)))
    for j, (ax, component) in enumerate(zip(axes, components, strict=True)):
        largest = float(np.abs(component).max())
        ax.imshow(component.reshape(image_shape), cmap="PuOr", vmin=-largest, vmax=largest, interpolation="nearest")
        ax.set_title(f"PC{j + 1}\n{100 * shares[j]:.1f} %", fontsize=10)
        ax.set_xticks([])
        ax.set_yticks([])


def _scores(ax: Axes, scores: Mapping[str, Array], shares: Sequence[float]) -> None:
    draw_points(ax, scores)
    ax.set_xlabel(f"score on PC1 ({100 * shares[0]:.1f} % of the variance)")
    ax.set_ylabel(f"score on PC2 ({100 * shares[1]:.1f} %)")
    ax.set_title("Scores by site", fontsize=11)
    plain_frame(ax)


def draw_points(ax: Axes, parts: Mapping[str, Array], *, rasterized: bool = False) -> None:
    """Points (n_i x 2) by site, each site in its own colour and marker, named beside the picture, where no point lies."""
    total = sum(len(points) for points in parts.values())
    size, alpha = (14, 0.75) if total < MANY_POINTS else (3, 0.3)
    for i, (site, points) in enumerate(parts.items()):
        colour, marker = COLOURS[i % len(COLOURS)], MARKERS[(i + i // len(COLOURS)) % len(MARKERS)]
        label = site if i < MOST_NAMED else None
        looks: dict[str, Any] = {"s": size, "color": colour, "marker": marker, "linewidths": 0, "alpha": alpha, "label": label}
        ax.scatter(points[:, 0], points[:, 1], rasterized=rasterized, **looks)
    if len(parts) > 1:
        title = "site" if len(parts) <= MOST_NAMED else f"site, {MOST_NAMED} of {len(parts)}"
        columns = 1 + (min(len(parts), MOST_NAMED) - 1) // LINES_OF_A_COLUMN
        legend = ax.legend(
            title=title, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, markerscale=1.6 * 14 / size, ncols=columns
        )
        for handle in legend.legend_handles:
            if handle is not None:
                handle.set_alpha(1)


def _convergence(ax: Axes, convergence: Curves) -> None:
    draw_residuals(ax, convergence)
    rounds_axis(ax)
    ax.set_title("Convergence of the iterative solvers", fontsize=11)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2, frameon=False)


def draw_residuals(ax: Axes, curves: Curves) -> None:
    """One line per solver on logarithmic axes: something that grows from round to round, and the residual."""
    ax.set_xscale("log")
    ax.set_yscale("log")
    shown = {name: (xs, np.maximum(np.asarray(residuals, dtype=float), SMALLEST_KKT)) for name, (xs, residuals) in curves.items()}
    draw_curves(ax, shown, looks(curves), marked=12)
    ax.set_ylabel("scaled KKT residual")
    ax.grid(True, which="major", color="0.9", linewidth=0.8)
    plain_frame(ax)


def rounds_axis(ax: Axes) -> None:
    ax.set_xlabel("round")
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_locator(NullLocator())


def _bytes_axis(ax: Axes, pooled_bytes: int) -> None:
    ax.axvline(pooled_bytes, color="0.35", linestyle=":", linewidth=1.4, label="sending all rows")
    ax.set_xlabel("bytes up and down so far, all sites, with set-up")
    low, high = ax.get_xlim()
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0,) if high > 1000 * low else (1.0, 2.0, 5.0)))
    ax.xaxis.set_major_formatter(lambda size, _: bytes_text(size).replace(".0 ", " "))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_ylabel("")


def draw_variance(ax: Axes, shares: Array) -> None:
    number = np.arange(1, len(shares) + 1)
    ax.bar(number, 100 * shares, color=COLOURS[0], label="one component")
    if len(shares) > 1:
        ax.plot(number, 100 * np.cumsum(shares), color=COLOURS[2], marker="o", markersize=4, label="all up to it")
        ax.legend(loc="center right", frameon=False)
    room = max(0.0, 3 - len(shares)) / 2  # else a single bar is as wide as the picture
    ax.set_xlim(0.4 - room, len(shares) + 0.6 + room)
    ax.set_ylim(0, 105)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1) if len(shares) > 2 else FixedLocator(number.tolist()))
    ax.set_xlabel("component")
    ax.set_ylabel("explained variance (%)")
    plain_frame(ax)


def draw_loadings(ax: Axes, component: Array, names: Sequence[str], title: str) -> None:
    order = np.argsort(-np.abs(component), kind="stable")[:LOADED_FEATURES][::-1]
    labels = [short(names[j]) for j in order]
    colours = [COLOURS[0] if component[j] >= 0 else COLOURS[6] for j in order]
    ax.barh(np.arange(len(order)), component[order], color=colours)
    ax.set_yticks(np.arange(len(order)), labels, fontsize=9, parse_math=False)
    ax.axvline(0, color="0.4", linewidth=0.8)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=3))
    ax.set_xlabel("loading")
    ax.set_title(title, fontsize=11)
    plain_frame(ax)


def short(name: str, length: int = 16) -> str:
    plain = "".join(c if c.isprintable() else "?" for c in name[:length])
    return plain if len(name) <= length else plain[: length - 1] + "…"


def plain_frame(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
