"""One site's rows as a preconditioner: (s I - C_1)^-1 for shifts s above the spectrum, after Section 4.2 of the paper.

When rows at all sites come from one distribution, C_1 of a single site, scaled to the size of the pooled C, is close to C.  So
(s I - C_1)^-1 nearly inverts s I - C, and costs no round where the coordinator is at that site.  How far it can be trusted is
estimated from that site alone: mu is half the spectral distance between the scatters of two halves of its rows.

References
    D. Garber, O. Shamir, N. Srebro, ICML 2017, Section 4.2 (C = (lambda + mu) I - X_1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from scipy.sparse.linalg import LinearOperator, eigsh

from ...numerics.linalg import Array
from ...numerics.rows import DENSE_SIDE, Rows
from ...runtime import At, Reply, Site, local
from ..method import Part
from ..setup import CENTRE, Setup, rows_of

MOST_PAIRS = 200
"""Eigenpairs kept of a site with more than ``DENSE_SIDE`` rows and features; of a smaller one all are."""

SMALLEST_DIFFERENCE = 1e-10
"""Least difference of a shift and an eigenvalue, as a share of the largest eigenvalue; matters only where mu is zero."""

DISTANCE_ACCURACY = 1e-2
"""Relative accuracy of mu for many features."""


@dataclass(frozen=True, eq=False)
class Spectrum:
    """A model of the pooled scatter: V diag(values) V^T + rest (I - V V^T), and how far from C it may be.

    Attributes
    ----------
    V : (d, t) array
        Orthonormal eigenvectors.
    values : (t,) array
        Their eigenvalues, descending.
    rest : float
        Eigenvalue of everything else.
    mu : float
        Estimated spectral distance to C.
    """

    V: Array
    values: Array
    rest: float
    mu: float

    def solve(self, R: Array, shifts: Array) -> Array:
        """Columns (s_j I - model)^-1 r_j of R (d x k) with shifts s_j (k).

        Differences below mu are taken to be mu: the model cannot tell them from it, and the preconditioner stays positive.
        """
        least = max(self.mu, SMALLEST_DIFFERENCE * float(self.values[0]))
        inside = self.V.T @ R
        outside = R - self.V @ inside
        steps = np.maximum(shifts - self.values[:, None], least)
        return self.V @ (inside / steps) + outside / np.maximum(shifts - self.rest, least)


def spectrum_of(rows: Rows, trace: float) -> Spectrum:
    """The spectrum of a site's scatter, scaled to the pooled trace."""
    own = float(rows.column_squares().sum())
    scale = trace / own if own > 0 else 0.0
    side = min(rows.n, rows.d)
    values, V = rows.top(side if side <= DENSE_SIDE else MOST_PAIRS)
    left_over = max(0.0, own - float(values.sum())) / (rows.d - len(values)) if len(values) < rows.d else 0.0
    return Spectrum(V, np.maximum(values, 0.0) * scale, left_over * scale, half_distance(rows) * scale)


def half_distance(rows: Rows) -> float:
    """Half the spectral distance between twice the scatters of two random halves of the rows; of a single row, its own square.

    >>> half_distance(Rows(np.array([[3.0, 0.0], [0.0, 1.0]])))
    9.0
    """
    if rows.n == 1:
        return float(rows.column_squares().sum())
    order = np.random.default_rng(0).permutation(rows.n)
    one, other = rows.take(order[::2]), rows.take(order[1::2])
    weights = rows.n / one.n / 2, rows.n / other.n / 2
    if rows.d <= DENSE_SIDE:
        difference = weights[0] * one.scatter() - weights[1] * other.scatter()
        return float(np.abs(scipy.linalg.eigvalsh(difference, check_finite=False)).max())

    def action(v: Array) -> Array:
        column = v.reshape(-1, 1)
        return (weights[0] * one.scatter_action(column) - weights[1] * other.scatter_action(column)).ravel()

    operator = LinearOperator((rows.d, rows.d), matvec=action, dtype=np.float64)
    start = np.random.default_rng(1).standard_normal(rows.d)
    if not action(start).any():
        return 0.0
    return float(abs(eigsh(operator, k=1, v0=start, tol=DISTANCE_ACCURACY, return_eigenvectors=False)[0]))


@local(
    takes={"trace": "", "k": ""},
    sends={"values": "k+1", "mu": ""},
    reads=CENTRE,
    keeps=("spectrum",),
    means={"trace": "trace", "k": "count"},
)
def keep_spectrum(site: Site, trace: Any, k: Any) -> Reply:
    """Remember the own spectrum; tell its k + 1 largest eigenvalues, in the pooled scale, and mu."""
    spectrum = spectrum_of(rows_of(site), float(trace))
    return Reply(
        send=(_leading(spectrum.values, int(k) + 1), np.float64(spectrum.mu)),
        keep={"spectrum": (spectrum.V, spectrum.values, spectrum.rest, spectrum.mu)},
    )


@local(takes={"R": "d k", "shifts": "k"}, sends={"T": "d k"}, reads=("spectrum",), bound="none")
def precondition(site: Site, R: Array, shifts: Array) -> Array:
    """Columns (s_j I - C_1)^-1 r_j, with the site's own scatter C_1 in the pooled scale."""
    return Spectrum(*site.kept["spectrum"]).solve(R, shifts)


@dataclass(frozen=True, eq=False)
class Preconditioner:
    """(s I - M)^-1 for a model M of the pooled scatter that the coordinator can use without a round.

    ``values`` are the model's largest eigenvalues, ``mu`` its estimated spectral distance to C.
    """

    where: str | Spectrum
    values: Array
    mu: float

    async def apply(self, R: Array, shifts: Array) -> Array:
        """Columns (s_j I - M)^-1 r_j of R (d x k)."""
        if isinstance(self.where, Spectrum):
            return self.where.solve(R, shifts)
        T: Array = await At(self.where, precondition, R, shifts)
        return T

    def facts(self) -> Array:
        """What a journal must know of it: eigenvalues and mu."""
        return np.append(self.values, self.mu)


async def preconditioner(setup: Setup, proxy: Any, k: int, facts: Array | None = None) -> Preconditioner | None:
    """The preconditioner that a proxy gives: the coordinator's own site (by name) or public rows (n x d).

    ``facts`` are those of the run that is resumed, whose site has its spectrum already.
    """
    if proxy is None or setup.trace <= 0:
        return None
    if not isinstance(proxy, str):
        spectrum = spectrum_of(setup.public_rows(proxy), setup.trace)
        return Preconditioner(spectrum, _leading(spectrum.values, k + 1), spectrum.mu)
    if facts is not None:
        return Preconditioner(proxy, facts[:-1], float(facts[-1]))
    values, mu = await At(proxy, keep_spectrum, np.float64(setup.trace), np.int64(k))
    return Preconditioner(proxy, values, float(mu))


def _leading(values: Array, count: int) -> Array:
    """The largest eigenvalues; zero where there are no more."""
    return np.concatenate([values, np.zeros(count)])[:count]


PRECONDITIONER = Part(
    "Preconditioner of davidson and shift-invert",
    {At: (keep_spectrum, precondition)},
    "These run only with `proxy=` a site's name, and only at that site.",
)
