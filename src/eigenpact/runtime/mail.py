"""Sites that are elsewhere: requests and replies as bytes, and what happens when they are late, lost, repeated or damaged.

Every engine whose sites answer by message uses the same two ends.  At the site, :class:`SiteEndpoint` (``endpoint.py``) turns
bytes into bytes.  At the coordinator, :class:`MailConnection` sends over a :class:`Post`, waits at most ``round_timeout``,
matches replies to requests, ignores repeated and late ones, asks once more when one arrives damaged, and drops a site that stays
silent.  A dropped site that is heard of again is offered to the driver, which takes it back between two rounds.

What a letter looks like, and how it is signed where parties have keys, is told in ``letters.py``; which protocol it is of, in
``protocol.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import PolicyError, TooFewSitesError, WireError
from . import wire
from .endpoint import MAX_MESSAGE
from .engine import Connection, Costs, Post
from .headers import REQUEST_KEYS, reason_in, refusal_in
from .ledger import COORDINATOR
from .letters import Forged, Identity, Letter, hello, unseal
from .local import Arrays
from .plan import Plan, first_allowed, is_count
from .protocol import Speaker, agree, named, upgraded
from .site import Request, Response
from .site_ledger import shortened

WINDOW = 32
"""Requests under way at a time: bounds the replies that the coordinator holds, whatever the number of sites."""

MANY = 100
"""Messages for each site that is asked, from which on a clock is looked at before the next is read."""


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
        self._speakers: dict[str, Speaker] = {}  # as sites told with their last answer to a greeting or plan
        self._protocol = 1
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
        self._agree()
        return chosen

    def _tell_plans(self, names: Sequence[str], run: str, plans: Sequence[Plan]) -> tuple[int, dict[str, dict[str, Any]]]:
        """Announce the first of these plans whose solver all allow; which it is, and what sites answered."""
        told: dict[str, dict[str, Any]] = {}

        def ask(plan: Plan) -> dict[str, str]:
            self._plans = {run: replace(plan, features=self._planned_features).to_dict()}
            told.update(self._ask(names, self._plan_header(run, 0)))
            return {name: refusal_in(header) for name, header in told.items()}

        return first_allowed(plans, ask), told

    def _agree(self) -> None:
        """On the protocol of the requests to come: the highest that all sites speak which take part now."""
        self._protocol = agree([Speaker.here(f"the {COORDINATOR}"), *self.speakers().values()])

    def speakers(self) -> Mapping[str, Speaker]:
        """Releases of the sites that take part, and which protocols they speak."""
        return {name: self._speakers[name] for name in self.sites() if name in self._speakers}

    @property
    def protocol(self) -> int:
        """The one that requests are of."""
        return self._protocol

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

    def measured(self, usual: Costs) -> Costs:
        """Sites compute at the same time, each on its own; how long messages take is not known before some have come back."""
        return replace(usual, at_once=max(1, len(self._invited)))

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
        self._agree()
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
        self._agree()
        return {name: step if is_count(step) else 0 for name, step in last.items()}  # it refuses the next step if that is wrong

    def call(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        """Send a request; yield the replies in sorted site order, ``lost`` for sites that did not answer."""
        header = {"what": "request"} | {key: getattr(request, key) for key in REQUEST_KEYS} | named(self._protocol)
        payload = wire.pack(header, request.args)
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
        """What sites tell of themselves, beside the steps; a site that speaks no protocol of ours has refused."""
        header |= (own := Speaker.here(f"the {COORDINATOR}")).header()
        letters = _Letters(self, wire.pack(header), (header["run"], header["epoch"], 0), dict.fromkeys(names, 0))
        told = {name: letters.reply_of(name)[0] for name in sorted(letters.after)}
        return {name: answer if "lost" in answer else self._heard_from(name, answer, own) for name, answer in told.items()}

    def _heard_from(self, name: str, answer: dict[str, Any], own: Speaker) -> dict[str, Any]:
        """A site's answer, from which we learn what it speaks; what it refuses because of its release says so."""
        try:
            party = self._speakers[name] = Speaker.elsewhere(f"site {name!r}", answer)
            agree([own, party])
        except (WireError, PolicyError) as error:
            self._speakers.pop(name, None)
            return {"refused": refusal_in(answer) or str(error)}
        return answer | {how: upgraded(party, own, refusal_in(answer)) for how in ("refused", "error") if how in answer}


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
