"""Figures 3 to 5: similarity of the nodes' directions with the central one, by nodes, by images and by iterations."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ...algorithms.graph.baselines import Neighbourhood
from ...algorithms.graph.projection_consensus import ProjectionConsensus, Span
from ...datasets import load
from ...engines import InProcess
from ...errors import InputError
from ...estimators import GraphKernelPCA
from ...numerics.linalg import Array
from ..drawing import Curve, Panel, by_first, from_one, panels
from ..measuring import fit_quietly
from ..registry import CURVE_ONLY, Cell, Grid, Reproduced, Size, Watch, paper_numbers, problem_of

REPEATS = {Size.small: 1, Size.paper: 8}
"""Random dealings of images to nodes; the paper has 100."""

SHOWN = 12
"""Iterations that Figure 5 shows."""

FIGURE_5 = (1, 4, SHOWN)
"""Those that its table shows."""

REPEATED = "Means over nodes and over {} random dealing(s) of the images; the paper's are over 100."


@dataclass(frozen=True, eq=False)
class Dealt:
    """Images on nodes, and some kept aside: node -> (images x 784) in [-1, 1]."""

    nodes: dict[str, Array]
    held_out: Array


def deal(nodes: int, images: int, seed: int, *, by_digit: bool = False, held_out: int = 0) -> Dealt:
    """MNIST's digits 0, 3, 5, 8 dealt at random to nodes, or sorted by digit first."""
    mnist = load("mnist")
    labels = np.asarray(mnist.y)
    digits = np.flatnonzero(np.isin(labels, paper_numbers("kernel")["digits"]))
    wanted = nodes * images
    if wanted + held_out > len(digits):
        raise InputError(f"{nodes} nodes of {images} images and {held_out} more are more than the {len(digits)} there are")
    drawn = np.random.default_rng(seed).permutation(digits)[: wanted + held_out]
    mine, aside = drawn[:wanted], drawn[wanted:]
    if by_digit:
        mine = mine[np.argsort(labels[mine], kind="stable")]
    width = len(str(nodes - 1))
    rows = [mnist.X[part] / 127.5 - 1.0 for part in np.split(mine, nodes)]
    return Dealt({f"n{j:0{width}d}": part for j, part in enumerate(rows)}, mnist.X[aside] / 127.5 - 1.0)


def fitted(nodes: dict[str, Array], **options: Any) -> GraphKernelPCA:
    """A fit that does not warn: what did not converge is told by ``converged_``."""
    return fit_quietly(GraphKernelPCA(**{"n_components": 1, "random_state": 0} | options), nodes)


def similarities(pca: GraphKernelPCA, central: GraphKernelPCA) -> Array:
    """Absolute cosines of the nodes' first directions with the central one."""
    return np.array([abs(float(cosines[0, 0])) for cosines in pca.similarity(central).values()])


def _dealings(label: str, nodes: int, images: int, seed: int, repeats: int, watch: Watch) -> Iterator[dict[str, Array]]:
    """Images on nodes, dealt anew as often as asked for."""
    for repeat in range(repeats):
        watch.on_round(f"{label}, dealing {repeat + 1}")
        yield deal(nodes, images, seed + repeat).nodes


