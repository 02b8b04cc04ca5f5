"""Models as one JSON file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import eigenpact as ep
from eigenpact.errors import FileError
from eigenpact.numerics.preparation import Step

X = np.random.default_rng(0).normal(size=(40, 5)) * [5, 4, 3, 2, 1]


def fitted(dtype: Any = np.float64) -> ep.FederatedPCA:
    names = list("abcde")
    sites = {"A": pd.DataFrame(X[:15].astype(dtype), columns=names), "B": pd.DataFrame(X[15:].astype(dtype), columns=names)}
    pca = ep.FederatedPCA(2, random_state=0, scale="pooled").fit(sites)
    pca.preparation_ = (Step("fill", {"values": np.linspace(0, 1, 5)}),)
    return pca


@pytest.fixture
def file(tmp_path: Path) -> Path:
    ep.export.to_json(fitted(), tmp_path / "model.json")
    return tmp_path / "model.json"


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_round_trip_to_the_bit(tmp_path: Path, dtype: Any):
    pca = fitted(dtype)
    ep.export.to_json(pca, tmp_path / "model.json")
    for back in (ep.load_model(tmp_path / "model.json"), ep.imports.from_json(tmp_path / "model.json")):
        for name in ("components_", "mean_", "scale_", "explained_variance_", "singular_values_"):
            old, new = getattr(pca, name), getattr(back, name)
            assert (old.dtype, old.shape, old.tobytes()) == (new.dtype, new.shape, new.tobytes()), name
        assert (back.ledger_, back.sites_, back.noise_variance_) == (pca.ledger_, pca.sites_, pca.noise_variance_)
        assert back.preparation_[0].arrays["values"].tobytes() == pca.preparation_[0].arrays["values"].tobytes()
        rows = pd.DataFrame(X.astype(dtype), columns=list("abcde"))
        assert back.transform(rows).tobytes() == pca.transform(rows).tobytes()


def test_a_model_of_missing_entries_travels_to_the_bit(tmp_path: Path):
    """Its step holds matrices that lie column by column; projection and folder are tried beside."""
    gaps = np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X)
    pca = ep.FederatedPCA(2, missing="em", random_state=0).fit({"A": gaps[:20], "B": gaps[20:]})
    ep.export.to_json(pca, tmp_path / "model.json")
    ep.save_model(pca, tmp_path / "model")
    for back in (ep.load_model(tmp_path / "model.json"), ep.load_model(tmp_path / "model")):
        assert back.missing == "em"
        assert back.transform(gaps).tobytes() == pca.transform(gaps).tobytes()
        assert back.project(gaps).scores.tobytes() == pca.project(gaps).scores.tobytes()


def test_it_can_be_used_without_eigenpact(file: Path):
    """As docs/reference/model-files.md says."""
    model = json.loads(file.read_text())
    arrays = {name: np.array(a["values"], a["dtype"]).reshape(a["shape"]) for name, a in model["arrays"].items()}
    scores = ((X - arrays["mean"]) / arrays["scale"]) @ arrays["components"].T
    assert np.allclose(scores, fitted().transform(pd.DataFrame(X, columns=list("abcde"))))
    assert model["preparation"][0]["kind"] == "fill"
    assert model["feature_names"] == list("abcde")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda m: m.update(format="other"), "is not a model written by eigenpact export"),
        (lambda m: m.update(format_version=9), "up to 2 are read here: upgrade"),
        (lambda m: m.update(format_version="1"), "is damaged .*format_version is '1'"),
        (lambda m: m.pop("sites"), "is damaged .*'sites' is missing"),
        (lambda m: m["arrays"].pop("mean"), "'arrays' must be components"),
        (lambda m: m.update(arrays=3), "'arrays' must be components"),
        (lambda m: m["arrays"]["mean"].update(values=[1.0]), "'mean' has 1 values for shape"),
        (lambda m: m["arrays"]["mean"].update(values=["x"] * 5), "array 'mean' is none"),
        (lambda m: m["arrays"]["mean"].update(dtype="object"), "array 'mean' is none"),
        (lambda m: m["arrays"]["mean"].update(shape=[-5]), "array 'mean' is none"),
        (lambda m: m["arrays"]["scale"].update(values=[0.0] * 5), "not positive"),
        (lambda m: m["arrays"]["components"].update(values=[1.0] * 10), "not orthonormal"),
        (lambda m: m["preparation"][0].update(kind="other"), "step 0 of the preparation is 'other'"),
        (lambda m: m["preparation"][0]["arrays"]["values"].update(shape=[4], values=[0.0] * 4), "for 5 features"),
        (lambda m: m["preparation"][0]["arrays"]["values"].pop("values"), "'values' is missing"),
        (lambda m: m.update(feature_names=["a"]), "1 feature names for 5 features"),
    ],
    ids=range(16),
)
def test_damaged_files_are_refused(file: Path, change: Any, told: str):
    model = json.loads(file.read_text())
    change(model)
    file.write_text(json.dumps(model))
    with pytest.raises(FileError, match=told):
        ep.load_model(file)


def test_what_is_no_json(file: Path):
    file.write_text("{")
    with pytest.raises(FileError, match=r"cannot be read .*give a file written by eigenpact export --to json"):
        ep.load_model(file)
    with pytest.raises(FileError, match=r"cannot be read .*give a file written by"):
        ep.imports.from_json(file.parent / "nowhere.json")


def test_an_existing_file_stays(file: Path):
    with pytest.raises(FileError, match="exists already"):
        ep.export.to_json(fitted(), file)
