"""A solver of the consensus family in one file: three rounds of subspace iteration, and no promise."""

from dataclasses import dataclass

import numpy as np

from eigenpact.algorithms.method import method
from eigenpact.algorithms.setup import CENTRE, rows_of
from eigenpact.algorithms.solution import Solution
from eigenpact.numerics.linalg import orthonormalize, random_orthonormal, top_eigenpairs
from eigenpact.runtime import Sum, local


@local(name="four:thrice_product", takes={"Z": "d k"}, sends={"G": "d k"}, reads=CENTRE, bound="trace")
def thrice_product(site, Z):
    """Y_i^T (Y_i Z)."""
    return rows_of(site).scatter_action(Z)


@method("consensus", {Sum: (thrice_product,)}, role="estimate")
@dataclass(frozen=True, eq=False)
class Thrice:
    """Three rounds of subspace iteration."""

    name = "thrice"
    default_angle = float("inf")

    async def fit(self, setup, start=None, state=None):  # noqa: ARG002
        Z = random_orthonormal(setup.n_features, setup.whole_components(), setup.seed)
        for _ in range(3):
            G = await Sum(thrice_product, Z)
            values, turn = top_eigenpairs(Z.T @ G)
            Z = orthonormalize(G @ turn)
        return Solution(Z, np.maximum(values, 0.0), None, None, converged=True, reason="three rounds")
