"""Figure 2 and Table 2: one of n, m, p, xi varies; Figure 4: rates of convergence on the arithmetic spectrum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from .. import drawing
from ..registry import CURVE_ONLY, Cell, Grid, Reproduced, Size, Watch, paper_numbers, problem_of, small_print
from . import race
from .race import Measured, Problem

SWEEPS = {"n": "features", "m": "rows", "p": "components", "xi": "decay"}
"""The paper's letter for what varies -> our word."""

ROUNDS, TARGET, SHOWN = 400, 1e-7, 100
"""Rounds granted, where SSI would take thousands; the KKT to reach; and the round whose KKT is printed."""


# -- Figure 2 and Table 2: four sweeps -------------------------------------------------------------


def _sweeps(size: Size, seed: int, watch: Watch) -> Iterator[tuple[str, float, list[Measured]]]:
    """The letter that varies, its value, and the runs; one problem at a time, because the paper's are large."""
    printed, p = paper_numbers("faps")["table2"], problem_of("faps", "fig2", size, instead=True)
    for letter, varied in SWEEPS.items():
        for value in p[letter][varied]:
            problem = race.synthetic(f"{letter} = {value:.5g}", p[letter] | {varied: value, "sites": p["sites"]}, seed)
            yield letter, value, race.run(problem, printed[letter], seed, watch)


def fig2(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 2: rounds and seconds when one of n, m, p, xi varies."""
    p, found = problem_of("faps", "fig2", size, instead=True), list(_sweeps(size, seed, watch))
    names = [run.name for run in found[0][2]]
    columns = {name: j for j, name in enumerate(names, 1)}
    grids, above, below = [], [], []
    for letter, varied in SWEEPS.items():
        part = [(float(f"{value:.5g}"), runs) for given, value, runs in found if given == letter]
        fixed = ", ".join(f"{word} {p[letter][word]}" for word in SWEEPS.values() if word != varied)
        title = f"FAPS paper, Figure 2, varying {letter}: rounds ({fixed}, {p['sites']} sites)"
        rounds = [[value, *(run.rounds for run in runs)] for value, runs in part]
        seconds = [[value, *(run.seconds for run in runs)] for value, runs in part]
        grids.append(Grid(title, [varied, *names], rounds))
        title, xlabel = f"varying {letter}: {fixed}", f"{varied} ({letter})"
        above.append(_rounds_panel(title, xlabel, drawing.by_first(rounds, columns), part))
        below.append(drawing.Panel("", xlabel, "seconds on this machine", drawing.by_first(seconds, columns), every=True))
    curve_only = CURVE_ONLY + "  Its average errors are in faps-table2."
    remarks = small_print(size, curve_only, race.COUNTED, race.LITERAL, race.LOCALPOWER, race.SECONDS)
    figure = drawing.panels("FAPS paper, Figure 2: rounds to the paper's KKT, and seconds on this machine", [above, below])
    numbers = {"problem": p, "runs": [asdict(run) for _, _, runs in found for run in runs]}
    return Reproduced("FAPS paper, Figure 2: rounds and seconds on synthetic data", grids, remarks, figure, numbers)


def _rounds_panel(
    title: str, xlabel: str, rounds: Mapping[str, drawing.Curve], part: Sequence[tuple[float, Sequence[Measured]]]
) -> drawing.Panel:
    """Rounds to the KKT, or hollow all rounds of a solver that did not get there."""
    missed = [[value, *(run.curve[-1].round if run.rounds is None else None for run in runs)] for value, runs in part]
    hollow = drawing.by_first(missed, {run.name: j for j, run in enumerate(part[0][1], 1)})
    return drawing.Panel(title, xlabel, "rounds", rounds, missed=hollow, every=True)


def table2(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Table 2: KKT and relative error of singular values, averaged over each sweep of Figure 2."""
    printed, found = paper_numbers("faps")["table2"], list(_sweeps(size, seed, watch))
    swept = {letter: race.by_solver(runs for given, _, runs in found if given == letter) for letter in SWEEPS}
    rows = [[letter, *race.averages(runs, printed[letter])] for letter, runs_of in swept.items() for runs in runs_of.values()]
    errors = {name: [race.mean_error(runs_of[name]) for runs_of in swept.values()] for name in swept["n"]}
    title = "FAPS paper, Table 2: averages over the problems of Figure 2"
    averaged = "KKT and relative error are those after that round, averaged."
    remarks = small_print(size, race.COUNTED, averaged, race.CLOSING, race.LITERAL, race.LOCALPOWER)
    groups = [f"varying {letter}" for letter in SWEEPS]
    paper = race.paper_errors(found[0][2], [printed[letter] for letter in SWEEPS])
    figure = drawing.bars(title, "relative error of singular values", groups, errors, paper)
    runs = [asdict(run) for _, _, runs in found for run in runs]
    numbers = {"problem": problem_of("faps", "fig2", size, instead=True), "runs": runs}
    return Reproduced(title, [Grid(title, ["varying", *race.AVERAGED], rows)], remarks, figure, numbers)


# -- Figure 4: rates -------------------------------------------------------------------------------


def fig4(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 4: KKT by round for the arithmetic spectrum, and the factor by which a round shrinks it."""
    p = problem_of("faps", "fig4", size, instead=True)
    targets = {name: {"kkt": TARGET} for name in ("SSI", "LocalPower", "FAPS")}
    rows, panels, numbers = list[list[Cell]](), list[drawing.Panel](), list[dict[str, Any]]()
    for kappa in p["condition"]:
        problem = race.synthetic(f"kappa = {kappa}", p, seed, condition=float(kappa))
        runs = race.run(problem, targets, seed, watch, race.contenders(literal=False, max_rounds=ROUNDS))
        for run in runs:
            shown = next((point.kkt for point in run.curve if point.round == SHOWN), None)
            rows.append([kappa, run.name, round(rate(run), 4), shown, run.rounds, run.own_stop])
        rows.append([kappa, "SSI in theory", round(_gap(problem, kappa), 4), None, None, None])
        panels.append(drawing.Panel(f"kappa = {kappa}", "round", "scaled KKT residual", drawing.by_round(runs, "kkt")))
        numbers += [{"kappa": kappa, "rate": rate(run), **asdict(run)} for run in runs]
    title = f"FAPS paper, Figure 4: arithmetic spectrum, {race.shape_of(problem)}"
    columns = ["kappa", "solver", "factor\na round", f"KKT after\n{SHOWN} rounds", f"rounds to\n{TARGET:g}", "own\nstop"]
    remarks = small_print(
        size,
        CURVE_ONLY,
        "Factor a round: by which the KKT shrinks, over the second half of the rounds.  Solvers were stopped after "
        f"{ROUNDS} rounds, those by which answers are confirmed included; in theory SSI's factor tends to "
        "(sigma_11 / sigma_10)^2.",
        race.LOCALPOWER,
    )
    figure = drawing.panels(title, [panels])
    return Reproduced(title, [Grid(title, columns, rows)], remarks, figure, {"problem": p, "runs": numbers})


def rate(run: Measured) -> float:
    """The factor by which a round shrinks the KKT, from the second half of the curve."""
    first, last = run.curve[len(run.curve) // 2], run.curve[-1]
    return float((last.kkt / first.kkt) ** (1 / max(1, last.round - first.round)))


def _gap(problem: Problem, kappa: float) -> float:
    """(sigma_{p+1} / sigma_p)^2 of the arithmetic spectrum."""
    step = (1 - 1 / kappa) / (len(problem.scatter) - 1)
    last = float(problem.exact[-1])
    return ((last - step) / last) ** 2
