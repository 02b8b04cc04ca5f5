"""A coordinator's doubts: what cannot be true of a reply, by itself and beside what the same site told before.

The runtime looks at the form (``meanings.py``).  What numbers mean only the functions know that made them: each may declare a
``doubt`` (``local.py``), which is given what a site told earlier in the epoch, and notes there what later replies must agree
with.  A site that lies consistently, and so answers as if it had other rows, gives no reason to doubt.

Of each site's products a few combinations are remembered, 12 columns of d numbers.  Where that would be more than
``MOST_REMEMBERED`` bytes for all sites, and these are more than ``FEW``, each product is held against the site's own trace alone,
and their sum against what all told before, as where sums are secured.  What else such sites told, their means until set-up is
over and a few numbers then, is put away from one reply of a site to its next (``facts.py``): memory hardly grows with them.
"""

from __future__ import annotations

import secrets
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..numerics.consistency import COMBINATIONS, Asked, Block
from .facts import Facts
from .local import Arrays, LocalFunction

MOST_REMEMBERED = 1 << 26
"""Bytes of earlier products that are remembered of all sites together, if there are more than ``FEW``."""

FEW = 16
"""So many sites are always remembered one by one."""


class LastAsked:
    """What sites were last asked about, which is the same for all of them: a block, and what is computed of it, and a centre.

    How blocks are combined is drawn at random, which no site sees or foresees.
    """

    def __init__(self) -> None:
        self.centre: Any = None
        self._rng = np.random.default_rng(secrets.randbits(128))
        self._last: Block | None = None

    def of(self, Z: Any, before: Asked | None) -> Block:
        """The block Z (d x k), for a site that was asked about others ``before``.

        >>> last, Z = LastAsked(), np.eye(3)[:, :2]
        >>> last.of(Z, None) is last.of(Z, None), last.of(Z, None) is last.of(np.eye(3)[:, :2], None)
        (True, False)
        """
        if self._last is None or self._last.Z is not Z or self._last.before is not before:
            self._last = Block(Z, before, self._rng)
        return self._last


@dataclass(eq=False, slots=True)
class Told:
    """What a site told in this epoch, as far as functions note it; or what ``sites`` of them told together, as sums.

    ``last`` is the same for all of them.  ``remembers`` is whether there is room for products.  Of many sites arrays cannot be
    changed, only replaced.
    """

    sites: int = 1
    remembers: bool = True
    facts: dict[str, Any] = field(default_factory=dict)
    last: LastAsked = field(default_factory=LastAsked)


class Doubts:
    """What sites of these names, which are sorted, told in one epoch about so many features.

    >>> [Doubts([f"{i:04d}" for i in range(n)], 784).together for n in (10, 100, 2000)]
    [False, False, True]
    """

    def __init__(self, names: Sequence[str] = (), n_features: int = 1) -> None:
        self.together = len(names) > max(FEW, MOST_REMEMBERED // (8 * COMBINATIONS * max(1, n_features)))
        self._many = names if self.together else ()  # whose facts are put away
        self._facts = Facts(len(self._many))
        self._told: dict[str, Told] = {}
        self._last = LastAsked()

    def about(self, function: LocalFunction, who: str, args: Arrays, arrays: Arrays, sites: int = 1) -> str:
        """What cannot be true of the arrays that ``who`` replied with, a site or so many together; empty if all can."""
        wrong = function.check_forms(arrays, summed=sites > 1) if arrays else ""
        if wrong or function.doubt is None:
            return wrong
        place = self._place(who)
        if place is None:
            told = self._of(who)
            told.sites = sites  # a journal does not keep it
            return function.doubt(told, *args, *arrays)
        told = Told(remembers=False, facts=self._facts.of(place), last=self._last)
        wrong = function.doubt(told, *args, *arrays)
        self._facts.note(place, told.facts)
        return wrong

    def numbers(self) -> dict[str, dict[str, float]]:
        """By site, the single numbers that were noted: a journal keeps them."""
        few = {
            who: {name: value for name, value in told.facts.items() if isinstance(value, float)}
            for who, told in self._told.items()
        }
        return few | {who: self._facts.numbers(place) for place, who in enumerate(self._many)}

    def recall(self, numbers: Mapping[str, Mapping[str, float]]) -> None:
        """Go on from what :meth:`numbers` gave."""
        for who, facts in numbers.items():
            place = self._place(who)
            if place is None:
                self._of(who).facts |= facts
            else:
                self._facts.note(place, {**self._facts.of(place), **facts})

    def close(self) -> None:
        """The epoch is over: no temporary file is left of it."""
        self._facts.close()

    def _place(self, who: str) -> int | None:
        """Of a site whose facts are put away."""
        place = bisect_left(self._many, who)
        return place if place < len(self._many) and self._many[place] == who else None

    def _of(self, who: str) -> Told:
        """What was told by one of few sites, or by several together."""
        if who not in self._told:
            self._told[who] = Told(last=self._last)
        return self._told[who]
