"""What a robust solver returns, and what every robust solver is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ...numerics.linalg import Array, top_eigenpairs
from ..solution import State
from .agreement import RobustSetup


@dataclass(frozen=True, eq=False)
class Soft:
    """L_i = V_i U^T with a soft threshold, as (7) of DCF-PCA has it: U (d x k), not orthonormal, and the weight rho of V_i."""

    U: Array
    rho: float


@dataclass(frozen=True, eq=False)
class RobustSolution:
    """A robust solver's answer, in the units of the centred and scaled rows.

    Attributes
    ----------
    basis : (d, k) array
        Orthonormal columns: the principal axes of the low-rank part, by decreasing variance.
    eigenvalues : (k,) array
        Of the scatter of the low-rank part about its mean, descending.
    shift : (d,) array
        The low-rank part's mean, from the agreed centre.
    threshold : float
        Residuals beyond it are errors.
    deviation : float
        Robust standard deviation of all residuals: the dense noise.
    share : float
        Share of the observed entries that are errors.
    converged : bool
    reason : str
        Why the solver stopped, with advice if it did not converge.
    soft : Soft, optional
        Given if an error is what is left of a residual beyond the threshold; else it is the whole residual.
    notes : dict
        What the solver wants to tell besides, as JSON can hold it.
    """

    basis: Array
    eigenvalues: Array
    shift: Array
    threshold: float
    deviation: float
    share: float
    converged: bool
    reason: str
    soft: Soft | None = None
    notes: dict[str, Any] = field(default_factory=dict)


class RobustAlgorithm(Protocol):
    """A frozen dataclass with a robust solver's parameters and the coroutine that runs it; ``name`` is what users write."""

    name: str
    default_tol: float

    async def fit(self, setup: RobustSetup, start: Array | None = None, state: State | None = None) -> RobustSolution:
        """Solve the problem the sites agreed on, from the basis ``start`` (d x k) if given."""
        ...


def score_scatter(products: Array, n: int, centred: bool) -> Array:
    """Scatter (k x k) of n scores V about their mean, or about zero, from [V 1]^T [V 1] (k+1 x k+1)."""
    sums = products[:-1, -1]
    return products[:-1, :-1] - np.outer(sums, sums) / n if centred else products[:-1, :-1]


def principal_axes(U: Array, products: Array, n: int, centred: bool) -> tuple[Array, Array, Array]:
    """Eigenvalues, principal axes (d x k) and mean (d,) of rows V U^T, from ``products`` = [V 1]^T [V 1] (k+1 x k+1).

    >>> values, axes, mean = principal_axes(np.eye(3)[:, :1], np.array([[10.0, 4.0], [4.0, 2.0]]), 2, centred=True)
    >>> values.tolist(), mean.tolist()
    ([2.0], [2.0, 0.0, 0.0])
    """
    values, rotation = top_eigenpairs(score_scatter(products, n, centred))
    mean: Array = U @ (products[:-1, -1] / n if centred else np.zeros(U.shape[1]))
    return np.maximum(values, 0.0), np.ascontiguousarray(U @ rotation), mean
