"""The second round of set-up where sums are secured: what is added up is linear in rows, to the last digit.

Where nobody sees single replies, the sums themselves must not tell sites apart.  Squared deviations about each site's *own* mean
do: of three sites with features 0 and 1 the sum of s_i^2 / n_i over the sites has 50 digits, enough to find every n_i and s_i by
trying.  So do the last digits of squares about a mean that a coordinator chose: what rounding does to a site's part depends on
its n_i, and the lowest digit of the sum tells how large the smallest part is.  So sites are told no mean here.  They send sums of
their entries and of the squares, as pairs of doubles (``numerics/pairs.py``): exact for whole numbers, and for all others with
twice the digits, so that squares about the pooled mean are found from them without loss.

Besides, sites send their squared deviations about their own means, all features together, to eight binary digits: the share of
the variance that lies between sites is known to about a quarter of a percent, and no more of them.

References
    T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for computing the sample variance", Am. Stat. 37 (1983).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..numerics.linalg import Array
from ..numerics.pairs import added_up, column_pairs, deviations
from ..numerics.whole_numbers import LEAST
from ..runtime import Reply, Site, Sum, local
from .spread import OWN, own_mean_of
from .told import doubt_moments

DIGITS = 8
"""Binary digits of what a site tells about its own mean."""

BOUNDS = {"sums": "pair", "squares": "pair", "within": "squares", "grain": "squares"}


@local(
    sends={"sums": "d 2", "squares": "2", "within": "", "grain": ""},
    reads=OWN,
    keeps=OWN,
    bound=BOUNDS,
    doubt=doubt_moments,
    setup=True,
)
def second_moments(site: Site) -> Reply:
    """Sums of the columns (d) and of all squares, as pairs; squares about the site's own mean, coarsely; and its ``grain``."""
    sums, squares = column_pairs(site.X)
    return _reply(sums, added_up(squares), *own_mean_of(site), site.grain)


@local(
    sends={"sums": "d 2", "squares": "d 2", "within": "", "grain": ""},
    reads=OWN,
    keeps=OWN,
    bound=BOUNDS,
    doubt=doubt_moments,
    setup=True,
)
def second_moments_by_feature(site: Site) -> Reply:
    """As ``second_moments``, with squares feature by feature; needed only to scale them."""
    return _reply(*column_pairs(site.X), *own_mean_of(site), site.grain)


def _reply(sums: Array, squares: Array, own: Array, within: Array, grain: float) -> Reply:
    sent = with_place(sums), with_place(squares), coarse(float(within.sum())), np.float64(grain**2)
    return Reply(sent, {"own": own, "within": within})


def with_place(pairs: Array) -> Array:
    """Pairs whose second number has a place in secured sums, or is 0: what is lost then is far below the first."""
    return np.stack([pairs[..., 0], np.where(np.abs(pairs[..., 1]) < LEAST, 0.0, pairs[..., 1])], axis=-1)


def coarse(x: float) -> np.float64:
    """A number with its leading binary digits.

    >>> float(coarse(1000.0)), float(coarse(1.0 + 2.0**-9))
    (1000.0, 1.0)
    """
    mantissa, exponent = np.frexp(x)
    return np.float64(np.ldexp(np.round(np.ldexp(mantissa, DIGITS)), exponent - DIGITS))


async def spread_by_moments(n: tuple[float, float], mean: Array, by_feature: bool) -> tuple[Any, float, Any]:
    """Squared deviations about the pooled mean (d,), or all of them; the share of them between sites, roughly; and ``grain``.

    ``n`` is the number of rows, or the sum of their weights, as a pair.
    """
    if by_feature:
        sums, squares, within, grains = await Sum(second_moments_by_feature)
    else:
        sums, squares, within, grains = await Sum(second_moments)
    total = deviations(n[0], mean, sums, squares, n[1])
    whole = float(np.sum(total))
    return total, min(1.0, max(0.0, 1 - float(within) / whole)) if whole > 0 else 0.0, grains
