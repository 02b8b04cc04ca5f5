"""``FederatedPCA(features=...)``: columns of DataFrames are matched by name, and what became of them is told for every site."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA

import eigenpact as ep
from eigenpact.errors import InputError, UnitsWarning

NAMES = ["age", "bmi", "chol", "rate", "pressure", "weight"]


def tables(seed=0):
    rng = np.random.default_rng(seed)
    return {name: pd.DataFrame(rng.normal(size=(n, 6)) + 5.0, columns=NAMES) for name, n in (("A", 40), ("B", 30), ("C", 25))}


def test_intersection_is_the_pca_of_the_columns_that_all_sites_have():
    sites = tables()
    sites["B"] = sites["B"][["rate", "weight", "age", "chol"]]
    common = ["age", "chol", "rate", "weight"]
    pca = ep.FederatedPCA(3, features="intersection").fit(sites)
    truth = PCA(3, svd_solver="full").fit(np.vstack([X[common] for X in sites.values()]))
    assert list(pca.feature_names_in_) == common
    assert pca.n_features_in_ == 4
    np.testing.assert_allclose(np.abs(pca.components_ @ truth.components_.T), np.eye(3), atol=1e-9)
    np.testing.assert_allclose(pca.explained_variance_, truth.explained_variance_)
    assert pca.features_report_.sites["A"].dropped == ("bmi", "pressure")
    assert pca.features_report_.sites["B"].lacking == ("bmi", "pressure")
    assert pca.transform(sites["A"][common]).shape == (40, 3)


def test_strict_names_the_site_and_changes_nothing():
    sites = tables()
    sites["C"] = sites["C"].rename(columns={"pressure": "Pressure "})
    pca = ep.FederatedPCA(2)
    with pytest.raises(InputError, match=r"'C' lacks \['pressure'\].*is 'Pressure ' of 'C' what others call 'pressure'"):
        pca.fit(sites)
    assert not hasattr(pca, "n_features_in_")


def test_union_says_what_it_needs():
    sites = tables()
    sites["B"] = sites["B"].drop(columns=["bmi", "rate"])
    with pytest.raises(InputError, match=r"'B' lacks 2 \(bmi, rate\).*missing='mean'"):
        ep.FederatedPCA(2, features="union").fit(sites)


def test_union_with_filled_means_is_the_pca_of_the_filled_table():
    sites = tables()
    sites["B"] = sites["B"].drop(columns=["bmi", "rate"])
    pca = ep.FederatedPCA(3, features="union", missing="mean", random_state=0).fit(sites)
    pooled = pd.concat([X.reindex(columns=NAMES) for X in sites.values()])
    truth = PCA(3, svd_solver="full").fit(pooled.fillna(pooled.mean()).to_numpy())
    np.testing.assert_allclose(np.abs(pca.components_ @ truth.components_.T), np.eye(3), atol=1e-7)
    assert pca.features_report_.sites["B"].lacking == ("bmi", "rate")
    filled = sites["B"].reindex(columns=NAMES).fillna(pooled.mean())
    np.testing.assert_allclose(pca.transform(sites["B"]), pca.transform(filled), atol=1e-10)  # as it was fitted
    with pytest.raises(InputError, match="feature names"):
        pca.transform(sites["B"].rename(columns={"age": "years"}))


@pytest.mark.parametrize("mode", ["strict", "intersection", "union"])
def test_where_all_sites_are_equal_every_mode_gives_the_same_bits(mode):
    sites = tables()
    plain = ep.FederatedPCA(3, random_state=0).fit(sites)
    pca = ep.FederatedPCA(3, random_state=0, features=mode).fit(sites)
    assert pca.components_.tobytes() == plain.components_.tobytes()
    assert pca.features_report_.nothing_changed
    assert list(pca.feature_names_in_) == NAMES


def test_the_order_of_columns_at_a_site_changes_no_bit():
    sites = tables()
    plain = ep.FederatedPCA(3, random_state=0).fit(sites)
    sites["B"] = sites["B"][NAMES[::-1]]
    assert ep.FederatedPCA(3, random_state=0).fit(sites).components_.tobytes() == plain.components_.tobytes()


def test_a_mode_that_is_none_is_refused():
    with pytest.raises(InputError, match="features='outer' must be 'strict', 'intersection' or 'union'"):
        ep.FederatedPCA(2, features="outer").fit(tables())


def test_arrays_without_names_are_counted_and_reported():
    rng = np.random.default_rng(0)
    pca = ep.FederatedPCA(2, features="intersection").fit([rng.normal(size=(9, 4)), rng.normal(size=(8, 4))])
    assert pca.features_report_.n_features == 4
    with pytest.raises(InputError, match="matches columns by name"):
        ep.FederatedPCA(2, features="intersection").fit([rng.normal(size=(9, 4)), rng.normal(size=(8, 3))])
    assert ep.FederatedPCA(2).fit(rng.normal(size=(9, 4)), sites=list("aaabbbccc")).features_report_.n_features == 4


def test_another_unit_at_one_site_is_warned_of_and_reported():
    sites = tables()
    sites["B"] = sites["B"].assign(weight=(sites["B"]["weight"] + 70) * 2.2046)
    sites = {name: X.assign(weight=X["weight"] + 70) if name != "B" else X for name, X in sites.items()}
    with pytest.warns(UnitsWarning, match="site 'B': column 'weight'.*weight in lb instead of kg"):
        pca = ep.FederatedPCA(2).fit(sites)
    assert len(pca.features_report_.notes) == 1


def test_the_report_travels_with_the_model(tmp_path):
    sites = tables()
    sites["B"] = sites["B"].drop(columns=["bmi"])
    pca = ep.FederatedPCA(2, features="intersection").fit(sites)
    ep.save_model(pca, tmp_path / "model")
    loaded = ep.load_model(tmp_path / "model")
    assert loaded.features_report_ == pca.features_report_
    assert loaded.features == "intersection"
    manifest = tmp_path / "model" / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"n_features": 5', '"n_features": "five"', 1))
    with pytest.raises(ep.errors.FileError, match="features_report"):
        ep.load_model(tmp_path / "model")
