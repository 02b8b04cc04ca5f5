"""Robust components by shrinking hard thresholds, with the exact consensus step: the default of ``ep.RobustPCA``.

Problem
    Site i holds rows M_i = V_i U^T + 1 m^T + S_i (n_i x d): U (d x k) and the mean m are common, V_i (n_i x k) and the sparse
    errors S_i are the site's own.  Entries may be missing.  Find span(U) and m although errors are of any size.

Rounds
    1. U <- a random orthonormal d x k basis, m <- the agreed medians, V_i <- 0, tau <- 3 robust deviations of the entries
    2. for a few rounds, until U turns little: site i divides rows whose median entry is larger than tau / 3 allows by a factor
       that makes it so, cuts the entries back to [-tau, tau] about m, V_i <- these times U, E_i their residual; U and m change
       as in 5.  A row of V_i is then multiplied by its factor if that explains at least as many of its entries; if not, the row
       is large by its errors.  (Cut back, large entries still tell their sign; left out, a feature with large loadings would be
       missing from the start and might never come back.  Without the factors a large row is all signs.)
       Then for each round, the coordinator sends U, m and tau:
    3.     site i trusts the entries with |M_i - V_i U^T - 1 m^T| <= tau and finds V_i by least squares on them (a few steps of
           conjugate gradients); trusts anew; S_i is the residual elsewhere, E_i the residual where it trusts
    4.     sites send E_i^T [V_i 1] and [V_i 1]^T [V_i 1], trusted entries by feature, and counts of |E_i| by size; all are summed
    5.     [U m] <- [U m] + (sum E_i^T [V_i 1]) (sum [V_i 1]^T [V_i 1])^-1, each feature's step divided by its trusted share;
           U <- the nearest orthonormal basis
    6.     tau <- as the counts say (``robust/thresholds.py``), once U turns little or after a few rounds
    7.     with an upper bound on the rank: from the eighth of these rounds on, if the eigenvalues of the scatter of all V_i fall
           by more than half at the same place in two rounds, cut U and V_i there and begin again with the first threshold
    8. stop when U turns by less than tol and tau has come down to the noise

Leaves the site
    Each round d x (k + 1) and (k + 1) x (k + 1) products, d counts and 160 counts, to be summed.  E_i^T V_i is (M_i - S_i)^T V_i
    less what all know.  V_i, S_i and the rows stay; whoever sees single replies learns V_i^T V_i, the site's share of wrong
    entries by feature, and how well U explains it.

Cost
    8 (d k + d) bytes down, 8 (d k + 2 d + (k + 1)^2 + 160) up, and about 20 n_i d k flops per site and round.  A site's rows are
    read in blocks, once a round; what it keeps besides them is V_i.

Differences from the paper
    DCF-PCA (``robust/dcf.py``) descends on U at every site and averages.  With V_i and S_i fixed the common U is a least squares
    problem whose solution needs two sums, so here it is solved and not descended.  Errors are cut off and not shrunk: a soft
    threshold pulls every wrong entry's residual by lambda, which leaves a bias of that size.  Dividing the step by the trusted
    share (5) undoes what an untrusted entry, replaced by its own prediction, takes from it.  Nothing is tuned to a problem: the
    pace of the threshold follows the residuals.  Step 7 finds a rank only at a clear fall of the spectrum as it is while
    spare columns still hold errors; a fall inside the low-rank part itself, if it is the steepest then, is taken for the end.

References
    W. Chu, "Distributed robust principal component analysis", Sections 2 and 4; P. Netrapalli et al., "Non-convex robust PCA",
    NIPS 2014, on hard thresholds that shrink.

>>> import numpy as np, eigenpact as ep
>>> sites, truth, errors = ep.datasets.corrupted_problem(60, 200, rank=3, share=0.1, sites=2)
>>> pca = ep.RobustPCA(3, center=False, random_state=0).fit(sites)
>>> pca.converged_, bool(np.abs(pca.low_rank_("site0") - truth["site0"]).max() < 1e-9)
(True, True)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from ...linalg import Array, orthonormalize, random_orthonormal, top_eigenpairs
from ...runtime import Local, Progress, Reply, Site, Sum, local
from .agreement import RobustSetup
from .entries import blocks, fit_scores, trusted, typical_sizes
from .solution import RobustSolution, principal_axes, score_scatter
from .thresholds import LEVELS, START, Residuals, tally

STEPS = 3
"""Conjugate gradient steps for V_i in a round."""

LEAST_SHARE = 0.2
"""A feature's step is divided by its trusted share, but not by less than this."""

NO_SPAN = 1e-13
"""Eigenvalues of the scores' products below this share of the largest are rounding: scores do not span there."""

NEGLIGIBLE = 10.0
"""A threshold of so many tol, in units of an entry's size, hides no error that matters."""

