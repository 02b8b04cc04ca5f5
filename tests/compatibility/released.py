"""An earlier release, built from its commit into a folder, and parties that run it in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PARTY = Path(__file__).with_name("party.py")
RELEASES: dict[str, str] = tomllib.loads(Path(__file__).with_name("releases.toml").read_text())["releases"]
LAST = list(RELEASES)[-1]


@dataclass(frozen=True)
class Release:
    """A release whose source lies in a folder: this one, or an earlier one."""

    name: str
    source: Path

    @property
    def environment(self) -> dict[str, str]:
        """For processes that are to run it; what it depends on is what the tests have."""
        return os.environ | {"PYTHONPATH": os.pathsep.join([str(self.source), str(ROOT)]), "OMP_NUM_THREADS": "1"}

    def party(self, *words: str, code: int = 0) -> Any:
        """What ``party.py`` tells, in a process with this release."""
        command = [sys.executable, "-W", "ignore", str(PARTY), *words]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout or "null")

    def do(self, *work: tuple[str, Any], code: int = 0) -> Any:
        """What this release does by the functions of ``party.py``, one after the other in one process, and what it tells."""
        return self.party("do", json.dumps(work), code=code)

    def serve(self, facts: Mapping[str, Mapping[str, str]], speaks: tuple[int, int] | None = None) -> subprocess.Popen[str]:
        """Sites that this release answers for, at Unix sockets, until it is terminated."""
        command = [sys.executable, "-W", "ignore", str(PARTY), "serve", json.dumps({"facts": facts, "speaks": speaks})]
        begun = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True)
        assert begun.stdout is not None
        assert begun.stdout.readline() == f"{self.name}\n", "the sites' process did not come up"
        return begun


def this_release() -> Release:
    """What is tested here."""
    import eigenpact

    return Release(eigenpact.__version__, ROOT / "src")


def build(name: str, folder: Path) -> Release:
    """An earlier release's source, from its commit; the test is skipped where that is not in this copy of the repository."""
    commit = RELEASES[name]
    done = subprocess.run(["git", "-C", str(ROOT), "archive", commit, "src"], capture_output=True)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip() or "git failed"
        pytest.skip(f"release {name} is commit {commit[:7]}, which is not in this copy of the repository ({reason})")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    source = folder / "src"
    told = source / f"eigenpact-{name}.dist-info"  # what the installed release would say of itself
    told.mkdir()
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: eigenpact\nVersion: {name}\n")
    return Release(name, source)
