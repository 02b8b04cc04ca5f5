"""DCF-PCA: every site descends on its own copy of U, the copies are averaged; with one site it is the paper's CF-PCA.

Problem
    Site i holds M_i = V_i U^T + S_i (n_i x d; the paper's matrices are transposed).  Minimize over U (d x k), V_i and S_i
        sum_i 1/2 ||V_i U^T + S_i - M_i||_F^2 + rho/2 (||V_i||_F^2 + n_i/n ||U||_F^2) + lambda ||S_i||_1           (4), (11)

Rounds
    1. U <- sqrt(d) times a random orthonormal basis
    2. for t = 0, 1, ...: the coordinator sends U; site i sets U_i <- U and repeats K times:
    3.     V_i, S_i <- argmin of its part (7), by ``sweeps`` alternations of (15) and (16) from where it left off
    4.     U_i <- U_i - eta grad_i,  grad_i = (U_i V_i^T + S_i - M_i^T) V_i + rho n_i/n U_i                          (8)
    5.     sites send U_i;  U <- their average (9)
    6. in the end sites send [V_i 1]^T [V_i 1] and counts of residuals, from which components and variances follow, and whether
       the answer is in doubt (``robust/doubts.py``)

Leaves the site
    U_i (d x k) and the value of its objective each round, in the end (k + 1) x (k + 1) products and d + 160 counts; all summed.
    Whoever sees single U_i sees how the site's rows differ from the others'.

Cost
    8 d k bytes each way and K sweeps 8 n_i d k flops per site and round.

As printed
    ``DCF(K=2, step=0.05, decay=True, units="rows", lam=1, rho=1)`` is what the paper runs for its Figure 2: rows as they are, the
    step eta_0 / sqrt(t + 1) the same at all sites.  lambda and rho are not printed.

Differences from the paper
    By default rows are divided by the agreed size of an entry, so that lambda and rho mean the same for all data, and
    ``step="auto"`` is 1 / (||V_i||_2^2 + rho n_i/n) at each site, so that no hand sets it for a problem.  (8) is printed with the
    V_i and S_i from before (7); Lemma 2 and the text want those that (7) gives, and they are taken.  V_i begins at the scores of
    rows cut off at three deviations instead of at random, and S_i is not stored: (16) gives it from V_i.  L_i = U V_i^T and S_i
    are those that (7) gives for the last U (``solve``); the paper's V_i belong to the U_i before the last step.  Missing entries
    take part as if U V_i^T were right there.  With K = 1 and a fixed step, (9) is one gradient step on the sum with eta / E, as
    the paper says; with "auto" it is not.  The soft threshold leaves a bias of about lambda in L, which (30) hardly shows, being
    squared and divided by ||S_0||_F^2.

References
    W. Chu, "Distributed robust principal component analysis", Algorithm 1 and Section 3.

>>> import numpy as np, eigenpact as ep
>>> sites, truth, errors = ep.datasets.corrupted_problem(60, 200, rank=3, share=0.05, sites=2)
>>> pca = ep.RobustPCA(3, solver="dcf", center=False, random_state=0).fit(sites)
>>> bool(np.abs(pca.low_rank("site0") - truth["site0"]).max() < 0.2), pca.converged_
(True, True)
"""

from __future__ import annotations

from math import prod
from typing import Any, Literal

import numpy as np
import scipy.linalg

from ...errors import InputError
from ...numerics.either import cut_back, full, kept_where, length, ridge_solution, spectral_norm, there, zeros
from ...numerics.elsewhere import namespace, to_numpy
from ...numerics.linalg import Array, orthonormalize, random_orthonormal
from ...numerics.metrics import mean_sine
from ...runtime import Progress, Reply, Site, Sum, local
from ..method import method
from ..parameters import check_positive, check_whole
from ..solution import State
from .agreement import RobustSetup
from .doubts import DOUBTS, doubt_about
from .entries import MEDIANS, check_many, count_rows, entries_there, seen_rows, trusted
from .solution import RobustSolution, Soft, principal_axes
from .thresholds import LEVELS, START, Residuals, tally

STEADY, WILD = 0.9, 1e8
"""U is not at rest while its size falls below STEADY of itself in a round (rho may be too large) or grows by as much; growing by
WILD it is lost."""

CHUNK, MOST_CHUNKS, AT_REST = 10, 100, 1e-10
"""(7) is solved by so many sweeps at a time, so many times at most, until V moves by no more than AT_REST of itself."""


