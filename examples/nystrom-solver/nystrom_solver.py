"""Nystrom's estimate: the components of a sketch of the scatter, in one round.

Problem
    About the leading k eigenvectors of C = sum_i Y_i^T Y_i (d x d), site i holding the centred rows Y_i (n_i x d).

Rounds
    1. Omega <- a random block (d x b), b = k + ``more``; the sites' products add up to G = C Omega
    2. C is about G (Omega^T G)^-1 G^T = F F^T, F = G L^-T with L L^T = Omega^T G; the answer is the left singular vectors of F

Leaves the site
    Y_i^T Y_i Omega (d x b) once, to be summed.

References
    N. Halko, P. G. Martinsson, J. A. Tropp, "Finding structure with randomness", SIAM Review 53 (2011), Section 5.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from eigenpact.algorithms.method import method
from eigenpact.algorithms.setup import CENTRE, Setup, rows_of
from eigenpact.algorithms.solution import Solution
from eigenpact.numerics.linalg import random_orthonormal
from eigenpact.runtime import Progress, Site, Sum, local


@local(name="nystrom:sketch", takes={"Omega": "d b"}, sends={"G": "d b"}, reads=CENTRE, bound="trace")
def sketch(site: Site, Omega: Any) -> Any:
    """Y_i^T (Y_i Omega): summed over sites it is C Omega."""
    return rows_of(site).scatter_action(Omega)


@method("statistical", {Sum: (sketch,)}, role="estimate")
@dataclass(frozen=True, eq=False)
class Nystrom:
    """One round: the components of a random sketch of the scatter.

    Parameters
    ----------
    more : int
        Columns of the sketch beyond the components asked for.
    """

    more: int = 10

    name = "nystrom"
    default_angle = float("inf")

    async def fit(self, setup: Setup, start: Any = None, state: Any = None) -> Solution:  # noqa: ARG002
        """Ask once, decompose."""
        k, d = setup.whole_components(), setup.n_features
        Omega = random_orthonormal(d, min(d, k + self.more), setup.seed)
        G = await Sum(sketch, Omega)  # line 1
        G = G + (shift := 1e-12 * setup.trace) * Omega  # keeps the small matrix positive definite
        L = np.linalg.cholesky((Omega.T @ G + G.T @ Omega) / 2)
        V, s, _ = scipy.linalg.svd(scipy.linalg.solve_triangular(L, G.T, lower=True).T, full_matrices=False)  # line 2
        values = np.maximum(s[:k] ** 2 - shift, 0.0)
        await Progress(basis=V[:, :k], objective=setup.share(values))
        return Solution(V[:, :k], values, None, None, converged=True, reason="one sketch: how good it is, is unknown")
