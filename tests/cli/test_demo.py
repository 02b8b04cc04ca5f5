"""``eigenpact demo``."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from eigenpact.report.comparison import candidates


def sines(out: str) -> dict[str, float]:
    """Solver -> sine of the angle to the pooled answer, from the printed table."""
    rows = [line.replace(" (not converged)", "") for line in out.splitlines() if " + 2 " in line]
    return {row.split("  ")[0].strip(): float(row.split()[-2]) for row in rows}


def test_every_solver_agrees_with_the_pooled_answer(run):
    result = run("demo")
    assert result.exit_code == 0, result.output
    found = sines(result.stdout)
    assert {"auto: gram", *candidates("")} == set(found)
    assert all(found[name] < 1e-10 for name in ("auto: gram", "gram", "krylov", "krylov, own site as proxy"))
    assert found["subspace"] < 1e-5
    assert "scatter_triangle" in result.stdout
    picture = Path("eigenpact-demo/digits.png")
    assert f"The picture is in {picture}" in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def few_solvers(monkeypatch):
    """A demo of some solvers, for what does not depend on them."""
    monkeypatch.setattr("eigenpact.report.comparison.candidates", partial(candidates, solvers=["gram", "krylov"]))


@pytest.mark.usefixtures("few_solvers")
def test_its_own_picture_is_drawn_again(run):
    picture = Path("eigenpact-demo/digits.png")
    picture.parent.mkdir()
    picture.write_bytes(b"old")
    assert run("demo").exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("few_solvers")
def test_other_folders_are_respected(run, refused):
    Path("mine").mkdir()
    Path("mine/digits.png").write_text("precious")
    assert "exists already" in refused("demo", "-o", "mine")
    assert run("demo", "-o", "mine", "--overwrite").exit_code == 0
    assert Path("mine/digits.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("output", ["file", "file/below"])
def test_folder_that_is_a_file(refused, output):
    Path("file").write_text("x")
    assert "cannot be written" in refused("demo", "-o", output)
