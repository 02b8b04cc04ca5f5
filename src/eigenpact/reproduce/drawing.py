"""Figures of the reproductions.  Every function returns a matplotlib ``Figure`` of its own; nothing global is touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from ..report.styles import Look, draw_curves, looks

PANEL_WIDTH, PANEL_HEIGHT = 5.4, 4.4
LEGEND_MARK, LEGEND_LETTER = 0.75, 0.083
"""Inches that an entry of the legend takes: its mark with the space around it, and each letter."""

FOOTER = 0.24
"""Inches below a figure for the line that says where it comes from."""

SMALLEST = 1e-17
"""Zero is drawn here, on a logarithmic axis."""

Curve = tuple[Sequence[float], Sequence[float | None]]
Heights = Mapping[str, Sequence[float | None]]


def by_first(rows: Sequence[Sequence[Any]], columns: Mapping[str, int]) -> dict[str, Curve]:
    """Curves from the rows of a table: name -> a column, against the first one."""
    return {name: ([row[0] for row in rows], [row[j] for row in rows]) for name, j in columns.items()}


def by_round(runs: Sequence[Any], what: str, least: float = 0.0) -> dict[str, Curve]:
    """Curves of runs that have a name and points: an attribute of the points, not below ``least``, against the round."""
    return {run.name: ([p.round for p in run.curve], [max(getattr(p, what), least) for p in run.curve]) for run in runs}


def from_one(values: Sequence[float]) -> Curve:
    """A curve of values after rounds 1, 2, ..."""
    return range(1, len(values) + 1), values


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes
    ----------
    title, xlabel, ylabel : str
    curves : name -> (xs, ys); a y of None is not drawn
    stars : name -> (x, y)
        The paper's own numbers.
    missed : name -> (xs, ys)
        Hollow markers: what was not reached, at the rounds that were tried.
    level : float, optional
        A horizontal line, called ``level_name``.
    every : bool
        Mark every point, and set the xs side by side at equal distances.
    log_x, log_y : bool
    """

    title: str
    xlabel: str
    ylabel: str
    curves: Mapping[str, Curve]
    stars: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    missed: Mapping[str, Curve] = field(default_factory=dict)
    level: float | None = None
    level_name: str = ""
    every: bool = False
    log_x: bool = False
    log_y: bool = True


def new_figure(title: str, width: float, height: float, *, dpi: int = 110, fontsize: int = 13, **options: Any) -> Figure:
    """An empty figure (inches) with a title."""
    figure = Figure(figsize=(width, height), dpi=dpi, **{"layout": "constrained"} | options)
    figure.suptitle(title, fontsize=fontsize, parse_math=False)
    return figure


def sign(figure: Figure, text: str) -> None:
    """Say in small print below a figure where it comes from."""
    height = float(figure.get_figheight()) + FOOTER
    figure.set_figheight(height)
    layout = figure.get_layout_engine()
    if isinstance(layout, ConstrainedLayoutEngine):
        layout.set(rect=(0.0, FOOTER / height, 1.0, 1.0 - FOOTER / height))
    for legend in figure.legends:  # it stands at the figure's edge, whatever the layout
        legend.borderaxespad = FOOTER * 72 / float(legend.get_texts()[0].get_fontsize())
    figure.text(0.995, 0.06 / height, text, ha="right", va="bottom", fontsize=8, color="0.35", parse_math=False)


def axes_of(figure: Figure, rows: int, columns: int) -> Any:
    """Pairs of axes (rows x columns)."""
    return np.asarray(figure.subplots(rows, columns, squeeze=False), dtype=object)


def panels(title: str, grid: Sequence[Sequence[Panel]]) -> Figure:
    """Rows of panels with one legend below; a name looks the same in all of them, and a solver in all pictures."""
    columns = max(len(row) for row in grid)
    figure = new_figure(title, max(9.5, PANEL_WIDTH * columns), PANEL_HEIGHT * len(grid) + 1.2)
    names = list(dict.fromkeys(name for row in grid for panel in row for name in [*panel.curves, *panel.stars]))
    styles = looks(names)
    axes = axes_of(figure, len(grid), columns)
    for row, drawn in zip(grid, axes, strict=True):
        for panel, ax in zip(row, drawn, strict=False):
            _draw(ax, panel, styles)
        for ax in drawn[len(row) :]:
            ax.set_axis_off()
    _legend(figure, list(axes.flat))
    return figure


