"""A coordinator's side of secured sums: it brings the sites' keys to each other, adds up what it cannot read, and stops in time.

See ``keys.py`` for what sites agree on through it, ``secure_sum.py`` for how their replies are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..errors import TooFewSitesError
from .engine import Connection
from .keys import (
    KEY_ASIDE,
    KEYS,
    ROSTER,
    ROSTER_ASIDE,
    as_member,
    new_nonce,
    pack_roster,
    session_key,
    session_roster,
)
from .ledger import COORDINATOR, describe
from .local import Arrays, LocalFunction, frozen
from .requests import Requests
from .secure_sum import Form, Secured, agreed_trace, forms_of
from .site import Request, Response


class Sessions(Requests):
    """Requests of a run whose sums may be secured."""

    def __init__(self, connection: Connection, run: str, own: str | None, secure: Secured | None) -> None:
        super().__init__(connection, run, own)
        self._secure = secure
        self.masks = secure is not None
        self._begun, self._trace = False, 0.0

    def forms(self, function: LocalFunction) -> Mapping[str, Form] | None:
        """How replies to a sum are written where sums are secured; None where they are plain."""
        return forms_of(function, self._trace, len(self.roster)) if self.masks else None

    def forget_session(self) -> None:
        """Keys are agreed on anew in every epoch, for which sites begin it anew."""
        self._after, self._begun, self._trace = {}, False, 0.0

    def begin_session(self) -> None:
        """Let the sites of this epoch agree on keys, unless they have, or sums are plain."""
        if not self.masks or self._begun:
            return
        nonce = frozen((new_nonce(),))
        members = [as_member(reply.site, reply.arrays) for reply in self._aside(KEYS, KEY_ASIDE, session_key, nonce)]
        roster = frozen((np.frombuffer(pack_roster(members), dtype=np.uint8),))
        for _ in self._aside(ROSTER, ROSTER_ASIDE, session_roster, roster):
            pass
        self._begun = True

    def note_told(self, function: LocalFunction, args: Arrays) -> None:
        """Take note of the trace that sites were told in this session: units of later sums are shares of it."""
        self._trace = agreed_trace(function, args, self._trace)

    def go_on_or_stop(self, gone: Mapping[str, str], told: str) -> None:
        """A secured run that loses sites stops, unless all agreed that it goes on without so many; ``told`` says how."""
        if self._secure is None or not gone:
            return
        together = " and ".join(sorted(gone))
        if self._secure.min_apart and len(gone) >= self._secure.min_apart:
            for name in sorted(gone):
                self.account.event(name, f"from here on the part of {together} can be computed, as a difference of sums")
            return
        error = TooFewSitesError(
            f"lost {told}: sums are secured, and going on without {together} would show what only {together} has; "
            f"bring {together} back, then resume from the journal, or fit again"
        )
        error.basis = self.account.basis
        raise error

    def _aside(self, kind: str, step: int, function: LocalFunction, args: Arrays) -> Iterator[Response]:
        """Ask all sites something beside the steps; it counts as a round of set-up."""
        self.account.count_round(function)
        self.enter(function, (COORDINATOR,), self.roster, describe(args))
        yield from self.replies(Request(self._run, self.account.epoch, step, kind, function.name, args), function, self.roster)
