"""Figures 4 to 6 and 9, and Table 2: statistical errors, what sites gain from one another, and how they cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

from ...datasets import PersonalizedProblem
from ...estimators.personalized import PersonalizedPCA
from .. import drawing
from ..registry import CURVE_ONLY, Cell, Grid, Reproduced, Size, Watch
from .fitting import METHODS, by_method, drawn, fitted, parameters, small_print, subspace_error, test_errors, uneven
from .scenes import maps

# -- Figures 4 to 6: statistical errors ------------------------------------------------------------


def statistical_errors(p: Mapping[str, Any], seed: int, watch: Watch, label: str) -> list[float]:
    """Mean subspace error (30) and its global part over seeds, for personalized PCA and then for distPCA."""
    found = []
    for s in range(p["seeds"]):
        problem = drawn(p, 1000 * seed + s, rows=uneven(p["rows"], p["sites"]))
        for solver in ("varpro", "distpca"):
            pca = fitted(problem.sites, p["n_global"], p["n_local"], seed, solver=solver, misalignment=False)
            found.append(subspace_error(pca, problem))
    ours, theirs = (np.mean(found[i::2], axis=0).tolist() for i in (0, 1))
    watch.on_run(f"{label}: personalized {ours[0]:.2e}, distPCA {theirs[0]:.2e}")
    return [*ours, *theirs]


def slope(rows: Sequence[Sequence[float]], column: int) -> float:
    """Of the log of a column in the log of the first."""
    xs, ys = ([row[j] for row in rows] for j in (0, column))
    return float(np.polyfit(np.log(xs), np.log(ys), 1)[0])


def _sweep(number: int, varied: str, size: Size, seed: int, watch: Watch) -> list[list[float]]:
    """Errors while one parameter varies: rows of a table."""
    p = parameters(f"fig{number}", size)
    return [
        [value, *statistical_errors(p | {varied: value}, seed, watch, f"Figure {number}, {varied} = {value}")]
        for value in p[varied]
    ]


def _swept(number: int, word: str, size: Size, rows: list[list[float]], told: str, **numbers: float) -> Reproduced:
    """Subspace errors by whatever the word says."""
    title = f"Personalized PCA paper, Figure {number}: subspace error by number of {word}"
    columns = [word, "personalized", "its global\npart", "distPCA", "its global\npart"]
    whole, shared = (drawing.by_first(rows, {"personalized": j, "distPCA": j + 2}) for j in (1, 2))
    panels = [
        drawing.Panel("global and local (30)", word, "subspace error", whole, log_x=True),
        drawing.Panel("global alone", word, "subspace error", shared, log_x=True),
    ]
    figure = drawing.panels(title, [panels])
    return Reproduced(title, [Grid(title, columns, rows)], small_print(size, CURVE_ONLY, told), figure, {"rows": rows, **numbers})


def fig4(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 4: subspace error by number of rows; slope about -1 for personalized PCA; distPCA's falls too, but later."""
    rows = _sweep(4, "rows", size, seed, watch)
    many = [row for row in rows if row[0] >= 1000]
    ours, theirs = slope(many, 1), slope(many, 3)
    told = (
        f"Slope of log error in log n from n = 1000 on: {ours:.3f} (the paper: about -1), "
        f"distPCA {theirs:.3f}.  Half of the sites have n rows, the others a tenth."
    )
    return _swept(4, "rows of a rich site", size, rows, told, slope=ours)


