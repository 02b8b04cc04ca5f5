"""Requests to the sites of a run: sent, awaited, checked against what their functions declare, and entered in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from ..errors import InputError, SiteError, WireError
from .account import Account
from .doubts import Doubts
from .engine import Connection
from .ledger import COORDINATOR, Description, Names, describe
from .local import Arrays, LocalFunction
from .secure_sum import Form, check_encoded
from .site import Request, Response

SILENT_KINDS = frozenset({"local", "consider"})
"""Nothing comes back from these."""

SECURED = "secured"
"""Noted of masked replies."""

SUM = "the sum of all"
"""Under this name stands what sites told together."""

SHOWN = 20
"""Sites that a message names, at most."""

Perform = Callable[[Request], Arrays]


class RosterChanged(Exception):
    """Sites were lost (name -> reason), some ``for_good``, or came back; the program starts again with the new roster."""

    def __init__(self, lost: Mapping[str, str] | None = None, joined: Sequence[str] = (), for_good: Collection[str] = ()) -> None:
        super().__init__(f"lost {sorted(lost or {})}, joined {sorted(joined)}")
        self.lost = dict(lost or {})
        self.joined = tuple(joined)
        self.for_good = frozenset(for_good)


class Requests:
    """Sends requests of one run, and checks and enters what comes back.

    Attributes
    ----------
    roster : tuple of str
        The sites that take part now, sorted.
    account : Account
    n_features : int
        Of all sites alike.
    doubted : dict
        Sites whose replies could not be true, and why; they do not come back in this run.
    doubts : Doubts
        What sites told in this epoch.
    """

    def __init__(self, connection: Connection, run: str, own: str | None) -> None:
        self.connection = connection
        self.account = Account()
        self.roster = tuple(sorted(connection.sites()))
        self.n_features = _agreed_features(connection, self.roster)
        self.doubted: dict[str, str] = {}
        self.doubts = Doubts(self.roster, self.n_features)
        self._run, self._own = run, own
        self.masks = False  # whether sums are secured
        self._after: dict[str, int] = {}  # the last step each site executed, as far as we know
        self._resending = False

    def all_from(self, function: LocalFunction, targets: tuple[str, ...], receiver: str = COORDINATOR) -> Perform:
        """Carry out a request at these sites and collect the replies in order; ``receiver`` "" if they stay where they are."""

        def collect(request: Request) -> Arrays:
            replies = self.replies(request, function, targets, receiver)
            return tuple(array for response in replies for array in response.arrays)

        return collect

    def replies(
        self,
        request: Request,
        function: LocalFunction,
        targets: Sequence[str],
        receiver: str = COORDINATOR,
        forms: Mapping[str, Form] | None = None,
    ) -> Iterator[Response]:
        """Checked responses in sorted site order; every one that arrived is in the ledger even if the round fails.

        A site that fails for a reason of its own is lost for good; if all do, the function is at fault and the run ends.
        Of masked replies, written in ``forms``, only the shapes can be checked: see :meth:`check_sum`.
        """
        sizes = function.check_args(request.args, self.n_features)
        arrived: dict[Description, list[str]] = {}
        lost: dict[str, str] = {}
        failed: dict[str, str] = {}
        try:
            for response in self.connection.call(request, self._positions(targets)):
                if response.lost:
                    lost[response.site] = response.reason
                    continue
                if response.own:
                    failed[response.site] = response.error
                    continue
                self._accept(response, request, function)
                if request.kind not in SILENT_KINDS:
                    arrived.setdefault(describe(response.arrays), []).append(response.site)
                wrong = self._wrong(response, request, function, sizes, forms)
                if wrong:
                    lost[response.site] = self.doubted[response.site] = wrong
                    continue
                yield response
        finally:
            for description, senders in arrived.items():
                if receiver:
                    self.enter(function, tuple(senders), (receiver,), description, kind=request.kind)
        if failed and len(failed) + len(lost) == len(targets):
            raise _failure(function, *next(iter(failed.items())))
        if lost or failed:
            raise RosterChanged(lost | failed, for_good=failed)

    def exchange(self, request: Request, function: LocalFunction, nodes: Sequence[str]) -> Arrays:
        """Let nodes send to their neighbours; nothing comes back here but what the ledger writes."""
        sizes = function.check_args(request.args, self.n_features)
        fitting: set[Description] = set()  # forms of messages that were looked at
        for response in self.connection.exchange(request, self._positions(nodes)):
            if response.lost:
                raise RosterChanged({response.site: response.reason})
            self._accept(response, request, function)
            alike: dict[Description, list[str]] = {}  # messages of one form are looked at, and written down, together
            seen: Arrays | None = None
            for neighbour in sorted(response.messages):
                arrays = response.messages[neighbour]
                if arrays is not seen:  # one message for several neighbours has one form
                    seen, description = arrays, describe(arrays)
                    if description not in fitting:
                        function.check_reply(arrays, sizes)
                        fitting.add(description)
                alike.setdefault(description, []).append(neighbour)
            for description, neighbours in alike.items():
                self.enter(function, (response.site,), neighbours, description)
        return ()

    def enter(self, function: LocalFunction, senders: Names, receivers: Names, description: Description, kind: str = "") -> None:
        """Write messages of the current step into the ledger."""
        own = kind == "at" and self._own in (*senders, *receivers)
        note = "own" if own else "resent" if self._resending else "setup" if function.setup else ""
        if self.masks and kind == "sum" and COORDINATOR in receivers:
            note = f"{note}, {SECURED}" if note else SECURED
        self.account.enter(function, senders, receivers, description, note)

    def _accept(self, response: Response, request: Request, function: LocalFunction) -> None:
        if response.error:
            raise _failure(function, response.site, response.error)
        if request.step > 0:  # else it is beside the steps
            self._after[response.site] = request.step

    @property
    def together(self) -> bool:
        """Whether sums are looked at, too: single replies cannot be seen, or there are too many to remember."""
        return self.masks or self.doubts.together

    def check_sum(self, function: LocalFunction, args: Arrays, arrays: Arrays) -> None:
        """Look at a sum, where single terms are not seen or not remembered; who is to blame cannot be told."""
        wrong = self.doubts.about(function, SUM, args, arrays, len(self.roster))
        if wrong:
            others = f" and {len(self.roster) - SHOWN} others" if len(self.roster) > SHOWN else ""
            names = f"{', '.join(self.roster[:SHOWN])}{others}"
            raise SiteError(
                f"the sum of {function.short_name} over {names}: {wrong}; one of these sites gives replies that cannot be true: "
                "fit without some of them to find it"
            )

    def _wrong(
        self,
        response: Response,
        request: Request,
        function: LocalFunction,
        sizes: dict[str, int],
        forms: Mapping[str, Form] | None,
    ) -> str:
        """What cannot be true of a reply; at a site of this very process, where nobody lies, that is an error."""
        silent = request.kind in SILENT_KINDS
        try:
            if silent and response.arrays:
                raise WireError(f"{len(response.arrays)} arrays; none are due")
            if forms is not None:
                check_encoded(function, forms, response.arrays, sizes)
            elif not silent:
                function.check_reply(response.arrays, sizes)
        except WireError as error:
            if response.site in self.connection.own_sites():
                raise
            return f"its reply of {function.short_name}: {error}"
        if forms is not None:
            return ""
        wrong = self.doubts.about(function, response.site, request.args, () if silent else response.arrays)
        if wrong and response.site in self.connection.own_sites():
            raise InputError(
                f"the reply of {function.short_name} at site {response.site!r}: {wrong}; see to this site, or leave it out"
            )
        return f"its reply of {function.short_name}: {wrong}" if wrong else ""

    def _positions(self, targets: Sequence[str]) -> dict[str, int]:
        return {name: self._after.get(name, 0) for name in targets}


def _failure(function: LocalFunction, site: str, reason: str) -> SiteError:
    return SiteError(f"{function.short_name} at site {site!r}: {reason}")


def _agreed_features(connection: Connection, roster: Sequence[str]) -> int:
    found = connection.n_features()
    if not roster:
        raise InputError("no sites to run on; give at least one site with rows")
    if COORDINATOR in roster:
        raise InputError(f"a site may not be called {COORDINATOR!r}, the ledger's name for whoever runs the program; rename it")
    d = found[roster[0]]
    other = [name for name in roster if found[name] != d]
    if other:
        raise InputError(f"site {roster[0]!r} has {d} features but {other[0]!r} has {found[other[0]]}; align the columns first")
    return d
