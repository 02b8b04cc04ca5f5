"""``eigenpact suggest``: the number of components that rows were made with, tables, pictures, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eigenpact as ep

FILES = ("a.csv", "b.csv", "c.csv")
NAMES = [f"f{j}" for j in range(9)]


@pytest.fixture(autouse=True)
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Three sites of rows with three components and noise; one has holes."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    mix = 3 * np.linalg.qr(rng.normal(size=(9, 3)))[0].T
    rows = {}
    for name, n in (("a", 70), ("b", 60), ("c", 50)):
        X = np.round(rng.normal(size=(n, 3)) @ mix + 0.3 * rng.normal(size=(n, 9)), 4)
        X[rng.random(X.shape) < (0.05 if name == "b" else 0)] = np.nan
        cells = [["" if np.isnan(value) else str(value) for value in row] for row in X]
        Path(f"{name}.csv").write_text("\n".join(",".join(row) for row in [NAMES, *cells]) + "\n")
        rows[name] = X
    return rows


@pytest.mark.parametrize("method", ["held-out", "parallel", "elbow"])
def test_the_number_the_rows_were_made_with(run: Any, made: dict[str, Any], method: str) -> None:
    result = run("suggest", *FILES, "--method", method, "--max", 5, "--json", "s.json", "--picture", "s.png", "-q")
    assert result.exit_code == 0, result.output
    assert "Suggested: 3 (eigenpact fit -k 3)" in result.stdout
    assert Path("s.png").read_bytes().startswith(b"\x89PNG")
    told = json.loads(Path("s.json").read_text())
    truth = ep.suggest_components(made, max_components=5, method=method, random_state=0)  # type: ignore[arg-type]
    assert (told["n_components"], told["method"]) == (3, method)
    assert told["table"] == truth.table
    marked = [line for line in result.stdout.splitlines() if "<-" in line]
    assert len(marked) == 1
    assert marked[0].split()[0] == "3"


def test_by_default_as_many_are_tried_as_there_are(run: Any) -> None:
    result = run("suggest", *FILES, "-q")
    assert result.exit_code == 0, result.output
    assert "Suggested: 3" in result.stdout
    rows = [line.split()[0] for line in result.stdout.splitlines() if line.split() and line.split()[0].isdigit()]
    assert rows == [str(k) for k in range(9)]  # 9 features: at most 8 components


def test_noise_has_none_and_few_tries_are_told(run: Any) -> None:
    rng = np.random.default_rng(1)
    np.savetxt("noise.csv", rng.normal(size=(200, 6)), delimiter=",", header="a,b,c,d,e,f", comments="")
    assert "Suggested: none" in run("suggest", "noise.csv", "--max", 3, "-q").stdout
    assert "try more with --max" in run("suggest", *FILES, "--max", 2, "-q").stdout


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--max", "0"), "--max 0 must be a whole number >= 1"),
        (("--max", "1", "--method", "elbow"), "--max 1 must be a whole number >= 2"),
        (("--max", "9"), "--max 9 is more than 8, which 180 rows of 9 features allow"),
        (("--share", "1.5"), "--share 1.5 must be between 0 and 1"),
        (("--share", "0.999"), "hiding a share of 0.999 of the entries leaves none of feature"),
        (("--picture", "s.txt"), "s.txt"),
        (("--center", "site"), "--center site does not go with --method held-out"),
    ],
)
def test_what_cannot_be_is_refused(refused: Any, options: tuple[str, ...], told: str) -> None:
    assert told in refused("suggest", *FILES, "-q", *options)


def test_other_columns_are_agreed_on(run: Any, refused: Any) -> None:
    text = Path("c.csv").read_text().splitlines()
    Path("c.csv").write_text("\n".join(",".join(line.split(",")[:-1]) for line in text) + "\n")
    assert "f8" in refused("suggest", *FILES, "-q")
    assert "Suggested: 3" in run("suggest", *FILES, "--features", "intersection", "--max", 5, "-q").stdout


def test_too_few_rows_to_hide_entries_of_are_told_as_such(refused: Any) -> None:
    Path("two.csv").write_text("u,v,w\n1.5,2.5,3.25\n4.5,5.5,7.75\n")
    for seed in range(4):
        told = refused("suggest", "two.csv", "-q", "--share", "0.5", "--seed", str(seed))
        assert "hid" in told
        assert "every entry is missing" not in told
    Path("one.csv").write_text("u\n1.5\n4.5\n")
    for method in ("held-out", "elbow"):
        told = refused("suggest", "one.csv", "-q", "--method", method)
        assert f"--method {method} needs at least two rows and two features; there are 2 and 1" in told


def test_one_file_of_several_sites_with_columns_that_are_no_features(run: Any, refused: Any, tmp_path: Path) -> None:
    """As from a file for each site."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2)) @ rng.normal(size=(2, 6)) * 3 + rng.normal(size=(120, 6))
    names = [f"x{j}" for j in range(6)]
    lines = [",".join(["nr", "clinic", "remark", *names])]
    lines += [",".join([str(i), "ab"[i % 2], "7", *map(repr, row)]) for i, row in enumerate(X.tolist())]
    (tmp_path / "all.csv").write_text("\n".join(lines) + "\n")
    for at, site in enumerate("ab"):
        part = [",".join(names), *(",".join(map(repr, row)) for row in X[at::2].tolist())]
        (tmp_path / f"{site}.csv").write_text("\n".join(part) + "\n")
    options = ("--by", "clinic", "--id", "nr", "--drop", "remark", "--method", "parallel", "--json", "one.json")
    result = run("suggest", "all.csv", *options, "--prepare", "scale")
    assert result.exit_code == 0, result.stderr
    assert "Components of 2 sites" in result.stdout
    assert run("suggest", "a.csv", "b.csv", "--method", "parallel", "--prepare", "scale", "--json", "two.json").exit_code == 0
    assert json.loads((tmp_path / "one.json").read_text()) == json.loads((tmp_path / "two.json").read_text())
    assert json.loads((tmp_path / "one.json").read_text())["n_components"] == 2
    assert "--prepare" in refused("suggest", "a.csv", "--prepare", "magic")