CLIPPED_ROUNDS, PATIENCE, RESTLESS = 4, 5, 0.1
"""The most rounds of line 2, and those that the first threshold waits; both end when the basis turns by less than RESTLESS."""

REVEAL_FROM, CLEAR_FALL, NOTHING = 8, 0.5, 1e-4
"""The hard-threshold round from which the spectrum is looked at; the ratio of neighbouring eigenvalues that counts as a fall;
and the share of the largest one below which eigenvalues are all the same."""


@local(
    takes={"U": "d k", "shift": "d", "tau": ""},
    sends={"G": "d k+1", "B": "k+1 k+1", "trusted": "d", "counts": "160"},
    keeps=("V",),
    bound={"trusted": "count", "counts": "count"},
)
def threshold_step(site: Site, U: Array, shift: Array, tau: Any) -> Reply:
    """Lines 3 and 4."""
    d, k = U.shape
    V = np.array(site.kept["V"]) if "V" in site.kept else np.zeros((site.X.shape[0], k))
    G, B = np.zeros((d, k + 1)), np.zeros((k + 1, k + 1))
    by_feature, counts = np.zeros(d, dtype=np.int64), np.zeros(LEVELS, dtype=np.int64)
    for where, M, observed in blocks(site.X, site.kept["mean"], site.kept["scale"]):
        M -= shift
        R = M - V[where] @ U.T
        V[where], R = fit_scores(R, trusted(R, observed, tau), U, V[where], STEPS)
        W = trusted(R, observed, tau)
        R *= W
        V_1 = np.column_stack([V[where], np.ones(len(M))])
        G += R.T @ V_1
        B += V_1.T @ V_1
        by_feature += W.sum(axis=0)
        counts += tally(R, W.size - int(np.count_nonzero(W)), float(tau))
    return Reply((G, B, by_feature, counts), keep={"V": V})


@local(takes={"U": "d k", "shift": "d", "tau": ""}, sends={"G": "d k+1", "B": "k+1 k+1"}, keeps=("V",))
def clipped_step(site: Site, U: Array, shift: Array, tau: Any) -> Reply:
    """Line 2."""
    d, k = U.shape
    V, G, B = np.zeros((site.X.shape[0], k)), np.zeros((d, k + 1)), np.zeros((k + 1, k + 1))
    for where, M, observed in blocks(site.X, site.kept["mean"], site.kept["scale"]):
        M -= shift
        factor = np.maximum(1.0, START * typical_sizes(M, observed) / tau)
        whole = M.copy()
        M /= factor
        np.clip(M, -tau, tau, out=M)
        if observed is None:
            scores = M @ U
            R = M - scores @ U.T
        else:
            scores, R = fit_scores(M, observed, U, np.zeros((len(M), k)), STEPS)
            R *= observed
        V_1 = np.column_stack([scores, 1.0 / factor])
        G += R.T @ V_1
        B += V_1.T @ V_1
        explained = [np.count_nonzero(trusted(whole - V_j @ U.T, observed, tau), axis=1) for V_j in (scores * factor, scores)]
        V[where] = scores * np.where(explained[0] >= explained[1], factor[:, 0], 1.0)[:, None]
    return Reply((G, B), keep={"V": V})


@local(takes={"rotation": "p k"}, keeps=("V",))
def turn_scores(site: Site, rotation: Array) -> Reply:
    """Line 7: scores in the rotated and cut basis."""
    return Reply(keep={"V": site.kept["V"] @ rotation})


