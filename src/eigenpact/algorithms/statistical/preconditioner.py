"""One site's rows as a preconditioner: (s I - C_1)^-1 for shifts s above the spectrum, after Section 4.2 of the paper.

When rows at all sites come from one distribution, C_1 of a single site, scaled to the size of the pooled C, is close to C.  So
(s I - C_1)^-1 nearly inverts s I - C, and costs no round where the coordinator is at that site.  How far it can be trusted is
estimated from that site alone: mu is half the spectral distance between the scatters of two halves of its rows.  Where a bound
on the length of rows is given, mu is the paper's (Theorem 6), which needs no estimate and is far larger.

References
    D. Garber, O. Shamir, N. Srebro, ICML 2017, Section 4.2 (C = (lambda + mu) I - X_1), Theorem 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from scipy.sparse.linalg import LinearOperator, eigsh

from ...errors import InputError
from ...numerics.leading import DENSE_SIDE
from ...numerics.linalg import Array
from ...numerics.rows import Rows
from ...runtime import At, Reply, Site, local
from ..method import Part
from ..setup import CENTRE, Setup, rows_of

MOST_PAIRS = 200
"""Eigenpairs kept of a site with more than ``DENSE_SIDE`` rows and features; of a smaller one all are."""

SMALLEST_DIFFERENCE = 1e-10
"""Least difference of a shift and an eigenvalue, as a share of the largest eigenvalue; matters only where mu is zero."""

DISTANCE_ACCURACY = 1e-2
"""Relative accuracy of mu for many features."""

FAILURE = 0.1
"""Probability p with which Theorem 6 may fail."""


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
        Spectral distance to C, estimated or bounded.
    least : float
        Differences of a shift and an eigenvalue below this are taken to be this.
    """

    V: Array
    values: Array
    rest: float
    mu: float
    least: float = 0.0

    def solve(self, R: Array, shifts: Array) -> Array:
        """Columns (s_j I - model)^-1 r_j of R (d x k) with shifts s_j (k); ``least`` keeps the inverse positive."""
        least = max(self.least, SMALLEST_DIFFERENCE * float(self.values[0]))
        inside = self.V.T @ R
        outside = R - self.V @ inside
        steps = np.maximum(shifts - self.values[:, None], least)
        return self.V @ (inside / steps) + outside / np.maximum(shifts - self.rest, least)


def spectrum_of(rows: Rows, trace: float) -> Spectrum:
    """The spectrum of a site's scatter, scaled to the pooled trace; mu from two halves of the rows.

    Differences below mu are taken to be mu: the model cannot tell them from it.
    """
    own = float(rows.column_squares().sum())
    scale = trace / own if own > 0 else 0.0
    mu = half_distance(rows) * scale
    return _scaled(rows, scale, mu, least=mu)


def bounded_spectrum(rows: Rows, samples: int, row_bound: float) -> Spectrum:
    """As the paper has it: the site's scatter scaled by rows, from n to all ``samples``, and the mu of Theorem 6."""
    return _scaled(rows, samples / rows.n, samples * theorem_6_mu(rows.d, rows.n, row_bound), least=0.0)


def theorem_6_mu(d: int, n: int, row_bound: float = 1.0, failure: float = FAILURE) -> float:
    """mu = 4 b sqrt(ln(3 d / p) / n) for n rows y with d features and ||y||^2 <= b, in units of the covariance.

    The paper has b = 1.  Rows y / sqrt(b) have that, and a covariance b times smaller, so that mu is b times as large.

    >>> round(theorem_6_mu(300, 1600), 4), round(theorem_6_mu(300, 1600, row_bound=9.0) / theorem_6_mu(300, 1600), 12)
    (0.3017, 9.0)
    """
    return float(4 * row_bound * np.sqrt(np.log(3 * d / failure) / n))


