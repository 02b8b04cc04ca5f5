"""Sites adjusted as batches: beside ComBat of the pooled rows, by numpy and by scanpy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import eigenpact as ep
from eigenpact.errors import InputError, InputTypeError
from eigenpact.numerics.preparation import prepared

RNG = np.random.default_rng(5)
SITES = np.repeat(["A", "B", "C"], [30, 50, 20])
LOCATIONS = {"A": RNG.normal(1, 0.5, 40), "B": RNG.normal(-1, 0.3, 40), "C": RNG.normal(0, 1, 40)}
SCALES = {"A": RNG.uniform(0.5, 1, 40), "B": RNG.uniform(1, 2, 40), "C": RNG.uniform(0.8, 1.2, 40)}
X = np.vstack([RNG.normal(size=40) * SCALES[s] + LOCATIONS[s] for s in SITES]) * RNG.uniform(1, 9, 40) + RNG.normal(0, 20, 40)
X[:, 7] = 3.0  # which does not vary


def combat(Y, batch):
    """Johnson, Li and Rabinovic 2007, feature by feature, from the pooled table."""
    n, out = len(Y), np.array(Y)
    names = np.unique(batch)
    alpha = sum(np.mean(batch == b) * Y[batch == b].mean(axis=0) for b in names)
    variance = sum(((Y[batch == b] - Y[batch == b].mean(axis=0)) ** 2).sum(axis=0) for b in names) / n
    vary = variance > 1e-20
    Z = (Y[:, vary] - alpha[vary]) / np.sqrt(variance[vary])
    for b in names:
        Zb = Z[batch == b]
        g, d = Zb.mean(axis=0), Zb.var(axis=0, ddof=1)
        bar, tau2 = g.mean(), g.var(ddof=1)
        shape = (2 * d.var(ddof=1) + d.mean() ** 2) / d.var(ddof=1)
        rate = (d.mean() * d.var(ddof=1) + d.mean() ** 3) / d.var(ddof=1)
        for j in range(Zb.shape[1]):
            gamma, delta = g[j], d[j]
            for _ in range(500):
                gamma = (len(Zb) * tau2 * g[j] + delta * bar) / (len(Zb) * tau2 + delta)
                delta = (rate + 0.5 * ((Zb[:, j] - gamma) ** 2).sum()) / (len(Zb) / 2 + shape - 1)
            column = np.flatnonzero(vary)[j]
            out[batch == b, column] = alpha[column] + np.sqrt(variance[column]) * (Zb[:, j] - gamma) / np.sqrt(delta)
    return out


EXPECTED = combat(X, SITES)


def fitted(**options):
    return ep.FederatedPCA(3, solver="gram", prepare=[ep.prepare.BatchAdjust()], **options).fit(X, sites=SITES)


def test_each_site_is_adjusted_as_combat_of_the_pooled_rows_would():
    pca = fitted()
    for site in "ABC":
        rows = X[site == SITES]
        adjusted = prepared(rows, pca.for_site(rows).preparation_)
        np.testing.assert_allclose(adjusted, EXPECTED[site == SITES], rtol=1e-9, atol=1e-9)
        assert np.all(adjusted[:, 7] == 3.0)
    found = np.linalg.svd(EXPECTED - EXPECTED.mean(axis=0), compute_uv=False)[:3] ** 2 / (len(X) - 1)
    np.testing.assert_allclose(pca.explained_variance_, found, rtol=1e-9)


def test_scanpys_combat_is_near():
    """Its iteration stops at 1e-4, and its priors' variances are divided by the number of features, not by one less."""
    sc, anndata, pandas = (pytest.importorskip(name) for name in ("scanpy", "anndata", "pandas"))
    vary = np.arange(40) != 7
    cells = anndata.AnnData(
        X[:, vary].copy(), obs=pandas.DataFrame({"batch": pandas.Categorical(SITES)}, index=[f"c{i}" for i in range(100)])
    )
    theirs = sc.pp.combat(cells, inplace=False)
    assert np.abs(theirs - EXPECTED[:, vary]).max() < 3e-3 * np.abs(theirs - X[:, vary]).max()


def test_without_shrinkage_each_feature_of_each_site_is_centred_and_scaled_by_itself():
    pca = ep.FederatedPCA(2, solver="gram", prepare=[ep.prepare.BatchAdjust(shrink=False)]).fit(X, sites=SITES)
    within = sum(((X[s == SITES] - X[s == SITES].mean(axis=0)) ** 2).sum(axis=0) for s in "ABC") / len(X)
    rows = X[SITES == "C"]
    expected = X.mean(axis=0) + np.sqrt(within) * (rows - rows.mean(axis=0)) / np.where(
        within > 1e-20, rows.std(axis=0, ddof=1), 1
    )
    np.testing.assert_allclose(prepared(rows, pca.for_site(rows).preparation_), expected, rtol=1e-9)
    assert pca.between_site_share_ < 1e-12


def test_less_lies_between_the_sites():
    pca = fitted()
    assert pca.between_site_share_before_ > 0.3
    assert pca.between_site_share_ < 0.01


def test_only_sums_leave_and_no_site_tells_what_it_is_adjusted_by():
    pca = fitted()
    sent = {m.function: m.shapes for m in pca.ledger_ if m.receiver == "coordinator"}
    assert set(sent) == {"observed_sums", "observed_squares", "count_and_sum", "spread", "scatter_triangle"}
    step = pca.preparation_[0].arrays
    assert not step["own"]
    assert not step["shift"].any()


def test_without_a_sites_rows_new_ones_are_refused():
    pca = fitted()
    with pytest.raises(InputError, match=r"not in the model: use pca.for_site\(rows\).transform\(X\)"):
        pca.transform(X)
    new = X[SITES == "B"][:4]
    at_b = pca.for_site(X[SITES == "B"])
    expected = (EXPECTED[SITES == "B"][:4] - EXPECTED.mean(axis=0)) @ pca.components_.T
    np.testing.assert_allclose(at_b.transform(new), expected, atol=1e-8)
    assert pca.preparation_[0].arrays["own"] == np.bool_(False)  # the model itself is as it was


def test_models_are_saved_with_what_was_agreed_alone(tmp_path):
    pca = fitted()
    ep.save_model(pca, tmp_path / "model")
    again = ep.load_model(tmp_path / "model")
    rows = X[SITES == "A"]
    assert again.for_site(rows).transform(rows).tobytes() == pca.for_site(rows).transform(rows).tobytes()


def test_a_site_with_one_row_and_sparse_rows_are_refused():
    with pytest.raises(InputError, match="it needs two rows or more"):
        ep.FederatedPCA(2, prepare=[ep.prepare.BatchAdjust()]).fit({"A": X[:50], "B": X[50:51]})
    with pytest.raises(InputTypeError, match="'batch', which would fill them"):
        ep.FederatedPCA(2, prepare=[ep.prepare.BatchAdjust()]).fit(scipy.sparse.csr_matrix(X), sites=SITES)


def test_features_with_nothing_to_learn_from_are_standardized_plainly():
    rows = RNG.normal(size=(100, 1)) * np.where(SITES == "A", 3.0, 1.0)[:, None]
    two = np.hstack([rows, rows])  # whose locations and spreads do not differ
    pca = ep.FederatedPCA(1, solver="gram", prepare=[ep.prepare.BatchAdjust()]).fit(two, sites=SITES)
    at_a = prepared(two[SITES == "A"], pca.for_site(two[SITES == "A"]).preparation_)
    np.testing.assert_allclose(at_a.mean(axis=0), two.mean(axis=0), atol=1e-9)
