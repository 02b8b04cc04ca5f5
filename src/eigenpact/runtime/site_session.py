"""A site's part in the sessions of a run whose sums are secured: it begins them, is asked again, is refused, and forgets.

A session is begun by two requests beside the steps (``keys.py``).  Each is answered once: asked the same again, as happens when a
message comes twice, a site repeats its answer; the number of a session that is over begins none.  Whatever is refused ends the
session; sums are then refused until another is begun.  What fails *because of the rows* must not be seen, or a coordinator would
learn a number of one site by trying: behind a gate the session then goes on, and only noise leaves (``secure_sum.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import BudgetError, EigenpactError, FileError, MissingExtraError, PolicyError, StepError
from .keys import KEYS, Session, Trust, as_reply, digest_of_roster
from .local import Arrays, LocalFunction
from .secure_sum import SECURED_KINDS, Masked

if TYPE_CHECKING:
    from .gate import Gate
    from .site import Request, Response


class SiteSession:
    """The session of one site's present epoch, if there is one.

    Attributes
    ----------
    masked : Masked or None
        What masks replies, once the others are known.
    """

    def __init__(self, site: str, trust: Trust, gate: Gate | None) -> None:
        self.masked: Masked | None = None
        self._site, self._trust, self._gate = site, trust, gate
        self._session: Session | None = None
        self._secured = False  # whether sums of this epoch are masked, or else refused
        self._run, self._numbers = "", set[str]()  # of sessions that were begun in this run

    def check_open(self) -> None:
        """Refuse to reply where sums of this epoch were to be masked, and cannot be."""
        if self._secured and self.masked is None:
            raise PolicyError("rule secure: the session of this epoch has ended here, or not begun; begin another")

    def check_shapes(self, function: LocalFunction, sizes: dict[str, int]) -> None:
        """Refuse a masked reply whose shape would tell of the rows."""
        if self.masked is not None:
            function.reply_shapes(sizes)

    def tried(self, request: Request, answer: Callable[[], Response]) -> Response | None:
        """The answer; behind a gate, where sums are secured, None from the first one on that fails: it would tell of the rows.

        Why stands in the site's own ledger.  Of rows there is nothing in what a purse, a file or a missing package says.
        """
        if self.masked is None or self._gate is None or request.kind not in SECURED_KINDS:
            return answer()
        if not self.masked.spoiled:
            try:
                return answer()
            except (BudgetError, FileError, MissingExtraError):
                raise
            except EigenpactError as error:
                self._gate.failed(request, str(error), hidden=True)
                self.masked.spoiled = True
        return None

    def noise(self, function: LocalFunction, shapes: list[tuple[int, ...]]) -> Arrays:
        """Random words in place of a masked reply."""
        assert self.masked is not None
        return self.masked.noise(function, shapes)

    def end(self) -> None:
        """Forget what this site shares with others."""
        self._session = self.masked = None

    def forget(self) -> None:
        """An epoch begins in which nothing is secured so far."""
        self._secured = False
        self.end()

    def repeated(self, request: Request) -> Arrays:
        """The answer that was given to the same request; none if this is another."""
        session, told = self._session, request.args[0].tobytes()
        if session is None or (session.run, session.epoch) != (request.run, request.epoch):
            return ()
        if request.kind == KEYS:
            return as_reply(session.member) if told == session.nonce else ()
        return _as_arrays(session.digest) if session.ready and session.digest == digest_of_roster(request.run, told) else ()

    def answered(self, request: Request, begin: Callable[[], None]) -> Arrays:
        """The answer to a request that was not made before; ``begin`` lets the epoch begin anew."""
        if self._gate is not None:
            self._gate.check_session(request)
        told = request.args[0].tobytes()
        if request.kind != KEYS:
            return _as_arrays(self._joined(request, told))
        if self._run != request.run:
            self._run, self._numbers = request.run, set()
        if told.hex() in self._numbers:
            raise StepError(f"site {self._site!r}: the session of this number is over here; begin another")
        history = b"" if self._gate is None else self._gate.history(request)
        begin()
        self._numbers.add(told.hex())
        self._secured = True
        self._session = Session(self._site, self._trust, request.run, request.epoch, told, history)
        return as_reply(self._session.member)

    def _joined(self, request: Request, roster: bytes) -> bytes:
        """Take part in a session, or forget it; the digest of its roster."""
        session = self._session
        try:
            if session is None or session.ready or (session.run, session.epoch) != (request.run, request.epoch):
                raise PolicyError("rule roster: no session was begun here, or it has its roster already; begin another")
            digest = session.join(roster)
            if self._gate is not None:
                self._gate.check_roster(session)
        except EigenpactError as error:
            self.end()
            if self._gate is not None and isinstance(error, PolicyError):
                self._gate.refused(request.run, str(error), request.function)
            raise
        self.masked = Masked(session)
        self.masked.spoiled = self._gate is not None and self._gate.is_silent(request.run)
        return digest

    def remember(self) -> dict[str, Any]:
        """For another process of this site, in the site's own memory."""
        facts: dict[str, Any] = {"secured": self._secured, "run": self._run, "numbers": sorted(self._numbers)}
        facts["session"] = None if self._session is None else self._session.remember()
        return facts | {"masked": None if self.masked is None else self.masked.remember()}

    def recall(self, facts: Mapping[str, Any]) -> None:
        """Go on where another process of this site stopped."""
        self._secured, self._run, self._numbers = facts["secured"], facts["run"], set(facts["numbers"])
        self.end()
        if facts["session"] is None:
            return
        self._session = Session.recall(self._site, self._trust, facts["session"])
        if facts["masked"] is not None:
            self.masked = Masked(self._session)
            self.masked.recall(facts["masked"])


def _as_arrays(digest: bytes) -> Arrays:
    return (np.frombuffer(digest, dtype=np.uint8),)
