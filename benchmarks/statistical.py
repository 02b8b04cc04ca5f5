"""The statistical family's results: errors of one round beside an independent computation, and rounds of what takes more.

Figure 1 is the one-shot paper's (300 features, 25 sites, gap .2): 40 repeats in the small size, 400 as in the paper; the
independent computation is ``benchmarks/figure1.py``, on rows of its own.  "n" is the number of rows of a site.  The error of a
direction w is 1 - (w^T v)^2, v the population's eigenvector, and "+-" is one standard error.  The centralized estimator has the
pooled rows.  The paper prints no numbers of its own.

The rounds problem has 300 features, 25 sites of 2000 normal rows and the eigenvalues 1, .98, then .9 (or .99) times the one
before; solvers stop by their own rule at an estimated sine of 1e-4, and what 1 - (w^T v)^2 then truly is, v the pooled
eigenvector, stands beside.  A one-shot start counts as a round, and so do, here, rounds in the end by which power and
shift-and-invert have their answer confirmed.  Constants that decide when davidson and lanczos stop were chosen on draws of this
problem, and hot potato's rule on data of Figure 1's spectrum, so these rows are no held-out test.  Rows called "held out" are:
their problems (`benchmarks/held_out.py`) were written down before anything ran on them; the bars are those of the rows above.
One thing was changed after a look: hot potato first had 10 draws on each, and missed its bar on the uniform rows, 3.10 +- 1.01;
since that spread tells nothing, all but the largest problem now have 100, whose first 10 are the same.

"MNIST by label" has a site for each of the ten digits; p is the number of components, and a proxy is a site at the coordinator.
"Sine" is that of the largest angle to the exact subspace.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.linalg

import eigenpact as ep
from benchmarks import figure1, held_out
from benchmarks.table import Row, pytest_row
from eigenpact.numerics.metrics import largest_sine
from eigenpact.reproduce import Watch, paper_numbers
from eigenpact.reproduce.measuring import Contender
from eigenpact.reproduce.oneshot.one_round import ESTIMATORS, Average, averages
from eigenpact.reproduce.oneshot.population import population
from eigenpact.reproduce.oneshot.rounds import Raced, raced

SAME = dict(zip(ESTIMATORS, ("centralized", "average", "sign, site 1", "sign, medoid", "projection", "single site"), strict=True))
"""Our estimator -> the name it has in the independent computation."""

CHECKED = "one-shot or power or lanczos or davidson or shift-invert or hot-potato"


def rows(size: str) -> Iterator[Row]:
    """All rows of the table."""
    small = size == "small"
    for distribution in figure1.DISTRIBUTIONS:
        yield from _figure1(distribution, small)
    yield from _rounds(3 if small else 10)
    yield _hot_potato(10 if small else 100)
    yield from held_out.rows(*((3, 10) if small else (10, 100)))
    yield from _mnist(small)
    yield pytest_row("theory: every theorem and lemma, and each broken on purpose", "hold", "tests/theory/test_oneshot.py")
    if small:
        return  # the rest is part of make test
    yield pytest_row("shared checks, wire tables", "pass", "tests/checks/test_every_solver.py", "-k", CHECKED)
    engines = ("tests/engines/test_conformance.py", "tests/engines/test_mpi.py", "tests/engines/test_dask.py")
    yield pytest_row(
        "conformance, in-process, MPI, Dask (FLARE: FAMILY=federation)",
        "same bits and ledger",
        *engines,
        "-k",
        "same_bits",
        "-m",
        "not faults",
    )


# -- Figure 1 ----------------------------------------------------------------------------------------


def _figure1(distribution: Any, small: bool) -> Iterator[Row]:
    repeats = 40 if small else 400
    p = paper_numbers("oneshot")["fig1"] | {"repeats": repeats}
    ours = {n: averages(n, p, distribution, 0, Watch()) for n in figure1.ROWS}
    other = {
        n: figure1.stored(distribution, n) if small else figure1.computed(distribution, n, repeats, 1 + n) for n in figure1.ROWS
    }
    apart, by_own = dict[tuple[str, int], float](), dict[tuple[str, int], float]()
    for n in figure1.ROWS:
        for name, same in SAME.items():
            here, (mean, error) = ours[n][name], other[n][same]
            apart[name, n] = abs(here.mean - mean) / _joint_error(here.error, repeats, error, figure1.REPEATS)
            by_own[name, n] = abs(here.mean - mean) / float(np.hypot(here.error, error))
    (name, n), worst = max(apart.items(), key=lambda item: item[1])
    yield Row(
        f"Figure 1, {distribution}, {repeats} repeats, 6 estimators at n = 25, 100, 400, 1600, beside an independent computation",
        "within 3 standard errors",
        f"at most {worst:.1f} ({name}, n = {n}); {max(by_own.values()):.1f} if each sample's own spread is taken",
        bool(worst <= 3),
    )
    for n in figure1.ROWS[1:-1:2]:
        yield Row(f"Figure 1, {distribution}, n = {n}, errors", "reported", _errors(ours[n]), True)
    last = ours[1600]
    central = last["centralized"].mean
    ratio = {name: found.mean / central for name, found in last.items()}
    merges = "sign fixing, site 1", "sign fixing, medoid", "projection"
    told = ", ".join(f"{name} {ratio[name]:.3f}" for name in merges)
    met = all(ratio[name] <= 1.1 for name in merges)
    yield Row(f"Figure 1, {distribution}, n = 1600, times the centralized error {central:.5f}", "<= 1.1", told, met)
    yield Row(
        f"Figure 1, {distribution}, n = 1600, average", ">= 10 times", f"{ratio['average']:.0f} times", ratio["average"] >= 10
    )


def _joint_error(ours: float, repeats: int, other: float, others: int) -> float:
    """Standard error of the difference of two means, with one variance estimated from both samples.

    Errors are skewed: sign fixing with few rows is now and then quite wrong.  Forty repeats that happen to miss these have too
    small a mean and too small a standard error at once, so each sample's own spread would be misleading.
    """
    variance = ((repeats - 1) * repeats * ours**2 + (others - 1) * others * other**2) / (repeats + others - 2)
    return float(np.sqrt(variance * (1 / repeats + 1 / others)))


def _errors(found: Mapping[str, Average]) -> str:
    return ", ".join(f"{name} {average.mean:.3g} +- {average.error:.1g}" for name, average in found.items())


# -- rounds ------------------------------------------------------------------------------------------


def _rounds(seeds: int) -> Iterator[Row]:
    start: dict[str, Any] = {"start": "one-shot", "angle_tol": 1e-4}
    davidson, lanczos = ep.solvers.Davidson(proxy=0, **start), ep.solvers.Lanczos(**start)
    shift_invert, power = ep.solvers.ShiftInvert(proxy=0, **start), ep.solvers.Power(**start)
    found = _raced(0.9, {"davidson": davidson, "lanczos": lanczos, "shift-invert": shift_invert}, seeds)
    slow = _raced(0.9, {"power": power}, 1, condensed=True)
    flat = _raced(0.99, {"davidson": davidson, "lanczos": lanczos}, seeds)
    problem = "300 features, 25 sites of 2000 rows, gap .02, spectrum"
    yield _stopped(f"{problem} .9^j, davidson, rounds until its own stop at sine 1e-4", found["davidson"], 9)
    yield _stopped(f"{problem} .9^j, lanczos", found["lanczos"], 17)
    yield _stopped(f"{problem} .9^j, shift-and-invert", found["shift-invert"], None)
    yield _stopped(f"{problem} .9^j, power", slow["power"], None)
    yield _stopped(f"{problem} .99^j, davidson", flat["davidson"], 25)
    yield _stopped(f"{problem} .99^j, lanczos", flat["lanczos"], None)


def _raced(decay: float, solvers: Mapping[str, Any], seeds: int, *, condensed: bool = False) -> dict[str, list[Raced]]:
    """Solver -> a run for every draw of the rows; ``condensed`` ones have the same scatters and make rounds faster."""
    found: dict[str, list[Raced]] = {name: [] for name in solvers}
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        drawn = population(300, second=0.98, decay=decay, rng=rng)
        sites = drawn.sites(25, 2000, rng)
        if condensed:
            sites = {name: np.linalg.qr(X, mode="r") for name, X in sites.items()}
        for name, solver in solvers.items():
            found[name].append(raced("rounds", drawn, sites, Contender(name, solver), 0))
    return found


def _stopped(what: str, runs: Sequence[Raced], bar: int | None) -> Row:
    rounds, wrong = sorted(run.own_stop for run in runs), sorted(run.curve[-1].pooled for run in runs)
    reached = (
        f"{statistics.median(rounds):g} ({rounds[0]}-{rounds[-1]} over {len(runs)} draws)" if len(runs) > 1 else f"{rounds[0]}"
    )
    confirming = sorted(run.confirming for run in runs)
    if confirming[-1]:
        reached += f", {statistics.median(confirming):g} of them to confirm the answer"
    reached += f"; then 1 - (w'v)^2 = {wrong[-1]:.1e} at worst" if len(runs) > 1 else f"; then 1 - (w'v)^2 = {wrong[0]:.1e}"
    if bar is None:
        return Row(what, "reported", reached, True)
    return Row(what, f"<= {bar}, and 1 - (w'v)^2 <= 1e-8", reached, rounds[-1] <= bar and wrong[-1] <= 1e-8)


def _hot_potato(repeats: int) -> Row:
    p = paper_numbers("oneshot")["fig1"]
    errors = []
    for repeat in range(repeats):
        rng = np.random.default_rng([7, repeat])
        drawn = population(p["features"], second=p["second"], decay=p["decay"], rng=rng)
        sites = drawn.sites(p["sites"], 1600, rng)
        run = raced("hot potato", drawn, sites, Contender("hot potato", ep.solvers.HotPotato(confirm=False)), repeat)
        errors.append((run.curve[-1].population, run.central))
    (ratio, spread), (potato, central) = held_out.mean_ratio(errors), np.mean(errors, axis=0)
    return Row(
        f"hot potato, Figure 1's normal data, n = 1600, {repeats} draws, mean error over the centralized one",
        "<= 2, no step size tuned",
        f"{ratio:.2f} +- {spread:.2f} ({potato:.5f} over {central:.5f})",
        bool(ratio <= 2),
    )


# -- sites that differ -------------------------------------------------------------------------------


def _mnist(small: bool) -> Iterator[Row]:
    try:
        mnist = ep.datasets.mnist()
    except ep.errors.EigenpactError:
        yield Row("MNIST by label", "", "", None, "MNIST is not here; set EIGENPACT_DATA")
        return
    images = 5000 if small else len(mnist.X)
    X, y = mnist.X[:images].astype(float), mnist.y[:images]
    sites = ep.datasets.partition.by_label(X, y)
    Y = X - X.mean(axis=0)
    exact = scipy.linalg.eigh(Y.T @ Y, subset_by_index=(X.shape[1] - 5, X.shape[1] - 1))[1]
    solvers = {
        "power": ep.solvers.Power(angle_tol=1e-8),
        "lanczos": ep.solvers.Lanczos(),
        "davidson (the zeros as proxy)": ep.solvers.Davidson(proxy="label0"),
        "shift-invert": ep.solvers.ShiftInvert(angle_tol=1e-8),
        "shift-invert (the zeros as proxy)": ep.solvers.ShiftInvert(proxy="label0", angle_tol=1e-8),
    }
    told, worst = [], 0.0
    for name, solver in solvers.items():
        pca = _fit(sites, solver)
        sine = largest_sine(pca.components_.T, exact)
        told.append(f"{name} {sine:.1e} in {pca.n_rounds_} rounds")
        worst = max(worst, sine)
    what = f"MNIST by label, {images} images, p=5"
    yield Row(f"{what}, sine to the exact subspace", "<= 1e-8", ", ".join(told), worst <= 1e-8)
    told, honest = [], True
    for merge in ("projection", "sign", "stack", "svd", "average"):
        pca = _fit(sites, ep.solvers.OneShot(merge=merge))
        sine = largest_sine(pca.components_.T, exact)
        proved = pca.angle_estimate_ is not None
        says = pca.angle_estimate_ if proved else pca.history_[-1].details["angle"]
        told.append(f"{merge} {sine:.2f}, says {'' if proved else 'unknown, about '}{says:.2f}")
        honest = honest and 0.5 * sine <= says
    what += ", one-shot, true sine and what it says itself (about: if no direction was missed)"
    yield Row(what, "at least half of it", ", ".join(told), honest)


def _fit(sites: Mapping[str, Any], solver: Any, **settings: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ep.errors.NotConvergedWarning)
        return ep.FederatedPCA(5, solver=solver, random_state=0, **settings).fit(sites)
