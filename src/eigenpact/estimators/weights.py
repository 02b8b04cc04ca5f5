"""From ``sample_weight`` to weights for each site's rows: checked, and told by the site's name what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.checks import checked_weights
from ..errors import InputError
from ..numerics.weighted import Weighted, weighted
from .inputs import is_several_sites

Weights = NDArray[np.float64]


def with_weights(held: Mapping[str, Any], X: Any, sites: Any, sample_weight: Any) -> dict[str, Weighted]:
    """The sites' rows (site -> rows) with what ``fit(X, sites=sites, sample_weight=...)`` was given as their weights.

    Rows of weight zero are left out.
    """
    given = _by_site(tuple(held), X, sites, sample_weight)
    return {name: weighted(rows, checked_weights(name, given[name], int(rows.shape[0]))) for name, rows in held.items()}


def check_weightable(*, missing: str, prepare: Any, solver: Any) -> None:
    """Refuse what does not go with ``sample_weight``."""
    whose = "weights of rows (sample_weight) do not go with"
    if missing != "refuse":
        raise InputError(
            f"{whose} missing={missing!r}, which fills holes as if all rows counted the same; fill them before, or leave one out"
        )
    if len(prepare):
        raise InputError(
            f"{whose} prepare, which finds what it does as if all rows counted the same; prepare the rows before, or leave one "
            "out (scale='pooled' takes weights)"
        )
    merge = getattr(solver, "merge", "projection" if solver == "one-shot" else "svd")
    if merge not in ("svd", "stack"):
        raise InputError(
            f"{whose} one-shot merges by {merge!r}, which weigh sites by their numbers of rows; use "
            "ep.solvers.OneShot(merge='svd'), or another solver"
        )


def _by_site(names: tuple[str, ...], X: Any, sites: Any, given: Any) -> dict[str, Any]:
    """What was given for each site."""
    if isinstance(given, Mapping):
        found = {str(name): weights for name, weights in given.items()}
        lacking, unknown = sorted(set(names) - set(found)), sorted(set(found) - set(names))
        if lacking or unknown:
            told = f"lacks site {lacking[0]!r}" if lacking else f"names {unknown[0]!r}, which is no site"
            raise InputError(f"sample_weight {told}; give weights for each of {', '.join(names)}")
        return found
    if sites is not None:
        labels, every = np.asarray(sites).reshape(-1), np.asarray(given)
        if every.shape != labels.shape:
            raise InputError(f"sample_weight has shape {every.shape} for {len(labels)} rows; give one weight per row of X")
        of_rows = np.array([str(label) for label in labels], dtype=object)
        return {name: every[of_rows == name] for name in names}
    if is_several_sites(X):
        if isinstance(X, Mapping) or not isinstance(given, list | tuple) or len(given) != len(names):
            wanted = "a dict with weights for each site" if isinstance(X, Mapping) else "a list with an array for each site"
            raise InputError(f"sample_weight is {type(given).__name__}, and X has {len(names)} sites; give {wanted}")
        if all(isinstance(weight, Real) for weight in given):
            raise InputError("sample_weight is a list of numbers, and X has several sites; give a list with an array for each")
        return dict(zip(names, given, strict=True))
    return {names[0]: given}
