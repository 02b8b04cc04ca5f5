"""The one-shot paper's Figure 1 and Table 1: errors of one round beside the centralized one, and rounds of all that take more.

How errors are measured
    The error of a unit vector w is 1 - (w^T v_1)^2, with v_1 of the population, as in the paper.  The centralized estimator is
    the leading eigenvector of all rows' scatter.  Rows are not centred, because the paper's are not.
How Figure 1 is computed
    Every estimator is a solver of this package.  All of them see rows through scatters only, so a site with more rows than
    features holds as many as features, with the same scatter (``population.py``).  A merge sees of a site only its leading
    direction: rows are asked for it in one run, and the other merges run on sites that hold it as their single row.
How Table 1 was read
    It gives orders of growth without constants.  Shown are rounds on the same rows: until the error is within a hundredth of the
    centralized one, until w is the pooled eigenvector to 1 - (w^T v)^2 <= 1e-8, and until the solver stopped by its own rule.
    Only the last counts the rounds by which power and shift-invert have their answer confirmed, which the paper's have not.

References
    D. Garber, O. Shamir, N. Srebro, "Communication-efficient algorithms for distributed stochastic principal component
    analysis", ICML 2017.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

import numpy as np
from scipy.linalg import eigh

from ..algorithms.consensus.gram import Gram
from ..algorithms.consensus.krylov import Krylov
from ..algorithms.solution import Algorithm
from ..algorithms.statistical.davidson import Davidson
from ..algorithms.statistical.hot_potato import HotPotato
from ..algorithms.statistical.lanczos import Lanczos
from ..algorithms.statistical.one_shot import OneShot
from ..algorithms.statistical.power import Power
from ..algorithms.statistical.shift_invert import ShiftInvert
from ..engines import InProcess
from ..errors import NotConvergedWarning
from ..estimators import FederatedPCA
from ..numerics.linalg import Array
from ..numerics.metrics import largest_sine
from ..privacy import Eavesdropper
from ..runtime import RoundRecord
from .own_rounds import OwnRounds
from .population import Distribution, Population, population
from .registry import Cell, Grid, Reproduced, Reproduction, Size, Watch, paper_numbers

SMALL: dict[str, dict[str, Any]] = {
    "fig1": {"repeats": 8},
    "table1": {
        "features": 100,
        "sites": 10,
        "problems": {
            "gap .2, 400 rows a site": {"second": 0.8, "rows": 400},
            "gap .02, 1000 rows a site": {"second": 0.98, "rows": 1000},
        },
    },
}
"""What the small size changes: fewer repeats of Figure 1; for Table 1 smaller problems."""

SINGLE = "single site"
MERGES: dict[str, OneShot] = {
    "average": OneShot(merge="average", confirm=False),
    "sign fixing, site 1": OneShot(merge="sign", reference=0, confirm=False),
    "sign fixing, medoid": OneShot(merge="sign", confirm=False),
    "projection": OneShot(merge="projection", confirm=False),
}
ESTIMATORS = ("centralized", *MERGES, SINGLE)
"""All of Figure 1; the medoid is ours."""

CURVE_ONLY = "The paper shows this as curves only, so there are no numbers of its to print."
FEW = "This is the small size, {} repeats: standard errors are large.  --size paper takes 400, as the paper does."
UNIFORM = (
    "Rows are sqrt(3/2) X^1/2 y with y uniform on [-1, 1], as the paper has it.  Their covariance is X / 2, not X, since y has "
    "variance 1/3; directions, and so errors, do not depend on that factor."
)


def _parameters(name: str, size: Size) -> dict[str, Any]:
    chosen: dict[str, Any] = paper_numbers("oneshot")[name]
    return chosen | (SMALL[name] if size is Size.small else {})


def _fit(sites: Mapping[str, Array], solver: Algorithm, seed: int, **settings: Any) -> Any:
    return FederatedPCA(1, solver=solver, center=False, random_state=seed, **settings).fit(dict(sites))


# -- Figure 1: one round -----------------------------------------------------------------------------


def errors(drawn: Population, sites: Mapping[str, Array], seed: int) -> dict[str, float]:
    """Estimator -> 1 - (w^T v_1)^2, on rows (n_i x d) of sites; for the single site the mean over all of them."""
    found = {"centralized": _fit(sites, Gram(), seed)}
    spy = Eavesdropper(InProcess())
    first, *others = MERGES
    found[first] = _fit(sites, MERGES[first], seed, engine=spy)
    directions = {name: spy.replies(name, "own_directions")[0].arrays[0] for name in sites}
    shown = {name: np.ascontiguousarray(V.T) for name, V in directions.items()}
    found |= {name: _fit(shown, MERGES[name], seed) for name in others}
    units = [V / np.linalg.norm(V) for V in directions.values()]
    return {name: drawn.error(pca.components_.T) for name, pca in found.items()} | {
        SINGLE: float(np.mean([drawn.error(V) for V in units]))
    }


@dataclass(frozen=True)
class Average:
    """Mean over repeats, and its standard error."""

    mean: float
    error: float


def averages(n: int, p: Mapping[str, Any], distribution: Distribution, seed: int, watch: Watch) -> dict[str, Average]:
    """Estimator -> error for n rows a site.  ``p`` has features, sites, second, decay and repeats; every repeat draws anew."""
    drawn: dict[str, list[float]] = {name: [] for name in ESTIMATORS}
    for repeat in range(p["repeats"]):
        rng = np.random.default_rng([seed, n, repeat])
        source = population(p["features"], second=p["second"], decay=p["decay"], rng=rng, distribution=distribution)
        signs = int(rng.integers(2**32))  # the seed by which sites choose their signs
        for name, error in errors(source, source.condensed_sites(p["sites"], n, rng), signs).items():
            drawn[name].append(error)
        watch.on_round(f"{distribution}, n = {n}: repeat {repeat + 1} of {p['repeats']}")
    found = {name: _average(np.array(values)) for name, values in drawn.items()}
    watch.on_run(f"{distribution}, n = {n}: " + ", ".join(f"{name} {a.mean:.3g}" for name, a in found.items()))
    return found


def _average(values: Array) -> Average:
    return Average(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))


def fig1(size: Size, seed: int, watch: Watch, distribution: Distribution = "normal") -> Reproduced:
    """Figure 1: error against the rows of a site, one curve an estimator."""
    from . import drawing

    p = _parameters("fig1", size)
    found = {n: averages(n, p, distribution, seed, watch) for n in p["rows"]}
    table: list[list[Cell]] = []
    for n, row in found.items():
        for name in ESTIMATORS:
            here, central = row[name], row["centralized"]
            table.append([n, name, here.mean, here.error, round(here.mean / central.mean, 2)])
    shape = f"{p['features']} features, {p['sites']} sites, {p['repeats']} repeats"
    title = f"One-shot paper, Figure 1, {distribution} distribution: {shape}"
    curves = {name: (list(found), [row[name].mean for row in found.values()]) for name in ESTIMATORS}
    panel = drawing.Panel("", "rows of a site (n)", "1 - (w'v1)^2, mean", curves, log_x=True)
    return Reproduced(
        title,
        [Grid(title, ["n", "estimator", "error", "standard\nerror", "times the\ncentralized"], table)],
        [
            CURVE_ONLY,
            "The average has signs at random, as in the paper.  Site 1 is the paper's reference for sign fixing; the medoid is "
            "the site that agrees best with all, an addition of ours.",
            *([UNIFORM] if distribution == "uniform" else []),
            *([FEW.format(p["repeats"])] if size is Size.small else []),
        ],
        drawing.panels(title.replace(": ", "\n", 1), [[panel]]),
        {
            "problem": {**p, "distribution": distribution},
            "errors": {str(n): {name: asdict(a) for name, a in row.items()} for n, row in found.items()},
        },
    )


# -- Table 1: rounds ---------------------------------------------------------------------------------

WITHIN, NEAR, SINE = 1.01, 1e-8, 1e-4
"""Times the centralized error; 1 - (w^T v)^2 to the pooled eigenvector; and its root, to which solvers are asked to stop."""

MOST_ROUNDS = 3000


@dataclass(frozen=True)
class Entrant:
    """A solver under the name it is shown with; ``like`` is the paper's entry, if there is one."""

    name: str
    solver: Algorithm
    like: str | None = None


