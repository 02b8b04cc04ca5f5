"""Two sites in few dimensions: Figures 1 and 3, and Figures 10 and 11, the lower bound on the global error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...algorithms.personalized.perpca import PerPCA
from ...datasets import PersonalizedProblem
from ...estimators.personalized import PersonalizedPCA
from .. import drawing
from ..registry import CURVE_ONLY, Cell, Grid, Reproduced, Size, Watch
from .fitting import distance2, errors_by_round, fitted, parameters, published, small_print, test_errors
from .scenes import arrows

# -- Figures 1 and 3: in three dimensions ----------------------------------------------------------

LIMITS = 1.96
"""Standard errors that a confidence interval of 95 % reaches to either side."""


def two_sites(theta: float, rows: int, seed: int, noise: float = 0.0) -> PersonalizedProblem:
    """One global and one local direction each, the local ones with misalignment theta; unit variances."""
    half = float(np.arcsin(np.sqrt(theta)))
    V = {name: np.array([[0.0], [np.cos(a)], [np.sin(a)]]) for name, a in (("blue", half), ("red", -half))}
    U, rng = np.eye(3, 1), np.random.default_rng(seed)
    sites = {
        name: rng.standard_normal((rows, 2)) @ np.concatenate([U, v], axis=1).T + noise * rng.standard_normal((rows, 3))
        for name, v in V.items()
    }
    return PersonalizedProblem(sites, {}, U, V, {"blue": 0, "red": 1})


def fig1(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 1: pooled and personalized components of two data sets, each on a plane."""
    p = parameters("fig1", size)
    problem = two_sites(p["theta"], p["rows"], seed)
    pooled = fitted(problem.sites, 1, 1, seed, solver="pooled")
    perpca = fitted(problem.sites, 1, 1, seed, solver=published(problem.sites), tol=1e-8, max_rounds=p["rounds"])
    varpro = fitted(problem.sites, 1, 1, seed)
    watch.on_run(f"perpca: {perpca.stop_reason_}; varpro: {varpro.stop_reason_}")

    def row(name: str, pca: PersonalizedPCA) -> list[Cell]:
        angle = float(np.sqrt(distance2(pca.components_[:1].T, problem.U) / 2))
        return [name, angle, *test_errors(pca, problem.sites).values()]

    rows = [row("pooled", pooled), row("perpca", perpca), row("varpro", varpro)]
    title = f"Personalized PCA paper, Figure 1: two sites, theta = {p['theta']}"
    columns = ["method", "sine to the\nglobal direction", "error,\nblue", "error,\nred"]
    theta = perpca.misalignment_
    remark = f"theta of perpca's fit, {perpca.n_rounds_} rounds: {theta:.3f}; varpro took {varpro.n_rounds_}."
    pooled_told = "Pooled PCA has two components for both sites; one of them fits neither."
    figure = arrows(title, problem.sites, {"pooled": pooled, "perpca": perpca})
    return Reproduced(title, [Grid(title, columns, rows)], [remark, pooled_told], figure, {"rows": rows, "theta": theta})