def bars(
    title: str, ylabel: str, groups: Sequence[str], ours: Heights, paper: Mapping[str, Sequence[float]], *, counts: bool = False
) -> Figure:
    """One bar for every name in each group; what the paper has is a black line across the bar of that name.

    ``counts`` says that numbers are to be written as such, not as powers of ten.
    """
    figure = new_figure(title, max(9.0, 2.6 * len(groups)), 5.4)
    ax = figure.subplots()
    width = 0.8 / len(ours)
    places = np.arange(len(groups))
    styles = looks(ours)
    for i, (name, values) in enumerate(ours.items()):
        at = places + (i - (len(ours) - 1) / 2) * width
        known = [(x, y) for x, y in zip(at, values, strict=True) if y is not None]
        drawn = ax.bar([x for x, _ in known], [y for _, y in known], 0.9 * width, color=styles[name].colour, label=name)
        for bar in drawn:
            bar.set(hatch=styles[name].hatch, edgecolor="white", linewidth=0)
        for x, y in zip(at, paper.get(name, ()), strict=False):
            ax.plot([x - width / 2, x + width / 2], [y, y], color="black", linewidth=2, label="the paper's")
    ax.set(yscale="log", ylabel=ylabel)
    if counts:
        _plain_logarithms(ax)
    ax.set_xticks(places, groups)
    ax.tick_params(axis="x", length=0)
    _frame(ax)
    _legend(figure, [ax])
    return figure


def heat_maps(
    title: str, xlabel: str, xs: Sequence[float], ylabel: str, ys: Sequence[float], maps: Mapping[str, Sequence[Sequence[float]]]
) -> Figure:
    """Side by side, one map for each name: values[y][x] by colour on one logarithmic scale, and written into the cells."""
    figure = new_figure(title, 1.0 + 4.2 * len(maps), 1.6 + 0.55 * len(ys))
    axes = axes_of(figure, 1, len(maps))[0]
    logs = {name: np.log10(np.maximum(np.asarray(values, dtype=float), SMALLEST)) for name, values in maps.items()}
    low, high = min(float(v.min()) for v in logs.values()), max(float(v.max()) for v in logs.values())
    for ax, (name, values) in zip(axes, logs.items(), strict=True):
        image = ax.imshow(values, origin="lower", aspect="auto", cmap="viridis", vmin=low, vmax=high)
        for i, row in enumerate(values):
            for j, value in enumerate(row):
                colour = "black" if value > (low + high) / 2 else "white"
                ax.text(j, i, f"{10**value:.0e}", ha="center", va="center", fontsize=8, color=colour)
        ax.set_title(name, fontsize=11, parse_math=False)
        ax.set_xticks(range(len(xs)), [f"{x:g}" for x in xs])
        ax.set_yticks(range(len(ys)), [f"{y:g}" for y in ys])
        ax.set(xlabel=xlabel, ylabel=ylabel)
    figure.colorbar(image, ax=list(axes), label="logarithm to base 10", shrink=0.9)
    return figure


def _draw(ax: Axes, panel: Panel, styles: Mapping[str, Look]) -> None:
    ticks = sorted({x for xs, _ in panel.curves.values() for x in xs})
    places = {x: i for i, x in enumerate(ticks)} if panel.every else {x: x for x in ticks}
    if panel.log_y:
        ax.set_yscale("log")
    shown = {
        name: ([places[x] for x in xs], [np.nan if y is None else max(y, SMALLEST) if panel.log_y else y for y in ys])
        for name, (xs, ys) in panel.curves.items()
    }
    draw_curves(ax, shown, styles, marked=None if panel.every else 10)
    for name, (xs, ys) in panel.missed.items():
        known = [(places[x], y) for x, y in zip(xs, ys, strict=True) if y is not None]
        if known:
            (line,) = ax.plot(*zip(*known, strict=True), styles[name].marker, label=f"{name}: not within these rounds")
            line.set(color=styles[name].colour, markerfacecolor="white", markersize=8)
    for name, (x, y) in panel.stars.items():
        ax.plot([x], [y], "*", color=styles[name].colour, markersize=15, markeredgecolor="black", label=f"{name}, the paper's")
    if panel.level is not None:
        ax.axhline(panel.level, color="0.35", linestyle="--", linewidth=1.2, label=panel.level_name)
    if panel.every:
        ax.set_xticks(range(len(ticks)), [f"{x:.5g}" for x in ticks])
        ax.set_xlim(-0.3, len(ticks) - 0.7)
        _plain_logarithms(ax)
    elif not panel.log_x:
        ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if panel.log_x:
        ax.set_xscale("log")
        _plain_ticks(ax.xaxis)
    ax.set_title(panel.title, fontsize=11, parse_math=False)
    ax.set(xlabel=panel.xlabel, ylabel=panel.ylabel)
    _frame(ax)


def _plain_logarithms(ax: Axes) -> None:
    """Plain ticks on a logarithmic axis that spans at least a factor of ten."""
    low, high = ax.get_ylim()
    if high < 10 * low:
        middle = np.sqrt(low * high)
        ax.set_ylim(middle / np.sqrt(10), middle * np.sqrt(10))
    _plain_ticks(ax.yaxis)


def _plain_ticks(axis: Axis) -> None:
    """Ticks 1, 2, 5, 10, ..."""
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


def _frame(ax: Axes) -> None:
    ax.grid(True, which="major", axis="y", color="0.9", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def _legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """All names once, below the axes."""
    found: dict[str, Artist] = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            found.setdefault(str(label), handle)
    widest = LEGEND_MARK + LEGEND_LETTER * max((len(name) for name in found), default=0)
    columns = min(len(found), max(1, int(figure.get_figwidth() / widest)))
    figure.legend(list(found.values()), list(found), loc="outside lower center", ncols=columns, frameon=False)
