"""Block Krylov iteration with a secant model: every product the sites ever made is used, so few rounds suffice.

Problem
    Find the leading k eigenvectors of C = sum_i Y_i^T Y_i (d x d), site i holding the centred rows Y_i (n_i x d).

Rounds
    The coordinator keeps an orthonormal basis Q (d x m) and the exact products C Q.
    1. B <- a first orthonormal block: random, one-shot, or the proxy's leading eigenvectors
    2. for each round:
    3.     the coordinator sends B; every site returns Y_i^T (Y_i B); the sum is C B
    4.     Q <- [Q, B], C Q <- [C Q, C B]; Rayleigh-Ritz on span(Q): T = Q^T C Q, leading eigenvectors Z = Q Y
    5.     stop if ||C Z - Z Theta||_F <= tol tr C
    6.     thick restart: if another block would exceed max_blocks, keep the leading half of the Ritz vectors with their products
    7.     B <- the part orthogonal to Q of the leading k eigenvectors of the secant model of C
    The secant model agrees with C wherever C is known, and with a scaled proxy M elsewhere:
        C_model = C Q Q^T + Q (C Q)^T - Q T Q^T + (tr C / tr M) P M P,      P = I - Q Q^T.
    Without a proxy M = 0, and line 7 gives (I - Q Q^T) C Q: plain block Krylov.  M may be the coordinator's own site's scatter,
    that of public rows, or what a one-shot start brought.  The known part is exact, so a bad proxy costs only rounds; once two of
    its blocks failed to halve the residual it is given up, and line 7 takes the residuals of the Ritz vectors instead.

Leaves the site
    Y_i^T Y_i B (d x k) each round, to be summed.  Whoever sees the single replies of enough rounds can solve for Y_i^T Y_i.
    With ``start="one-shot"`` also the leading directions (see ``algorithms/start.py``).
    ``At`` is used for a proxy at the coordinator's own site only: the model is computed where the rows are, nothing travels.

Cost
    8 d k bytes each way and 4 n_i d k flops per site and round; the coordinator keeps 2 max_blocks d k numbers, with a one-shot
    start half as many more.

Differences from the paper
    The secant model is our own; plain block Krylov is the classical method.  After a restart the last residual is confirmed by
    a fresh product, since rotated products accumulate rounding errors.  A given start is stirred with a small random part, since
    one inside an invariant subspace of C would look converged while being wrong; where tol is too loose to show the difference, a
    block of plain Krylov is added before the residual is believed.

References
    G. H. Golub, R. Underwood, "The block Lanczos method", 1977; K. Wu, H. Simon, "Thick-restart Lanczos", SIMAX 22 (2000).

>>> import numpy as np, eigenpact as ep
>>> X = np.random.default_rng(0).normal(size=(200, 30)) * np.linspace(3, 1, 30)
>>> pca = ep.FederatedPCA(n_components=2, solver=ep.Krylov(proxy="A"), random_state=0).fit({"A": X[:80], "B": X[80:]})
>>> pca.converged_, pca.n_rounds_ < 20
(True, True)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from ...errors import InputError
from ...krylov_space import SMALLEST_STEP, KrylovSpace, Ritz, leading_eigenpairs
from ...linalg import Array, new_directions, orthonormalize, random_orthonormal
from ...rows import Rows
from ...runtime import At, Progress, Site, Sum, local
from ..products import scatter_action
from ..setup import Setup, rows_of
from ..solution import Solution, ritz_angle
from ..start import STIR, STIR_MARGIN, Start, check_start, merged_directions, stir_size, stirred

FIRST_ACCURACY, MODEL_ACCURACY, MODEL_FLOOR = 1e-4, 0.05, 1e-11
"""How well the model's eigenvectors are computed: the first ones absolutely, the others relative to the current residual; and how
much of a unit vector must be new to be taken for more than rounding."""

USEFUL, MOST_DOUBTS = 0.5, 2
"""A block of the proxy should cut the residual to this share; once so many did not, plain Krylov goes on without the proxy."""

SHARE_BLOCK = 10
"""Block width while the number of components is still to be found from a share of the variance."""


@local(takes={"Q": "d m", "CQ": "d m", "trace": "", "k": "", "seed": "", "accuracy": ""}, sends={"V": "d k"}, bound="unit")
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


@dataclass(frozen=True, eq=False)
class Krylov:
    """Block Krylov with thick restart, and a secant model when there is a proxy.

    Parameters
    ----------
    start : "random" or "one-shot"
        The one-shot start costs one round and reveals every site's leading directions to the coordinator, who also uses them as
        the proxy if no other is given.
    proxy : str, int, array or None
        A model of the part of C not seen yet: the name or index of the coordinator's own site, or public rows (n x d).
    max_blocks : int
        At most this many blocks of k columns are kept, at least 3.
    """

    start: Start = "random"
    proxy: str | int | Array | None = None
    max_blocks: int = 16

    name = "krylov"
    default_tol = 1e-12

    def __post_init__(self) -> None:
        check_start(self.start)
        if not (isinstance(self.max_blocks, Integral) and self.max_blocks >= 3):
            raise InputError(f"max_blocks={self.max_blocks!r} must be at least 3: two blocks to keep and one to add")

    async def fit(self, setup: Setup, start: Array | None = None, state: Mapping[str, Array] | None = None) -> Solution:
        """Expand, project, restart until the residual is small."""
        tol = setup.stopping_tol(self.default_tol)
        wanted = setup.n_components
        width = wanted if isinstance(wanted, int) else min(SHARE_BLOCK, setup.n_features, setup.n_samples)
        if state is None:
            W, rounds = np.zeros((setup.n_features, 0)), 1
            if start is None and self.start == "one-shot":
                W, rounds = await merged_directions(width, self.max_blocks * width), 2
                start = orthonormalize(W[:, :width])
                await Progress(basis=start)
            proxy = self._proxy(setup, W)
            B = await self._first_block(setup, width, start, proxy)  # line 1
            space = KrylovSpace(B, await Sum(scatter_action, B))  # lines 3, 4
            confirmed, probed, doubts, before = True, start is None and proxy is None, 0, np.inf
        else:
            W, space = state["W"], KrylovSpace(state["Q"], state["CQ"])
            rounds, confirmed, probed, doubts, before = state["counters"]
            proxy = self._proxy(setup, W)
        while True:  # line 2
            ritz = space.ritz(lambda values: setup.wanted(values) or len(values))  # line 4
            k = ritz.Z.shape[1]
            residual = float(np.linalg.norm(ritz.residual)) / setup.trace if setup.trace > 0 else 0.0
            converged = residual <= tol and setup.wanted(ritz.values) is not None
            doubts += residual > USEFUL * before  # before: the residual that the last block of the proxy should have cut
            probed = probed or _stir_would_show(setup, float(ritz.values[k - 1]), tol)
            last = rounds >= setup.max_rounds or (converged and confirmed and probed)
            await Progress(
                basis=ritz.Z,
                objective=setup.share(ritz.values[:k]),
                kkt=residual,
                state=None
                if last
                else {"Q": space.Q, "CQ": space.CQ, "W": W, "counters": np.array([rounds, confirmed, probed, doubts, np.inf])},
            )
            if last:  # line 5
                converged = converged and bool(confirmed) and bool(probed)
                break
            if converged and not confirmed:
                space = space.shrunk(space.size)
                fresh = await Sum(scatter_action, np.ascontiguousarray(space.Q[:, :k]))  # line 5, confirmed
                space, confirmed = KrylovSpace(space.Q, np.concatenate([fresh, space.CQ[:, k:]], axis=1)), True
            else:
                if space.size + width > self._most_columns(setup, width, k):
                    space, confirmed = space.shrunk((self._most_columns(setup, width, k) + width) // 2), False  # line 6
                plain = proxy is None or converged or doubts >= MOST_DOUBTS
                before = np.inf if plain else residual
                if proxy is not None and plain and not converged:  # the model led astray: only what the Ritz vectors lack
                    B = new_directions(ritz.residual, space.Q, SMALLEST_STEP * setup.trace)[:, :width]
                else:
                    B = await self._next_block(setup, space, width, residual, None if plain else proxy)  # line 7
                probed = probed or plain
                if B.shape[1] == 0:  # Q is invariant
                    converged = setup.wanted(ritz.values) is not None
                    if converged:
                        break
                    anything = random_orthonormal(setup.n_features, width, setup.seed + space.size)
                    B = new_directions(anything, space.Q, SMALLEST_STEP)
                space = space.add(B, await Sum(scatter_action, B))  # lines 3, 4
            rounds += 1
        return _solution(setup, space, ritz, residual, tol, converged)

    def _most_columns(self, setup: Setup, width: int, k: int) -> int:
        """Columns that may be kept: max_blocks blocks, and for a share of the variance at least twice what it takes."""
        share = isinstance(setup.n_components, float)
        return max(self.max_blocks * width, 2 * (k + width) if share else 0)

    def _proxy(self, setup: Setup, W: Array) -> str | Rows | None:
        """What models the unseen part of C: the own site's name, public rows, or what the one-shot start brought."""
        if isinstance(self.proxy, str):
            return self.proxy
        if self.proxy is not None:
            return setup.public_rows(self.proxy)
        return Rows(np.ascontiguousarray(W.T)) if W.shape[1] else None

    async def _first_block(self, setup: Setup, width: int, start: Array | None, proxy: str | Rows | None) -> Array:
        """A given start, else the proxy's leading directions, else random."""
        if start is None:
            if proxy is None:
                return random_orthonormal(setup.n_features, width, setup.seed)
            start = await self._model(setup, KrylovSpace.empty(setup.n_features), width, FIRST_ACCURACY, proxy)
        return stirred(start, width, setup)

    async def _next_block(self, setup: Setup, space: KrylovSpace, width: int, residual: float, proxy: str | Rows | None) -> Array:
        """What the model adds to span(Q); without a proxy, or if that is nothing, the next block of plain Krylov."""
        if proxy is not None:
            V = await self._model(setup, space, width, MODEL_ACCURACY * residual, proxy)
            B = new_directions(V, space.Q, MODEL_FLOOR)
            if B.shape[1] > 0:
                return B
        return space.next_block(width, setup.trace)

    async def _model(self, setup: Setup, space: KrylovSpace, k: int, accuracy: float, proxy: str | Rows) -> Array:
        """Leading eigenvectors of the secant model, at the coordinator's own site or from rows the coordinator has."""
        if isinstance(proxy, Rows):
            return secant_model(proxy, space, setup.trace, k, setup.seed, accuracy)
        facts = np.float64(setup.trace), np.int64(k), np.int64(setup.seed), np.float64(accuracy)
        V: Array = await At(proxy, model_directions, space.Q, space.CQ, *facts)
        return V


