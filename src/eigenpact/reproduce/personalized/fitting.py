"""What the personalized PCA paper's tables share: problems, fits, and errors of fits."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import numpy as np

from ...algorithms.personalized.local_part import Covariance
from ...algorithms.personalized.perpca import PerPCA
from ...datasets import PersonalizedProblem, personalized_problem
from ...errors import NotIdentifiableWarning
from ...estimators.personalized import PersonalizedPCA
from ...numerics.linalg import Array
from ...numerics.rows import Rows
from .. import registry
from ..measuring import fit_quietly

SCALED_DOWN = "This is the small size, with fewer seeds or smaller problems; --size paper computes the paper's."

parameters = partial(registry.problem_of, "personalized")
"""Name and size -> a table's problem, the paper's or the small one."""

small_print = partial(registry.small_print, small=SCALED_DOWN)
"""Size and remarks -> the remarks, and that the numbers are of a smaller problem."""

CHOICES: dict[str, tuple[Literal[1, 2], float]] = {"perpca": (1, 1.0), "perpca, choice 2": (2, 100.0)}
"""PerPCA's choices, and their steps in units of 1 / max_i lambda_1; choice 2 allows longer ones, as the paper says."""

CHOICES_TOLD = "perpca: the paper's start; choice 1 with a step of 1 / max_i lambda_1, choice 2 with 100 times that"

METHODS = ("individual", "pooled", "distpca", *CHOICES, "varpro")
"""The methods of Tables 2 and 5: the paper's three baselines, both choices of its own, and ours."""


def fitted(sites: Mapping[str, Any], n_global: int, n_local: int, seed: int, **options: Any) -> PersonalizedPCA:
    """A fit without centring; not converging is reported by the caller where it matters."""
    pca = PersonalizedPCA(n_global, n_local, **{"center": False, "random_state": seed} | options)
    return fit_quietly(pca, sites, NotIdentifiableWarning)


def published(sites: Mapping[str, Any], choice: Literal[1, 2] = 1, times: float = 1.0) -> PerPCA:
    """Algorithm 2 from the paper's start, with a step of so many times 1 / max_i lambda_1(S_i)."""
    if times == 1.0:
        return PerPCA(choice=choice, start="covariance")
    largest = max(Covariance(Rows(X)).largest() for X in sites.values())
    return PerPCA(choice=choice, step=times / largest, start="covariance")


def by_method(sites: Mapping[str, Any], p: Mapping[str, Any], seed: int, **of_varpro: Any) -> dict[str, PersonalizedPCA]:
    """Every method's fit; ``of_varpro`` are options of that one alone."""
    fit = partial(fitted, sites, p["n_global"], p["n_local"], seed, misalignment=False)
    return {name: fit(**run_of(name, sites, p), **(of_varpro if name == "varpro" else {})) for name in METHODS}


def run_of(name: str, sites: Mapping[str, Any], p: Mapping[str, Any]) -> dict[str, Any]:
    """How a method of ours is run under the name it is shown with; PerPCA ends after p's rounds."""
    if name in CHOICES:
        return {"solver": published(sites, *CHOICES[name]), "max_rounds": p["rounds"]}
    return {"solver": name}


def of_the_paper(told: Mapping[str, float], name: str) -> float | None:
    """The paper's number of a method; both choices have PerPCA's."""
    return told.get("perpca" if name in CHOICES else name)


def uneven(n: int, sites: int, share: float = 0.1) -> list[int]:
    """Row counts: every other site has that share of n, at least 2."""
    return [n if i % 2 == 0 else max(2, round(share * n)) for i in range(sites)]


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
