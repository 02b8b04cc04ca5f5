"""Nothing that a test started outlives the tests, however these end.

Engines start servers, sites and jobs in sessions of their own, which no Ctrl-C and no end of a parent reaches.  So pytest's
processes carry a mark in their environment, which all that they start inherits, and each has a guard beside it: a process that
waits for its end and then kills whoever carries the mark.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

MARK = "EIGENPACT_TESTS"
LOOKS_EVERY = 0.3
GIVES_UP_AFTER = 20.0


def guard_this_process() -> None:
    """Mark what this process starts from now on, and start its guard, which bears no mark."""
    bare = {key: value for key, value in os.environ.items() if key != MARK}
    os.environ[MARK] = mark = f"{os.getpid()}-{secrets.token_hex(8)}"
    command = [sys.executable, "-I", __file__, str(os.getpid()), mark]
    subprocess.Popen(
        command,
        env=bare,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def marked(mark: str) -> list[int]:
    """Processes that bear a mark; those of others cannot be looked into, and zombies have none."""
    entry, found = f"{MARK}={mark}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if entry in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def guard(parent: int, mark: str) -> None:
    """Wait until the parent has ended, then kill whoever bears the mark, and those whom they have started meanwhile."""
    while os.getppid() == parent:
        time.sleep(LOOKS_EVERY)
    deadline = time.monotonic() + GIVES_UP_AFTER
    while (left := marked(mark)) and time.monotonic() < deadline:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


if __name__ == "__main__":
    guard(int(sys.argv[1]), sys.argv[2])
