"""A federation on loopback, really started: what a round costs, whether it stays so, and what faults and refusals do.

Run with ``python -m benchmarks.federation``, or as a table with ``make results FAMILY=federation``.  FLARE's server and 3 sites
with mutual TLS run on this machine; the block is 2000 x 20 and sites hold few rows (see ``overhead.py``).  The arithmetic that
is subtracted is that of all sites one after the other.  Memory is the resident set of all processes of a party, from round 150
on: FLARE keeps every message for ``streaming_retry_timeout`` (2 s), so that its server grows until that is filled.

"Conformance" means that tests run the same fits over FLARE and in one process and compare components and ledgers bit by bit.

Next to every round a fixed piece of Python is timed in this process.  Only where that became slower too, by as much as the bar
allows a round, is the load of the machine given as the reason of a miss.
"""

from __future__ import annotations

import os
import re
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.engines.federation import Parties

from benchmarks.overhead import FEATURES, WIDTH, by_hand, problem
from benchmarks.table import CHECKED, Row, pytest_row, timed
from eigenpact.algorithms.products import scatter_action
from eigenpact.algorithms.setup import Problem, agree
from eigenpact.engines import NVFlare
from eigenpact.estimators.plans import functions_of
from eigenpact.numerics.linalg import random_orthonormal
from eigenpact.runtime import Connection, Driver, Outcome, Plan, Progress, Sum

SITES, ROUNDS, FIRST, SETTLED = 3, 300, 50, 150
SLOWER = 1.5
ROUND_BAR = 150.0
"""Milliseconds a round may cost beyond arithmetic."""

ENGINE, FAULTS, HOW_TO = "tests/engines/test_flare.py", "tests/engines/test_flare_faults.py", "docs/how-to/federate.md"
HOSTILE = "tests/engines/test_flare_hostile.py"
REFUSED = "test_flare_hostile or hostile or features or bad_messages or too_much or wrong_certificate or another_federation"
TESTED = [
    ("conformance class, 3 sites, mutual TLS", "same bits as in-process, identical ledger rows", (ENGINE, "-k", "conformance")),
    ("kill -9 a site's daemon and job; SIGSTOP a site", "exact for the rest; one timeout only", (FAULTS, "-k", "mid_run")),
    ("kill -9 the server in mid-run, --resume", "same bits; no orphan site process", (FAULTS, "-k", "killed_server")),
    (
        "foreign, expired, wrong features, oversized, malformed, unlisted",
        "refused by name, in both logs",
        (ENGINE, HOSTILE, "-k", REFUSED),
    ),
]


@dataclass(frozen=True)
class Measured:
    """Seconds of each round and of fixed work next to it, and megabytes of each party after ``SETTLED`` rounds and the last."""

    seconds: list[float]
    control: list[float]
    early: dict[str, float]
    late: dict[str, float]


def measure() -> Measured:
    """Rounds of one block through FLARE."""
    sites = dict(list(problem().items())[:SITES])
    policy = {"solvers": ["subspace"], "functions": functions_of("subspace"), "min_rows": 5, "max_rounds": 10 * ROUNDS}
    with tempfile.TemporaryDirectory() as folder:
        parties = Parties(Path(folder) / "federation", sites, policy, coordinator_timeout=60.0)
        try:
            parties.start()
            with NVFlare(parties.folder / "coordinator").open() as engine:
                return _rounds(engine, parties)
        finally:
            parties.stop()


def _rounds(engine: Any, parties: Parties) -> Measured:
    seconds: list[float] = []
    control: list[float] = []
    memory: dict[int, dict[str, float]] = {}
    Z = random_orthonormal(FEATURES, WIDTH, seed=0)
    plan = Plan("subspace", functions_of("subspace"), ("local", "sum"), max_rounds=ROUNDS, n_components=WIDTH)

    async def program(start: Any, state: Any) -> None:  # noqa: ARG001
        await agree(Problem(n_components=WIDTH, center=False))
        for i in range(ROUNDS):
            begin = time.perf_counter()
            await Sum(scatter_action, Z)
            await Progress(basis=Z, kkt=0.0)
            middle = time.perf_counter()
            sum(range(50_000))
            seconds.append(middle - begin)
            control.append(time.perf_counter() - middle)
            if i + 1 in (SETTLED, ROUNDS):
                memory[i + 1] = {name: sum(map(_resident, parties.family(name))) for name in ("coordinator", *parties.sites)}

    def job(connection: Connection) -> Outcome:
        Driver(connection, plan=plan).run(program)
        return Outcome({}, {})

    engine.execute({}, job)
    return Measured(seconds, control, memory[SETTLED], memory[ROUNDS])


