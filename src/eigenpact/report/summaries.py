"""A model in numbers: what ``eigenpact show`` prints, for programs."""

from __future__ import annotations

import math
from typing import Any

from ..estimators import FederatedPCA
from ..release import __version__
from .messages import were_secured, what_left


def summary_of(pca: FederatedPCA) -> dict[str, Any]:
    """What a fitted model is, how it was found and what left each site, as JSON can hold it."""
    names = getattr(pca, "feature_names_in_", None)
    return {
        "eigenpact": __version__,
        "sites": list(pca.sites_),
        "n_samples": int(pca.n_samples_seen_),
        "weight_sum": _number(pca.weight_sum_),
        "n_features": int(pca.n_features_in_),
        "feature_names": None if names is None else [str(name) for name in names],
        "n_components": int(pca.n_components_),
        "center": pca.center or None,
        "scale": pca.scale or None,
        "solver": pca.solver_,
        "secured": were_secured(pca.ledger_),
        "rounds": pca.n_rounds_,
        "setup_rounds": pca.n_setup_rounds_,
        "bytes_from_sites": pca.ledger_.bytes_up,
        "bytes_to_sites": pca.ledger_.bytes_down,
        "converged": bool(pca.converged_),
        "stop_reason": pca.stop_reason_,
        "angle_estimate": _number(pca.angle_estimate_),
        "between_site_share": _number(pca.between_site_share_),
        "explained_variance": [float(value) for value in pca.explained_variance_],
        "explained_variance_ratio": [float(value) for value in pca.explained_variance_ratio_],
        "left": [
            {
                "function": row.function,
                "setup": row.setup,
                "to": row.receiver,
                "arrays": row.shapes,
                "times": row.times,
                "bytes_per_site": row.bytes_per_site,
                "bytes": row.bytes,
            }
            for row in what_left(pca.ledger_)
        ],
    }


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
