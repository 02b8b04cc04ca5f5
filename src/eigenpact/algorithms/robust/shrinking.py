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
    7.     the first time U turns little: columns whose scores are less than a fifth of the strongest column's are set aside,
           for while errors below tau are larger than what a weak column explains, it fits them - those of one feature, say -
           and keeps them
    8.     when U rests and tau falls no more, random columns take the place of those set aside: for a few rounds site i cuts
           R_i = M_i - V_i U^T - 1 m^T back to [-tau, tau], tau doubled, and sends R_i^T R_i N for the new columns N, which become
           an orthonormal basis of the sum beside U; then 3 to 8 go on with [U N], N taking the place of all columns in 7
    9.     with an upper bound on the rank: from the eighth of these rounds on, if the eigenvalues of the scatter of all V_i fall
           by more than half at the same place in two rounds, cut U and V_i there and begin again with the first threshold
    10. stop when U turns by less than tol, tau has come down to the noise and no column is set aside, or when the answer is in
        doubt (``robust/doubts.py``) and tau has not fallen for twenty rounds: a feature is wrong in most of its entries, or has a
        component to itself whose scores, counted by size, are those of errors
    11. if it is in doubt, begin again from another U with half instead of a fifth in 7, and if that is, too, without 7; an answer
        in doubt has not converged
    12. components and variances follow from U and the sum of [V_i 1]^T [V_i 1]

Leaves the site
    Each round d x (k + 1) and (k + 1) x (k + 1) products, d counts and 160 counts, to be summed; in 8 d x p products, and in 10,
    if at all, 160 counts.  E_i^T V_i is (M_i - S_i)^T V_i less what all know.  V_i, S_i and the rows stay; whoever sees single
    replies learns V_i^T V_i, the site's share of wrong entries by feature, and how well U explains it.

Cost
    8 (d k + d) bytes down, 8 (d k + 2 d + (k + 1)^2 + 160) up, and about 20 n_i d k flops per site and round.  A site's rows are
    read in blocks, once a round; what it keeps besides them is V_i.

Differences from the paper
    DCF-PCA (``robust/dcf.py``) descends on U at every site and averages.  With V_i and S_i fixed the common U is a least squares
    problem whose solution needs two sums, so here it is solved and not descended.  Errors are cut off and not shrunk: a soft
    threshold pulls every wrong entry's residual by lambda, which leaves a bias of that size.  Dividing the step by the trusted
    share (5) undoes what an untrusted entry, replaced by its own prediction, takes from it.  Nothing is tuned to a problem: the
    pace of the threshold follows the residuals.  Weak columns wait as in Netrapalli et al., who add one column at a time; here
    those of similar strength go together, so that an even spectrum costs no round more and one over a factor of 100 about 20.
    Step 9 finds a rank only at a clear fall of the spectrum as it is while spare columns still hold errors; a fall inside the
    low-rank part itself, if it is the steepest then, is taken for the end.

References
    W. Chu, "Distributed robust principal component analysis", Sections 2 and 4; P. Netrapalli et al., "Non-convex robust PCA",
    NIPS 2014, on hard thresholds that shrink.

>>> import numpy as np, eigenpact as ep
>>> sites, truth, errors = ep.datasets.corrupted_problem(60, 200, rank=3, share=0.1, sites=2)
>>> pca = ep.RobustPCA(3, center=False, random_state=0).fit(sites)
>>> pca.converged_, bool(np.abs(pca.low_rank("site0") - truth["site0"]).max() < 1e-9)
(True, True)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...numerics.either import cut_back, full, kept_where, rows_where, take, there, with_rows, zeros
from ...numerics.elsewhere import namespace, to_numpy
from ...numerics.linalg import Array, orthonormalize, polar_factor, random_orthonormal, top_eigenpairs
from ...numerics.metrics import mean_sine
from ...runtime import Local, Progress, Reply, Site, Sum, local
from ..method import method
from ..solution import State
from .agreement import RobustSetup
from .basis import Fall, beside, consensus_step, moved, steepest_fall
from .doubts import DOUBTS, doubt_about
from .entries import (
    MEDIANS,
    check_many,
    check_not_all_cut,
    entries_there,
    fit_scores,
    seen_by_feature,
    seen_rows,
    trusted,
    typical_sizes,
)
from .solution import RobustSolution, principal_axes, score_scatter
from .thresholds import LEVELS, START, Residuals, tally

