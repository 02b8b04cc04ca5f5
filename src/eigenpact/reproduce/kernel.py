"""The figures of the paper on kernel PCA by projection consensus: similarity of nodes' directions with the central one.

How similarity is measured
    The cosine, in feature space, between a node's direction and the first one of central kernel PCA of all rows, both centred at
    the mean of all rows; the mean over nodes, its sign ignored.
How the paper was read
    Images are scaled to [-1, 1], K(x, y) = exp(-||x - y||^2 / 784), nodes stand on a ring and talk to the nearest ones.  Our rule
    for rho, stopping rule and start are used throughout; ``schedule="paper"`` is the paper's rho, in Figure 3 beside ours.

References
    F. He, R. Yang, L. Shi, X. Huang, "A decentralized framework for kernel PCA with projection consensus constraints".
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..algorithms.graph.baselines import Neighbourhood
from ..algorithms.graph.projection_consensus import ProjectionConsensus, Span
from ..datasets import load
from ..engines import InProcess
from ..errors import InputError, NotConvergedWarning
from ..estimators import GraphKernelPCA
from ..numerics.linalg import Array
from .registry import Grid, Reproduced, Reproduction, Size, Watch, paper_numbers

SMALL: dict[str, dict[str, Any]] = {
    "fig3": {"nodes": [8, 16], "images": 60, "neighbours": 4},
    "fig4": {"nodes": 10, "images": [40, 100], "neighbours": 4},
    "fig5": {"nodes": 12, "images": 60, "neighbours": [2, 6]},
}
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        return GraphKernelPCA(**{"n_components": 1, "random_state": 0} | options).fit(nodes)


def similarities(pca: GraphKernelPCA, central: GraphKernelPCA) -> Array:
    """Absolute cosines of the nodes' first directions with the central one."""
    return np.array([abs(float(cosines[0, 0])) for cosines in pca.similarity(central).values()])


def _problem(name: str, size: Size) -> dict[str, Any]:
    printed: dict[str, Any] = paper_numbers("kernel")[name]
    return printed if size is Size.paper else printed | SMALL[name]


def fig3(size: Size, seed: int, watch: Watch) -> Reproduced:
    """Similarity and seconds by the number of nodes."""
    about = _problem("fig3", size)
    rows: list[list[Any]] = []
    for count in about["nodes"]:
        graph = f"ring:{about['neighbours']}"
        found = []
        for repeat in range(REPEATS[size]):
            watch.on_round(f"{count} nodes, dealing {repeat + 1}")
            nodes = deal(count, about["images"], seed + repeat).nodes
            pca, ours = _timed(nodes, graph=graph, engine=InProcess(threads=1))
            central, theirs = _timed(nodes, graph=graph, solver="central")
            schedule = fitted(nodes, graph=graph, solver=ProjectionConsensus(schedule="paper"))
            cosines = similarities(pca, central)
            best = similarities(fitted(nodes, graph=graph, solver="best-local"), central)
            paper = similarities(schedule, central).mean()
            found.append((cosines.mean(), cosines.min(), paper, best.mean(), pca.n_iterations_, ours / count, theirs))
        means = np.mean(found, axis=0)
        rows.append([count, *(float(value) for value in means)])
        watch.on_run(f"{count} nodes: mean similarity {means[0]:.4f}")
    columns = ("nodes", "mean", "worst node", "paper's rho", "problem (5)", "iterations", "s per node", "s central")
    printed = f"The paper: above {paper_numbers('kernel')['fig3']['least_at_80']} at 80 nodes."
    remarks = [
        REPEATED.format(REPEATS[size]),
        printed,
        "Problem (5): the direction in the span of a node's rows along which all rows vary most; no node alone could find it.",
        "Seconds are processor time in one process, of one node and of central kernel PCA.",
    ]
    xs = [row[0] for row in rows]
    shown = {"projection consensus": 1, "worst node": 2, "problem (5)": 4}
    curves = {name: (xs, [row[j] for row in rows]) for name, j in shown.items()}
    seconds = {"one node": (xs, [row[6] for row in rows]), "central": (xs, [row[7] for row in rows])}
    figure = _figure("Figure 3: similarity and time by number of nodes", "nodes", curves, seconds)
    return Reproduced("Figure 3", [Grid("Similarity with central kernel PCA", columns, rows)], remarks, figure, {"rows": rows})


