"""Table 5: reconstruction of writing and pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...data import partition
from ...datasets import load
from ...errors import DataUnavailableError
from ...numerics.linalg import Array
from .. import drawing
from ..registry import Cell, Grid, Reproduced, Size, Watch
from .fitting import CHOICES_TOLD, METHODS, by_method, of_the_paper, parameters, small_print, test_errors


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


def reconstruction(sites: Mapping[str, Array], p: Mapping[str, Any], seed: int) -> dict[str, tuple[float, ...]]:
    """Mean training and test error by method; varpro stops by a tenth of the training rows, perpca after p's rounds."""
    train, test = split(sites, seed)
    return {
        name: tuple(float(np.mean(list(test_errors(pca, rows).values()))) for rows in (train, test))
        for name, pca in by_method(train, p, seed, validation_fraction=0.1).items()
    }


def table5(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Table 5: training and test errors on FEMNIST by writer, and on CIFAR-10 with two classes a site."""
    p, small = parameters("table5", size), size is Size.small
    rows: list[list[Cell]] = []
    remarks, groups, numbers = [], [], {}
    ours: dict[str, list[float | None]] = {name: [] for name in METHODS}
    told: dict[str, list[float]] = {name: [] for name in METHODS}
    for name, make, few in (("femnist", writers, 20), ("cifar10", two_classes_each, 4)):
        try:
            sites = make(few if small else None)
        except DataUnavailableError as error:
            remarks.append(f"{name} was left out: {error}")
            continue
        runs = [reconstruction(sites, p, 1000 * seed + r) for r in range(p["repeats"])]
        numbers[name] = runs
        for j, part in enumerate(("train", "test")):
            groups.append(f"{name}, {part}")
            for method in METHODS:
                values, paper = [run[method][j] for run in runs], of_the_paper(p[name][part], method)
                rows.append([name, part, method, float(np.mean(values)), float(np.std(values)), paper])
                ours[method].append(float(np.mean(values)))
                if paper is not None:
                    told[method].append(paper)
        watch.on_run(f"{name}: test errors " + ", ".join(f"{m} {np.mean([run[m][1] for run in runs]):.4g}" for m in METHODS))
    title = "Personalized PCA paper, Table 5: reconstruction errors"
    columns = ["data", "rows", "method", "error", "standard\ndeviation", "paper"]
    remarks += [
        "The paper's sets are larger (3550 writers, all of CIFAR-10) and its ranks are not told.",
        f"{CHOICES_TOLD}, {p['rounds']} rounds (the paper tells neither); varpro stops when the error on a tenth of the training "
        "rows no longer falls.",
    ]
    figure = drawing.bars(title, "error", groups, ours, {} if small else told, counts=True)
    return Reproduced(title, [Grid(title, columns, rows)], small_print(size, *remarks), figure, {"runs": numbers})
