"""What solvers are measured by, where all rows are at hand: the pooled scatter, and the exact components of the pooled rows."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import scipy.linalg

from ..algorithms.consensus.krylov import Krylov
from ..algorithms.method import method
from ..algorithms.setup import TIGHTEST_TOL, Setup
from ..algorithms.solution import Solution, residual_angle
from ..estimators import FederatedPCA
from ..numerics.blas import limited_blas
from ..numerics.linalg import Array
from ..numerics.metrics import kkt, largest_sine
from ..numerics.rows import Rows
from .watching import Watched, unwarned

DENSE_FEATURES = 2000
"""Up to this many features (and no more than rows) the pooled scatter is formed once, to measure residuals."""

SVD_ENTRIES, SVD_FLOPS = 6e7, 1e11
"""Pooled rows up to this size are decomposed for the truth: half a gigabyte, and some seconds."""

TRUTH_ROUNDS = 1000
"""Rounds in which larger problems must reach rounding level; what is missing shows in the uncertainty."""

UNDETERMINED = 0.01
"""Where rounding alone could turn the exact components by this sine, angles to them mean nothing."""


@dataclass(frozen=True, eq=False)
class Reference:
    """The exact components of the pooled rows: columns of ``basis`` (d x k), how they were found, and how sure they are.

    ``uncertainty`` is the sine of the angle by which they may be off: for rounding, and because the next variance is close.
    """

    basis: Array
    how: str
    uncertainty: float
    seconds: float

    @property
    def determined(self) -> bool:
        """Whether an angle to the components means anything."""
        return self.uncertainty < UNDETERMINED

    def sine(self, Z: Array) -> float | None:
        """Sine of the largest angle between the span of Z (d x k) and the truth; None where there is no saying."""
        return largest_sine(Z, self.basis) if self.determined and Z.shape == self.basis.shape else None


@dataclass(frozen=True, eq=False)
class Pooled:
    """All rows, centred and scaled as the solvers see them; ``scatter`` (d x d) where it pays to form it."""

    setup: Setup
    rows: tuple[Rows, ...]
    scatter: Array | None

    def residual(self, Z: Array) -> float:
        """Scaled KKT residual of an orthonormal basis Z (d x k) on the pooled scatter."""
        G = self.scatter @ Z if self.scatter is not None else reduce(np.add, (rows.scatter_action(Z) for rows in self.rows))
        return kkt(G, Z, self.setup.trace)


def pool(held: Mapping[str, Any], settings: Mapping[str, Any]) -> Pooled:
    """The pooled rows of checked sites (name -> n_i x d); raises for settings of ``FederatedPCA`` that suit no solver."""
    agreed: list[Setup] = []
    FederatedPCA(**settings, solver=_SetUpOnly(agreed)).fit(held)
    (setup,) = agreed
    scale = None if np.all(setup.scale == 1.0) else setup.scale
    rows = []
    for X in held.values():
        centre = Rows(X).column_sums() / X.shape[0] if setup.center == "site" else setup.mean
        rows.append(Rows(X, None if setup.center is False else centre, scale))
    dense = setup.n_features <= min(DENSE_FEATURES, setup.n_samples)
    return Pooled(setup, tuple(rows), reduce(np.add, (r.scatter() for r in rows)) if dense else None)


def exact(pooled: Pooled, held: Mapping[str, Any], settings: Mapping[str, Any]) -> Reference:
    """The exact components of the pooled rows, by the safest way that their size allows."""
    n, d = pooled.setup.n_samples, pooled.setup.n_features
    smaller = min(n, d)
    small = n * d <= SVD_ENTRIES and 2.0 * n * d * smaller + 20.0 * smaller**3 <= SVD_FLOPS
    with limited_blas(1):  # as the solvers: more threads are slower where others compute, too
        return _decomposed(pooled) if small else _iterated(held, settings)


@method("consensus")
@dataclass(frozen=True, eq=False)
class _SetUpOnly:
    """A solver that stops before its first round, and keeps what the sites agreed on."""

    agreed: list[Setup]

    name = "set-up only"
    default_angle = 1.0

    async def fit(self, setup: Setup, start: Array | None = None, state: Mapping[str, Array] | None = None) -> Solution:  # noqa: ARG002
        """Keep the set-up."""
        self.agreed.append(setup)
        return Solution(np.eye(setup.n_features, 1), np.zeros(1), None, None, True, "set-up only")


def _decomposed(pooled: Pooled) -> Reference:
    """By a singular value decomposition of the pooled rows."""
    begin = time.perf_counter()
    setup, d = pooled.setup, pooled.setup.n_features
    Y = np.concatenate([_dense(rows) for rows in pooled.rows])
    if setup.n_samples > d:
        Y = np.asarray(np.linalg.qr(Y, mode="r"))
    _, lengths, Vt = scipy.linalg.svd(Y, full_matrices=False, check_finite=False)
    k = setup.wanted(lengths**2) or len(lengths)
    following = float(lengths[k]) if k < len(lengths) else 0.0
    rounding = float(np.finfo(float).eps * lengths[0])
    return Reference(
        basis=np.ascontiguousarray(Vt[:k].T),
        how=f"singular value decomposition of all {setup.n_samples} rows (scipy, float64)",
        uncertainty=0.0 if k == d else residual_angle(rounding, float(lengths[k - 1]), following),
        seconds=time.perf_counter() - begin,
    )


def _iterated(held: Mapping[str, Any], settings: Mapping[str, Any]) -> Reference:
    """By block Krylov to rounding level, for pooled rows too large to decompose."""
    begin = time.perf_counter()
    engine, tightest = Watched(), {"tol": TIGHTEST_TOL, "max_rounds": TRUTH_ROUNDS}
    with unwarned():  # told by the uncertainty
        pca = FederatedPCA(**{**settings, **tightest}, solver=Krylov(), engine=engine).fit(held)
    return Reference(
        basis=engine.bases[-1],
        how=f"block Krylov on all {pca.n_samples_seen_} rows, {pca.stop_reason_}",
        uncertainty=1.0 if pca.angle_estimate_ is None else pca.angle_estimate_,
        seconds=time.perf_counter() - begin,
    )


def _dense(rows: Rows) -> Array:
    """Y = (X - 1 mean^T) / scale (n x d)."""
    X = rows.X[:] if rows.streamed else rows.X
    Y: Array = np.asarray(X.toarray() if rows.sparse else X, dtype=np.float64)
    Y = Y if rows.mean is None else Y - rows.mean
    return Y if rows.scale is None else Y / rows.scale
