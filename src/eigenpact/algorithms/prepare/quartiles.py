"""Quartiles over all sites, about an agreed number, found digit by digit from sums of counts (``medians.py``).

A quartile lies between two entries, or is one.  Both are found, and interpolated as numpy's ``quantile`` does it.  About a number
that is near the median, digits are those of deviations, so that none are lost to a large offset.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...numerics.blocks import blocks
from ...numerics.linalg import Array
from ...runtime import Reply, Site, Sum, local
from ..medians import CENTRE_ROUNDS, DIGITS, PARTS, check_path, keys_of, many, part_of, shift_of, untold_of, values_of

QUARTERS = "path of quartiles"
"""Under this name a site keeps how far the digits of the quartiles are found: counts go on from there, and nowhere else."""

ENDS = 6
"""Entries around the three quartiles: two each."""


@local(
    takes={"centre": "d", "prefix": "d 6", "step": ""},
    sends={"counts": "d 6 32"},
    reads=(QUARTERS,),
    keeps=(QUARTERS,),
    bound="count",
    means={"centre": "centre", "prefix": "bits", "step": "count"},
    setup=True,
)
def count_quarters(site: Site, centre: Array, prefix: Any, step: Any) -> Reply:
    """By feature, how many entries less the centre begin as those around the quartiles, by the next five digits."""
    d = len(centre)
    check_path(site.kept.get(QUARTERS), prefix, int(step))
    counts = np.zeros((ENDS, d * PARTS), dtype=np.int64)
    for _, M, seen in blocks(site.X, centre, None):
        keys = keys_of(M) >> shift_of(int(step))
        places = (keys & np.uint64(PARTS - 1)).view(np.int64) + PARTS * np.arange(d)
        for end in range(ENDS):
            here = keys >> np.uint64(DIGITS) == prefix[:, end]
            here = here if seen is None else here & seen
            counts[end] += np.bincount(places[here], minlength=d * PARTS)
    by_feature = np.ascontiguousarray(counts.reshape(ENDS, d, PARTS).transpose(1, 0, 2))
    told = many(by_feature.reshape(ENDS * d, PARTS), site.min_rows)
    return Reply(told.reshape(d, ENDS, PARTS), {QUARTERS: (prefix, int(step))})


async def quartiles(observed: NDArray[np.int64], centre: Array) -> Array:
    """Lower quartile, median and upper quartile (d, 3) of the entries less the centre."""
    d = len(observed)
    ranks, shares = ends_of(observed)
    prefix, wanted, held = np.zeros((d, ENDS), dtype=np.uint64), ranks.reshape(-1), np.repeat(observed, ENDS)
    for step in range(CENTRE_ROUNDS):
        counts = await Sum(count_quarters, centre, prefix, np.int64(step))
        untold = untold_of(prefix.reshape(-1), step)
        part, wanted, held = part_of(counts.reshape(ENDS * d, PARTS), wanted, held, untold)
        prefix = (prefix << np.uint64(DIGITS)) + part.astype(np.uint64).reshape(d, ENDS)
    ends = values_of(prefix, CENTRE_ROUNDS).reshape(d, 3, 2)
    found: Array = ends[:, :, 0] + shares * (ends[:, :, 1] - ends[:, :, 0])
    return found


def ends_of(observed: NDArray[np.int64]) -> tuple[NDArray[np.int64], Array]:
    """Ranks (d, 3, 2), from 1, of the entries around the quartiles, the same twice where a quartile is an entry; and (d, 3) how
    far it is from the first to the second.

    >>> [found.tolist() for found in ends_of(np.array([4, 5]))]
    [[[[1, 2], [2, 3], [3, 4]], [[2, 2], [3, 3], [4, 4]]], [[0.75, 0.5, 0.25], [0.0, 0.0, 0.0]]]
    """
    quarters = np.maximum(observed - 1, 0)[:, None] * np.array([1, 2, 3])
    first, over = quarters // 4 + 1, quarters % 4
    return np.stack([first, first + (over > 0)], axis=2), over / 4
