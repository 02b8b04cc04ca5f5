"""Fuzz both ends of a message: ``python -m tests.fuzz.messages --messages 100000 --seed 0 --jobs 2``.

Half of the messages go to a site behind the gate of the shipped policy: the letters of honest runs, each before changed ones of
its kind, so that they come in every state.  The other half are replies of one of three sites, changed while a model is fitted.
A site's end may raise nothing, a fit only an ``EigenpactError`` that names the site.  Neither end may hold more memory than three
times the message and a constant, or take longer than its length allows.  A batch that finds something is printed with what
repeats it.  Replies keep their values: a site that lies in numbers is another matter.  Exit status 1 means that something was
found.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
import tracemalloc
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import eigenpact as ep
from eigenpact.runtime import MailConnection, SiteEndpoint, SiteServer
from eigenpact.runtime.letters import CHECKSUM, PREFIX, checksum, seal, unseal
from eigenpact.runtime.local import installed_solvers, own_modules
from tests.attacks.coordinator import Victim
from tests.attacks.guarded import Guarded
from tests.fuzz.changes import CHANGES, DAMAGES, Parts, Rng, changed

BATCH = 500
"""Messages that are sent one after the other to the same site, or to fits of the same coordinator; repeated as a whole."""

MEMORY = 1 << 20
"""Bytes that may be held besides three times the message's length: tables here have few features."""

SECONDS, SECONDS_A_MEGABYTE = 2.0, 10.0
"""How long a message may take: generous, for memory is traced meanwhile, and other processes run."""

SOLVERS = ("krylov", "gram", "lanczos", "subspace", "davidson")

FORMS = tuple(name for name in CHANGES if name != "flipped values")
"""Changes of a reply that do not make other numbers of it."""


@dataclass
class Found:
    """What messages did: how many of each kind, what was wrong, and the most of what is limited."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    memory: int = 0
    seconds: float = 0.0

    def add(self, other: Found) -> None:
        """Both together."""
        self.counts += other.counts
        self.wrong += other.wrong
        self.memory, self.seconds = max(self.memory, other.memory), max(self.seconds, other.seconds)

    def judge(self, what: str, length: int, memory: int, seconds: float) -> None:
        """Note a message of this length, and what reading it took."""
        self.counts["messages"] += 1
        self.memory, self.seconds = max(self.memory, memory - 3 * length), max(self.seconds, seconds)
        if memory > 3 * length + MEMORY:
            self.wrong.append(f"{what}: {memory} bytes held for a message of {length}")
        if seconds > SECONDS + SECONDS_A_MEGABYTE * length / 1e6:
            self.wrong.append(f"{what}: {seconds:.1f} s for a message of {length} bytes")


def rows(name: str) -> Any:
    """A site's table."""
    return np.random.default_rng(ord(name)).normal(size=(40, 6)) * np.linspace(3, 1, 6)


def letter(after: int, payload: bytes) -> bytes:
    """A message to a site, with a checksum that fits."""
    prefix = after.to_bytes(PREFIX, "little")
    return prefix + checksum(prefix + checksum(payload)) + payload


@contextmanager
def traced() -> Iterator[None]:
    """Memory is followed meanwhile."""
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


# -- a site -----------------------------------------------------------------------------------------------------------------


