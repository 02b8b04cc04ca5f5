"""A process that FLARE or Flower has taken over ends when it is asked to, with one line, and with all that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from eigenpact.engines import signals

ROOT = Path(__file__).parents[2]
WITHIN = 60.0
"""Seconds until a test gives up; on a quiet machine everything here takes about two."""


def begin(how: str, told: Path, *, ignoring: bool = False) -> subprocess.Popen[str]:
    """Start it as ``eigenpact site start`` does: with signals blocked, until it heeds them."""

    def blocked() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN if ignoring else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, signals.STOPS)

    command = signals.command("tests.engines.stoppable", how, str(told))
    options: dict[str, Any] = {"env": os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}}
    return subprocess.Popen(
        command, preexec_fn=blocked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **options
    )


def wait_for(path: Path) -> int:
    deadline = time.monotonic() + WITHIN
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} is not there"
        time.sleep(0.02)
    return int(path.read_text())


def gone(pid: int) -> bool:
    return not signals._parent(pid)


@pytest.mark.parametrize(("how", "out"), [("heed", "took leave\n"), ("stuck", ""), ("unwinding", "took leave\n")])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_with_all_that_it_has_started(how: str, out: str, number: signal.Signals, tmp_path: Path) -> None:
    """Although a child ignores SIGTERM, a thread does not end, and taking leave may hang; pressing twice changes nothing."""
    process = begin(how, tmp_path / "told")
    child = wait_for(tmp_path / "told")
    deadline = time.monotonic() + WITHIN
    while len(family := [child, *signals.descendants(child)]) < 2:  # the child may still be starting its own
        assert time.monotonic() < deadline, "the child's child is not there"
        time.sleep(0.02)
    assert len(family) == 2
    os.killpg(process.pid, number)
    os.killpg(process.pid, number)
    printed = process.communicate(timeout=WITHIN)
    assert printed == (out, f"the test was stopped by {'Ctrl-C' if number == signal.SIGINT else 'SIGTERM'}\n")
    assert process.returncode == 128 + number
    assert all(gone(pid) for pid in family)


def test_a_signal_that_came_before_python_began_is_heeded(tmp_path: Path) -> None:
    process = begin("heed", tmp_path / "told")
    os.killpg(process.pid, signal.SIGINT)
    printed = process.communicate(timeout=WITHIN)
    assert printed in {("", "stopped before anything was connected\n"), ("took leave\n", "the test was stopped by Ctrl-C\n")}
    assert process.returncode == 130
    assert not (tmp_path / "told").exists() or gone(wait_for(tmp_path / "told"))


def test_what_was_ignored_is_ignored(tmp_path: Path) -> None:
    """As Ctrl-C is in the background of a script."""
    process = begin("heed", tmp_path / "told", ignoring=True)
    wait_for(tmp_path / "told")
    os.killpg(process.pid, signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.communicate(timeout=WITHIN)[1] == "the test was stopped by SIGTERM\n"
    assert process.returncode == 143


def test_first_brings_nothing_that_could_take_long() -> None:
    """Until signals are heeded, only Python's own modules are imported."""
    text = signals.FIRST.read_text()
    imported = {line.split()[1].partition(".")[0] for line in text.splitlines() if line.startswith(("import ", "from "))}
    assert imported <= {"__future__", *sys.stdlib_module_names}
