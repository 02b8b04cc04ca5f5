"""How time, rounds and the coordinator's memory grow with rows, features, components and sites.

Run alone with ``python -m benchmarks.growth --size small|paper``; its rows are part of the table of speed, and its plot is
docs/images/speed-growth.png (``paper`` only).  Fits by krylov of normal rows whose features' standard deviations fall by 5 %
from one to the next, in one process, on one thread.  Seconds are processor time, the least of three fits, which take turns
(one fit where sites have 20 rows).  A slope is fitted by least squares to logarithms, for rows and sites to those of sizes at
which a fit takes at least ten times as long as one of 800 rows: below, what does not grow - the coordinator's algebra and the
runtime - is a large part.  With more sites each has as many rows as before.

The coordinator's memory: a driver beside one real site, whose replies come back under 100 or 10^4 names, each a copy of its own,
as it would arrive from a network.  tracemalloc tells the most that Python and numpy allot during the fit.
"""

from __future__ import annotations

import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

import eigenpact as ep
from benchmarks.alike import Alike
from benchmarks.table import Row, run_alone
from benchmarks.timing import load_told
from eigenpact.engines import InProcess
from eigenpact.numerics.blas import limited_blas
from eigenpact.runtime import Costs, Job, Outcome
from eigenpact.runtime.engine import Sites

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "speed-growth.png"
BASE_ROWS, DOMINATES = 800, 10.0
REPEATS = {"small": 1, "paper": 3}
LINEAR = ("rows", "sites", "sites of 20 rows")
"""In these, time must be linear."""

SLACK = 0.1
"""By how much a slope may differ from 1, and memory grow."""

FEATURES, COMPONENTS, ROUNDS = 500, 10, 3
"""Of the problem by which the coordinator's memory is measured."""


@dataclass(frozen=True)
class Shape:
    """A problem: rows in all, features, components, sites."""

    rows: int
    features: int = 200
    components: int = 10
    sites: int = 8


@dataclass(frozen=True)
class Curve:
    """Processor seconds and rounds at sizes of one kind, and which sizes the slope is fitted to."""

    name: str
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    rounds: tuple[int, ...]
    counted: tuple[bool, ...]

    @property
    def slope(self) -> float | None:
        """By least squares on logarithms; None if fewer than three sizes count."""
        x, y = (np.log(values)[np.array(self.counted)] for values in (self.sizes, self.seconds))
        return float(np.polyfit(x, y, 1)[0]) if len(x) >= 3 else None


def rows(size: str) -> Iterator[Row]:
    """All rows."""
    curves = {name: _curve(name, shapes, REPEATS[size]) for name, shapes in shapes_of(size).items()}
    many = _many((100, 1000, 10_000) if size == "paper" else (30, 100, 300))
    for curve in (*curves.values(), many):
        yield _judged(curve, size)
    found = curves["rows"].rounds
    told = ", ".join(f"{n}: {r}" for n, r in zip(curves["rows"].sizes, found, strict=True))
    same = max(found) == min(found)
    why = "" if same else "one sample's spectrum is not another's"
    yield Row("rounds of krylov by the number of rows", "constant", told, same, why)
    yield _memory(100, 10_000 if size == "paper" else 1000)
    if size == "paper":
        draw([*curves.values(), many])


