"""Commands as people type them: what help, the version and a typing error take beside an interpreter that does nothing.

Processor time of the processes, the least of several runs that take turns, so that other work on the machine counts little.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.table import Row

EIGENPACT = str(Path(sys.executable).with_name("eigenpact"))
NOTHING = [sys.executable, "-c", "pass"]
TURNS = {"small": 5, "paper": 25}


def rows(size: str) -> Iterator[Row]:
    """Measure and yield a row at a time; ``size`` is "small" or "paper"."""
    words = ["--help", "--version", "fitt", "fit --compnents 3", "fit --help"]
    commands = [NOTHING, *([EIGENPACT, *each.split()] for each in words)]
    taken = [min(turn) for turn in zip(*([_seconds(command) for command in commands] for _ in range(TURNS[size])), strict=True)]
    for word, seconds in zip(words, taken[1:], strict=True):
        ratio = seconds / taken[0]
        has_bar = not word.startswith("fit ")
        bar = "<= 6 times python -c pass" if has_bar else "reported"
        told = f"{ratio:.1f} times ({1000 * seconds:.0f} ms and {1000 * taken[0]:.0f} ms)"
        yield Row(f"eigenpact {word}: processor time", bar, told, ratio <= 6 if has_bar else True)


def _seconds(command: list[str]) -> float:
    """Processor seconds of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, check=False, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
