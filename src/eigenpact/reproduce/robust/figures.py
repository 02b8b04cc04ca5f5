"""All figures and the table: methods by size, by rank and sparsity, with an unknown rank, and by local steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from ...algorithms.robust.dcf import DCF
from ...datasets import corrupted_problem
from ...estimators import RobustPCA
from ...numerics.linalg import Array
from .. import drawing
from ..registry import CURVE_ONLY, Cell, Grid, Reproduced, Size, Watch, paper_numbers, problem_of, small_print
from .alternating_linearization import alternating_linearization
from .apgm import apgm
from .inexact_alm import inexact_alm
from .recovery import (
    DCF_ROUNDS,
    FEW_ROUNDS,
    HOW_PRINTED,
    MEASURE,
    ONE_SITE,
    OUR_ROUNDS,
    OURS,
    PRINTED,
    THEIRS,
    UNPRINTED,
    Corrupted,
    Recovered,
    fitted,
    printed_step,
    pursued,
    recovered,
)

LARGEST = {"APGM": 1000, "ALM (Goldfarb et al.)": 1000}
"""The largest matrix given to the methods that take longest."""

LAMBDAS = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Values of lambda for the printed step."""

SPAN = "distance of L_0 from the span"

SITE_COUNTS = (1, 2, 5, 10, 20, 50, 100, 200)
"""Numbers of sites for the choice (29)."""


# -- Figures 1 and 2: all methods; rank and sparsity -----------------------------------------------


def _pooled(problem: Corrupted) -> Corrupted:
    """The same problem at one site."""
    rows, low_rank, sparse = ({"site0": np.concatenate(list(part.values()))} for part in problem)
    return rows, low_rank, sparse


def _all_methods(problem: Corrupted, rank: int, n: int, seed: int, watch: Watch) -> tuple[list[Recovered], list[Recovered]]:
    """Federated ones, and those with all rows in one place."""
    run = partial(recovered, rank=rank, seed=seed, watch=watch)
    federated = [
        run(problem, max_rounds=OUR_ROUNDS, name=OURS),
        run(problem, solver="dcf", name=THEIRS),
        run(problem, solver=printed_step(), max_rounds=FEW_ROUNDS, name=PRINTED),
    ]
    pursuits = {"ALM (Goldfarb et al.)": alternating_linearization, "inexact ALM (Lin et al.)": inexact_alm, "APGM": apgm}
    central = [run(_pooled(problem), solver="dcf", name=ONE_SITE)]
    central += [pursued(problem, rank, method, name, watch) for name, method in pursuits.items() if n <= LARGEST.get(name, n)]
    return federated, central


