"""What every solver agrees on before its first block: counts, mean, scale and trace, as sums over sites.

Problem
    Site i holds rows X_i (n_i x d).  All solvers work on the scatter C = sum_i Y_i^T Y_i of the rows Y_i = (X_i - 1 m^T) D^-1,
    where m is the pooled mean (``center="pooled"``), the site's own mean (``"site"``) or zero (``False``), and D the pooled
    standard deviations (``scale="pooled"``) or the identity.

Rounds
    1. Sum of n_i and of the rows.  The same pass over the rows finds the site's own mean and its squared deviations about it
       (``numerics/column_moments.py``), which it keeps.
    2. Sum of squared deviations about the site's mean, and of n_i ||m_i - m||^2: because the difference of two large numbers
       would lose the digits that matter.  The site's mean m_i is rounded, too; the mean of what it leaves of the
       rows is added to m_i - m, and taken from the deviations.  So both add up to the squares of X_i - 1 m^T for the very m that
       was sent, which are the rows that solvers use.
    Then every site is told centre, scale and trace once, and keeps them.  Products are made about its own mean
    (``numerics/site_rows.py``): what is agreed never meets a single entry.

    Where rare features are to be dropped (``runtime/rare.py``), the entries of each that are not zero are counted and told first.

    Where rows have weights (``numerics/weighted.py``), all of this is about rows times their weights: n_i is the sum of the
    weights, which is sent besides the number of rows, and m the weighted mean.

    Where sums are secured, the second round asks for sums that are linear in rows (``second_moments.py``), unless every site is
    centred at its own mean, which tells sites' means apart whatever is asked.

Leaves the site
    n_i, the sums of its columns (d), then two numbers (or two vectors of length d when features are scaled), and how coarsely
    the site rounds its replies, all summed.

References
    T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for computing the sample variance", Am. Stat. 37 (1983), on two passes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, PolicyError
from ..numerics.linalg import Array
from ..numerics.preparation import Step, taken_out
from ..numerics.rows import Rows
from ..numerics.site_rows import SiteRows
from ..numerics.weighted import weight_of
from ..runtime import Local, Reply, Site, Sum, local
from ..runtime.fixed_point import VARIANCE, quantum
from .counts import checked_weight, count_and_sum, weigh_and_sum
from .lacking import STRICT, Common, common_features
from .method import Part
from .parameters import check_n_components
from .prepare.moments import share_between
from .preparing import Preparer, agree_on
from .rare import without_rare
from .second_moments import second_moments, second_moments_by_feature, spread_by_moments
from .spread import OTHER_UNITS, OWN, not_lost, own_mean_of, spread, spread_by_feature, standard_deviations
from .told import note_centre, note_own_centre

LARGEST_TRACE = 1e140
"""Norms square what they add up; beyond this trace, and below its inverse, they would overflow or vanish."""

TIGHTEST_TOL = 1e-14
"""Residuals below this share of the trace are rounding errors."""

MARGIN = 2.0
"""How many times its root mean square what sites round away may be."""

CENTRE = ("mean", "scale", "own", "within")
"""Names under which a site keeps what :func:`rows_of` reads: declare ``reads=CENTRE`` where you call it."""

AGREED = (*CENTRE, "trace")
"""What a site is told, and keeps, once in an epoch."""

WHOLE = 1e-8
"""All variances add up to the trace but for this share of it."""

SLACK = 1e-9
"""A pooled trace may be smaller than a site's own by this share: both are rounded."""

Center = Literal["pooled", "site", False]
Scale = Literal["pooled"] | None


@local(
    takes={"mean": "d", "scale": "d", "trace": ""},
    reads=OWN,
    keeps=AGREED,
    means={"mean": "centre", "scale": "scale", "trace": "trace"},
    doubt=note_centre,
    setup=True,
    once=True,
    version=2,
)
def keep_centre(site: Site, mean: Array, scale: Array, trace: Any) -> Reply:
    """Remember the agreed centre, scale and trace; None where there is nothing to do."""
    own, within = own_mean_of(site)
    _check_trace(site, own[0] - mean + own[1], within, scale, float(trace))
    centre = mean if np.any(mean) else None
    return Reply(keep=dict(zip(AGREED, (centre, _scale_or_none(scale), own, within, float(trace)), strict=True)))


@local(
    takes={"scale": "d", "trace": ""},
    reads=OWN,
    keeps=AGREED,
    means={"scale": "scale", "trace": "trace"},
    doubt=note_own_centre,
    setup=True,
    once=True,
    site_means=True,
    version=2,
)
def keep_own_centre(site: Site, scale: Array, trace: Any) -> Reply:
    """Remember the site's own mean as its centre, and the agreed scale and trace."""
    own, within = own_mean_of(site)
    _check_trace(site, np.zeros(len(scale)), within, scale, float(trace))
    return Reply(keep=dict(zip(AGREED, (own.sum(axis=0), _scale_or_none(scale), own, within, float(trace)), strict=True)))


