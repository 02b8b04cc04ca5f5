"""Lower and upper quartiles over all sites, about an agreed centre, found digit by digit from sums of counts (``medians.py``)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...numerics.blocks import blocks
from ...numerics.linalg import Array
from ...runtime import Reply, Site, Sum, local
from ..medians import CENTRE_ROUNDS, DIGITS, PARTS, check_path, keys_of, many, part_of, shift_of, values_of

QUARTERS = "path of quartiles"
"""Under this name a site keeps how far the digits of the quartiles are found: counts go on from there, and nowhere else."""


@local(
    takes={"centre": "d", "prefix": "d 2", "step": ""},
    sends={"counts": "d 2 32"},
    reads=(QUARTERS,),
    keeps=(QUARTERS,),
    bound="count",
    means={"centre": "centre", "prefix": "bits", "step": "count"},
    setup=True,
)
def count_quarters(site: Site, centre: Array, prefix: Any, step: Any) -> Reply:
    """By feature, how many entries less the centre begin as the lower and as the upper quartile, by the next five digits."""
    d = len(centre)
    check_path(site.kept.get(QUARTERS), prefix, int(step))
    counts = np.zeros((2, d * PARTS), dtype=np.int64)
    for _, M, seen in blocks(site.X, centre, None):
        keys = keys_of(M) >> shift_of(int(step))
        places = (keys & np.uint64(PARTS - 1)).view(np.int64) + PARTS * np.arange(d)
        for quarter in range(2):
            here = keys >> np.uint64(DIGITS) == prefix[:, quarter]
            here = here if seen is None else here & seen
            counts[quarter] += np.bincount(places[here], minlength=d * PARTS)
    by_feature = np.ascontiguousarray(counts.reshape(2, d, PARTS).transpose(1, 0, 2))
    return Reply(many(by_feature.reshape(2 * d, PARTS), site.min_rows).reshape(d, 2, PARTS), {QUARTERS: (prefix, int(step))})


async def quartiles(observed: NDArray[np.int64], centre: Array) -> Array:
    """Lower and upper quartiles (d, 2) of the entries less the centre; of two entries around one, the lower."""
    d = len(observed)
    prefix = np.zeros((d, 2), dtype=np.uint64)
    held = np.repeat(observed, 2)
    wanted = -(-held * np.tile([1, 3], d) // 4)
    for step in range(CENTRE_ROUNDS):
        counts = await Sum(count_quarters, centre, prefix, np.int64(step))
        part, wanted, held = part_of(counts.reshape(2 * d, PARTS), wanted, held)
        prefix = (prefix << np.uint64(DIGITS)) + part.astype(np.uint64).reshape(d, 2)
    return values_of(prefix, CENTRE_ROUNDS)
