"""Small sites on disk, and a way to run the command in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from eigenpact.cli import app

NAMES = ("age", "bmi", "glucose", "pressure", "rate")


@pytest.fixture
def names() -> tuple[str, ...]:
    """Feature names of the sites."""
    return NAMES


@pytest.fixture
def write_csv() -> Callable[..., Path]:
    """Write rows (n x d) with an optional header and optional row ids."""
    return _write_csv


@pytest.fixture
def snapshot(tmp_path: Path) -> Callable[[], dict[str, bytes | None]]:
    """Every file in the current folder with its content, every folder with None."""
    return lambda: {str(p.relative_to(tmp_path)): p.read_bytes() if p.is_file() else None for p in sorted(tmp_path.rglob("*"))}


def _write_csv(path: Path, X: np.ndarray, names: tuple[str, ...] | None = NAMES, ids: list[str] | None = None) -> Path:
    lines = [] if names is None else [",".join(names if ids is None else ("id", *names))]
    for i, row in enumerate(X):
        cells = [repr(float(value)) for value in row]
        lines.append(",".join(cells if ids is None else [ids[i], *cells]))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(autouse=True)
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """Three sites in the current folder: north.csv (ids), south.csv (columns reversed), west.npy (no names)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(5, 5))
    rows = {name: rng.normal(size=(n, 5)) @ mix + i for i, (name, n) in enumerate([("north", 30), ("south", 20), ("west", 12)])}
    _write_csv(tmp_path / "north.csv", rows["north"], ids=[f"p{i}" for i in range(30)])
    _write_csv(tmp_path / "south.csv", rows["south"][:, ::-1], NAMES[::-1])
    np.save(tmp_path / "west.npy", rows["west"])
    return rows


@pytest.fixture
def run() -> Callable[..., Any]:
    """Run ``eigenpact`` with arguments, in this process."""
    return lambda *args: CliRunner().invoke(app, [str(a) for a in args])


@pytest.fixture
def refused(run: Callable[..., Any], snapshot: Callable[..., Any]) -> Callable[..., str]:
    """Run a command that must fail: exit code 2, one line "error: ..." on stderr, perhaps advice, and no file touched."""

    def check(*args: object) -> str:
        before = snapshot()
        result = run(*args)
        assert result.exit_code == 2, result.output
        assert snapshot() == before
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        advice = [line for line in result.stderr.splitlines() if "(this is understood)" in line or "eigenpact describe" in line]
        assert result.stderr.count("\n") == 1 + len(advice)
        return str(result.stderr)

    return check
