"""What the personalized PCA paper's tables share: problems, fits, and errors of fits."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from ...datasets import PersonalizedProblem, personalized_problem
from ...errors import NotIdentifiableWarning
from ...estimators.personalized import PersonalizedPCA
from ...numerics.linalg import Array
from .. import registry
from ..measuring import fit_quietly

SCALED_DOWN = "This is the small size, with fewer seeds or smaller problems; --size paper computes the paper's."

parameters = partial(registry.problem_of, "personalized")
"""Name and size -> a table's problem, the paper's or the small one."""

small_print = partial(registry.small_print, small=SCALED_DOWN)
"""Size and remarks -> the remarks, and that the numbers are of a smaller problem."""

METHODS = {"individual": "individual", "pooled": "pooled", "distpca": "distpca", "personalized": "varpro"}
"""The methods of Tables 2 and 5 -> our solvers."""


def fitted(sites: Mapping[str, Any], n_global: int, n_local: int, seed: int, **options: Any) -> PersonalizedPCA:
    """A fit without centring; not converging is reported by the caller where it matters."""
    pca = PersonalizedPCA(n_global, n_local, **{"center": False, "random_state": seed} | options)
    return fit_quietly(pca, sites, NotIdentifiableWarning)


def by_method(sites: Mapping[str, Any], p: Mapping[str, Any], seed: int, **of_ours: Any) -> dict[str, PersonalizedPCA]:
    """Every method's fit; ``of_ours`` are options of the personalized one alone."""
    fit = partial(fitted, sites, p["n_global"], p["n_local"], seed, misalignment=False)
    return {name: fit(solver=solver, **(of_ours if solver == "varpro" else {})) for name, solver in METHODS.items()}


def uneven(n: int, sites: int) -> list[int]:
    """Row counts: every other site has a tenth of n, at least 2."""
    return [n if i % 2 == 0 else max(2, n // 10) for i in range(sites)]


def drawn(p: Mapping[str, Any], seed: int, **more: Any) -> PersonalizedProblem:
    """Sites of the paper's model with a table's parameters."""
    shape = p["sites"], p["features"], p["n_global"], p["n_local"]
    return personalized_problem(*shape, variances=tuple(p["variances"]), seed=seed, **more)


def subspace_error(pca: PersonalizedPCA, problem: PersonalizedProblem) -> tuple[float, float]:
    """(30), and its global part alone."""
    shared = distance2(pca.components_.T, problem.U)
    own = float(np.mean([distance2(pca.local_components_[site].T, V) for site, V in problem.V.items()]))
    return shared + own, shared


def distance2(A: Array, B: Array) -> float:
    """||P_A - P_B||_F^2 of orthonormal bases, from sines."""
    missed = A - B @ (B.T @ A), B - A @ (A.T @ B)
    return float(np.sum(missed[0] ** 2) + np.sum(missed[1] ** 2))


def test_errors(pca: PersonalizedPCA, rows: Mapping[str, Any]) -> dict[str, float]:
    """(29) site by site."""
    return {site: pca.reconstruction_error(X, site=site) for site, X in rows.items() if X.shape[0]}


def errors_by_round(pca: PersonalizedPCA, sites: Mapping[str, Array], least: float) -> list[float]:
    """(29) on the rows of the fit after every round, from the objective; not below ``least``."""
    total = float(np.mean([np.sum(X**2) / len(X) for X in sites.values()]))
    return [max(least, total * (1 - (record.objective or 0.0))) for record in pca.history_]
