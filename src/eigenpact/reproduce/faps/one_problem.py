"""Tables 1 and 4: one synthetic problem each, the second with uneven sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from matplotlib.figure import Figure

from ...algorithms.consensus.localpower import LocalPower
from .. import drawing
from ..measuring import Contender
from ..registry import Cell, Grid, Reproduced, Size, Watch, paper_numbers, problem_of, small_print
from . import race
from .race import Measured

PATIENCES = (1, 2, 4, 8, 16, 32)
"""Rounds between two halvings of LocalPower's q, tried in Table 4."""

TOLERANCE = f"faps, tol / {race.TIGHTER}: asked for a KKT {race.TIGHTER} times smaller, rounds counted to the same one."


def table1(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Table 1: SSI and FAPS on one synthetic problem; also rounds to the paper's relative errors, which are all it prints."""
    p, told = problem_of("faps", "table1", size, instead=True), paper_numbers("faps")["table1"]
    kkts = paper_numbers("faps")["table2"]["n"]
    problem = race.synthetic("table 1", p, seed)
    running = [contender for contender in race.contenders(tight=True) if contender.like in (None, *told)]
    runs = race.run(problem, kkts, seed, watch, running)
    rows: list[list[Cell]] = []
    for run in runs:
        paper = told.get(run.like, {})
        error = paper.get("relative_error")
        rows.append([run.name, run.rounds, paper.get("rounds"), run.own_stop, run.rounds_to_error(error), error, run.kkt])
        rows[-1] += [run.relative_error, run.closing_kkt, round(run.seconds, 1)]
    columns = ["solver", "rounds", "paper's\nrounds", "own\nstop", "rounds to\nits error", "paper's\nerror", "KKT"]
    title = f"FAPS paper, Table 1: {race.shape_of(problem)}, xi = {p['decay']}"
    remarks = small_print(
        size,
        race.COUNTED,
        race.CLOSING,
        TOLERANCE,
        race.LITERAL,
        "Table 1 prints no KKT; the targets are Table 2's for varying n, whose first problem this is.  It prints relative "
        "errors of singular values; rounds to those stand beside them.",
        race.SECONDS,
    )
    grid = Grid(title, [*columns, "relative\nerror", race.CLOSING_KKT, "seconds"], rows)
    numbers = {"problem": p, "runs": [asdict(run) for run in runs]}
    return Reproduced(title, [grid], remarks, _convergence(title, runs, told, kkts, size), numbers)


def table4(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Table 4: sites of unequal size; the text's own rule and other readings of LocalPower beside."""
    p, told = problem_of("faps", "table4", size, instead=True), paper_numbers("faps")["table4"]
    counts = p["row_counts"]
    problem = race.synthetic("table 4", p, seed, rows=sum(counts), sites=counts)
    runs = race.run(problem, told, seed, watch, race.contenders(tight=True))
    others = [Contender(f"localpower, patience {n}", LocalPower(q=8, patience=n), "LocalPower") for n in PATIENCES[1:]]
    readings = [next(run for run in runs if run.name == "localpower"), *race.run(problem, told, seed, watch, others)]
    rows: list[list[Cell]] = []
    for run in runs:
        paper = told.get(run.like, {})
        rows.append([run.name, run.rounds, paper.get("rounds"), run.own_stop, run.kkt, paper.get("kkt"), run.relative_error])
        rows[-1] += [paper.get("relative_error"), run.closing_kkt, round(run.seconds, 2), paper.get("seconds")]
    columns = ["solver", "rounds", "paper's\nrounds", "own\nstop", "KKT", "paper's\nKKT", "relative\nerror", "paper's\nerror"]
    title = f"FAPS paper, Table 4: {race.shape_of(problem)}, sites of {counts[0]} to {counts[-1]} rows, xi = {p['decay']}"
    wanted = told["LocalPower"]["rounds"]
    read = [[n, run.rounds, wanted] for n, run in zip(PATIENCES, readings, strict=True)]
    grids = [
        Grid(title, [*columns, race.CLOSING_KKT, "seconds", "paper's\nseconds"], rows),
        Grid("localpower, read in other ways", ["q halved every ... rounds", "rounds", "paper's rounds"], read),
    ]
    remarks = small_print(
        size,
        race.COUNTED,
        race.CLOSING,
        TOLERANCE,
        race.LITERAL,
        race.LOCALPOWER + "  " + _nearest(readings, wanted),
        f"When SSI reached the paper's KKT, the captured variance still changed by {runs[0].change_when_reached():.0e} of itself "
        "in a round; the paper says that it stopped at 1e-10.",
        race.SECONDS,
    )
    numbers = {"problem": p, "runs": [asdict(run) for run in runs], "readings": [asdict(run) for run in readings]}
    return Reproduced(title, grids, remarks, _convergence(title, runs, told, told, size), numbers)


def _nearest(readings: Sequence[Measured], wanted: int) -> str:
    """Which reading of LocalPower comes nearest to the paper's rounds."""
    found = [(n, run.rounds) for n, run in zip(PATIENCES, readings, strict=True) if run.rounds is not None]
    if not found:
        return f"No reading reached the KKT, so none explains the paper's {wanted} rounds."
    patience, rounds = min(found, key=lambda pair: abs(pair[1] - wanted))
    return f"Of the readings below, halving every {patience} rounds comes nearest to the paper's {wanted}: {rounds} rounds."


def _convergence(title: str, runs: Sequence[Measured], rounds: Mapping[str, Any], kkts: Mapping[str, Any], size: Size) -> Figure:
    """KKT by round, and at paper size the paper's rounds as stars."""
    like = {"subspace (SSI)": "SSI", "localpower": "LocalPower", "faps": "FAPS"} if size is Size.paper else {}
    told = {run.name: like[run.name] for run in runs if like.get(run.name) in rounds}
    stars = {name: (float(rounds[paper]["rounds"]), float(kkts[paper]["kkt"])) for name, paper in told.items()}
    curves, level = drawing.by_round(runs, "kkt"), runs[-1].target
    name = f"KKT of the paper's FAPS, {level:.2e}"
    panel = drawing.Panel("", "round", "scaled KKT residual", curves, stars, level=level, level_name=name, log_x=True)
    return drawing.panels(title.replace(": ", "\n", 1), [[panel]])