STEPS = 3
"""Conjugate gradient steps for V_i in a round."""

LEAST_SHARE = 0.2
"""A feature's step is divided by its trusted share, but not by less than this."""

NEGLIGIBLE = 10.0
"""A threshold of so many tol, in units of an entry's size, hides no error that matters."""

CLIPPED_ROUNDS, PATIENCE, RESTLESS = 4, 5, 0.1
"""The most rounds of line 2, and those that the first threshold waits; both end when the basis turns by less than RESTLESS."""

WEAK, LESS_WEAK, NONE_WEAK = 0.2, 0.5, 0.0
"""Columns whose scores are below this share of the strongest column's wait; in a second attempt more do, in a third none."""

RESTING, NO_LOWER, AGAIN = 0.03, 0.95, 2.0
"""Columns that wait are taken up when the basis turns by less than RESTING at a threshold that would not fall below NO_LOWER of
itself, which is then raised AGAIN-fold."""

STUCK = 20
"""Rounds at the last threshold after which an answer in doubt is given up although the basis still turns."""

ROUNDS_AGAIN = 40
"""Another attempt needs this many rounds."""

REVEAL_FROM, CLEAR_FALL = 8, 0.5
"""The hard-threshold round from which the spectrum is looked at; the ratio of neighbouring eigenvalues that counts as a fall."""


STEP = {"U": "orthonormal", "shift": "centre", "tau": "threshold"}
"""What a step is told."""


@local(
    takes={"U": "d k", "shift": "d", "tau": ""},
    sends={"G": "d k+1", "B": "k+1 k+1", "trusted": "d", "counts": "160"},
    reads=(*MEDIANS, "V"),
    keeps=("V",),
    bound={"trusted": "count", "counts": "count"},
    means=STEP,
)
def threshold_step(site: Site, U: Array, shift: Array, tau: Any) -> Reply:
    """Lines 3 and 4."""
    (d, k), X, tau = U.shape, site.X, float(tau)
    V = 1.0 * site.kept["V"] if "V" in site.kept else zeros((X.shape[0], k), X)
    G, B = zeros((d, k + 1), X), zeros((k + 1, k + 1), X)
    by_feature, counts = np.zeros(d, dtype=np.int64), np.zeros(LEVELS, dtype=np.int64)
    U_there, m = there(U, X), there(shift, X)
    for where, R, observed in entries_there(site):
        xp = namespace(R)
        R -= m
        R -= V[where, :] @ U_there.T
        V_here, R = fit_scores(R, trusted(R, observed, tau), U_there, V[where, :], STEPS)
        V[where, :] = V_here
        W = xp.astype(trusted(R, observed, tau), xp.float64)
        R *= W
        V_1 = kept_where(xp.concat([V_here, full((R.shape[0], 1), 1.0, R)], axis=1), seen_rows(observed))
        G += (V_1.T @ R).T
        B += V_1.T @ V_1
        here = to_numpy(V_1[:, -1] @ W).astype(np.int64)  # sums of ones are exact, and products quicker than counting
        by_feature += here
        counts += tally(R, prod(W.shape) - int(here.sum()), tau)
    check_many(by_feature, site.min_rows)
    return Reply((to_numpy(G), to_numpy(B), by_feature, counts), keep={"V": V})