@local(
    takes={"U": "d k", "unit": "", "weights": "3", "eta": "", "scaled": "", "K": "", "sweeps": ""},
    sends={"U": "d k", "objective": ""},
    reads=(*MEDIANS, "V"),
    keeps=("V",),
    means={"unit": "scale", "weights": "threshold", "eta": "threshold", "scaled": "count", "K": "count", "sweeps": "count"},
)
def descend(site: Site, U: Array, unit: Any, weights: Array, eta: Any, scaled: Any, K: Any, sweeps: Any) -> Reply:
    """Lines 3 and 4; ``weights`` are lambda, rho and rho / n, and a ``scaled`` eta is divided by the curvature at this site."""
    lam, rho, rho_n = weights.tolist()
    X, n = site.X, site.X.shape[0]
    V = site.kept.get("V")
    objective = None
    for _ in range(int(K)):
        V_new, descent, value, rows = zeros((n, U.shape[1]), X), zeros(U.shape, X), 0.0, 0
        U_there = there(U, X)
        for where, M, observed in entries_there(site):
            M /= float(unit)
            first = scores(cut_back(M, START), U_there, rho) if V is None else V[where, :]
            V_i, E, objective_i = minimize(M, observed, U_there, first, lam, rho, int(sweeps))
            V_new[where, :] = V_i
            descent += E.T @ V_i
            value += objective_i
            rows += count_rows(M, observed)
        V, ridge = V_new, rho_n * rows
        objective = value + 0.5 * ridge * float(np.sum(U * U)) if objective is None else objective
        curvature = spectral_norm(V) ** 2 + ridge if bool(scaled) else 1.0
        U = U + float(eta) / max(curvature, np.finfo(float).tiny) * (to_numpy(descent) - ridge * U)  # (8)
    return Reply((U, np.float64(objective or 0.0)), keep={"V": V})


@local(
    takes={"U": "d k", "unit": "", "tau": ""},
    sends={"B": "k+1 k+1", "trusted": "d", "counts": "160"},
    reads=(*MEDIANS, "V"),
    bound={"trusted": "count", "counts": "count"},
    means={"unit": "scale", "tau": "threshold"},
)
def score_products(site: Site, U: Array, unit: Any, tau: Any) -> Any:
    """Line 6, for the rows in units of ``unit``."""
    (d, k), X, tau = U.shape, site.X, float(tau)
    B, U_there = zeros((k + 1, k + 1), X), there(U, X)
    by_feature, counts = np.zeros(d, dtype=np.int64), np.zeros(LEVELS, dtype=np.int64)
    for where, M, observed in entries_there(site):
        xp, V = namespace(M), site.kept["V"][where, :]
        R = M / float(unit) - V @ U_there.T
        W = trusted(R, observed, tau)
        V_1 = kept_where(xp.concat([V, full((V.shape[0], 1), 1.0, V)], axis=1), seen_rows(observed))
        B += V_1.T @ V_1
        here = to_numpy(xp.count_nonzero(W, axis=0)).astype(np.int64)
        by_feature += here
        counts += tally(kept_where(R, W), prod(W.shape) - int(here.sum()), tau)
    check_many(by_feature, site.min_rows)
    return to_numpy(B), by_feature, counts


def scores(M: Any, U: Any, ridge: float) -> Any:
    """The ridge regression scores M U (U^T U + ridge I)^-1 (n x k), (15)."""
    return ridge_solution(U.T @ U, (M @ U).T, ridge).T


def minimize(M: Any, observed: Any, U: Any, V: Any, lam: float, rho: float, sweeps: int) -> tuple[Any, Any, float]:
    """(7) for rows M (n x d) from scores V (n x k): new scores, what S leaves of the residual (n x d), and the value of (10)."""
    for sweep in range(sweeps + 1):
        R = M - V @ U.T
        E = kept_where(cut_back(R, lam), observed)  # M - U V^T - S, by (16)
        R = kept_where(R, observed)
        if sweep < sweeps:
            V = scores(V @ U.T + E, U, rho)
    total = namespace(M).sum
    value = 0.5 * float(total(E * E)) + lam * float(total(abs(R - E))) + 0.5 * rho * float(total(V * V))
    return V, E, value


def solve(M: Any, observed: Any, U: Any, V: Any, lam: float, rho: float) -> Any:
    """The V (n x k) at which (7) is least for rows M (n x d), from scores V; U V^T is then the paper's L_i."""
    for _ in range(MOST_CHUNKS):
        V_prev, (V, _, _) = V, minimize(M, observed, U, V, lam, rho, CHUNK)
        if length(V - V_prev) <= AT_REST * length(V):
            break
    return V


