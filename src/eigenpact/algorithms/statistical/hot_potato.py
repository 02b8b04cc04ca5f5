"""Hot potato: Oja's algorithm passed from site to site, one pass over all rows, one round a site.

Problem
    Estimate the leading k eigenvectors of the covariance behind all rows; site i holds the centred rows Y_i (n_i x d).

Rounds
    The state is a basis Z (d x q, q = k + 1), running variances s (q) along it, and the number t of rows seen.
    1. the first site sets Z, s to the leading eigenvectors and variances of its own rows, t <- n_1, and passes the state on
    2. each following site takes its rows in random order, in batches Y (b x d):
    3.     s <- ((t - b) s + column squares of Y Z) / t, after t <- t + b
    4.     Z <- orth(Z + eta_t Y^T Y Z / b),   eta_t = log(t / (t - b)) / delta_t
    5. the last site passes the state to the coordinator, who takes the first k columns
    6. one more round, unless ``confirm=False``: C Z, which gives variances and tells how good the estimate is

Step size without tuning
    eta_t is 1 / (delta t) summed over the batch, for one row at a time the step with the least asymptotic error at gap delta.
    delta_t = s_k - s_{k+1} is re-estimated from all rows seen so far, and taken to be at least its own standard error,
    2 s_k / sqrt(t).  The batch is as large as keeps eta_t s_1 below ``LONGEST_STEP``.

Leaves the site
    Z (d x q), s (q) and t, to the next site.  The coordinator relays every state, and a journal keeps it.  Who sees the state
    before and after a site's turn learns about that site's rows, the more so the fewer they are; the first state is the first
    site's own principal directions.

Cost
    8 d q bytes a hop; 4 n_i d q flops and n_i / b orthonormalizations at a site.  As many rounds as sites, one after the other.

Differences from the paper
    The paper cites Oja's algorithm for this (Section 2.2.2, (6)) and starts at random with a step that needs the gap.  The warm
    start, the estimated gap, batches, k > 1 and the column that shows the gap are ours.

References
    D. Garber, O. Shamir, N. Srebro, ICML 2017, Section 2.2.2; E. Oja, J. Math. Biol. 15 (1982); P. Jain, C. Jin, S. Kakade,
    P. Netrapalli, A. Sidford, "Streaming PCA: matching matrix Bernstein", COLT 2016.

>>> import numpy as np, eigenpact as ep
>>> X = np.random.default_rng(0).normal(size=(6000, 5)) * [3, 1, 1, 1, 1]
>>> pca = ep.FederatedPCA(1, solver="hot-potato", random_state=0).fit({"A": X[:2000], "B": X[2000:4000], "C": X[4000:]})
>>> pca.n_rounds_, pca.angle_estimate_ < 0.02
(4, True)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import InputError
from ...numerics.linalg import Array, orthonormalize
from ...numerics.rows import Rows
from ...runtime import Chain, Progress, Site, local
from ..method import method
from ..parameters import check_whole
from ..products import PRODUCTS
from ..setup import CENTRE, Setup, rows_of
from ..solution import Solution, State
from .judgement import judged

LONGEST_STEP = 0.5
"""Largest eta_t s_1: beyond 1 a batch would count for more than all rows before it."""


STATE = {"Z": "d q", "s": "q", "t": "", "k": "", "most": "", "seed": ""}
"""What is passed on; ``most`` is the largest batch allowed."""


@local(
    takes=STATE,
    sends=STATE,
    reads=CENTRE,
    means={"s": "threshold", "t": "count", "k": "count", "most": "count", "seed": "seed"},
)
def pass_over(site: Site, Z: Array, s: Array, t: Any, k: Any, most: Any, seed: Any) -> Any:
    """The state after one pass over the own rows; with t = 0, the start."""
    rows, seen, rng = rows_of(site), int(t), site.rng(int(seed))
    if seen == 0:
        Z, s = _start(rows, Z.shape[1], rng)  # line 1
        return Z, s, np.float64(rows.n), k, most, seed
    order, first = rng.permutation(rows.n), 0
    while first < rows.n:  # line 2
        delta = gap(s, int(k), seen)
        largest = float(s.max())
        batch = seen * delta * LONGEST_STEP / largest if largest > 0 else rows.n
        part = rows.take(order[first : first + max(1, int(min(batch, most)))])
        scores = part.project(Z)
        first, before, seen = first + part.n, seen, seen + part.n
        s = (before * s + np.sum(scores**2, axis=0)) / seen  # line 3
        eta = np.log(seen / before) / delta if delta > 0 else 0.0
        Z = orthonormalize(Z + (eta / part.n) * part.transposed_action(scores))  # line 4
    return Z, s, np.float64(seen), k, most, seed


def gap(s: Array, k: int, t: int) -> float:
    """The gap behind the k-th of the variances s (q), known from t rows; at least its standard error.

    >>> gap(np.array([2.0, 1.0]), 1, 10000), gap(np.array([2.0, 1.99]), 1, 10000)
    (1.0, 0.04)
    """
    inside, outside = float(s[k - 1]), float(s[k]) if k < len(s) else 0.0
    return float(max(inside - outside, 2 * inside / np.sqrt(t)))


def _start(rows: Rows, q: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Leading directions (d x q) and variances (q) of the rows; random directions of no variance where the rows have fewer."""
    values, V = rows.top(q)
    fill = rng.standard_normal((rows.d, q - V.shape[1]))
    return orthonormalize(np.concatenate([V, fill], axis=1)), np.append(np.maximum(values, 0.0) / rows.n, np.zeros(fill.shape[1]))


