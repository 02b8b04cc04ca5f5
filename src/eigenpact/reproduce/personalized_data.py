"""The personalized PCA paper's tables on pictures, writing, video and text: Tables 4 to 7.

How the paper was read
    Pictures and frames are sites: a site's rows are the picture's rows or columns of pixels.  Ranks that the paper does not tell
    (Table 5) are 50 global and 5 local.  The paper's FEMNIST has 3550 writers and its CIFAR-10 60000 pictures; here are 105
    and 10000.

References
    N. Shi, R. A. Kontar, "Personalized PCA: decoupling shared and unique features", Sections 7.2 to 7.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..algorithms.personalized.perpca import PerPCA
from ..data import partition
from ..datasets import load
from ..errors import DataUnavailableError
from ..numerics.linalg import Array
from .personalized import METHODS, fitted, parameters, small_print, test_errors
from .registry import Cell, Grid, Reproduced, Reproduction, Size, Watch
from .scenes import ICONS, icons, moving_pixels, rows_of_pictures

if TYPE_CHECKING:
    from ..estimators.personalized import PersonalizedPCA

ICON_RANKS = (7, 10)
"""Global and local components of a picture with an icon."""

SHOT, VIDEO_RANKS, MOVING = 10, (20, 5), 0.08
"""Consecutive frames that make a site, global and local components, and the change of grey (of 1) that counts as motion."""

STOP_WORDS = {
    "applause",
    "going",
    "got",
    "laughter",
    "let",
    "ll",
    "mr",
    "president",
    "re",
    "said",
    "senator",
    "think",
    "ve",
    "way",
    "want",
}
"""Left out besides scikit-learn's English stop words: what transcripts say of everyone."""


# -- Table 4: icons ---------------------------------------------------------------------------------


def icon_parts(side: int, seed: int) -> tuple[dict[str, Array], dict[str, Array], dict[str, float]]:
    """Pictures, their local parts, and how well these tell the icons, which are dark: area under the ROC curve."""
    from sklearn.metrics import roc_auc_score

    pictures, masks = icons(side, seed)
    pca = fitted(pictures, *ICON_RANKS, seed, misalignment=False)
    local = {name: pca.parts(picture, site=name)[1] for name, picture in pictures.items()}
    found = {name: float(roc_auc_score(masks[name].ravel(), -local[name].ravel())) for name in ICONS}
    return pictures, local, found


