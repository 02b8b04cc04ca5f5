"""``eigenpact compare``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from eigenpact.errors import FileError
from eigenpact.estimators.choices import joint_solvers
from eigenpact.report import pictures
from eigenpact.report.comparison import candidates

FILES = ("north.csv", "south.csv", "west.npy")


def table(out: str) -> dict[str, list[str]]:
    """Solver -> cells of its row in the first table."""
    above = out.partition("\n\n")[0]
    return {cells[0]: cells[1:] for line in above.splitlines() if len(cells := line.strip().split("  ")) > 2 and cells[1:]}


def cells(line: list[str]) -> list[str]:
    return [cell.strip() for cell in line if cell.strip()]


def test_every_solver_has_a_row(run, snapshot):
    before = snapshot()
    result = run("compare", *FILES, "-k", 2)
    assert result.exit_code == 0, result.output
    assert "Joint PCA of 3 sites, 62 rows of 5 features, 2 components" in result.stdout
    rows = table(result.stdout)
    assert set(candidates("north")) | {"all rows sent"} <= set(rows)
    rounds, up, down, _, sine, kkt, outcome = cells(rows["gram"])
    assert (rounds, up, outcome) == ("1 + 2", "624 B", "converged")  # 3 sites: 15 numbers, and 8 + 3 of set-up
    assert down == "384 B"  # the mean, the mean again and the scale
    assert float(sine) < 1e-12
    assert float(kkt) < 1e-14
    assert cells(rows["all rows sent"])[1] == "2.5 kB"
    assert set(snapshot()) - set(before) == {"eigenpact-compare.png"}
    assert Path("eigenpact-compare.png").read_bytes().startswith(b"\x89PNG")
    assert "The picture is in eigenpact-compare.png" in result.stdout


def test_it_says_what_the_truth_is_and_what_was_revealed(run):
    out = " ".join(run("compare", *FILES, "-k", 2, "--solver", "krylov", "--proxy", "south").stdout.split())
    assert "Truth: singular value decomposition of all 62 rows (scipy, float64)" in out
    assert "The coordinator's own site is taken to be south." in out
    assert "1 x leading_directions V: 5 x 2 each reply 80 B" in out
    assert "1 x scatter_action G: 5 x 5" in out  # blocks of k + 4 columns, but no more than features
    assert "set-up, all solvers 1 x count_and_sum sites, singles, n, sums: 3 numbers + 5 the sum 64 B" in out
    assert out.count("1 x spread within, between, grain: 3 numbers the sum 24 B") == 1
    assert "scatter_action: Y_i^T (Y_i Z): summed over sites it is C Z." in out
    assert "Sums are not secured" in out


def test_narrow_terminals_see_every_column(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("compare", *FILES, "-k", 2).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    gram = next(line for line in lines if line.startswith("gram "))
    assert gram.split()[1:6] == ["1", "+", "2", "624", "B"]
    assert gram.split()[-1] == "converged"
    assert any(line.startswith("krylov, own ") for line in lines)
    directions = next(line for line in lines if "1 x leading_directions" in line)
    assert directions.split()[-2:] == ["80", "B"]


def test_help_says_that_it_is_a_rehearsal(run):
    result = run("compare", "--help")
    assert "ALL FILES ARE READ ON THIS ONE MACHINE" in result.stdout
    assert "Example: eigenpact compare" in result.stdout


def test_a_line_for_every_solver_while_it_runs(run):
    lines = run("compare", *FILES, "-k", 2).stderr.splitlines()
    assert [line.partition(":")[0] for line in lines] == list(candidates("north"))
    assert any(line.startswith("gram: converged, rounds 1, KKT ") for line in lines)
    quiet = run("compare", *FILES, "-k", 2, "--quiet")
    assert quiet.stderr == ""
    assert "Joint PCA of" in quiet.stdout


def test_numbers_as_json(run):
    result = run("compare", *FILES, "-k", 2, "--json", "numbers.json", "--seed", 4, "--tol", 1e-6, "--scale", "pooled")
    assert result.exit_code == 0, result.output
    assert "The numbers are in numbers.json" in result.stdout
    told = json.loads(Path("numbers.json").read_text())
    assert told["sites"] == {"north": 30, "south": 20, "west": 12}
    assert told["settings"] == {
        "n_components": 2, "center": "pooled", "scale": "pooled", "tol": 1e-6, "max_rounds": 500, "random_state": 4,
    }  # fmt: skip
    rows = table(result.stdout)
    for solver in told["runs"]:
        if solver["outcome"] == "converged":
            assert cells(rows[solver["name"]])[0] == f"{solver['rounds']} + 2"
            assert len(solver["curve"]) >= 1


def test_components_by_default(run):
    assert "5 components" in run("compare", *FILES, "--solver", "gram").stdout
    np.save("wide.npy", np.random.default_rng(0).normal(size=(30, 20)))
    assert "Joint PCA of 1 site, 30 rows of 20 features, 10 components" in run("compare", "wide.npy", "--solver", "gram").stdout


def test_what_does_not_apply_is_told(run):
    result = run("compare", *FILES, "-k", 0.9)
    assert result.exit_code == 0
    assert cells(table(result.stdout)["subspace"]) == ["-"] * 6 + ["not applicable"]
    assert "subspace: not applicable: -k 0.9 (a share of the variance) needs" in result.stdout


def test_none_converged_is_exit_code_1(run):
    result = run("compare", *FILES, "-k", 2, "--solver", "subspace", "--max-rounds", 1)
    assert result.exit_code == 1
    assert "subspace: not converged: --max-rounds 1 reached" in result.stdout
    assert set(table(result.stdout)) & {*joint_solvers()} == {"subspace"}


def test_nothing_ran(run, snapshot):
    before = snapshot()
    result = run("compare", *FILES, "-k", 0.9, "--solver", "subspace")
    assert result.exit_code == 1
    assert "subspace: not applicable" in result.stdout
    assert "What each site revealed" not in result.stdout
    assert snapshot() == before


def test_angles_that_mean_nothing(run):
    np.save("square.npy", np.concatenate([np.eye(3), -np.eye(3)]))
    result = run("compare", "square.npy", "-k", 2)
    assert result.exit_code == 0, result.output
    assert "angles mean nothing here" in " ".join(result.stdout.split())


def test_its_own_picture_is_drawn_again_and_no_other(run, refused):
    assert run("compare", *FILES, "--solver", "gram").exit_code == 0
    Path("eigenpact-compare.png").write_bytes(b"old")
    assert run("compare", *FILES, "--solver", "gram").exit_code == 0
    assert Path("eigenpact-compare.png").read_bytes().startswith(b"\x89PNG")
    Path("mine.png").write_text("precious")
    Path("mine.json").write_text("precious")
    assert "mine.png exists already" in refused("compare", *FILES, "--picture", "mine.png")
    assert "mine.json exists already; choose another name, or overwrite it (--overwrite)" in refused(
        "compare", *FILES, "--json", "mine.json"
    )
    options = ("--picture", "mine.png", "--json", "mine.json", "--overwrite", "--solver", "gram")
    assert run("compare", *FILES, *options).exit_code == 0
    assert Path("mine.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(Path("mine.json").read_text())["n_features"] == 5


def test_a_full_disk_does_not_lose_the_table(run, monkeypatch):
    def fail(_, path):
        raise FileError(f"{path} cannot be written: No space left on device; choose another name")

    monkeypatch.setattr(pictures, "save_picture", fail)
    result = run("compare", *FILES, "-k", 2, "--solver", "gram")
    assert result.exit_code == 2
    assert "converged" in cells(table(result.stdout)["gram"])
    assert result.stderr.endswith(
        "error: eigenpact-compare.png cannot be written: No space left on device; choose another name\n"
    )


def test_a_json_file_that_cannot_be_written(run, monkeypatch, snapshot):
    def fail(*_):
        raise OSError(28, "No space left on device")

    before = snapshot()
    monkeypatch.setattr(os, "replace", fail)
    result = run("compare", *FILES, "-k", 2, "--solver", "gram", "--json", "numbers.json")
    assert result.exit_code == 2
    assert "error: numbers.json cannot be written: No space left on device; choose another name" in result.stderr
    assert snapshot() == before


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("missing.csv",), "missing.csv does not exist"),
        (("north.csv", "north.csv"), "two sites are named 'north'"),
        ((*FILES, "-k", 6), "-k 6 must be between 1 and 5"),
        ((*FILES, "-k", "many"), "-k many is not allowed"),
        ((*FILES, "--solver", "magic"), "unknown solver 'magic'; the solvers to compare are faps"),
        ((*FILES, "--solver", "auto"), "unknown solver 'auto'"),
        ((*FILES, "--proxy", "east"), "--proxy east is not a site; allowed are north, south, west"),
        ((*FILES, "--tol", -1), "--tol -1.0 must be"),
        ((*FILES, "--max-rounds", 0), "--max-rounds 0 must be"),
        ((*FILES, "--picture", "p.gif"), "p.gif must end in one of .png, .pdf, .svg"),
        ((*FILES, "--json", "numbers.txt"), "numbers.txt must end in .json"),
        ((*FILES, "--json", "no/numbers.json"), "the folder no does not exist"),
    ],
)
def test_refused(refused, arguments, told):
    assert told in refused("compare", "--quiet", *arguments)


def test_a_json_folder(refused):
    Path("numbers.json").mkdir()
    assert "numbers.json is a folder" in refused("compare", *FILES, "--json", "numbers.json")


def test_it_says_what_single_replies_tell(run):
    """One line a solver, about the last site, in the table and in the JSON file."""
    out = run("compare", *FILES, "-k", 2, "--solver", "gram", "--solver", "one-shot", "--json", "numbers.json").stdout
    assert "Relative error of west's scatter C_i" in " ".join(out.split())
    told = {one["name"]: one["single_replies"] for one in json.loads(Path("numbers.json").read_text())["runs"]}
    error, _, after = told["gram"].partition(" ")
    assert float(error) <= 1e-12
    assert after == "in the end, 1e-06 after 1 round"
    assert all(words in out for words in told.values())


def test_many_features_are_not_attacked_in_passing(run):
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        np.save(f"{name}.npy", rng.normal(size=(20, 130)))
    assert "not attacked: more than 128 features" in run("compare", "a.npy", "b.npy", "-k", 2, "--solver", "gram").stdout
