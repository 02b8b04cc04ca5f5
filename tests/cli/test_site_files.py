"""Files whose columns differ: modes, categories, units and alleles, as the commands tell of them and transform repeats them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
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


def test_a_site_of_a_union_that_lacks_a_column_is_transformed_as_it_was_fitted(run, rows):
    write("a.csv", NAMES, rows["a"])
    write("b.csv", NAMES, rows["b"])
    write("c.csv", ["age", "chol"], rows["c"][:, [0, 2]])
    result = run("fit", "a.csv", "b.csv", "c.csv", "-k", "2", "-o", "model", "--features", "union", "--missing", "mean")
    assert result.exit_code == 0, result.output
    result = run("transform", "model", "c.csv", "-o", "scores.npy")
    assert result.exit_code == 0, result.output
    assert "The table lacks, counted as missing: trestbps" in result.stdout
    filled = np.round(rows["c"], 4)
    filled[:, 1] = np.round(np.concatenate([rows["a"], rows["b"]]), 4)[:, 1].mean()
    truth = ep.load_model("model").transform(pd.DataFrame(filled, columns=NAMES))
    np.testing.assert_allclose(np.load("scores.npy"), truth, atol=1e-9)
    write("other.csv", ["age", "kol"], rows["c"][:, [0, 2]])
    assert "has in addition ['kol']" in run("transform", "model", "other.csv", "-o", "other.npy").stderr


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
    bed_reader.to_bed(name, np.ascontiguousarray(G), properties=properties)


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


# -- transform --project matches variants and categories as transform does ------------------------

IDS, ALLELES = [f"rs{j}" for j in range(12)], [("A", "G"), ("C", "T"), ("A", "C")] * 4


@pytest.fixture
def genotypes(run):
    G = np.random.default_rng(3).integers(0, 3, size=(30, 12)).astype(float)
    write_bed("yri.bed", G, IDS, ALLELES)
    assert run("fit", "yri.bed", "-k", 2, "-o", "model").exit_code == 0
    assert run("transform", "model", "yri.bed", "-o", "plain.npy").exit_code == 0
    return G


@pytest.mark.parametrize("options", [("--project",), ("--errors",)])
def test_genotypes_of_the_fit_have_the_scores_of_transform(run, genotypes, options):
    result = run("transform", "model", "yri.bed", "-o", "s.csv", *options)
    assert result.exit_code == 0, result.output
    assert "counted as missing" not in result.stdout
    assert "ignored" not in result.stdout
    scores = np.loadtxt("s.csv", delimiter=",", skiprows=1, usecols=(1, 2))
    assert len(scores) == len(genotypes)
    np.testing.assert_allclose(scores, np.load("plain.npy"), atol=1e-9)


def test_shrinkage_of_genotypes(run, genotypes):
    assert run("transform", "model", "yri.bed", "-o", "s.npy", "--shrinkage", "corrected").exit_code == 0
    pca = ep.load_model("model")
    counted = np.array([name.endswith(f"{a}/{b}") for name, (a, b) in zip(pca.feature_names_in_, ALLELES, strict=True)])
    X = pd.DataFrame(np.where(counted, genotypes, 2 - genotypes), columns=pca.feature_names_in_)
    truth = pca.project(X, shrinkage="corrected")
    np.testing.assert_allclose(np.load("s.npy"), truth.scores, atol=1e-9)


def test_variants_that_are_absent_swapped_or_of_other_alleles(run, genotypes):
    swap = np.arange(12) % 2 == 0
    alleles = [pair[::-1] if s else pair for pair, s in zip(ALLELES, swap, strict=True)]
    alleles[5] = ("A", "G")  # in place of A and C
    swapped = np.where(swap, 2 - genotypes, genotypes)
    write_bed(
        "few.bed", np.delete(swapped, 1, axis=1)[:, ::-1], np.delete(IDS, 1)[::-1].tolist(), (alleles[:1] + alleles[2:])[::-1]
    )
    result = run("transform", "model", "few.bed", "-o", "s.npy", "--project")
    assert result.exit_code == 0, result.output
    told = next(line for line in result.stdout.splitlines() if "counted as missing" in line)
    assert [name.split()[0] for name in told.split("missing: ")[1].split(", ")] == ["rs1", "rs5"]
    pca = ep.load_model("model")
    counted = np.array([name.endswith(f"{a}/{b}") for name, (a, b) in zip(pca.feature_names_in_, ALLELES, strict=True)])
    held = np.delete(np.arange(12), [1, 5])
    X = np.where(counted, genotypes, 2 - genotypes) - pca.mean_
    truth = np.linalg.lstsq(pca.components_[:, held].T, X[:, held].T, rcond=None)[0].T
    np.testing.assert_allclose(np.load("s.npy"), truth, atol=1e-9)


def test_categories_have_the_scores_of_transform_and_unknown_ones_are_refused(run, refused):
    rng = np.random.default_rng(2)
    X, sex = rng.normal(size=(40, 3)) * [9, 15, 40] + [54, 130, 220], ["f" if i % 3 else "m" for i in range(40)]
    for name in ("a", "new", "more"):
        Path(f"{name}.csv.toml").write_text(f"categorical = {['sex', 'arm'] if name == 'more' else ['sex']}\n")
    write("a.csv", NAMES, X, {"sex": sex})
    assert run("fit", "a.csv", "-k", 2, "-o", "model").exit_code == 0
    assert run("transform", "model", "a.csv", "-o", "plain.npy").exit_code == 0
    result = run("transform", "model", "a.csv", "-o", "s.npy", "--project")
    assert result.exit_code == 0, result.output
    assert "missing" not in result.stdout
    np.testing.assert_allclose(np.load("s.npy"), np.load("plain.npy"), atol=1e-9)
    write("more.csv", NAMES, X, {"sex": sex, "arm": ["left"] * 40})
    result = run("transform", "model", "more.csv", "-o", "more.npy", "--project")
    assert "The table has in addition, ignored: arm" in result.stdout
    np.testing.assert_allclose(np.load("more.npy"), np.load("plain.npy"), atol=1e-9)
    write("new.csv", NAMES, X, {"sex": ["x", *sex[1:]]})
    told = refused("transform", "model", "new.csv", "-o", "new.npy", "--project")
    assert "column 'sex' holds 'x'; agreed on are 'f', 'm'" in told


@pytest.mark.parametrize("files", [("few.bed", "yri.bed"), ("yri.bed", "few.bed")])
def test_strict_refuses_further_variants_in_whatever_order_files_come(run, refused, genotypes, files):
    write_bed("few.bed", genotypes[:, :9], IDS[:9], ALLELES[:9])
    told = refused("fit", *files, "-k", 2, "-o", "both")
    what = {"few.bed": "the 9 of 'few', 'yri' has in addition 3;", "yri.bed": "the 12 of 'yri', 'few' lacks 3;"}
    assert f"sites have different variants: compared with {what[files[0]]}" in told
    result = run("fit", *files, "-k", 2, "-o", "both", "--features", "intersection")
    assert result.exit_code == 0, result.output
    assert ep.load_model("both").n_features_in_ == 9


def test_categories_that_two_sites_write_in_two_ways_are_refused_or_told(run, refused, rows):
    for name, (one, other) in {"a": ("0.0", "1.0"), "b": ("m", "f")}.items():
        write(f"{name}.csv", NAMES, rows[name], {"sex": [one if i % 3 else other for i in range(len(rows[name]))]})
        Path(f"{name}.csv.toml").write_text('categorical = ["sex"]\n')
    told = "column 'sex': sites have no category in common, 'a' has '0.0', '1.0'; 'b' has 'f', 'm'"
    assert told in refused("fit", "a.csv", "b.csv", "-k", 2, "-o", "model", "-q")
    result = run("fit", "a.csv", "b.csv", "-k", 2, "-o", "model", "--features", "intersection")
    assert result.exit_code == 0, result.output
    assert told in " ".join(result.stderr.split())


def test_transform_says_how_many_variants_are_lacking_and_what_helps(run, refused, genotypes):
    write_bed("few.bed", genotypes[:, :5], IDS[:5], ALLELES[:5])
    told = refused("transform", "model", "few.bed", "-o", "s.npy")
    assert "'rs9 1:19" in told
    assert "'rs10 1:20" not in told
    assert "] and 2 more; rename, drop or add columns, or use --project" in told
    assert run("transform", "model", "few.bed", "-o", "s.npy", "--project").exit_code == 0
