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
from .apgm import apgm
from .inexact_alm import inexact_alm
from .recovery import DCF_ROUNDS, MEASURE, OUR_ROUNDS, Corrupted, Recovered, Sites, fitted, pursued, recovered

APGM_LARGEST = 1000
"""The largest matrix given to APGM, which takes longest."""

SITE_COUNTS = (1, 2, 5, 10, 20, 50, 100, 200)
"""Numbers of sites for the choice (29)."""


# -- Figures 1 and 2: all methods; rank and sparsity -----------------------------------------------


def _pooled(problem: Corrupted) -> Corrupted:
    """The same problem at one site."""
    rows, low_rank, sparse = ({"site0": np.concatenate(list(part.values()))} for part in problem)
    return rows, low_rank, sparse


def _all_methods(problem: Corrupted, rank: int, n: int, seed: int, watch: Watch) -> list[Recovered]:
    return [
        recovered(problem, rank, max_rounds=OUR_ROUNDS, seed=seed, name="shrinking (ours)", watch=watch),
        recovered(problem, rank, solver="dcf", seed=seed, name="DCF-PCA", watch=watch),
        recovered(_pooled(problem), rank, solver="dcf", seed=seed, name="CF-PCA", watch=watch),
        pursued(problem, inexact_alm, "inexact ALM", watch),
        *([pursued(problem, apgm, "APGM", watch)] if n <= APGM_LARGEST else []),
    ]