def _scaled(rows: Rows, scale: float, mu: float, least: float) -> Spectrum:
    side = min(rows.n, rows.d)
    values, V = rows.top(side if side <= DENSE_SIDE else MOST_PAIRS)
    own = float(rows.column_squares().sum())
    left_over = max(0.0, own - float(values.sum())) / (rows.d - len(values)) if len(values) < rows.d else 0.0
    return Spectrum(V, np.maximum(values, 0.0) * scale, left_over * scale, mu, least)


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
    return _kept(spectrum_of(rows_of(site), float(trace)), int(k))


@local(
    takes={"samples": "", "row_bound": "", "k": ""},
    sends={"values": "k+1", "mu": ""},
    reads=CENTRE,
    keeps=("spectrum",),
    means={"samples": "count", "row_bound": "threshold", "k": "count"},
)
def keep_bounded_spectrum(site: Site, samples: Any, row_bound: Any, k: Any) -> Reply:
    """The same with the scale and the mu of the paper, for rows whose squared length is at most ``row_bound``."""
    return _kept(bounded_spectrum(rows_of(site), int(samples), float(row_bound)), int(k))


def _kept(spectrum: Spectrum, k: int) -> Reply:
    """What is told of a spectrum, and all of it to be kept."""
    return Reply(
        send=(_leading(spectrum.values, k + 1), np.float64(spectrum.mu)),
        keep={"spectrum": (spectrum.V, spectrum.values, spectrum.rest, spectrum.mu, spectrum.least)},
    )


@local(takes={"R": "d k", "shifts": "k"}, sends={"T": "d k"}, reads=("spectrum",), bound="none")
def precondition(site: Site, R: Array, shifts: Array) -> Array:
    """Columns (s_j I - C_1)^-1 r_j, with the site's own scatter C_1 in the pooled scale."""
    return Spectrum(*site.kept["spectrum"]).solve(R, shifts)


@dataclass(frozen=True, eq=False)
class Preconditioner:
    """(s I - M)^-1 for a model M of the pooled scatter that the coordinator can use without a round.

    ``values`` are the model's largest eigenvalues, ``mu`` its spectral distance to C, estimated or bounded.
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


async def preconditioner(
    setup: Setup, proxy: Any, k: int, facts: Array | None = None, row_bound: float | None = None
) -> Preconditioner | None:
    """The preconditioner that a proxy gives: the coordinator's own site (by name) or public rows (n x d).

    ``facts`` are those of the run that is resumed, whose site has its spectrum already.  With ``row_bound``, a bound on the
    squared length of every row at every site, mu is the paper's.
    """
    if proxy is None or setup.trace <= 0:
        return None
    if row_bound is not None and setup.trace > setup.n_samples * row_bound * (1 + SMALLEST_DIFFERENCE):
        mean = setup.trace / setup.n_samples
        raise InputError(f"row_bound={row_bound} is below the mean squared length of all rows, {mean:.4g}; give a bound on each")
    if not isinstance(proxy, str):
        rows = setup.public_rows(proxy)
        spectrum = spectrum_of(rows, setup.trace) if row_bound is None else bounded_spectrum(rows, setup.n_samples, row_bound)
        return Preconditioner(spectrum, _leading(spectrum.values, k + 1), spectrum.mu)
    if facts is not None:
        return Preconditioner(proxy, facts[:-1], float(facts[-1]))
    if row_bound is None:
        values, mu = await At(proxy, keep_spectrum, np.float64(setup.trace), np.int64(k))
    else:
        values, mu = await At(proxy, keep_bounded_spectrum, np.int64(setup.n_samples), np.float64(row_bound), np.int64(k))
    return Preconditioner(proxy, values, float(mu))


def _leading(values: Array, count: int) -> Array:
    """The largest eigenvalues; zero where there are no more."""
    return np.concatenate([values, np.zeros(count)])[:count]


PRECONDITIONER = Part(
    "Preconditioner of davidson and shift-invert",
    {At: (keep_spectrum, keep_bounded_spectrum, precondition)},
    "These run only with `proxy=` a site's name, and only at that site. `keep_bounded_spectrum` is for `row_bound=`.",
)
