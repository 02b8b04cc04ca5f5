"""A process that was taken over by FLARE or Flower ends in order, and soon, when it is asked to: by Ctrl-C or by ``kill``.

Both start processes of their own, which Ctrl-C does not reach, and hundreds of threads, which keep Python from ending.  So the
handler ends them: it says one line, takes leave of the other side if that takes no longer than a moment, ends the processes that
were started here, and then this one, with 128 and the signal's number as its exit code.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .first import STOPS

LEAVE_WITHIN = 0.8
"""Seconds that taking leave of the other side may last."""

END_WITHIN = 0.5
"""Seconds after which a process that was started here, and asked to end, is killed."""

FIRST = Path(__file__).with_name("first.py")


def command(module: str, *arguments: str) -> list[str]:
    """What starts a module so that Ctrl-C is heeded from the first moment on."""
    return [sys.executable, "-P", "-u", str(FIRST), module, *arguments]


def block() -> None:
    """Keep signals waiting until the process that takes this one over heeds them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)


def heed(who: str, leave: Callable[[], object] = lambda: None) -> None:
    """From now on end in order, with a line that says who; ``leave`` is called before that, and not waited for for long."""

    def stop(number: int) -> None:
        _briefly(leave)
        end(128 + number)

    _on_stops(who, stop)


def _on_stops(who: str, act: Callable[[int], None]) -> None:
    """At the first request to end, and at no other, say so and act; what was ignored before, as in a script, stays so."""

    def stop(number: int, _frame: object) -> None:
        for other in STOPS:
            signal.signal(other, signal.SIG_IGN)
        threading.excepthook = lambda _: None  # whatever goes wrong now, this process ends
        say(f"{who} was stopped by {name_of(number)}")
        act(number)

    for number in STOPS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)


@contextmanager
def unwinding(who: str) -> Iterator[None]:
    """As :func:`heed`, for what takes leave by itself when SystemExit is raised in it, if that takes no longer than a moment."""
    told: list[int] = []

    def late() -> None:
        time.sleep(LEAVE_WITHIN)
        end(told[0])

    def stop(number: int) -> None:
        told.append(128 + number)
        threading.Thread(target=late, daemon=True, name="eigenpact-late").start()
        sys.exit(told[0])

    _on_stops(who, stop)
    try:
        yield
    except SystemExit:
        if told:
            end(told[0])
        raise


def end(code: int) -> None:
    """End what was started here, and this process, whatever its threads do."""
    end_children()
    os._exit(code)


def name_of(number: int) -> str:
    """A signal's name for people.

    >>> name_of(signal.SIGINT), name_of(signal.SIGTERM)
    ('Ctrl-C', 'SIGTERM')
    """
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def say(text: str) -> None:
    """A line on standard error, past all that Python keeps back; whoever closed it does not want to know."""
    with suppress(OSError):
        os.write(2, f"{text}\n".encode())


def _briefly(leave: Callable[[], object]) -> None:
    worker = threading.Thread(target=leave, daemon=True, name="eigenpact-leave")
    worker.start()
    worker.join(LEAVE_WITHIN)


def end_children() -> None:
    """End all that this process has started, and what those have; politely first."""
    _end_all(descendants(os.getpid()), END_WITHIN)


def end_process(process: subprocess.Popen[bytes], within: float) -> None:
    """End a process that was started here, and what it has started; whoever is left after some seconds is killed."""
    family = [process.pid, *descendants(process.pid)]
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(within)
    _end_all(family, END_WITHIN)
    process.wait()


def _end_all(family: list[int], polite: float) -> None:
    for how, within in ((signal.SIGTERM, polite), (signal.SIGKILL, END_WITHIN)):
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, how)
        deadline = time.monotonic() + within
        while family and time.monotonic() < deadline:
            time.sleep(0.02)
            family = [pid for pid in family if _parent(pid)]
        if not family:
            return


def descendants(root: int) -> list[int]:
    """Processes that a process has started, and those that these have; none where the system does not tell."""
    parents = {int(entry.name): _parent(int(entry.name)) for entry in Path("/proc").glob("[0-9]*")}
    found, new = [], [root]
    while new:
        new = [pid for pid, parent in parents.items() if parent in new]
        found += new
    return found


def _parent(pid: int) -> int:
    """Who started a process; 0 if it has ended, noted by its parent or not."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return 0
    return 0 if state in "ZX" else int(parent)
