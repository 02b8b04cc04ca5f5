"""What a round costs beyond its arithmetic: the driver against the same products and additions written by hand.

Run with ``python -m benchmarks.overhead``. The block is 2000 x 20 and there are 4 sites, as in the engines' table; the sites
hold few rows, so that what is measured is the runtime and not BLAS. Both ways run in turns, and the median difference is
reported.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from eigenpact.algorithms.products import scatter_action
from eigenpact.algorithms.setup import Problem, agree
from eigenpact.engines import InProcess
from eigenpact.numerics.linalg import Array, random_orthonormal
from eigenpact.numerics.rows import Rows
from eigenpact.runtime import Connection, Driver, Outcome, Progress, Sum

FEATURES, WIDTH, SITES, ROWS, ROUNDS = 2000, 20, 4, 50, 200


def problem() -> dict[str, Array]:
    """Four sites of a few rows each."""
    rng = np.random.default_rng(0)
    return {f"site{i}": rng.normal(size=(ROWS, FEATURES)) for i in range(SITES)}


def through_the_driver(engine: Any, sites: Mapping[str, Any], rounds: int = ROUNDS) -> float:
    """Median seconds of one round through the driver."""
    seconds: list[float] = []
    Z = random_orthonormal(FEATURES, WIDTH, seed=0)

    async def program(start: Any, state: Any) -> None:  # noqa: ARG001
        await agree(Problem(n_components=WIDTH, center=False))
        for _ in range(rounds):
            begin = time.perf_counter()
            await Sum(scatter_action, Z)
            await Progress(basis=Z, kkt=0.0)
            seconds.append(time.perf_counter() - begin)

    def job(connection: Connection) -> Outcome:
        Driver(connection).run(program)
        return Outcome({}, {"median": statistics.median(seconds)})

    return float(engine.execute(sites, job).facts["median"])


def by_hand(sites: Mapping[str, Array], rounds: int = ROUNDS) -> float:
    """Median seconds of the same products and additions in a plain loop."""
    Z = random_orthonormal(FEATURES, WIDTH, seed=0)
    seconds = []

    def job(connection: Connection) -> Outcome:  # noqa: ARG001
        for _ in range(rounds):
            begin = time.perf_counter()
            total = np.zeros((FEATURES, WIDTH))
            for X in sites.values():
                total += Rows(X).scatter_action(Z)
            seconds.append(time.perf_counter() - begin)
        return Outcome({}, {})

    InProcess(threads=1).execute(sites, job)  # under the same BLAS limit
    return statistics.median(seconds)


def overhead(repeats: int = 5) -> tuple[float, float, float]:
    """Median seconds a round beyond arithmetic, and the two medians it is the difference of."""
    sites = problem()
    pairs = [(through_the_driver(InProcess(threads=1), sites), by_hand(sites)) for _ in range(repeats)]
    driver, hand = (statistics.median(column) for column in zip(*pairs, strict=True))
    return statistics.median(a - b for a, b in pairs), driver, hand


if __name__ == "__main__":
    beyond, driver, hand = overhead()
    print(f"in-process round, {SITES} sites, block {FEATURES} x {WIDTH}, journal off")
    print(f"  through the driver   {1e3 * driver:7.3f} ms")
    print(f"  arithmetic by hand   {1e3 * hand:7.3f} ms")
    print(f"  beyond arithmetic    {1e3 * beyond:7.3f} ms   (bar: 0.3 ms)")
