"""Ctrl-C, ``kill`` and a closed terminal end a command in order: what it started ends with it, and one line says so."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from ..engines.first import STOPS
from ..engines.signals import name_of
from .consoles import stderr, tell


class Stopped(KeyboardInterrupt):
    """The command was asked to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def ended_in_order(advice: str) -> Iterator[None]:
    """Let the first request to end be raised where the command is; then say so in a line with advice.

    The exit code is 128 and the signal's number, as shells have it: 130 after Ctrl-C.  What was ignored when the command began,
    as in the background of a script, stays so.
    """

    def end(number: int, _frame: object) -> None:
        for other in before:
            signal.signal(other, signal.SIG_IGN)  # whoever is in a hurry presses twice
        raise Stopped(number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in STOPS}
        before = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
        for number in before:
            signal.signal(number, end)
    try:
        yield
    except KeyboardInterrupt as stopped:
        number = getattr(stopped, "number", signal.SIGINT)
        tell(stderr(), f"stopped by {name_of(number)}; {advice}")
        raise typer.Exit(128 + number) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
