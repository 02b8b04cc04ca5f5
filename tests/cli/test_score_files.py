"""``--memory``: files larger than a share of it are read a piece at a time, and models and scores are the same bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bed_reader import to_bed

from eigenpact.cli import score_files
from eigenpact.data import budgets, readers
from eigenpact.errors import InputError
from eigenpact.estimators.model_files import load_model
from eigenpact.numerics.sources import RowSource

Run = Callable[..., Any]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Sizes at which a small file is a large one; gives what was read."""
    seen: list[Any] = []
    monkeypatch.setattr(budgets, "LEAST_MEMORY", 1000)
    monkeypatch.setattr(budgets, "LEAST_PIECE", 2000)
    checked = readers._checked
    monkeypatch.setattr(readers, "_checked", lambda file, table: seen.append(table.X) or checked(file, table))
    return seen


def write(folder: Path, name: str, X: Any) -> Path:
    path = folder / name
    if name.endswith(".npy"):
        np.save(path, X)
    elif name.endswith(".csv"):
        np.savetxt(path, X, delimiter=",", header=",".join(f"f{j}" for j in range(X.shape[1])), comments="")
    else:
        to_bed(path, np.clip(np.rint(np.abs(X)), 0, 2).astype(np.int8))
    return path


@pytest.mark.parametrize("ending", [".npy", ".csv", ".bed"])
def test_the_same_bits_with_little_memory(ending: str, tmp_path: Path, run: Run, small: list[Any]) -> None:
    rng = np.random.default_rng(0)
    files = [write(tmp_path, f"{name}{ending}", rng.normal(size=(400, 20)) * np.linspace(3, 1, 20)) for name in ("a", "b")]
    for way in ([], ["--memory", "8KB"]):
        small.clear()
        name = "large" if way else "small"
        arguments = ["-k", 3, "--solver", "krylov", "-q", *way]
        assert run("fit", *files, "-o", tmp_path / name, *arguments).exit_code == 0
        for scores in ("npy", "csv"):
            told = run("transform", tmp_path / name, files[0], "-o", tmp_path / f"{name}.{scores}", *way)
            assert told.exit_code == 0, told.output
            assert "Wrote 400 rows of 3 scores" in told.stdout.replace("\n", " ")
        assert all(isinstance(X, RowSource) for X in small) == (bool(way) or ending == ".bed")
    one, other = (load_model(tmp_path / name) for name in ("small", "large"))
    assert one.components_.tobytes() == other.components_.tobytes()
    for scores in ("npy", "csv"):
        assert (tmp_path / f"small.{scores}").read_bytes() == (tmp_path / f"large.{scores}").read_bytes()


def test_a_broken_disk_leaves_no_scores(
    tmp_path: Path, run: Run, small: list[Any], snapshot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written before the error is taken away."""
    file = write(tmp_path, "a.npy", np.random.default_rng(0).normal(size=(400, 20)))
    assert run("fit", file, "-k", 2, "-o", tmp_path / "model", "-q").exit_code == 0
    pieces = score_files.pieces

    def breaking(*args: Any) -> Any:
        for number, piece in enumerate(pieces(*args)):
            if number == 2:
                raise OSError(5, "Input/output error")
            yield piece

    monkeypatch.setattr(score_files, "pieces", breaking)
    monkeypatch.setattr(score_files, "block_rows", lambda _: 1)
    before = snapshot()
    told = run("transform", tmp_path / "model", file, "-o", tmp_path / "scores.csv", "--memory", "8KB")
    assert told.exit_code == 2, told.output
    assert "Input/output error" in told.stderr
    assert snapshot() == before
    assert len(small) == 2


@pytest.mark.parametrize(("text", "told"), [("lots", "is not a size"), ("5KB", "less than the program"), ("-1", "is not a size")])
def test_sizes_that_make_no_sense(text: str, told: str, refused: Callable[..., str]) -> None:
    assert told in refused("fit", "a.npy", "-k", 1, "-o", "model", "--memory", text)


@pytest.mark.parametrize("text", ["63.9MB", "60MiB", "1"])
def test_the_least_memory_that_is_told_is_taken(text: str) -> None:
    with pytest.raises(InputError) as told:
        budgets.parse_memory(text)
    least = str(told.value).rsplit(" ", 1)[1]
    assert (least, budgets.parse_memory(least)) == ("64MB", 64_000_000)