ENTRANTS = (
    Entrant("sign fixing, site 1", OneShot(merge="sign", reference=0, confirm=False), "one-shot"),
    Entrant("projection", OneShot(merge="projection", confirm=False), "one-shot"),
    Entrant("hot potato", HotPotato(confirm=False), "hot-potato"),
    Entrant("power", Power(angle_tol=SINE), "power"),
    Entrant("lanczos", Lanczos(angle_tol=SINE), "lanczos"),
    Entrant("shift-invert", ShiftInvert(proxy=0, angle_tol=SINE), "shift-invert"),
    Entrant("davidson", Davidson(proxy=0, angle_tol=SINE)),
    Entrant("krylov, proxy", Krylov(proxy=0, angle_tol=SINE)),
    Entrant("lanczos, one-shot start", Lanczos(start="one-shot", angle_tol=SINE)),
    Entrant("davidson, one-shot start", Davidson(proxy=0, start="one-shot", angle_tol=SINE)),
)
"""Random starts are the paper's; the first site is the coordinator's own."""


@dataclass(frozen=True)
class Point:
    """After a round of the method's own: the error to the population's direction, and to the pooled eigenvector."""

    round: int
    population: float
    pooled: float


@dataclass(frozen=True)
class Raced:
    """What a solver did on one problem.

    Attributes
    ----------
    central : float
        The centralized estimator's error.
    own_stop : int
        Rounds until it stopped by its own rule; a one-shot start counts as one, set-up does not.
    confirming : int
        How many of these were to confirm the answer.
    estimate : float or None
        The square of its own estimate of the sine to the pooled eigenvector.
    bytes_up : int
        From a site that is not the coordinator's own, set-up not counted.
    curve : after every round of its own that was reported
    """

    problem: str
    name: str
    like: str | None
    central: float
    own_stop: int
    confirming: int
    estimate: float | None
    bytes_up: int
    curve: tuple[Point, ...]

    @property
    def to_central(self) -> int | None:
        """The first round with an error of at most WITHIN times the centralized one."""
        return next((point.round for point in self.curve if point.population <= WITHIN * self.central), None)

    @property
    def to_pooled(self) -> int | None:
        """The first round with 1 - (w^T v)^2 <= NEAR to the pooled eigenvector v."""
        return next((point.round for point in self.curve if point.pooled <= NEAR), None)