def fig3(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Similarity and seconds by the number of nodes."""
    p = problem_of("kernel", "fig3", size)
    rows: list[list[Cell]] = []
    for count in p["nodes"]:
        dealings = _dealings(f"{count} nodes", count, p["images"], seed, REPEATS[size], watch)
        found = [_compared(nodes, f"ring:{p['neighbours']}") for nodes in dealings]
        means = [float(value) for value in np.mean(found, axis=0)]
        rows.append([count, *means])
        watch.on_run(f"{count} nodes: mean similarity {means[0]:.4f}")
    columns = ("nodes", "mean", "worst node", "paper's rho", "problem (5)", "iterations", "s per node", "s central")
    remarks = [
        REPEATED.format(REPEATS[size]),
        f"The paper: above {p['least_at_80']} at 80 nodes.",
        "Problem (5): the direction in the span of a node's rows along which all rows vary most; no node alone could find it.",
        "Seconds are processor time in one process, of one node and of central kernel PCA.",
    ]
    curves = by_first(rows, {"projection consensus": 1, "worst node": 2, "problem (5)": 4})
    seconds = by_first(rows, {"one node": 6, "central": 7})
    figure = _figure("Figure 3: similarity and time by number of nodes", "nodes", curves, seconds)
    return Reproduced("Figure 3", [Grid("Similarity with central kernel PCA", columns, rows)], remarks, figure, {"rows": rows})


def _compared(nodes: dict[str, Array], graph: str) -> tuple[float, ...]:
    """A row of Figure 3's table, for one dealing."""
    pca, ours = _timed(nodes, graph=graph, engine=InProcess(threads=1))
    central, theirs = _timed(nodes, graph=graph, solver="central")
    schedule = fitted(nodes, graph=graph, solver=ProjectionConsensus(schedule="paper"))
    best = fitted(nodes, graph=graph, solver="best-local")
    cosines, paper, most = (similarities(found, central) for found in (pca, schedule, best))
    return cosines.mean(), cosines.min(), paper.mean(), most.mean(), pca.n_iterations_, ours / len(nodes), theirs


def _timed(nodes: dict[str, Array], **options: Any) -> tuple[GraphKernelPCA, float]:
    begin = time.process_time()
    pca = fitted(nodes, **options)
    return pca, time.process_time() - begin


def fig4(size: Size, seed: int, watch: Watch, repeats: int | None = None) -> Reproduced:
    """Similarity by the number of images on a node, beside kernel PCA of a node's own."""
    p, repeats = problem_of("kernel", "fig4", size), repeats or REPEATS[size]
    graph = f"ring:{p['neighbours']}"
    methods = {"projection consensus": "projection-consensus", "own rows only": "own"}
    rows: list[list[Cell]] = []
    for images in p["images"]:
        found = []
        for nodes in _dealings(f"{images} images", p["nodes"], images, seed, repeats, watch):
            central = fitted(nodes, graph=graph, solver="central")
            found.append([_mean_similarity(nodes, central, graph=graph, solver=solver) for solver in methods.values()])
        ours, own = (float(value) for value in np.mean(found, axis=0))
        rows.append([images, ours, own])
        watch.on_run(f"{images} images a node: {ours:.4f}, own rows only {own:.4f}")
    curves = by_first(rows, {name: j for j, name in enumerate(methods, 1)})
    figure = _figure("Figure 4: similarity by images on a node", "images on a node", curves)
    grid = Grid("Mean similarity with central kernel PCA", ("images", *methods), rows)
    return Reproduced("Figure 4", [grid], [REPEATED.format(repeats), CURVE_ONLY], figure, {"rows": rows})


def _mean_similarity(nodes: dict[str, Array], central: GraphKernelPCA, **options: Any) -> float:
    return float(similarities(fitted(nodes, **options), central).mean())


def fig5(size: Size, seed: int, watch: Watch, repeats: int | None = None) -> Reproduced:
    """Similarity after every iteration, beside kernel PCA of all neighbours' rows."""
    p, repeats = problem_of("kernel", "fig5", size), repeats or REPEATS[size]
    rows: list[list[Cell]] = []
    curves: dict[str, Curve] = {}
    for neighbours in p["neighbours"]:
        graph, found = f"ring:{neighbours}", []
        for nodes in _dealings(f"{neighbours} neighbours", p["nodes"], p["images"], seed, repeats, watch):
            central = fitted(nodes, graph=graph, solver="central")
            found.append([_iterated(nodes, central, graph, span) for span in ("own", "neighbourhood")])
        (own, own_level), (wide, level) = (_mean_curve(runs) for runs in zip(*found, strict=True))
        rows.append([neighbours, *_shown(own, own_level), *_shown(wide, level)])
        curves[f"{neighbours} neighbours"] = from_one(wide)
        curves[f"{neighbours}, kernel PCA"] = ([1, SHOWN], [level, level])
        watch.on_run(f"{neighbours} neighbours: {wide[-1]:.4f}, kernel PCA of the same rows {level:.4f}")
    about_one = (*(f"after {t}" for t in FIGURE_5), "kernel PCA", "exceeded after")
    columns = ("neigh-\nbours", *(f"own: {name}" for name in about_one), *(f"all: {name}" for name in about_one))
    remarks = [
        REPEATED.format(repeats),
        "The paper: above kernel PCA of all neighbours' rows after about 4 iterations, for 2 neighbours only similar in the end.",
        "Own: directions made of a node's own rows, Algorithm 1's w_j, beside kernel PCA of the node's and its neighbours' rows "
        "projected on the span of its own.  All: directions made of all these rows, Algorithm 1's z_j (span='neighbourhood'), "
        "beside kernel PCA of them.  The paper does not say which it compares; the picture shows the second.",
        "The start is ours, not the paper's random one, and most of the similarity is there after the first iteration.",
    ]
    figure = _figure("Figure 5: similarity after every iteration", "iterations", curves)
    return Reproduced("Figure 5", [Grid("Mean similarity", columns, rows)], remarks, figure, {"rows": rows})


def _iterated(nodes: dict[str, Array], central: GraphKernelPCA, graph: str, span: Span) -> tuple[Array, float]:
    """Mean similarity after every iteration of directions made of these rows, and that of kernel PCA."""
    method = ProjectionConsensus(span=span, keep_iterates=True)
    pca = fitted(nodes, graph=graph, solver=method, tol=0.0, max_iterations=SHOWN)
    level = _mean_similarity(nodes, central, graph=graph, solver=Neighbourhood(projected=span == "own"))
    return pca.iterate_similarity(central).mean(axis=1), level


def _mean_curve(runs: Sequence[tuple[Array, float]]) -> tuple[list[float], float]:
    """Over all dealings."""
    curves, levels = zip(*runs, strict=True)
    return [float(value) for value in np.mean(curves, axis=0)], float(np.mean(levels))


def _shown(curve: Sequence[float], level: float) -> tuple[float | int | None, ...]:
    """Similarity after some iterations, that of kernel PCA, and after how many iterations it is exceeded."""
    exceeded = next((t + 1 for t, value in enumerate(curve) if value > level), None)
    return (*(curve[t - 1] for t in FIGURE_5), level, exceeded)


def _figure(title: str, xlabel: str, curves: Mapping[str, Curve], seconds: Mapping[str, Curve] | None = None) -> Figure:
    drawn = [Panel("", xlabel, "mean similarity with central kernel PCA", curves, log_y=False)]
    if seconds is not None:
        drawn.append(Panel("", xlabel, "processor seconds", seconds))
    return panels(title, [drawn])
