"""Rounds as they happen: one live line on a terminal, else a plain line about every second and one at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ..report.messages import bytes_text
from ..runtime import RoundRecord
from .consoles import stderr, tell

SECONDS_BETWEEN_LINES = 1.0

Callback = Callable[[RoundRecord], object]
Say = Callable[[str], object]


@contextmanager
def shown_status(console: Console, text: str, *, quiet: bool) -> Iterator[tuple[Say, Say]]:
    """Two functions of a text: one shows it on a live line of terminals, the other prints a line to keep."""
    if quiet:
        yield lambda _: None, lambda _: None
        return
    with console.status(text) as status:
        yield status.update, lambda line: tell(console, line)


@contextmanager
def shown_rounds(console: Console, *, quiet: bool = False) -> Iterator[Callback]:
    """Give a callback for ``FederatedPCA`` that shows each round on ``console``."""
    line = _Line()
    if quiet:
        yield line.read
    elif console.is_terminal:
        columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("set-up", total=None)
            yield lambda record: bar.update(task, description=line.read(record))
    else:
        yield from _plain_lines(console, line)


def _plain_lines(console: Console, line: _Line) -> Iterator[Callback]:
    told = time.monotonic()

    def show(record: RoundRecord) -> None:
        nonlocal told
        line.read(record)
        if time.monotonic() - told >= SECONDS_BETWEEN_LINES:
            told = time.monotonic()
            tell(console, line.take())

    yield show
    if line.text:
        tell(console, line.take())


class _Line:
    """The state of a run in one line."""

    def __init__(self) -> None:
        self.text = ""
        self._bytes = 0

    def read(self, record: RoundRecord) -> str:
        """Take in a record; return the line."""
        self._bytes += record.bytes_up + record.bytes_down
        residual = "unknown" if record.kkt is None else f"{record.kkt:.1e}"
        self.text = f"round {record.round}  KKT {residual}  {bytes_text(self._bytes)} so far  {record.sites} sites"
        return self.text

    def take(self) -> str:
        """The line, to be printed once."""
        text, self.text = self.text, ""
        return text


def shown_waiting(run: str, *, quiet: bool = False) -> Callable[[tuple[str, ...], tuple[str, ...], bool], None]:
    """A function that prints who is connected and who is missing, and without whom a run begins; a line whenever that changes."""

    def show(connected: tuple[str, ...], missing: tuple[str, ...], begins: bool) -> None:
        if quiet:
            return
        if begins and missing:
            tell(stderr(), f"run {run} begins without {', '.join(missing)}: not connected", "yellow")
        else:
            still = f"missing: {', '.join(missing)}" if missing else "all are there"
            tell(stderr(), f"run {run}: connected: {', '.join(connected) or 'none'}; {still}")

    return show
