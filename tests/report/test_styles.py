"""How curves look: the same solver the same in every picture, no two curves of a picture alike, none hidden beneath another."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

import eigenpact as ep
from eigenpact.report.comparison import CONVERGED, NOT_CONVERGED, Point, Run, candidates, worth_drawing
from eigenpact.report.styles import FAMILIES, LINE_WIDTH, draw_curves, looks, solver_of
from eigenpact.solvers import __all__ as solver_classes


def test_a_solver_has_one_colour_and_marker_whatever_stands_beside_it():
    alone = {name: looks([name])[name] for family in FAMILIES for name in family}
    together = looks([*FAMILIES[0], "K = 2", "somebody's own solver"])
    for name in FAMILIES[0]:
        assert together[name] == alone[name]
    variant = looks(["faps, random start", "subspace (SSI)", "Hot potato"])
    assert (variant["faps, random start"].colour, variant["faps, random start"].marker) == (
        alone["faps"].colour,
        alone["faps"].marker,
    )
    assert variant["subspace (SSI)"] == alone["subspace"]
    assert variant["Hot potato"] == alone["hot-potato"]


def test_every_own_solver_has_a_place():
    own = {getattr(ep.solvers, name).name for name in solver_classes} - {"auto"}
    assert own <= {name for family in FAMILIES for name in family}


@pytest.mark.parametrize(
    "names",
    [
        list(candidates("A")),
        ["theta = 0.1", "theta = 0.5", "theta = 1"],
        ["faps", "faps, random start", "faps, literal text", "faps, tol / 20", "subspace (SSI)", "subspace"],
        [f"solver {i}" for i in range(30)],
    ],
)
def test_no_two_curves_of_a_picture_look_alike(names):
    made = looks(names)
    assert list(made) == names
    assert len(set(made.values())) == len(names)


def test_solvers_of_one_family_differ_in_colour_and_in_marker():
    for family in FAMILIES:
        made = looks(family).values()
        assert len({look.colour for look in made}) == len({look.marker for look in made}) == len(family)


def test_a_picture_of_one_solvers_parameters_has_many_colours():
    made = looks(["perpca, theta = 0.1", "perpca, theta = 0.2", "perpca, theta = 0.3"])
    assert made["perpca, theta = 0.1"] == looks(["perpca"])["perpca"]
    assert len({look.colour for look in made.values()}) == len({look.marker for look in made.values()}) == 3


def widths(curves: dict[str, tuple[list[float], list[float]]], scale: str = "log") -> dict[str, float]:
    ax = Figure().subplots()
    ax.set_yscale(scale)
    draw_curves(ax, curves, looks(curves))
    return {line.get_label(): line.get_linewidth() for line in ax.lines}


def test_a_curve_beneath_another_stays_visible():
    xs = [1.0, 2.0, 3.0, 4.0]
    falling = [1e-1, 1e-3, 1e-5, 1e-9]
    drawn = widths(
        {"krylov": (xs, falling), "lanczos": (xs, [y * 1.01 for y in falling]), "power": (xs, [1e-1, 5e-2, 2e-2, 1e-2])}
    )
    assert drawn["krylov"] > 2 * LINE_WIDTH
    assert drawn["lanczos"] == drawn["power"] == LINE_WIDTH


def test_three_curves_in_one_are_three_bands():
    xs, ys = [1.0, 2.0, 3.0], [0.3, 0.2, 0.1]
    drawn = widths({"a": (xs, ys), "b": (xs, ys), "c": (xs, ys)}, scale="linear")
    assert drawn["a"] > drawn["b"] > drawn["c"] == LINE_WIDTH


def test_curves_that_only_cross_or_have_gaps_are_drawn_plainly():
    xs = [1.0, 2.0, 3.0, 4.0]
    drawn = widths({"a": (xs, [1.0, 2.0, 3.0, 4.0]), "b": (xs, [4.0, 2.0, np.nan, 1.0])}, scale="linear")
    assert set(drawn.values()) == {LINE_WIDTH}


def run(name: str, rounds: int, outcome: str = CONVERGED) -> Run:
    return Run(name, outcome, "", rounds=rounds, bytes_up=rounds, curve=(Point(rounds, 1, 1, 0.0, 1e-9, None),))


def test_a_comparison_draws_eight_curves_the_best_of_each_solver_first():
    runs = [run("slow", 300, NOT_CONVERGED), run("krylov", 9), run("krylov, proxy", 7), run("krylov, one-shot start", 8)]
    runs += [run(f"solver{i}", 20 + i) for i in range(6)] + [Run("gone", "not applicable", "too large")]
    drawn = [r.name for r in worth_drawing(runs)]
    assert len(drawn) == 8
    assert {"krylov, proxy", "slow", *(f"solver{i}" for i in range(6))} == set(drawn)  # one of each before a second krylov
    assert drawn == [r.name for r in runs if r.name in drawn]
    assert [r.name for r in worth_drawing(runs[:3])] == ["slow", "krylov", "krylov, proxy"]


def test_names_are_read_as_solvers():
    assert solver_of("auto: gram") == ("auto:-gram", "")
    assert solver_of("one-shot, sign") == ("one-shot", "sign")