def _check_trace(site: Site, shift: Array, within: Array, scale: Array, trace: float) -> None:
    """A site that rounds its replies to a share of the trace refuses one below its own, or so small that no share is left."""
    if not site.grain or (trace == 0 and not within.any() and not shift.any()):
        return
    least = float(((within + weight_of(site.X) * shift**2) / scale**2).sum())
    if not trace >= (1 - SLACK) * least:
        raise PolicyError("rule exact_replies = false: the pooled trace that was told is below this site's own")
    if not 1 / LARGEST_TRACE <= trace <= LARGEST_TRACE:
        raise PolicyError(f"rule exact_replies = false: a trace of {trace:.1e} leaves nothing to round to; use other units")


def rows_of(site: Site) -> SiteRows:
    """The site's rows Y_i = (X_i - 1 m^T) D^-1, for use inside local functions that declare ``reads=CENTRE``."""
    return SiteRows(site.X, site.kept["mean"], site.kept["scale"], site.kept["own"], site.kept.get("within"))


@dataclass(frozen=True, eq=False)
class Problem:
    """What the user asked for, before any data are seen.

    ``n_components`` is a number of components, a share of the variance in (0, 1), or None for all.  Features of which fewer than
    ``min_nonzero`` entries are not zero are dropped, and those that sites lack are, by ``features``; ``prepare`` does the rest.
    With ``secured``, the sums of set-up do not tell sites apart; with ``weighted``, rows count by their weights.  ``in_house``
    tells that all sites are on machines of whoever runs the coordinator, and ``triangles`` that their rows are of a kind that can
    be multiplied with each other in single precision.
    """

    n_components: int | float | None = None
    center: Center = "pooled"
    scale: Scale = None
    tol: float | None = None
    max_rounds: int = 3000
    seed: int = 0
    min_nonzero: int = 0
    features: Common = STRICT
    prepare: tuple[Preparer, ...] = ()
    secured: bool = False
    weighted: bool = False
    in_house: bool = False
    triangles: bool = True


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
    grain : float
        Root mean square of what rounding at the sites changes an entry of a summed product by; 0 where all reply exactly.
    between_share : float
        Share of the pooled variance, before features are scaled, that lies between the sites' means; "pooled" and "site"
        centring differ by it.  Where sums are secured, to a quarter of a percent.
    offset : float
        Distance of the centre in use from the origin, in the scale in use; root mean square over rows if sites have their own.
    n_components : int or float
        Wanted components, or share of the variance.
    dropped : tuple of int
        Rare features that were dropped: zero in all rows that solvers see.
    preparation : tuple of Step, what else was done to the rows before
    share_before : float or None
        As ``between_share``, of the rows before they were prepared; None where they were not.
    weights : float or None
        The sum of the rows' weights; None where they have none.
    in_house : bool
        Whether all sites are on machines of whoever runs the coordinator.
    triangles : bool
        Whether rows there are of a kind that can be multiplied with each other in single precision; on a GPU they are not.
    rough : bool
        Whether products are made in single precision where rows are (``rough.py``).
    """

    n_sites: int
    single: bool
    n_samples: int
    n_features: int
    mean: Array
    scale: Array
    trace: float
    grain: float
    between_share: float
    offset: float
    n_components: int | float
    center: Center
    tol: float | None
    max_rounds: int
    seed: int
    dropped: tuple[int, ...] = field(default=(), kw_only=True)
    preparation: tuple[Step, ...] = field(default=(), kw_only=True)
    share_before: float | None = field(default=None, kw_only=True)
    weights: float | None = field(default=None, kw_only=True)
    in_house: bool = field(default=False, kw_only=True)
    triangles: bool = field(default=True, kw_only=True)
    rough: bool = field(default=False, kw_only=True)

    @property
    def weight(self) -> float:
        """The sum of the rows' weights, which is their number where they have none: what sums over rows are divided by."""
        return float(self.n_samples) if self.weights is None else self.weights

    @property
    def empty(self) -> NDArray[np.intp]:
        """Numbers of the features that are zero in all rows that solvers see: dropped, or taken out by preparation."""
        return np.union1d(np.array(self.dropped, dtype=np.intp), taken_out(self.preparation))

    def stopping_tol(self, default: float) -> float:
        """The scaled KKT residual to stop at: the user's or the solver's own, but not below what rounding allows."""
        return max(self.tightest, default if self.tol is None else self.tol)

    @property
    def tightest(self) -> float:
        """Scaled residuals below this are rounding errors, of products or of sites that round their replies."""
        columns = width if isinstance(width := self.n_components, int) else self.n_features
        return max(TIGHTEST_TOL, self.noise * float(np.sqrt(columns)) / self.trace if self.trace > 0 else 0.0)

    def at_grain(self, residual: float) -> bool:
        """Whether a scaled residual is as small as sites that round their replies let it become."""
        return self.grain > 0 and residual <= MARGIN * self.tightest

    @property
    def noise(self) -> float:
        """The length that a column of a summed product is off by, at most, where sites round their replies."""
        return MARGIN * self.grain * float(np.sqrt(self.n_features))

    def whole_components(self) -> int:
        """The number of components, for solvers that need one before they begin."""
        if isinstance(self.n_components, int):
            return self.n_components
        raise InputError(
            f"n_components={self.n_components} (a share of the variance) needs a solver that sees more of the spectrum; "
            "use solver='gram' or solver='krylov', or give a number of components"
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
        whole = captured.size > 0 and captured[-1] >= (1 - WHOLE) * self.trace  # else some of the values are still to be found
        return largest if len(spectrum) >= self.n_features or (len(spectrum) >= largest and whole) else None


async def agree(problem: Problem) -> Setup:
    """Agree on what is done to the rows first, then on counts, mean, scale and trace."""
    dropped = await without_rare(problem.min_nonzero)
    common = await common_features(problem.features)
    share_before = await share_between() if problem.prepare and not problem.secured else None
    preparation = (*common, *await agree_on(problem.prepare))
    if problem.weighted:
        n_sites, n_single, n_rows, weight, sums = await Sum(weigh_and_sum)  # round 1
        n, rest = checked_weight(weight)
    else:
        n_sites, n_single, n_rows, sums = await Sum(count_and_sum)  # round 1
        n, rest = int(n_rows), 0.0
    d = len(sums)
    there = d - len({*dropped, *taken_out(preparation)})
    mean, n_components = sums / n, check_n_components(problem.n_components, int(n_rows), there)
    scale, within, between, share, grains = await _agree_on_spread(problem, (n, rest), int(n_sites), mean)  # round 2
    with np.errstate(over="ignore"):  # which is told below
        total = within + between + (n * not_lost((mean / scale) ** 2, mean != 0).sum() if problem.center is False else 0.0)
    total = within if problem.center == "site" else total
    if not np.isfinite(total) or total > LARGEST_TRACE:
        raise InputError(f"the squares of the values overflow; {OTHER_UNITS} divided by 1e100")
    if 0 < total < 1 / LARGEST_TRACE:
        raise InputError(f"the squares of the values underflow; {OTHER_UNITS} multiplied by 1e100")
    if problem.center == "site":
        await Local(keep_own_centre, scale, np.float64(total))
    else:
        await Local(keep_centre, mean if problem.center == "pooled" else np.zeros(d), scale, np.float64(total))
    offset = 0.0 if problem.center is False else float(np.hypot.reduce(mean / scale))  # which does not overflow
    offset = float(np.hypot(offset, np.sqrt(between / n))) if problem.center == "site" else offset
    return Setup(
        n_sites=int(n_sites),
        single=bool(n_single == n_sites),
        n_samples=int(n_rows),
        n_features=d,
        mean=mean,
        scale=scale,
        trace=float(total),
        grain=quantum(float(total), 1.0) * float(np.sqrt(VARIANCE * grains)),
        between_share=share,
        offset=offset,
        n_components=n_components,
        center=problem.center,
        tol=problem.tol,
        max_rounds=problem.max_rounds,
        seed=problem.seed,
        dropped=dropped,
        preparation=preparation,
        share_before=share_before,
        weights=float(n) if problem.weighted else None,
        in_house=problem.in_house,
        triangles=problem.triangles,
    )


async def _agree_on_spread(
    problem: Problem, weight: tuple[float, float], n_sites: int, mean: Array
) -> tuple[Array, float, float, float, Any]:
    """The scale in use; squares within sites and between in that scale (all within, where sums are secured); the share of
    squares between, before features are scaled; and how coarsely sites round."""
    by_feature = problem.scale is not None
    if problem.secured and problem.center != "site":
        total, share, grains = await spread_by_moments(weight, mean, by_feature)
        within, between = total, np.zeros_like(total)
    else:
        if by_feature:
            within, between, grains = await Sum(spread_by_feature, mean)
        else:
            within, between, grains = await Sum(spread, mean)
        total, apart = float(np.sum(within + between)), float(np.sum(between))
        share = apart / total if total > 0 else 0.0
    if not by_feature:
        return np.ones(len(mean)), float(within), float(between), share, grains
    scale = standard_deviations(within if problem.center == "site" else within + between, weight[0], mean, n_sites)
    return scale, float((within / scale**2).sum()), float((between / scale**2).sum()), share, grains


def _scale_or_none(scale: Array) -> Array | None:
    return None if np.all(scale == 1.0) else scale


SETUP = Part(
    "Set-up of every solver of FederatedPCA and PersonalizedPCA",
    {
        Sum: (count_and_sum, weigh_and_sum, spread, spread_by_feature, second_moments, second_moments_by_feature),
        Local: (keep_centre, keep_own_centre),
    },
    "`weigh_and_sum` replaces `count_and_sum` where rows have weights; "
    '`..._by_feature` with `scale="pooled"`; `second_moments` replaces `spread` where sums are secured, unless `center="site"`; '
    '`keep_own_centre` replaces `keep_centre` with `center="site"`.',
)
