"""Sites that are elsewhere: requests and replies as bytes, and what happens when they are late, lost, repeated or damaged.

Every engine whose sites answer by message uses the same two ends.  At the site, :class:`SiteEndpoint` turns bytes into bytes and
never raises: a request that is damaged, too large, of an unknown function or out of order is refused with the reason, nothing is
computed and nothing revealed.  At the coordinator, :class:`MailConnection` sends over a :class:`Post`, waits at most
``round_timeout``, matches replies to requests, ignores repeated and late ones, asks once more when one arrives damaged, and drops
a site that stays silent.  A dropped site that is heard of again is offered to the driver, which takes it back between two rounds.

A message to a site is ``after | checksum | payload``: the step the site is believed to have done last (checked against the site's
own count), and a payload as in ``wire.py``, the same bytes for all sites.  The checksum is of the step and of the payload's own
checksum, so that the payload is read once for all sites.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

from ..errors import EigenpactError, FileError, PolicyError, StepError, TooFewSitesError, WireError
from . import wire
from .engine import Connection
from .headers import HEADER_A_FEATURE, MAX_HEADER, REQUEST_KEYS, check_header, reason_in, refusal_in
from .local import Arrays
from .plan import Plan, is_count
from .site import Request, Response, SiteServer
from .site_ledger import shortened

CHECKSUM = 8
"""Bytes for the CRC-32 before a payload, eight to keep arrays aligned.  It finds damage; against tampering engines use TLS."""

PREFIX = 8
MAX_MESSAGE = 1 << 33
"""Larger messages are refused unread."""

WINDOW = 32
"""Requests under way at a time: bounds the replies that the coordinator holds, whatever the number of sites."""

MANY = 100
"""Messages for each site that is asked, from which on a clock is looked at before the next is read."""


class Post(Protocol):
    """Carries bytes to sites and back."""

    def now(self) -> float:
        """Seconds of the clock that timeouts are measured with."""
        ...

    def send(self, site: str, data: bytes) -> None:
        """Send bytes to a site; returns at once."""
        ...

    def receive(self, until: float) -> tuple[str, bytes | None] | None:
        """The next message and its site - without bytes if the site is known to be gone - or None if none came until then."""
        ...


class SiteEndpoint:
    """A site's end: bytes in, bytes out.

    Parameters
    ----------
    server : SiteServer
    max_bytes : int
        Larger messages are refused unread.
    tell : callable, optional
        Called with the reason whenever a message is refused, for the site's log.
    """

    def __init__(
        self, server: SiteServer, max_bytes: int = MAX_MESSAGE, tell: Callable[[str], None] = lambda _reason: None
    ) -> None:
        self._server = server
        self._max_bytes = max_bytes
        self._max_header = MAX_HEADER + HEADER_A_FEATURE * server.n_features
        self._tell = tell

    def handle(self, data: bytes | bytearray | memoryview) -> bytes:
        """Answer one message; whatever is wrong with it is told in the answer."""
        facts: dict[str, Any] = {"site": self._server.name}
        try:
            after, header, args = self._open(memoryview(data))
            check_header(header)
            facts |= {key: header[key] for key in ("run", "epoch", "step")}
            if header["what"] == "hello":
                return _seal(wire.pack(facts | self._standing(header)))
            if header["what"] == "plan":
                self._server.admit(header["run"], header.get("plan"))
                return _seal(wire.pack(facts | self._standing(header)))
            request = Request(args=args, **{key: header[key] for key in REQUEST_KEYS})
            return _seal(wire.pack(facts, self._server.execute(request, after).arrays))
        except _Damaged as error:
            return self._refuse(facts, "damaged", str(error))
        except StepError as error:  # e.g. it was started anew in mid-run: it can take part again in the next epoch
            return self._refuse(facts, "lost", f"out of step: {error}")
        except PolicyError as error:
            return self._refuse(facts, "refused", str(error))
        except FileError as error:
            return self._refuse(facts, "error", "SiteError: a file of this site's cannot be used; its own log says why", error)
        except EigenpactError as error:
            return self._refuse(facts, "error", f"{type(error).__name__}: {error}", error.__cause__)
        except Exception as error:  # such as MemoryError: whatever it is, its text may hold values of rows
            return self._refuse(facts, "error", f"SiteError: this message ended in a {type(error).__name__} here", error)

    def _standing(self, header: dict[str, Any]) -> dict[str, int]:
        """How many features the site has, and the step it did last."""
        last = self._server.position(header["run"], header["epoch"])
        return {"n_features": self._server.n_features, "last": last}

    def _refuse(self, facts: dict[str, Any], how: str, reason: str, cause: BaseException | None = None) -> bytes:
        """Tell both sides why; the cause is for the site's own log alone."""
        self._tell(shortened(reason) + (f" ({shortened(str(cause))})" if cause is not None else ""))
        return _seal(wire.pack(facts | {how: shortened(reason)}))

    def _open(self, data: memoryview) -> tuple[int, dict[str, Any], Arrays]:
        if len(data) > self._max_bytes:
            raise _Damaged(f"message of {len(data)} bytes refused unread: at most {self._max_bytes} are allowed here")
        return int.from_bytes(data[:PREFIX], "little"), *_unseal(data[PREFIX:], bytes(data[:PREFIX]), self._max_header)


