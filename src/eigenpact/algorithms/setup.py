"""What every solver agrees on before its first block: counts, mean, scale and trace, as sums over sites.

Problem
    Site i holds rows X_i (n_i x d).  All solvers work on the scatter C = sum_i Y_i^T Y_i of the rows Y_i = (X_i - 1 m^T) D^-1,
    where m is the pooled mean (``center="pooled"``), the site's own mean (``"site"``) or zero (``False``), and D the pooled
    standard deviations (``scale="pooled"``) or the identity.

Rounds
    1. Sum of n_i and of the rows.
    2. Sum of squared deviations about the site's mean, and of n_i ||m_i - m||^2: a second pass, because the difference of two
       large numbers would lose the digits that matter.  The site's mean m_i is rounded, too; the mean of what it leaves of the
       rows is added to m_i - m, and taken from the deviations.  So both add up to the squares of X_i - 1 m^T for the very m that
       was sent, which are the rows that solvers use.
    Then every site is told the centre and the scale once, and keeps them.

Leaves the site
    n_i, the sums of its columns (d), then two numbers (or two vectors of length d when features are scaled), all summed.

References
    T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for computing the sample variance", Am. Stat. 37 (1983), on two passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..numerics.linalg import Array
from ..numerics.rows import Rows
from ..runtime import Local, Reply, Site, Sum, local
from .method import Part

LARGEST_TRACE = 1e140
"""Norms square what they add up; beyond this trace, and below its inverse, they would overflow or vanish."""

LEAST_SQUARES = 1e-290
"""Squares of a feature that add up to less have lost digits, or all of them."""

NOISE = 1e-13
"""Deviations below this share of the mean may be rounding errors of the mean."""

TIGHTEST_TOL = 1e-14
"""Residuals below this share of the trace are rounding errors."""

OTHER_UNITS = "give the data in other units, for example"

CENTRE = ("mean", "scale")
"""Names under which a site keeps what :func:`rows_of` reads: declare ``reads=CENTRE`` where you call it."""

Center = Literal["pooled", "site", False]
Scale = Literal["pooled"] | None


@local(
    sends={"sites": "", "singles": "", "n": "", "sums": "d"},
    bound={"sites": "count", "singles": "count", "n": "count", "sums": "rows"},
    setup=True,
)
def count_and_sum(site: Site) -> Any:
    """One (to count the sites), one if the rows are single precision, number of rows, and sums of the columns."""
    rows = Rows(site.X)
    single = str(site.X.dtype).endswith("float32")
    return np.int64(1), np.int64(single), np.int64(rows.n), rows.column_sums()


@local(takes={"mean": "d"}, sends={"within": "", "between": ""}, setup=True)
def spread(site: Site, mean: Array) -> Any:
    """Squared deviations within the site, and n_i ||m_i - m||^2 between the site's mean and the pooled one."""
    within, between = _spread_by_feature(site, mean)
    return within.sum(), between.sum()


@local(takes={"mean": "d"}, sends={"within": "d", "between": "d"}, setup=True)
def spread_by_feature(site: Site, mean: Array) -> Any:
    """As ``spread``, feature by feature; needed only to scale them."""
    return _spread_by_feature(site, mean)


@local(takes={"mean": "d", "scale": "d"}, keeps=CENTRE, setup=True)
def keep_centre(site: Site, mean: Array, scale: Array) -> Reply:  # noqa: ARG001
    """Remember the agreed centre and scale; None where there is nothing to do."""
    return Reply(keep={"mean": mean if np.any(mean) else None, "scale": _scale_or_none(scale)})


@local(takes={"scale": "d"}, keeps=CENTRE, setup=True)
def keep_own_centre(site: Site, scale: Array) -> Reply:
    """Remember the site's own mean as its centre, and the agreed scale."""
    rows = Rows(site.X)
    return Reply(keep={"mean": rows.column_sums() / max(rows.n, 1), "scale": _scale_or_none(scale)})


def rows_of(site: Site) -> Rows:
    """The site's rows Y_i = (X_i - 1 m^T) D^-1, for use inside local functions that declare ``reads=CENTRE``."""
    return Rows(site.X, site.kept["mean"], site.kept["scale"])


