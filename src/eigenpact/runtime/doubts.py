"""A coordinator's doubts: what cannot be true of a reply, by itself and beside what the same site told before.

The runtime looks at the form (``meanings.py``).  What numbers mean only the functions know that made them: each may declare a
``doubt`` (``local.py``), which is given what a site told earlier in the epoch, and notes there what later replies must agree
with.  A site that lies consistently, and so answers as if it had other rows, gives no reason to doubt.

Of each site's products a few combinations are remembered, 12 columns of d numbers.  Where that would be more than
``MOST_REMEMBERED`` bytes for all sites, and these are more than ``FEW``, each product is held against the site's own trace alone,
and their sum against what all told before, as where sums are secured: memory then does not grow with the number of sites.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..numerics.consistency import COMBINATIONS, Asked, Block
from .local import Arrays, LocalFunction

MOST_REMEMBERED = 1 << 26
"""Bytes of earlier products that are remembered of all sites together, if there are more than ``FEW``."""

FEW = 16
"""So many sites are always remembered one by one."""


class LastBlock:
    """The block that sites were last asked about: what is the same for all of them is computed once.

    How blocks are combined is drawn at random, which no site sees or foresees.
    """

    def __init__(self) -> None:
        self._rng = np.random.default_rng(secrets.randbits(128))
        self._last: Block | None = None

    def of(self, Z: Any, before: Asked | None) -> Block:
        """The block Z (d x k), for a site that was asked about others ``before``.

        >>> last, Z = LastBlock(), np.eye(3)[:, :2]
        >>> last.of(Z, None) is last.of(Z, None), last.of(Z, None) is last.of(np.eye(3)[:, :2], None)
        (True, False)
        """
        if self._last is None or self._last.Z is not Z or self._last.before is not before:
            self._last = Block(Z, before, self._rng)
        return self._last


@dataclass(eq=False, slots=True)
class Told:
    """What a site told in this epoch, as far as functions note it; or what ``sites`` of them told together, as sums.

    ``last`` is the same for all of them.  ``remembers`` is whether there is room for products.
    """

    sites: int = 1
    remembers: bool = True
    facts: dict[str, Any] = field(default_factory=dict)
    last: LastBlock = field(default_factory=LastBlock)


class Doubts:
    """What ``sites`` of them with so many features told in one epoch.

    >>> Doubts(10, 10**6).together, Doubts(100, 784).together, Doubts(10**4, 784).together
    (False, False, True)
    """

    def __init__(self, sites: int = 1, n_features: int = 1) -> None:
        self.together = sites > max(FEW, MOST_REMEMBERED // (8 * COMBINATIONS * max(1, n_features)))
        self._told: dict[str, Told] = {}
        self._last = LastBlock()

    def about(self, function: LocalFunction, who: str, args: Arrays, arrays: Arrays, sites: int = 1) -> str:
        """What cannot be true of the arrays that ``who`` replied with, a site or so many together; empty if all can."""
        wrong = function.check_forms(arrays, summed=sites > 1) if arrays else ""
        if wrong or function.doubt is None:
            return wrong
        told = self._of(who, sites)
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
            self._of(who, 1).facts |= facts

    def _of(self, who: str, sites: int) -> Told:
        """What was told by a site, or by several together."""
        if who not in self._told:
            self._told[who] = Told(last=self._last)
        self._told[who].remembers = sites > 1 or not self.together
        return self._told[who]
