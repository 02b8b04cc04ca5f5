"""Solvers of other packages, one file each, one of each family: once installed they are everywhere, and no file names them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("installed")  # they are installed once

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "examples" / "nystrom-solver", ROOT / "tests" / "examples" / "four_solvers")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process saw that has both packages installed."""
    target = tmp_path_factory.mktemp("installed")
    copies = tmp_path_factory.mktemp("sources")
    for package in PACKAGES:  # setuptools builds beside the sources
        copy = copies / package.name
        copy.mkdir()
        for file in package.glob("*.*"):
            (copy / file.name).write_bytes(file.read_bytes())
    options = [
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--disable-pip-version-check",
        "--target",
        str(target),
    ]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, *map(str, copies.iterdir())], check=True, timeout=120)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(target), str(ROOT), str(ROOT / "src")])}
    command = [
        sys.executable,
        "-m",
        "tests.examples.with_installed_solvers",
        str(tmp_path_factory.mktemp("run")),
        str(ROOT / "docs"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_they_are_known_by_name(seen: dict[str, Any]) -> None:
    wanted = {"thrice": "FederatedPCA", "nystrom": "FederatedPCA", "projectors": "PersonalizedPCA", "clipped": "RobustPCA"}
    assert seen["estimators"] == wanted


@pytest.mark.parametrize("name", ["thrice", "nystrom", "projectors", "clipped"])
def test_they_fit_by_messages_under_policies(seen: dict[str, Any], name: str) -> None:
    """Nearly the exact components, for these rows."""
    overlap, by_messages = seen[name]
    assert overlap > 0.95
    assert by_messages


def test_a_graph_solver_fits(seen: dict[str, Any]) -> None:
    assert seen["alone"] > 1 - 1e-9


def test_a_policy_that_does_not_allow_them_refuses(seen: dict[str, Any]) -> None:
    assert "rule solvers" in seen["refused"]


def test_they_are_compared_listed_and_in_policies_that_name_them(seen: dict[str, Any]) -> None:
    assert {"thrice", "nystrom"} <= set(seen["compared"])
    assert seen["default policy"] == []
    assert set(seen["policy that lists them"]) == {
        "four:clipped_scatter/1",
        "four:projector/1",
        "four:thrice_product/1",
        "nystrom:sketch/1",
    }
    assert {"## thrice", "## nystrom", "## projectors", "## clipped", "## alone"} <= set(seen["wire table"])
    assert {"thrice", "nystrom", "projectors", "clipped", "alone"} <= set(seen["solvers page"])
