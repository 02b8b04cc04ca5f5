"""Columns that look to be in another unit at one site, found between institutions: each site finds out for itself.

1. Sites add up, for each column, ones, the places of their medians on a logarithmic scale of ``STEPS`` places a decade, and the
   squares of these (``place_medians``: whole numbers, secured where sums are).
2. All are told the three sums (``compare_medians``).  A site takes its own part out.  If the others agree among themselves, their
   median lies outside its own quartiles, and the ratio is a power of ten or a known factor between units
   (``numerics/units.py``), it says so **in its own log** and remembers that the column is in doubt.
3. Sites add up ones for the columns in doubt (``count_doubts``), so that whoever runs the fit knows that something is to be
   cleared up, and not where.

What leaves is, per column, a median of at least ``min_rows`` numbers, to 7 %: less than the column's sum, which leaves in every
run.  Where sums are secured nobody sees a single site's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from ..numerics.linalg import Array
from ..numerics.units import LEAST_ROWS, SAMPLE, likely_factor, quartiles
from .local import Reply, local

if TYPE_CHECKING:
    from .site import Site

STEPS = 32
"""Places a decade: a median is told to 7 %."""

FARTHEST = 12 * STEPS
"""Medians beyond 1e12, or below its inverse, are not told."""

AGREE = 0.15 * STEPS
"""The most that the others' places may spread, as a standard deviation."""

IN_DOUBT = "units in doubt"

log = logging.getLogger("eigenpact.site")


@local(
    sends={"having": "d", "places": "d", "squares": "d"},
    bound={"having": "count", "places": "whole", "squares": "count"},
    setup=True,
    holes=True,
)
def place_medians(site: Site) -> Any:
    """For each column a one, the place of its median and that squared; zeros where there is none to tell."""
    told, place, _ = _own_places(site)
    return told.astype(np.int64), place, place**2


@local(
    takes={"having": "d", "places": "d", "squares": "d"},
    keeps=(IN_DOUBT,),
    means={"having": "count", "squares": "count"},
    setup=True,
    once=True,
    holes=True,
)
def compare_medians(site: Site, having: Any, places: Any, squares: Any) -> Reply:
    """Compare the site's medians with those of the others, and tell its owner of columns in doubt."""
    told, place, found = _own_places(site)
    others = np.asarray(having, dtype=np.float64) - told
    few = np.maximum(others, 1.0)
    middle = (places - place) / few
    spread = np.sqrt(np.maximum((squares - place**2) / few - middle**2, 0.0))
    doubts = np.zeros(len(told), dtype=np.int64)
    for j in np.flatnonzero(told & (others > 0) & (spread <= AGREE)):
        there = float(np.sign(found[1, j]) * 10 ** (middle[j] / STEPS))
        if found[0, j] <= there <= found[2, j]:
            continue
        likely = likely_factor(np.log([found[1, j] / there]), np.log(10.0) / STEPS)
        if likely:
            doubts[j] = 1
            name = f"{site.features[j]!r}" if site.features else f"number {j}"
            log.warning(
                "column %s may be in another unit here: its median is %.4g, at the others about %.3g; %s",
                name, found[1, j], there, likely,
            )  # fmt: skip
    return Reply(keep={IN_DOUBT: doubts})


@local(sends={"doubts": "d"}, bound="count", reads=(IN_DOUBT,), setup=True, holes=True)
def count_doubts(site: Site) -> Any:
    """A one for each column that is in doubt here."""
    return site.kept[IN_DOUBT]


def _own_places(site: Site) -> tuple[Any, Any, Array]:
    """Which medians are told, their places, and the quartiles (3 x d)."""
    d = int(site.X.shape[1])
    found = quartiles(site.X, most=max(SAMPLE, site.min_rows), least=max(LEAST_ROWS, site.min_rows))
    if found is None:
        return np.zeros(d, dtype=bool), np.zeros(d, dtype=np.int64), np.full((3, d), np.nan)
    told = np.isfinite(found).all(axis=0) & (found[0] * found[2] > 0) & (found[2] > found[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        place = np.where(told, np.rint(STEPS * np.log10(np.abs(found[1]))), 0.0)
    told &= np.abs(place) <= FARTHEST
    return told, np.where(told, place, 0.0).astype(np.int64), found