@dataclass(frozen=True, eq=False)
class Shrinking:
    """Shrinking hard thresholds with the exact consensus step.  It has no parameters."""

    name = "shrinking"
    default_tol = 1e-10

    async def fit(
        self,
        setup: RobustSetup,
        start: Array | None = None,
        state: Mapping[str, Array] | None = None,  # noqa: ARG002
    ) -> RobustSolution:
        """Iterate until the basis rests and the threshold has arrived."""
        tol, problem, d = setup.stopping_tol(self.default_tol), setup.problem, setup.n_features
        whole = start is None or start.shape[1] == setup.n_components  # a site lost after the cut leaves fewer columns
        searching, revealed, gap = problem.rank == "upper" and whole, False, Fall(0, 1.0)
        U = random_orthonormal(d, setup.n_components, problem.seed) if start is None else orthonormalize(start)  # line 1
        shift, tau, observed = np.zeros(d), START * setup.size, int(setup.observed.sum())
        negligible = max(NEGLIGIBLE * tol * setup.size, setup.rounding)
        begun, turn = 0, np.inf
        while begun < min(CLIPPED_ROUNDS, problem.last_round - 1) and turn > RESTLESS:  # line 2
            G, B = await Sum(clipped_step, U, shift, np.float64(tau))
            D = consensus_step(G, B, setup.centred) / np.maximum(setup.observed / setup.n_samples, LEAST_SHARE)[:, None]
            U_prev, (U, shift, turn) = U, moved(U, shift, D)
            begun += 1
            await Progress(basis=U, details={"turn": turn, "threshold": tau, "rank": float(U.shape[1])})
        for t in range(begun + 1, problem.last_round + 1):
            G, B, by_feature, counts = await Sum(threshold_step, U, shift, np.float64(tau))  # lines 3, 4
            k, residuals = U.shape[1], Residuals(counts, tau, observed)
            D = consensus_step(G, B, setup.centred) / np.maximum(by_feature / setup.n_samples, LEAST_SHARE)[:, None]  # line 5
            U_prev, (U, shift, turn) = U, moved(U, shift, D)
            wrong = 1 - residuals.trusted / observed
            details = {"turn": turn, "threshold": tau, "deviation": residuals.deviation, "wrong": wrong, "rank": float(k)}
            await Progress(basis=U, details=details)
            converged = turn <= tol and residuals.settled(negligible)
            if converged:
                break
            if turn <= RESTLESS or t - begun >= PATIENCE:
                tau = min(tau, max(residuals.next_threshold(), setup.rounding))  # line 6
            if searching and t - begun >= REVEAL_FROM and t < problem.last_round:  # line 7; what is cut needs a round more
                scatter = score_scatter(B, setup.n_samples, setup.centred)
                gap, last = steepest_fall(scatter), gap
                if gap.ratio < CLEAR_FALL and gap.rank == last.rank:
                    _, rotation = top_eigenpairs(scatter, gap.rank)
                    await Local(turn_scores, rotation)
                    U, tau, begun = orthonormalize(U_prev @ rotation), START * setup.size, t
                    searching, revealed = False, True
        values, axes, mean = principal_axes(U, B, setup.n_samples, setup.centred)  # line 8
        reason = (
            f"the basis turned by {turn:.1e}, within tol {tol:.1e}, at a threshold of {residuals.threshold:.1e}"
            if converged
            else f"max_rounds={problem.max_rounds} reached: the basis still turned by {turn:.1e} (tol {tol:.1e}) at a threshold "
            f"of {residuals.threshold:.1e}; raise max_rounds, and if it keeps turning ask for fewer components"
        )
        notes = {"fall": gap.ratio, "revealed": revealed}
        deviation = residuals.deviation
        return RobustSolution(axes, values, shift + mean, residuals.threshold, "hard", deviation, wrong, converged, reason, notes)


@dataclass(frozen=True)
class Fall:
    """Where a spectrum falls most steeply: behind the eigenvalue ``rank``, to ``ratio`` times it."""

    rank: int
    ratio: float


def steepest_fall(scatter: Array) -> Fall:
    """The steepest fall of the eigenvalues of the scores' scatter (k x k).

    >>> steepest_fall(np.diag([4.0, 3.0, 0.03]))
    Fall(rank=2, ratio=0.01)
    """
    values = top_eigenpairs(scatter)[0]
    values = np.maximum(values, NOTHING * values[0])
    ratios = np.divide(values[1:], values[:-1], out=np.ones(len(values) - 1), where=values[:-1] > 0)
    if not ratios.size:
        return Fall(1, 1.0)
    return Fall(int(ratios.argmin()) + 1, round(float(ratios.min()), 12))


def moved(U: Array, shift: Array, D: Array) -> tuple[Array, Array, float]:
    """U and m after the step D (d x k+1), and by how much U turns: a root mean square of sines, for small steps."""
    k = U.shape[1]
    turn = float(np.linalg.norm(D[:, :k] - U @ (U.T @ D[:, :k]))) / np.sqrt(k)
    return nearest_basis(U + D[:, :k]), shift + D[:, k], float(turn)


def consensus_step(G: Array, B: Array, centred: bool) -> Array:
    """How [U m] changes (d x k+1): G B^-1, in the least squares sense where scores do not span; m stays if not centred."""
    k = len(B) if centred else len(B) - 1
    sizes = np.full(k, np.sqrt(np.diag(B)[:-1].max()))  # one for all scores: a column of rounding must stay small
    if centred:
        sizes[-1] = np.sqrt(B[-1, -1])  # scores and ones are of different units
    sizes = np.where(sizes > 0, sizes, 1.0)
    D = G[:, :k] / sizes @ scipy.linalg.pinvh(B[:k, :k] / np.outer(sizes, sizes), rtol=NO_SPAN) / sizes
    return np.asarray(D if centred else np.column_stack([D, np.zeros(len(G))]))


def nearest_basis(A: Array) -> Array:
    """The orthonormal basis (d x k) nearest to A: U of its polar decomposition, so that scores keep their meaning."""
    left, _, right = scipy.linalg.svd(A, full_matrices=False, check_finite=False)
    return np.ascontiguousarray(left @ right)
