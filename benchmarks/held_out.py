"""Problems of the statistical family on which nothing was chosen: other distributions, spectra and sizes, and fresh seeds.

Constants by which davidson, krylov and lanczos decide to stop (``HINDSIGHT`` and others in ``algorithms/expansion.py``) and hot
potato's rule for the gap were chosen on normal rows with the spectra of the one-shot paper.  The problems here were written down
before any solver had run on them, and were not changed afterwards.  Only the number of hot potato's draws was: with 10 it missed
its bar on the uniform rows, 3.10 +- 1.01, which is too wide a spread to tell anything; since then all but the largest have 100.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import eigenpact as ep
from benchmarks.table import Row
from eigenpact.reproduce.measuring import Contender
from eigenpact.reproduce.oneshot.population import Population, population
from eigenpact.reproduce.oneshot.rounds import NEAR, SINE, Raced, raced

FIRST_SEED = 20261117
"""Seeds are this and those that follow; nothing was drawn with them before."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Problem:
    """Eigenvalues 1, ``second``, then each ``decay`` times the one before; rows of every site."""

    name: str
    features: int
    rows: Sequence[int]
    second: float
    decay: float
    kind: Literal["normal", "uniform", "student"] = "normal"

    def draw(self, seed: int) -> tuple[Population, dict[str, Array]]:
        """A population and its sites; Student rows have a common factor of 5 degrees of freedom each."""
        rng = np.random.default_rng(FIRST_SEED + seed)
        kind: Any = "normal" if self.kind == "student" else self.kind
        drawn = population(self.features, second=self.second, decay=self.decay, rng=rng, distribution=kind)
        (everything,) = drawn.sites(1, sum(self.rows), rng).values()
        if self.kind == "student":
            everything /= np.sqrt(rng.chisquare(5, size=(len(everything), 1)) / 5)
        parts = np.split(everything, np.cumsum(self.rows)[:-1])
        return drawn, {f"site{i:02d}": part for i, part in enumerate(parts)}


PROBLEMS = (
    Problem("300 features, 25 sites of 1600 normal rows, gap .2, .9^j (Figure 1's, fresh seeds)", 300, [1600] * 25, 0.8, 0.9),
    Problem("120 features, 8 sites of 700 uniform rows, gap .1, .95^j", 120, [700] * 8, 0.9, 0.95, "uniform"),
    Problem("200 features, 40 sites of 300 normal rows, gap .05, .8^j", 200, [300] * 40, 0.95, 0.8),
    Problem("60 features, 12 sites of 1000 Student rows (5 degrees), gap .3, .97^j", 60, [1000] * 12, 0.7, 0.97, "student"),
    Problem(
        "150 features, 10 sites of 50 to 4000 normal rows, gap .15, .9^j", 150, np.geomspace(50, 4000, 10).astype(int), 0.85, 0.9
    ),
)

SOLVERS: Mapping[str, Any] = {
    "davidson": ep.solvers.Davidson(proxy=0, angle_tol=SINE),
    "davidson, one-shot start": ep.solvers.Davidson(proxy=0, start="one-shot", angle_tol=SINE),
    "lanczos": ep.solvers.Lanczos(angle_tol=SINE),
    "krylov, proxy": ep.solvers.Krylov(proxy=0, angle_tol=SINE),
}


PASSES, LARGE = 100, 10**7
"""Draws for hot potato; and the numbers in a problem that is large."""


def rows(draws: int, large_passes: int) -> Iterator[Row]:
    """Two rows a problem: how well stops are judged over ``draws``, and hot potato, on a large problem over ``large_passes``."""
    for problem in PROBLEMS:
        yield _stops(problem, draws)
        large = problem.features * sum(problem.rows) > LARGE
        yield _hot_potato(problem, large_passes if large else PASSES)


def _stops(problem: Problem, draws: int) -> Row:
    """Rounds to the own stop, how many more than were needed, and the largest true error then."""
    found: dict[str, list[Raced]] = {name: [] for name in SOLVERS}
    for seed in range(draws):
        drawn, sites = problem.draw(seed)
        for name, solver in SOLVERS.items():
            found[name].append(raced(problem.name, drawn, sites, Contender(name, solver), seed))
    told = []
    for name, runs in found.items():
        stop = statistics.median(run.own_stop for run in runs)
        needed = statistics.median(run.to_pooled or run.own_stop for run in runs)
        told.append(f"{name} {stop:g} ({needed:g} needed), {max(run.curve[-1].pooled for run in runs):.1e} at worst")
    worst = max(run.curve[-1].pooled for runs in found.values() for run in runs)
    what = f"held out: {problem.name}, {draws} draws, rounds until the own stop at sine {SINE:g}, and 1 - (w'v)^2 then"
    return Row(what, f"<= {NEAR:g}", "; ".join(told), worst <= NEAR)


def _hot_potato(problem: Problem, passes: int) -> Row:
    """The mean error over the centralized one."""
    errors = []
    for seed in range(passes):
        drawn, sites = problem.draw(1000 + seed)
        run = raced(problem.name, drawn, sites, Contender("hot-potato", ep.solvers.HotPotato(confirm=False)), seed)
        errors.append((run.curve[-1].population, run.central))
    ratio, spread = mean_ratio(errors)
    what = f"held out: {problem.name}, hot potato, {passes} draws, mean error over the centralized one"
    reached = f"{ratio:.2f} +- {spread:.2f} (centralized {np.mean([central for _, central in errors]):.2g})"
    return Row(what, "<= 2, no step size tuned", reached, bool(ratio <= 2))


def mean_ratio(errors: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Mean of the first numbers over the mean of the second, and its standard error."""
    first, second = np.array(errors).T
    ratio = float(first.mean() / second.mean())
    return ratio, float(np.std(first - ratio * second, ddof=1) / np.sqrt(len(first)) / second.mean())
