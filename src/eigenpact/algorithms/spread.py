"""How far rows spread about the mean that sites are told: the second round of set-up, where replies are seen one by one.

Squared deviations about the site's own mean, and n_i times the square of its distance from the pooled one, so that no two large
numbers are subtracted.  Their sums tell the means of few sites apart, so where sums are secured others
are made (``second_moments.py``), unless sites are centred at their own means.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..numerics.linalg import Array
from ..numerics.rows import Rows
from ..numerics.site_rows import own_mean
from ..numerics.weighted import weight_of
from ..runtime import Reply, Site, local
from .told import doubt_spread

OWN = ("own", "within")
"""A site's own mean with what rounding left of it, and its squared deviations: found in the first round, used after it."""

LEAST_SQUARES = 1e-290
"""Squares of a feature that add up to less have lost digits, or all of them."""

NOISE = 1e-13
"""Deviations below this share of the mean may be rounding errors of the mean."""

OTHER_UNITS = "give the data in other units, for example"


@local(
    takes={"mean": "d"},
    sends={"within": "", "between": "", "grain": ""},
    reads=OWN,
    keeps=OWN,
    bound="squares",
    means={"mean": "centre"},
    doubt=doubt_spread,
    setup=True,
    site_means=True,
    version=2,
)
def spread(site: Site, mean: Array) -> Reply:
    """Squared deviations within the site, n_i ||m_i - m||^2 between the site's mean and the pooled one, and its ``grain``."""
    within, between, keep = _spread_by_feature(site, mean)
    return Reply((within.sum(), between.sum(), np.float64(site.grain**2)), keep)


@local(
    takes={"mean": "d"},
    sends={"within": "d", "between": "d", "grain": ""},
    reads=OWN,
    keeps=OWN,
    bound="squares",
    means={"mean": "centre"},
    doubt=doubt_spread,
    setup=True,
    site_means=True,
    version=2,
)
def spread_by_feature(site: Site, mean: Array) -> Reply:
    """As ``spread``, feature by feature; needed only to scale them."""
    within, between, keep = _spread_by_feature(site, mean)
    return Reply((within, between, np.float64(site.grain**2)), keep)


def _spread_by_feature(site: Site, mean: Array) -> tuple[Array, Array, dict[str, Array]]:
    """Squared deviations (d,) within and between, those that are not zero stay so, however small; and what is kept of it."""
    n = weight_of(site.X) or 1.0
    own, within = own_mean_of(site)
    keep, shift = {"own": own, "within": within}, (own[0] - mean) + own[1]
    small = np.flatnonzero(within < LEAST_SQUARES)
    if small.size:
        really = np.zeros(len(within), dtype=bool)
        really[small] = Rows(site.X, own[0]).column_largest(small) > NOISE * np.abs(own[0][small])
        within = not_lost(within, really)
    with np.errstate(over="ignore"):  # which the coordinator tells
        between = n * shift**2
    return within, not_lost(between, np.abs(shift) > NOISE * np.abs(mean)), keep


def own_mean_of(site: Site) -> tuple[Array, Array]:
    """The site's own mean, with what rounding left of it, and its squared deviations: kept, or else found now.

    For use inside local functions that declare ``reads=OWN``.
    """
    kept = site.kept.get("own") is not None  # None where the rows were prepared since
    return (site.kept["own"], site.kept["within"]) if kept else own_mean(site.X)


def not_lost(squares: Array, really: NDArray[np.bool_]) -> Array:
    """The squares, but no zero where there ``really`` is something to square: then the least normal number."""
    return np.where(really, np.maximum(squares, np.finfo(float).tiny), squares)


def standard_deviations(squares: Array, n: float, mean: Array, n_sites: int) -> Array:
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