@dataclass(frozen=True, eq=False)
class Problem:
    """What the user asked for, before any data are seen.

    ``n_components`` is a number of components, a share of the variance in (0, 1), or None for all.
    """

    n_components: int | float | None = None
    center: Center = "pooled"
    scale: Scale = None
    tol: float | None = None
    max_rounds: int = 3000
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Setup:
    """What the sites agreed on: everything a solver needs to know of the data before its first block.

    Attributes
    ----------
    n_sites, n_samples, n_features : int
    single : bool
        Whether all rows are single precision, so that results should be.
    mean, scale : (d,) arrays
        Pooled mean (whatever ``center`` is) and the scale in use (ones for none).
    trace : float
        Trace of the scatter C that the solver diagonalizes.
    between_share : float
        Share of the pooled variance that lies between the sites' means; "pooled" and "site" centring differ by it.
    offset : float
        Distance of the centre in use from the origin, in the scale in use; root mean square over rows if sites have their own.
    n_components : int or float
        Wanted components, or share of the variance.
    """

    n_sites: int
    single: bool
    n_samples: int
    n_features: int
    mean: Array
    scale: Array
    trace: float
    between_share: float
    offset: float
    n_components: int | float
    center: Center
    tol: float | None
    max_rounds: int
    seed: int

    def stopping_tol(self, default: float) -> float:
        """The scaled KKT residual to stop at: the user's or the solver's own, but not below what rounding allows."""
        return max(TIGHTEST_TOL, default if self.tol is None else self.tol)

    def whole_components(self) -> int:
        """The number of components, for solvers that need one before they begin."""
        if isinstance(self.n_components, int):
            return self.n_components
        raise InputError(
            f"n_components={self.n_components} (a share of the variance) needs a solver that sees more of the spectrum; "
            "use solver='gram' or 'krylov', or give a number of components"
        )

    def public_rows(self, proxy: Any) -> Rows:
        """Public rows (n x d), centred and scaled as the sites' are."""
        shape = np.shape(proxy)
        if len(shape) != 2 or shape[1] != self.n_features:
            raise InputError(f"proxy rows have shape {shape}; give a table with the sites' {self.n_features} features")
        rows = np.asarray(proxy, dtype=np.float64)
        largest = float(np.abs(rows).max(initial=0.0))
        if np.isfinite(largest) and largest > np.sqrt(LARGEST_TRACE / max(rows.size, 1)):
            raise InputError(f"the squares of the proxy's values overflow; {OTHER_UNITS} divided by 1e100")
        centre = {"pooled": self.mean, "site": rows.mean(axis=0), False: None}[self.center]
        return Rows(rows, centre, self.scale)

    def share(self, eigenvalues: Array) -> float:
        """The share of the variance that these eigenvalues capture."""
        return float(np.sum(eigenvalues) / self.trace) if self.trace > 0 else 0.0

    def wanted(self, spectrum: Array) -> int | None:
        """How many components the user wants, given the leading eigenvalues; None if more of them are needed to tell."""
        if isinstance(self.n_components, int):
            return self.n_components
        largest = min(self.n_samples, self.n_features)
        captured = np.cumsum(spectrum[:largest])
        rounding = 8 * np.finfo(float).eps * self.trace
        enough = np.flatnonzero(captured > self.n_components * self.trace - rounding)
        if enough.size:
            return int(enough[0]) + 1
        return largest if len(spectrum) >= largest else None