@method("robust", {Sum: (descend, score_products)}, parts=(DOUBTS,))
class DCF:
    """Distributed consensus factorization, the paper's Algorithm 1.

    Parameters
    ----------
    K : int
        Local steps a round.
    lam, rho : float
        lambda and rho of (4), for rows in these ``units``.
    step : "auto" or float
        "auto" divides by the curvature at each site; a number is the paper's eta_0.
    decay : bool
        Divide the step by sqrt(t + 1) in round t = 0, 1, ...
    sweeps : int
        Alternations of (15) and (16) in each local step.
    units : "entry" or "rows"
        What lam, rho and step are meant for: rows divided by the agreed size of an entry, or rows as they are, as in the paper.
    """

    K: int = 10
    lam: float = 0.03
    rho: float = 0.01
    step: Literal["auto"] | float = "auto"
    decay: bool = False
    sweeps: int = 2
    units: Literal["entry", "rows"] = "entry"

    name = "dcf"
    default_tol = 1e-6

    def __post_init__(self) -> None:
        check_whole("K", self.K)
        check_whole("sweeps", self.sweeps)
        check_positive("lam", self.lam)
        check_positive("rho", self.rho)
        if self.step != "auto":
            check_positive("step", self.step, ", or 'auto'")
        if self.units not in ("entry", "rows"):
            raise InputError(f"units={self.units!r} must be 'entry' or 'rows'")

    async def fit(self, setup: RobustSetup, start: Array | None = None, state: State | None = None) -> RobustSolution:  # noqa: ARG002
        """Descend and average until U rests."""
        tol, problem, n, d = setup.stopping_tol(self.default_tol), setup.problem, setup.n_samples, setup.n_features
        if problem.rank != "exact":
            raise InputError("solver='dcf' keeps all components it is given; use rank='exact', or solver='shrinking'")
        unit = np.float64(setup.size or 1.0)
        told = 1.0 if self.units == "entry" else float(unit)  # one unit of the rows as lam, rho and step mean them
        lam = self.lam / told
        basis = random_orthonormal(d, setup.n_components, problem.seed) if start is None else orthonormalize(start)
        U = np.sqrt(d) * basis  # line 1
        counts = np.int64(self.K), np.int64(self.sweeps)
        weights, scaled = np.array([lam, self.rho, self.rho / (n * told**2)]), np.bool_(self.step == "auto")
        for t in range(max(1, problem.last_round - 1)):  # line 2
            eta = (1.0 if self.step == "auto" else float(self.step) * told**2) / (np.sqrt(t + 1) if self.decay else 1.0)
            total, objective = await Sum(descend, U, unit, weights, np.float64(eta), scaled, *counts)  # lines 3, 4
            U, size = total / setup.n_sites, float(np.linalg.norm(U))  # line 5
            growth = float(np.linalg.norm(U)) / size if size > 0 else 0.0
            if not growth < WILD:
                raise InputError(
                    f"step={self.step!r} is too long: U grows by {growth:.1e} in round {t + 1}; take less, or 'auto'"
                )
            basis_prev, basis = basis, orthonormalize(U)
            turn = mean_sine(basis, basis_prev)
            await Progress(basis=basis, details={"turn": turn, "objective": float(objective) * told**2})
            converged = turn <= tol and STEADY < growth < 1 / STEADY
            if converged:
                break
        B, by_feature, levels = await Sum(score_products, U, unit, np.float64(lam))  # line 6
        residuals = Residuals(levels, lam, int(setup.observed.sum()))
        Q, triangle = scipy.linalg.qr(U, mode="economic")  # V U^T = (V R^T) Q^T
        turned = scipy.linalg.block_diag(triangle, 1.0)
        B = turned @ B @ turned.T
        values, axes, mean = principal_axes(Q, B, n, setup.centred)
        reason = (
            f"the basis turned by {turn:.1e}, within tol {tol:.1e}"
            if converged
            else f"max_rounds={problem.max_rounds} reached: the basis still turned by {turn:.1e} (tol {tol:.1e}) and U changed "
            f"in size by a factor of {growth:.2g}; raise max_rounds, or use solver='shrinking'"
        )
        if converged:
            _, doubt = await doubt_about(Q, B, triangle.T, by_feature, setup, problem.last_round - t - 2)
            converged, reason = not doubt, f"{reason}, but {doubt}" if doubt else reason
        return RobustSolution(
            basis=axes,
            eigenvalues=values * unit**2,
            shift=mean * unit,
            threshold=lam * float(unit),
            deviation=residuals.deviation * float(unit),
            share=1 - residuals.trusted / residuals.observed,
            converged=converged,
            reason=reason,
            soft=Soft(U, self.rho),
        )
