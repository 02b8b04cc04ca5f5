"""Commands as people type them: what help, the version and a typing error take beside an interpreter that does nothing.

Processor time of the processes, the least of several runs that take turns, so that other work on the machine counts little.
Anonymous memory is what a process has of its own, without pages of files.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.table import Row

EIGENPACT = str(Path(sys.executable).with_name("eigenpact"))
NOTHING = [sys.executable, "-c", "pass"]
TURNS = {"small": 5, "paper": 25}
LARGE = {"small": (10**8, "64MB", 250 * 10**6), "paper": (6 * 10**9, "1GB", 10**9)}
"""Bytes of a file, what --memory says, and the most that the command may take."""

COLUMNS = 200


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
    yield from _large_file(size)


def _large_file(size: str) -> Iterator[Row]:
    """Fit and transform an array that is larger than the memory that is given."""
    n_bytes, given, most = LARGE[size]
    with tempfile.TemporaryDirectory(dir=os.environ.get("EIGENPACT_SCRATCH")) as folder:
        block = np.random.default_rng(0).normal(size=(2000, COLUMNS)).astype(np.float32) * np.linspace(5, 1, COLUMNS)
        n = n_bytes // block[:1].astype(np.float32).nbytes // len(block) * len(block)
        rows = np.lib.format.open_memmap(Path(folder, "large.npy"), "w+", np.float32, (n, COLUMNS))
        for first in range(0, n, len(block)):
            rows[first : first + len(block)] = block
        rows.flush()
        del rows
        for words in ("fit large.npy -k 5 -o model -q", "transform model large.npy -o scores.npy"):
            peak = _peak([EIGENPACT, *words.split(), "--memory", given], folder)
            what = f"eigenpact {words.split()[0]} of a .npy of {n_bytes / 1e9:g} GB, --memory {given}: peak of anonymous memory"
            yield Row(what, f"<= {most / 1e9:g} GB", f"{peak / 1e9:.2f} GB", peak <= most)


def _peak(command: list[str], folder: str) -> int:
    """The most bytes of its own that a process had, by looking again and again."""
    most = 0
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            text = Path(f"/proc/{process.pid}/status").read_text()
            most = max(most, *(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("RssAnon:")), 0)
            time.sleep(0.01)
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}")
    return most


def _seconds(command: list[str]) -> float:
    """Processor seconds of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, capture_output=True, check=False, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
