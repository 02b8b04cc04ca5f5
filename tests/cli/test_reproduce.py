"""``eigenpact reproduce``: names, sizes, folders, files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from eigenpact import reproduce as papers
from eigenpact.errors import FileError
from eigenpact.report import pictures
from eigenpact.reproduce import REPRODUCTIONS, Grid, Reproduced, Reproduction, Size

KERNEL = [f"kernel-fig{i}" for i in (3, 4, 5)]
FAPS = [f"faps-{what}{i}" for what in ("table", "fig") for i in (1, 2, 3, 4)]
PERSONALIZED = [f"personalized-table{i}" for i in range(2, 8)] + [f"personalized-fig{i}" for i in (1, *range(3, 12))]
ROBUST = ["robust-table1", *(f"robust-fig{i}" for i in (1, 2, 3, 4))]
NAMES = [*FAPS, "oneshot-fig1", "oneshot-table1", *PERSONALIZED, *ROBUST, *KERNEL]


@pytest.fixture
def quick(monkeypatch):
    """A reproduction that takes no time; the list gets what it was asked for."""
    asked = []

    def make(size, seed, watch, **options):
        asked.append((size, seed, *options.values()))
        watch.on_round("SSI: round 1")
        watch.on_run("SSI: done")
        grid = Grid("Table 0", ["solver", "rounds", "paper's\nrounds", "KKT"], [["SSI", 12, None, 1.5e-6]])
        return Reproduced("Table 0", [grid], ["A remark [with brackets]."], Figure(), {"runs": [{"name": "SSI", "rounds": 12}]})

    options = {"distribution": ("normal", "uniform")}
    monkeypatch.setitem(papers.REPRODUCTIONS, "quick", Reproduction("quick", "for tests", make, options))
    return asked


def test_all_of_the_papers_can_be_asked_for():
    assert sorted(REPRODUCTIONS) == sorted(NAMES)


def test_an_unknown_name_lists_the_choices(refused):
    told = refused("reproduce", "faps-table9")
    assert "unknown table or figure 'faps-table9'; choose one of " in told
    assert all(name in told for name in NAMES)


def test_help_lists_the_choices(run):
    told = "".join(run("reproduce", "--help").output.split())
    assert all(name in told for name in NAMES)


def test_a_size_that_does_not_exist(run, snapshot):
    before = snapshot()
    result = run("reproduce", "faps-table4", "--size", "huge")
    assert result.exit_code == 2
    assert "'huge' is not one of 'small', 'paper'" in result.stderr
    assert snapshot() == before


def test_table_figure_and_numbers(run, quick):
    result = run("reproduce", "quick", "--size", "paper", "-o", "new/folder", "--seed", 7, "--json", "numbers.json")
    assert result.exit_code == 0, result.output
    assert quick == [(Size.paper, 7)]
    assert ["SSI", "12", "-", "1.50e-06"] in [line.split() for line in result.stdout.splitlines()]
    assert "A remark [with brackets]." in result.stdout
    assert "The figure is in new/folder/quick-paper.png" in result.stdout
    assert "SSI: done" in result.stderr
    assert Path("new/folder/quick-paper.png").read_bytes().startswith(b"\x89PNG")
    told = json.loads(Path("numbers.json").read_text())
    assert (told["name"], told["size"], told["seed"]) == ("quick", "paper", 7)
    assert told["tables"][0]["rows"] == [["SSI", 12, None, 1.5e-6]]
    assert told["runs"] == [{"name": "SSI", "rounds": 12}]


def test_an_option_that_some_have(run, refused, quick):
    result = run("reproduce", "quick", "--distribution", "uniform", "--json", "numbers.json")
    assert result.exit_code == 0, result.output
    assert quick == [(Size.small, 0, "uniform")]
    assert "The figure is in eigenpact-reproduce/quick-uniform-small.png" in result.stdout
    assert json.loads(Path("numbers.json").read_text())["distribution"] == "uniform"
    told = refused("reproduce", "quick", "--distribution", "cauchy")
    assert "--distribution 'cauchy' is not known to quick; choose one of normal, uniform" in told
    assert len(quick) == 1


def test_an_option_that_others_have(refused):
    told = refused("reproduce", "faps-table4", "--distribution", "normal")
    assert "faps-table4 has no --distribution; leave it out, or choose oneshot-fig1, which has one" in told


def test_quiet(run, quick):
    assert run("reproduce", "quick", "--quiet").stderr == ""
    assert quick == [(Size.small, 0)]


def test_its_own_folder_is_written_again_and_no_other(run, refused, quick):
    own = Path("eigenpact-reproduce/quick-small.png")
    assert run("reproduce", "quick").exit_code == 0
    own.write_bytes(b"old")
    assert run("reproduce", "quick").exit_code == 0
    assert own.read_bytes().startswith(b"\x89PNG")
    Path("mine").mkdir()
    Path("mine/quick-small.png").write_text("precious")
    Path("mine.json").write_text("precious")
    assert "mine/quick-small.png exists already" in refused("reproduce", "quick", "-o", "mine")
    assert "mine.json exists already; choose another name, or overwrite it (--overwrite)" in refused(
        "reproduce", "quick", "--json", "mine.json"
    )
    assert run("reproduce", "quick", "-o", "mine", "--json", "mine.json", "--overwrite").exit_code == 0
    assert Path("mine/quick-small.png").read_bytes().startswith(b"\x89PNG")
    assert len(quick) == 3


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("-o", "north.csv"), "north.csv"),
        (("--json", "numbers.txt"), "numbers.txt must end in .json"),
        (("--json", "no/numbers.json"), "the folder no does not exist"),
    ],
)
@pytest.mark.usefixtures("quick")
def test_refused(refused, arguments, told):
    assert told in refused("reproduce", "quick", "--quiet", *arguments)


@pytest.mark.usefixtures("quick")
def test_a_json_folder(refused):
    Path("numbers.json").mkdir()
    assert "numbers.json is a folder" in refused("reproduce", "quick", "--json", "numbers.json")


@pytest.mark.usefixtures("quick")
def test_a_full_disk_does_not_lose_the_table(run, monkeypatch):
    def fail(_, path):
        raise FileError(f"{path} cannot be written: No space left on device; choose another name")

    monkeypatch.setattr(pictures, "save_picture", fail)
    result = run("reproduce", "quick")
    assert result.exit_code == 2
    assert "1.50e-06" in result.stdout
    assert result.stderr.endswith("No space left on device; choose another name\n")


@pytest.mark.usefixtures("quick")
def test_a_json_file_that_cannot_be_written(run, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pictures, "save_picture", lambda *_: None)
    monkeypatch.setattr(os, "replace", fail)
    result = run("reproduce", "quick", "--json", "numbers.json")
    assert result.exit_code == 2
    assert "error: numbers.json cannot be written: No space left on device; choose another name" in result.stderr
    assert not Path("numbers.json").exists()
    assert not [path for path in Path().iterdir() if path.name.startswith(".numbers")]
