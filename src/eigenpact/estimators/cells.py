"""Cells in an AnnData object: the joint PCA of the sites that they come from, written where scanpy looks for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InputError, InputTypeError
from .pca import FederatedPCA


def pca(
    adata: Any,
    n_comps: int = 50,
    *,
    sites: str | None = None,
    layer: str | None = None,
    mask_var: str | None = "auto",
    **more: Any,
) -> FederatedPCA:
    """Fit the joint PCA of cells, and write it into ``adata`` as ``scanpy.pp.pca`` does.

    Parameters
    ----------
    adata : AnnData
    n_comps : int
        Components; at most as many as cells and genes allow.
    sites : str, optional
        Column of ``adata.obs`` that says to which site a cell belongs; without it all cells are one site's.
    layer : str, optional
        Which of ``adata.layers`` to take instead of ``adata.X``.
    mask_var : str or None
        Column of ``adata.var`` that says which genes take part; the loadings of the others are zero.  "auto" takes
        "highly_variable" where there is such a column, as scanpy does; None takes all genes.
    more
        Parameters of :class:`eigenpact.FederatedPCA`.

    Returns
    -------
    The fitted estimator.  ``adata`` then has ``obsm["X_pca"]``, ``varm["PCs"]`` and ``uns["pca"]``.
    """
    if not (hasattr(adata, "obs") and hasattr(adata, "var") and hasattr(adata, "obsm")):
        raise InputTypeError(f"{type(adata).__name__} is no AnnData object; fit arrays and tables with ep.FederatedPCA")
    if not (sites is None or isinstance(sites, str)):
        raise InputTypeError(
            f"sites is {type(sites).__name__}; name a column of adata.obs, or give labels to ep.FederatedPCA.fit"
        )
    if mask_var == "auto":
        mask_var = "highly_variable" if "highly_variable" in adata.var else None
    genes = _genes(adata, mask_var)
    X = adata.X if layer is None else _named(adata.layers, layer, "layer", "adata.layers")
    X = X if genes.all() else X[:, np.flatnonzero(genes)]
    labels = None if sites is None else np.asarray(_named(adata.obs, sites, "sites", "columns of adata.obs"))
    found = FederatedPCA(min(n_comps, X.shape[0] - 1, X.shape[1]), **more).fit(X, sites=labels)
    components = np.zeros((adata.shape[1], found.n_components_), dtype=found.components_.dtype)
    components[genes] = found.components_.T
    adata.obsm["X_pca"], adata.varm["PCs"] = found.transform(X), components
    adata.uns["pca"] = {
        "params": {"zero_center": found.center is not False, "use_highly_variable": mask_var == "highly_variable"},
        "variance": found.explained_variance_,
        "variance_ratio": found.explained_variance_ratio_,
    }
    return found


def _genes(adata: Any, mask_var: str | None) -> Any:
    if mask_var is None:
        return np.ones(adata.shape[1], dtype=bool)
    mask = np.asarray(_named(adata.var, mask_var, "mask_var", "columns of adata.var"))
    if mask.dtype != bool:
        raise InputTypeError(f"mask_var={mask_var!r} has dtype {mask.dtype}; give a column of True and False")
    return mask


def _named(where: Any, name: str, parameter: str, place: str) -> Any:
    if name not in where:
        raise InputError(f"{parameter}={name!r} is none of the {place}: {', '.join(map(str, where)) or 'there are none'}")
    return where[name]
