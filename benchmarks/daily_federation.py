"""The daily life of a federation: commands that are stopped, and mistakes that are told by party and remedy."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.table import Row, load_told, pytest_row

if TYPE_CHECKING:
    from tests.cli.daily import Command, Life

LIFE = "tests/cli/test_daily_life.py"
BAR = "one line, at most 2 s, exit code 130; no process, port, lock or temporary key left"


def rows(size: str) -> Iterator[Row]:
    """Measure and yield a row at a time; ``paper`` presses Ctrl-C at 20 moments of each command, which takes half an hour."""
    with tempfile.TemporaryDirectory() as folder:
        yield from stops(Path(folder))
    if size != "small":
        os.environ["EIGENPACT_MOMENTS"] = "20"
        yield pytest_row("Ctrl-C at 20 moments of site start, coordinator start and coordinator run", BAR, LIFE, "-m", "faults")
    what = (
        "a kit started twice, a table that changes under a running site, port taken, coordinator late, site late, fifth hospital"
    )
    bar = "each a line that names the party and the remedy; nothing answered with other data or policy"
    if size == "small":
        yield Row(what, bar, f"tested by make test-faults ({LIFE})", None, "CI runs it just before")
    else:
        yield pytest_row(what, bar, LIFE, "-m", "faults", "-k", "day")
    starts = "tests/cli/test_site_start.py", "tests/cli/test_federation.py", "-k", "start or certificate or kit"
    yield pytest_row("the same without a federation; and a kit of another site, an expired one", bar, *starts)


def stops(folder: Path) -> Iterator[Row]:
    """A federation of two sites whose commands are stopped one after the other."""
    from tests.cli.daily import Life  # which needs FLARE

    life = Life(folder, ("north", "south"))
    try:
        server, site = life.coordinator(), life.site("north")
        site.until("stop with Ctrl-C")
        run = life.run("-k", "2", "-o", "model")
        run.until("connected: north; missing: south")
        yield stop_row(life, "coordinator run", run)
        yield stop_row(life, "site start", site, "north")
        yield stop_row(life, "coordinator start", server, "coordinator")
    finally:
        life.stop()


def stop_row(life: Life, what: str, command: Command, party: str = "") -> Row:
    """Press Ctrl-C, and look what is left."""
    begin = time.monotonic()
    told = command.interrupt()
    seconds = time.monotonic() - begin
    left = life.is_left(party) if party else [str(path) for path in (life.folder / "tmp").glob("eigenpact-*")]
    lines = len(told.strip().splitlines())
    met = seconds <= 2.0 and lines == 1 and not left
    reached = f"{lines} line, {seconds:.2f} s, exit code {command.process.returncode}, left: {', '.join(left) or 'nothing'}"
    why = "" if met else load_told()
    return Row(f"Ctrl-C of a connected {what} on FLARE", BAR, reached, met, why)
