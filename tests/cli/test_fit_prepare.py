"""``eigenpact fit --prepare``."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression

import eigenpact as ep
from eigenpact.cli.tables import between_in_words
from eigenpact.errors import InputError
from eigenpact.estimators.model_files import load_model
from eigenpact.numerics.metrics import largest_sine

FILES = ("north.csv", "south.csv", "west.npy")
P = ep.prepare


def test_rows_are_prepared_by_what_all_sites_agree_on(run, sites):
    result = run("fit", *FILES, "-k", 2, "-o", "model", "--prepare", "residualize:age", "--prepare", "scale")
    assert result.exit_code == 0, result.output
    X = np.concatenate(list(sites.values()))
    left = X[:, 1:] - LinearRegression().fit(X[:, :1], X[:, 1:]).predict(X[:, :1])
    left = left / left.std(axis=0, ddof=1)
    pca, pooled = load_model("model"), PCA(2).fit(left)
    np.testing.assert_allclose(pca.explained_variance_, pooled.explained_variance_, rtol=1e-10)
    assert largest_sine(pca.components_[:, 1:].T, pooled.components_.T) < 1e-9
    assert "prepared       1 covariate regressed out; columns centred and scaled" in result.stdout
    assert "% before the rows were prepared" in " ".join(result.stdout.split())
    del pca.feature_names_in_
    for file, rows in zip(FILES, sites.values(), strict=True):
        assert run("transform", "model", file, "-o", f"{file}.scores.npy").exit_code == 0
        np.testing.assert_array_equal(np.load(f"{file}.scores.npy"), pca.transform(rows))


def test_genotypes_may_have_holes(run, tmp_path):
    G = np.random.default_rng(0).binomial(2, 0.4, size=(60, 7)).astype(float)
    G[::9, 2] = np.nan
    np.save(tmp_path / "A.npy", G[:30])
    np.save(tmp_path / "B.npy", G[30:])
    result = run("fit", "A.npy", "B.npy", "-k", 2, "-o", "model", "--prepare", "genotypes:hail")
    assert result.exit_code == 0, result.output
    assert "7 of 7 variants vary" in result.stdout
    refused = run("fit", "A.npy", "B.npy", "-k", 2, "-o", "other", "--prepare", "scale")
    assert refused.exit_code == 2
    assert "NaN" in refused.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("log-normalize", P.LogNormalize()),
        ("log-normalize:median", P.LogNormalize("median")),
        ("log-normalize:1e6", P.LogNormalize(1e6)),
        ("hvg", P.HighlyVariable()),
        (" hvg: 500", P.HighlyVariable(500)),
        ("scale", P.Scale()),
        ("scale:robust,max=10", P.Scale("robust", max_value=10)),
        ("scale:sparse", P.Scale(center=False)),
        ("genotypes", P.GenotypeScale()),
        ("genotypes:plink", P.GenotypeScale("plink")),
        ("residualize:age, 3", P.Residualize(["age", "3"])),
        ("residualize:age,+site", P.Residualize(["age"], site=True)),
        ("batches", P.BatchAdjust()),
        ("batches:plain", P.BatchAdjust(shrink=False)),
    ],
)
def test_texts_of_preparers(text, expected):
    assert P.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("HVG", "no preparer is called 'HVG'; there are log-normalize, hvg, scale"),
        ("genotype", r"did you mean genotypes\?"),
        ("hvg:many", "'many' is no whole number; write hvg or hvg:2000"),
        ("hvg:2.5", "'2.5' is no whole number"),
        ("hvg:1,2", "2 values are given, and one is taken"),
        ("hvg:-1", "n_top=-1 must be a whole number >= 1; write"),
        ("scale:max=x", "'x' is no number"),
        ("scale:mad", "by='mad' must be one of standard, robust"),
        ("genotypes:xx", "must be one of patterson, plink, hail"),
        ("residualize", "must be names or numbers of columns, at least one"),
        ("batches:3", "'3' is not known; write batches, or batches:plain"),
        ("log-normalize:nan", "must be a number > 0"),
    ],
)
def test_what_is_written_wrong_is_told_before_files_are_read(run, text, said):
    with pytest.raises(InputError, match=f"--prepare {text}: .*{said}"):
        P.parse(text)
    result = run("fit", "none.csv", "-k", 1, "-o", "model", "--prepare", text)
    assert result.exit_code == 2
    assert f"--prepare {text}" in result.stderr


def test_columns_that_do_not_exist(run):
    result = run("fit", *FILES, "-k", 1, "-o", "model", "--prepare", "residualize:agge")
    assert result.exit_code == 2
    assert "no column is called 'agge'; did you mean age" in result.stderr


def test_advice_by_what_lies_between_the_sites():
    rng = np.random.default_rng(0)
    apart = {"A": rng.normal(size=(50, 3)), "B": rng.normal(size=(50, 3)) + np.array([9, 0, 0])}
    plain = ep.FederatedPCA(1).fit(apart)
    assert between_in_words(plain).endswith("use --center site")
    adjusted = between_in_words(ep.FederatedPCA(1, prepare=[P.BatchAdjust()]).fit(apart))
    assert "before the rows were prepared: preparation has taken most of it out" in adjusted
    assert between_in_words(ep.FederatedPCA(1, center="site").fit(apart)).endswith("between the sites' means")


def test_advice_that_sites_would_refuse_names_the_rule_and_what_cannot_be_had_is_not_advised():
    rng = np.random.default_rng(0)
    apart = {name: rng.normal(size=(50, 4)) + np.array([9 * i, 0, 0, 0]) for i, name in enumerate("ABC")}
    secured = between_in_words(ep.FederatedPCA(1, secure=True).fit(apart))
    assert secured.endswith("use --center site, where the sites' policies say allow_site_means = true")
    assert "--center" not in between_in_words(ep.FederatedPCA(1, missing="em", random_state=0).fit(apart))
