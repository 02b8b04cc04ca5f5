"""Models whose rows were prepared, as folders."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.errors import FileError, InputError
from eigenpact.estimators.model_files import load_model, save_model
from eigenpact.estimators.remembered import Remembered
from eigenpact.numerics.preparation import Step

X = np.random.default_rng(0).normal(size=(60, 6)) * [5, 4, 3, 2, 1, 1]
VALUES = "preparation/0/fill/values"


def prepared() -> ep.FederatedPCA:
    """A fitted model with a step in front, as preparers leave it."""
    pca = ep.FederatedPCA(2, random_state=0).fit({"A": X[:25], "B": X[25:]})
    pca.preparation_ = (Step("fill", {"values": np.linspace(-1.0, 1.0, 6)}),)
    pca.prepare = (Remembered("Fill()"),)
    return pca


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_model(prepared(), tmp_path / "model")
    return tmp_path / "model"


def rewrite(model: Path, change: Any = None, **arrays: Any) -> None:
    """Change the manifest by a function, and arrays, None to leave one out, with a checksum that fits."""
    facts = json.loads((model / "manifest.json").read_text())
    if arrays:
        with np.load(model / "arrays.npz") as archive:
            kept = {name: archive[name] for name in archive.files} | arrays
        np.savez(model / "arrays.npz", **{name: array for name, array in kept.items() if array is not None})
        facts["sha256"] = hashlib.sha256((model / "arrays.npz").read_bytes()).hexdigest()
    if change is not None:
        change(facts)
    (model / "manifest.json").write_text(json.dumps(facts))


def test_the_steps_come_back_and_the_manifest_lists_them(model: Path):
    facts = json.loads((model / "manifest.json").read_text())
    assert facts["format_version"] == 2
    assert facts["preparation"] == [{"kind": "fill", "arrays": {"values": {"dtype": "float64", "shape": [6]}}}]
    back = load_model(model)
    assert [step.kind for step in back.preparation_] == ["fill"]
    assert back.preparation_[0].arrays["values"].tobytes() == np.linspace(-1.0, 1.0, 6).tobytes()


def test_a_model_without_steps_is_read_by_older_versions(tmp_path: Path):
    pca = prepared()
    pca.preparation_, pca.prepare = (), ()
    save_model(pca, tmp_path / "model")
    facts = json.loads((tmp_path / "model" / "manifest.json").read_text())
    assert facts["format_version"] == 1
    assert "preparation" not in facts
    assert load_model(tmp_path / "model").preparation_ == ()


def test_a_new_process_gives_the_same_bits(model: Path):
    np.save(model.parent / "rows.npy", X)
    code = (
        "import sys, numpy as np, eigenpact as ep\n"
        "pca = ep.load_model(sys.argv[1])\n"
        "np.save(sys.argv[3], np.concatenate([pca.transform(np.load(sys.argv[2])), pca.transform(np.load(sys.argv[2]) ** 2)]))"
    )
    paths = [str(model), str(model.parent / "rows.npy"), str(model.parent / "scores.npy")]
    subprocess.run([sys.executable, "-c", code, *paths], check=True, timeout=120)
    pca = prepared()
    here = np.concatenate([pca.transform(X), pca.transform(X**2)])
    assert np.load(model.parent / "scores.npy").tobytes() == here.tobytes()


def test_it_cannot_be_fitted_again_without_being_told_how(model: Path):
    with pytest.raises(InputError, match=r"does not hold how sites agree on Fill\(\).*give prepare= anew"):
        load_model(model).fit(X)
    assert load_model(model).set_params(prepare=()).fit(X).preparation_ == ()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda facts: facts.update(preparation="fill"), "'preparation' is 'fill'"),
        (lambda facts: facts.update(preparation=[{"kind": "fill"}]), "'arrays' is missing"),
        (lambda facts: facts.update(preparation=[{"kind": 3, "arrays": {}}]), "'kind' is 3"),
        (lambda facts: facts["preparation"][0].update(kind="run me"), "step 0 of the preparation is 'run me'; known are fill"),
        (lambda facts: facts["preparation"][0].update(arrays={}), "other arrays than 'fill' needs: values"),
        (lambda facts: facts["preparation"][0]["arrays"]["values"].pop("dtype"), "'dtype' is missing"),
        (lambda facts: facts["parameters"].update(prepare=[1]), "of the parameters, 'prepare' is a list"),
        (lambda facts: facts["parameters"].update(min_nonzero="few"), "of the parameters, 'min_nonzero' is 'few'"),
        (lambda facts: facts.update(format_version=1), "which version 1 does not have"),
    ],
    ids=range(9),
)
def test_damaged_lists_of_steps(model: Path, change: Any, told: str):
    rewrite(model, change)
    with pytest.raises(FileError, match=rf"manifest\.json is damaged .*{told}"):
        load_model(model)


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (None, f"lacks the arrays {VALUES}"),
        (np.full(6, np.nan), "holds NaN or infinity"),
        (np.ones(5), r"is float64 of shape \(5,\); the manifest says"),
        (np.ones(6, dtype=np.float32), "is float32"),
        (np.array(["a"] * 6), "only numbers are allowed"),
        (np.array([print] * 6, dtype=object), r"is not a \.npz file of numbers"),
    ],
    ids=range(6),
)
def test_damaged_arrays_of_steps(model: Path, array: Any, told: str):
    rewrite(model, **{VALUES: array})
    with pytest.raises(FileError, match=told):
        load_model(model)


def test_steps_for_other_features_are_refused(model: Path):
    rewrite(model, lambda facts: facts["preparation"][0]["arrays"]["values"].update(shape=[5]), **{VALUES: np.ones(5)})
    with pytest.raises(FileError, match=r"has shape \(5,\) for 6 features"):
        load_model(model)


def test_arrays_of_steps_that_no_manifest_lists_are_refused(model: Path):
    rewrite(model, lambda facts: facts.update(preparation=[]))
    with pytest.raises(FileError, match=f"holds '{VALUES}' too"):
        load_model(model)
