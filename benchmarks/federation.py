"""A federation on loopback, really started: what a round costs, whether it stays so, and what faults and refusals do.

Run with ``python -m benchmarks.federation``, or as a table with ``make results FAMILY=federation``.  FLARE's server and 3 sites
with mutual TLS run on this machine; the block is 2000 x 20 and sites hold few rows (see ``overhead.py``).  The arithmetic that
is subtracted is that of all sites one after the other.  Memory is the resident set of all processes of a party.
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
from benchmarks.table import Row, pytest_row, timed
from eigenpact.algorithms.products import scatter_action
from eigenpact.algorithms.setup import Problem, agree
from eigenpact.engines import NVFlare
from eigenpact.estimators.plans import functions_of
from eigenpact.linalg import random_orthonormal
from eigenpact.runtime import Connection, Driver, Outcome, Plan, Progress, Sum

SITES, ROUNDS, FIRST = 3, 300, 50
ROUND_BAR = 150.0
"""Milliseconds a round may cost beyond arithmetic."""

ENGINE, FAULTS, HOW_TO = "tests/engines/test_nvflare.py", "tests/engines/test_nvflare_faults.py", "docs/how-to/federate.md"
REFUSED = "hostile or features or bad_messages or wrong_certificate"
TESTED = [
    ("conformance class, 3 sites, mutual TLS", "same bits as in-process, identical ledger rows", (ENGINE, "-k", "conformance")),
    ("kill -9 a site's daemon and job; SIGSTOP a site", "exact for the rest; one timeout only", (FAULTS, "-k", "mid_run")),
    ("kill -9 the server in mid-run, --resume", "same bits; no orphan site process", (FAULTS, "-k", "killed_server")),
    (
        "foreign, expired, wrong features, oversized, malformed, unlisted",
        "refused by name, in both logs",
        (ENGINE, "-k", REFUSED),
    ),
]


@dataclass(frozen=True)
class Measured:
    """Seconds of each round, and megabytes of each party after ``FIRST`` rounds and after the last."""

    seconds: list[float]
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
    memory: dict[int, dict[str, float]] = {}
    Z = random_orthonormal(FEATURES, WIDTH, seed=0)
    plan = Plan("subspace", functions_of("subspace"), ("local", "sum"), max_rounds=ROUNDS, n_components=WIDTH)

    async def program(start: Any, state: Any) -> None:  # noqa: ARG001
        await agree(Problem(n_components=WIDTH, center=False))
        for i in range(ROUNDS):
            begin = time.perf_counter()
            await Sum(scatter_action, Z)
            await Progress(basis=Z, kkt=0.0)
            seconds.append(time.perf_counter() - begin)
            if i + 1 in (FIRST, ROUNDS):
                memory[i + 1] = {name: sum(map(_resident, parties.family(name))) for name in ("coordinator", *parties.sites)}

    def job(connection: Connection) -> Outcome:
        Driver(connection, plan=plan).run(program)
        return Outcome({}, {})

    engine.execute({}, job)
    return Measured(seconds, memory[FIRST], memory[ROUNDS])


def _resident(pid: int) -> float:
    """Megabytes."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024  # type: ignore[index]


def rows(size: str) -> Iterator[Row]:
    """The federation's results table; the tests behind most rows run with ``--size paper`` only, since CI runs them anyway."""
    measured, arithmetic = measure(), by_hand(dict(list(problem().items())[:SITES]))
    yield timed("overhead per round, 3 sites, mutual TLS", ROUND_BAR, statistics.median(measured.seconds) - arithmetic)
    first, last = (1e3 * statistics.median(part) for part in (measured.seconds[:FIRST], measured.seconds[-FIRST:]))
    yield Row(
        f"{ROUNDS} rounds do not degrade",
        "last 50 rounds <= 1.5 x first 50",
        f"median {first:.1f} ms, then {last:.1f} ms",
        last <= 1.5 * first,
        "" if last <= 1.5 * first else f"measured at a load of {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
    )
    growth = {name: measured.late[name] - measured.early[name] for name in measured.early}
    yield Row(
        f"memory from round {FIRST} to {ROUNDS}",
        "grows by <= 10 % at every party",
        ", ".join(f"{name} {measured.early[name]:.0f} + {grown:.1f} MB" for name, grown in growth.items()),
        all(grown <= 0.1 * measured.early[name] for name, grown in growth.items()),
    )
    for what, bar, arguments in TESTED:
        yield _tested(size, what, bar, *arguments)
    yield _how_to(size)


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
    first, last = (statistics.median(part) for part in (measured.seconds[:FIRST], measured.seconds[-FIRST:]))
    print(f"one round, {SITES} FLARE sites with mutual TLS, block {FEATURES} x {WIDTH}; load {os.getloadavg()[0]:.1f}")
    print(f"  median of {ROUNDS} rounds {1e3 * statistics.median(measured.seconds):8.2f} ms   (bar: {ROUND_BAR:g} ms)")
    print(f"  first and last {FIRST}   {1e3 * first:8.2f} ms, {1e3 * last:.2f} ms")
    for name in measured.early:
        print(
            f"  memory of {name:12s} {measured.early[name]:8.1f} MB after {FIRST} rounds, {measured.late[name]:.1f} MB at the end"
        )


if __name__ == "__main__":
    main()