def raced(problem: str, drawn: Population, sites: Mapping[str, Array], entrant: Entrant, seed: int) -> Raced:
    """Run a solver by its own rule and measure the vector after every round."""
    C = reduce(np.add, (X.T @ X for X in sites.values()))
    pooled = eigh(C, subset_by_index=(len(C) - 1, len(C) - 1))[1]
    curve, own = list[Point](), OwnRounds()

    def callback(record: RoundRecord) -> None:
        number = own.number(record)
        if number is not None and record.basis is not None:
            curve.append(Point(number, drawn.error(record.basis), largest_sine(record.basis, pooled) ** 2))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)  # told by the curve
        pca = _fit(sites, entrant.solver, seed, callback=callback, max_rounds=MOST_ROUNDS)
    estimate = None if pca.angle_estimate_ is None else float(pca.angle_estimate_) ** 2
    last = sorted(sites)[-1]
    up = sum(message.bytes for message in pca.ledger_ if message.sender == last and message.note != "setup")
    central = drawn.error(pooled)
    stop = int(pca.n_rounds_), own.confirming
    return Raced(problem, entrant.name, entrant.like, central, *stop, estimate, int(up), tuple(curve))


def table1(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Table 1: all methods on the same rows, one problem with a wide gap and one with a narrow gap."""
    from . import drawing

    p = _parameters("table1", size)
    told = [[name, p["rounds"][name], p["errors"][name]] for name in p["rounds"]]
    grids = [
        Grid("One-shot paper, Table 1, as printed: orders of growth", ["solver", "rounds", "error, times the centralized"], told)
    ]
    above, below, runs = list[drawing.Panel](), list[drawing.Panel](), list[Raced]()
    for problem, q in p["problems"].items():
        rng = np.random.default_rng([seed, q["rows"]])
        drawn = population(p["features"], second=q["second"], decay=p["decay"], rng=rng)
        sites = drawn.sites(p["sites"], q["rows"], rng)
        here = []
        for entrant in ENTRANTS:
            watch.on_round(f"{problem}: {entrant.name}")
            here.append(raced(problem, drawn, sites, entrant, seed))
            watch.on_run(f"{problem}, {entrant.name}: {here[-1].own_stop} rounds, error {here[-1].curve[-1].population:.3g}")
        runs += here
        central = here[0].central
        grids.append(_rounds_grid(f"One-shot paper, Table 1, {problem}: {p['features']} features, {p['sites']} sites", here))
        level = "the centralized error"
        curves = {run.name: ([q.round for q in run.curve], [q.population for q in run.curve]) for run in here}
        above.append(
            drawing.Panel(problem, "round", "1 - (w'v1)^2, population", curves, level=central, level_name=level, log_x=True)
        )
        curves = {run.name: ([q.round for q in run.curve], [max(q.pooled, 1e-12) for q in run.curve]) for run in here}
        below.append(drawing.Panel("", "round", "1 - (w'v)^2, pooled", curves, level=NEAR, level_name=f"{NEAR:g}", log_x=True))
    return Reproduced(
        "One-shot paper, Table 1: rounds and errors on the same rows",
        grids,
        [
            "The paper gives orders of growth, up to logarithms and without constants: b bounds the squared length of a row, "
            "delta is the gap, n the rows of a site, m the number of sites.  Davidson and krylov are not in it.",
            f"To central: rounds until 1 - (w'v1)^2, v1 of the population, is within {WITHIN - 1:.0%} of the centralized "
            f"estimator's.  To pooled: until 1 - (w'v)^2 <= {NEAR:g} for the pooled eigenvector v.  Own stop: rounds until the "
            f"solver stopped by itself, asked for a sine of {SINE:g}; for power and shift-invert with those that confirm their "
            "answer in the end, which are ours, do not count elsewhere in this table, and are not in the paper.  Then true, and "
            "own estimate: 1 - (w'v)^2 at that moment.  Error is 1 - (w'v1)^2 in the end.  This is one draw of rows, on which an "
            "estimate may be nearer to v1 than the centralized one by luck.",
            "A one-shot start counts as a round; shift-invert reports once per outer step.  Proxy and preconditioner are the "
            "first site's rows.  Bytes up: of another site until its own stop, set-up not counted.",
            *(["This is the small size: smaller problems than --size paper computes."] if size is Size.small else []),
        ],
        drawing.panels("One-shot paper, Table 1: error against rounds, all methods on the same rows", [above, below]),
        {"problem": {**p}, "runs": [asdict(run) for run in runs]},
    )


def _rounds_grid(title: str, runs: Sequence[Raced]) -> Grid:
    rows: list[list[Cell]] = [["centralized", None, None, None, None, None, _short(runs[0].central), 1.0, None]]
    for run in runs:
        last = run.curve[-1]
        estimate = None if run.estimate is None else _short(run.estimate)
        rows.append([run.name, run.to_central, run.to_pooled, run.own_stop, _short(last.pooled), estimate])
        rows[-1] += [_short(last.population), round(last.population / run.central, 3), run.bytes_up]
    columns = ["solver", "to\ncentral", "to\npooled", "own\nstop", "then\ntrue", "own\nestimate"]
    return Grid(title, [*columns, "error", "times\ncentral", "bytes\nup"], rows)


def _short(value: float) -> float:
    """Three digits."""
    return float(f"{value:.3g}")


REPRODUCTIONS = (
    Reproduction(
        "oneshot-fig1",
        "one round: errors of averages, sign fixing and projections beside the centralized one",
        fig1,
        {"distribution": ("normal", "uniform")},
    ),
    Reproduction(
        "oneshot-table1", "rounds and errors of power, Lanczos, hot potato, one-shot, shift-and-invert, Davidson", table1
    ),
)