def shapes_of(size: str) -> dict[str, list[Shape]]:
    """Problems by what grows."""
    n, most = (40_000, 5) if size == "paper" else (2000, 3)
    return {
        "rows": [Shape(2 * n * m, sites=2) for m in (1, 2, 4, 8, 16)[:most]],  # of few sites, whose runtime does not grow
        "features": [Shape(n, features=d) for d in (100, 200, 400, 800, 1600)[:most]],
        "components": [Shape(2 * n, features=400, components=k) for k in (5, 10, 20, 40, 80)[:most]],
        "sites": [Shape(n * m // 2, sites=8 * m) for m in (2, 4, 8, 16, 32)[:most]],
    }


def _rows_of(n: int, d: int) -> Any:
    return np.random.default_rng(0).standard_normal((n, d)) * (0.95 ** np.arange(d) + 0.02)


def _fit(sites: Mapping[str, Any], k: int) -> tuple[float, int]:
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pca = ep.FederatedPCA(k, solver="krylov", random_state=0, engine=InProcess(threads=1)).fit(sites)
    return time.process_time() - begin, pca.n_rounds_


def _in_turn(fits: list[Callable[[], tuple[float, int]]], repeats: int) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """The least seconds of each of several fits, and their rounds."""
    turns = [[fit() for fit in fits] for _ in range(repeats)]
    return tuple(min(seconds for seconds, _ in of_one) for of_one in zip(*turns, strict=True)), tuple(r for _, r in turns[0])


def _curve(name: str, shapes: list[Shape], repeats: int) -> Curve:
    """Every shape, and the first one with few rows, whose time does not come from rows."""
    largest = max(shape.rows for shape in shapes)
    X = {d: _rows_of(largest, d) for d in {shape.features for shape in shapes}}

    def fit(shape: Shape) -> Callable[[], tuple[float, int]]:
        cuts = np.linspace(0, shape.rows, shape.sites + 1).astype(int)
        table = X[shape.features]
        sites = {f"site{i:04d}": table[a:b] for i, (a, b) in enumerate(pairwise(cuts))}
        return lambda: _fit(sites, shape.components)

    few = replace(shapes[0], rows=BASE_ROWS, sites=min(8, shapes[0].sites))
    (base, *seconds), (_, *rounds) = _in_turn([fit(shape) for shape in (few, *shapes)], repeats)
    counted = tuple(name not in LINEAR or s >= DOMINATES * base for s in seconds)
    return Curve(name, tuple(getattr(shape, name) for shape in shapes), tuple(seconds), tuple(rounds), counted)


def _many(counts: tuple[int, ...]) -> Curve:
    """Very many sites of 20 rows and 50 features: the runtime is most of it, and all of it grows with sites."""
    X = _rows_of(20 * counts[-1], 50)
    tables = [{f"site{i:05d}": X[20 * i : 20 * i + 20] for i in range(count)} for count in counts]
    seconds, rounds = _in_turn([lambda sites=sites: _fit(sites, 5) for sites in tables], 1)  # type: ignore[misc]
    return Curve("sites of 20 rows", counts, seconds, rounds, (True,) * len(counts))


def _judged(curve: Curve, size: str) -> Row:
    points = zip(curve.sizes, curve.seconds, curve.rounds, curve.counted, strict=True)
    told = "; ".join(f"{n}: {s:.2f} s, {r} rounds{'' if c else ' (not counted)'}" for n, s, r, c in points)
    slope = curve.slope
    reached = f"slope {'unknown' if slope is None else f'{slope:.2f}'}; {told}"
    what = f"processor time by the number of {curve.name}: slope of logarithms"
    if curve.name not in LINEAR or size == "small":
        return Row(what, "reported", reached, True)
    met = slope is not None and abs(slope - 1) <= SLACK
    return Row(what, f"1 +- {SLACK}", reached, met, "" if met else load_told())


# -- the coordinator's memory -----------------------------------------------------------------------


@dataclass(frozen=True)
class Copies:
    """One site that answers under many names: the result is the PCA of as many copies of its rows."""

    count: int
    min_sites: int = 1
    spread = False
    costs: Costs = InProcess.costs

    def execute(self, sites: Sites, job: Job, *, graph: Any = None) -> Outcome:  # noqa: ARG002
        """Serve the only site, and run the job."""
        ((_, X),) = sites.items()
        with limited_blas(1):
            return job(Alike(self.count, X))


def peak_of_driver(count: int) -> int:
    """Bytes that a fit allots at most with so many sites; the rows are not among them."""
    X = _rows_of(100, FEATURES)
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ep.FederatedPCA(COMPONENTS, solver="krylov", random_state=0, engine=Copies(count), max_rounds=ROUNDS).fit({"site": X})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def _memory(few: int, many: int) -> Row:
    peak_of_driver(2)  # what is loaded once is not counted
    middle = many // 5
    small, some, large = (peak_of_driver(count) for count in (few, middle, many))
    growth, more = large / small, (large - some) / (many - middle)  # of few sites products are remembered, which hide the rest
    told = f"{growth:.2f} times: {small / 1e6:.1f} MB and {large / 1e6:.1f} MB; {more:.0f} bytes for each site beyond {middle}"
    why = "" if growth <= 1 + SLACK else "the coordinator keeps that much of every site"
    about = f"{FEATURES} features, {COMPONENTS} components, {ROUNDS} rounds"
    what = f"the coordinator's memory with {many} sites over that with {few}, {about}"
    return Row(what, f"<= {1 + SLACK}", told, growth <= 1 + SLACK, why)


# -- the plot ---------------------------------------------------------------------------------------


def draw(curves: list[Curve]) -> None:
    """A panel for each curve: processor seconds on log axes, with the line that was fitted."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(curves), figsize=(2.6 * len(curves), 3.6), sharey=True, layout="constrained")
    for axes, curve in zip(panels, curves, strict=True):
        x, y, counted = np.array(curve.sizes), np.array(curve.seconds), np.array(curve.counted)
        axes.loglog(x[counted], y[counted], "o", color="C0")
        axes.loglog(x[~counted], y[~counted], "o", markerfacecolor="none", color="C0")
        if curve.slope is not None:
            line = np.exp(np.polyval(np.polyfit(np.log(x[counted]), np.log(y[counted]), 1), np.log(x[counted])))
            axes.loglog(x[counted], line, "-", color="C1", linewidth=1)
        told = "" if curve.slope is None else f", slope {curve.slope:.2f}"
        few, most = min(curve.rounds), max(curve.rounds)
        axes.set(xlabel=curve.name, title=f"{few if few == most else f'{few} to {most}'} rounds{told}")
        axes.title.set_fontsize(9)
        axes.set_xticks(x, [str(value) for value in x], rotation=45, fontsize=7)
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.3)
    ticks = [t for t in (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0) if t <= max(max(curve.seconds) for curve in curves)]
    panels[0].set_yticks(ticks, [f"{t:g}" for t in ticks])
    panels[0].set_ylabel("processor seconds of a fit")
    figure.suptitle("Open circles: what does not grow is more than a tenth; lines are fitted to the others", fontsize=9)
    figure.savefig(PICTURE, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    run_alone("growth", __doc__, rows)
