"""A fitted model as tables and as HTML."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

import eigenpact as ep

ROWS = np.random.default_rng(0).normal(size=(50, 4)) @ np.diag([4.0, 3.0, 2.0, 1.0]) + 5
TABLE = pd.DataFrame(ROWS, columns=list("abcd"))


def test_loadings_have_names():
    pca = ep.FederatedPCA(2).fit({"north": TABLE[:20], "south": TABLE[20:]})
    assert list(pca.loadings.index) == list("abcd")
    assert list(pca.loadings.columns) == ["PC1", "PC2"]
    assert np.allclose(pca.loadings.to_numpy().T, PCA(2).fit(ROWS).components_, atol=1e-7)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_covariance_is_scikit_learn_s(k):
    pca = ep.FederatedPCA(k).fit([ROWS[:20], ROWS[20:]])
    assert np.allclose(pca.get_covariance(), PCA(k).fit(ROWS).get_covariance())


def test_covariance_is_in_the_units_of_the_rows():
    pca = ep.FederatedPCA(2, scale="pooled").fit([ROWS[:20], ROWS[20:]])
    scaler = StandardScaler().fit(ROWS)
    ddof = pca.scale_ / scaler.scale_
    scaled = PCA(2).fit(scaler.transform(ROWS) / ddof)
    assert np.allclose(pca.get_covariance(), np.outer(pca.scale_, pca.scale_) * scaled.get_covariance())


def test_the_panel_says_what_was_found():
    empty = ep.FederatedPCA(2)
    assert "eigenpact-fitted" not in empty._repr_html_()
    pca = empty.fit({"<b>": ROWS[:20], "south": ROWS[20:]})
    for html in (pca._repr_html_(), pca._repr_mimebundle_()["text/html"]):
        assert html.count("eigenpact-fitted") == 1
        assert "2: &lt;b&gt;, south" in html
        assert f"{pca.ledger_.bytes_up:,} from sites" in html
        assert "yes: " in html
