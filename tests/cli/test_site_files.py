"""Files whose columns differ: modes, categories, units and alleles, as the commands tell of them and transform repeats them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import eigenpact as ep

NAMES = ["age", "trestbps", "chol"]


def write(name, columns, X, texts=None):
    cells = [[f"{value:.4f}" for value in row] for row in X]
    header = [*columns, *(texts or {})]
    lines = [",".join([*row, *(values[i] for values in (texts or {}).values())]) for i, row in enumerate(cells)]
    Path(name).write_text("\n".join([",".join(header), *lines]) + "\n")


@pytest.fixture
def rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(2)
    return {name: rng.normal(size=(n, 3)) * [9, 15, 40] + [54, 130, 220] for name, n in (("a", 40), ("b", 30), ("c", 25))}


def test_intersection_is_told_and_saved_and_equals_the_fit_of_the_common_columns(run, rows):
    write("a.csv", NAMES, rows["a"])
    write("b.csv", NAMES[::-1], rows["b"][:, ::-1])
    write("c.csv", ["age", "chol"], rows["c"][:, [0, 2]])
    result = run("fit", "a.csv", "b.csv", "c.csv", "-k", "2", "-o", "model", "--features", "intersection")
    assert result.exit_code == 0, result.output
    assert "a: not used: trestbps" in result.stderr
    assert "c: lacks trestbps" in result.stderr
    told = json.loads(Path("model/manifest.json").read_text())["features_report"]
    assert told["sites"]["c"]["lacking"] == ["trestbps"]
    for name, X in rows.items():
        write(f"only-{name}.csv", ["age", "chol"], X[:, [0, 2]])
    assert run("fit", *(f"{name}=only-{name}.csv" for name in rows), "-k", "2", "-o", "plain").exit_code == 0
    models = [ep.load_model(folder) for folder in ("model", "plain")]
    assert models[0].components_.tobytes() == models[1].components_.tobytes()
    assert "lacks" not in run("show", "plain").stdout
    assert "columns or alleles differ at a, b, c" in " ".join(run("show", "model").stdout.split())


def test_categories_become_columns_that_transform_makes_too(run, rows):
    texts = {name: ["f" if i % 3 else "m" for i in range(len(X))] for name, X in rows.items()}
    texts["b"][0] = "d"
    for name, X in rows.items():
        write(f"{name}.csv", NAMES, X, {"sex": texts[name]})
        Path(f"{name}.csv.toml").write_text('categorical = ["sex"]\n')
    result = run("fit", "a.csv", "b.csv", "c.csv", "-k", "3", "-o", "model")
    assert result.exit_code == 0, result.output
    pca = ep.load_model("model")
    assert list(pca.feature_names_in_) == [*NAMES, "sex=d", "sex=f", "sex=m"]
    dense = {
        name: np.c_[np.round(X, 4), [[cell == value for value in "dfm"] for cell in texts[name]]] for name, X in rows.items()
    }
    truth = ep.FederatedPCA(3, random_state=0).fit(dense)
    np.testing.assert_allclose(pca.components_, truth.components_, atol=1e-12)
    assert run("transform", "model", "c.csv", "-o", "scores.npy").exit_code == 0
    np.testing.assert_allclose(np.load("scores.npy"), truth.transform(dense["c"]), atol=1e-9)
    write("new.csv", NAMES, rows["c"][:1], {"sex": ["x"]})
    Path("new.csv.toml").write_text('categorical = ["sex"]\n')
    result = run("transform", "model", "new.csv", "-o", "new.npy")
    assert result.exit_code == 2
    assert "column 'sex' holds 'x'; agreed on are 'd', 'f', 'm'" in result.stderr


def write_bed(name, G, ids, alleles):
    bed_reader = pytest.importorskip("bed_reader")
    properties = {
        "sid": ids,
        "chromosome": ["1"] * len(ids),
        "bp_position": list(range(10, 10 + len(ids))),
        "allele_1": [a for a, _ in alleles],
        "allele_2": [b for _, b in alleles],
    }
    bed_reader.to_bed(name, G, properties=properties)


def test_alleles_swapped_at_one_site_give_the_same_bits_and_the_same_scores(run, rows):
    assert rows
    rng = np.random.default_rng(5)
    ids, alleles = [f"rs{j}" for j in range(12)], [("A", "G"), ("C", "T"), ("A", "C")] * 4
    G = {name: rng.integers(0, 3, size=(n, 12)).astype(float) for name, n in (("a", 30), ("b", 25))}
    for name, X in G.items():
        write_bed(f"{name}.bed", X, ids, alleles)
    swap = rng.random(12) < 0.5
    write_bed(
        "b2.bed", np.where(swap, 2 - G["b"], G["b"]), ids, [p[::-1] if s else p for p, s in zip(alleles, swap, strict=True)]
    )
    assert run("fit", "a.bed", "b.bed", "-k", "3", "-o", "plain").exit_code == 0
    result = run("fit", "a.bed", "b=b2.bed", "-k", "3", "-o", "model")
    assert result.exit_code == 0, result.output
    assert f"b: swapped {swap.sum()}" in result.stderr
    models = [ep.load_model(folder) for folder in ("plain", "model")]
    assert models[0].components_.tobytes() == models[1].components_.tobytes()
    assert models[0].feature_names_in_[0].startswith("rs0 1:10 ")
    for file in ("b.bed", "b2.bed"):
        assert run("transform", "plain", file, "-o", f"{file}.npy").exit_code == 0
    assert np.load("b.bed.npy").tobytes() == np.load("b2.bed.npy").tobytes()
