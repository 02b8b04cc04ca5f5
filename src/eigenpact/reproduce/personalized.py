"""The personalized PCA paper's synthetic experiments, computed again: convergence, statistical errors, ranks, clusters.

How the paper was read
    PerPCA is ``perpca`` with choice 1, where curves by round are shown (from a random start with step .1, as the paper says, or
    with the step size of ours); elsewhere the optimum itself is shown, by the default solver ``varpro``, which finds it sooner.
    distPCA is the paper's variant with local deflation.  Rows are not centred.
What is measured
    Subspace error (30): ||P_U - P||_F^2 + 1/N sum_i ||P_Vi - P_i||_F^2 to the directions that made the data.  Reconstruction
    error (29): mean over sites of the mean squared length of what [U, V_i] misses.

References
    N. Shi, R. A. Kontar, "Personalized PCA: decoupling shared and unique features".
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..algorithms.personalized.perpca import PerPCA
from ..datasets import PersonalizedProblem, personalized_problem
from ..errors import NotConvergedWarning, NotIdentifiableWarning
from ..estimators.personalized import PersonalizedPCA
from ..numerics.linalg import Array
from .registry import Cell, Grid, Reproduced, Reproduction, Size, Watch, paper_numbers

if TYPE_CHECKING:
    from .drawing import Curve

SMALL: dict[str, dict[str, Any]] = {
    "fig1": {},
    "fig3": {"thetas": [0.05, 0.15, 0.3], "starts": 3},
    "fig4": {"rows": [300, 1000, 3000, 10000], "seeds": 2},
    "fig5": {"features": [15, 20, 30], "sites": 40, "rows": 3000, "seeds": 1},
    "fig6": {"sites": [10, 30, 100], "rows": 3000, "seeds": 1},
    "table2": {"seeds": 2},
    "fig7": {"rounds": 100, "more": [0, 1, 3]},
    "table3": {"rounds": 100, "seeds": 1},
    "fig8": {"rounds": 100, "more": [0, 1, 2]},
    "fig9": {"sites": 50, "rounds": [2, 5, 10]},
    "fig10": {},
    "fig11": {},
}
"""What the small size changes of the paper's problems."""

SCALED_DOWN = "This is the small size, with fewer seeds or smaller problems; --size paper computes the paper's."
CURVE_ONLY = "The paper shows this as curves only, so there are no numbers of its to print."


def fitted(sites: Mapping[str, Any], n_global: int, n_local: int, seed: int, **options: Any) -> PersonalizedPCA:
    """A fit without centring; not converging is reported by the caller where it matters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        warnings.simplefilter("ignore", NotIdentifiableWarning)
        return PersonalizedPCA(n_global, n_local, **{"center": False, "random_state": seed} | options).fit(sites)


def parameters(name: str, size: Size) -> dict[str, Any]:
    """The paper's problem, or the small one."""
    chosen: dict[str, Any] = paper_numbers("personalized")[name]
    return chosen | (SMALL.get(name, {}) if size is Size.small else {})


def small_print(size: Size, *remarks: str) -> list[str]:
    """Remarks, and that the numbers are of a smaller problem."""
    return [*remarks, *([SCALED_DOWN] if size is Size.small else [])]


