"""Features that few rows have are dropped before anything else is agreed on (``runtime/rare.py``).

Leaves the site
    How many of its entries are not zero, for each feature, summed.
"""

from __future__ import annotations

import numpy as np

from ..runtime import Local, Sum
from ..runtime.rare import count_nonzero, drop_rare, rare_features
from .method import Part


async def without_rare(least: int) -> tuple[int, ...]:
    """Have the sites drop features of which fewer than ``least`` entries are not zero; which these are."""
    if not least:
        return ()
    nonzero = await Sum(count_nonzero)
    await Local(drop_rare, nonzero, np.int64(least))
    return tuple(rare_features(nonzero, least).tolist())


RARE = Part(
    "Rare features, where they are dropped",
    {Sum: (count_nonzero,), Local: (drop_rare,)},
    "Before all else, with `min_nonzero=`.",
)