def fig3(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 3: reconstruction error by round for several theta, and after the last round."""
    p = parameters("fig3", size)
    curves: dict[str, drawing.Curve] = {}
    rows: list[list[float]] = []
    shown = p["rounds"]
    for theta in p["thetas"]:
        problem, runs = two_sites(theta, p["rows"], seed), []
        options = {"solver": PerPCA(step=p["step"], start="random"), "tol": 0.0, "max_rounds": 5 * shown, "misalignment": False}
        for start in range(p["starts"]):
            pca = fitted(problem.sites, 1, 1, 1000 * seed + start, **options)
            runs.append(errors_by_round(pca, problem.sites, 1e-16))
        longest = max(len(run) for run in runs)
        logs = np.array([[*np.log10(run), *[np.log10(run[-1])] * (longest - len(run))] for run in runs])
        curves[f"perpca, theta = {theta:g}"] = drawing.from_one((10 ** logs.mean(axis=0)).tolist())
        real = [log[(log > -13) & (log < -4)] for log in logs]
        rate = float(np.mean([10 ** np.diff(log).mean() for log in real if len(log) > 20] or [1.0]))
        after = logs[:, min(shown, longest) - 1]
        rows.append([theta, float(after.mean()), float(after.std()), float(logs[:, -1].mean()), rate])
        watch.on_run(f"theta = {theta:g}: log10 error {after.mean():.2f} after {shown} rounds, factor a round {rate:.4f}")
    ends = np.array([[row[0], row[1], row[3]] for row in rows if row[0]])
    early, correlation = np.corrcoef(ends.T)[0, 1:].tolist()
    title = f"Personalized PCA paper, Figure 3: PerPCA, choice 1, step {p['step']}, {p['starts']} random starts"
    columns = ["theta", f"log10 error\nafter {shown}", "standard\ndeviation", f"after\n{5 * shown}", "factor\na round"]
    remarks = small_print(
        size,
        CURVE_ONLY,
        f"Correlation of theta > 0 and log error: {early:.3f} after {shown} rounds, where the paper sees a falling line, and "
        f"{correlation:.3f} after {5 * shown}.  With theta = 0 both sites have one plane, and nothing is to be told apart.",
        "Factor a round: the error's between 1e-4 and 1e-13.  Scores have variance 1; the paper's is not told.",
    )
    right = {"perpca": 0.0, "perpca, upper limit": 1.0, "perpca, lower limit": -1.0}
    at_end: dict[str, drawing.Curve] = {
        name: ([row[0] for row in rows], [row[1] + sign * LIMITS * row[2] / p["starts"] ** 0.5 for row in rows])
        for name, sign in right.items()
    }
    panels = [
        drawing.Panel("means over starts", "round", "reconstruction error", curves),
        drawing.Panel(f"after round {shown}, 95 % limits of the mean", "theta", "log10 error", at_end, log_y=False),
    ]
    figure = drawing.panels(title, [panels])
    return Reproduced(title, [Grid(title, columns, rows)], remarks, figure, {"rows": rows, "correlation": correlation})


# -- Figures 10 and 11: the lower bound ------------------------------------------------------------


def spiked_errors(gamma: float, rho: float, epsilon: float, rounds: int) -> list[float]:
    """||u u^T - U U^T||_F^2 / epsilon^2 for the perturbed pair of covariances (39) to (42), alpha = 30 degrees.

    By ``perpca`` after at most so many rounds, and by ``varpro``.

    The second site's perturbation v_2 across_2^T is taken with the sign for which the paper's (47) follows; with the other one
    the two sites' forces along the first axis cancel, and nothing grows with 1 / theta.
    """
    alpha = np.pi / 6
    u, w3 = np.array([0.0, 0, 1, 0]), np.array([0.0, 0, 0, 1])
    sites = {}
    for name, side in (("first", 1.0), ("second", -1.0)):
        v = np.array([np.cos(gamma), side * np.sin(gamma), 0, 0])
        across = np.array([-np.sin(gamma), side * np.cos(gamma), 0, 0])
        one, two = np.sin(alpha) * v + np.cos(alpha) * u, np.cos(alpha) * v - np.sin(alpha) * u
        S = 2 * np.outer(one, one) + np.outer(two, two) + rho * np.outer(w3, w3)
        pairs = [(v, w3), (v, u), (v, across)] + ([(w3, u)] if side > 0 else [])
        for a, b in pairs:
            S += epsilon * (np.outer(a, b) + np.outer(b, a))
        values, vectors = np.linalg.eigh(S + 0.1 * np.eye(4))  # a multiple of I moves no subspace, and keeps S positive
        sites[name] = 2 * (vectors * np.sqrt(values)).T  # four rows whose covariance is S
    runs: list[dict[str, Any]] = [{"solver": published(sites, times=1.5), "max_rounds": rounds}, {"solver": "varpro"}]
    fits = [fitted(sites, 1, 1, 0, tol=1e-8, misalignment=False, **run) for run in runs]
    return [distance2(pca.components_.T, u[:, None]) / epsilon**2 for pca in fits]


def predicted_error(theta: float, delta: float) -> float:
    """The leading term of (49): 3 / (32 theta) + ((2 sqrt 3 - 1 - 4 delta) / (delta (1 + delta)))^2 / 32."""
    return float(3 / (32 * theta) + ((2 * np.sqrt(3) - 1 - 4 * delta) / (delta * (1 + delta))) ** 2 / 32)


def _bound(
    number: int, symbol: str, p: Mapping[str, Any], pairs: Mapping[float, tuple[float, float]], watch: Watch
) -> Reproduced:
    """Errors by x, which has this theta and delta."""
    rows = []
    for x, (theta, delta) in pairs.items():
        found = spiked_errors(float(np.arcsin(np.sqrt(theta))), 1 - delta, p["epsilon"], p["rounds"])
        rows.append([x, *found, predicted_error(theta, delta)])
        watch.on_run(f"{symbol} = {x}: perpca {found[0]:.4g}, varpro {found[1]:.4g}")
    xs, ys = zip(*[(row[0], row[2]) for row in rows[1:]], strict=True)
    line, straight = np.polyfit(xs, ys, 1), float(np.corrcoef(xs, ys)[0, 1])
    title = f"Personalized PCA paper, Figure {number}: global error / epsilon^2 by {symbol}"
    grid = Grid(title, [symbol, "perpca", "varpro", "predicted,\n(49)"], rows)
    remark = f"Straight line of varpro's: slope {line[0]:.4g}, correlation {straight:.5f}."
    curves = drawing.by_first(rows, {"perpca": 1, "varpro": 2, "predicted, (49)": 3})
    figure = drawing.panels(title, [[drawing.Panel("", symbol, "squared error / epsilon^2", curves, log_y=False)]])
    by = f"perpca: choice 1 from the paper's start, step 1.5 / max_i lambda_1, at most {p['rounds']} rounds."
    return Reproduced(title, [grid], [CURVE_ONLY, by, remark], figure, {"rows": rows, "correlation": straight})


def fig10(size: Size, seed: int, watch: Watch) -> Reproduced:  # noqa: ARG001
    """Figure 10: the global error grows with 1 / delta^2, delta the eigengap."""
    p = parameters("fig10", size)
    return _bound(10, "1 / delta^2", p, {x: (p["theta"], float(x) ** -0.5) for x in p["over_delta2"]}, watch)


def fig11(size: Size, seed: int, watch: Watch) -> Reproduced:  # noqa: ARG001
    """Figure 11: the global error grows with 1 / theta."""
    p = parameters("fig11", size)
    return _bound(11, "1 / theta", p, {x: (1 / x, p["delta"]) for x in p["over_theta"]}, watch)