class MailConnection(Connection):
    """The coordinator's end.

    Parameters
    ----------
    post : Post
    sites : names
    round_timeout : float
        Seconds a site may take to answer before it is dropped.
    own_sites : names
        Sites in the coordinator's own process.
    max_bytes : int
        Larger replies are refused unread.
    announces : bool
        Whether sites have policies of their own and are told the plan of each run; that is then the first message they get.
    features : names or number of features, optional
        What the plan says of the columns.
    """

    def __init__(
        self,
        post: Post,
        sites: Iterable[str],
        *,
        round_timeout: float,
        own_sites: Iterable[str] = (),
        max_bytes: int = MAX_MESSAGE,
        announces: bool = False,
        features: tuple[str, ...] | int | None = None,
    ) -> None:
        self._post = post
        self._announces = announces
        self._planned_features = features
        self._planned = len(features) if isinstance(features, tuple) else features
        self._round_timeout = round_timeout
        self._max_bytes = max_bytes
        self._own = tuple(sorted(own_sites))
        self._invited = tuple(sites)
        self._present = set(self._invited)
        self._heard: set[str] = set()  # dropped, but heard of since: called again from the next epoch on
        self._reasons: dict[str, str] = {}  # why sites were dropped
        self._features: dict[str, int] = {}
        self._greeted = False
        self._told: dict[tuple[str, int], dict[str, int]] = {}  # run, epoch -> steps told with the answer to the plan
        self._plans: dict[str, Any] = {}  # run -> its plan, for sites that were started anew and have forgotten it
        if not announces:
            self._greet()

    def _greet(self, run: str = "", plan: Plan | None = None) -> None:
        """Learn from every site how many features it has, with the plan if there is one; a site that refuses is left out."""
        self._greeted = True
        header = _hello(run, 0) if plan is None else _hello(run, 0, "plan") | {"plan": plan.to_dict()}
        told = self._ask(sorted(self._present), header)
        self._features = {name: header["n_features"] for name, header in told.items() if self._fits(header.get("n_features"))}
        for name in told.keys() - self._features.keys():
            self._reasons[name] = refusal_in(told[name]) or "it did not tell that it has the features of this run"
            if "lost" not in told[name]:
                self._present.discard(name)
        if told and all("lost" in header for header in told.values()):
            timeout = self._round_timeout
            raise TooFewSitesError(f"none of {len(told)} sites answered within {timeout:g} s; start them, or allow more time")
        if plan is None and told and not self._features:
            reasons = "; ".join(f"{name}: {self._reasons[name]}" for name in sorted(told))
            raise TooFewSitesError(f"none of {len(told)} sites can take part: {reasons}")
        if plan is not None:
            self._note_steps(run, told)

    def _fits(self, n_features: Any) -> bool:
        """Whether a site can have told this number of features."""
        return is_count(n_features) and self._planned in (None, n_features)

    def _note_steps(self, run: str, told: Mapping[str, Mapping[str, Any]]) -> None:
        """Sites tell where they stand with their answer to the plan, so that they need not be asked."""
        self._told = {(run, 0): {name: told[name]["last"] for name in told if is_count(told[name].get("last"))}}

    def sites(self) -> tuple[str, ...]:
        """Sites that answer, sorted."""
        if not self._greeted:
            self._greet()
        return tuple(sorted((self._present | self._heard) & set(self._features)))

    def own_sites(self) -> tuple[str, ...]:
        """Sites in the coordinator's own process."""
        return self._own

    def n_features(self) -> Mapping[str, int]:
        """Number of features at each site, as it told when the run began; before that, as was agreed."""
        if not self._greeted and self._planned is not None:
            return dict.fromkeys(self._invited, self._planned)
        if not self._greeted:
            self._greet()
        return self._features

    def announce(self, run: str, plan: Plan) -> Mapping[str, str]:
        """Tell every site what the run is about to do; give why for each that takes no part."""
        if not self._announces:
            return {}
        plan = replace(plan, features=self._planned_features)
        self._plans = {run: plan.to_dict()}
        if not self._greeted:
            self._greet(run, plan)
            return {name: self._reasons[name] for name in self._invited if name not in self._features}
        absent = {name: self._reasons[name] for name in self._invited if name not in self._features}
        told = self._ask(self.sites(), _hello(run, 0, "plan") | {"plan": plan.to_dict()})
        refused = {name: refusal_in(header) for name, header in told.items() if refusal_in(header)}
        self._note_steps(run, told)
        for name, reason in refused.items():
            self._present.discard(name)
            self._features.pop(name)
            self._reasons[name] = reason
        return absent | refused

    def positions(self, run: str, epoch: int) -> Mapping[str, int]:
        """Ask every site for the last step it executed; one that does not tell is lost to this epoch."""
        self._present |= self._heard
        self._heard.clear()
        known = self._told.pop((run, epoch), {})
        if known and known.keys() == set(self.sites()):
            return known
        header = _hello(run, epoch, "plan") | {"plan": self._plans[run]} if run in self._plans else _hello(run, epoch)
        told = self._ask(self.sites(), header)
        last = {name: header.get("last") for name, header in told.items()}
        for name in [name for name, header in told.items() if "refused" in header]:
            self._present.discard(name)
            self._reasons[name] = refusal_in(told[name])
        return {name: step if is_count(step) else 0 for name, step in last.items()}  # it refuses the next step if that is wrong

    def call(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        """Send a request; yield the replies in sorted site order, ``lost`` for sites that did not answer."""
        payload = wire.pack({"what": "request"} | {key: getattr(request, key) for key in REQUEST_KEYS}, request.args)
        letters = _Letters(self, payload, (request.run, request.epoch, request.step), after)
        for name in sorted(after):
            header, arrays = letters.reply_of(name)
            error = f"refused: {reason_in(header, 'refused')}" if "refused" in header else reason_in(header, "error")
            yield Response(name, arrays, error=error, lost="lost" in header, reason=reason_in(header, "lost"))

    def exchange(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:  # noqa: ARG002
        """Graph programs need engines whose nodes reach each other."""
        raise WireError("this engine's sites do not reach each other; run graph programs with engine='inprocess' or 'mpi'")

    def _ask(self, names: Iterable[str], header: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """What sites tell of themselves, beside the steps."""
        letters = _Letters(self, wire.pack(header), (header["run"], header["epoch"], 0), dict.fromkeys(names, 0))
        return {name: letters.reply_of(name)[0] for name in sorted(letters.after)}


class _Letters:
    """One request under way to its sites."""

    def __init__(self, mail: MailConnection, payload: bytearray, key: tuple[str, int, int], after: Mapping[str, int]) -> None:
        self.after = dict(after)
        self._mail = mail
        self._payload = payload
        self._checksum = _checksum(payload)
        self._key = key
        self._unsent = sorted(after, reverse=True)
        self._read = 0  # messages that came meanwhile
        self._deadlines: dict[str, float] = {}
        self._damage: dict[str, str] = {}  # what was wrong with a site's messages; it is asked again once
        self._arrived: dict[str, tuple[dict[str, Any], Arrays]] = {}

    def reply_of(self, name: str) -> tuple[dict[str, Any], Arrays]:
        """Header and arrays of a site's reply; the header says ``lost``, with the reason, if there is none."""
        while name not in self._arrived:
            while self._unsent and len(self._deadlines) + len(self._arrived) < WINDOW:
                self._send(self._unsent.pop())
            self._receive()
        return self._arrived.pop(name)

    def _send(self, name: str) -> None:
        if name not in self._mail._present:
            self._arrived[name] = {"lost": self._mail._reasons.get(name, "not heard of")}, ()
            return
        after = self.after[name].to_bytes(PREFIX, "little")
        self._mail._post.send(name, b"".join([after, _checksum(after + self._checksum), self._payload]))
        self._deadlines.setdefault(name, self._mail._post.now() + self._mail._round_timeout)  # one for both tries

    def _receive(self) -> None:
        """Take one message, or give up on sites whose time is over."""
        if self._read > MANY * len(self.after):  # somebody sends without end: others' time may be over all the same
            self._give_up()
        if not self._deadlines:
            return
        came = self._mail._post.receive(min(self._deadlines.values()))
        if came is None:
            self._give_up()
            return
        self._read += 1
        name, data = came
        if data is None:
            self._lose(name, "its process or connection ended")
            return
        if len(data) > self._mail._max_bytes:
            self._ask_again(name, f"reply of {len(data)} bytes refused unread: at most {self._mail._max_bytes} are allowed here")
            return
        try:
            header, arrays = _unseal(memoryview(data))
        except (WireError, MemoryError) as error:
            self._ask_again(name, f"damaged reply: {shortened(str(error))}")
            return
        if header.get("site") != name:
            return
        if name not in self._mail._present:  # whatever it says, it is there again
            self._mail._heard.add(name)
        if "damaged" in header:
            self._ask_again(name, f"damaged request: {reason_in(header, 'damaged')}")
        elif (header.get("run"), header.get("epoch"), header.get("step")) == self._key and name in self._deadlines:
            del self._deadlines[name]
            self._arrived[name] = header, arrays

    def _give_up(self) -> None:
        """Lose sites whose time is over."""
        for name in [n for n, deadline in self._deadlines.items() if deadline <= self._mail._post.now()]:
            self._lose(name, self._damage.get(name, f"no answer within {self._mail._round_timeout:g} s"))

    def _ask_again(self, name: str, reason: str) -> None:
        """A damaged message is sent once more; the site repeats its reply without computing it again.

        If that does not help the site is dropped when its time is over, not before: what came damaged may have been foreign.
        """
        if name not in self._deadlines:
            return
        if name not in self._damage:
            self._send(name)
        self._damage[name] = reason

    def _lose(self, name: str, reason: str) -> None:
        self._mail._present.discard(name)
        self._mail._heard.discard(name)
        self._mail._reasons[name] = reason
        if name in self._deadlines:
            del self._deadlines[name]
            self._arrived[name] = {"lost": reason}, ()


def greeting() -> bytes:
    """The letter with which a coordinator asks a site, whose name it may not know yet, what it has."""
    payload, after = wire.pack(_hello("", 0)), bytes(PREFIX)
    return after + _checksum(after + _checksum(payload)) + bytes(payload)


def signed_by(data: bytes) -> str:
    """The site that says it sent a reply; empty if it is damaged."""
    try:
        return reason_in(_unseal(memoryview(data))[0], "site")
    except WireError:
        return ""


class _Damaged(WireError):
    """A payload that does not have its checksum."""


def _hello(run: str, epoch: int, what: str = "hello") -> dict[str, Any]:
    return {"what": what, "run": run, "epoch": epoch, "step": 0}


def _checksum(data: bytes | bytearray | memoryview) -> bytes:
    return zlib.crc32(data).to_bytes(CHECKSUM, "little")


def _seal(payload: bytearray) -> bytes:
    return _checksum(_checksum(payload)) + payload


def _unseal(data: memoryview, after: bytes = b"", max_header: int = MAX_HEADER) -> tuple[dict[str, Any], Arrays]:
    payload = data[CHECKSUM:]
    if len(data) < CHECKSUM or _checksum(after + _checksum(payload)) != bytes(data[:CHECKSUM]):
        raise _Damaged(f"the checksum of {len(after) + len(data)} bytes does not fit")
    wire.check_size(payload, max_header)
    return wire.unpack(payload)
