"""``eigenpact transform``."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from eigenpact.data.readers import read_table
from eigenpact.estimators.model_files import load_model


@pytest.fixture
def model(run) -> Path:
    assert run("fit", "north.csv", "south.csv", "west.npy", "-k", 2, "-o", "model").exit_code == 0
    return Path("model")


@pytest.fixture
def nameless(run) -> Path:
    assert run("fit", "west.npy", "-k", 2, "-o", "nameless").exit_code == 0
    return Path("nameless")


def expected(model: Path, X: np.ndarray) -> np.ndarray:
    pca = load_model(model)
    return (X - pca.mean_) @ pca.components_.T


def test_csv_has_ids_and_reads_back_to_the_same_bits(run, model, sites):
    assert run("transform", model, "north.csv", "-o", "scores.csv").exit_code == 0
    table = read_table("scores.csv")
    assert table.feature_names == ("PC1_score", "PC2_score")
    assert table.row_ids == tuple(f"p{i}" for i in range(30))
    np.testing.assert_allclose(table.X, expected(model, sites["north"]), atol=1e-12)
    run("transform", model, "north.csv", "-o", "scores.npy")
    assert np.load("scores.npy").tobytes() == table.X.tobytes()


def test_columns_are_matched_by_name(run, model, sites):
    assert run("transform", model, "south.csv", "-o", "scores.npy").exit_code == 0
    np.testing.assert_allclose(np.load("scores.npy"), expected(model, sites["south"]), atol=1e-12)


def test_columns_are_matched_by_number_without_names(run, model, nameless, sites):
    for folder, file in ((model, "west.npy"), (nameless, "west.npy"), (nameless, "north.csv")):
        assert run("transform", folder, file, "-o", "scores.npy", "--overwrite").exit_code == 0
        np.testing.assert_allclose(np.load("scores.npy"), expected(folder, sites[Path(file).stem]), atol=1e-12)


def test_no_ids_no_id_column(run, model):
    run("transform", model, "west.npy", "-o", "scores.csv")
    with open("scores.csv", newline="") as stream:
        rows = list(csv.reader(stream))
    assert rows[0] == ["PC1_score", "PC2_score"]
    assert len(rows) == 13


def test_ids_with_commas_survive(run, model, sites, tmp_path, write_csv):
    write_csv(tmp_path / "odd.csv", sites["west"], ids=[f'"a, {i}"' for i in range(12)])
    run("transform", model, "odd.csv", "-o", "scores.csv")
    assert read_table("scores.csv").row_ids == tuple(f"a, {i}" for i in range(12))


def test_existing_output(run, refused, model):
    Path("scores.csv").write_text("precious")
    assert "scores.csv exists already" in refused("transform", model, "north.csv", "-o", "scores.csv")
    assert run("transform", model, "north.csv", "-o", "scores.csv", "--overwrite").exit_code == 0
    assert Path("scores.csv").read_text().startswith("id,PC1_score,PC2_score")


def test_the_table_itself_is_never_overwritten(refused, model):
    assert "is the table itself" in refused("transform", model, "north.csv", "-o", "north.csv", "--overwrite")


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("scores.txt", "must end in one of .csv, .parquet, .h5ad, .eigenvec, .npy"),
        ("folder.csv", "is a folder"),
        ("no/scores.csv", "does not exist"),
    ],
)
def test_bad_output(refused, model, output, told):
    Path("folder.csv").mkdir()
    assert told in refused("transform", model, "north.csv", "-o", output)


def test_other_features(refused, model, sites, names, tmp_path, write_csv):
    write_csv(tmp_path / "other.csv", sites["west"], ("age", "bmi", "glucose", "weight", "rate"))
    told = refused("transform", model, "other.csv", "-o", "scores.csv")
    assert "lacks ['pressure'] and has in addition ['weight']" in told
    write_csv(tmp_path / "wide.csv", np.ones((3, 12)), (*names, *(f"x{i}" for i in range(7))))
    assert "has in addition ['x0', 'x1', 'x2', 'x3', 'x4'] and 2 more" in refused(
        "transform", model, "wide.csv", "-o", "scores.csv"
    )
    np.save("narrow.npy", np.ones((3, 4)))
    assert "has 4 columns, the model has 5 features" in refused("transform", model, "narrow.npy", "-o", "scores.csv")


def test_bad_tables(refused, model, sites, names, tmp_path, write_csv):
    X = sites["west"].copy()
    X[0, 1] = np.nan
    write_csv(tmp_path / "nan.csv", X[:, ::-1], names[::-1])
    assert "column 'bmi' has 1 NaN" in refused("transform", model, "nan.csv", "-o", "scores.csv")
    (tmp_path / "empty.csv").write_text("")
    assert "empty.csv is empty" in refused("transform", model, "empty.csv", "-o", "scores.csv")
    (tmp_path / "text.csv").write_text("age,bmi,glucose,pressure,rate\n1,2,3,high,5\n")
    assert "'high' is not a number" in refused("transform", model, "text.csv", "-o", "scores.csv")
    assert "missing.csv does not exist" in refused("transform", model, "missing.csv", "-o", "scores.csv")


def test_bad_models(refused, model):
    assert "nowhere does not exist" in refused("transform", "nowhere", "north.csv", "-o", "scores.csv")
    assert "is not a model folder" in refused("transform", "north.csv", "north.csv", "-o", "scores.csv")
    manifest = model / "manifest.json"
    facts = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(facts | {"format_version": 4}))
    assert "upgrade eigenpact" in refused("transform", model, "north.csv", "-o", "scores.csv")
    manifest.write_text(json.dumps(facts))
    damaged = bytearray((model / "arrays.npz").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (model / "arrays.npz").write_bytes(damaged)
    assert "was changed since it was written" in refused("transform", model, "north.csv", "-o", "scores.csv")


@pytest.mark.parametrize("k", [1, 2])
def test_a_picture_of_the_scores(run, refused, tmp_path, k):
    run("fit", "north.csv", "south.csv", "-k", k, "-o", "drawn")
    for more in ([], ["--project"]):
        result = run("transform", "drawn", "north.csv", "-o", "s.csv", "--picture", "s.png", "--overwrite", *more)
        assert result.exit_code == 0, result.stderr
        assert "The picture is in s.png" in result.stdout
        assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")
    assert "s.png exists already" in refused("transform", "drawn", "north.csv", "-o", "t.csv", "--picture", "s.png")
