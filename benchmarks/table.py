"""Rows of a results table: what was asked, the bar, what was reached, and whether that meets it."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One measured line.  ``met`` is None where it could not be measured here; ``why`` explains that, or a miss."""

    what: str
    bar: str
    reached: str
    met: bool | None
    why: str = ""

    @property
    def has_bar(self) -> bool:
        """Whether anything was asked; other rows are "reported"."""
        return self.bar != "reported"

    @property
    def verdict(self) -> str:
        """One word, and the reason if there is one."""
        word = {True: "met" if self.has_bar else "reported", False: "missed", None: "not run"}[self.met]
        return f"{word}: {self.why}" if self.why else word


def as_markdown(rows: Iterable[Row]) -> str:
    """The table as Markdown; a vertical line in a text does not end its cell."""
    lines = ["| what | bar | reached | |", "|---|---|---|---|"]
    for row in rows:
        cells = (text.replace("|", "\\|").replace("\n", " ") for text in (row.what, row.bar, row.reached, row.verdict))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def print_rows(title: str, rows: Iterable[Row], markdown: bool) -> bool:
    """Print the table; returns whether every miss is explained."""
    rows = list(rows)
    if markdown:
        print(as_markdown(rows))
    else:
        table = Table(title=title, show_lines=True)
        for column in ("what", "bar", "reached", ""):
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(row.what, row.bar, row.reached, row.verdict)
        Console(width=150).print(table)
    unexplained = [row for row in rows if row.met is False and not row.why]
    for row in unexplained:
        print(f"missed without a recorded reason: {row.what}: {row.reached} (bar {row.bar})", file=sys.stderr)
    return not unexplained


def run_alone(name: str, about: str | None, rows: Callable[[str], Iterable[Row]]) -> None:
    """The command of a script that is a part of a family's table: ``python -m benchmarks.NAME --size small|paper``."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--size", choices=["small", "paper"], default="small")
    size = parser.parse_args().size
    sys.exit(0 if print_rows(f"{name}, --size {size}", rows(size), False) else 1)


def load_told() -> str:
    """Why a time may have missed its bar: what else the machine did."""
    return f"measured at a load of {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def least_seconds(*calls: Callable[[], object], times: int = 5) -> tuple[float, ...]:
    """The least wall seconds of each call, measured in turn."""
    least = [float("inf")] * len(calls)
    for _ in range(times):
        for i, call in enumerate(calls):
            begin = time.perf_counter()
            call()
            least[i] = min(least[i], time.perf_counter() - begin)
    return tuple(least)


CHECKED = "every reply is held against what its site told before; "
"""What a round has cost since coordinators notice lies."""


def timed(what: str, bar: float, seconds: float, why: str = "") -> Row:
    """A row for a time in milliseconds; a miss is explained by ``why`` and the machine's load."""
    met = 1e3 * seconds <= bar
    why = "" if met else why + load_told()
    return Row(what, f"<= {bar:g} ms", f"{1e3 * seconds:.2f} ms", met, why)


PASSED = "EIGENPACT_TESTS_PASSED"
"""Set by ``.ci/run`` once ``make test`` and ``make test-faults`` have passed: their tests need not run twice."""


def run_pytest(*arguments: str) -> tuple[bool, str]:
    """Run tests; whether they passed, and pytest's closing line."""
    if os.environ.get(PASSED) and "paper" not in arguments:
        return True, "passed by make test or make test-faults, just before"
    command = [sys.executable, "-m", "pytest", *arguments]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    closing = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "no output"
    return done.returncode == 0, re.sub(r" in [\d.]+s.*", "", closing)


def pytest_row(what: str, bar: str, *arguments: str) -> Row:
    """A row that is met if these tests pass."""
    passed, closing = run_pytest(*arguments)
    return Row(what, bar, f"{closing} (pytest {' '.join(arguments)})", passed)