def fig1(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 1: all methods at several sizes."""
    p = problem_of("robust", "fig1", size, instead=True)
    rows: list[list[Cell]] = []
    above, below, numbers = list[drawing.Panel](), list[drawing.Panel](), []
    for n in p["sizes"]:
        rank = round(p["rank_share"] * n)
        problem = corrupted_problem(n, n, rank, p["share"], sites=p["sites"], seed=seed)
        federated, central = _all_methods(problem, rank, n, seed, watch)
        rows += [[n, run.name, run.distance, run.err, run.rounds, run.seconds] for run in (*federated, *central)]
        numbers += [{"size": n, **asdict(run)} for run in (*federated, *central)]
        for runs, where, step, panels in (
            (federated, "federated", "round", above),
            (central, "in one place", "iteration", below),
        ):
            curves = {run.name: drawing.from_one(run.curve) for run in runs}
            panels.append(drawing.Panel(f"n = {n}, r = {rank}, {where}", step, SPAN, curves, log_x=True))
    title = f"Robust PCA paper, Figure 1: r = {p['rank_share']} n, s = {p['share']}, {p['sites']} sites"
    left_out = [f"{name} at n = {n}" for n in p["sizes"] for name, largest in LARGEST.items() if n > largest]
    remarks = small_print(
        size,
        CURVE_ONLY,
        MEASURE,
        HOW_PRINTED,
        "Iterations of CF-PCA, ALM and APGM see the whole matrix; they are not rounds.  Seconds are of this machine, with all "
        "sites in one process.",
        *([f"Left out, because it takes too long: {', '.join(left_out)}."] if left_out else []),
    )
    grid = Grid(title, ["n", "method", "relL", "err (30)", "rounds", "seconds"], rows)
    return Reproduced(title, [grid], remarks, drawing.panels(title, [above, below]), {"problem": p, "runs": numbers})


def fig2(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 2: the grid of rank and sparsity."""
    p = problem_of("robust", "fig2", size, instead=True)
    n = p["size"]
    settings: dict[str, dict[str, Any]] = {
        OURS: {"max_rounds": OUR_ROUNDS},
        THEIRS: {"solver": DCF(), "max_rounds": p["rounds"]},
        PRINTED: {"solver": printed_step(), "max_rounds": p["rounds"]},
    }
    shown: dict[str, list[list[float]]] = {f"{name}, err (30)": [] for name in settings}
    rows: list[list[Cell]] = []
    numbers = []
    for share in p["shares"]:
        for values in shown.values():
            values.append([])
        for rank_share in p["rank_shares"]:
            rank = round(rank_share * n)
            problem = corrupted_problem(n, n, rank, share, sites=p["sites"], seed=seed)
            cell, run = f"r = {rank_share} n, s = {share}", partial(recovered, problem, rank, seed=seed, watch=watch)
            found = [run(name=f"{cell}, {name}", **setting) for name, setting in settings.items()]
            numbers += [{"rank_share": rank_share, "share": share, **asdict(one)} for one in found]
            for values, one in zip(shown.values(), found, strict=True):
                values[-1].append(one.err)
            rows.append([rank_share, share, *(value for one in found for value in (one.distance, one.err, one.rounds))])
    title = f"Robust PCA paper, Figure 2: errors by rank and sparsity, n = {n}, {p['sites']} sites"
    columns = ["r / n", "s", "ours:\nrelL", "err (30)", "rounds"]
    columns += [f"{name}:\nrelL" if i == 0 else told for name in ("dcf", "printed") for i, told in enumerate(("", *columns[3:]))]
    remarks = small_print(
        size,
        CURVE_ONLY + "  It reports a limit at r = .15 n and s = .2, beyond which nothing is recovered.",
        MEASURE,
        f"Ours has one setting for all cells and at most {OUR_ROUNDS} rounds; dcf has at most {p['rounds']}, as in the paper, "
        f"with K = {DCF().K} and a step divided by the curvature.  " + HOW_PRINTED,
    )
    figure = drawing.heat_maps(title, "r / n", p["rank_shares"], "s", p["shares"], shown)
    return Reproduced(title, [Grid(title, columns, rows)], remarks, figure, {"problem": p, "runs": numbers})


# -- Figure 3 and Table 1: an upper bound on the rank ----------------------------------------------


def _with_bound(
    p: Mapping[str, Any], n: int, rank: int, columns: int, seed: int, watch: Watch
) -> tuple[Array, dict[str, RobustPCA]]:
    """The exact singular values (as many as columns), and fits with too many columns; DCF-PCA may never rest with them."""
    rows, low_rank, _ = corrupted_problem(n, n, rank, p["share"], sites=p["sites"], seed=seed)
    exact = np.linalg.svd(np.concatenate(list(low_rank.values())), compute_uv=False)[:columns]
    exact[rank:] = 0.0
    fits = {
        OURS: fitted(rows, columns, seed, rank="upper"),
        THEIRS: fitted(rows, columns, seed, solver="dcf", max_rounds=DCF_ROUNDS),
        PRINTED: fitted(rows, columns, seed, solver=printed_step(), max_rounds=FEW_ROUNDS),
    }
    watch.on_run(f"n = {n}, p = {columns}: " + ", ".join(f"{name} {pca.n_rounds_} rounds" for name, pca in fits.items()))
    return exact, fits


def _padded(pca: RobustPCA, columns: int) -> Array:
    values = np.zeros(columns)
    values[: pca.n_components_] = pca.singular_values_
    return values


def fig3(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 3: singular values when only an upper bound on the rank is known."""
    p = problem_of("robust", "fig3", size, instead=True)
    n, rank, columns = p["size"], round(p["rank_share"] * p["size"]), round(p["column_share"] * p["size"])
    exact, fits = _with_bound(p, n, rank, columns, seed, watch)
    pca = fits[OURS]
    values = {"exact": exact.tolist()} | {name: _padded(fit, columns).tolist() for name, fit in fits.items()}
    title = f"Robust PCA paper, Figure 3: singular values, n = {n}, r = {rank}, p = {columns}"
    rows: list[list[Cell]] = [[i, *row] for i, row in enumerate(zip(*values.values(), strict=True), 1)]
    remarks = small_print(
        size,
        CURVE_ONLY,
        f"Ours found rank {pca.n_components_} where the eigenvalues fell to {pca.rank_fall_ or 1:.1e} of the one before; "
        "what is behind it is zero.  DCF-PCA keeps all columns.",
        HOW_PRINTED,
    )
    curves = {name: drawing.from_one(v) for name, v in values.items()}
    figure = drawing.panels(title, [[drawing.Panel("", "i", "singular value", curves, log_y=False)]])
    numbers = {"problem": p, "singular_values": values}
    return Reproduced(title, [Grid(title, ["i", *values], rows)], remarks, figure, numbers)


def table1(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Table 1: relative singular value errors for several sizes."""
    p, paper = problem_of("robust", "table1", size, instead=True), paper_numbers("robust")["table1"]
    printed = dict(zip(paper["sizes"], paper["errors"], strict=True))
    rows: list[list[Cell]] = []
    errors: dict[str, list[float | None]] = {OURS: [], THEIRS: [], PRINTED: []}
    for n, rank, columns in zip(p["sizes"], p["ranks"], p["columns"], strict=True):
        exact, fits = _with_bound(p, n, rank, columns, seed, watch)
        for name, fit in fits.items():
            errors[name].append(float(np.abs(_padded(fit, columns) - exact).max() / exact[rank - 1]))
        told: list[Cell] = [value for name, fit in fits.items() for value in (errors[name][-1], int(fit.n_rounds_))]
        rows.append([n, rank, columns, fits[OURS].n_components_, *told, printed.get(n)])
    title = "Robust PCA paper, Table 1: max |sigma_i - sigma_i(L_0)| / sigma_r(L_0) with p = 2 r"
    solvers = ["ours:\nerror", "rounds", "dcf:\nerror", "rounds", "printed:\nerror", "rounds"]
    grid = Grid(title, ["n", "r", "p", "ours:\nrank", *solvers, "paper's\nDCF-PCA"], rows)
    remarks = small_print(
        size,
        "The maximum is over all p values; behind the rank that ours found they are zero.  dcf has no rank to find: it keeps p "
        f"columns and has {DCF_ROUNDS} rounds.  " + HOW_PRINTED,
    )
    names = [f"n = {n}" for n in p["sizes"]]
    shown = errors | {"dcf, the paper's number": [printed.get(n) for n in p["sizes"]]}
    figure = drawing.bars(title, "relative error", names, shown, {})
    return Reproduced(title, [grid], remarks, figure, {"problem": p, "errors": errors, "paper": printed})


# -- Figure 4: local steps, and how many sites -----------------------------------------------------


def fig4(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 4: local steps K of DCF-PCA; and what a round costs with E sites, whose best choice (29) is of the order sqrt(n)."""
    p = problem_of("robust", "fig4", size, instead=True)
    n, rank = p["size"], round(p["rank_share"] * p["size"])
    problem = corrupted_problem(n, n, rank, p["share"], sites=p["sites"], seed=seed)
    run = partial(recovered, problem, rank, max_rounds=DCF_ROUNDS, seed=seed, watch=watch)
    as_printed = {"step": p["step"], **UNPRINTED}
    steps: dict[str, dict[str, Any]] = {
        "step over curvature": {},
        f"step {p['step']}": as_printed,
        f"step {p['step']} / sqrt(t)": as_printed | {"decay": True},
    }
    runs = {how: [run(solver=DCF(K=K, **step), name=f"dcf, K = {K}") for K in p["local_steps"]] for how, step in steps.items()}
    rows: list[list[Cell]] = [
        [how, found.name, found.distance, found.err, found.rounds, _first(found, 0.1), _first(found, 0.02)]
        for how, of_step in runs.items()
        for found in of_step
    ]
    most = max(p["local_steps"])
    weights = {lam: run(solver=DCF(K=most, **as_printed | {"lam": lam}), name=f"dcf, lambda = {lam}") for lam in LAMBDAS}
    costs = {E: _cost_of_a_round(p, rank, E, seed) for E in SITE_COUNTS if n // E >= 2}
    both = [(E, *cost, sum(cost)) for E, cost in costs.items()]  # a number sent costs as much as a multiplication, as in (29)
    best = min(both, key=itemgetter(3))[0]
    priced = [[E, work, int(sent), float(whole)] for E, work, sent, whole in both]
    title = f"Robust PCA paper, Figure 4: local steps of DCF-PCA, n = {n}, r = {rank}, {p['sites']} sites"
    reached = ["relL", "err (30)", "rounds", "rounds\nto .1", "rounds\nto .02"]
    other = f"The printed step {p['step']} with K = {most} for several lambda"
    grids = [
        Grid(title, ["", "", *reached], rows),
        Grid(other, ["lambda", *reached[:2], *reached[3:]], _by_lambda(weights)),
        Grid("What a round costs with E sites", ["E", "multiplications\nat a site", "numbers\nsent", "both"], priced),
    ]
    remarks = small_print(
        size,
        CURVE_ONLY + f"  It says that K = 10 takes 8 iterations to converge, with the step {p['step']}.",
        MEASURE,
        "The printed step is taken for rows as they are, with lambda = rho = 1, which are not printed: once as it is, as "
        "Figure 4 says, and once divided by sqrt(t), as Section 4.2 says of all experiments.",
        "Rounds to .1 and .02: until L_0 is within that of the span.  A site's work falls with 1 / E and what is sent grows "
        f"with E; with both taken to cost the same, as in (29), E = {best} is best of those tried, and "
        f"the best E grows with sqrt(n), here {np.sqrt(n):.0f}.",
    )
    above = [
        drawing.Panel(how, "round", SPAN, {found.name: drawing.from_one(found.curve) for found in of_step})
        for how, of_step in runs.items()
    ]
    below = [
        drawing.Panel("number of sites E, K = 2", "E", what, drawing.by_first(both, {"dcf, K = 2": column}), every=True)
        for column, what in enumerate(
            ("multiplications at a site", "numbers sent in a round", "multiplications + numbers sent"), 1
        )
    ]
    told = {how: [asdict(found) for found in of_step] for how, of_step in runs.items()}
    numbers = {"problem": p, "runs": told, "costs": {str(E): cost for E, cost in costs.items()}}
    return Reproduced(title, grids, remarks, drawing.panels(title, [above, below]), numbers)


def _cost_of_a_round(p: Mapping[str, Any], rank: int, E: int, seed: int) -> tuple[int, float]:
    """Multiplications at the largest of E sites, and numbers that all of them send, with K = 2 local steps."""
    n = p["size"]
    sites = corrupted_problem(n, n, rank, p["share"], sites=E, seed=seed)[0]
    pca = fitted(sites, rank, seed, solver=DCF(K=2), max_rounds=3)
    sent = sum(m.bytes for m in pca.ledger_ if m.function == "descend" and m.round == 1) / 8
    return 2 * 2 * 4 * n * rank * max(len(X) for X in sites.values()), sent


def _first(run: Recovered, bar: float) -> int | None:
    return next((i for i, distance in enumerate(run.curve, 1) if distance <= bar), None)


def _by_lambda(weights: Mapping[float, Recovered]) -> list[list[Cell]]:
    return [[lam, run.distance, run.err, _first(run, 0.1), _first(run, 0.02)] for lam, run in weights.items()]
