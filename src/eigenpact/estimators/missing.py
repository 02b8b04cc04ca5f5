"""What ``FederatedPCA(missing=...)`` does with missing entries (NaN), beside what all fits do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import scipy.sparse

from ..algorithms.missing.em import EM, LikelySolution
from ..algorithms.missing.observed import agree_on_observed, observed
from ..algorithms.setup import Problem, Setup
from ..algorithms.solution import Solution, believed
from ..data.checks import check_finite
from ..errors import InputError
from ..numerics.holes import loadings
from ..numerics.linalg import Array
from ..numerics.ppca import row_likelihoods
from ..numerics.preparation import Step
from ..numerics.sources import RowSource
from ..runtime import Program
from .choices import find_solver

Missing = Literal["refuse", "mean", "em"]


def feature_names(estimator: Any) -> tuple[str, ...]:
    """Names of the features that an estimator is fitted on; none if there are none."""
    return tuple(str(name) for name in getattr(estimator, "feature_names_in_", ()))


def check_likely(center: Any, prepare: Any, solver: Any) -> None:
    """Refuse what does not go with missing="em"."""
    if center == "site":
        raise InputError(
            "center='site' does not go with missing='em', whose model has one mean; use center='pooled', or missing='mean'"
        )
    if len(prepare):
        raise InputError(
            "prepare does not go with missing='em': it would see rows with holes; use missing='mean', which fills first"
        )
    likely_solver(solver)


def likely_solver(solver: Any) -> Any:
    """The solver of missing="em" that the ``solver`` argument stands for."""
    if isinstance(solver, str) and solver == "auto":
        return EM()
    return find_solver("FederatedPCA(missing='em')", solver)


def likely_program(algorithm: Any, problem: Problem, names: tuple[str, ...]) -> Program:
    """The program of missing="em"; the set-up that it gives has the model's mean and total variance."""

    async def program(start: Array | None, state: Mapping[str, Array] | None) -> tuple[Setup, Solution]:
        setup = await agree_on_observed(problem, names)
        solution: LikelySolution = await algorithm.fit(setup, start, state)
        rest = int(np.sum(setup.seen > 0)) - len(solution.eigenvalues)
        total = float(solution.eigenvalues.sum()) + setup.n_samples * rest * solution.noise
        W = loadings(solution.basis, solution.eigenvalues / setup.n_samples, solution.noise)
        model = {"W": W, "mean": solution.mean, "scale": setup.scale, "noise": np.array(solution.noise)}
        modelled = replace(setup, mean=solution.mean, trace=total, preparation=(Step("expect", model),))
        return modelled, believed(modelled, solution, algorithm.default_angle)

    return program


def noise_of(setup: Setup, solution: Solution, left: float) -> float:
    """The noise's variance: that of the model where there is one, else what was ``left`` by the components."""
    if not isinstance(solution, LikelySolution):
        return left
    return solution.noise * setup.n_samples / (setup.n_samples - 1)


def check_whole_if_sparse(rows: Mapping[str, Any]) -> None:
    """Refuse NaN in sparse rows (site -> rows): what they do not store is zero, and NaN would stay."""
    for name, X in rows.items():
        if scipy.sparse.issparse(X) or (isinstance(X, RowSource) and X.sparse):
            check_finite(name, X)


def likelihoods(pca: Any, X: Any) -> Array:
    """Log-likelihoods (n,) of the entries that are there of rows (n, d), under a fitted model."""
    model = next(step.arrays for step in pca.preparation_ if step.kind == "expect")
    W, mean, scale, noise = model["W"], model["mean"], model["scale"], float(model["noise"])
    blocks = observed(X, np.array(pca.dropped_features_, dtype=int), W.shape[1])
    found = [row_likelihoods((rows - mean) / scale, seen, W, noise) - seen @ np.log(scale) for rows, seen in blocks]
    return np.concatenate([np.zeros(0), *found])