def fig5(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 5: subspace error by number of features."""
    rows = _sweep(5, "features", size, seed, watch)
    return _swept(5, "features", size, rows, f"Exponent of d: {slope(rows, 1):.2f}; the paper's bound is quadratic.")


def fig6(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 6: subspace error by number of sites; the global part falls."""
    rows = _sweep(6, "sites", size, seed, watch)
    return _swept(6, "sites", size, rows, f"Exponent of N in the global part: {slope(rows, 2):.2f}.")


# -- Table 2: what sites gain from one another -----------------------------------------------------


def table2_errors(p: Mapping[str, Any], seed: int) -> dict[str, dict[str, float]]:
    """Mean test error of the sparse and the rich sites by method, and with the true directions, for one seed."""
    counts = uneven(p["rows"], p["sites"])
    problem = drawn(p, seed, rows=counts, test_rows=1000)
    errors = {name: test_errors(pca, problem.test) for name, pca in by_method(problem.sites, p, seed).items()}
    errors["truth"] = {
        site: float(np.sum((X - X @ W @ W.T) ** 2) / len(X))
        for site, X in problem.test.items()
        for W in [np.concatenate([problem.U, problem.V[site]], axis=1)]
    }
    rich = [site for site, n in zip(problem.sites, counts, strict=True) if n == p["rows"]]
    groups = {"sparse": [site for site in problem.sites if site not in rich], "rich": rich}
    return {
        group: {name: float(np.mean([found[site] for site in sites])) for name, found in errors.items()}
        for group, sites in groups.items()
    }


def table2(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Table 2: test errors of sites with few and with many rows."""
    p, groups = parameters("table2", size), ("sparse", "rich")
    runs = []
    for s in range(p["seeds"]):
        runs.append(table2_errors(p, 1000 * seed + s))
        watch.on_run(f"seed {s}: " + ", ".join(f"{name} {value:.3f}" for name, value in runs[-1]["sparse"].items()))
    names = [*METHODS, "truth"]
    rows: list[list[Cell]] = []
    for group in groups:
        for name in names:
            values = [run[group][name] for run in runs]
            rows.append([group, name, float(np.mean(values)), float(np.std(values)), p[group][name]])
    below = all(run[g]["personalized"] < min(run[g]["individual"], run[g]["distpca"]) for run in runs for g in groups)
    shape = f"{p['sites']} sites, {p['rows']} or {p['rows'] // 10} rows, {p['seeds']} seeds"
    title = f"Personalized PCA paper, Table 2: test error, {shape}"
    remarks = small_print(
        size,
        f"Personalized is below individual and distPCA for every seed and group: {'yes' if below else 'NO'}.",
        "The paper does not print its variances.  With those that give its personalized and true columns, its baseline "
        "columns cannot be reached: individual PCA of 1000 rows is close to the truth here, as theory says it must be.",
    )
    ours = {name: [float(np.mean([run[g][name] for run in runs])) for g in groups] for name in names}
    paper = {name: [p[g][name] for g in groups] for name in names}
    figure = drawing.bars(title, "test error", ["sparse sites", "rich sites"], ours, paper, counts=True)
    grid = Grid(title, ["sites", "method", "error", "standard\ndeviation", "paper"], rows)
    return Reproduced(title, [grid], remarks, figure, {"runs": runs, "below": below})


# -- Figure 9: clusters ----------------------------------------------------------------------------


def clusters(p: Mapping[str, Any], seed: int, rounds: int) -> tuple[float, PersonalizedPCA, PersonalizedProblem]:
    """Adjusted Rand index of the sites' clusters after so many rounds, the start among them."""
    problem = drawn(p, seed, rows=p["rows"], n_groups=p["groups"])
    pca = fitted(problem.sites, p["n_global"], p["n_local"], seed, max_rounds=rounds, misalignment=False)
    found = pca.cluster_sites(p["groups"])
    truth = [problem.groups[site] for site in pca.sites_]
    return float(adjusted_rand_score(truth, [found[site] for site in pca.sites_])), pca, problem


def fig9(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 9: sites of ten groups, told apart by their local components."""
    p = parameters("fig9", size)
    rows: list[list[Cell]] = []
    shown = {}
    for rounds in p["rounds"]:
        index, pca, problem = clusters(p, seed, rounds)
        rows.append([rounds, index, pca.n_rounds_])
        shown[f"{pca.n_rounds_} rounds"] = (pca.site_distances_, [problem.groups[site] for site in pca.sites_])
        watch.on_run(f"{rounds} rounds: adjusted Rand index {index:.3f}")
    title = f"Personalized PCA paper, Figure 9: {p['sites']} sites of {p['groups']} groups"
    grid = Grid(title, ["at most\nrounds", "adjusted\nRand index", "rounds\ntaken"], rows)
    told = "Colours are the true groups; the affinity is (tr P_i P_j / r)^2.  The first round is the start."
    return Reproduced(title, [grid], small_print(size, CURVE_ONLY, told), maps(title, shown), {"rows": rows})
