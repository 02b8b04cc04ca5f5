"""Commands as people type them: what help, the version and a typing error take beside an interpreter that does nothing.

Processor time of the processes, the least of several runs that take turns, so that other work on the machine counts little.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.table import Row, load_told

EIGENPACT = str(Path(sys.executable).with_name("eigenpact"))
NOTHING = [sys.executable, "-c", "pass"]
TYPER = [sys.executable, "-c", "import typer"]
TURNS = {"small": 9, "paper": 25}


BARS = {
    6: ("--help", "--version", "fitt"),
    8: (
        *("fit --help", "fit --compnents 3", "site --help", "site --typo", "site start --help", "site start --tyop"),
        *("federation init --typo", "coordinator run --help", "coordinator run --typo", "reproduce --typo", "rehearse --typo"),
        *("audit --typo", "demo --typo", "suggest --typo", "compare --typo", "transform --help", "export --typo"),
    ),
}
"""What a command may take, in times of an interpreter that does nothing, and the words behind ``eigenpact``."""


def rows(size: str) -> Iterator[Row]:
    """Measure and yield a row at a time; ``size`` is "small" or "paper".  Commands of one bar but the quickest share a row."""
    bars = {word: bar for bar, words in BARS.items() for word in words}
    commands = [NOTHING, TYPER, *([EIGENPACT, *word.split()] for word in bars)]
    turns = [[_seconds(command) for command in commands] for _ in range(TURNS[size])]
    nothing, typer, *taken = (min(turn) for turn in zip(*turns, strict=True))
    ratios = {word: seconds / nothing for word, seconds in zip(bars, taken, strict=True)}
    for word in BARS[6]:
        told = f"{ratios[word]:.1f} times ({1000 * ratios[word] * nothing:.0f} ms and {1000 * nothing:.0f} ms)"
        met = ratios[word] <= 6
        yield Row(f"eigenpact {word}: processor time", "<= 6 times python -c pass", told, met, "" if met else load_told())
    slowest = sorted(BARS[8], key=lambda word: -ratios[word])
    what = f"help and misspelt options of {len(slowest)} commands: processor time"
    told = f"{ratios[slowest[-1]]:.1f} to {ratios[slowest[0]]:.1f} times; the longest is eigenpact {slowest[0]}"
    met = ratios[slowest[0]] <= 8
    yield Row(
        what, "<= 8 times python -c pass", told, met, "" if met else f"importing typer takes {typer / nothing:.1f} of these"
    )


def _seconds(command: list[str]) -> float:
    """Processor seconds of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, check=False, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
