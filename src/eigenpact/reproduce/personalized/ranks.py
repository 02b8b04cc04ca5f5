"""Table 3, Figures 7 and 8: more components than the data have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...algorithms.personalized.perpca import PerPCA
from ...datasets import personalized_problem
from .. import drawing
from ..registry import CURVE_ONLY, Cell, Grid, Reproduced, Size, Watch
from .fitting import fitted, parameters, small_print

LEAST = 1e-17
"""Errors below this are rounding."""


@dataclass(frozen=True)
class Misses:
    """Errors of a fit with more components than the data have, the paper's three, and theta."""

    shared: float
    own: float
    whole: float
    theta: float


def overparametrized(p: Mapping[str, Any], n_global: int, n_local: int, seed: int, rounds: int) -> Misses:
    """PerPCA after so many rounds, with these ranks, on noiseless data of one global and one local direction."""
    problem = personalized_problem(p["sites"], p["features"], 1, 1, variances=(1.0, 1.0, 0.0), rows=p["rows"], seed=seed)
    options = {"solver": PerPCA(start="random"), "tol": 0.0, "max_rounds": rounds}
    pca = fitted(problem.sites, n_global, n_local, seed, **options)
    found = []
    for site, X in problem.sites.items():
        shared, own = pca.parts(X, site=site)
        U, V = problem.U, problem.V[site]
        misses = shared - X @ U @ U.T, own - X @ V @ V.T, X - shared - own
        found.append([float(np.sum(miss**2)) / len(X) for miss in misses])
    shared_error, own_error, whole_error = np.maximum(LEAST, np.mean(found, axis=0)).tolist()
    return Misses(shared_error, own_error, whole_error, float(pca.misalignment_ or 0.0))


def _ranks(number: int, which: str, size: Size, seed: int, watch: Watch) -> Reproduced:
    p = parameters(f"fig{number}", size)
    curves: dict[str, dict[str, drawing.Curve]] = {"shared": {}, "own": {}, "whole": {}}
    rows: list[list[Cell]] = []
    for more in p["more"]:
        n_global, n_local = (1 + more, 1) if which == "global" else (1, 1 + more)
        runs = [overparametrized(p, n_global, n_local, seed, rounds) for rounds in p["rounds"]]
        label = f"perpca, {which} + {more}"
        for name, by_label in curves.items():
            by_label[label] = p["rounds"], [getattr(run, name) for run in runs]
        end = runs[-1]
        rows.append([f"{which} + {more}", end.theta, end.shared, end.own, end.whole])
        watch.on_run(f"{label}: theta {end.theta:.2e}, global error {end.shared:.1e}, local error {end.own:.1e}")
    title = f"Personalized PCA paper, Figure {number}: more {which} components than the data have"
    columns = ["components", "theta", "global error\nin the end", "local error\nin the end", "reconstruction\nerror in the end"]
    remark = "Noiseless rows, one global and one local direction; perpca, choice 1, random start, step 1 / max_i lambda_1."
    names = {"shared": "global error", "own": "local error", "whole": "reconstruction error"}
    panels = [drawing.Panel(told, "round", "error", curves[name]) for name, told in names.items()]
    remarks = small_print(size, CURVE_ONLY, remark)
    return Reproduced(title, [Grid(title, columns, rows)], remarks, drawing.panels(title, [panels]), {"rows": rows})


def fig7(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 7: too many local components."""
    return _ranks(7, "local", size, seed, watch)


def fig8(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 8: too many global components."""
    return _ranks(8, "global", size, seed, watch)


def table3(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Table 3: theta of the fit, for too many local components."""
    p = parameters("table3", size)
    rows: list[list[Cell]] = []
    medians: list[float] = []
    for more, told in zip(p["more"], p["theta"], strict=True):
        found = [overparametrized(p, 1, 1 + more, 1000 * seed + s, p["rounds"]).theta for s in range(p["seeds"])]
        medians.append(float(np.median(found)))
        rows.append([f"r2 + {more}", medians[-1], min(found), max(found), told])
        watch.on_run(f"r2 + {more}: theta {medians[-1]:.2e}")
    title = "Personalized PCA paper, Table 3: misalignment of the fit"
    grid = Grid(title, ["local\ncomponents", "theta", "least", "largest", "paper"], rows)
    remarks = small_print(size, "Beyond r2 + 1 theta depends on the seed: it is a flag, not a measurement.")
    ours, paper = {"perpca (median)": [max(1e-12, theta) for theta in medians]}, {"perpca (median)": p["theta"]}
    figure = drawing.bars(title, "theta", [str(row[0]) for row in rows], ours, paper)
    return Reproduced(title, [grid], remarks, figure, {"rows": rows})
