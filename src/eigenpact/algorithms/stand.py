"""How far the loop of ``expansion.py`` is: its random block, its counters, and what past rounds teach of bounds on angles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace

import numpy as np

from ..numerics.certificate import NARROW, spare
from ..numerics.krylov_space import Ritz
from ..numerics.linalg import Array
from ..numerics.metrics import largest_sine
from ..numerics.tall import random_block as drawn
from ..numerics.tall import times
from .setup import Setup

HINDSIGHT, LEARNT, SAFETY = 4, 0.5, 2.0
"""Rounds that are looked back upon; how much lower the bound must be now for a past iterate to count; and a margin."""

FALLS = 0.9
"""A bound that is not below this share of the smallest so far has not fallen."""

SHARE_BLOCK = 10
"""Components looked for while their number is still to be found from a share of the variance."""


def width_of(setup: Setup) -> int:
    """Components that a block is made for."""
    wanted = setup.n_components
    return wanted if isinstance(wanted, int) else min(SHARE_BLOCK, setup.n_features, setup.n_samples)


def random_block(setup: Setup) -> Array:
    """Omega (d x b): the same whenever it is asked for."""
    k = width_of(setup)
    return drawn(setup.n_features, min(k + spare(k), setup.n_features), setup.seed)


@dataclass(frozen=True, eq=False)
class Past:
    """Bases of the last rounds, side by side, and the bounds on their angles that were known then.

    As long as the space Q (d x m) grows by columns alone, they are kept ``inside`` it, as T with Z = Q T (m x k): angles between
    them are the same, and there are fewer numbers.  Later they are kept as they are (d x k).
    """

    bases: Array
    bounds: Array
    inside: bool = True

    @classmethod
    def empty(cls) -> Past:
        """No rounds yet."""
        return cls(np.zeros((0, 0)), np.zeros(0))

    @classmethod
    def of(cls, state: Mapping[str, Array]) -> Past:
        """From a state that has what :meth:`state` gave; journals of 0.1.0 and 0.2.0 have bases as they are."""
        inside = "inside" in state
        return cls(state["inside" if inside else "bases"], state["bounds"], inside)

    def state(self) -> dict[str, Array]:
        """As a journal keeps it."""
        return {"inside" if self.inside else "bases": self.bases, "bounds": self.bounds}

    def form(self, ritz: Ritz) -> Array:
        """The basis of Ritz vectors, as bases are kept here."""
        return np.ascontiguousarray(ritz.turn[:, : ritz.k]) if self.inside else ritz.Z

    def factor(self, Z: Array, bound: float) -> float:
        """By how much bounds were too large, as far as Z with its own ``bound`` can tell; at most 1."""
        k, ratios = Z.shape[1], []
        for i, before in enumerate(self.bounds.tolist()):
            if bound <= LEARNT * before < LEARNT:
                then = _longer(self.bases[:, i * k : (i + 1) * k], len(Z))
                ratios.append(largest_sine(then, Z) / (1 - bound / before) / before)
        return min(1.0, SAFETY * max(ratios)) if len(ratios) > 1 else 1.0

    def add(self, Z: Array, bound: float) -> Past:
        """With one more round, without the oldest one beyond HINDSIGHT."""
        k = Z.shape[1]
        if self.bounds.size and self.bases.shape[1] != k * self.bounds.size:  # the number of components has changed
            return Past(Z, np.array([bound]), self.inside)
        kept = _longer(self.bases[:, max(0, self.bases.shape[1] - (HINDSIGHT - 1) * k) :], len(Z))
        return Past(np.concatenate([kept, Z], axis=1), np.append(self.bounds, bound)[-HINDSIGHT:], self.inside)

    def outside(self, Q: Array) -> Past:
        """The same, of a space Q (d x m) that is about to be turned."""
        return Past(times(Q, _longer(self.bases, Q.shape[1])), self.bounds, inside=False) if self.inside else self


def _longer(bases: Array, rows: int) -> Array:
    """With zeros below, up to so many rows."""
    return np.concatenate([bases, np.zeros((rows - len(bases), bases.shape[1]))])


@dataclass(frozen=True, eq=False)
class Stand:
    """How far the loop is: the counters that are saved with a space.

    Attributes
    ----------
    rounds : int
        Rounds of the run so far.
    confirmed : bool
        Whether the leading products are the sites' own, not turned in a restart.
    pure : bool
        Whether the space is the block Krylov space of Omega and nothing else.
    best, idle : float, int
        The smallest bound on the angle so far, and for how many rounds it has not fallen.
    restarted : bool
        Whether only ``NARROW`` columns of Omega are left.
    anew : bool
        Whether all products have been made anew because of rounding errors.
    block : int
        Columns of the wider random block that took Omega's place; 0 where none did.
    """

    rounds: int
    confirmed: bool = True
    pure: bool = True
    best: float = np.inf
    idle: int = 0
    restarted: bool = False
    anew: bool = False
    block: int = 0

    @classmethod
    def of(cls, counters: Array) -> Stand:
        """From what :meth:`counters` made; in journals of 0.1.0 the last one is lacking."""
        rounds, confirmed, pure, best, idle, restarted, anew, *block = counters.tolist()
        return cls(int(rounds), bool(confirmed), bool(pure), best, int(idle), bool(restarted), bool(anew), int(sum(block)))

    def counters(self) -> Array:
        """As an array."""
        return np.array(astuple(self), dtype=float)

    def after(self, bound: float) -> Stand:
        """With the bound on the angle of one round more."""
        return replace(self, best=bound, idle=0) if bound < FALLS * self.best else replace(self, idle=self.idle + 1)


def random_block_of(setup: Setup, stand: Stand) -> Array:
    """The random block (d x b) that proves what was not missed."""
    wide = drawn(setup.n_features, stand.block, setup.seed + 1) if stand.block else random_block(setup)
    return np.ascontiguousarray(wide[:, : NARROW if stand.restarted else None])