def fig4(size: Size, seed: int, watch: Watch, repeats: int | None = None) -> Reproduced:
    """Similarity by the number of images on a node, beside kernel PCA of a node's own."""
    about, repeats = _problem("fig4", size), repeats or REPEATS[size]
    graph = f"ring:{about['neighbours']}"
    methods = {"projection consensus": "projection-consensus", "own rows only": "own"}
    rows = []
    for images in about["images"]:
        found = _mean_similarities(about["nodes"], images, graph, list(methods.values()), seed, repeats, watch)
        rows.append([images, *found])
        watch.on_run(f"{images} images a node: {found[0]:.4f}, own rows only {found[1]:.4f}")
    xs = [row[0] for row in rows]
    curves = {name: (xs, [row[j + 1] for row in rows]) for j, name in enumerate(methods)}
    figure = _figure("Figure 4: similarity by images on a node", "images on a node", curves)
    grid = Grid("Mean similarity with central kernel PCA", ("images", *methods), rows)
    remarks = [REPEATED.format(repeats), "The paper shows this as curves only, so there are no numbers of its to print."]
    return Reproduced("Figure 4", [grid], remarks, figure, {"rows": rows})


def fig5(size: Size, seed: int, watch: Watch, repeats: int | None = None) -> Reproduced:
    """Similarity after every iteration, beside kernel PCA of all neighbours' rows."""
    about, repeats = _problem("fig5", size), repeats or REPEATS[size]
    rows: list[list[Any]] = []
    curves = {}
    for neighbours in about["neighbours"]:
        graph = f"ring:{neighbours}"
        after: dict[Span, list[Array]] = {"own": [], "neighbourhood": []}
        seen, near = [], []
        for repeat in range(repeats):
            watch.on_round(f"{neighbours} neighbours, dealing {repeat + 1}")
            nodes = deal(about["nodes"], about["images"], seed + repeat).nodes
            central = fitted(nodes, graph=graph, solver="central")
            for span, curves_found in after.items():
                method = ProjectionConsensus(span=span, keep_iterates=True)
                pca = fitted(nodes, graph=graph, solver=method, tol=0.0, max_iterations=SHOWN)
                curves_found.append(pca.iterate_similarity(central).mean(axis=1))
            seen.append(similarities(fitted(nodes, graph=graph, solver="neighbourhood"), central).mean())
            near.append(similarities(fitted(nodes, graph=graph, solver=Neighbourhood(projected=True)), central).mean())
        curve, wide = ([float(value) for value in np.mean(found, axis=0)] for found in after.values())
        own_level, level = float(np.mean(near)), float(np.mean(seen))
        rows.append([neighbours, *(_shown(curve, own_level)), *(_shown(wide, level))])
        curves[f"{neighbours} neighbours"] = (list(range(1, SHOWN + 1)), wide)
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


def _shown(curve: list[float], level: float) -> tuple[float | int | None, ...]:
    """Similarity after some iterations, that of kernel PCA, and after how many iterations it is exceeded."""
    exceeded = next((t + 1 for t, value in enumerate(curve) if value > level), None)
    return (*(curve[t - 1] for t in FIGURE_5), level, exceeded)


def _mean_similarities(
    nodes: int, images: int, graph: str, methods: Sequence[str], seed: int, repeats: int, watch: Watch
) -> list[float]:
    """Mean similarity over nodes and dealings, for every method."""
    found = []
    for repeat in range(repeats):
        watch.on_round(f"{images} images, dealing {repeat + 1}")
        dealt = deal(nodes, images, seed + repeat).nodes
        central = fitted(dealt, graph=graph, solver="central")
        found.append([similarities(fitted(dealt, graph=graph, solver=method), central).mean() for method in methods])
    return [float(value) for value in np.mean(found, axis=0)]


def _timed(nodes: dict[str, Array], **options: Any) -> tuple[GraphKernelPCA, float]:
    begin = time.process_time()
    pca = fitted(nodes, **options)
    return pca, time.process_time() - begin


def _figure(title: str, xlabel: str, curves: dict[str, Any], seconds: dict[str, Any] | None = None) -> Any:
    from .drawing import Panel, panels

    drawn = [Panel("", xlabel, "mean similarity with central kernel PCA", curves, log_y=False)]
    if seconds is not None:
        drawn.append(Panel("", xlabel, "processor seconds", seconds))
    return panels(title, [drawn])


REPRODUCTIONS = (
    Reproduction("kernel-fig3", "projection consensus: similarity and time by number of nodes", fig3),
    Reproduction("kernel-fig4", "projection consensus: similarity by images on a node, beside own rows only", fig4),
    Reproduction("kernel-fig5", "projection consensus: similarity after every iteration, by number of neighbours", fig5),
)
