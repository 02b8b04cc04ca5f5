"""``eigenpact export``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import skops.io

from eigenpact.estimators.model_files import load_model


@pytest.fixture
def model(run) -> Path:
    assert run("fit", "north.csv", "south.csv", "west.npy", "-k", 2, "--scale", "pooled", "-o", "model").exit_code == 0
    return Path("model")


@pytest.fixture
def expected(model, sites) -> np.ndarray:
    pca = load_model(model)
    return ((sites["west"] - pca.mean_) / pca.scale_) @ pca.components_.T


def test_onnx(run, model, sites, expected):
    assert run("export", model, "--to", "onnx", "-o", "model.onnx").stdout == "Wrote model.onnx\n"
    session = onnxruntime.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
    (scores,) = session.run(None, {"rows": sites["west"].astype(np.float32)})
    assert np.abs(scores - expected).max() <= 1e-6 * np.abs(expected).max()


def test_skops(run, model, sites, expected):
    assert run("export", model, "--to", "skops", "-o", "model.skops").exit_code == 0
    other = skops.io.load("model.skops")
    delattr(other[0], "feature_names_in_")  # else scikit-learn warns of rows without names
    np.testing.assert_allclose(other.transform(sites["west"]), expected, atol=1e-10)


def test_json_is_a_model_for_all_commands(run, model):
    assert run("export", model, "--to", "json", "-o", "model.json").exit_code == 0
    assert run("transform", "model.json", "west.npy", "-o", "a.npy").exit_code == 0
    assert run("transform", "model", "west.npy", "-o", "b.npy").exit_code == 0
    assert Path("a.npy").read_bytes() == Path("b.npy").read_bytes()
    assert run("show", "model.json").stdout == run("show", "model").stdout


def test_card(run, refused, model):
    result = run("export", model, "--to", "card", "-o", "card.md", "--use", "Members of the study.", "--title", "Three towns")
    assert result.exit_code == 0
    assert Path("card.md").read_text().startswith("# Three towns\n\n## Who may use it\n\nMembers of the study.\n")
    assert "--use and --title are for cards" in refused("export", model, "--to", "json", "-o", "m.json", "--use", "all")


@pytest.mark.parametrize(
    ("to", "output", "told"),
    [
        ("onnx", "model.txt", "must end in .onnx"),
        ("card", "north.csv", "must end in .md"),
        ("json", "model", "must end in .json"),
    ],
)
def test_bad_outputs(refused, model, to, output, told):
    assert told in refused("export", model, "--to", to, "-o", output)


def test_bad_models(refused):
    assert "nowhere does not exist" in refused("export", "nowhere", "--to", "json", "-o", "m.json")


def test_help_names_the_extra(run):
    assert "'eigenpact[export]'" in run("export", "--help").stdout
