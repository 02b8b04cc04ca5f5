"""``eigenpact audit``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

FILES = ("north.csv", "south.csv", "west.npy")
MADE_UP = ("audit", "--rows", "30,25,20", "--features", "8", "-k", "2")


def joined(text: str) -> str:
    return " ".join(text.split())


def test_made_up_rows_are_attacked(run, snapshot):
    before = snapshot()
    result = run(*MADE_UP, "--solver", "krylov", "--json", "told.json")
    assert result.exit_code == 0, result.output
    assert "by krylov tell about 3 sites with 8 features" in result.stdout
    assert "Rows were made up" in result.stdout
    assert set(snapshot()) - set(before) == {"eigenpact-audit.png", "told.json"}
    assert Path("eigenpact-audit.png").read_bytes().startswith(b"\x89PNG")
    told = json.loads(Path("told.json").read_text())
    found = {(one["site"], one["attack"]): one for one in told["findings"]}
    assert found["site0", "products, symmetric"]["error"] <= 1e-8
    assert found["site2", "lost site"]["error"] <= 1e-8
    assert found["site2", "one row more"]["error"] <= 1e-10
    assert "site0, products, symmetric: From all its replies C_i was computed" in joined(result.stdout)
    for one in told["findings"]:
        assert one["sentence"] in joined(result.stdout).replace("  ", " ") or one["sentence"].replace("  ", " ") in joined(
            result.stdout
        )


def test_files_lend_their_shapes_and_only_if_asked_their_rows(run, sites):
    """With --real-rows one more row is a row of the file; without, no number depends on what the files hold."""
    told = [run("audit", *FILES, "-k", 2, "--solver", "gram", "--json", name).stdout for name in ("a.json",)]
    np.save("west.npy", 7 * sites["west"] + 1)
    told.append(run("audit", *FILES, "-k", 2, "--solver", "gram", "--json", "b.json").stdout)
    assert told[0].replace("a.json", "") == told[1].replace("b.json", "")
    assert "Rows of the files' shapes were made up" in joined(told[0])
    real = [run("audit", *FILES, "-k", 2, "--solver", "gram", "--real-rows").stdout]
    np.save("west.npy", sites["west"])
    real.append(run("audit", *FILES, "-k", 2, "--solver", "gram", "--real-rows").stdout)
    assert "Attacked was a run on the rows of the files." in joined(real[0])
    assert real[0] != real[1]


def test_a_model_is_counted(run):
    run("fit", *FILES, "-k", 2, "-o", "model", "--solver", "krylov", "--quiet")
    result = run("audit", "--model", "model")
    assert result.exit_code == 0, result.output
    assert "north could be computed" in joined(result.stdout).replace("set-up row count and mean ", "")
    assert "Counted in the ledger of a run; nothing was attacked." in result.stdout
    assert not Path("eigenpact-audit.png").exists()


def test_secured_replies(run):
    out = joined(run(*MADE_UP, "--solver", "krylov", "--secure").stdout)
    assert "Replies were masked." in out
    assert "the aggregate only could be read" in out
    assert "lost site row count, mean and C_i computed" in out


def test_nothing_sounds_safe(run):
    out = joined(run("audit", "--help").stdout + run(*MADE_UP, "--solver", "gram").stdout).lower()
    assert not {"safe", "private", "anonymous"} & set(out.replace(".", " ").replace(",", " ").split())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "give files, or --rows with --features, or --model: exactly one"),
        (("--rows", "3,4"), "--rows and --features go together"),
        (("--rows", "3,x", "--features", "2"), "--rows 'x' is no number of rows"),
        (("--rows", "3,4", "--features", "2", "--real-rows"), "--real-rows needs files"),
        (("north.csv", "--model", "m"), "exactly one"),
        (("north.csv", "--solver", "best"), "unknown solver 'best'; allowed are auto, "),
        (("north.csv", "--picture", "x.txt"), "x.txt"),
    ],
)
def test_what_does_not_go_together(refused, words, told):
    assert told in refused("audit", *words)
