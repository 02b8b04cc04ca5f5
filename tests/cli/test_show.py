"""``eigenpact show``."""

from __future__ import annotations

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
