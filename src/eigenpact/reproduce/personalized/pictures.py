"""Tables 4 and 6: icons on a texture, and moving objects of videos, told from the background by local parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from ...datasets import load
from ...estimators.personalized import PersonalizedPCA
from ...numerics.linalg import Array
from ..registry import Cell, Grid, Reproduced, Size, Watch
from ..robust.inexact_alm import inexact_alm
from .fitting import fitted, parameters, published, small_print
from .scenes import rows_of_pictures

ICONS = ("triangle", "disk", "cross", "cloud")

ICON_RANKS = (7, 10)
"""Global and local components of a picture with an icon."""

SHOT, RANKS, MOVING = 10, (20, 5), 0.08
"""Consecutive frames that make a site, global and local components, and the change of grey (of 1) that counts as motion."""


# -- Table 4: icons --------------------------------------------------------------------------------


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


def stacked_sparse_part(pictures: Mapping[str, Array]) -> dict[str, Array]:
    """Section 7.2's robust PCA: every picture is a column of one matrix; its sparse part by inexact ALM, as pictures."""
    M = np.stack([picture.ravel() for picture in pictures.values()], axis=1)
    found = inexact_alm(M).sparse
    return {name: found[:, j].reshape(picture.shape) for j, (name, picture) in enumerate(pictures.items())}


