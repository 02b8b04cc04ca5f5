"""Figure 1: the errors of estimators that take one round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...algorithms.consensus.gram import Gram
from ...algorithms.solution import Algorithm
from ...algorithms.statistical.one_shot import OneShot
from ...engines import InProcess
from ...estimators import FederatedPCA
from ...numerics.linalg import Array
from ...privacy import Eavesdropper
from .. import drawing
from ..measuring import fit_quietly
from ..registry import CURVE_ONLY, Cell, Grid, Reproduced, Size, Watch, problem_of, small_print
from .population import Distribution, Population, population

SINGLE = "single site"
MERGES: dict[str, OneShot] = {
    "average": OneShot(merge="average", confirm=False),
    "sign fixing, site 1": OneShot(merge="sign", reference=0, confirm=False),
    "sign fixing, medoid": OneShot(merge="sign", confirm=False),
    "projection": OneShot(merge="projection", confirm=False),
}
ESTIMATORS = ("centralized", *MERGES, SINGLE)
"""All of Figure 1; the medoid is ours."""

FEW = "This is the small size, {} repeats: standard errors are large.  --size paper takes 400, as the paper does."
UNIFORM = (
    "Rows are sqrt(3/2) X^1/2 y with y uniform on [-1, 1], as the paper has it.  Their covariance is X / 2, not X, since y has "
    "variance 1/3; directions, and so errors, do not depend on that factor."
)


def _direction(sites: Mapping[str, Array], solver: Algorithm, seed: int, **settings: Any) -> Array:
    """What a solver finds on these rows (d x 1)."""
    pca = fit_quietly(FederatedPCA(1, solver=solver, center=False, random_state=seed, **settings), sites)
    return np.asarray(pca.components_.T)


def errors(drawn: Population, sites: Mapping[str, Array], seed: int) -> dict[str, float]:
    """Estimator -> 1 - (w^T v_1)^2, on rows (n_i x d) of sites; for the single site the mean over all of them."""
    found = {"centralized": _direction(sites, Gram(), seed)}
    spy = Eavesdropper(InProcess())
    first, *others = MERGES
    found[first] = _direction(sites, MERGES[first], seed, engine=spy)
    directions = {name: spy.replies(name, "own_directions")[0].arrays[0] for name in sites}
    shown = {name: np.ascontiguousarray(V.T) for name, V in directions.items()}
    found |= {name: _direction(shown, MERGES[name], seed) for name in others}
    single = float(np.mean([drawn.error(V / np.linalg.norm(V)) for V in directions.values()]))
    return {name: drawn.error(w) for name, w in found.items()} | {SINGLE: single}


@dataclass(frozen=True)
class Average:
    """Mean over repeats, and its standard error."""

    mean: float
    error: float


def averages(n: int, p: Mapping[str, Any], distribution: Distribution, seed: int, watch: Watch) -> dict[str, Average]:
    """Estimator -> error for n rows a site.  ``p`` has features, sites, second, decay and repeats; every repeat draws anew."""
    drawn: dict[str, list[float]] = {name: [] for name in ESTIMATORS}
    for repeat in range(p["repeats"]):
        rng = np.random.default_rng([seed, n, repeat])
        source = population(p["features"], second=p["second"], decay=p["decay"], rng=rng, distribution=distribution)
        signs = int(rng.integers(2**32))  # the seed by which sites choose their signs
        for name, error in errors(source, source.condensed_sites(p["sites"], n, rng), signs).items():
            drawn[name].append(error)
        watch.on_round(f"{distribution}, n = {n}: repeat {repeat + 1} of {p['repeats']}")
    found = {name: Average(float(np.mean(v)), float(np.std(v, ddof=1) / np.sqrt(len(v)))) for name, v in drawn.items()}
    watch.on_run(f"{distribution}, n = {n}: " + ", ".join(f"{name} {a.mean:.3g}" for name, a in found.items()))
    return found


def fig1(size: Size, seed: int, watch: Watch, distribution: Distribution = "normal") -> Reproduced:
    """Figure 1: error against the rows of a site, one curve an estimator."""
    p = problem_of("oneshot", "fig1", size)
    found = {n: averages(n, p, distribution, seed, watch) for n in p["rows"]}
    rows: list[list[Cell]] = [
        [n, name, row[name].mean, row[name].error, round(row[name].mean / row["centralized"].mean, 2)]
        for n, row in found.items()
        for name in ESTIMATORS
    ]
    shape = f"{p['features']} features, {p['sites']} sites, {p['repeats']} repeats"
    title = f"One-shot paper, Figure 1, {distribution} distribution: {shape}"
    grid = Grid(title, ["n", "estimator", "error", "standard\nerror", "times the\ncentralized"], rows)
    remarks = small_print(
        size,
        CURVE_ONLY,
        "The average has signs at random, as in the paper.  Site 1 is the paper's reference for sign fixing; the medoid is "
        "the site that agrees best with all, an addition of ours.",
        *([UNIFORM] if distribution == "uniform" else []),
        small=FEW.format(p["repeats"]),
    )
    curves = {name: (list(found), [row[name].mean for row in found.values()]) for name in ESTIMATORS}
    panel = drawing.Panel("", "rows of a site (n)", "1 - (w'v1)^2, mean", curves, log_x=True)
    listed = {str(n): {name: asdict(average) for name, average in row.items()} for n, row in found.items()}
    numbers = {"problem": {**p, "distribution": distribution}, "errors": listed}
    return Reproduced(title, [grid], remarks, drawing.panels(title.replace(": ", "\n", 1), [[panel]]), numbers)
