"""A coordinator that says what it likes to three sites that reply to secured sums alone, and looks for a number in the clear.

What must hold, whatever it says, in any order: no reply leaves but to sums, the session's keys and the keyed digest of the rows;
every word of a reply to a sum is under a mask, also in the sum of any two of the three sites; no pad is used for two replies.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from eigenpact.runtime import Plan, SiteEndpoint, SiteServer
from eigenpact.runtime.fingerprint import DIGEST, rows_digest
from eigenpact.runtime.keys import KEYS, ROSTER, Member, as_member, pack_roster, session_key, session_roster
from eigenpact.runtime.letters import hello
from eigenpact.runtime.local import Arrays, LocalFunction, find_local
from eigenpact.runtime.policy import ALWAYS
from eigenpact.runtime.secure_sum import Form, Masked, _as_words, forms_of
from tests.attacks.coordinator import Coordinator, Refused, full_name
from tests.attacks.secured import NAMES, Brought

CALLS = 25
KINDS = ("sum", "sum", "sum", "local", "gather", "at", "max", "chain", "exchange", "consider", KEYS, ROSTER, DIGEST)
ASIDE = {KEYS, ROSTER, DIGEST}
"""Kinds that are answered with keys, signatures and digests."""

FUNCTIONS = (
    "count_and_sum", "spread", "second_moments", "second_moments_by_feature", "keep_centre", "scatter_action", "scatter_triangle"
)  # fmt: skip


class Watch:
    """What sites mask, and whether what leaves is that."""

    def __init__(self) -> None:
        self.encoded: list[tuple[str, Any, tuple[Form, ...], Arrays, Arrays]] = []
        self.reused: set[tuple[str, bytes, bytes]] = set()
        self.left: dict[str, list[Arrays]] = defaultdict(list)
        self.pads: set[tuple[str, bytes, bytes]] = set()
        self.noise: dict[str, list[Arrays]] = defaultdict(list)

    def make_noise(self, masked: Masked, function: LocalFunction, shapes: list[tuple[int, ...]]) -> Arrays:
        """In place of the site's own, where something failed: random words."""
        self.noise[masked.session.site].append(NOISE(masked, function, shapes))
        return self.noise[masked.session.site][-1]

    def encode(self, masked: Masked, function: LocalFunction, arrays: Arrays) -> Arrays:
        """In place of the site's own: masks, and takes note."""
        session = masked.session
        used = {(session.site, key, masked._chain) for key in session.pairs.values()}
        self.reused |= used & self.pads
        self.pads |= used
        words = ENCODE(masked, function, arrays)
        forms = forms_of(function, masked._trace, len(session.names))
        plain = tuple(_as_words(label, a, form) for a, (label, form) in zip(arrays, forms.items(), strict=True))
        question = (function.name, masked._chain)
        self.encoded.append((session.site, question, tuple(forms.values()), plain, words))
        return words

    def check(self, site: str, kind: str, arrays: Arrays) -> None:
        """Raise unless a reply is one that may leave."""
        assert not self.reused, "a pad was used twice"
        if not arrays or kind in ASIDE:
            return
        if kind != "sum":  # the last reply to a sum once more, whatever it is called: steps are told apart by their digests
            assert any(_equal(sent, arrays) for sent in self.left[site][-1:]), f"a reply to {kind!r}"
        self.left[site].append(arrays)
        found = [entry for entry in self.encoded if entry[0] == site and _equal(entry[4], arrays)]
        assert found or any(_equal(words, arrays) for words in self.noise[site]), "a reply that was not masked"
        for _, question, forms, plain, words in found:
            assert not any(np.any(w == p) for w, p in zip(words, plain, strict=True)), "a word in the clear"
            self._check_pairs(site, question, forms, plain, words)

    def _check_pairs(self, site: str, question: Any, forms: Any, plain: Arrays, words: Arrays) -> None:
        """With the part of one more site the third one's mask is still there."""
        for other, asked, _, more_plain, more_words in self.encoded:
            if other != site and asked == question:
                for form, p, w, q, v in zip(forms, plain, words, more_plain, more_words, strict=True):
                    shown = np.atleast_1d(w) + np.atleast_1d(v) == np.atleast_1d(p) + np.atleast_1d(q)
                    assert form.kind == "wide" or not np.any(shown), "two sites' sum in the clear"


ENCODE, NOISE = Masked.encode, Masked.noise


def _equal(a: Arrays, b: Arrays) -> bool:
    return len(a) == len(b) and all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in zip(a, b, strict=True))


