"""For cells, in the words of scanpy: ``ep.pp.pca(adata, sites="hospital")`` in place of ``sc.pp.pca(adata)``.

>>> import anndata, numpy as np, eigenpact as ep
>>> adata = anndata.AnnData(np.random.default_rng(0).normal(size=(30, 5)))
>>> adata.obs["hospital"] = ["north", "south"] * 15
>>> ep.pp.pca(adata, 2, sites="hospital").sites_
('north', 'south')
>>> adata.obsm["X_pca"].shape, adata.varm["PCs"].shape
((30, 2), (5, 2))
"""

from .estimators.cells import pca

__all__ = ["pca"]
