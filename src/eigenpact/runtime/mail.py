"""Sites that are elsewhere: requests and replies as bytes, and what happens when they are late, lost, repeated or damaged.

Every engine whose sites answer by message uses the same two ends.  At the site, :class:`SiteEndpoint` turns bytes into bytes and
never raises: a request that is damaged, too large, of an unknown function or out of order is refused with the reason, nothing is
computed and nothing revealed.  At the coordinator, :class:`MailConnection` sends over a :class:`Post`, waits at most
``round_timeout``, matches replies to requests, ignores repeated and late ones, asks once more when one arrives damaged, and drops
a site that stays silent.  A dropped site that is heard of again is offered to the driver, which takes it back between two rounds.

What a letter looks like, and how it is signed where parties have keys, is told in ``letters.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import EigenpactError, FileError, NotAnnouncedError, PolicyError, SiteError, StepError, TooFewSitesError, WireError
from . import wire
from .engine import Connection, Post
from .headers import HEADER_A_FEATURE, MAX_HEADER, REQUEST_KEYS, check_header, reason_in, refusal_in
from .letters import Damaged, Forged, Identity, Letter, hello, open_letter, seal, unseal
from .local import Arrays
from .plan import Plan, first_allowed, is_count
from .site import Request, Response, SiteServer
from .site_ledger import shortened

MAX_MESSAGE = 1 << 33
"""Larger messages are refused unread."""

WINDOW = 32
"""Requests under way at a time: bounds the replies that the coordinator holds, whatever the number of sites."""

MANY = 100
"""Messages for each site that is asked, from which on a clock is looked at before the next is read."""


class SiteEndpoint:
    """A site's end: bytes in, bytes out.

    Parameters
    ----------
    server : SiteServer
    max_bytes : int
        Larger messages are refused unread.
    tell : callable, optional
        Called with the reason whenever a message is refused, for the site's log.
    identity : Identity, optional
        The site's key and the coordinator's: letters without the coordinator's signature are refused, and replies are signed.
    """

    def __init__(
        self,
        server: SiteServer,
        max_bytes: int = MAX_MESSAGE,
        tell: Callable[[str], None] = lambda _reason: None,
        identity: Identity | None = None,
    ) -> None:
        self._server = server
        self._identity = identity
        self._max_bytes = max_bytes
        self._max_header = MAX_HEADER + HEADER_A_FEATURE * server.n_features
        self._tell = tell

    def handle(self, data: bytes | bytearray | memoryview) -> bytes:
        """Answer one message; whatever is wrong with it is told in the answer."""
        facts: dict[str, Any] = {"site": self._server.name}
        try:
            after, name, header, args = self._open(memoryview(data))
            check_header(header)
            facts |= {"asked": name} if name else {}
            facts |= {key: header[key] for key in ("run", "epoch", "step")}
            if header["what"] == "plan":
                self._server.admit(header["run"], header.get("plan"), self._time_of(header))
            if header["what"] in ("hello", "plan"):
                return self._seal(facts | self._standing(header))
            request = Request(args=args, **{key: header[key] for key in REQUEST_KEYS})
            return self._seal(facts, self._server.execute(request, after).arrays)
        except Damaged as error:
            return self._refuse(facts, "damaged", str(error))
        except StepError as error:  # e.g. it was started anew in mid-run: it can take part again in the next epoch
            return self._refuse(facts, "lost", f"out of step: {error}")
        except NotAnnouncedError as error:  # likewise
            return self._refuse(facts, "lost", str(error))
        except PolicyError as error:
            return self._refuse(facts, "refused", str(error))
        except FileError as error:
            return self._refuse(facts, "failed", "SiteError: a file of this site's cannot be used; its own log says why", error)
        except EigenpactError as error:
            how = "failed" if isinstance(error, SiteError) else "error"  # here, as it may not elsewhere, or for what was asked
            return self._refuse(facts, how, f"{type(error).__name__}: {error}", error.__cause__)
        except Exception as error:  # such as MemoryError: whatever it is, its text may hold values of rows
            return self._refuse(facts, "failed", f"SiteError: this message ended in a {type(error).__name__} here", error)

    def _standing(self, header: dict[str, Any]) -> dict[str, int]:
        """How many features the site has, and the step it did last."""
        last = self._server.position(header["run"], header["epoch"])
        return {"n_features": self._server.n_features, "last": last}

    def _refuse(self, facts: dict[str, Any], how: str, reason: str, cause: BaseException | None = None) -> bytes:
        """Tell both sides why; the cause is for the site's own log alone."""
        self._tell(shortened(reason) + (f" ({shortened(str(cause))})" if cause is not None else ""))
        return self._seal(facts | {how: shortened(reason)})

    def _seal(self, facts: dict[str, Any], arrays: Arrays = ()) -> bytes:
        return seal(wire.pack(facts, arrays), self._identity)

    def _time_of(self, header: dict[str, Any]) -> int | None:
        """When a plan was sent, by the coordinator's clock; only a signature makes that worth knowing."""
        if self._identity is None:
            return None
        if not is_count(header.get("sent")):
            raise WireError("message header: 'sent' must tell when a signed plan was sent, in nanoseconds")
        return int(header["sent"])

    def _open(self, data: memoryview) -> tuple[int, str, dict[str, Any], Arrays]:
        if len(data) > self._max_bytes:
            raise Damaged(f"message of {len(data)} bytes refused unread: at most {self._max_bytes} are allowed here")
        return open_letter(data, self._server.name, self._identity, self._max_header)


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
    identity : Identity, optional
        The coordinator's key and the sites': letters are signed, and replies without their site's signature are not believed.
    tell : callable, optional
        Called with a site's name and the reason whenever a reply is not believed.
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
        identity: Identity | None = None,
        tell: Callable[[str, str], None] = lambda _site, _reason: None,
    ) -> None:
        self._post = post
        self._identity = identity
        self._tell = tell
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

    def _greet(self, run: str = "", plans: Sequence[Plan] = ()) -> int:
        """Learn from every site how many features it has, with the plan if there are any; a site that refuses is left out."""
        self._greeted = True
        asked = sorted(self._present)
        chosen, told = self._tell_plans(asked, run, plans) if plans else (0, self._ask(asked, hello(run, 0)))
        self._features = {name: header["n_features"] for name, header in told.items() if self._fits(header.get("n_features"))}
        for name in told.keys() - self._features.keys():
            self._reasons[name] = refusal_in(told[name]) or "it did not tell that it has the features of this run"
            if "lost" not in told[name]:
                self._present.discard(name)
        if told and all("lost" in header for header in told.values()):
            silent = f"no answer within {self._round_timeout:g} s"
            why = "".join(f", {reason}" for reason in sorted({reason_in(header, "lost") for header in told.values()} - {silent}))
            raise TooFewSitesError(
                f"none of {len(told)} sites answered within {self._round_timeout:g} s{why}; start them, or allow more time"
            )
        if not plans and told and not self._features:
            reasons = "; ".join(f"{name}: {self._reasons[name]}" for name in sorted(told))
            raise TooFewSitesError(f"none of {len(told)} sites can take part: {reasons}")
        if plans:
            self._note_steps(run, told)
        return chosen

    def _tell_plans(self, names: Sequence[str], run: str, plans: Sequence[Plan]) -> tuple[int, dict[str, dict[str, Any]]]:
        """Announce the first of these plans whose solver all allow; which it is, and what sites answered."""
        told: dict[str, dict[str, Any]] = {}

        def ask(plan: Plan) -> dict[str, str]:
            self._plans = {run: replace(plan, features=self._planned_features).to_dict()}
            told.update(self._ask(names, self._plan_header(run, 0)))
            return {name: refusal_in(header) for name, header in told.items()}

        return first_allowed(plans, ask), told

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

    def invited(self) -> tuple[str, ...]:
        """Sites that are to take part, sorted, whether they answer or not."""
        return tuple(sorted(self._invited))

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

    def announce(self, run: str, *plans: Plan) -> tuple[int, Mapping[str, str]]:
        """Tell every site what the run is about to do, by the first plan whose solver all allow; which, and who is absent."""
        if not self._announces:
            return 0, {}
        if not self._greeted:
            chosen = self._greet(run, plans)
            return chosen, {name: self._reasons[name] for name in self._invited if name not in self._features}
        absent = {name: self._reasons[name] for name in self._invited if name not in self._features}
        chosen, told = self._tell_plans(self.sites(), run, plans)
        refused = {name: refusal_in(header) for name, header in told.items() if refusal_in(header)}
        self._note_steps(run, told)
        for name, reason in refused.items():
            self._present.discard(name)
            self._features.pop(name)
            self._reasons[name] = reason
        return chosen, absent | refused

    def _plan_header(self, run: str, epoch: int) -> dict[str, Any]:
        sent = {} if self._identity is None else {"sent": time.time_ns()}
        return hello(run, epoch, "plan") | {"plan": self._plans[run]} | sent

    def positions(self, run: str, epoch: int) -> Mapping[str, int]:
        """Ask every site for the last step it executed; one that does not tell is lost to this epoch."""
        self._present |= self._heard
        self._heard.clear()
        known = self._told.pop((run, epoch), {})
        if known and known.keys() == set(self.sites()):
            return known
        header = self._plan_header(run, epoch) if run in self._plans else hello(run, epoch)
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
            if "lost" in header:
                yield Response(name, lost=True, reason=reason_in(header, "lost"))
                continue
            error = f"{'refused: ' if 'refused' in header else ''}{refusal_in(header)}"
            yield Response(name, arrays, error=error, own="refused" in header or "failed" in header)

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
        self._letter = Letter(payload, mail._identity)
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
        self._mail._post.send(name, self._letter.to(name, self.after[name]))
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
            header, arrays = unseal(memoryview(data), name, self._mail._identity)
        except Forged as error:
            self._mail._tell(name, f"refused: {error}")
            self._ask_again(name, str(error))
            return
        except (WireError, MemoryError) as error:
            self._ask_again(name, f"damaged reply: {shortened(str(error))}")
            return
        if header.get("site") != name:
            return
        if name not in self._mail._present:  # whatever it says, it is there again
            self._mail._heard.add(name)
        if "damaged" in header:
            self._ask_again(name, f"damaged request: {reason_in(header, 'damaged')}")
        elif "refused" in header and "run" not in header:
            self._ask_again(name, f"refused: {reason_in(header, 'refused')}")
        elif name in self._deadlines and self._answers(name, header):
            del self._deadlines[name]
            self._arrived[name] = header, arrays

    def _answers(self, name: str, header: Mapping[str, Any]) -> bool:
        """Whether a reply is to the request under way, and not a late one to another."""
        asked = tuple(header.get(key) for key in ("run", "epoch", "step"))
        return asked == self._key and header.get("asked", "") == self._letter.name(name, self.after[name])

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
