"""Sites that answer secured sums by message, where coordinator and sites are killed at chosen messages; every pad is taped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eigenpact.engines import InProcess
from eigenpact.numerics.blas import limited_blas
from eigenpact.runtime import MailConnection, SiteEndpoint, SiteServer, secure_sum
from eigenpact.runtime.letters import unseal

ONLY_COORDINATOR = "the coordinator"
FATES = ("before it answers", "after it answered", "and started again", "and started again from its memory")
"""When a site is killed at a message; the last two go unnoticed."""


class Killed(Exception):
    """The coordinator's process ends."""


@dataclass
class Tape:
    """What sites drew and sent: for each masked reply, who, the transcript, the pads' keys, and the words with and without."""

    replies: list[tuple[str, bytes, tuple[bytes, ...], tuple[Any, ...], tuple[Any, ...]]] = field(default_factory=list)

    def draws(self) -> Counter[tuple[str, bytes, bytes, bytes]]:
        """Who drew a pad, its key and transcript, and what was sent under it, and how often."""
        drawn = ((who, chain, b"".join(a.tobytes() for a in sent), keys) for who, chain, keys, _, sent in self.replies)
        return Counter((who, key, chain, sent) for who, chain, sent, keys in drawn for key in keys)


@contextmanager
def taped() -> Iterator[Tape]:
    """Write down every masked reply that sites of this process make."""
    tape, encode = Tape(), secure_sum.Masked.encode

    def encode_and_tape(self: Any, function: Any, arrays: Any) -> Any:
        keys, pad = [], secure_sum.pad

        def noted(key: bytes, chain: bytes, size: int) -> Any:
            keys.append(key)
            return pad(key, chain, size)

        secure_sum.pad = noted
        try:
            sent = encode(self, function, arrays)
        finally:
            secure_sum.pad = pad
        forms = secure_sum.forms_of(function, self._trace, len(self.session.names))
        plain = tuple(secure_sum._as_words(label, a, form) for a, (label, form) in zip(arrays, forms.items(), strict=True))
        tape.replies.append((self.session.site, self._chain, tuple(keys), plain, sent))
        return sent

    secure_sum.Masked.encode = encode_and_tape
    try:
        yield tape
    finally:
        secure_sum.Masked.encode = encode


class KillingEngine:
    """Sites in this process, by messages; they outlive a run, and with the coordinator they are killed as ``kills`` says.

    ``kills`` maps the number of a message to a site, counted over all runs, to who is killed there, and how.
    """

    spread, min_sites, costs = False, 1, InProcess.costs

    def __init__(self, kills: Mapping[int, tuple[str, str]] | None = None) -> None:
        self.kills = dict(kills or {})
        self.messages, self.dead = 0, set[str]()
        self.arrived: list[tuple[Any, ...]] = []
        self._replies: list[tuple[str, bytes | None]] = []
        self._held: Mapping[str, Any] = {}
        self._servers: dict[str, SiteServer] = {}

    def execute(self, held: Any, job: Any, graph: Any = None) -> Any:  # noqa: ARG002
        self._held, self._replies = held, []
        for name in held:
            if name not in self._servers:
                self._start(name)
        with limited_blas(1):
            return job(MailConnection(self, held, round_timeout=5.0))

    def bring_back(self) -> None:
        """Start the dead sites anew."""
        for name in self.dead:
            self._start(name)
        self.dead = set()

    def now(self) -> float:
        return 0.0

    def send(self, site: str, data: bytes) -> None:
        self.messages += 1
        who, how = self.kills.pop(self.messages, ("", ""))
        if who == ONLY_COORDINATOR:
            raise Killed
        memory = self._servers[site].remember()
        if who and how == FATES[2]:
            self._start(site)
        reply = None if (who and how == FATES[0]) or site in self.dead else SiteEndpoint(self._servers[site]).handle(data)
        if who and how == FATES[3]:  # it ended after it answered, before it wrote down that it had
            self._start(site)
            self._servers[site].recall(memory)
            reply = SiteEndpoint(self._servers[site]).handle(data)
        if who and how in FATES[:2]:
            self.dead.add(site)
            reply = None
        self._replies.append((site, reply))

    def receive(self, _until: float) -> tuple[str, bytes | None] | None:
        if not self._replies:
            return None
        site, data = self._replies.pop(0)
        if data is not None:
            self.arrived.append(unseal(memoryview(data), site, None)[1])
        return site, data

    def _start(self, name: str) -> None:
        self._servers[name] = SiteServer(name, self._held[name])


def is_among(sent: tuple[Any, ...], arrived: list[tuple[Any, ...]]) -> bool:
    """Whether a masked reply came to the coordinator."""
    return any(len(sent) == len(a) and all(np.array_equal(x, y) for x, y in zip(sent, a, strict=True)) for a in arrived)