def _resident(pid: int) -> float:
    """Megabytes."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024  # type: ignore[index]


def rows(size: str) -> Iterator[Row]:
    """The federation's results table; the tests behind most rows run with ``--size paper`` only, since CI runs them anyway."""
    measured, arithmetic = measure(), by_hand(dict(list(problem().items())[:SITES]))
    yield timed("overhead per round, 3 sites, mutual TLS", ROUND_BAR, statistics.median(measured.seconds) - arithmetic, CHECKED)
    yield _degrades(measured)
    growth = {name: measured.late[name] - measured.early[name] for name in measured.early}
    yield Row(
        f"memory from round {SETTLED} to {ROUNDS}",
        "grows by <= 10 % at every party",
        ", ".join(f"{name} {measured.early[name]:.0f} + {grown:.1f} MB" for name, grown in growth.items()),
        all(grown <= 0.1 * measured.early[name] for name, grown in growth.items()),
    )
    for what, bar, arguments in TESTED:
        yield _tested(size, what, bar, *arguments)
    yield _how_to(size)


def _degrades(measured: Measured) -> Row:
    """A miss is the load's only where the same work in this process became slower too."""
    first, last = _first_and_last(measured.seconds)
    before, after = _first_and_last(measured.control)
    met = last <= SLOWER * first
    loaded = not met and after > SLOWER * before
    return Row(
        f"{ROUNDS} rounds do not degrade",
        f"last {FIRST} rounds <= {SLOWER:g} x first {FIRST}",
        f"median {first:.1f} ms, then {last:.1f} ms; fixed work beside it {before:.2f} ms, then {after:.2f} ms",
        met,
        "the machine became slower: so did the fixed work" if loaded else "",
    )


def _first_and_last(seconds: list[float]) -> tuple[float, float]:
    """Median milliseconds."""
    return 1e3 * statistics.median(seconds[:FIRST]), 1e3 * statistics.median(seconds[-FIRST:])


def _tested(size: str, what: str, bar: str, *arguments: str) -> Row:
    if size != "paper":
        return Row(what, bar, "", None, "run by make test and test-faults")
    return pytest_row(what, bar, *arguments)


def _how_to(size: str) -> Row:
    """Run the page's commands as its test does, and count them."""
    what, bar = "the how-to, four hospitals on one machine", "at most 12 commands and 15 minutes"
    commands = re.findall(r"^\$ ", Path(HOW_TO).read_text().partition("## What a site allows")[0], re.MULTILINE)
    if size != "paper" or "EIGENPACT_DATA" not in os.environ:
        return Row(what, bar, f"{len(commands)} commands", None, "timed with SIZE=paper and EIGENPACT_DATA")
    begin = time.perf_counter()
    row = pytest_row(what, bar, "tests/docs/test_docs.py", "-k", "federate and blocks")
    minutes = (time.perf_counter() - begin) / 60
    met = bool(row.met) and len(commands) <= 12 and minutes <= 15
    return Row(what, bar, f"{len(commands)} commands, {minutes:.1f} minutes; {row.reached}", met)


def main() -> None:
    """Print what a round costs."""
    measured = measure()
    first, last = _first_and_last(measured.seconds)
    print(f"one round, {SITES} FLARE sites with mutual TLS, block {FEATURES} x {WIDTH}; load {os.getloadavg()[0]:.1f}")
    print(f"  median of {ROUNDS} rounds {1e3 * statistics.median(measured.seconds):8.2f} ms   (bar: {ROUND_BAR:g} ms)")
    print(f"  first and last {FIRST}   {first:8.2f} ms, {last:.2f} ms")
    for name in measured.early:
        early, late = measured.early[name], measured.late[name]
        print(f"  memory of {name:12s} {early:8.1f} MB after {SETTLED} rounds, {late:.1f} MB at the end")


if __name__ == "__main__":
    main()
