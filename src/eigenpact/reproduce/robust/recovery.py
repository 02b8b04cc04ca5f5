"""Solvers on a matrix whose low-rank part is known, and how near they come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...algorithms.robust.solution import RobustAlgorithm
from ...estimators import RobustPCA
from ...numerics.linalg import Array
from ...runtime import RoundRecord
from ..measuring import Stopwatch, fit_quietly
from ..registry import Watch
from .pursuit import Pursuit

Sites = Mapping[str, Array]
Corrupted = tuple[Sites, Sites, Sites]

OUR_ROUNDS, DCF_ROUNDS = 60, 60
"""Rounds for shrinking thresholds, and in Figures 3 and 4 for DCF-PCA."""

MEASURE = (
    "relL = ||L - L_0||_F / ||L_0||_F is what counts.  err is the paper's (30): squared and divided by ||L_0||^2 + ||S_0||^2, so "
    "1e-9 there still allows 1e-3 in L."
)


@dataclass(frozen=True)
class Recovered:
    """What a solver recovered: relL, the paper's err, rounds or iterations, seconds, and after each of them a distance."""

    name: str
    distance: float
    err: float
    rounds: int
    seconds: float
    converged: bool
    curve: tuple[float, ...]


def fitted(rows: Sites, rank: int, seed: int, **options: Any) -> RobustPCA:
    """A fit without centring; that it did not converge is told by ``converged_``."""
    return fit_quietly(RobustPCA(rank, center=False, random_state=seed, **options), rows)


def recovered(
    problem: Corrupted,
    rank: int,
    *,
    solver: str | RobustAlgorithm = "shrinking",
    max_rounds: int = 200,
    seed: int = 0,
    name: str = "",
    watch: Watch | None = None,
) -> Recovered:
    """Run a federated solver and compare what it found with what was generated."""
    rows, low_rank, sparse = problem
    curve, clock = list[float](), Stopwatch()
    L0 = np.concatenate(list(low_rank.values()))
    whole = float(np.linalg.norm(L0))

    def callback(record: RoundRecord) -> None:
        with clock.apart():
            if record.basis is not None and watch is not None:
                curve.append(float(np.linalg.norm(L0 - (L0 @ record.basis) @ record.basis.T)) / whole)
                watch.on_round(f"{name}: round {record.round}, L_0 is {curve[-1]:.1e} from the span")

    pca = fitted(rows, rank, seed, solver=solver, max_rounds=max_rounds, callback=callback if watch else None)
    seconds = clock.seconds
    parts = {site: pca.decompose(X) for site, X in rows.items()}
    off = sum(float(np.sum((parts[site][0] - L) ** 2)) for site, L in low_rank.items())
    wrong = sum(float(np.sum((parts[site][1] - S) ** 2)) for site, S in sparse.items())
    err = (off + wrong) / (whole**2 + sum(float(np.sum(S**2)) for S in sparse.values()))
    distance, rounds = np.sqrt(off) / whole, int(pca.n_rounds_)
    found = Recovered(name or pca.solver_, distance, err, rounds, seconds, bool(pca.converged_), tuple(curve))
    if watch is not None:
        watch.on_run(f"{found.name}: relL {distance:.1e}, err {err:.1e}, {rounds} rounds, {seconds:.1f} s")
    return found


def pursued(problem: Corrupted, method: Callable[..., Pursuit], name: str, watch: Watch) -> Recovered:
    """Run a centralised method on the pooled rows."""
    M, L0, S0 = (np.concatenate(list(part.values())) for part in problem)
    whole = float(np.linalg.norm(L0))
    curve, clock = list[float](), Stopwatch()

    def each(iteration: int, L: Array, _: Array) -> None:
        with clock.apart():
            curve.append(float(np.linalg.norm(L - L0)) / whole)
            watch.on_round(f"{name}: iteration {iteration}, relL {curve[-1]:.1e}")

    found = method(M, watch=each)
    seconds = clock.seconds
    off, wrong = float(np.sum((found.low_rank - L0) ** 2)), float(np.sum((found.sparse - S0) ** 2))
    err = (off + wrong) / (whole**2 + float(np.sum(S0**2)))
    watch.on_run(f"{name}: relL {curve[-1]:.1e}, err {err:.1e}, {found.iterations} iterations, {seconds:.1f} s")
    return Recovered(name, curve[-1], err, found.iterations, seconds, True, tuple(curve))