@local(takes={"U": "d k", "shift": "d", "tau": ""}, sends={"G": "d k+1", "B": "k+1 k+1"}, reads=MEDIANS, keeps=("V",), means=STEP)
def clipped_step(site: Site, U: Array, shift: Array, tau: Any) -> Reply:
    """Line 2."""
    (d, k), X, tau = U.shape, site.X, float(tau)
    V, G, B = zeros((X.shape[0], k), X), zeros((d, k + 1), X), zeros((k + 1, k + 1), X)
    inside, seen, U_there, m = np.zeros(d, dtype=np.int64), np.zeros(d, dtype=np.int64), there(U, X), there(shift, X)
    for where, whole, observed in entries_there(site):
        xp = namespace(whole)
        whole -= m
        factor = START * typical_sizes(whole, observed) / (tau or 1.0)  # tau is 0 where no entry differs from its median
        factor = xp.where(factor > 1.0, factor, 1.0)
        M = whole / factor
        inside += seen_by_feature(M, trusted(M, observed, tau))
        seen += seen_by_feature(M, observed)
        M = cut_back(M, tau, into=M)
        if observed is None:
            scores = M @ U_there
            R = M - scores @ U_there.T
        else:
            scores, R = fit_scores(M, observed, U_there, zeros((M.shape[0], k), M), STEPS)
            R = kept_where(R, observed)
        V_1 = kept_where(xp.concat([scores, 1.0 / factor], axis=1), seen_rows(observed))
        G += (V_1.T @ R).T
        B += V_1.T @ V_1
        large = rows_where(factor[:, 0] > 1)
        has, left, of_large, by = (take(array, large) for array in (observed, whole, scores, factor))
        explained = [xp.count_nonzero(trusted(left - V_j @ U_there.T, has, tau), axis=1) for V_j in (of_large * by, of_large)]
        of_large = of_large * xp.where((explained[0] >= explained[1])[:, None], by, 1.0)
        V[where, :] = with_rows(scores, large, of_large)
    check_not_all_cut(inside, seen, site.min_rows)
    return Reply((to_numpy(G), to_numpy(B)), keep={"V": V})


@local(
    takes={"U": "d q", "N": "d p", "shift": "d", "tau": ""},
    sends={"G": "d p"},
    reads=(*MEDIANS, "V"),
    keeps=("V",),
    means=STEP | {"N": "orthonormal"},
)
def widened_step(site: Site, U: Array, N: Array, shift: Array, tau: Any) -> Reply:
    """Line 8: what the scores on U leave, cut back to [-tau, tau], times itself times N."""
    q, X, tau = U.shape[1], site.X, float(tau)
    V, G = zeros((X.shape[0], q + N.shape[1]), X), zeros(N.shape, X)
    V[:, :q] = site.kept["V"][:, :q]
    inside, seen = (np.zeros(len(N), dtype=np.int64) for _ in range(2))
    U_there, N_there, m = (there(a, X) for a in (U, N, shift))
    for where, M, observed in entries_there(site):
        R = M - m - V[where, :q] @ U_there.T
        inside += seen_by_feature(R, trusted(R, observed, tau))
        seen += seen_by_feature(R, observed)
        R = kept_where(cut_back(R, tau, into=R), observed)
        V[where, q:] = R @ N_there
        G += R.T @ V[where, q:]
    check_not_all_cut(inside, seen, site.min_rows)
    return Reply(to_numpy(G), keep={"V": V})


@local(takes={"rotation": "p k"}, reads=("V",), keeps=("V",), means={"rotation": "orthonormal"})
def turn_scores(site: Site, rotation: Array) -> Reply:
    """Lines 7 and 9: scores in the rotated and cut basis."""
    V = site.kept["V"]
    return Reply(keep={"V": V @ there(rotation, V)})


