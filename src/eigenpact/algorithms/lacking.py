"""Agreed features that some sites lack are counted, and those that too few have are left out (``runtime/lacking.py``).

Leaves the site
    A one for each feature that it has and a zero for each that it lacks, summed.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..errors import InputError
from ..numerics.preparation import Step
from ..runtime import Local, Sum
from ..runtime.lacking import count_having, keep_features
from .method import Part

Common = Literal["strict", "intersection", "union"]


async def common_features(mode: Common) -> tuple[Step, ...]:
    """Have the sites agree on the features that all have ("intersection") or that any has ("union"); no step for "strict"."""
    if mode == "strict":
        return ()
    sites, having = await Sum(count_having)
    least = np.int64(sites if mode == "intersection" else 1)
    if not np.any(having >= least):
        raise InputError(f"no agreed feature is at {'all' if mode == 'intersection' else 'any of the'} {int(sites)} sites")
    await Local(keep_features, having, least)
    return (Step("features", {"having": np.asarray(having), "least": np.asarray(least)}),)


COMMON = Part(
    "Features that some sites lack, where they are counted",
    {Sum: (count_having,), Local: (keep_features,)},
    'Between institutions, with `features="intersection"` or `"union"`, before all but rare features.',
)
