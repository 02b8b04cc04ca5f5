"""row-gram: the leading directions of the only site, from the inner products of its rows, where it is the coordinator's own.

Problem
    Find the leading k eigenvectors of C = Y^T Y (d x d), all rows Y (n x d) being at one site in the coordinator's process, with
    fewer rows than features.

Rounds
    1. at the site, factorize Y Y^T (n x n); V = the k + 1 leading eigenvectors of Y^T Y that follow from it
    2. the product C V; Rayleigh-Ritz on span(V)
    3. stop if residuals over the gap are as small as asked for; else grow the space from V as krylov does (``expansion.py``)

When it is right
    The eigenvalues of Y Y^T are known up to rounding, or a Cholesky factor proves that none was missed, up to n eps of the trace
    (``numerics/few_of_inner_products.py``).  A sum of d products is off by at most d / 2 eps of the sum of their sizes, in
    whatever order it is made, and Y Y^T by that share of its trace.  Rows that hold one large number and then many small ones
    showed 56 eps.  So no direction is missed whose variance exceeds that of component k + 1 by more.  Line 2 is a product with
    the rows themselves, so the residuals are those of C.  With mu the sum of Ritz value k + 1, its residual and (``ROUNDING`` +
    n + d / 2) eps tr C, the sine of the angle is at most the root of the sum of (||r_j|| / (theta_j - mu))^2 over j <= k.  Where
    the gap is no larger than rounding, or the angle larger than asked for, line 3 goes on, and its certificate decides.

Leaves the site
    Nothing: ``At`` is used for a site in the coordinator's own process only, and it is the only one.

Cost
    n^2 d flops, no copy of rows in memory; those from a file, or with weights, are in memory meanwhile, twice; one round.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..numerics.certificate import EPS, TIE
from ..numerics.few_rows import leading_of_few_rows
from ..numerics.krylov_space import KrylovSpace
from ..numerics.linalg import Array
from ..runtime import At, Progress, Site, Sum, local
from .expansion import begin, expand
from .goal import EXACT_ANGLE, Goal
from .products import scatter_action
from .setup import CENTRE, Setup, rows_of
from .solution import Solution, State

ROUNDING = TIE
"""How many times eps tr C rounding may change the eigenvalues of Y Y^T by, beside that of its sums."""

BLOCKS = 30
"""Blocks that the space may have in line 3, as krylov's."""


@local(takes={"k": ""}, sends={"V": "d k"}, reads=CENTRE, bound="unit", means={"k": "count"})
def leading_of_rows(site: Site, k: Any) -> Array:
    """The leading k eigenvectors of Y_i^T Y_i, from the inner products of the rows: at the coordinator's own site."""
    return leading_of_few_rows(rows_of(site), int(k))


async def fit_few_rows(setup: Setup, site: str, state: State | None = None) -> Solution:
    """Factorize at the site, confirm by one product, and go on only if that is not enough."""
    goal = Goal.of(setup, None, EXACT_ANGLE)
    if state is None:
        V: Array = await At(site, leading_of_rows, np.int64(setup.whole_components() + 1))  # line 1
        solution = await _confirmed(setup, V, goal)  # line 2
        if solution is not None:
            return solution
        state = await begin(setup, V, 1)
    return await expand(setup, None, state, goal=goal, max_blocks=BLOCKS)  # line 3


async def _confirmed(setup: Setup, V: Array, goal: Goal) -> Solution | None:
    """Rayleigh-Ritz on span(V) (d x (k + 1)): the answer, if residuals and gap prove that it meets the goal."""
    k = V.shape[1] - 1
    ritz = KrylovSpace(V, await Sum(scatter_action, V)).ritz(lambda _: k + 1)
    lengths = np.maximum(np.linalg.norm(ritz.residual, axis=0), np.maximum(EPS * np.abs(ritz.values), setup.noise))
    rounding = (ROUNDING + setup.n_samples + setup.n_features / 2) * EPS * setup.trace
    behind = float(ritz.values[k] + lengths[k]) + rounding
    gaps = ritz.values[:k] - behind
    angle = min(1.0, float(np.linalg.norm(lengths[:k] / gaps))) if gaps[-1] > 0 else None
    Z, values = np.ascontiguousarray(ritz.Z[:, :k]), np.maximum(ritz.values[:k], 0.0)
    residual = float(np.linalg.norm(ritz.residual[:, :k])) / setup.trace if setup.trace > 0 else 0.0
    await Progress(basis=Z, objective=setup.share(values), kkt=residual, details={} if angle is None else {"angle": angle})
    if angle is None or not goal.met(residual, angle):
        return None
    reason = f"the inner products of all rows were factorized; {goal.reached(residual, angle, 'clear', k)}"
    return Solution(Z, values, residual, angle, True, reason, {"rounds": 1}, behind=behind)
