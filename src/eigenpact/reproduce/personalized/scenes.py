"""Pictures of the personalized PCA paper that are not curves: arrows, maps of sites, pictures in rows, and words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from sklearn.manifold import MDS

from ...numerics.linalg import Array
from ...report.styles import COLOURS
from ..drawing import axes_of, new_figure

CLUSTER_COLOURS = colormaps["tab10"]

SIDE = 2.1
"""Inches that a picture is wide."""


def rows_of_pictures(title: str, rows: Mapping[str, Sequence[Array]], columns: Sequence[str]) -> Figure:
    """Grey pictures in rows, each row with its own range of grey."""
    height, width = next(iter(rows.values()))[0].shape
    tall = 0.6 + SIDE * height / width * len(rows)
    figure = new_figure(title, 1.2 + SIDE * len(columns), tall, dpi=80, fontsize=11)
    axes = axes_of(figure, len(rows), len(columns))
    for i, (name, pictures) in enumerate(rows.items()):
        low, high = np.quantile(np.stack(list(pictures)), [0.005, 0.995])
        for j, picture in enumerate(pictures):
            axes[i, j].imshow(picture, cmap="gray", vmin=low, vmax=high, interpolation="nearest")
            axes[i, j].set(xticks=[], yticks=[])
        axes[i, 0].set_ylabel(name, fontsize=9)
    for j, name in enumerate(columns):
        axes[0, j].set_title(name, fontsize=9, parse_math=False)
    return figure


def maps(title: str, shown: Mapping[str, tuple[Array, Sequence[int], Sequence[int]]], columns: int) -> Figure:
    """Sites in the plane by multidimensional scaling of their distances, a map for each name, so many in a row.

    Colours are the clusters found, numbers the true groups.
    """
    lines = -(-len(shown) // columns)
    figure = new_figure(title, max(9.0, 4.2 * columns), 4.4 * lines, dpi=90, fontsize=12)
    axes = axes_of(figure, lines, columns).flat
    for ax, (name, (distances, found, truth)) in zip(axes, shown.items(), strict=False):
        scaling = MDS(n_components=2, metric="precomputed", init="random", n_init=1, random_state=0)
        for (x, y), cluster, group in zip(scaling.fit_transform(distances), found, truth, strict=True):
            colour = CLUSTER_COLOURS(cluster % CLUSTER_COLOURS.N)
            ax.text(x, y, str(group), color=colour, fontsize=10, weight="bold", ha="center", va="center")
            ax.plot([x], [y], marker="o", markersize=11, markerfacecolor="none", markeredgecolor=colour, alpha=0.7)
        ax.set(xticks=[], yticks=[])
        ax.margins(0.08)
        ax.set_title(name, fontsize=10)
    return figure


def arrows(title: str, sites: Mapping[str, Array], models: Mapping[str, Any]) -> Figure:
    """Rows in three dimensions with the components that models found: black ones are global."""
    figure = new_figure(title, 5.2 * len(models), 5.0, dpi=90, fontsize=12, layout=None)
    for i, (name, model) in enumerate(models.items()):
        ax: Any = figure.add_subplot(1, len(models), i + 1, projection="3d")
        for site, colour in zip(sites, (COLOURS[0], COLOURS[2]), strict=True):
            some = sites[site][:150]
            ax.scatter(*some.T, color=colour, s=9, alpha=0.7, label=site if i == 0 else None)
            for v in model.local_components_[site]:
                ax.quiver(0, 0, 0, *(2.5 * v), color=colour, linewidth=2.5)
        for u in model.components_:
            ax.quiver(0, 0, 0, *(2.5 * u), color="black", linewidth=2.5)
        ax.set_title(name)
        ax.set(xlim=(-3, 3), ylim=(-3, 3), zlim=(-3, 3))
    figure.legend(loc="lower center", ncols=2)
    return figure


def lines_of_words(title: str, lines: Mapping[str, Sequence[str]]) -> Figure:
    """A line of words for each name, the name in bold."""
    figure = new_figure(title, 9.5, 5.2, dpi=90, fontsize=12, layout=None)
    ax = figure.add_axes((0, 0, 1, 0.92))
    ax.set_axis_off()
    for i, (name, words) in enumerate(lines.items()):
        y = 1 - (i + 0.7) / len(lines)
        ax.text(0.02, y, name, fontsize=10, weight="bold", transform=ax.transAxes, parse_math=False)
        ax.text(0.12, y, ", ".join(words), fontsize=10, transform=ax.transAxes, parse_math=False)
    return figure