class Hostile:
    """One hostile coordinator's day; what to say is drawn."""

    def __init__(self, folder: Path, drawn: st.DataObject, watch: Watch, rules: Any = None) -> None:
        self.brought, self.drawn, self.watch = Brought(folder, rules), drawn, watch
        self.members: dict[str, list[Member]] = {name: [] for name in NAMES}
        self.tally: Counter[str] = Counter()
        self.number = 0
        for name, victim in self.brought.sites.items():
            run = Coordinator.__new__(Coordinator)
            run._ask, run.run, run.epoch, run.step, run.replies = victim.end.handle, "r1", 0, 0, 0
            self.brought.runs[name] = run

    def pick(self, *values: Any) -> Any:
        return self.drawn.draw(st.sampled_from(values))

    def act(self) -> None:
        """Say something."""
        getattr(self, self.pick("plan", "honest", "honest", "session", "ask", "ask", "ask", "anew", "restart"))()

    def some(self) -> tuple[str, ...]:
        return tuple(self.pick(NAMES, NAMES, NAMES[:1], NAMES[1:], NAMES[::2]))

    def send(self, name: str, header: dict[str, Any], args: tuple[Any, ...] = (), after: int = 0) -> Arrays:
        run = self.brought.runs[name]
        try:
            arrays = run._send(header, args, after)
        except Refused:
            self.tally["refused"] += 1
            return ()
        self.tally[f"answered {header.get('kind', 'plan')}"] += 1
        self.watch.check(name, header.get("kind", "plan"), arrays)
        return arrays

    def plan(self, secure: bool | None = None) -> None:
        """Announce a run, in some way."""
        said = self.pick(True, True, False) if secure is None else secure
        kinds = self.pick(tuple(sorted(ALWAYS)), ("local", "sum", DIGEST), ("gather", "local", "sum"))
        name = self.pick("r1", "r2")
        for site, run in self.brought.runs.items():
            run.run, run.step = name, run.step if run.run == name else 0
            policy = self.brought.sites[site].policy
            listed = [name for name in policy.functions if policy.shows_site_means or not find_local(name).site_means]
            functions = (*listed, rows_digest.name)
            plan = Plan("auto", functions, kinds if secure is None else ("local", "sum", DIGEST), 50, 1, None, said)
            self.send(site, hello(name, 0, "plan") | {"plan": plan.to_dict()})

    def honest(self) -> None:
        """What an honest coordinator does, as far as sites let it: then the search goes on from there."""
        secure = self.brought.sites["lima"].policy.secure == "required"
        self.plan(secure=secure)
        if secure:
            self.session(honest=True)
        sums = [self.call(name, "count_and_sum", "sum", ()) for name in NAMES]
        if all(sums):
            for name in NAMES:
                self.call(name, "keep_centre", "local", (np.zeros(8), np.ones(8), np.float64(1e9)))

    def session(self, honest: bool = False) -> None:
        """Have keys made and bring rosters about, right or wrong."""
        self.number += honest or self.pick(0, 1)
        nonce = self.number.to_bytes(32, "little")
        for name in NAMES if honest else self.some():
            arrays = self.request(name, KEYS, -2, session_key.name, (np.frombuffer(nonce, np.uint8),))
            self.brought.runs[name].step = 0
            if arrays:
                self.members[name].append(as_member(name, arrays))
        if not all(self.members.values()):
            return
        roster = [known[-1] if honest else self.pick(*known[-3:]) for known in self.members.values()]
        if not honest:
            roster = self.pick(roster, roster, roster[:2], [*roster, roster[0]], roster[1:])
        text = pack_roster(roster)
        text = text if honest else self.pick(text, text, text[:-9], text.replace(b"a", b"b"))
        for name in NAMES if honest else self.some():
            self.request(name, ROSTER, -3, session_roster.name, (np.frombuffer(text, np.uint8),))

    def ask(self) -> None:
        """Ask some sites something, the same or not."""
        function, kind = self.pick(*FUNCTIONS), self.pick(*KINDS)
        args = self.arguments(function)
        for name in self.some():
            self.call(name, function, kind, self.arguments(function) if self.pick(False, False, True) else args)

    def arguments(self, function: str) -> tuple[Any, ...]:
        rng = np.random.default_rng(self.pick(0, 1, 2))
        centre, scale = rng.normal(size=8), np.ones(8)
        return {
            "spread": (centre, scale),
            "keep_centre": (centre, scale, np.float64(self.pick(1e-3, 1e4, 1e9, np.inf))),
            "scatter_action": (np.linalg.qr(rng.normal(size=(8, 2)))[0] * self.pick(1.0, 1.0, 2.0**50),),
        }.get(function, ())

    def call(self, name: str, function: str, kind: str, args: tuple[Any, ...]) -> Arrays:
        run = self.brought.runs[name]
        called = {KEYS: session_key.name, ROSTER: session_roster.name, DIGEST: rows_digest.name}.get(kind, full_name(function))
        if kind == DIGEST:
            args = (np.zeros(32, np.uint8),)
        before = run.step
        step = before + self.pick(1, 1, 1, 0, 2)
        arrays = self.request(name, kind, step, called, args, before)
        run.step = step if arrays or kind == "local" else before
        return arrays

    def request(self, name: str, kind: str, step: int, function: str, args: tuple[Any, ...], after: int = 0) -> Arrays:
        run = self.brought.runs[name]
        header = {"what": "request", "run": run.run, "epoch": run.epoch, "step": step, "kind": kind, "digest": self.pick("", "x")}
        return self.send(name, header | {"function": function}, tuple(np.asarray(a) for a in args), after)

    def anew(self) -> None:
        """Go to another epoch, also back."""
        by = self.pick(1, 1, -1)
        for run in self.brought.runs.values():
            run.epoch, run.step = max(0, run.epoch + by), 0

    def restart(self) -> None:
        """A site's next process goes on with what the last one remembered, as on Flower, or with nothing."""
        for name in self.some():
            victim = self.brought.sites[name]
            old, kept = victim.end._server, self.pick(True, True, False)
            victim.__post_init__()
            server = victim.end._server
            if kept:
                server.recall(old.remember())
            assert isinstance(server, SiteServer)
            assert isinstance(victim.end, SiteEndpoint)
            self.brought.runs[name]._ask = victim.end.handle


def one_day(folder: Path, drawn: st.DataObject, watch: Watch, rules: Any = None) -> Counter[str]:
    """Draw and carry out what a coordinator says."""
    hostile = Hostile(folder, drawn, watch, rules)
    for _ in itertools.repeat(None, CALLS):
        hostile.act()
    return hostile.tally
