"""Models as folders."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import eigenpact as ep
from eigenpact.errors import FileError
from eigenpact.estimators.model_checks import SHAPES
from eigenpact.estimators.model_files import check_model_target, load_model, save_model
from eigenpact.runtime.ledger import RECORD

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 6)) * [5, 4, 3, 2, 1, 1]
SITES = {"A": X[:25], "B": X[25:]}


def fitted(sites: Any = SITES, **options: Any) -> ep.FederatedPCA:
    return ep.FederatedPCA(**{"n_components": 2, "random_state": 0} | options).fit(sites)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_model(fitted(), tmp_path / "model")
    return tmp_path / "model"


def edit(model: Path, **changes: Any) -> None:
    """Change the manifest."""
    facts = json.loads((model / "manifest.json").read_text())
    (model / "manifest.json").write_text(json.dumps(facts | changes))


def replace_arrays(model: Path, **changes: Any) -> None:
    """Change arrays, None to leave one out, with a checksum that fits."""
    with np.load(model / "arrays.npz") as archive:
        arrays = {name: archive[name] for name in archive.files} | changes
    np.savez(model / "arrays.npz", **{name: array for name, array in arrays.items() if array is not None})
    edit(model, sha256=hashlib.sha256((model / "arrays.npz").read_bytes()).hexdigest())


@pytest.mark.parametrize(
    "pca",
    [
        fitted(),
        fitted(n_components=0.8, solver="gram", tol=1e-7),
        fitted(center=False, scale="pooled", solver="subspace", max_rounds=400),
        fitted({name: rows.astype(np.float32) for name, rows in SITES.items()}, center="site", solver="krylov"),
        fitted({name: pd.DataFrame(rows, columns=list("uvwxyz")) for name, rows in SITES.items()}),
        fitted(solver=ep.solvers.Krylov(proxy="B"), n_components=np.int64(3)),
        fitted(n_components=None, random_state=None),
    ],
    ids=["auto", "share", "scaled", "float32", "named", "instance", "all"],
)
def test_round_trip(pca: ep.FederatedPCA, tmp_path: Path):
    save_model(pca, tmp_path / "model")
    back = load_model(tmp_path / "model")
    for name in vars(pca):
        if name.endswith("_") and name not in ("ledger_", "history_"):
            old, new = getattr(pca, name), getattr(back, name)
            if isinstance(old, np.ndarray) and old.dtype.kind == "f":
                assert (new.dtype, new.shape, new.tobytes()) == (old.dtype, old.shape, old.tobytes()), name
            else:
                assert np.array_equal(new, old) if isinstance(old, np.ndarray) else new == old, name
    assert back.ledger_ == pca.ledger_
    assert (back.ledger_.bytes_up, back.ledger_.bytes_down) == (pca.ledger_.bytes_up, pca.ledger_.bytes_down)
    assert back.history_ == pca.history_
    rows = pd.DataFrame(X, columns=list("uvwxyz")) if hasattr(pca, "feature_names_in_") else X.astype(pca.components_.dtype)
    assert np.asarray(back.transform(rows)).tobytes() == np.asarray(pca.transform(rows)).tobytes()
    assert back.score(rows) == pca.score(rows) if pca.noise_variance_ else True
    for name in ("n_components", "center", "scale", "tol", "max_rounds", "random_state"):
        assert getattr(back, name) == getattr(pca, name), name


def test_a_loaded_model_can_be_fitted_again(model: Path):
    pca = load_model(model)
    before = pca.components_
    assert pca.fit(SITES).components_.tobytes() == before.tobytes()


def test_the_manifest_tells_a_reader_everything(model: Path):
    save_model(fitted(solver=ep.solvers.Krylov(proxy="A")), model, overwrite=True)
    facts = json.loads((model / "manifest.json").read_text())
    assert (facts["format"], facts["format_version"]) == ("eigenpact model", 1)
    assert facts["eigenpact"] == ep.__version__
    assert facts["sites"] == ["A", "B"]
    assert facts["parameters"]["solver"] == {
        "name": "krylov",
        "start": "random",
        "proxy": "A",
        "max_blocks": None,
        "angle_tol": None,
    }
    assert facts["sha256"] == hashlib.sha256((model / "arrays.npz").read_bytes()).hexdigest()
    assert sorted(os.listdir(model)) == ["arrays.npz", "manifest.json"]


def test_refuses_what_is_not_fitted(tmp_path: Path):
    with pytest.raises(NotFittedError):
        save_model(ep.FederatedPCA(), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_refuses_an_existing_folder(model: Path):
    before = (model / "arrays.npz").read_bytes()
    with pytest.raises(FileError, match=r"model exists already; choose another folder, or overwrite it"):
        save_model(fitted(n_components=3), model)
    assert (model / "arrays.npz").read_bytes() == before
    save_model(fitted(n_components=3), model, overwrite=True)
    assert load_model(model).n_components_ == 3
    assert os.listdir(model.parent) == ["model"]


def test_overwrites_models_only(model: Path, tmp_path: Path):
    (model / "notes.txt").write_text("mine")
    with pytest.raises(FileError, match=r"also notes\.txt"):
        save_model(fitted(), model, overwrite=True)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    save_model(fitted(), foreign, overwrite=True)  # an empty folder
    (foreign / "manifest.json").write_text('{"name": "a browser extension"}')
    with pytest.raises(FileError, match="does not hold a model"):
        save_model(fitted(), foreign, overwrite=True)
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileError, match="file is a file"):
        save_model(fitted(), tmp_path / "file", overwrite=True)


def test_makes_the_folders_above(tmp_path: Path):
    save_model(fitted(), tmp_path / "results/2024/model")
    assert load_model(tmp_path / "results/2024/model").n_components_ == 2
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileError, match="is not a folder you may write to"):
        check_model_target(tmp_path / "file/model")


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_failure_while_writing_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool, call: str):
    place = tmp_path / "model"
    if overwrite:
        save_model(fitted(), place)
    before = {p.name: p.read_bytes() for p in place.iterdir()} if overwrite else {}
    rename = Path.rename

    def fail(*args: Any) -> Any:
        if call == "rename" and not str(args[0]).endswith(".new"):
            return rename(*args)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*((os, "fsync") if call == "fsync" else (Path, "rename")), fail)
    with pytest.raises(FileError, match="No space left on device"):
        save_model(fitted(n_components=3), place, overwrite=overwrite)
    assert os.listdir(tmp_path) == (["model"] if overwrite else [])
    assert ({p.name: p.read_bytes() for p in place.iterdir()} if overwrite else {}) == before


def test_folders_that_are_no_models(tmp_path: Path, model: Path):
    with pytest.raises(FileError, match="nowhere does not exist; give the folder of a model"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(FileError, match=r"is not a model folder: it has no manifest\.json"):
        load_model(tmp_path)
    with pytest.raises(FileError, match=r"is not a model folder: it has no manifest\.json"):
        load_model(model / "arrays.npz")
    for text in ("[]", "{}", '{"format": "other"}'):
        (model / "manifest.json").write_text(text)
        with pytest.raises(FileError, match="is not eigenpact's"):
            load_model(model)
    (model / "manifest.json").write_bytes(b"\xff\x00 not json")
    with pytest.raises(FileError, match="is damaged"):
        load_model(model)


def test_newer_format(model: Path):
    edit(model, format_version=4, eigenpact="9.0")
    with pytest.raises(FileError, match=r"model format 4, written by eigenpact 9\.0.*upgrade eigenpact"):
        load_model(model)


@pytest.mark.parametrize(
    "changes",
    [
        {"format_version": "one"},
        {"format_version": True},
        {"n_samples": "many"},
        {"n_samples": -5},
        {"n_samples": 10**400},
        {"rounds": -1},
        {"setup_rounds": 1.5},
        {"converged": 1},
        {"stop_reason": None},
        {"angle_estimate": -1.0},
        {"angle_estimate": float("nan")},
        {"between_site_share": 1e300},
        {"solver_used": ["krylov"]},
        {"solver_choice": [1, [2]]},
        {"solver_choice": [{"solver": []}]},
        {"sites": "A"},
        {"sites": [1, 2]},
        {"sites": [[1], {}]},
        {"sites": []},
        {"sites": ["A", "A"]},
        {"parameters": {}},
        {"parameters": {"n_components": [1], "center": "pooled", "scale": None, "tol": None, "max_rounds": 9, "solver": "gram"}},
        {"parameters": {"n_components": 1, "center": 0, "scale": None, "tol": None, "max_rounds": 9, "solver": "gram"}},
        {"feature_names": ["a"]},
        {"feature_names": ["p"] * 6},
        {"feature_names": [1, None, [2], {}, 3, 4]},
        {"ledger": [1]},
        {"ledger": [[1, 2]]},
        {"ledger": [[1, 0, 1, "f", None, ["A"], [[2]], ["float64"], 16, ""]]},
        {"ledger": [[1, 0, 1, "f", ["A"], ["B"], [[2]], ["float64"], 1e300, ""]]},
        {"ledger": [[1, 0, 1, "f", ["A"], ["B"], [[2]], ["float64"], -16, ""]]},
        {"ledger": [[1, 0, 1, "f", ["A"], ["B"], [["2"]], ["float64"], 16, ""]]},
        {"ledger": [[1, 0, 1, "f", ["A"] * 30000, ["B"] * 30000, [[2]], ["float64"], 16, ""]]},
        {"history": [{"rounds": 1}]},
        {"history": [3]},
        {"history": [dict.fromkeys(RECORD, 1) | {"details": {}, "seconds": "x"}]},
        {"history": [dict.fromkeys(RECORD, 1) | {"details": {}, "evil": 1}]},
        {"sha256": 3},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_damaged_manifest(model: Path, changes: dict[str, Any]):
    edit(model, **changes)
    with pytest.raises(FileError, match=r"manifest\.json is damaged .*copy the model again or fit it again"):
        load_model(model)


def test_missing_facts(model: Path):
    facts = json.loads((model / "manifest.json").read_text())
    for key in facts.keys() - {"format", "format_version", "eigenpact"}:
        (model / "manifest.json").write_text(json.dumps({k: v for k, v in facts.items() if k != key}))
        with pytest.raises(FileError, match=f"'{key}' is missing"):
            load_model(model)


def test_changed_or_missing_arrays(model: Path):
    content = bytearray((model / "arrays.npz").read_bytes())
    content[-1] ^= 1
    (model / "arrays.npz").write_bytes(content)
    with pytest.raises(FileError, match="was changed since it was written"):
        load_model(model)
    (model / "arrays.npz").unlink()
    with pytest.raises(FileError, match=r"arrays\.npz cannot be read: No such file"):
        load_model(model)


@pytest.mark.parametrize("name", SHAPES)
def test_missing_or_wrong_array(model: Path, name: str):
    replace_arrays(model, **{name: np.zeros((1, 2, 3))})
    with pytest.raises(FileError, match=r"array '.*' is float64 of shape .*expected are floats of shape"):
        load_model(model)
    replace_arrays(model, **{name: None})
    with pytest.raises(FileError, match=f"lacks the arrays {name}"):
        load_model(model)


def test_other_types_are_refused_and_nothing_is_unpickled(model: Path):
    replace_arrays(model, mean=np.zeros(6, dtype=np.int64))
    with pytest.raises(FileError, match=r"array 'mean' is int64"):
        load_model(model)
    replace_arrays(model, mean=np.array([print] * 6, dtype=object))
    with pytest.raises(FileError, match=r"is not a \.npz file of numbers"):
        load_model(model)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"format": ' + "9" * 5000 + "}", "4300 digits"),
        ('{"format": NaN}', "NaN is not a number"),
        ('{"format"', "is not JSON"),
        ("", "is not JSON"),
    ],
)
def test_manifests_that_are_no_json(model: Path, text: str, told: str):
    (model / "manifest.json").write_text(text)
    with pytest.raises(FileError, match=rf"manifest\.json is damaged .*{told}"):
        load_model(model)


def test_a_manifest_of_any_size_is_not_read(model: Path):
    os.truncate(model / "manifest.json", 1 << 40)  # a file with a hole takes no room on disk
    with pytest.raises(FileError, match="has 1099511627776 bytes, and at most 67108864 are read"):
        load_model(model)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("components", np.full((2, 6), np.nan), "holds NaN or infinity"),
        ("components", 1e6 * np.eye(2, 6), "not orthonormal"),
        ("components", np.ones((2, 6)) / np.sqrt(6), "not orthonormal"),
        ("explained_variance", np.array([2.0, -1.0]), "negative"),
        ("explained_variance_ratio", np.array([2.0, 1.0]), "share above 1"),
        ("singular_values", np.array([np.inf, 1.0]), "NaN or infinity"),
        ("scale", np.zeros(6), "not positive"),
        ("scale", np.array([1, 1, 1, 1, 1, -1.0]), "not positive"),
        ("noise_variance", np.array(-1.0), "negative"),
    ],
)
def test_numbers_that_no_fit_gives(model: Path, name: str, value: Any, told: str):
    replace_arrays(model, **{name: value})
    with pytest.raises(FileError, match=rf"arrays\.npz: .*{told}"):
        load_model(model)


def test_arrays_that_no_model_has_are_not_read(model: Path):
    replace_arrays(model, zeros=np.zeros(3))
    with pytest.raises(FileError, match="holds 'zeros' too"):
        load_model(model)
    with np.load(model / "arrays.npz") as archive:
        arrays = {name: archive[name] for name in SHAPES}
    np.savez_compressed(model / "arrays.npz", **arrays | {"mean": np.zeros(10**6)})
    edit(model, sha256=hashlib.sha256((model / "arrays.npz").read_bytes()).hexdigest())
    with pytest.raises(FileError, match="array 'components' is compressed"):
        load_model(model)


@pytest.mark.parametrize("file", ["arrays.npz", "manifest.json"])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_file_is_not_read(model: Path, file: str, kind: str):
    (model / file).rename(model.parent / file)
    make: Any = {"link": lambda path: path.symlink_to(model.parent / file), "pipe": os.mkfifo, "folder": Path.mkdir}[kind]
    make(model / file)
    with pytest.raises(FileError, match=f"{file} is a {kind}, not a file"):
        load_model(model)


@pytest.mark.parametrize("dangling", [False, True])
def test_a_model_is_not_written_through_a_link(model: Path, dangling: bool):
    link = model.parent / "link"
    link.symlink_to(model.parent / "nowhere" if dangling else model)
    before = sorted(os.listdir(model.parent))
    with pytest.raises(FileError, match="link is a link; give the folder that it stands for"):
        save_model(fitted(), link, overwrite=True)
    assert sorted(os.listdir(model.parent)) == before
