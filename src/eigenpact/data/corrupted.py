"""Low-rank rows with sparse gross errors, as the robust PCA paper makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from ..errors import InputError
from .synthetic import FloatArray, _positive_int, _row_counts, site_names

Errors = Literal["large", "own"]
Sites = dict[str, FloatArray]

OWN_REACH = 5.0
"""Errors of the data's own size are uniform within so many standard deviations of the low-rank entries."""


def corrupted_problem(
    n_features: int,
    n_rows: int,
    rank: int,
    share: float,
    *,
    errors: Errors = "large",
    sites: int | Sequence[int] = 1,
    seed: int = 0,
) -> tuple[Sites, Sites, Sites]:
    """Make a problem of the robust PCA paper's Section 4.1, split into sites: rows, their low-rank part, and the errors.

    L0 = V0 U0^T with standard normal V0 (n_rows x rank) and U0 (n_features x rank); a share of the entries, chosen at random,
    has an error added, +- sqrt(n_features n_rows) each (``errors="large"``), or uniform within five standard deviations of L0's
    entries (``errors="own"``), which are much harder to tell.

    Returns
    -------
    rows, low_rank, sparse : dicts from site to array (n_i x n_features); rows = low_rank + sparse

    Examples
    --------
    >>> rows, low_rank, sparse = corrupted_problem(20, 30, rank=2, share=0.1, sites=2)
    >>> rows["site0"].shape, int(sum((S != 0).sum() for S in sparse.values()))
    ((15, 20), 60)
    """
    d, n, r = (_positive_int(k, v) for k, v in (("n_features", n_features), ("n_rows", n_rows), ("rank", rank)))
    if not 0 <= share < 1:
        raise InputError(f"share={share!r} is not allowed; give the share of wrong entries, at least 0 and below 1")
    if errors not in get_args(Errors):
        raise InputError(f"errors={errors!r} must be one of {', '.join(get_args(Errors))}")
    counts = _row_counts(sites, n)
    rng = np.random.default_rng(seed)
    L = rng.standard_normal((n, r)) @ rng.standard_normal((d, r)).T
    flat = np.zeros(n * d)
    places = rng.choice(n * d, round(share * n * d), replace=False)
    if errors == "large":
        flat[places] = rng.choice([-1.0, 1.0], len(places)) * np.sqrt(n * d)
    else:
        flat[places] = rng.uniform(-OWN_REACH, OWN_REACH, len(places)) * np.sqrt(r)
    S = flat.reshape(n, d)
    cuts = np.cumsum(counts)[:-1]
    names = site_names(len(counts))
    rows, low_rank, sparse = (dict(zip(names, np.split(A, cuts), strict=True)) for A in (L + S, L, S))
    return rows, low_rank, sparse
