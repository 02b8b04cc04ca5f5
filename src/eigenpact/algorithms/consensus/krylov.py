"""Block Krylov iteration with a secant model: every product the sites ever made is used, so few rounds suffice.

Problem
    Find the leading k eigenvectors of C = sum_i Y_i^T Y_i (d x d), site i holding the centred rows Y_i (n_i x d).

Rounds
    The coordinator keeps an orthonormal basis Q (d x m) and the exact products C Q (``expansion.py``, lines numbered there).
    1. B <- a random orthonormal block Omega (d x b, b = k + max(4, k // 5)); before it, if there is one, a start:
       one-shot, or the proxy's leading eigenvectors
    2. for each round:
    3.     the coordinator sends B; every site returns Y_i^T (Y_i B); the sum is C B
    4.     Q <- [Q, B], C Q <- [C Q, C B]; Rayleigh-Ritz on span(Q): T = Q^T C Q, leading eigenvectors Z = Q Y
    5.     stop if ||C Z - Z Theta||_F <= tol tr C, or, without a tol, if the estimated angle is small; in either case only once
           Omega proves that nothing was missed (``certificate.py``)
    6.     thick restart: if another block would exceed max_blocks, keep the leading half of the Ritz vectors and Omega
    7.     B <- the part orthogonal to Q of the leading k eigenvectors of the secant model of C, and k directions for the proof
    The secant model agrees with C wherever C is known, and with a scaled proxy M elsewhere:
        C_model = C Q Q^T + Q (C Q)^T - Q T Q^T + (tr C / tr M) P M P,      P = I - Q Q^T.
    Without a proxy M = 0, and line 7 gives (I - Q Q^T) C Q: plain block Krylov.  M may be the coordinator's own site's scatter,
    that of public rows, or what a one-shot start brought.  The known part is exact, so a bad proxy costs only rounds: once two
    of its blocks failed to halve the residual it is given up, and line 7 takes the residuals of the Ritz vectors instead.

Leaves the site
    Y_i^T Y_i B (d x b, with a proxy or a one-shot start d x (k + max(k, 4)), once d x (k + b), and at most once, where one
    variance dwarfs the others, for a basis of the whole space) each round, to be summed.  Whoever sees the single replies of
    enough rounds can solve for Y_i^T Y_i.
    With ``start="one-shot"`` also the leading directions (see ``algorithms/start.py``).
    ``At`` is used for a proxy at the coordinator's own site only: the model is computed where the rows are, nothing travels.

Cost
    8 d b bytes each way and 4 n_i d b flops per site and round, with a proxy nearly twice that; the coordinator keeps
    2 max_blocks d b numbers, with a one-shot start half as many more.

Guarantee
    Called converged, the answer is the leading subspace with a probability of at least 1 - 1e-6 over the seed, whatever the data,
    the start and the proxy are: theorem and proof in ``certificate.py``.

Differences from the paper
    The secant model and the proof are our own; plain block Krylov is the classical method.  After a restart the last residual is
    confirmed by a fresh product, since rotated products accumulate rounding errors.

References
    G. H. Golub, R. Underwood, "The block Lanczos method", 1977; K. Wu, H. Simon, "Thick-restart Lanczos", SIMAX 22 (2000).

>>> import numpy as np, eigenpact as ep
>>> X = np.random.default_rng(0).normal(size=(200, 30)) * np.linspace(3, 1, 30)
>>> pca = ep.FederatedPCA(n_components=2, solver=ep.solvers.Krylov(proxy="A"), random_state=0).fit({"A": X[:80], "B": X[80:]})
>>> pca.converged_, pca.n_rounds_ < 20
(True, True)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...numerics.krylov_space import KrylovSpace, Ritz, leading_eigenpairs
from ...numerics.linalg import Array, orthonormalize, random_orthonormal
from ...numerics.rows import Rows
from ...runtime import At, Progress, Site, local
from ..expansion import BLOCKS, begin, check_expansion, expand
from ..goal import EXACT_ANGLE, Goal
from ..method import method
from ..products import PRODUCTS
from ..rough import tolerance_allows
from ..setup import CENTRE, Setup, rows_of
from ..solution import Solution, State
from ..stand import width_of
from ..start import STIR, Start, merged_directions

FIRST_ACCURACY, MODEL_ACCURACY = 1e-4, 0.05
"""How well the model's eigenvectors are computed: the first ones absolutely, the others relative to the current residual."""

USEFUL, MOST_DOUBTS = 0.5, 2
"""A block of the proxy should cut the residual to this share; once so many did not, the residuals of the Ritz vectors take its
place."""


@local(
    takes={"Q": "d m", "CQ": "d m", "trace": "", "k": "", "seed": "", "accuracy": ""},
    sends={"V": "d k"},
    reads=CENTRE,
    bound="unit",
    means={"Q": "orthonormal", "trace": "trace", "k": "count", "seed": "seed", "accuracy": "threshold"},
)
def model_directions(site: Site, Q: Array, CQ: Array, trace: Any, k: Any, seed: Any, accuracy: Any) -> Array:
    """Leading eigenvectors of the secant model whose proxy is this site: computed at the coordinator's own site."""
    return secant_model(rows_of(site), KrylovSpace(Q, CQ), float(trace), int(k), int(seed), float(accuracy))