async def agree(problem: Problem) -> Setup:
    """Agree on counts, mean, scale and trace."""
    n_sites, n_single, n_rows, sums = await Sum(count_and_sum)  # round 1
    n, d = int(n_rows), len(sums)
    n_components = check_n_components(problem.n_components, n, d)
    mean = sums / n
    if problem.scale is None:
        within, between = await Sum(spread, mean)  # round 2
        scale = np.ones(d)
    else:
        within, between = await Sum(spread_by_feature, mean)  # round 2
        scale = _standard_deviations(within if problem.center == "site" else within + between, n, mean, int(n_sites))
        within, between = float((within / scale**2).sum()), float((between / scale**2).sum())
    total = within + between + (n * _not_lost((mean / scale) ** 2, mean != 0).sum() if problem.center is False else 0.0)
    if problem.center == "site":
        await Local(keep_own_centre, scale)
        total = within
    else:
        await Local(keep_centre, mean if problem.center == "pooled" else np.zeros(d), scale)
    if not np.isfinite(total) or total > LARGEST_TRACE:
        raise InputError(f"the squares of the values overflow; {OTHER_UNITS} divided by 1e100")
    if 0 < total < 1 / LARGEST_TRACE:
        raise InputError(f"the squares of the values underflow; {OTHER_UNITS} multiplied by 1e100")
    spread_total = float(within + between)
    offset = 0.0 if problem.center is False else float(np.hypot.reduce(mean / scale))  # which does not overflow
    if problem.center == "site":
        offset = float(np.hypot(offset, np.sqrt(between / n)))
    return Setup(
        n_sites=int(n_sites),
        single=bool(n_single == n_sites),
        n_samples=n,
        n_features=d,
        mean=mean,
        scale=scale,
        trace=float(total),
        between_share=float(between) / spread_total if spread_total > 0 else 0.0,
        offset=offset,
        n_components=n_components,
        center=problem.center,
        tol=problem.tol,
        max_rounds=problem.max_rounds,
        seed=problem.seed,
    )


def check_n_components(wanted: int | float | None, n: int, d: int) -> int | float:
    """The number or share of components asked for, if n rows of d features can give them."""
    largest = min(n, d)
    if wanted is None:
        return largest
    if isinstance(wanted, float) and 0 < wanted < 1:
        return wanted
    if isinstance(wanted, int | np.integer) and not isinstance(wanted, bool) and 1 <= wanted <= largest:
        return int(wanted)
    raise InputError(
        f"n_components={wanted!r} must be between 1 and min(n_samples, n_features)={largest} for {n} rows of {d} features, "
        "a share of the variance such as 0.95, or None for all"
    )


def _scale_or_none(scale: Array) -> Array | None:
    return None if np.all(scale == 1.0) else scale


def _spread_by_feature(site: Site, mean: Array) -> tuple[Array, Array]:
    """Squared deviations (d,) within and between; those that are not zero stay so, however small."""
    n = max(1, int(site.X.shape[0]))
    own = Rows(site.X).column_sums() / n
    deviations = Rows(site.X, own)
    sums, squares = deviations.column_moments()
    left = sums / n  # own + left is the mean
    within, shift = np.maximum(squares - n * left**2, 0.0), (own - mean) + left
    if np.any(within < LEAST_SQUARES):
        within = _not_lost(within, deviations.column_largest() > NOISE * np.abs(own))
    return within, _not_lost(n * shift**2, np.abs(shift) > NOISE * np.abs(mean))


def _not_lost(squares: Array, really: NDArray[np.bool_]) -> Array:
    """The squares, but no zero where there ``really`` is something to square: then the least normal number."""
    return np.where(really, np.maximum(squares, np.finfo(float).tiny), squares)


def _standard_deviations(squares: Array, n: int, mean: Array, n_sites: int) -> Array:
    """Pooled standard deviations (divided by n, as scikit-learn's StandardScaler); 1 for features that are constant."""
    deviations = np.sqrt(squares / n)
    constant = deviations <= (n_sites + 16) * np.finfo(float).eps * np.abs(mean)  # what rounding makes of a constant column
    lost = np.flatnonzero(~constant & (squares < LEAST_SQUARES))
    if lost.size:
        more = f" and {lost.size - 1} more" if lost.size > 1 else ""
        raise InputError(
            f"the squares of the values underflow in feature {lost[0]}{more}, so their standard deviation is unknown; "
            f"{OTHER_UNITS} multiplied by 1e100"
        )
    return np.where(constant, 1.0, deviations)


SETUP = Part(
    "Set-up of every solver of FederatedPCA and PersonalizedPCA",
    {Sum: (count_and_sum, spread, spread_by_feature), Local: (keep_centre, keep_own_centre)},
    '`spread_by_feature` replaces `spread` with `scale="pooled"`; `keep_own_centre` replaces `keep_centre` with `center="site"`.',
)
