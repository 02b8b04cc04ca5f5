"""A run of the tests that is interrupted or killed leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WITHIN = 30.0

FEDERATION = """
import os, subprocess, sys, time

def start(*command, **options):
    return subprocess.Popen(command, start_new_session=True, **options)

def test_federation():
    server = start("sleep", "600")
    shell = start("sh", "-c", "setsid sleep 600 & echo $!", stdout=subprocess.PIPE, text=True)  # a job outlives who started it
    job = int(shell.stdout.readline())
    shell.wait()
    with open(os.environ["TOLD"] + ".part", "w") as file:
        file.write(f"{server.pid} {job}")
    os.rename(os.environ["TOLD"] + ".part", os.environ["TOLD"])
    time.sleep(600)
"""
"""What the fixtures of engines do: a server in a session of its own, and a job whose parent is gone."""


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie that nobody waits for does not."""
    with suppress(OSError):
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def until(condition) -> bool:
    """Whether it came true in time."""
    deadline = time.monotonic() + WITHIN
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
    return condition()


def heed_interrupts() -> None:
    """A process that was started in the background ignores Ctrl-C, and so would all that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.faults
@pytest.mark.parametrize(
    ("send", "how", "processes"),
    [(os.kill, signal.SIGINT, 0), (os.killpg, signal.SIGINT, 1), (os.kill, signal.SIGTERM, 1), (os.kill, signal.SIGKILL, 1)],
    ids=["interrupted", "Ctrl-C of all", "terminated", "killed"],
)
def test_nothing_is_left(send, how, processes, tmp_path):
    """Pytest alone gets the signal, as from ``kill``, or all its processes, as from a terminal."""
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_configure\n")
    (tmp_path / "test_federation.py").write_text(FEDERATION)
    told = tmp_path / "told"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", str(processes), str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TOLD": str(told)}
    options = {"cwd": tmp_path, "env": environment, "stdout": subprocess.DEVNULL, "start_new_session": True}
    with subprocess.Popen(command, preexec_fn=heed_interrupts, **options) as run:
        assert until(told.exists)
        pids = [int(word) for word in told.read_text().split()]
        assert all(alive(pid) for pid in pids)
        send(run.pid, how)
        try:
            assert until(lambda: not any(alive(pid) for pid in pids))
        finally:
            run.kill()
