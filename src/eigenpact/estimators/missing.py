"""What ``FederatedPCA(missing=...)`` does with missing entries (NaN), beside what all fits do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import scipy.sparse

from ..algorithms.missing.em import EM, LikelySolution
from ..algorithms.missing.observed import agree_on_observed
from ..algorithms.setup import Problem, Setup
from ..algorithms.solution import Solution, believed
from ..errors import InputError
from ..numerics.holes import filled, loadings
from ..numerics.linalg import Array
from ..runtime import Program
from .choices import find_solver

Missing = Literal["refuse", "mean", "em"]


def feature_names(estimator: Any) -> tuple[str, ...]:
    """Names of the features that an estimator is fitted on; none if there are none."""
    return tuple(str(name) for name in getattr(estimator, "feature_names_in_", ()))


def check_likely(center: Any, prepare: Any, solver: Any) -> None:
    """Refuse what does not go with missing="em"."""
    if center == "site":
        raise InputError("center='site' does not go with missing='em', whose model has one mean; use 'pooled', or missing='mean'")
    if len(prepare):
        raise InputError("prepare does not go with missing='em': it would see rows with holes; use missing='mean', which fills first")
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
        modelled = replace(setup, mean=solution.mean, trace=total)
        return modelled, believed(modelled, solution, algorithm.default_angle)

    return program


def noise_of(setup: Setup, solution: Solution, left: float) -> float:
    """The noise's variance: that of the model where there is one, else what was ``left`` by the components."""
    if not isinstance(solution, LikelySolution):
        return left
    return solution.noise * setup.n_samples / (setup.n_samples - 1)


def expected_rows(pca: Any, X: Any) -> Any:
    """Rows (n, d) with what the fitted model expects where entries are missing, given the others of the row."""
    if scipy.sparse.issparse(X) or not np.isnan(X).any():
        return X
    mean, scale = pca.mean_.astype(np.float64), pca.scale_.astype(np.float64)
    noise = float(pca.noise_variance_)
    W = loadings(pca.components_.T.astype(np.float64), pca.explained_variance_.astype(np.float64), noise)
    whole = filled((X - mean) / scale, W, noise) * scale + mean
    return np.where(np.isnan(X), whole, X).astype(X.dtype)
