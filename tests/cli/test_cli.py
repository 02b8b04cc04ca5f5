"""The command itself: version, help, errors, and a real process."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from eigenpact.errors import FileError

EIGENPACT = Path(sys.executable).with_name("eigenpact")


def process(*args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([EIGENPACT, *args], cwd=cwd, env=os.environ | env, text=True, capture_output=True, timeout=60)


def test_version(run):
    assert run("--version").stdout == f"eigenpact {version('eigenpact')}\n"


@pytest.mark.parametrize("command", ["demo", "fit", "transform", "show"])
def test_help_has_an_example(run, command):
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"Example: eigenpact {command}" in result.stdout


def test_unknown_command(run):
    result = run("fitt")
    assert result.exit_code == 2
    assert "fitt" in result.stderr


def test_fit_as_a_process_and_transform(run, tmp_path):
    fitted = process("fit", "north.csv", "south.csv", "west.npy", "-k", "2", "-o", "model", cwd=tmp_path)
    assert fitted.returncode == 0, fitted.stderr
    assert "sites          3: north, south, west" in fitted.stdout
    assert fitted.stderr.startswith("round 1 ")
    scored = run("transform", "model", "north.csv", "-o", "scores.npy")
    assert scored.exit_code == 0, scored.stderr
    assert np.load(tmp_path / "scores.npy").shape == (30, 2)


def test_error_is_one_line_unless_debugging(tmp_path):
    short = process("show", "nowhere", cwd=tmp_path)
    assert (short.returncode, short.stdout) == (2, "")
    assert short.stderr == "error: nowhere does not exist; give the folder of a model\n"
    long = process("show", "nowhere", cwd=tmp_path, EIGENPACT_DEBUG="1", PYTHONPROFILEIMPORTTIME="1")
    assert long.returncode == 1
    assert "Traceback" in long.stderr
    assert "eigenpact.reproduce.registry" in long.stderr
    assert "matplotlib" not in long.stderr  # a command that draws nothing does not wait for it


def test_debug_raises_the_error_itself(run, monkeypatch):
    monkeypatch.setenv("EIGENPACT_DEBUG", "1")
    assert isinstance(run("show", "nowhere").exception, FileError)
