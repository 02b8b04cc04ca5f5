"""What ``eigenpact transform`` and ``show --loadings`` write, read by the libraries that these files are for."""

from __future__ import annotations

import sys
from pathlib import Path

import anndata
import numpy as np
import pandas as pd
import pytest
from bed_reader import to_bed

from eigenpact.estimators.model_files import load_model


@pytest.fixture
def model(run) -> Path:
    assert run("fit", "north.csv", "south.csv", "west.npy", "-k", 2, "-o", "model").exit_code == 0
    return Path("model")


@pytest.fixture
def expected(model, sites) -> np.ndarray:
    pca = load_model(model)
    return (sites["north"] - pca.mean_) @ pca.components_.T


def test_parquet(run, model, expected):
    assert run("transform", model, "north.csv", "-o", "scores.parquet", "--errors").exit_code == 0
    table = pd.read_parquet("scores.parquet")
    assert list(table) == ["id", "PC1_score", "PC2_score", "PC1_error", "PC2_error"]
    assert table["id"].tolist() == [f"p{i}" for i in range(30)]
    np.testing.assert_allclose(table[["PC1_score", "PC2_score"]], expected, atol=1e-12)
    assert np.allclose(table[["PC1_error", "PC2_error"]], np.sqrt(load_model(model).noise_variance_))


def test_h5ad_is_as_scanpy_has_it(run, model, expected, names):
    assert run("transform", model, "north.csv", "-o", "scores.h5ad", "--errors").exit_code == 0
    cells, pca = anndata.read_h5ad("scores.h5ad"), load_model(model)
    np.testing.assert_allclose(cells.obsm["X_pca"], expected, atol=1e-12)
    assert cells.varm["PCs"].tobytes() == np.ascontiguousarray(pca.components_.T).tobytes()
    assert np.array_equal(cells.uns["pca"]["variance"], pca.explained_variance_)
    assert np.array_equal(cells.uns["pca"]["variance_ratio"], pca.explained_variance_ratio_)
    assert cells.uns["pca"]["params"]["zero_center"]
    assert (cells.obs_names[0], cells.var_names.tolist()) == ("p0", list(names))
    assert cells.obsm["X_pca_errors"].shape == (30, 2)
    assert cells.X is None


def test_the_layout_is_that_of_scanpys_own_pca(run, model, sites):
    """The same entries, of the same shapes, where scanpy writes them."""
    scanpy = pytest.importorskip("scanpy")
    run("transform", model, "north.csv", "-o", "scores.h5ad")
    ours, theirs = anndata.read_h5ad("scores.h5ad"), anndata.AnnData(sites["north"])
    scanpy.pp.pca(theirs, n_comps=2)
    assert {key: ours.obsm[key].shape for key in theirs.obsm} == {key: theirs.obsm[key].shape for key in theirs.obsm}
    assert {key: ours.varm[key].shape for key in theirs.varm} == {key: theirs.varm[key].shape for key in theirs.varm}
    assert set(theirs.uns["pca"]) == set(ours.uns["pca"])


def test_eigenvec_is_as_plink_has_it(run, model, expected):
    result = run("transform", model, "north.csv", "-o", "scores.eigenvec")
    assert result.stdout.endswith("to scores.eigenvec, and variances to scores.eigenval\n")
    table = pd.read_csv("scores.eigenvec", sep=" ")
    assert list(table) == ["#FID", "IID", "PC1", "PC2"]
    assert table["IID"].tolist() == [f"p{i}" for i in range(30)]
    np.testing.assert_allclose(table[["PC1", "PC2"]], expected, atol=1e-12)
    values = np.loadtxt("scores.eigenval")
    assert np.array_equal(values, load_model(model).explained_variance_)


def test_eigenvec_ids_have_no_blanks_and_the_second_file_is_not_replaced(refused, model, sites, tmp_path, write_csv):
    write_csv(tmp_path / "odd.csv", sites["west"], ids=[f"a {i}" for i in range(12)])
    assert "row id 'a 0' has blanks" in refused("transform", model, "odd.csv", "-o", "scores.eigenvec")
    Path("scores.eigenval").write_text("mine")
    assert "scores.eigenval exists already" in refused("transform", model, "north.csv", "-o", "scores.eigenvec")


@pytest.mark.parametrize("output", ["scores.npy", "scores.eigenvec"])
def test_errors_need_a_place(refused, model, output):
    assert "has no place for standard errors" in refused("transform", model, "north.csv", "-o", output, "--errors")


@pytest.mark.parametrize(("output", "module"), [("s.parquet", "pyarrow"), ("s.h5ad", "anndata")])
def test_a_missing_extra_is_named(refused, model, monkeypatch, output, module):
    monkeypatch.setitem(sys.modules, module, None)
    assert f"needs {module}" in refused("transform", model, "north.csv", "-o", output)


