"""A fitted model as tables: loadings with names, and the covariance that it stands for."""

from __future__ import annotations

import importlib
from html import escape
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..errors import MissingExtraError

SHOWN_SITES = 8


class ModelTables:
    """A fitted model's loadings and covariance; and a panel below scikit-learn's HTML: sites, rounds, bytes, how sure it is."""

    @property
    def loadings(self) -> Any:
        """What each feature weighs in each component, as a DataFrame with a row for each feature; needs pandas."""
        check_is_fitted(self)
        return loadings_table(self)

    def get_covariance(self) -> Any:
        """The covariance (n_features x n_features) of rows as the model has it, with noise outside of the components.

        That of rows after they were prepared, in their own units where columns were scaled.
        """
        check_is_fitted(self)
        return model_covariance(self)

    def _repr_html_inner(self) -> str:
        return str(super()._repr_html_inner()) + fitted_panel(self)  # type: ignore[misc]

    def _repr_mimebundle_(self, **more: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**more)  # type: ignore[misc]
        return {kind: text + (fitted_panel(self) if kind == "text/html" else "") for kind, text in bundle.items()}


def fitted_panel(pca: Any) -> str:
    """A small table in HTML; empty if nothing was fitted."""
    if not hasattr(pca, "converged_") or not hasattr(pca, "ledger_"):
        return ""
    names = ", ".join(pca.sites_[:SHOWN_SITES]) + (" ..." if len(pca.sites_) > SHOWN_SITES else "")
    angle = getattr(pca, "angle_estimate_", None)
    facts = {
        "sites": f"{len(pca.sites_)}: {names}",
        "rounds": f"{pca.n_rounds_}, and {pca.n_setup_rounds_} of set-up",
        "bytes": f"{pca.ledger_.bytes_up:,} from sites, {pca.ledger_.bytes_down:,} to sites",
        "converged": f"{'yes' if pca.converged_ else 'NO'}: {pca.stop_reason_}",
        "angle": "unknown" if angle is None else f"sine about {angle:.1e}",
    }
    rows = "".join(f"<tr><th style='text-align:left'>{name}</th><td>{escape(told)}</td></tr>" for name, told in facts.items())
    return f"<table class='eigenpact-fitted'>{rows}</table>"


def loadings_table(pca: Any) -> Any:
    """A DataFrame with a row for each feature and a column for each component."""
    try:
        pandas = importlib.import_module("pandas")
    except ImportError as error:
        raise MissingExtraError(f"loadings as a table need pandas ({error}); run: pip install 'eigenpact[pandas]'") from error
    names = getattr(pca, "feature_names_in_", None)
    index = range(pca.n_features_in_) if names is None else [str(name) for name in names]
    return pandas.DataFrame(pca.components_.T, index=index, columns=[f"PC{j + 1}" for j in range(pca.n_components_)])


def model_covariance(pca: Any) -> Any:
    """S (V (L - s I) V^T + s I) S: components V, variances L, noise s, scales S of the columns; 0 where columns were dropped."""
    V, noise = pca.components_.T.astype(np.float64), float(pca.noise_variance_)
    inside = np.maximum(pca.explained_variance_.astype(np.float64) - noise, 0.0)
    covariance = (V * inside) @ V.T
    there = np.ones(len(V))
    there[list(pca.dropped_features_)] = 0.0
    covariance[np.diag_indices_from(covariance)] += noise * there
    scale = pca.scale_.astype(np.float64)
    return scale[:, None] * covariance * scale
