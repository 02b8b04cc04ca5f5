"""The examples of robust PCA run, and say what to do where data are absent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, picture: Path, *more: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """An example, in a process of its own."""
    kept = {key: value for key, value in os.environ.items() if key != "EIGENPACT_DATA"} | environment
    command = [sys.executable, str(EXAMPLES / name), str(picture), *more]
    return subprocess.run(command, env=kept, cwd=picture.parent, capture_output=True, text=True, timeout=300)


def test_sensors_finds_the_wrong_readings_and_names_the_station(tmp_path: Path) -> None:
    done = run("sensors.py", tmp_path / "sensors.png")
    assert done.returncode == 0, done.stderr
    assert "site 'Delft' stands out" in done.stdout
    found = [float(line.split()[2].rstrip("%")) for line in done.stdout.splitlines() if line.split()[:1] == ["Bergen"]]
    assert found[0] > 97
    assert (tmp_path / "sensors.png").stat().st_size > 1000


def test_foreground_says_what_it_needs(tmp_path: Path) -> None:
    done = run("foreground.py", tmp_path / "foreground.png", EIGENPACT_CACHE=str(tmp_path))
    assert done.returncode == 1
    assert "set EIGENPACT_DATA to the folder that holds it" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif("EIGENPACT_DATA" not in os.environ, reason="EIGENPACT_DATA is not set")
def test_foreground_separates_people_from_the_background(tmp_path: Path) -> None:
    """With every fourth pixel of every fourth line."""
    done = run("foreground.py", tmp_path / "foreground.png", "4", EIGENPACT_DATA=os.environ["EIGENPACT_DATA"])
    assert done.returncode == 0, done.stderr
    assert "converged" in done.stdout
    assert (tmp_path / "foreground.png").stat().st_size > 1000
