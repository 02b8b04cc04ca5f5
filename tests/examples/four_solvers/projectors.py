"""A solver of the personalized family in one file: global components by the sum of the sites' projectors."""

from dataclasses import dataclass

import numpy as np

from eigenpact.algorithms.method import method
from eigenpact.algorithms.personalized.baselines import own_part
from eigenpact.algorithms.setup import CENTRE, rows_of
from eigenpact.algorithms.solution import Solution
from eigenpact.numerics.linalg import top_eigenpairs
from eigenpact.runtime import Sum, local


@local(name="four:projector", takes={"k": ""}, sends={"P": "d d"}, reads=CENTRE, bound="none")
def projector(site, k):
    """V_i V_i^T of the site's own leading directions."""
    _, V = rows_of(site).top(int(k))
    return V @ V.T


@method("personalized", {Sum: (projector, own_part)}, role="baseline")
@dataclass(frozen=True, eq=False)
class Projectors:
    """The sum of the sites' projectors, then each site's own part."""

    name = "projectors"
    default_tol = 0.0

    async def fit(self, setup, start=None, state=None):  # noqa: ARG002
        k = setup.whole_components()
        values, U = top_eigenpairs(await Sum(projector, np.int64(k)), k)
        captured, _ = await Sum(own_part, U, np.int64(0))
        notes = {"captured": float(captured) / (setup.total * setup.n_sites), "held_out": 0.0}
        return Solution(U, values, None, None, converged=True, reason="two rounds", notes=notes)