@method(
    "robust",
    {Sum: (clipped_step, threshold_step, widened_step), Local: (turn_scores,)},
    parts=(DOUBTS,),
    remark="`clipped_step` in the first rounds, then `threshold_step`; with an uneven spectrum "
    '`turn_scores` sets weak columns aside and `widened_step` finds new ones; `turn_scores` also cuts with `rank="upper"`.',
)
class Shrinking:
    """Shrinking hard thresholds with the exact consensus step.  It has no parameters."""

    name = "shrinking"
    default_tol = 1e-10

    async def fit(self, setup: RobustSetup, start: Array | None = None, state: State | None = None) -> RobustSolution:  # noqa: ARG002
        """Iterate until the basis rests and the threshold has arrived; again, in other stages, if the answer is in doubt."""
        problem, d = setup.problem, setup.n_features
        whole = start is None or start.shape[1] == setup.n_components  # a site lost after the cut leaves fewer columns
        searching = problem.rank == "upper" and whole
        U = random_orthonormal(d, setup.n_components, problem.seed) if start is None else orthonormalize(start)  # line 1
        found = await self._attempt(setup, U, searching, WEAK, 0)
        rounds, columns = found.rounds, U.shape[1]
        for seed, weak in ((problem.seed + 1, LESS_WEAK), (problem.seed, NONE_WEAK)):  # line 11
            if found.doubt and rounds + ROUNDS_AGAIN <= problem.last_round:
                again = await self._attempt(setup, random_orthonormal(d, columns, seed), searching, weak, rounds)
                rounds = again.rounds
                if again.converged and (not again.doubt or again.wrong < found.wrong):
                    found = again
        return found.solution(setup)

    async def _attempt(self, setup: RobustSetup, U: Array, searching: bool, weak: float, t: int) -> Attempt:
        """Lines 2 to 10 from the basis U, after t rounds."""
        tol, problem, d = setup.stopping_tol(self.default_tol), setup.problem, setup.n_features
        tau, observed = START * setup.size, int(setup.observed.sum())
        negligible = max(NEGLIGIBLE * tol * setup.size, setup.rounding)
        aside, held, placed, resting = U[:, :0], 0, searching, 0
        revealed, gap, doubt = False, Fall(0, 1.0), ""
        t, U, shift = await self._clip(setup, U, tau, t)
        begun = t
        while t < problem.last_round:
            G, B, by_feature, counts = await Sum(threshold_step, U, shift, np.float64(tau))  # lines 3, 4
            t += 1
            k, residuals = U.shape[1], Residuals(counts, tau, observed)
            U_prev, (U, shift, turn) = U, moved(U, shift, self._step(setup, G, B, by_feature))  # line 5
            wrong = 1 - residuals.trusted / observed
            details = {"turn": turn, "threshold": tau, "deviation": residuals.deviation, "wrong": wrong, "rank": float(k)}
            await Progress(basis=beside(U, aside), details=details)
            arrived = turn <= tol and residuals.settled(negligible)
            converged = arrived and not aside.shape[1]
            lower = min(tau, max(residuals.next_threshold(), setup.rounding))
            resting = resting + 1 if lower > NO_LOWER * tau else 0
            if converged or resting == STUCK:  # line 10
                taken, doubt = await doubt_about(U_prev, B, np.eye(k), by_feature, setup, problem.last_round - t)
                t += taken
            if converged or doubt or t == problem.last_round:
                break
            settled = turn <= RESTLESS or t - begun >= PATIENCE
            if settled and not placed:  # line 7
                placed, (values, rotation) = True, top_eigenpairs(score_scatter(B, setup.n_samples, setup.centred))
                strong = held + int(np.count_nonzero(values[held:] > weak**2 * values[held]))
                if held < strong < k:
                    await Local(turn_scores, np.ascontiguousarray(rotation[:, :strong]))
                    U, aside = np.split(polar_factor(U_prev @ rotation), [strong], axis=1)
                    continue
            if aside.shape[1] and t + 1 < problem.last_round and (arrived or (turn <= RESTING and resting)):  # line 8
                tau, held = min(START * setup.size, AGAIN * tau), k
                N = beside(U, random_orthonormal(d, aside.shape[1], problem.seed + t))[:, k:]
                t, N = await self._widen(setup, U, N, shift, tau, t)
                U, aside, placed, begun = np.column_stack([U, N]), aside[:, :0], False, t
                continue
            if settled:
                tau = lower  # line 6
            if searching and t - begun >= REVEAL_FROM:  # line 9
                scatter = score_scatter(B, setup.n_samples, setup.centred)
                gap, last = steepest_fall(scatter), gap
                if gap.ratio < CLEAR_FALL and gap.rank == last.rank:
                    _, rotation = top_eigenpairs(scatter, gap.rank)
                    await Local(turn_scores, rotation)
                    U, tau, begun = polar_factor(U_prev @ rotation), START * setup.size, t
                    searching, revealed, placed = False, True, False
        k, missing = U.shape[1], aside.shape[1]
        B = np.pad(B, ((0, missing), (0, missing)))  # columns that are still set aside have no scores yet
        B[[k, -1]], B[:, [k, -1]] = B[[-1, k]], B[:, [-1, k]]
        return Attempt(beside(U, aside), B, shift, residuals, turn, converged, doubt, t, gap, revealed)

    async def _clip(self, setup: RobustSetup, U: Array, tau: float, t: int) -> tuple[int, Array, Array]:
        """Rounds so far, U and m after line 2."""
        last, shift, turn = min(t + CLIPPED_ROUNDS, setup.problem.last_round - 1), np.zeros(len(U)), np.inf
        while t < last and turn > RESTLESS:
            G, B = await Sum(clipped_step, U, shift, np.float64(tau))
            U, shift, turn = moved(U, shift, self._step(setup, G, B, setup.observed))
            t += 1
            await Progress(basis=U, details={"turn": turn, "threshold": tau, "rank": float(U.shape[1])})
        return t, U, shift

    @staticmethod
    def _step(setup: RobustSetup, G: Array, B: Array, trusted: NDArray[Any]) -> Array:
        """Line 5: how [U m] changes (d x k+1), each feature's part divided by the share of its entries that are ``trusted``."""
        return consensus_step(G, B, setup.centred) / np.maximum(trusted / setup.n_samples, LEAST_SHARE)[:, None]

    async def _widen(self, setup: RobustSetup, U: Array, N: Array, shift: Array, tau: float, t: int) -> tuple[int, Array]:
        """Rounds so far, and line 8: the columns (d x p) beside U that explain most of what it leaves, from N (d x p)."""
        last, turn = min(t + CLIPPED_ROUNDS, setup.problem.last_round - 1), np.inf
        while t < last and turn > RESTLESS:
            G = await Sum(widened_step, U, N, shift, np.float64(tau))
            N_prev, N = N, beside(U, G)[:, U.shape[1] :]
            turn = mean_sine(N, N_prev)
            t += 1
            both = np.column_stack([U, N])
            await Progress(basis=both, details={"turn": turn, "threshold": tau, "rank": float(both.shape[1])})
        return t, N