def secant_model(proxy: Rows, space: KrylovSpace, trace: float, k: int, seed: int, accuracy: float) -> Array:
    """Leading k eigenvectors (d x k) of the model that is exact on span(Q) and the scaled proxy elsewhere; matrix-free."""
    Q, CQ, T = space.Q, space.CQ, space.projected()
    proxy_trace = float(proxy.column_squares().sum())
    scale = trace / proxy_trace if proxy_trace > 0 else 0.0

    def action(V: Array) -> Array:
        inside = Q.T @ V
        outside = V - Q @ inside
        unseen = proxy.scatter_action(outside) * scale
        return CQ @ inside + Q @ (CQ.T @ V - T @ inside) + unseen - Q @ (Q.T @ unseen)

    start = random_orthonormal(proxy.d, k, seed)
    if space.size:
        start = orthonormalize(space.ritz(lambda _: k).Z + STIR * start)
    return leading_eigenpairs(action, start, k, trace, accuracy)[1]


@method(
    "consensus",
    {At: (model_directions,)},
    parts=(PRODUCTS,),
    remark="`model_directions` runs only with `proxy=` a site's name, and only at that site.",
)
class Krylov:
    """Block Krylov with thick restart, and a secant model when there is a proxy.

    Parameters
    ----------
    start : "random" or "one-shot"
        The one-shot start costs one round and reveals every site's leading directions to the coordinator, who also uses them as
        the proxy if no other is given.
    proxy : str, int, array or None
        A model of the part of C not seen yet: the name or index of the coordinator's own site, or public rows (n x d).
    angle_tol : float, optional
        Stop as soon as the estimated sine of the largest angle to the exact answer is at most this; without ``tol`` the default
        is 1e-8, or what rounding allows.
    max_blocks : int, optional
        At most this many blocks of k + max(4, k // 5) columns are kept, at least 3; by default 30, or up to 60 where these take
        no more than 1 GiB with their products.
    """

    start: Start = "random"
    proxy: str | int | Array | None = None
    angle_tol: float | None = None
    max_blocks: int | None = None

    name = "krylov"
    default_angle = EXACT_ANGLE

    def __post_init__(self) -> None:
        check_expansion(self.start, self.angle_tol, self.max_blocks)

    async def fit(self, setup: Setup, start: Array | None = None, state: State | None = None) -> Solution:
        """Expand, project, confirm, restart until the answer is good enough and nothing can have been missed.

        In single precision first, where the tolerance allows it; in double if that leaves a doubt.
        """
        rounds = 0
        if tolerance_allows(setup) and (state is None or state["rough"]):
            found = await self._expanded(replace(setup, rough=True), start, state)
            rounds = int(found.notes["rounds"])
            if (found.converged and found.cut == "clear") or rounds >= setup.max_rounds:
                return found
            start, state = found.basis, None
        return await self._expanded(setup, start, state, rounds)

    async def _expanded(self, setup: Setup, start: Array | None, state: State | None, rounds: int = 0) -> Solution:
        """The answer by products of the precision that the set-up says; ``rounds`` were used before."""
        width = width_of(setup)
        merged = np.zeros((setup.n_features, 0)) if state is None else state["W"]
        if state is None and start is None and self.start == "one-shot":
            merged, rounds = await merged_directions(setup, width, (self.max_blocks or BLOCKS) * width), 1
            start = orthonormalize(merged[:, :width])
            await Progress(basis=start)
        proxy = self._proxy(setup, merged)
        if state is None:
            if start is None and proxy is not None:
                start = await _model(setup, KrylovSpace.empty(setup.n_features), width, FIRST_ACCURACY, proxy)
            state = await begin(setup, start, rounds)  # lines 1, 3

        facts = {"W": merged, "doubts": state.get("doubts", np.array([0.0, np.inf])), "rough": np.array(float(setup.rough))}

        async def model(space: KrylovSpace, ritz: Ritz, residual: float) -> Array:  # line 7
            doubts, before = facts["doubts"].tolist()
            doubts += residual > USEFUL * before
            facts["doubts"] = np.array([doubts, residual])
            if proxy is None or doubts >= MOST_DOUBTS:
                return ritz.residual
            return await _model(setup, space, width, MODEL_ACCURACY * residual, proxy)

        directions = None if proxy is None else model
        goal = Goal.of(setup, self.angle_tol, self.default_angle)
        return await expand(setup, directions, state, goal=goal, max_blocks=self.max_blocks, facts=facts)  # lines 2 to 7

    def _proxy(self, setup: Setup, merged: Array) -> str | Rows | None:
        """What models the unseen part of C: the own site's name, public rows, or what the one-shot start brought."""
        if isinstance(self.proxy, str):
            return self.proxy
        if self.proxy is not None:
            return setup.public_rows(self.proxy)
        return Rows(np.ascontiguousarray(merged.T)) if merged.shape[1] else None


async def _model(setup: Setup, space: KrylovSpace, k: int, accuracy: float, proxy: str | Rows) -> Array:
    """Leading eigenvectors (d x k) of the secant model, at the coordinator's own site or from rows the coordinator has."""
    if isinstance(proxy, Rows):
        return secant_model(proxy, space, setup.trace, k, setup.seed, accuracy)
    facts = np.float64(setup.trace), np.int64(k), np.int64(setup.seed), np.float64(accuracy)
    V: Array = await At(proxy, model_directions, space.Q, space.CQ, *facts)
    return V
