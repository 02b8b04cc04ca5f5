"""Sites in this process behind a network that loses, delays, repeats, damages and reorders messages, in virtual time.

Everything that goes wrong comes from one seed, so that a schedule can be run again.  Nothing sleeps: time passes from event to
event.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from eigenpact.engines import InProcess
from eigenpact.numerics.blas import limited_blas
from eigenpact.runtime import Job, MailConnection, Outcome, Request, Response, SiteEndpoint, SiteServer, wire
from eigenpact.runtime.letters import checksum, hello

ROUND_TIMEOUT = 10.0
LATENCY = 0.2
"""No message that is not delayed takes longer."""

MAX_MESSAGES = 30_000
"""A run that sends more is taken to go on for ever."""

FATES = ("dies", "dies and is started again", "hangs for good", "hangs and comes back", "is started again unnoticed")


@dataclass(frozen=True)
class Schedule:
    """What goes wrong: probabilities for every message, and fates of sites (name -> fate, at which message, for how long)."""

    drop: float = 0.0
    delay: float = 0.0
    late: float = 0.0
    repeat: float = 0.0
    damage: float = 0.0
    fates: Mapping[str, tuple[str, int, float]] = field(default_factory=dict)

    @classmethod
    def from_seed(cls, seed: int, sites: list[str]) -> Schedule:
        """Anything from a calm sea to a wreck."""
        rng = random.Random(f"schedule {seed}")
        unlucky = rng.sample(sites, min(len(sites), rng.choice([0, 0, 1, 1, 2, 3, 6])))
        return cls(
            drop=rng.choice([0.0, 0.0, 0.001, 0.01]),
            delay=rng.choice([0.0, 0.01, 0.05]),
            late=rng.choice([0.0, 0.0, 0.002, 0.01]),
            repeat=rng.choice([0.0, 0.1, 0.5]),
            damage=rng.choice([0.0, 0.0, 0.01, 0.05]),
            fates={
                name: (rng.choice(FATES), rng.randint(1, 25), rng.uniform(0.1, 3.0) * ROUND_TIMEOUT) for name in sorted(unlucky)
            },
        )


class CountingServer(SiteServer):
    """Counts how often every step is executed by one process of a site: one that is started again remembers nothing."""

    process: int
    executions: Counter[tuple[str, int, str, int, int]]

    def _answer(self, request: Request, *rest: Any) -> Response:
        self.executions[self.name, self.process, request.run, request.epoch, request.step] += 1
        return super()._answer(request, *rest)


class FaultyPost:
    """A post in virtual time that follows a schedule."""

    def __init__(self, sites: Mapping[str, Any], schedule: Schedule, seed: int) -> None:
        self.executions: Counter[tuple[str, int, str, int, int]] = Counter()
        self._processes: Counter[str] = Counter()
        self.happened: Counter[str] = Counter()
        self.time = 0.0
        self.sent = 0
        self.dead: set[str] = set()
        self._sites = sites
        self._schedule = schedule
        self._rng = random.Random(f"messages {seed}")
        self._events: list[tuple[float, int, str, str, bytes | None]] = []
        self._number = 0
        self._asked: Counter[str] = Counter()
        self._hangs_until: dict[str, float] = {}
        self._endpoints: dict[str, SiteEndpoint] = {}
        for name in sites:
            self._start(name)

    def now(self) -> float:
        return self.time

    def send(self, site: str, data: bytes) -> None:
        self.sent += 1
        assert self.sent <= MAX_MESSAGES, f"more than {MAX_MESSAGES} messages: the run does not end"
        self._carry("request", site, data)

    def receive(self, until: float) -> tuple[str, bytes | None] | None:
        while self._events and self._events[0][0] <= until:
            at, _, kind, site, data = heapq.heappop(self._events)
            self.time = max(self.time, at)
            if kind == "reply":
                return site, data
            if kind == "start":
                self._start(site)
                self._carry("reply", site, self._endpoints[site].handle(_greeting()))
            elif site not in self.dead:
                assert data is not None
                self._serve(site, data)
        self.time = max(self.time, until)
        return None

    def calm_down(self, dead: set[str]) -> None:
        """Nothing goes wrong any more; these sites stay dead, and what was under way is lost."""
        self._schedule = Schedule()
        self._events.clear()
        self._hangs_until.clear()
        self.dead = set(dead)

    def _start(self, name: str) -> None:
        server = CountingServer(name, self._sites[name])
        self._processes[name] += 1
        server.process, server.executions = self._processes[name], self.executions
        self._endpoints[name] = SiteEndpoint(server)
        self.dead.discard(name)

    def _put(self, at: float, kind: str, site: str, data: bytes | None = None) -> None:
        self._number += 1
        heapq.heappush(self._events, (at, self._number, kind, site, data))

    def _carry(self, kind: str, site: str, data: bytes) -> None:
        """Put a message under way, or not, or twice."""
        copies = 1 + self._hits("repeat")
        for _ in range(copies):
            if self._hits("drop"):
                continue
            travel = self._rng.uniform(0.0, LATENCY)
            if self._hits("delay"):
                travel += self._rng.uniform(0.0, 0.45) * ROUND_TIMEOUT
            if self._hits("late"):
                travel += self._rng.uniform(0.8, 3.0) * ROUND_TIMEOUT
            self._put(self.time + travel, kind, site, self._damaged(data) if self._hits("damage") else data)

    def _hits(self, what: str) -> bool:
        hit = self._rng.random() < getattr(self._schedule, what)
        self.happened[what] += hit
        return hit

    def _damaged(self, data: bytes) -> bytes:
        changed = bytearray(data)
        if self._rng.random() < 0.2:
            return bytes(changed[: self._rng.randrange(len(data))])
        for _ in range(self._rng.randint(1, 3)):
            changed[self._rng.randrange(len(data))] ^= self._rng.randint(1, 255)
        return bytes(changed)

    def _serve(self, site: str, data: bytes) -> None:
        """A message has come to a site, which answers unless its fate is fulfilled."""
        self._asked[site] += 1
        fate, number, seconds = self._schedule.fates.get(site, ("", 0, 0.0))
        if fate and self._asked[site] == number:
            self.happened[fate] += 1
            if fate.startswith("hangs"):
                self._hangs_until[site] = self.time + seconds if fate == "hangs and comes back" else float("inf")
            elif fate == "is started again unnoticed":
                self._forget_messages_to(site)
                self._start(site)
            else:
                self.dead.add(site)
                self._forget_messages_to(site)
                self._put(self.time, "reply", site, None)
                if fate == "dies and is started again":
                    self._put(self.time + seconds, "start", site)
                return
        wakes = self._hangs_until.get(site, 0.0)
        if wakes > self.time:
            if wakes < float("inf"):
                self._put(wakes, "request", site, data)
            return
        self._carry("reply", site, self._endpoints[site].handle(data))

    def _forget_messages_to(self, site: str) -> None:
        """They end with the process they were sent to."""
        self._events = [event for event in self._events if event[2:4] != ("request", site)]
        heapq.heapify(self._events)


class CountingConnection(MailConnection):
    """Counts the replies that are asked for and not yet consumed."""

    most_held = 0

    def call(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        before = self._post.sent
        for taken, response in enumerate(super().call(request, after)):
            self.most_held = max(self.most_held, self._post.sent - before - taken)
            yield response


class FaultyEngine:
    """As ``InProcess``, but for what a schedule does to sites and messages.

    ``dead`` sites do not answer from the start.  After a run ``post`` and ``connection`` tell what happened.
    """

    spread = False
    costs = InProcess.costs

    def __init__(self, seed: int = 0, schedule: Schedule | None = None, *, min_sites: int = 1, dead: Iterable[str] = ()) -> None:
        self.seed = seed
        self.schedule = schedule
        self.min_sites = min_sites
        self.dead = set(dead)
        self.post: FaultyPost
        self.connection: CountingConnection

    def execute(
        self,
        sites: Mapping[str, Any],
        job: Job,
        *,
        graph: Mapping[str, tuple[str, ...]] | None = None,
    ) -> Outcome:
        assert graph is None
        schedule = self.schedule if self.schedule is not None else Schedule.from_seed(self.seed, sorted(sites))
        self.post = FaultyPost(sites, schedule, self.seed)
        self.post.dead |= self.dead
        with limited_blas(1):
            self.connection = CountingConnection(self.post, sites, round_timeout=ROUND_TIMEOUT, own_sites=sites)
            return job(self.connection)


def _greeting() -> bytes:
    """What makes a site tell that it is there."""
    payload, after = wire.pack(hello("", 0)), bytes(8)
    return after + checksum(after + checksum(payload)) + payload