def _stir_would_show(setup: Setup, smallest: float, tol: float) -> bool:
    """Whether a direction missed by the start, as large as the smallest one found, would have kept the residual above tol.

    If not, a block of plain Krylov is added before a small residual is believed: it turns to whatever the start had missed.
    """
    return bool(tol * setup.trace <= stir_size(setup) * smallest / (STIR_MARGIN * np.sqrt(setup.n_features)))


def _solution(setup: Setup, space: KrylovSpace, ritz: Ritz, residual: float, tol: float, converged: bool) -> Solution:
    k, values = ritz.Z.shape[1], ritz.values
    angle = 0.0 if k == setup.n_features else ritz_angle(ritz, space, setup.trace)
    if not converged:
        short = f"{residual:.1e} > tol {tol:.1e}" if residual > tol else f"{residual:.1e}, which one more round must confirm"
        reason = f"max_rounds={setup.max_rounds} reached at scaled KKT residual {short}; raise max_rounds"
    elif residual <= tol:
        reason = f"scaled KKT residual {residual:.1e} reached tol {tol:.1e}"
    else:
        reason = f"the space became invariant at scaled KKT residual {residual:.1e}: nothing new can be found"
    return Solution(ritz.Z, np.maximum(values[:k], 0.0), residual, angle, converged, reason)