@method(
    "statistical",
    {Chain: (pass_over,)},
    parts=(PRODUCTS,),
    role="estimate",
    remark="Passed from site to site; then `scatter_action`, unless `confirm=False`.",
)
class HotPotato:
    """Oja's algorithm, passed from site to site in the order of their names.

    Parameters
    ----------
    max_batch : int, optional
        At most this many rows are used at a time, 1 for Oja's algorithm row by row; None for as many as the step size allows.
    confirm : bool
        Take one more round in the end that gives the variances and tells how good the estimate is.
    """

    max_batch: int | None = None
    confirm: bool = True

    name = "hot-potato"
    default_angle = float("inf")

    def __post_init__(self) -> None:
        if self.max_batch is not None:
            check_whole("max_batch", self.max_batch, more=", or None for as many as the step allows")

    async def fit(self, setup: Setup, start: Array | None = None, state: State | None = None) -> Solution:  # noqa: ARG002
        """Pass the state around once, and confirm."""
        k, d = setup.whole_components(), setup.n_features
        if setup.max_rounds < setup.n_sites + self.confirm:
            raise InputError(
                f"max_rounds={setup.max_rounds} is too few: hot-potato takes a round for each of the {setup.n_sites} sites"
                + (" and one to confirm" if self.confirm else "")
                + "; raise it"
            )
        q = min(k + 1, d)
        most = setup.n_samples if self.max_batch is None else int(self.max_batch)
        nothing = np.zeros((d, q)), np.zeros(q), np.float64(0), np.int64(k), np.float64(most), np.int64(setup.seed)
        found, s, *_ = await Chain(pass_over, *nothing)  # lines 1 to 5
        Z = np.ascontiguousarray(found[:, :k])
        if self.confirm:
            await Progress(basis=Z)
            return await judged(setup, Z, found[:, k:], "hot potato")  # line 6
        await Progress(basis=Z, objective=setup.share(setup.n_samples * s[:k]))
        order = np.argsort(-s[:k])
        reason = "hot potato, not confirmed: nothing is known of its error"
        values = setup.n_samples * s[:k][order]
        return Solution(np.ascontiguousarray(Z[:, order]), values, None, None, setup.tol is None, reason)