def table4(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Table 4: icons on a texture; the local part shows the icon, which is dark; robust PCA beside."""
    p = parameters("table4", size)
    pictures, masks = icons(p["side"], seed)
    perpca = published(pictures, p["choice"], p["times"])
    runs: dict[str, dict[str, Any]] = {
        "perpca": {"solver": perpca, "max_rounds": p["rounds"]},
        "perpca, distPCA start": {"solver": replace(perpca, start="distpca"), "max_rounds": p["rounds"]},
        "varpro": {"solver": "varpro"},
    }
    parts = {"robust PCA (inexact ALM)": stacked_sparse_part(pictures)}
    for label, run in runs.items():
        pca = fitted(pictures, *ICON_RANKS, seed, misalignment=False, **run)
        parts[label] = {name: pca.parts(picture, site=name)[1] for name, picture in pictures.items()}
    areas = {
        label: {name: float(roc_auc_score(masks[name].ravel(), -own[name].ravel())) for name in ICONS}
        for label, own in parts.items()
    }
    for label, found in areas.items():
        watch.on_run(f"{label}: " + ", ".join(f"{name} {value:.3f}" for name, value in found.items()))
    title = "Personalized PCA paper, Table 4: icons on a texture"
    grid = Grid(title, ["area under curve", *ICONS], [[label, *found.values()] for label, found in areas.items()])
    remarks = small_print(
        size,
        "The paper's pictures were drawn by hand; these are made here.  Area under the ROC curve: how well the sparse or local "
        "part tells the icon's pixels, which are darker, from others.",
        f"perpca: choice {p['choice']}, {p['rounds']} rounds with a step of {p['times']:g} / max_i lambda_1, from the paper's "
        "start (the mean covariance), from which the icons do not come out within these rounds, and from distPCA's.",
        "Robust PCA: principal component pursuit of the four pictures as columns, lambda = 1 / sqrt(pixels).",
    )
    shown = {"picture": [pictures[name] for name in ICONS]} | {
        label: [own[name] for name in ICONS] for label, own in parts.items()
    }
    return Reproduced(title, [grid], remarks, rows_of_pictures(title, shown, ICONS), {"areas": areas})


# -- Table 6: video --------------------------------------------------------------------------------


def frames_of(name: str) -> Array:
    """Grey frames (number, height, width) from 0 to 1."""
    data = load(name)
    return np.asarray(data.X, dtype=float).reshape(-1, *data.extra["shape"]) / 255.0


def shots(frames: Array) -> dict[str, Array]:
    """Sites of ``SHOT`` consecutive frames each, a row per frame; a last incomplete one is left out."""
    count = len(frames) // SHOT
    return {f"shot{k:03d}": frames[k * SHOT : (k + 1) * SHOT].reshape(SHOT, -1) for k in range(count)}


def separated(frames: Array, seed: int, ranks: tuple[int, int] = RANKS) -> tuple[PersonalizedPCA, Array, Array]:
    """Personalized PCA of a video with shots as sites; global and local part of all its frames.

    The mean picture is subtracted, as PCA does, and is put back into the global part.
    """
    sites = shots(frames)
    pca = fitted(sites, *ranks, seed, center="pooled", tol=1e-2, max_rounds=150)
    both = [pca.parts(X, site=site) for site, X in sites.items()]
    shared, own = (np.concatenate([parts[j] for parts in both]).reshape(-1, *frames.shape[1:]) for j in (0, 1))
    return pca, shared + pca.mean_.reshape(frames.shape[1:]), own


def frame_by_frame(frames: Array, chosen: Array, p: Mapping[str, Any], seed: int) -> tuple[PersonalizedPCA, dict[int, Array]]:
    """The paper's layout: a site is one frame and its rows are rows of pixels; the chosen frames' local parts, by choice 2."""
    sites = {f"frame{i:04d}": frames[i] for i in chosen}
    options = {"solver": published(sites, 2, p["times"]), "tol": 1e-2, "max_rounds": p["rounds"], "misalignment": False}
    pca = fitted(sites, p["n_global"], p["n_local"], seed, **options)
    return pca, {int(i): pca.parts(frames[i], site=f"frame{i:04d}")[1] for i in chosen}


def moving_pixels(frames: Array, index: int, threshold: float) -> Any:
    """Pixels of a frame that differ from the one before or after by more than the threshold: frame differencing."""
    here = frames[index]
    neighbours = [frames[i] for i in (index - 1, index + 1) if 0 <= i < len(frames)]
    return np.max([np.abs(here - other) for other in neighbours], axis=0) > threshold


def motion_ratio(parts: Mapping[int, Array], frames: Array, *, steady: Any = None) -> float:
    """Mean squared local part of moving pixels over that of all others, moving told by frame differencing.

    ``steady`` marks pixels that count as background whether they move or not.
    """
    moving, still = [], []
    for i, part in parts.items():
        mask = moving_pixels(frames, i, MOVING)
        mask = mask if steady is None else mask & ~steady
        moving.append(part[mask] ** 2)
        still.append(part[~mask] ** 2)
    return float(np.concatenate(moving).mean() / np.concatenate(still).mean())


def always_moving(frames: Array) -> Any:
    """Pixels that move in more than half of the frames: an escalator is scenery, although it moves."""
    return np.mean([moving_pixels(frames, i, MOVING) for i in range(0, len(frames), 4)], axis=0) > 0.5


def table6(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Table 6: background and moving objects of two videos."""
    p = parameters("table6", size)
    shown: dict[str, list[Array]] = {"frame": [], "varpro, mean and global": [], "varpro, local": [], "perpca, local": []}
    names: list[str] = []
    rows: list[list[Cell]] = []
    for name in ("video_bmc", "video_escalator"):
        frames = frames_of(name)[: None if size is Size.paper else 200]
        pca, shared, own = separated(frames, seed)
        ratios = _ratios(dict(enumerate(own)), frames)
        rows.append([name, f"{SHOT} frames", "varpro", "{} + {}".format(*RANKS), pca.n_rounds_, *ratios])
        watch.on_run(f"{name}: varpro, ratio {ratios[0]:.1f}, {pca.n_rounds_} rounds")
        chosen = np.linspace(0, len(own) - 1, p["frames"]).astype(int)
        pca, parts = frame_by_frame(frames, chosen, p, seed)
        ratios = _ratios(parts, frames)
        rows.append([name, "1 frame", "perpca", f"{p['n_global']} + {p['n_local']}", pca.n_rounds_, *ratios])
        watch.on_run(f"{name}: perpca, ratio {ratios[0]:.1f}, {pca.n_rounds_} rounds")
        for i in chosen[[len(chosen) // 3, 2 * len(chosen) // 3]].tolist():
            names.append(f"{name}, {i}")
            for row, picture in zip(shown.values(), (frames[i], shared[i], own[i], parts[i]), strict=True):
                row.append(picture[:120, :160])
    title = "Personalized PCA paper, Table 6: background and moving objects"
    columns = ["video", "a site is", "solver", "global +\nlocal", "rounds", "moving /\nstill", "objects /\nscenery"]
    remarks = small_print(
        size,
        f"Moving / still: mean squared local part of pixels that change by > {MOVING} from frame to frame, over the others'.  "
        "Objects / scenery: pixels that move in more than half of the frames (an escalator) count as scenery.",
        f"A site is {SHOT} consecutive frames, a row each, and the mean picture is part of the background.  The paper's "
        "layout, a frame as a site with its rows of pixels as rows, not centred, smears objects along rows; perpca (choice 2 "
        f"from the paper's start, step {p['times']:g} / max_i lambda_1) has it, with {p['frames']} frames.",
    )
    figure = rows_of_pictures(title, shown, names)
    return Reproduced(title, [Grid(title, columns, rows)], remarks, figure, {"rows": rows})


def _ratios(parts: Mapping[int, Array], frames: Array) -> tuple[float, float]:
    """Moving over still pixels, and objects over scenery."""
    return motion_ratio(parts, frames), motion_ratio(parts, frames, steady=always_moving(frames))
