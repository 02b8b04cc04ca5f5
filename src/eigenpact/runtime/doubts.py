"""A coordinator's doubts: what cannot be true of a reply, by itself and beside what the same site told before.

The runtime looks at the form (``meanings.py``).  What numbers mean only the functions know that made them: each may declare a
``doubt`` (``local.py``), which is given what a site told earlier in the epoch, and notes there what later replies must agree
with.  A site that lies consistently, and so answers as if it had other rows, gives no reason to doubt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .local import Arrays, LocalFunction


@dataclass(eq=False)
class Told:
    """What a site told in this epoch, as far as functions note it; or what ``sites`` of them told together, as sums.

    ``rng`` draws what a site must not foresee, such as the combination of replies that is remembered.
    """

    sites: int = 1
    facts: dict[str, Any] = field(default_factory=dict)
    rng: np.random.Generator = field(default_factory=np.random.default_rng)


class Doubts:
    """What all sites told in one epoch."""

    def __init__(self) -> None:
        self._told: dict[str, Told] = {}

    def about(self, function: LocalFunction, who: str, args: Arrays, arrays: Arrays, sites: int = 1) -> str:
        """What cannot be true of the arrays that ``who`` replied with, a site or so many together; empty if all can."""
        wrong = function.check_forms(arrays, summed=sites > 1) if arrays else ""
        if wrong or function.doubt is None:
            return wrong
        told = self._told.setdefault(who, Told())
        told.sites = sites  # a journal does not keep it
        return function.doubt(told, *args, *arrays)

    def numbers(self) -> dict[str, dict[str, float]]:
        """By site, the single numbers that were noted: a journal keeps them."""
        return {
            who: {name: value for name, value in told.facts.items() if isinstance(value, float)}
            for who, told in self._told.items()
        }

    def recall(self, numbers: Mapping[str, Mapping[str, float]]) -> None:
        """Go on from what :meth:`numbers` gave."""
        for who, facts in numbers.items():
            self._told.setdefault(who, Told()).facts |= facts
