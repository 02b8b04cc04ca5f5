"""Which site's entries are wrong: the share of errors at each site, for a report that names bad sites.

It uses ``Gather``: the coordinator must see every site's own number to name it.  The number tells how much of a site's data is
bad, so it is asked for only with ``tell_shares=True``.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...numerics.either import there
from ...numerics.elsewhere import namespace
from ...numerics.linalg import Array
from ...runtime import Gather, Site, local
from ..method import Part
from .entries import MEDIANS, entries_there, remove_errors


@local(
    takes={"U": "d k", "shift": "d", "thresholds": "2"},
    sends={"wrong": "", "observed": ""},
    reads=MEDIANS,
    bound="count",
    means={"U": "orthonormal", "shift": "centre", "thresholds": "threshold"},
)
def count_errors(site: Site, U: Array, shift: Array, thresholds: Array) -> Any:
    """How many of the site's observed entries are errors, by thresholds that shrink from the first to the second."""
    wrong = observed = 0
    U_there, m = there(U, site.X), there(shift, site.X)
    for _, M, seen in entries_there(site):
        M -= m
        _, errors = remove_errors(M, seen, U_there, float(thresholds[0]), float(thresholds[1]))
        count = namespace(M).count_nonzero
        wrong += int(count(errors))
        observed += prod(M.shape) if seen is None else int(count(seen))
    return np.int64(wrong), np.int64(observed)


async def error_shares(U: Array, shift: Array, first: float, last: float) -> dict[str, float]:
    """Site -> share of its observed entries that are errors.  One round."""
    replies = await Gather(count_errors, U, shift, np.array([first, last]))
    return {name: float(wrong) / max(int(observed), 1) for name, (wrong, observed) in replies.items()}


SHARES = Part("Shares of errors (RobustPCA, only when asked for)", {Gather: (count_errors,)})