def uneven(n: int, sites: int) -> list[int]:
    """Row counts: every other site has a tenth of n, at least 2."""
    return [n if i % 2 == 0 else max(2, n // 10) for i in range(sites)]


def subspace_error(pca: PersonalizedPCA, problem: PersonalizedProblem) -> tuple[float, float]:
    """(30), and its global part alone."""
    shared = _distance2(pca.components_.T, problem.U)
    own = float(np.mean([_distance2(pca.local_components_[site].T, V) for site, V in problem.V.items()]))
    return shared + own, shared


def _distance2(A: Array, B: Array) -> float:
    """||P_A - P_B||_F^2 of orthonormal bases, from sines."""
    missed = A - B @ (B.T @ A), B - A @ (A.T @ B)
    return float(np.sum(missed[0] ** 2) + np.sum(missed[1] ** 2))


def test_errors(pca: PersonalizedPCA, rows: Mapping[str, Any]) -> dict[str, float]:
    """(29) site by site."""
    return {site: pca.reconstruction_error(X, site=site) for site, X in rows.items() if X.shape[0]}


# -- two sites in three dimensions ------------------------------------------------------------------


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
    from .scenes import arrows

    p = parameters("fig1", size)
    problem = two_sites(p["theta"], p["rows"], seed)
    pooled = fitted(problem.sites, 1, 1, seed, solver="pooled")
    personal = fitted(problem.sites, 1, 1, seed)
    watch.on_run(f"personalized: {personal.stop_reason_}")
    rows: list[list[Cell]] = []
    for name, pca in (("pooled PCA", pooled), ("personalized PCA", personal)):
        errors = test_errors(pca, problem.sites)
        angle = float(np.sqrt(_distance2(pca.components_[:1].T, problem.U) / 2))
        rows.append([name, angle, *(errors[site] for site in problem.sites)])
    title = f"Personalized PCA paper, Figure 1: two sites, theta = {p['theta']}"
    columns = ["method", "sine to the\nglobal direction", "error,\nblue", "error,\nred"]
    return Reproduced(
        title,
        [Grid(title, columns, rows)],
        [
            f"theta of the fit: {personal.misalignment_:.3f}.  Pooled PCA has two components for both sites; "
            "one of them fits neither."
        ],
        arrows(title, problem.sites, {"pooled": pooled, "personalized": personal}),
        {"rows": rows, "theta": personal.misalignment_},
    )


def fig3(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 3: reconstruction error by round for several theta, and after the last round."""
    from . import drawing

    p = parameters("fig3", size)
    curves: dict[str, Curve] = {}
    rows: list[list[Cell]] = []
    shown = p["rounds"]
    for theta in p["thetas"]:
        problem = two_sites(theta, p["rows"], seed)
        total = float(np.mean([np.sum(X**2) / len(X) for X in problem.sites.values()]))
        runs = []
        for start in range(p["starts"]):
            solver = PerPCA(step=p["step"], start="random")
            pca = fitted(
                problem.sites, 1, 1, 1000 * seed + start, solver=solver, tol=0.0, max_rounds=5 * shown, misalignment=False
            )
            runs.append([max(1e-16, total * (1 - (record.objective or 0.0))) for record in pca.history_])
        longest = max(len(run) for run in runs)
        logs = np.array([[*np.log10(run), *[np.log10(run[-1])] * (longest - len(run))] for run in runs])
        curves[f"theta = {theta:g}"] = (range(1, longest + 1), (10 ** logs.mean(axis=0)).tolist())
        real = [log[(log > -13) & (log < -4)] for log in logs]
        rate = float(np.mean([10 ** np.diff(log).mean() for log in real if len(log) > 20] or [1.0]))
        after = logs[:, min(shown, longest) - 1]
        rows.append([theta, float(after.mean()), float(after.std()), float(logs[:, -1].mean()), rate])
        watch.on_run(f"theta = {theta:g}: log10 error {after.mean():.2f} after {shown} rounds, factor a round {rate:.4f}")
    ends = np.array([[float(row[0] or 0), float(row[3] or 0)] for row in rows if row[0]])
    correlation = float(np.corrcoef(ends.T)[0, 1])
    title = f"Personalized PCA paper, Figure 3: PerPCA, choice 1, step {p['step']}, {p['starts']} random starts"
    columns = ["theta", f"log10 error\nafter {shown}", "standard\ndeviation", f"after\n{5 * shown}", "factor\na round"]
    return Reproduced(
        title,
        [Grid(title, columns, rows)],
        small_print(
            size,
            CURVE_ONLY,
            f"Correlation of theta > 0 and log error after {5 * shown} rounds: {correlation:.3f}; the paper sees a falling line "
            f"at {shown}.  With theta = 0 both sites have one plane, and nothing is to be told apart.",
            "Factor a round: the error's between 1e-4 and 1e-13.  Scores have variance 1; the paper's is not told.",
        ),
        drawing.panels(title, [[drawing.Panel("means over starts", "round", "reconstruction error", curves)]]),
        {"rows": rows, "correlation": correlation},
    )


# -- statistical errors -----------------------------------------------------------------------------


def statistical_errors(p: Mapping[str, Any], seed: int, watch: Watch, label: str) -> dict[str, tuple[float, float]]:
    """Mean subspace error (30) and its global part over seeds, for personalized PCA and distPCA."""
    found: dict[str, list[tuple[float, float]]] = {"personalized": [], "distPCA": []}
    for s in range(p["seeds"]):
        problem = personalized_problem(
            p["sites"],
            p["features"],
            p["n_global"],
            p["n_local"],
            variances=tuple(p["variances"]),
            rows=uneven(p["rows"], p["sites"]),
            seed=1000 * seed + s,
        )
        for name, solver in (("personalized", "varpro"), ("distPCA", "distpca")):
            pca = fitted(problem.sites, p["n_global"], p["n_local"], seed, solver=solver, misalignment=False)
            found[name].append(subspace_error(pca, problem))
    means = {name: tuple(np.mean(values, axis=0).tolist()) for name, values in found.items()}
    watch.on_run(f"{label}: " + ", ".join(f"{name} {values[0]:.2e}" for name, values in means.items()))
    return means


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Of log y in log x."""
    return float(np.polyfit(np.log(xs), np.log(ys), 1)[0])


def _sweep(name: str, number: int, varied: str, size: Size, seed: int, watch: Watch) -> list[list[Cell]]:
    """Errors while one parameter varies: rows of a table."""
    p = parameters(name, size)
    rows: list[list[Cell]] = []
    for value in p[varied]:
        means = statistical_errors(p | {varied: value}, seed, watch, f"Figure {number}, {varied} = {value}")
        rows.append([value, *means["personalized"], *means["distPCA"]])
    return rows


def _swept(number: int, varied: str, size: Size, rows: list[list[Cell]], remarks: list[str]) -> Reproduced:
    from . import drawing

    xs = [float(row[0] or 0) for row in rows]
    both: dict[str, Curve] = {
        "personalized": (xs, [float(row[1] or 0) for row in rows]),
        "distPCA": (xs, [float(row[3] or 0) for row in rows]),
    }
    shared: dict[str, Curve] = {
        "personalized": (xs, [float(row[2] or 0) for row in rows]),
        "distPCA": (xs, [float(row[4] or 0) for row in rows]),
    }
    word = {"rows": "rows of a rich site", "features": "features", "sites": "sites"}[varied]
    title = f"Personalized PCA paper, Figure {number}: subspace error by number of {word}"
    columns = [word, "personalized", "its global\npart", "distPCA", "its global\npart"]
    panels = [
        drawing.Panel("global and local (30)", word, "subspace error", both, log_x=True),
        drawing.Panel("global alone", word, "subspace error", shared, log_x=True),
    ]
    return Reproduced(
        title,
        [Grid(title, columns, rows)],
        small_print(size, CURVE_ONLY, *remarks),
        drawing.panels(title, [panels]),
        {"rows": rows},
    )


def fig4(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 4: subspace error by number of rows; slope about -1 for personalized PCA; distPCA's falls too, but later."""
    rows = _sweep("fig4", 4, "rows", size, seed, watch)
    ns = [float(row[0] or 0) for row in rows if float(row[0] or 0) >= 1000]
    ours, theirs = ([float(row[j] or 0) for row in rows if float(row[0] or 0) >= 1000] for j in (1, 3))
    told = (
        f"Slope of log error in log n from n = 1000 on: {slope(ns, ours):.3f} (the paper: about -1), "
        f"distPCA {slope(ns, theirs):.3f}.  Half of the sites have n rows, the others a tenth."
    )
    made = _swept(4, "rows", size, rows, [told])
    made.numbers["slope"] = slope(ns, ours)
    return made


def fig5(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 5: subspace error by number of features."""
    rows = _sweep("fig5", 5, "features", size, seed, watch)
    ours = slope([float(row[0] or 0) for row in rows], [float(row[1] or 0) for row in rows])
    told = f"Exponent of d: {ours:.2f}; the paper's bound is quadratic."
    return _swept(5, "features", size, rows, [told])


def fig6(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 6: subspace error by number of sites; the global part falls."""
    rows = _sweep("fig6", 6, "sites", size, seed, watch)
    ours = slope([float(row[0] or 0) for row in rows], [float(row[2] or 0) for row in rows])
    told = f"Exponent of N in the global part: {ours:.2f}."
    return _swept(6, "sites", size, rows, [told])


# -- Table 2: what sites gain from one another ------------------------------------------------------

METHODS = {"individual": "individual", "pooled": "pooled", "distpca": "distpca", "personalized": "varpro"}
"""The tables' methods -> our solvers."""


def table2_errors(p: Mapping[str, Any], seed: int) -> dict[str, dict[str, float]]:
    """Mean test error of the sparse and the rich sites by method, and with the true directions, for one seed."""
    counts = uneven(p["rows"], p["sites"])
    problem = personalized_problem(
        p["sites"],
        p["features"],
        p["n_global"],
        p["n_local"],
        variances=tuple(p["variances"]),
        rows=counts,
        test_rows=1000,
        seed=seed,
    )
    rich = dict(zip(problem.sites, [n == p["rows"] for n in counts], strict=True))
    errors = {}
    for name, solver in METHODS.items():
        pca = fitted(problem.sites, p["n_global"], p["n_local"], seed, solver=solver, misalignment=False)
        errors[name] = test_errors(pca, problem.test)
    errors["truth"] = {
        site: float(np.sum((X - X @ W @ W.T) ** 2) / len(X))
        for site, X in problem.test.items()
        for W in [np.concatenate([problem.U, problem.V[site]], axis=1)]
    }
    return {
        group: {name: float(np.mean([e for site, e in found.items() if rich[site] == flag])) for name, found in errors.items()}
        for group, flag in (("sparse", False), ("rich", True))
    }


def table2(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Table 2: test errors of sites with few and with many rows."""
    from . import drawing

    p = parameters("table2", size)
    runs = []
    for s in range(p["seeds"]):
        runs.append(table2_errors(p, 1000 * seed + s))
        watch.on_run(f"seed {s}: " + ", ".join(f"{name} {value:.3f}" for name, value in runs[-1]["sparse"].items()))
    names = [*METHODS, "truth"]
    rows: list[list[Cell]] = []
    for group in ("sparse", "rich"):
        for name in names:
            values = [run[group][name] for run in runs]
            rows.append([group, name, float(np.mean(values)), float(np.std(values)), p[group][name]])
    below = all(run[g]["personalized"] < min(run[g]["individual"], run[g]["distpca"]) for run in runs for g in ("sparse", "rich"))
    shape = f"{p['sites']} sites, {p['rows']} or {p['rows'] // 10} rows, {p['seeds']} seeds"
    title = f"Personalized PCA paper, Table 2: test error, {shape}"
    groups = {name: [float(np.mean([run[g][name] for run in runs])) for g in ("sparse", "rich")] for name in names}
    paper = {name: [p[g][name] for g in ("sparse", "rich")] for name in names}
    return Reproduced(
        title,
        [Grid(title, ["sites", "method", "error", "standard\ndeviation", "paper"], rows)],
        small_print(
            size,
            f"Personalized is below individual and distPCA for every seed and group: {'yes' if below else 'NO'}.",
            "The paper does not print its variances.  With those that give its personalized and true columns, its baseline "
            "columns cannot be reached: individual PCA of 1000 rows is close to the truth here, as theory says it must be.",
        ),
        drawing.bars(title, "test error", ["sparse sites", "rich sites"], groups, paper, counts=True),
        {"runs": runs, "below": below},
    )


# -- ranks: Table 3, Figures 7 and 8 ----------------------------------------------------------------


def overparametrized(p: Mapping[str, Any], n_global: int, n_local: int, seed: int) -> tuple[dict[str, list[float]], float]:
    """Errors by round of PerPCA with these ranks on noiseless data of one global and one local direction; theta in the end."""
    problem = personalized_problem(p["sites"], p["features"], 1, 1, variances=(1.0, 1.0, 0.0), rows=p["rows"], seed=seed)
    total = float(np.mean([np.sum(X**2) / len(X) for X in problem.sites.values()]))
    shared: list[float] = []

    def measure(record: Any) -> None:
        U = record.basis
        shared.append(
            float(np.mean([np.sum((X @ U @ U.T - X @ problem.U @ problem.U.T) ** 2) / len(X) for X in problem.sites.values()]))
        )

    solver = PerPCA(start="random")
    pca = fitted(problem.sites, n_global, n_local, seed, solver=solver, tol=0.0, max_rounds=p["rounds"], callback=measure)
    whole = [max(1e-17, total * (1 - (record.objective or 0.0))) for record in pca.history_]
    return {"global": [max(1e-17, e) for e in shared], "reconstruction": whole}, float(pca.misalignment_ or 0.0)


def _ranks(name: str, number: int, which: str, size: Size, seed: int, watch: Watch) -> Reproduced:
    from . import drawing

    p = parameters(name, size)
    shared: dict[str, Curve] = {}
    whole: dict[str, Curve] = {}
    rows: list[list[Cell]] = []
    for more in p["more"]:
        ranks = (1 + more, 1) if which == "global" else (1, 1 + more)
        errors, theta = overparametrized(p, ranks[0], ranks[1], seed)
        label = f"{which} + {more}"
        shared[label] = (range(1, len(errors["global"]) + 1), errors["global"])
        whole[label] = (range(1, len(errors["reconstruction"]) + 1), errors["reconstruction"])
        rows.append([label, theta, errors["global"][-1], errors["reconstruction"][-1]])
        watch.on_run(f"{label}: theta {theta:.2e}, global error {errors['global'][-1]:.1e}")
    title = f"Personalized PCA paper, Figure {number}: more {which} components than the data have"
    columns = ["components", "theta", "global error\nin the end", "reconstruction\nerror in the end"]
    panels = [
        drawing.Panel("global error", "round", "error", shared),
        drawing.Panel("reconstruction error", "round", "error", whole),
    ]
    remark = "Noiseless rows, one global and one local direction; PerPCA, choice 1, random start, step 1 / max_i lambda_1."
    return Reproduced(
        title,
        [Grid(title, columns, rows)],
        small_print(size, CURVE_ONLY, remark),
        drawing.panels(title, [panels]),
        {"rows": rows},
    )


def fig7(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 7: too many local components."""
    return _ranks("fig7", 7, "local", size, seed, watch)


def fig8(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 8: too many global components."""
    return _ranks("fig8", 8, "global", size, seed, watch)


def table3(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Table 3: theta of the fit, for too many local components."""
    from . import drawing

    p = parameters("table3", size)
    rows: list[list[Cell]] = []
    for more, told in zip(p["more"], p["theta"], strict=True):
        found = [overparametrized(p, 1, 1 + more, 1000 * seed + s)[1] for s in range(p["seeds"])]
        rows.append([f"r2 + {more}", float(np.median(found)), min(found), max(found), told])
        watch.on_run(f"r2 + {more}: theta {np.median(found):.2e}")
    title = "Personalized PCA paper, Table 3: misalignment of the fit"
    ours = {"ours (median)": [max(1e-12, float(row[1] or 0)) for row in rows]}
    paper = {"ours (median)": p["theta"]}
    return Reproduced(
        title,
        [Grid(title, ["local\ncomponents", "theta", "least", "largest", "paper"], rows)],
        small_print(size, "Beyond r2 + 1 theta depends on the seed: it is a flag, not a measurement."),
        drawing.bars(title, "theta", [str(row[0]) for row in rows], ours, paper),
        {"rows": rows},
    )


# -- Figure 9: clusters -----------------------------------------------------------------------------


def clusters(p: Mapping[str, Any], seed: int, rounds: int) -> tuple[float, PersonalizedPCA, PersonalizedProblem]:
    """Adjusted Rand index of the sites' clusters after so many rounds, the start among them."""
    from sklearn.metrics import adjusted_rand_score

    problem = personalized_problem(
        p["sites"],
        p["features"],
        p["n_global"],
        p["n_local"],
        variances=tuple(p["variances"]),
        rows=p["rows"],
        n_groups=p["groups"],
        seed=seed,
    )
    pca = fitted(problem.sites, p["n_global"], p["n_local"], seed, max_rounds=rounds, misalignment=False)
    found = pca.cluster_sites(p["groups"])
    truth = [problem.groups[site] for site in pca.sites_]
    return float(adjusted_rand_score(truth, [found[site] for site in pca.sites_])), pca, problem


def fig9(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 9: sites of ten groups, told apart by their local components."""
    from .scenes import maps

    p = parameters("fig9", size)
    rows: list[list[Cell]] = []
    shown = {}
    for rounds in p["rounds"]:
        index, pca, problem = clusters(p, seed, rounds)
        rows.append([rounds, index, pca.n_rounds_])
        shown[f"{pca.n_rounds_} rounds"] = (pca.site_distances_, [problem.groups[site] for site in pca.sites_])
        watch.on_run(f"{rounds} rounds: adjusted Rand index {index:.3f}")
    title = f"Personalized PCA paper, Figure 9: {p['sites']} sites of {p['groups']} groups"
    return Reproduced(
        title,
        [Grid(title, ["at most\nrounds", "adjusted\nRand index", "rounds\ntaken"], rows)],
        small_print(
            size, CURVE_ONLY, "Colours are the true groups; the affinity is (tr P_i P_j / r)^2.  The first round is the start."
        ),
        maps(title, shown),
        {"rows": rows},
    )


# -- Figures 10 and 11: the lower bound -------------------------------------------------------------


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
    return _distance2(pca.components_.T, u[:, None]) / epsilon**2


def predicted_error(theta: float, delta: float) -> float:
    """The leading term of (49): 3 / (32 theta) + ((2 sqrt 3 - 1 - 4 delta) / (delta (1 + delta)))^2 / 32."""
    return float(3 / (32 * theta) + ((2 * np.sqrt(3) - 1 - 4 * delta) / (delta * (1 + delta))) ** 2 / 32)


def _bound(name: str, number: int, size: Size, watch: Watch) -> Reproduced:
    from . import drawing

    p = parameters(name, size)
    if number == 10:
        xs, symbol = p["over_delta2"], "1 / delta^2"
        pairs = [(p["theta"], float(x) ** -0.5) for x in xs]
    else:
        xs, symbol = p["over_theta"], "1 / theta"
        pairs = [(1 / x, p["delta"]) for x in xs]
    found = [spiked_error(float(np.arcsin(np.sqrt(theta))), 1 - delta, p["epsilon"]) for theta, delta in pairs]
    told = [predicted_error(theta, delta) for theta, delta in pairs]
    watch.on_run(", ".join(f"{x}: {e:.4g}" for x, e in zip(xs, found, strict=True)))
    line = np.polyfit(xs[1:], found[1:], 1)
    straight = float(np.corrcoef(xs[1:], found[1:])[0, 1])
    rows: list[list[Cell]] = [[x, e, t] for x, e, t in zip(xs, found, told, strict=True)]
    title = f"Personalized PCA paper, Figure {number}: global error / epsilon^2 by {symbol}"
    curves: dict[str, Curve] = {"measured": (xs, found), "predicted, (49)": (xs, told)}
    remark = f"Straight line: slope {line[0]:.4g}, correlation {straight:.5f}."
    panel = drawing.Panel("", symbol, "squared error / epsilon^2", curves, log_y=False)
    return Reproduced(
        title,
        [Grid(title, [symbol, "measured", "predicted,\n(49)"], rows)],
        [CURVE_ONLY, remark],
        drawing.panels(title, [[panel]]),
        {"rows": rows, "correlation": straight},
    )


def fig10(size: Size, seed: int, watch: Watch) -> Reproduced:  # noqa: ARG001
    """Figure 10: the global error grows with 1 / delta^2, delta the eigengap."""
    return _bound("fig10", 10, size, watch)


def fig11(size: Size, seed: int, watch: Watch) -> Reproduced:  # noqa: ARG001
    """Figure 11: the global error grows with 1 / theta."""
    return _bound("fig11", 11, size, watch)


REPRODUCTIONS = (
    Reproduction("personalized-fig1", "two sites: pooled and personalized components", fig1),
    Reproduction("personalized-fig3", "PerPCA's convergence for several theta", fig3),
    Reproduction("personalized-fig4", "subspace error by number of rows, beside distPCA", fig4),
    Reproduction("personalized-fig5", "subspace error by number of features", fig5),
    Reproduction("personalized-fig6", "subspace error by number of sites", fig6),
    Reproduction("personalized-table2", "test errors of sites with few and with many rows", table2),
    Reproduction("personalized-table3", "theta for too many local components", table3),
    Reproduction("personalized-fig7", "too many local components", fig7),
    Reproduction("personalized-fig8", "too many global components", fig8),
    Reproduction("personalized-fig9", "sites of ten groups, clustered by local components", fig9),
    Reproduction("personalized-fig10", "global error by eigengap", fig10),
    Reproduction("personalized-fig11", "global error by misalignment", fig11),
)