def test_projection_with_gaps_and_lacking_columns(run, refused, model, sites, names, write_csv, tmp_path):
    rows = sites["north"].copy()
    rows[3, 1] = np.nan
    write_csv(tmp_path / "gaps.csv", rows[:, [4, 1, 2, 3]], (names[4], *names[1:4]), ids=[f"p{i}" for i in range(30)])
    assert "lacks ['age']" in refused("transform", model, "gaps.csv", "-o", "scores.csv")
    result = run("transform", model, "gaps.csv", "-o", "scores.csv", "--project")
    assert result.stdout.startswith("The table lacks, counted as missing: age\n")
    rows[:, 0] = np.nan
    pca = load_model(model)
    found = pd.read_csv("scores.csv")[["PC1_score", "PC2_score"]].to_numpy()
    for i in (0, 3):
        at = ~np.isnan(rows[i])
        truth = np.linalg.lstsq(pca.components_.T[at], (rows[i] - pca.mean_)[at], rcond=None)[0]
        np.testing.assert_allclose(found[i], truth, atol=1e-9)


def test_projection_tells_of_other_columns_and_of_rows_with_too_little(run, refused, model, tmp_path, write_csv):
    write_csv(tmp_path / "few.csv", np.array([[1.0, 2.0], [3.0, 4.0]]), ("bmi", "height"))
    result = run("transform", model, "few.csv", "-o", "scores.csv", "--project")
    assert "lacks, counted as missing: age, glucose, pressure, rate" in result.stdout
    assert "has in addition, ignored: height" in result.stdout
    assert "2 rows have too few features" in result.stdout
    write_csv(tmp_path / "none.csv", np.array([[1.0, 2.0]]), ("width", "height"))
    assert "has none of the model's features" in refused("transform", model, "none.csv", "-o", "other.csv", "--project")


def test_corrected_scores_are_larger(run, tmp_path):
    rows = np.random.default_rng(0).normal(size=(12, 60)) + np.outer(np.arange(12) - 5.5, np.ones(60))
    np.save(tmp_path / "a.npy", rows[:10])
    np.save(tmp_path / "b.npy", rows[10:])
    assert run("fit", "a.npy", "-k", 1, "-o", "wide").exit_code == 0
    run("transform", "wide", "b.npy", "-o", "plain.npy")
    run("transform", "wide", "b.npy", "-o", "corrected.npy", "--shrinkage", "corrected")
    assert np.all(np.abs(np.load("corrected.npy")) > np.abs(np.load("plain.npy")))


def test_loadings(run, refused, model, names):
    assert run("show", model, "--loadings", "loadings.csv").stdout.endswith("The loadings are in loadings.csv\n")
    table, pca = pd.read_csv("loadings.csv", float_precision="round_trip"), load_model(model)
    assert list(table) == ["feature", "PC1_loading", "PC2_loading", "mean", "scale"]
    assert table["feature"].tolist() == list(names)
    assert np.array_equal(table[["PC1_loading", "PC2_loading"]].to_numpy(), pca.components_.T)
    assert "loadings.csv exists already" in refused("show", model, "--loadings", "loadings.csv")


def test_genotypes_from_fit_to_corrected_scores(run, tmp_path):
    """PLINK files with missing genotypes; new people come with every second variant."""
    random = np.random.default_rng(0)
    p = np.clip(random.uniform(0.2, 0.8, 300) + np.array([[-0.15], [0.15]]) * random.choice([-1, 1], 300), 0.05, 0.95)
    counts = random.binomial(2, np.repeat(p, 40, axis=0)).astype(np.int8)
    counts[random.random(counts.shape) < 0.03] = -127

    def write(name: str, people: list[int], variants: range) -> None:
        d = len(variants)
        properties = {"sid": [f"rs{j}" for j in variants], "iid": [f"i{i}" for i in people], "chromosome": ["1"] * d}
        to_bed(
            tmp_path / name,
            counts[np.ix_(people, list(variants))],
            properties=properties | {"allele_1": ["A"] * d, "allele_2": ["G"] * d, "bp_position": list(variants)},
        )

    new = [*range(35, 40), *range(75, 80)]
    write("a.bed", list(range(35)), range(300))
    write("b.bed", list(range(40, 75)), range(300))
    write("new.bed", new, range(0, 300, 2))
    assert run("fit", "a.bed", "b.bed", "-k", 2, "--prepare", "genotypes", "-o", "people", "-q").exit_code == 0
    result = run("transform", "people", "new.bed", "-o", "new.eigenvec", "--shrinkage", "corrected")
    told = "The table lacks or has other alleles of, counted as missing: rs1 1:1 A/G, rs3 1:3 A/G, "
    assert result.stdout.startswith(told)
    assert "rs9 1:9 A/G, and 145 more\n" in result.stdout
    table = pd.read_csv("new.eigenvec", sep=" ")
    assert table["IID"].tolist() == [f"i{i}" for i in new]
    assert len(set(np.sign(table["PC1"][:5]))) == len(set(np.sign(table["PC1"][5:]))) == 1
    assert np.sign(table["PC1"][0]) != np.sign(table["PC1"][9])
    gaps = np.full((10, 300), np.nan)
    gaps[:, ::2] = counts[new, ::2]
    gaps[gaps < 0] = np.nan
    pca, names = load_model("people"), [f"rs{j} 1:{j} A/G" for j in range(300)]
    found = pca.project(pd.DataFrame(gaps, columns=names), shrinkage="corrected")
    np.testing.assert_allclose(table[["PC1", "PC2"]], found.scores, atol=1e-9)
