"""The first words of a process that takes a command over: from its first moment on, Ctrl-C ends it with one line.

Run by its path, ``python -P first.py MODULE ...``, so that nothing of eigenpact is imported before signals are heeded; whoever
starts it has blocked them (``signals.block``).  The module then runs as ``__main__``, and may heed them in its own way.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys

STOPS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""What asks a process to end: Ctrl-C, ``kill``, and a terminal that was closed."""


def stop(number: int, _frame: object) -> None:
    """End at once, with the exit code that shells know."""
    os.write(2, b"stopped before anything was connected\n")
    os._exit(128 + number)


def main() -> None:
    """Heed signals, except those that were ignored, as in the background of a script; then go on as the module."""
    for number in STOPS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
