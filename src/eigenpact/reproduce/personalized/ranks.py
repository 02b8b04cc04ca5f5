"""Table 3, Figures 7 and 8: more components than the data have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...algorithms.personalized.perpca import PerPCA
from ...datasets import personalized_problem
from .. import drawing
from ..registry import CURVE_ONLY, Cell, Grid, Reproduced, Size, Watch
from .fitting import errors_by_round, fitted, parameters, small_print


def overparametrized(p: Mapping[str, Any], n_global: int, n_local: int, seed: int) -> tuple[list[float], list[float], float]:
    """Global and reconstruction errors by round of PerPCA with these ranks on noiseless data of one global and one local
    direction; theta in the end."""
    problem = personalized_problem(p["sites"], p["features"], 1, 1, variances=(1.0, 1.0, 0.0), rows=p["rows"], seed=seed)
    shared: list[float] = []

    def measure(record: Any) -> None:
        U, exact = record.basis, problem.U
        misses = [np.sum((X @ U @ U.T - X @ exact @ exact.T) ** 2) / len(X) for X in problem.sites.values()]
        shared.append(max(1e-17, float(np.mean(misses))))

    solver = PerPCA(start="random")
    pca = fitted(problem.sites, n_global, n_local, seed, solver=solver, tol=0.0, max_rounds=p["rounds"], callback=measure)
    return shared, errors_by_round(pca, problem.sites, 1e-17), float(pca.misalignment_ or 0.0)


def _ranks(number: int, which: str, size: Size, seed: int, watch: Watch) -> Reproduced:
    p = parameters(f"fig{number}", size)
    shared: dict[str, drawing.Curve] = {}
    whole: dict[str, drawing.Curve] = {}
    rows: list[list[Cell]] = []
    for more in p["more"]:
        ranks = (1 + more, 1) if which == "global" else (1, 1 + more)
        global_errors, errors, theta = overparametrized(p, ranks[0], ranks[1], seed)
        label = f"{which} + {more}"
        shared[label], whole[label] = drawing.from_one(global_errors), drawing.from_one(errors)
        rows.append([label, theta, global_errors[-1], errors[-1]])
        watch.on_run(f"{label}: theta {theta:.2e}, global error {global_errors[-1]:.1e}")
    title = f"Personalized PCA paper, Figure {number}: more {which} components than the data have"
    columns = ["components", "theta", "global error\nin the end", "reconstruction\nerror in the end"]
    remark = "Noiseless rows, one global and one local direction; PerPCA, choice 1, random start, step 1 / max_i lambda_1."
    panels = [
        drawing.Panel("global error", "round", "error", shared),
        drawing.Panel("reconstruction error", "round", "error", whole),
    ]
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
        found = [overparametrized(p, 1, 1 + more, 1000 * seed + s)[2] for s in range(p["seeds"])]
        medians.append(float(np.median(found)))
        rows.append([f"r2 + {more}", medians[-1], min(found), max(found), told])
        watch.on_run(f"r2 + {more}: theta {medians[-1]:.2e}")
    title = "Personalized PCA paper, Table 3: misalignment of the fit"
    grid = Grid(title, ["local\ncomponents", "theta", "least", "largest", "paper"], rows)
    remarks = small_print(size, "Beyond r2 + 1 theta depends on the seed: it is a flag, not a measurement.")
    ours, paper = {"ours (median)": [max(1e-12, theta) for theta in medians]}, {"ours (median)": p["theta"]}
    figure = drawing.bars(title, "theta", [str(row[0]) for row in rows], ours, paper)
    return Reproduced(title, [grid], remarks, figure, {"rows": rows})
