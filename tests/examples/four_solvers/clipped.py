"""A solver of the robust family in one file: the components of clipped rows."""

from dataclasses import dataclass

import numpy as np

from eigenpact.algorithms.method import method
from eigenpact.algorithms.robust.entries import MEDIANS, entries_of
from eigenpact.algorithms.robust.solution import RobustSolution
from eigenpact.numerics.linalg import top_eigenpairs
from eigenpact.runtime import Sum, local


@local(
    name="four:clipped_scatter", takes={"most": ""}, sends={"C": "d d", "beyond": ""}, reads=MEDIANS, bound={"beyond": "count"}
)
def clipped_scatter(site, most):
    """The scatter of the rows with entries cut off at ``most``, and how many were."""
    C, beyond = 0.0, 0
    for _, M, _ in entries_of(site):
        near = np.clip(M, -most, most)
        C, beyond = C + near.T @ near, beyond + int(np.sum(near != M))
    return C, np.int64(beyond)


@method("robust", {Sum: (clipped_scatter,)}, role="estimate")
@dataclass(frozen=True, eq=False)
class Clipped:
    """PCA of clipped rows, in one round."""

    name = "clipped"
    default_tol = 0.0

    async def fit(self, setup, start=None, state=None):  # noqa: ARG002
        most = 4 * setup.size
        C, beyond = await Sum(clipped_scatter, np.float64(most))
        values, basis = top_eigenpairs(C, setup.n_components)
        return RobustSolution(
            basis=basis,
            eigenvalues=np.maximum(values, 0.0),
            shift=np.zeros(setup.n_features),
            threshold=most,
            deviation=setup.size,
            share=float(beyond) / float(setup.observed.sum()),
            converged=True,
            reason="one round",
        )
