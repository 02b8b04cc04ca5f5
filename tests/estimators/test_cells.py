"""AnnData in and out, as scanpy has it."""

from __future__ import annotations

import anndata
import numpy as np
import pytest
import scanpy
from scipy import sparse

import eigenpact as ep
from eigenpact.errors import InputError, InputTypeError


@pytest.fixture
def adata():
    rng = np.random.default_rng(0)
    X = rng.poisson(2.0, size=(60, 8)).astype(np.float64) * np.linspace(1, 3, 8)
    found = anndata.AnnData(sparse.csr_matrix(X))
    found.obs["hospital"] = ["north", "south", "west"] * 20
    found.var["wanted"] = np.arange(8) != 2
    return found


def test_the_result_is_scanpy_s_where_scanpy_puts_it(adata):
    other = adata.copy()
    scanpy.pp.pca(other, n_comps=3, mask_var="wanted", svd_solver="arpack")
    found = ep.pp.pca(adata, 3, sites="hospital", mask_var="wanted")
    assert found.sites_ == ("north", "south", "west")
    for ours, theirs in ((adata.obsm["X_pca"], other.obsm["X_pca"]), (adata.varm["PCs"], other.varm["PCs"])):
        signs = np.sign((ours * theirs).sum(axis=0))
        assert np.allclose(ours * signs, theirs, atol=1e-5)
    assert np.allclose(adata.uns["pca"]["variance_ratio"], other.uns["pca"]["variance_ratio"], atol=1e-6)
    assert not adata.varm["PCs"][2].any()


def test_wrong_names_are_told(adata):
    with pytest.raises(InputError, match=r"sites='town' is none of the columns of adata\.obs: hospital"):
        ep.pp.pca(adata, sites="town")
    with pytest.raises(InputError, match=r"layer='raw' is none of the adata\.layers: there are none"):
        ep.pp.pca(adata, layer="raw")
    with pytest.raises(InputTypeError, match="ndarray is no AnnData object"):
        ep.pp.pca(np.eye(3))


def test_highly_variable_genes_are_taken_unasked_as_scanpy_does():
    rng = np.random.default_rng(3)
    adata = anndata.AnnData(rng.normal(size=(40, 8)) * np.arange(1, 9))
    adata.var["highly_variable"] = np.arange(8) % 2 == 0
    adata.obs["hospital"] = ["north", "south"] * 20
    chosen = adata.X[:, ::2]
    expected = np.linalg.svd(chosen - chosen.mean(axis=0), compute_uv=False)[:2] ** 2 / 39
    np.testing.assert_allclose(ep.pp.pca(adata, 2, sites="hospital").explained_variance_, expected, rtol=1e-9)
    assert ep.pp.pca(adata, 2, mask_var=None).n_features_in_ == 8
    with pytest.raises(InputTypeError, match=r"name a column of adata.obs"):
        ep.pp.pca(adata, 2, sites=np.zeros(40))
