"""The time model of "auto": which solver it takes as rows, rounds and machines change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eigenpact.algorithms import auto
from eigenpact.algorithms.auto import estimates
from eigenpact.algorithms.setup import Setup
from eigenpact.engines import MPI, InProcess
from eigenpact.runtime import Costs

USUAL = replace(InProcess.costs, at_once=2)


def problem(n: int, d: int, k: int | float = 10, sites: int = 1, max_rounds: int = 3000) -> Setup:
    facts: dict[str, Any] = {"mean": np.zeros(d), "scale": np.ones(d), "trace": 1.0, "grain": 0.0, "between_share": 0.0}
    facts |= {"offset": 0.0, "center": "pooled", "tol": None, "max_rounds": max_rounds, "seed": 0, "single": False}
    return Setup(n_sites=sites, n_samples=n, n_features=d, n_components=k, **facts)


def seconds(setup: Setup, costs: Costs = USUAL, **options: Any) -> dict[str, float]:
    """Modelled seconds of the solvers that are allowed."""
    return {row["solver"]: row["seconds"] for row in estimates(setup, costs, **options) if row["allowed"]}


def taken(setup: Setup, costs: Costs = USUAL, **options: Any) -> str:
    found = seconds(setup, costs, **options)
    return min(found, key=found.__getitem__)


def test_tall_rows_take_gram_and_wide_ones_krylov() -> None:
    assert taken(problem(60000, 784, sites=16)) == taken(problem(1_000_000, 200, sites=4)) == "gram"
    assert taken(problem(20000, 6000, 20, sites=8)) == taken(problem(1092, 14079, sites=4)) == "krylov"
    assert set(seconds(problem(100, auto.GRAM_FEATURES + 1, sites=2))) == {"krylov"}


def test_one_wide_site_that_is_here_factorizes_its_rows() -> None:
    """Nowhere else: not elsewhere, nor where rows are many, nor for a share of the variance, nor where no round would be left."""
    wide = problem(1092, 14079)
    assert taken(wide, alone=True) == "row-gram"
    assert taken(wide) == "krylov"
    assert taken(problem(60000, 784), alone=True) == "gram"
    for other in (
        problem(60000, 784),  # more rows than features
        problem(1092, 14079, 0.9),
        problem(1092, 14079, 1091),  # all of them: no gap to see
        problem(1092, 14079, max_rounds=1),
        problem(1092, 2 * auto.ROW_GRAM_ENTRIES // 1092),  # too large to copy
    ):
        assert "row-gram" not in seconds(other, alone=True)
    assert "row-gram" not in seconds(wide, start="one-shot", alone=True)


def test_inner_products_of_many_rows_are_dearer_than_rounds() -> None:
    assert taken(problem(8000, 8300, 2), alone=True) == "krylov"
    assert "row-gram" in seconds(problem(8000, 8300, 2), alone=True)


@pytest.mark.parametrize("shape", [(300, 60), (2000, 800), (500, 3000), (100, 4900)])
def test_the_slower_a_round_the_fewer_rounds(shape: tuple[int, int]) -> None:
    """Once the latency is large enough gram is taken, and no larger one takes krylov again."""
    setup = problem(*shape, k=2, sites=3)
    chosen = [taken(setup, replace(USUAL, latency=latency)) for latency in np.logspace(-6, 3, 19)]
    assert chosen == sorted(chosen, reverse=True)
    assert chosen[-1] == "gram"


def test_the_slower_the_network_the_fewer_bytes() -> None:
    setup = problem(60000, 784, sites=16)
    chosen = [taken(setup, replace(USUAL, bandwidth=bandwidth)) for bandwidth in np.logspace(12, 2, 21)]
    assert chosen == sorted(chosen)
    assert (chosen[0], chosen[-1]) == ("gram", "krylov")


def test_slow_narrow_products_speak_against_krylov() -> None:
    """And against krylov alone; without a measured rate the usual one is taken, which the engines' constants are, too."""
    setup = problem(20000, 3000, 5, sites=4)
    fast, slow = (seconds(setup, replace(USUAL, narrow=rate)) for rate in (4e10, 1e9))
    assert slow["krylov"] > 5 * fast["krylov"]
    assert slow["gram"] == fast["gram"]
    for engine in (InProcess, MPI):
        usual, none = (seconds(setup, costs)["krylov"] for costs in (engine.costs, replace(engine.costs, narrow=None)))
        assert usual == pytest.approx(none, rel=0.05)


def test_sites_that_compute_at_once_share_the_products_but_not_the_coordinators_work() -> None:
    """At most as many as there are; a site that is alone shares its rows among threads."""
    setup = problem(100_000, 500, sites=4)
    one, two, four, eight = (seconds(setup, replace(USUAL, at_once=count))["gram"] for count in (1, 2, 4, 8))
    assert one > two > four == eight > one / 4
    lone = problem(100_000, 500)
    assert seconds(lone, replace(USUAL, at_once=8))["gram"] < seconds(lone, replace(USUAL, at_once=4))["gram"]


def test_rounds_are_no_more_than_rows_or_features_fill() -> None:
    rounds = {row["solver"]: row["rounds"] for row in estimates(problem(20, 6000, 2, sites=2), USUAL)}
    assert rounds["krylov"] == 4  # 20 rows, 6 columns a round


def test_single_precision_makes_gram_and_a_loose_krylov_faster() -> None:
    """Of rows in float32 that are in one house, and nowhere else; a correction takes a second round."""
    setup = replace(problem(1_000_000, 200, sites=4), single=True)
    here = replace(setup, in_house=True)
    rounds = {row["solver"]: row["rounds"] for row in estimates(here, USUAL)}
    assert rounds["gram"] == 2
    exact, corrected, loose = (seconds(one) for one in (setup, here, replace(here, tol=1e-4)))
    assert exact["gram"] > corrected["gram"] > loose["gram"] > exact["gram"] / 2
    assert exact["krylov"] == corrected["krylov"] > 1.5 * loose["krylov"]
    assert seconds(replace(here, single=False)) == seconds(replace(setup, single=False))


def test_rows_on_a_device_are_multiplied_at_its_rate_and_the_coordinator_is_not() -> None:
    """What the threads take a minute for is a second there, so that the coordinator's own algebra decides."""
    setup = problem(1_000_000, 5000, 100)
    gpu = replace(USUAL, device=5e13, device_narrow=2e13)
    here, there = seconds(setup), seconds(setup, gpu)
    assert there["gram"] < here["gram"] / 20
    assert there["krylov"] < here["krylov"] / 20
    assert seconds(setup, replace(gpu, device=5e18, device_narrow=2e18))["gram"] > 0.5 * there["gram"]  # the coordinator
    assert seconds(setup, replace(gpu, device_narrow=2e12))["krylov"] > there["krylov"]


def test_a_coarse_tolerance_takes_krylov_fewer_rounds() -> None:
    setup = problem(1_000_000, 5000, 100)
    rounds = [
        next(row["rounds"] for row in estimates(replace(setup, tol=tol), USUAL) if row["solver"] == "krylov")
        for tol in (None, 1e-14, 1e-6, 1e-2, 1.0)
    ]
    assert rounds == [12, 12, 7, 3, 1]
    gpu = replace(USUAL, device=5e13, device_narrow=2e13)
    assert taken(replace(setup, tol=1e-6), gpu) == "krylov"