def fig1(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 1: all methods at several sizes."""
    p = problem_of("robust", "fig1", size, instead=True)
    rows: list[list[Cell]] = []
    panels, numbers = [], []
    for n in p["sizes"]:
        rank = round(p["rank_share"] * n)
        problem = corrupted_problem(n, n, rank, p["share"], sites=p["sites"], seed=seed)
        runs = _all_methods(problem, rank, n, seed, watch)
        rows += [[n, run.name, run.distance, run.err, run.rounds, run.seconds] for run in runs]
        curves = {run.name: drawing.from_one(run.curve) for run in runs}
        panels.append(drawing.Panel(f"n = {n}, r = {rank}", "round, or iteration", "distance from L_0", curves, log_x=True))
        numbers += [{"size": n, **asdict(run)} for run in runs]
    title = f"Robust PCA paper, Figure 1: r = {p['rank_share']} n, s = {p['share']}, {p['sites']} sites"
    left_out = [n for n in p["sizes"] if n > APGM_LARGEST]
    remarks = small_print(
        size,
        CURVE_ONLY,
        MEASURE,
        "Iterations of inexact ALM and APGM see the whole matrix; they are not rounds.  Seconds are of this machine, with "
        "all sites in one process.",
        *([f"APGM was left out at n = {', '.join(map(str, left_out))}, where it takes too long."] if left_out else []),
    )
    grid = Grid(title, ["n", "method", "relL", "err (30)", "rounds", "seconds"], rows)
    return Reproduced(title, [grid], remarks, drawing.panels(title, [panels]), {"problem": p, "runs": numbers})


def fig2(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 2: the grid of rank and sparsity."""
    p = problem_of("robust", "fig2", size, instead=True)
    n, dcf = p["size"], f"DCF-PCA with K = {DCF().K}"
    shown: dict[str, list[list[float]]] = {"shrinking (ours), relL": [], f"{dcf}, relL": [], f"{dcf}, err (30)": []}
    rows: list[list[Cell]] = []
    numbers = []
    for share in p["shares"]:
        for values in shown.values():
            values.append([])
        for rank_share in p["rank_shares"]:
            rank = round(rank_share * n)
            problem = corrupted_problem(n, n, rank, share, sites=p["sites"], seed=seed)
            cell, run = f"r = {rank_share} n, s = {share}", partial(recovered, problem, rank, seed=seed, watch=watch)
            ours = run(max_rounds=OUR_ROUNDS, name=f"{cell}, shrinking (ours)")
            theirs = run(solver=DCF(), max_rounds=p["rounds"], name=f"{cell}, {dcf}")
            numbers += [{"rank_share": rank_share, "share": share, **asdict(found)} for found in (ours, theirs)]
            for values, value in zip(shown.values(), (ours.distance, theirs.distance, theirs.err), strict=True):
                values[-1].append(value)
            rows.append([rank_share, share, ours.distance, ours.rounds, theirs.distance, theirs.err, theirs.rounds])
    title = f"Robust PCA paper, Figure 2: errors by rank and sparsity, n = {n}, {p['sites']} sites"
    columns = ["r / n", "s", "ours:\nrelL", "rounds", "DCF-PCA:\nrelL", "err (30)", "rounds"]
    remarks = small_print(
        size,
        CURVE_ONLY + "  It reports a limit at r = .15 n and s = .2, beyond which nothing is recovered.",
        MEASURE,
        f"Ours has one setting for all cells and at most {OUR_ROUNDS} rounds.  DCF-PCA has at most {p['rounds']} rounds, as "
        f"in the paper, but K = {DCF().K} local steps: with the paper's K = {p['local_steps']} and a step that no hand sets "
        "for the problem, so many rounds are too few.",
    )
    figure = drawing.heat_maps(title, "r / n", p["rank_shares"], "s", p["shares"], shown)
    return Reproduced(title, [Grid(title, columns, rows)], remarks, figure, {"problem": p, "runs": numbers})


# -- Figure 3 and Table 1: an upper bound on the rank ----------------------------------------------


def _revealed(p: Mapping[str, Any], n: int, rank: int, columns: int, seed: int, watch: Watch) -> tuple[RobustPCA, Array, Sites]:
    """A fit with too many columns, the exact singular values (as many as columns), and the rows."""
    rows, low_rank, _ = corrupted_problem(n, n, rank, p["share"], sites=p["sites"], seed=seed)
    exact = np.linalg.svd(np.concatenate(list(low_rank.values())), compute_uv=False)[:columns]
    exact[rank:] = 0.0
    pca = RobustPCA(columns, rank="upper", center=False, random_state=seed).fit(rows)
    watch.on_run(f"n = {n}, p = {columns}: rank {pca.n_components_}, {pca.n_rounds_} rounds")
    return pca, exact, rows


def _padded(pca: RobustPCA, columns: int) -> Array:
    values = np.zeros(columns)
    values[: pca.n_components_] = pca.singular_values_
    return values


def fig3(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 3: singular values when only an upper bound on the rank is known."""
    p = problem_of("robust", "fig3", size, instead=True)
    n, rank, columns = p["size"], round(p["rank_share"] * p["size"]), round(p["column_share"] * p["size"])
    pca, exact, sites = _revealed(p, n, rank, columns, seed, watch)
    dcf = fitted(sites, columns, seed, solver=DCF(), max_rounds=DCF_ROUNDS)  # with too many columns it may never rest
    found = {"exact": exact, "shrinking (ours)": _padded(pca, columns), "DCF-PCA": _padded(dcf, columns)}
    values: dict[str, list[float]] = {name: v.tolist() for name, v in found.items()}
    title = f"Robust PCA paper, Figure 3: singular values, n = {n}, r = {rank}, p = {columns}"
    rows: list[list[Cell]] = [[i, *row] for i, row in enumerate(zip(*values.values(), strict=True), 1)]
    remarks = small_print(
        size,
        CURVE_ONLY,
        f"Ours found rank {pca.n_components_} where the eigenvalues fell to {pca.rank_fall_ or 1:.1e} of the one before; "
        "what is behind it is zero.  DCF-PCA keeps all columns.",
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
    errors: list[float | None] = []
    for n, rank, columns in zip(p["sizes"], p["ranks"], p["columns"], strict=True):
        pca, exact, _ = _revealed(p, n, rank, columns, seed, watch)
        error = float(np.abs(_padded(pca, columns) - exact).max() / exact[rank - 1])
        errors.append(error)
        rows.append([n, rank, columns, pca.n_components_, error, printed.get(n), int(pca.n_rounds_)])
    title = "Robust PCA paper, Table 1: max |sigma_i - sigma_i(L_0)| / sigma_r(L_0) with p = 2 r"
    grid = Grid(title, ["n", "r", "p", "rank\nfound", "error", "paper's\nDCF-PCA", "rounds"], rows)
    remarks = small_print(size, "The maximum is over all p values, those behind the rank found being zero.")
    names = [f"n = {n}" for n in p["sizes"]]
    told = {"shrinking (ours)": [printed[n] for n in p["sizes"]]} if set(p["sizes"]) <= set(printed) else {}
    figure = drawing.bars(title, "relative error", names, {"shrinking (ours)": errors}, told)
    return Reproduced(title, [grid], remarks, figure, {"problem": p, "errors": errors})


# -- Figure 4: local steps, and how many sites -----------------------------------------------------


def fig4(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Figure 4: local steps K of DCF-PCA; and what a round costs with E sites, whose best choice (29) is of the order sqrt(n)."""
    p = problem_of("robust", "fig4", size, instead=True)
    n, rank = p["size"], round(p["rank_share"] * p["size"])
    problem = corrupted_problem(n, n, rank, p["share"], sites=p["sites"], seed=seed)
    runs = [
        recovered(problem, rank, solver=DCF(K=K), max_rounds=DCF_ROUNDS, seed=seed, name=f"K = {K}", watch=watch)
        for K in p["local_steps"]
    ]
    rows: list[list[Cell]] = [[run.name, run.distance, run.err, run.rounds, _first(run, 0.1), _first(run, 0.02)] for run in runs]
    costs = {E: _cost_of_a_round(p, rank, E, seed) for E in SITE_COUNTS if n // E >= 2}
    both = [(E, *cost, sum(cost)) for E, cost in costs.items()]  # a number sent costs as much as a multiplication, as in (29)
    best = min(both, key=itemgetter(3))[0]
    priced = [[E, work, int(sent), float(whole)] for E, work, sent, whole in both]
    title = f"Robust PCA paper, Figure 4: local steps of DCF-PCA, n = {n}, r = {rank}, {p['sites']} sites"
    grids = [
        Grid(title, ["", "relL", "err (30)", "rounds", "rounds\nto .1", "rounds\nto .02"], rows),
        Grid("What a round costs with E sites", ["E", "multiplications\nat a site", "numbers\nsent", "both"], priced),
    ]
    remarks = small_print(
        size,
        CURVE_ONLY + "  It says that K = 10 takes 8 iterations to converge.",
        MEASURE,
        "Rounds to .1 and .02: until L_0 is within that of the span.  A site's work falls with 1 / E and what is sent grows "
        f"with E; with both taken to cost the same, as in (29), E = {best} is best of those tried, and "
        f"the best E grows with sqrt(n), here {np.sqrt(n):.0f}.",
    )
    curves = {run.name: drawing.from_one(run.curve) for run in runs}
    prices = drawing.by_first(both, {"multiplications at a site": 1, "numbers sent": 2, "both": 3})
    panels = [
        drawing.Panel("local steps K", "round", "distance of L_0 from the span", curves),
        drawing.Panel("number of sites E, K = 2", "E", "cost of a round", prices, every=True),
    ]
    numbers = {"problem": p, "runs": [asdict(run) for run in runs], "costs": {str(E): cost for E, cost in costs.items()}}
    return Reproduced(title, grids, remarks, drawing.panels(title, [panels]), numbers)


def _cost_of_a_round(p: Mapping[str, Any], rank: int, E: int, seed: int) -> tuple[int, float]:
    """Multiplications at the largest of E sites, and numbers that all of them send, with K = 2 local steps."""
    n = p["size"]
    sites = corrupted_problem(n, n, rank, p["share"], sites=E, seed=seed)[0]
    pca = fitted(sites, rank, seed, solver=DCF(K=2), max_rounds=3)
    sent = sum(m.bytes for m in pca.ledger_ if m.function == "descend" and m.round == 1) / 8
    return 2 * 2 * 4 * n * rank * max(len(X) for X in sites.values()), sent


def _first(run: Recovered, bar: float) -> int | None:
    return next((i for i, distance in enumerate(run.curve, 1) if distance <= bar), None)