def table4(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Table 4: icons on a texture; the local part shows the icon."""
    p = parameters("table4", size)
    pictures, local, found = icon_parts(p["side"] if size is Size.paper else 100, seed)
    watch.on_run(", ".join(f"{name} {value:.3f}" for name, value in found.items()))
    title = "Personalized PCA paper, Table 4: icons on a texture"
    rows = {"picture": [pictures[name] for name in ICONS], "local part": [local[name] for name in ICONS]}
    return Reproduced(
        title,
        [Grid(title, ["icon", "area under curve"], [[name, value] for name, value in found.items()])],
        small_print(
            size,
            "The paper's pictures were drawn by hand; these are made here.  Area under the ROC curve: how well the local part "
            "tells the icon's pixels from others.",
        ),
        rows_of_pictures(title, rows, ICONS),
        {"areas": found},
    )


# -- Table 5: reconstruction of writing and pictures ------------------------------------------------


def split(sites: Mapping[str, Array], seed: int, share: float = 0.8) -> tuple[dict[str, Array], dict[str, Array]]:
    """Every site's rows, dealt into training and test rows."""
    train, test = {}, {}
    rng = np.random.default_rng(seed)
    for name, X in sites.items():
        order, n = rng.permutation(len(X)), max(1, round(share * len(X)))
        train[name], test[name] = X[order[:n]], X[order[n:]]
    return train, test


def writers(most: int | None = None) -> dict[str, Array]:
    """FEMNIST by writer, ink 1 on paper 0."""
    data = load("femnist")
    sites = partition.by_group((255.0 - data.X) / 255.0, data.groups["writer"])
    return dict(list(sites.items())[:most])


def two_classes_each(most: int | None = None) -> dict[str, Array]:
    """CIFAR-10 as 20 sites of two classes each, pixels from 0 to 1: every class is cut into four shards."""
    data = load("cifar10")
    shards = [part for label in range(10) for part in np.array_split(np.flatnonzero(data.y == label), 4)]
    order = np.random.default_rng(0).permutation(len(shards))
    sites = {f"site{i:02d}": np.concatenate([shards[order[2 * i]], shards[order[2 * i + 1]]]) for i in range(20)}
    return {name: data.X[index] / 255.0 for name, index in list(sites.items())[:most]}


def reconstruction(sites: Mapping[str, Array], p: Mapping[str, Any], seed: int) -> dict[str, tuple[float, float]]:
    """Mean training and test error by method; personalized PCA stops on a tenth of the training rows."""
    train, test = split(sites, seed)
    found = {}
    for name, solver in METHODS.items():
        options = {"validation_fraction": 0.1} if name == "personalized" else {}
        pca = fitted(train, p["n_global"], p["n_local"], seed, solver=solver, misalignment=False, **options)
        found[name] = tuple(float(np.mean(list(test_errors(pca, rows).values()))) for rows in (train, test))
    return found  # type: ignore[return-value]


def table5(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Table 5: training and test errors on FEMNIST by writer, and on CIFAR-10 with two classes a site."""
    from . import drawing

    p = parameters("table5", size)
    small = size is Size.small
    ranks = {"n_global": 20, "n_local": 3} if small else {}
    repeats = 1 if small else p["repeats"]
    rows: list[list[Cell]] = []
    remarks, groups, numbers = [], [], {}
    ours: dict[str, list[float | None]] = {name: [] for name in METHODS}
    told: dict[str, list[float]] = {name: [] for name in METHODS}
    for name, make in (("femnist", writers), ("cifar10", two_classes_each)):
        try:
            sites = make((20 if name == "femnist" else 4) if small else None)
        except DataUnavailableError as error:
            remarks.append(f"{name} was left out: {error}")
            continue
        runs = [reconstruction(sites, p | ranks, 1000 * seed + r) for r in range(repeats)]
        numbers[name] = runs
        for j, part in enumerate(("train", "test")):
            groups.append(f"{name}, {part}")
            for method in METHODS:
                values = [run[method][j] for run in runs]
                rows.append([name, part, method, float(np.mean(values)), float(np.std(values)), p[name][part][method]])
                ours[method].append(float(np.mean(values)))
                told[method].append(p[name][part][method])
        watch.on_run(f"{name}: test errors " + ", ".join(f"{m} {np.mean([run[m][1] for run in runs]):.4g}" for m in METHODS))
    title = "Personalized PCA paper, Table 5: reconstruction errors"
    columns = ["data", "rows", "method", "error", "standard\ndeviation", "paper"]
    return Reproduced(
        title,
        [Grid(title, columns, rows)],
        small_print(size, *remarks, "The paper's sets are larger (3550 writers, all of CIFAR-10) and its ranks are not told."),
        drawing.bars(title, "error", groups, ours, told if not small else {}, counts=True),
        {"runs": numbers},
    )


# -- Table 6: video ---------------------------------------------------------------------------------


def frames_of(name: str) -> Array:
    """Grey frames (number, height, width) from 0 to 1."""
    data = load(name)
    return np.asarray(data.X, dtype=float).reshape(-1, *data.extra["shape"]) / 255.0


def shots(frames: Array) -> dict[str, Array]:
    """Sites of ``SHOT`` consecutive frames each, a row per frame; a last incomplete one is left out."""
    count = len(frames) // SHOT
    return {f"shot{k:03d}": frames[k * SHOT : (k + 1) * SHOT].reshape(SHOT, -1) for k in range(count)}


def separated(frames: Array, seed: int, ranks: tuple[int, int] = VIDEO_RANKS) -> tuple[PersonalizedPCA, Array, Array]:
    """Personalized PCA of a video with shots as sites; global and local part of all its frames.

    The mean picture is subtracted, as PCA does, and is put back into the global part.
    """
    sites = shots(frames)
    pca = fitted(sites, *ranks, seed, center="pooled", tol=1e-2, max_rounds=150)
    both = [pca.parts(X, site=site) for site, X in sites.items()]
    shared, own = (np.concatenate([parts[j] for parts in both]).reshape(-1, *frames.shape[1:]) for j in (0, 1))
    return pca, shared + pca.mean_.reshape(frames.shape[1:]), own


def frame_by_frame(frames: Array, chosen: Array, ranks: tuple[int, int], seed: int) -> tuple[PersonalizedPCA, dict[int, Array]]:
    """The paper's layout: a site is one frame and its rows are rows of pixels; the chosen frames' local parts, by choice 2."""
    sites = {f"frame{i:04d}": frames[i] for i in chosen}
    pca = fitted(sites, *ranks, seed, solver=PerPCA(choice=2, start="covariance"), tol=1e-2, max_rounds=60, misalignment=False)
    return pca, {int(i): pca.parts(frames[i], site=f"frame{i:04d}")[1] for i in chosen}


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
    shown: dict[str, list[Array]] = {"frame": [], "mean and global part": [], "local part": []}
    names: list[str] = []
    rows: list[list[Cell]] = []
    for name in ("video_bmc", "video_escalator"):
        frames = frames_of(name)[: None if size is Size.paper else 200]
        pca, shared, own = separated(frames, seed)
        steady = always_moving(frames)
        ratio, objects = motion_ratio(dict(enumerate(own)), frames), motion_ratio(dict(enumerate(own)), frames, steady=steady)
        rows.append([name, f"{SHOT} frames", "varpro", "{} + {}".format(*VIDEO_RANKS), pca.n_rounds_, ratio, objects])
        watch.on_run(f"{name}: ratio {ratio:.1f}, {pca.n_rounds_} rounds")
        for i in (len(own) // 3, 2 * len(own) // 3):
            names.append(f"{name}, {i}")
            for row, picture in zip(shown.values(), (frames[i], shared[i], own[i]), strict=True):
                row.append(_cut(picture, 120, 160))
        if size is Size.paper:
            chosen = np.linspace(0, len(frames) - 1, p["frames"]).astype(int)
            pca, parts = frame_by_frame(frames, chosen, (p["n_global"], p["n_local"]), seed)
            ratio, objects = motion_ratio(parts, frames), motion_ratio(parts, frames, steady=steady)
            rows.append([name, "1 frame", "perpca 2", f"{p['n_global']} + {p['n_local']}", pca.n_rounds_, ratio, objects])
    title = "Personalized PCA paper, Table 6: background and moving objects"
    columns = ["video", "a site is", "solver", "global +\nlocal", "rounds", "moving /\nstill", "objects /\nscenery"]
    told = (
        f"Moving / still: mean squared local part of pixels that change by > {MOVING} from frame to frame, over the others'.  "
        "Objects / scenery: pixels that move in more than half of the frames (an escalator) count as scenery."
    )
    layout = (
        f"A site is {SHOT} consecutive frames, a row each, and the mean picture is part of the background.  The paper's layout, "
        "a frame as a site with its rows of pixels as rows, not centred, smears objects along rows; it is beside at --size paper."
    )
    figure = rows_of_pictures(title, shown, names)
    return Reproduced(title, [Grid(title, columns, rows)], small_print(size, told, layout), figure, {"rows": rows})


def _cut(picture: Array, height: int, width: int) -> Array:
    return picture[:height, :width]


# -- Table 7: debates -------------------------------------------------------------------------------


def debates_by_year() -> tuple[dict[str, Any], list[str]]:
    """Word counts of every turn of speech (sparse rows) by year, without stop words, and the words."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    data = load("debates")
    words = np.array(data.feature_names)
    keep = np.array([word not in ENGLISH_STOP_WORDS and word not in STOP_WORDS for word in words])
    X = data.X[:, np.flatnonzero(keep)].astype(float)
    return partition.by_group(X, data.groups["year"]), words[keep].tolist()


def leading_words(components: Array, words: list[str], count: int) -> list[str]:
    """Words of the largest entries of components, alternating from one component to the next."""
    orders = [np.argsort(-np.abs(component)) for component in components]
    found: dict[str, None] = {}
    for rank in range(len(words)):
        for order in orders:
            found.setdefault(words[order[rank]])
        if len(found) >= count:
            break
    return list(found)[:count]


def table7(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Table 7: words of local components by year, and of the global ones."""
    p = parameters("table7", size)
    sites, words = debates_by_year()
    pca = fitted(sites, p["n_global"], p["n_local"], seed, max_rounds=p["rounds"], tol=1e-3)
    watch.on_run(f"{pca.n_rounds_} rounds, theta {pca.misalignment_:.3f}")
    topics = {site: leading_words(pca.local_components_[site], words, p["words"]) for site in pca.sites_}
    common = leading_words(pca.components_, words, p["words"])
    rows: list[list[Cell]] = [[*row] for row in _shared_words(topics, common, p)]
    title = "Personalized PCA paper, Table 7: words of presidential debates"
    return Reproduced(
        title,
        [Grid(title, ["year", "ours", "of the paper's"], rows)],
        [
            f"Of {len(words)} words those with the largest entries; last column: the paper's that are among our {p['words']}.",
            "Words are those of at least 5 turns, without scikit-learn's English stop words and some of transcripts.",
        ],
        _words_picture(title, topics, common),
        {"topics": topics, "common": common},
    )


def _shared_words(topics: Mapping[str, list[str]], common: list[str], p: Mapping[str, Any]) -> Iterator[list[Cell]]:
    for site, found in [*topics.items(), ("common", common)]:
        year = site if site == "common" else site[-4:]
        told = [word.strip().lower() for word in p[year].split(",")]
        yield [year, ", ".join(found[:8]), f"{sum(word in found for word in told)} of {len(told)}"]


def _words_picture(title: str, topics: Mapping[str, list[str]], common: list[str]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 5.2), dpi=90)
    ax = figure.add_axes((0, 0, 1, 0.92))
    ax.set_axis_off()
    figure.suptitle(title, fontsize=12)
    lines = [*((site[-4:], ", ".join(words[:10])) for site, words in topics.items()), ("common", ", ".join(common[:10]))]
    for i, (year, text) in enumerate(lines):
        y = 1 - (i + 0.7) / len(lines)
        ax.text(0.02, y, year, fontsize=10, weight="bold", transform=ax.transAxes, parse_math=False)
        ax.text(0.12, y, text, fontsize=10, transform=ax.transAxes, parse_math=False)
    return figure


REPRODUCTIONS = (
    Reproduction("personalized-table4", "icons on a texture", table4),
    Reproduction("personalized-table5", "reconstruction errors on FEMNIST and CIFAR-10", table5),
    Reproduction("personalized-table6", "background and moving objects of videos", table6),
    Reproduction("personalized-table7", "words of presidential debates by year", table7),
)
