"""``eigenpact show``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from eigenpact.estimators.model_files import load_model


@pytest.fixture
def model(run) -> Path:
    assert run("fit", "north.csv", "south.csv", "-k", 2, "-o", "model", "--solver", "krylov").exit_code == 0
    return Path("model")


def test_tells_what_the_model_is(run, model):
    pca, result = load_model(model), run("show", model)
    assert result.exit_code == 0
    for expected in ("2: north, south", "50 of 5 features, named", "krylov", "yes: " + pca.stop_reason_, "scatter_action"):
        assert expected in result.stdout
    shares = [line.split()[2] for line in result.stdout.splitlines() if line.strip().startswith("PC")]
    assert shares == [f"{100 * share:.2f}" for share in pca.explained_variance_ratio_]


def test_ledger_accounts_for_every_byte(run, model):
    pca = load_model(model)
    out = run("show", model, "--ledger").stdout
    assert f"Ledger: {len(pca.ledger_)} messages" in out
    up = down = 0
    for line in out.splitlines():
        if "2 sites" in line and "coordinator" in line:
            size = int([word for word in line.split() if word.isdecimal()][-1])
            up, down = (up, down + 2 * size) if line.index("coordinator") < line.index("2 sites") else (up + 2 * size, down)
    assert (up, down) == (pca.ledger_.bytes_up, pca.ledger_.bytes_down)


@pytest.mark.parametrize(("name", "magic"), [("p.png", b"\x89PNG"), ("p.pdf", b"%PDF"), ("p.svg", b"<?xml")])
def test_picture(run, model, name, magic):
    result = run("show", model, "--picture", name)
    assert result.exit_code == 0, result.output
    assert f"The picture is in {name}" in result.stdout
    assert Path(name).read_bytes().startswith(magic)


def test_existing_picture(run, refused, model):
    Path("p.png").write_text("precious")
    assert "p.png exists already" in refused("show", model, "--picture", "p.png")
    assert run("show", model, "--picture", "p.png", "--overwrite").exit_code == 0
    assert Path("p.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("picture", "told"),
    [("p.bmp", "must end in one of .png, .pdf, .svg"), ("no/p.png", "does not exist"), ("folder.png", "is a folder")],
)
def test_bad_picture(refused, model, picture, told):
    Path("folder.png").mkdir()
    assert told in refused("show", model, "--picture", picture)


def test_bad_model(refused, model):
    assert "nowhere does not exist" in refused("show", "nowhere")
    (model / "manifest.json").write_text("{")
    assert "manifest.json is damaged" in refused("show", model)
    (model / "manifest.json").unlink()
    assert "it has no manifest.json" in refused("show", model, "--picture", "p.png")


def edit(model, **changes):
    facts = json.loads((model / "manifest.json").read_text())
    (model / "manifest.json").write_text(json.dumps(facts | changes))


@pytest.mark.parametrize("more", [[], ["--ledger"], ["--picture", "p.svg"]], ids=str)
def test_names_and_reasons_steer_no_terminal_and_are_no_markup(run, model, more):
    ledger = json.loads((model / "manifest.json").read_text())["ledger"]
    evil = "\x1b]0;pwned\x07\x1b[2J\u202e[/red] [link=file:///etc/passwd]x[/link] :smile: [bold"
    for row in ledger:
        row[3], row[9] = f"\x1b[31m{row[3]}[/]", f"{row[9]}\r\n[bold]"
    names = ["$\\frac{", "[/]", "\x1b[2J", "a\x00b", "[red]"]
    edit(model, stop_reason=evil, sites=["a\x1b[31m", "[/]\r\n"], ledger=ledger, feature_names=names)
    result = run("show", model, *more)
    assert result.exit_code == 0, result.output
    shown = "".join(result.stdout.split())
    assert not set("\x1b\x07\r\u202e") & set(result.stdout)
    assert r"\x1b]0;pwned\x07\x1b[2J\u202e[/red][link=file:///etc/passwd]x[/link]:smile:[bold" in shown
    assert r"a\x1b[31m,[/]\r\n" in shown


def test_errors_steer_no_terminal(refused, model):
    edit(model, n_samples="\x1b]0;pwned\x07[/red]")
    told = refused("show", model)
    assert r"\x1b]0;pwned\x07[/red]" in told
    assert not set("\x1b\x07") & set(told)


def test_a_pipe_is_not_waited_for(refused, model):
    (model / "manifest.json").unlink()
    os.mkfifo(model / "manifest.json")
    assert "manifest.json is a pipe, not a file" in refused("show", model)
