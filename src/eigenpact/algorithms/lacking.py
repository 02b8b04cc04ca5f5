"""Agreed features that some sites lack are counted, and those that too few have are left out (``runtime/lacking.py``); where it
is asked for, sites also look for columns that are in another unit than at the others (``runtime/units.py``).

Leaves the site
    A one for each feature that it has and a zero for each that it lacks, summed.  To compare units: the place of each column's
    median on a logarithmic scale, and its square, summed; then a one for each column that the site finds to be in doubt, summed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..errors import InputError
from ..numerics.preparation import Step
from ..runtime import Local, Sum
from ..runtime.lacking import count_having, keep_features
from ..runtime.units import compare_medians, count_doubts, place_medians
from .method import Part


@dataclass(frozen=True)
class Common:
    """How sites that are asked by message agree on features: "strict", "intersection" or "union"; whether on units; and whether
    entries that are missing, as those of features that a site lacks, are ``filled`` in."""

    mode: Literal["strict", "intersection", "union"] = "strict"
    units: bool = False
    filled: bool = False

    @property
    def asks(self) -> bool:
        """Whether anything is asked of the sites."""
        return self.mode != "strict" or self.units


STRICT = Common()
"""Nothing is asked: all sites are taken to have all features."""


async def common_features(wanted: Common) -> tuple[Step, ...]:
    """Have the sites leave out features that too few have, and look at their units; no step where nothing is asked."""
    if not wanted.asks:
        return ()
    sites, having = await Sum(count_having)
    least = np.int64(1 if wanted.mode == "union" else sites)
    fewer = int(np.count_nonzero(having < sites))
    if wanted.mode == "strict" and fewer:
        raise InputError(
            f"{fewer} of {len(having)} agreed features are not at all {int(sites)} sites; use features='intersection'"
        )
    if wanted.mode == "union" and fewer and not wanted.filled:
        raise InputError(
            f"features='union': {fewer} of {len(having)} agreed features are not at all {int(sites)} sites; what a site lacks is "
            "missing there, and missing entries are refused: use missing='mean' or missing='em', or features='intersection'"
        )
    if not np.any(having >= least):
        raise InputError(f"no agreed feature is at {'any' if wanted.mode == 'union' else 'all'} of {int(sites)} sites")
    doubts = np.zeros(len(having), dtype=np.int64)
    if wanted.units:
        await Local(compare_medians, *await Sum(place_medians))
        doubts = await Sum(count_doubts)
    await Local(keep_features, having, least)
    return (Step("features", {"having": np.asarray(having), "least": np.asarray(least), "doubts": np.asarray(doubts)}),)


COMMON = Part(
    "Features that some sites lack, and units",
    {Sum: (count_having, place_medians, count_doubts), Local: (keep_features, compare_medians)},
    'Between institutions, with `features="intersection"` or `"union"`, after rare features; medians with `check_units=True`.',
)