@dataclass(frozen=True, eq=False)
class Attempt:
    """Where lines 2 to 10 ended: [U m], [V 1]^T [V 1] of all sites, their residuals, and what speaks against the answer."""

    U: Array
    B: Array
    shift: Array
    residuals: Residuals
    turn: float
    converged: bool
    doubt: str
    rounds: int
    gap: Fall
    revealed: bool

    @property
    def wrong(self) -> float:
        """Share of the observed entries that are not trusted."""
        return 1 - self.residuals.trusted / self.residuals.observed

    def solution(self, setup: RobustSetup) -> RobustSolution:
        """Principal axes and the reason for stopping; an answer in doubt has not converged."""
        values, axes, mean = principal_axes(self.U, self.B, setup.n_samples, setup.centred)  # line 12
        tol, problem, threshold = setup.stopping_tol(Shrinking.default_tol), setup.problem, self.residuals.threshold
        turned = f"turned by {self.turn:.1e}"
        reason = f"the basis {turned}, within tol {tol:.1e}, at a threshold of {threshold:.1e}"
        if not self.converged:
            reason = (
                f"max_rounds={problem.max_rounds} reached: the basis still {turned} (tol {tol:.1e}) at a threshold of "
                f"{threshold:.1e}; raise max_rounds, and if it keeps turning ask for fewer components"
            )
        if self.doubt:
            reason = f"the basis {turned} at a threshold of {threshold:.1e} that falls no more, but {self.doubt}"
        return RobustSolution(
            basis=axes,
            eigenvalues=values,
            shift=self.shift + mean,
            threshold=threshold,
            deviation=self.residuals.deviation,
            share=self.wrong,
            converged=self.converged and not self.doubt,
            reason=reason,
            notes={"fall": self.gap.ratio, "revealed": self.revealed},
        )