class Listening(Guarded):
    """An honest federation whose letters to one site are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.letters: list[tuple[int, Parts]] = []

    def send(self, site: str, data: bytes) -> None:
        if site == "A":
            self.letters.append((int.from_bytes(data[:PREFIX], "little"), Parts.of(memoryview(data)[PREFIX + CHECKSUM :])))
        super().send(site, data)


@cache
def honest(solver: str) -> tuple[tuple[int, Parts], ...]:
    """The letters of an honest run to one site, each with the step before it; the run always has the same name."""
    engine = Listening()
    ep.FederatedPCA(2, solver=solver, random_state=0, max_rounds=100, engine=engine).fit({name: rows(name) for name in "AB"})
    return tuple((after, Parts(parts.header | {"run": "fuzz"}, parts.described, parts.body)) for after, parts in engine.letters)


def to_a_site(rng: Rng, n: int) -> Found:
    """Send so many messages to a site behind its gate."""
    found = Found()
    own_modules(), installed_solvers()  # else loaded, once, when a message names a function that is not known
    letters = honest(SOLVERS[rng.integers(len(SOLVERS))])
    with tempfile.TemporaryDirectory() as folder, traced():
        end = Victim(rows("A"), Path(folder), name="A").end
        for number in range(n):
            after, parts = letters[number * len(letters) // n]
            begins = number == 0 or parts is not letters[(number - 1) * len(letters) // n][1]
            other = letters[rng.integers(len(letters))][1]
            _ask(found, end, *(("honest", letter(after, parts.payload())) if begins else _request(rng, after, parts, other)))
    return found


def _request(rng: Rng, after: int, parts: Parts, other: Parts) -> tuple[str, bytes]:
    """A changed message, and how it was changed."""
    if rng.random() < 0.1:
        name = tuple(DAMAGES)[rng.integers(len(DAMAGES))]
        return name, DAMAGES[name](rng, letter(after, parts.payload()), letter(after, other.payload()))
    name, payload = changed(rng, parts, other, tuple(CHANGES))
    step = (after, 0, 2**63, int(rng.integers(2**64, dtype=np.uint64)))[rng.choice(4, p=(0.85, 0.05, 0.05, 0.05))]
    return name, letter(step, payload)


def _ask(found: Found, end: SiteEndpoint, name: str, data: bytes) -> None:
    """Hand over one message, and look at the answer."""
    tracemalloc.reset_peak()
    before, begin = tracemalloc.get_traced_memory()[0], time.perf_counter()
    try:
        reply = end.handle(data)
    except Exception:  # whatever it is: an end never raises
        found.wrong.append(f"{name}: a site's end raised {traceback.format_exc()}")
        return
    found.judge(f"{name}, to a site", len(data), tracemalloc.get_traced_memory()[1] - before, time.perf_counter() - begin)
    header, arrays = unseal(memoryview(reply))
    told = [how for how in ("damaged", "error", "lost", "refused") if how in header]
    found.counts[told[0] if told else "answered"] += 1
    if arrays and told:
        found.wrong.append(f"{name}: a site that sent {told[0]} sent arrays")
    if name == "honest" and "damaged" in told:
        found.wrong.append(f"{name}: an honest letter was called damaged")


# -- a coordinator ----------------------------------------------------------------------------------------------------------


class Lying:
    """An engine by message, one of whose sites sends other replies before or instead of its own.

    The clock runs while nothing comes.
    """

    spread, min_sites, costs = False, 1, ep.engines.InProcess().costs

    def __init__(self, rng: Rng, found: Found, share: float) -> None:
        self._rng, self._found, self._share = rng, found, share
        self._time, self._seen = 0.0, list[Parts]()
        self._replies: list[tuple[str, str, bytes]] = []  # site, how it was changed, bytes
        self._read: tuple[str, int, int, float] | None = None  # what is being read: change, length, memory and time before

    def __deepcopy__(self, _memo: Any) -> Lying:
        return self

    def execute(self, held: Any, job: Any, graph: Any = None) -> Any:  # noqa: ARG002
        self._ends = {name: SiteEndpoint(SiteServer(name, X)) for name, X in held.items()}
        return job(MailConnection(self, self._ends, round_timeout=1.0))

    def now(self) -> float:
        return self._time

    def send(self, site: str, data: bytes) -> None:
        self.close()
        reply = self._ends[site].handle(data)
        lies = int(self._rng.integers(1, 9)) if site == "B" and self._rng.random() < self._share else 0
        self._replies += [(site, *self._changed(reply)) for _ in range(lies)]
        if not lies or self._rng.random() < 0.9:
            self._replies.append((site, "", reply))

    def receive(self, until: float) -> tuple[str, bytes] | None:
        """The next reply; what the one before took is judged if it was changed."""
        self.close()
        if not self._replies:
            self._time = max(self._time, until)
            return None
        site, name, data = self._replies.pop(0)
        if name:
            tracemalloc.reset_peak()
            self._read = name, len(data), tracemalloc.get_traced_memory()[0], time.perf_counter()
        return site, data

    def close(self) -> None:
        """Judge what the last changed reply took."""
        if self._read is not None:
            name, length, before, begin = self._read
            seconds = time.perf_counter() - begin
            self._found.judge(f"{name}, to a coordinator", length, tracemalloc.get_traced_memory()[1] - before, seconds)
            self._read = None

    def _changed(self, data: bytes) -> tuple[str, bytes]:
        parts = Parts.of(memoryview(data)[CHECKSUM:])
        self._seen.append(parts)
        other = self._seen[self._rng.integers(len(self._seen))]
        if self._rng.random() < 0.1:
            name = tuple(DAMAGES)[self._rng.integers(len(DAMAGES))]
            return name, DAMAGES[name](self._rng, data, seal(bytearray(other.payload())))
        name, payload = changed(self._rng, parts, other, FORMS)
        return name, seal(bytearray(payload))


def to_a_coordinator(rng: Rng, n: int) -> Found:
    """Fit until so many replies were changed."""
    found, sites = Found(), {name: rows(name) for name in "ABC"}
    with warnings.catch_warnings(), traced():
        warnings.simplefilter("ignore")
        while found.counts["messages"] < n:
            engine = Lying(rng, found, share=rng.choice([0.1, 0.5, 1.0]))
            solver = SOLVERS[rng.integers(len(SOLVERS))]
            try:
                ep.FederatedPCA(2, solver=solver, random_state=0, max_rounds=20, engine=engine).fit(sites)
                found.counts["fits"] += 1
            except ep.errors.EigenpactError as error:
                found.counts["fits that ended in an error of ours"] += 1
                if "'B'" not in str(error):
                    found.wrong.append(f"a fit by {solver} ended in an error that does not name the site: {error}")
            except Exception:  # whatever it is
                found.wrong.append(f"a fit by {solver} ended in {traceback.format_exc()}")
                return found
            engine.close()
    return found


# -- all of it --------------------------------------------------------------------------------------------------------------


def batch(seed: int, number: int, n: int = BATCH) -> Found:
    """So many messages to one end; ends take turns."""
    rng = np.random.default_rng([seed, number])
    found = (to_a_site if number % 2 == 0 else to_a_coordinator)(rng, n)
    repeat = f"python -m tests.fuzz.messages --seed {seed} --batch {number}"
    found.wrong = [f"{what}\n    {repeat}" for what in found.wrong]
    return found


def summary(found: Found, seed: int, seconds: float) -> str:
    """One line."""
    counts = ", ".join(f"{n} {what}" for what, n in sorted(found.counts.items()) if what != "messages")
    limits = f"at most {max(0, found.memory) / 2**20:.2f} MiB beyond three times the length, {found.seconds:.2f} s"
    return f"{found.counts['messages']} messages, {len(found.wrong)} wrong ({counts}; {limits}); seed {seed}, {seconds:.0f} s"


def explore(messages: int, seed: int, jobs: int) -> Found:
    """As many batches as make so many messages, in so many processes."""
    found = Found()
    with ProcessPoolExecutor(jobs) as pool:
        for one in pool.map(batch, *zip(*((seed, number) for number in range(-(-messages // BATCH))), strict=True)):
            for what in one.wrong:
                print(what, flush=True)
            found.add(one)
    return found


def main() -> int:
    """Explore, or repeat one batch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--batch", type=int, help="repeat this batch alone")
    arguments = parser.parse_args()
    begin = time.monotonic()
    if arguments.batch is None:
        found = explore(arguments.messages, arguments.seed, arguments.jobs)
    else:
        found = batch(arguments.seed, arguments.batch)
        print(*found.wrong, sep="\n")
    print(summary(found, arguments.seed, time.monotonic() - begin))
    return int(bool(found.wrong))


if __name__ == "__main__":
    sys.exit(main())
