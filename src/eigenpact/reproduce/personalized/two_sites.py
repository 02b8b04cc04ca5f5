"""Two sites in few dimensions: Figures 1 and 3, and Figures 10 and 11, the lower bound on the global error."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...algorithms.personalized.perpca import PerPCA
from ...datasets import PersonalizedProblem
from ...estimators.personalized import PersonalizedPCA
from .. import drawing
from ..registry import CURVE_ONLY, Cell, Grid, Reproduced, Size, Watch
from .fitting import distance2, errors_by_round, fitted, parameters, small_print, test_errors
from .scenes import arrows

# -- Figures 1 and 3: in three dimensions ----------------------------------------------------------


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
    personal = fitted(problem.sites, 1, 1, seed)
    watch.on_run(f"personalized: {personal.stop_reason_}")

    def row(name: str, pca: PersonalizedPCA) -> list[Cell]:
        angle = float(np.sqrt(distance2(pca.components_[:1].T, problem.U) / 2))
        return [name, angle, *test_errors(pca, problem.sites).values()]

    rows = [row("pooled PCA", pooled), row("personalized PCA", personal)]
    title = f"Personalized PCA paper, Figure 1: two sites, theta = {p['theta']}"
    columns = ["method", "sine to the\nglobal direction", "error,\nblue", "error,\nred"]
    theta = personal.misalignment_
    remark = f"theta of the fit: {theta:.3f}.  Pooled PCA has two components for both sites; one of them fits neither."
    figure = arrows(title, problem.sites, {"pooled": pooled, "personalized": personal})
    return Reproduced(title, [Grid(title, columns, rows)], [remark], figure, {"rows": rows, "theta": theta})


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
        curves[f"theta = {theta:g}"] = drawing.from_one((10 ** logs.mean(axis=0)).tolist())
        real = [log[(log > -13) & (log < -4)] for log in logs]
        rate = float(np.mean([10 ** np.diff(log).mean() for log in real if len(log) > 20] or [1.0]))
        after = logs[:, min(shown, longest) - 1]
        rows.append([theta, float(after.mean()), float(after.std()), float(logs[:, -1].mean()), rate])
        watch.on_run(f"theta = {theta:g}: log10 error {after.mean():.2f} after {shown} rounds, factor a round {rate:.4f}")
    ends = np.array([[row[0], row[3]] for row in rows if row[0]])
    correlation = float(np.corrcoef(ends.T)[0, 1])
    title = f"Personalized PCA paper, Figure 3: PerPCA, choice 1, step {p['step']}, {p['starts']} random starts"
    columns = ["theta", f"log10 error\nafter {shown}", "standard\ndeviation", f"after\n{5 * shown}", "factor\na round"]
    remarks = small_print(
        size,
        CURVE_ONLY,
        f"Correlation of theta > 0 and log error after {5 * shown} rounds: {correlation:.3f}; the paper sees a falling line "
        f"at {shown}.  With theta = 0 both sites have one plane, and nothing is to be told apart.",
        "Factor a round: the error's between 1e-4 and 1e-13.  Scores have variance 1; the paper's is not told.",
    )
    figure = drawing.panels(title, [[drawing.Panel("means over starts", "round", "reconstruction error", curves)]])
    return Reproduced(title, [Grid(title, columns, rows)], remarks, figure, {"rows": rows, "correlation": correlation})


# -- Figures 10 and 11: the lower bound ------------------------------------------------------------


def spiked_error(gamma: float, rho: float, epsilon: float) -> float:
    """||u u^T - U U^T||_F^2 / epsilon^2 for the perturbed pair of covariances (39) to (42), alpha = 30 degrees.

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
    pca = fitted(sites, 1, 1, 0, tol=1e-8, misalignment=False)
    return distance2(pca.components_.T, u[:, None]) / epsilon**2


def predicted_error(theta: float, delta: float) -> float:
    """The leading term of (49): 3 / (32 theta) + ((2 sqrt 3 - 1 - 4 delta) / (delta (1 + delta)))^2 / 32."""
    return float(3 / (32 * theta) + ((2 * np.sqrt(3) - 1 - 4 * delta) / (delta * (1 + delta))) ** 2 / 32)


def _bound(
    number: int, symbol: str, xs: Sequence[float], pairs: Sequence[tuple[float, float]], epsilon: float, watch: Watch
) -> Reproduced:
    """Errors by x, for which theta and delta are these pairs."""
    found = [spiked_error(float(np.arcsin(np.sqrt(theta))), 1 - delta, epsilon) for theta, delta in pairs]
    watch.on_run(", ".join(f"{x}: {e:.4g}" for x, e in zip(xs, found, strict=True)))
    rows = [[x, e, predicted_error(*pair)] for x, e, pair in zip(xs, found, pairs, strict=True)]
    line = np.polyfit(xs[1:], found[1:], 1)
    straight = float(np.corrcoef(xs[1:], found[1:])[0, 1])
    title = f"Personalized PCA paper, Figure {number}: global error / epsilon^2 by {symbol}"
    grid = Grid(title, [symbol, "measured", "predicted,\n(49)"], rows)
    remark = f"Straight line: slope {line[0]:.4g}, correlation {straight:.5f}."
    curves = drawing.by_first(rows, {"measured": 1, "predicted, (49)": 2})
    figure = drawing.panels(title, [[drawing.Panel("", symbol, "squared error / epsilon^2", curves, log_y=False)]])
    return Reproduced(title, [grid], [CURVE_ONLY, remark], figure, {"rows": rows, "correlation": straight})


def fig10(size: Size, seed: int, watch: Watch) -> Reproduced:  # noqa: ARG001
    """Figure 10: the global error grows with 1 / delta^2, delta the eigengap."""
    p = parameters("fig10", size)
    xs = p["over_delta2"]
    return _bound(10, "1 / delta^2", xs, [(p["theta"], float(x) ** -0.5) for x in xs], p["epsilon"], watch)


def fig11(size: Size, seed: int, watch: Watch) -> Reproduced:  # noqa: ARG001
    """Figure 11: the global error grows with 1 / theta."""
    p = parameters("fig11", size)
    xs = p["over_theta"]
    return _bound(11, "1 / theta", xs, [(1 / x, p["delta"]) for x in xs], p["epsilon"], watch)
