"""How replies become a sum.  The algorithm never knows which summation runs.

A summation encodes at the site and combines at the coordinator, one reply after the other in sorted site-name order, so that
named sites give the same bits on every engine.  Plain float64 is one; exact secure integers will be another.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from .local import Arrays, LocalFunction


class Summation(Protocol):
    """Encode at a site, combine at the coordinator."""

    def encode(self, function: LocalFunction, site: str, step: int, arrays: Arrays) -> Arrays:
        """What the site sends instead of its arrays."""
        ...

    def combine(self, function: LocalFunction, step: int, replies: Iterable[Arrays]) -> Arrays:
        """The sum, from the encoded replies in sorted site-name order; consumes them one by one."""
        ...


class PlainSum:
    """Double precision, one addition after the other."""

    def encode(self, function: LocalFunction, site: str, step: int, arrays: Arrays) -> Arrays:  # noqa: ARG002
        """The arrays themselves."""
        return arrays

    def combine(self, function: LocalFunction, step: int, replies: Iterable[Arrays]) -> Arrays:  # noqa: ARG002
        """((a + b) + c) + ..., in the order given."""
        totals: list[np.ndarray[Any, Any]] | None = None
        for arrays in replies:
            if totals is None:
                totals = [np.array(a, dtype=np.result_type(a.dtype, np.int64), order="C") for a in arrays]
            else:
                for i, (total, a) in enumerate(zip(totals, arrays, strict=True)):
                    if np.can_cast(a.dtype, total.dtype):
                        total += a
                    else:  # whole numbers from the first sites, fractions from a later one
                        totals[i] = np.asarray(total + a)
        return tuple(totals or ())
