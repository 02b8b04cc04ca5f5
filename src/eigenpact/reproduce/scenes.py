"""Pictures of the personalized PCA paper that are not curves: arrows, maps of sites, frames and icons; and the icons' making."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..numerics.linalg import Array

if TYPE_CHECKING:  # drawing brings matplotlib, which commands that draw nothing do without
    from matplotlib.figure import Figure

ICONS = ("triangle", "disk", "cross", "cloud")


def icons(side: int = 200, seed: int = 0) -> tuple[dict[str, Array], dict[str, Array]]:
    """Grey pictures (side x side) of a dark icon on a texture that is alike in all, and the icons' masks.

    >>> pictures, masks = icons(40)
    >>> sorted(pictures), bool(masks["disk"].any())
    (['cloud', 'cross', 'disk', 'triangle'], True)
    """
    y, x = np.mgrid[0:side, 0:side] / side - 0.5
    left, right = x + 0.22, x - 0.22
    masks = {
        "triangle": (y < 0.2) & (y > 2 * np.abs(left) - 0.25),
        "disk": right**2 + y**2 < 0.03,
        "cross": (np.abs(x) < 0.05) & (np.abs(y) < 0.25) | (np.abs(y) < 0.05) & (np.abs(x) < 0.2),
        "cloud": ((x + 0.12) ** 2 + (y - 0.1) ** 2 < 0.015) | (x**2 + y**2 < 0.025) | ((x - 0.15) ** 2 + (y - 0.1) ** 2 < 0.015),
    }
    rng = np.random.default_rng(seed)
    waves = [(*rng.uniform(4, 22, size=2), *rng.uniform(0, 2 * np.pi, size=2)) for _ in range(6)]
    pictures = {}
    for name in ICONS:
        texture = sum(np.outer(np.cos(2 * np.pi * f * y[:, 0] + a), np.cos(2 * np.pi * g * x[0] + b)) for f, g, a, b in waves)
        grain = 0.01 * rng.standard_normal((side, side))
        pictures[name] = 0.55 + 0.06 * rng.uniform(0.8, 1.2) * texture - 0.35 * masks[name] + grain
    return pictures, {name: masks[name] for name in ICONS}


def rows_of_pictures(title: str, rows: Mapping[str, Sequence[Array]], columns: Sequence[str]) -> Figure:
    """Grey pictures in rows, each row with its own range of grey."""
    from matplotlib.figure import Figure

    height, width = next(iter(rows.values()))[0].shape
    size = 2.1
    figure = Figure(figsize=(1.2 + size * len(columns), 0.6 + size * height / width * len(rows)), dpi=80, layout="constrained")
    figure.suptitle(title, fontsize=11, parse_math=False)
    axes = np.asarray(figure.subplots(len(rows), len(columns), squeeze=False), dtype=object)
    for i, (name, pictures) in enumerate(rows.items()):
        low, high = np.quantile(np.stack(list(pictures)), [0.005, 0.995])
        for j, picture in enumerate(pictures):
            axes[i, j].imshow(picture, cmap="gray", vmin=low, vmax=high, interpolation="nearest")
            axes[i, j].set(xticks=[], yticks=[])
        axes[i, 0].set_ylabel(name, fontsize=9)
    for j, name in enumerate(columns):
        axes[0, j].set_title(name, fontsize=9, parse_math=False)
    return figure


def maps(title: str, shown: Mapping[str, tuple[Array, Sequence[int]]]) -> Figure:
    """Sites in the plane by multidimensional scaling of their distances, one map for each name; colours are groups."""
    from matplotlib.figure import Figure
    from sklearn.manifold import MDS

    from ..report.pictures import COLOURS

    figure = Figure(figsize=(4.2 * len(shown), 4.4), dpi=90, layout="constrained")
    figure.suptitle(title, fontsize=12, parse_math=False)
    axes = np.atleast_1d(np.asarray(figure.subplots(1, len(shown)), dtype=object))
    for ax, (name, (distances, groups)) in zip(axes, shown.items(), strict=True):
        scaling = MDS(n_components=2, metric="precomputed", init="random", n_init=1, random_state=0)
        places = scaling.fit_transform(distances)
        for group in sorted(set(groups)):
            here = places[np.asarray(groups) == group]
            colour = COLOURS[group % len(COLOURS)]
            ax.scatter(here[:, 0], here[:, 1], color=colour, s=26, alpha=0.8)
            ax.annotate(str(group), here.mean(axis=0), fontsize=9)
        ax.set(xticks=[], yticks=[])
        ax.set_title(name, fontsize=10)
    return figure


def arrows(title: str, sites: Mapping[str, Array], models: Mapping[str, Any]) -> Figure:
    """Rows in three dimensions with the components that models found: black ones are global."""
    from matplotlib.figure import Figure

    from ..report.pictures import COLOURS

    figure = Figure(figsize=(5.2 * len(models), 5.0), dpi=90)
    figure.suptitle(title, fontsize=12, parse_math=False)
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


def moving_pixels(frames: Array, index: int, threshold: float) -> Any:
    """Pixels of a frame that differ from the one before or after by more than the threshold: frame differencing."""
    here = frames[index]
    neighbours = [frames[i] for i in (index - 1, index + 1) if 0 <= i < len(frames)]
    return np.max([np.abs(here - other) for other in neighbours], axis=0) > threshold
