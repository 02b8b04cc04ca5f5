"""Pictures of a fit on a graph: nodes coloured by a number of theirs, and one node's scores beside the central ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import networkx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..numerics.linalg import Array
from ..runtime import Graph
from .styles import COLOURS, MARKERS

Places = Mapping[str, tuple[float, float]]


def graph_and_scores(
    title: str,
    graph: Graph,
    values: Mapping[str, float],
    meaning: str,
    scores: Mapping[str, tuple[Array, Array]],
    labels: Array,
    places: Places | None = None,
) -> Figure:
    """The graph, its nodes coloured by ``values``; beside it scatters of the first two scores.

    Parameters
    ----------
    title : str
    graph : node -> neighbours
    values : node -> number, whose ``meaning`` stands at the colour bar
    scores : title of a scatter -> ((n,) first scores, (n,) second scores)
    labels : (n,) what to colour the points by
    places : node -> (x, y), optional; else chosen so that neighbours are near
    """
    figure = Figure(figsize=(5.6 + 4.4 * len(scores), 4.8), dpi=110, layout="constrained")
    figure.suptitle(title, fontsize=13, parse_math=False)
    axes = np.atleast_1d(np.asarray(figure.subplots(1, 1 + len(scores), width_ratios=(1.3, *[1.0] * len(scores))), dtype=object))
    _draw_graph(figure, axes[0], graph, values, meaning, places)
    for ax, (name, (first, second)) in zip(axes[1:], scores.items(), strict=True):
        for i, label in enumerate(np.unique(labels)):
            of_label = labels == label
            marker, colour = MARKERS[i % len(MARKERS)], COLOURS[i % len(COLOURS)]
            ax.scatter(first[of_label], second[of_label], s=14, alpha=0.6, marker=marker, color=colour, label=str(label))
        ax.set_title(name, fontsize=11, parse_math=False)
        ax.set_xlabel("component 1")
        ax.set_ylabel("component 2")
        ax.spines[["top", "right"]].set_visible(False)
    if len(scores):
        handles, names = axes[-1].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower right", ncols=len(names), frameon=False)
    return figure


def _draw_graph(figure: Figure, ax: Axes, graph: Graph, values: Mapping[str, float], meaning: str, places: Places | None) -> None:
    drawn: Any = networkx.Graph([(a, b) for a, others in graph.items() for b in others])
    at = places or networkx.kamada_kawai_layout(drawn)
    for a, b in drawn.edges:
        ax.plot([at[a][0], at[b][0]], [at[a][1], at[b][1]], color="0.75", linewidth=1.0, zorder=1)
    names = list(graph)
    x, y = np.array([at[name] for name in names]).T
    points = ax.scatter(x, y, c=[values[name] for name in names], cmap="viridis", s=110, edgecolors="0.2", zorder=2)
    for name in names:
        ax.annotate(name, at[name], textcoords="offset points", xytext=(0, 8), ha="center", fontsize=7)
    figure.colorbar(points, ax=ax, label=meaning, shrink=0.8)
    ax.set_axis_off()
    ax.margins(0.12)
