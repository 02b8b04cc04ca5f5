"""Counts, sums and squares of the entries that are there, feature by feature: what several preparers begin with.

Problem
    Site i holds rows X_i (n_i x d), perhaps with holes (NaN).  Wanted are the pooled means of the observed entries of each
    feature, and their squared deviations: within the sites, about each site's own mean, and between them.

Rounds
    1. Sum of n_i, of the observed entries by feature, and of their values.
    2. Sum of squares about the site's own mean m_i, and of n_ij (m_ij - m_j)^2.  What is told, m, meets no single entry.
    Or, where both together are enough:
    2. Sums of the entries and of their squares as pairs of doubles, from which squares about m follow without loss.

    The first form tells few sites' means apart, in secured sums, too (``second_moments.py`` says how), so a site's policy must
    allow it there (``allow_site_means``), and how much lies between sites is not asked where sums are secured.

Leaves the site
    n_i and three vectors of length d (of pairs, in the other form), all summed.  Of a feature of which a site has fewer observed
    entries than its rule ``min_rows`` it tells nothing, as if it had none: the pooled numbers are then those of the others.

References
    T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for computing the sample variance", Am. Stat. 37 (1983), on two passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ...errors import InputError
from ...numerics.blocks import blocks_there
from ...numerics.elsewhere import namespace, to_numpy
from ...numerics.linalg import Array
from ...numerics.pairs import column_pairs, deviations
from ...numerics.preparation import check_preparable
from ...numerics.site_rows import own_mean
from ...runtime import Site, Sum, local
from ..method import Part
from ..second_moments import with_place


@local(
    sends={"n": "", "observed": "d", "sums": "d"},
    bound={"n": "count", "observed": "count", "sums": "rows"},
    setup=True,
    holes=True,
)
def observed_sums(site: Site) -> Any:
    """Number of rows, and by feature the number of observed entries and their sum."""
    check_preparable(site.X)
    observed, own, _ = own_moments(site.X, site.min_rows)
    return np.int64(site.X.shape[0]), observed, observed * own


@local(
    takes={"mean": "d"},
    sends={"within": "d", "between": "d"},
    bound="squares",
    means={"mean": "centre"},
    setup=True,
    site_means=True,
    holes=True,
)
def observed_squares(site: Site, mean: Array) -> Any:
    """By feature, squared deviations of the observed entries about the site's own mean, and n_ij (m_ij - m_j)^2."""
    observed, own, within = own_moments(site.X, site.min_rows)
    return within, observed * (own - mean) ** 2


@local(sends={"sums": "d 2", "squares": "d 2"}, bound="pair", setup=True, holes=True)
def observed_pairs(site: Site) -> Any:
    """By feature, sums of the observed entries and of their squares, as pairs of doubles."""
    observed, _, _ = own_moments(site.X, site.min_rows)
    told = (observed > 0)[:, None]
    return tuple(np.where(told, with_place(pairs), 0.0) for pairs in column_pairs(site.X, holes=True))


def own_moments(X: Any, least: int) -> tuple[NDArray[np.int64], Array, Array]:
    """Observed entries of X (n x d) by feature, their mean and squares about it; zeros where there are fewer than ``least``.

    >>> X = np.array([[1.0, np.nan], [3.0, 5.0]])
    >>> [a.tolist() for a in own_moments(X, 1)], own_moments(X, 2)[0].tolist()
    ([[2, 1], [2.0, 5.0], [2.0, 0.0]], [2, 0])
    """
    n, d = (int(size) for size in X.shape)
    observed = np.full(d, n)
    if not (scipy.sparse.issparse(X) or getattr(X, "sparse", False)):
        for where, _, seen in blocks_there(X, None, None):
            if seen is not None:
                observed += to_numpy(namespace(seen).count_nonzero(seen, axis=0)).astype(np.int64) - (where.stop - where.start)
    if np.all(observed == n):
        own, within = own_mean(X)
        mean = own.sum(axis=0)
    else:
        mean, within = _with_holes(X, observed)
    told = observed >= max(1, least)
    return np.where(told, observed, 0), np.where(told, mean, 0.0), np.where(told, within, 0.0)


def _with_holes(X: Any, observed: NDArray[np.int64]) -> tuple[Array, Array]:
    """Means (d,) and squares about them (d,) of what is there, in two passes."""
    d, count = len(observed), np.maximum(observed, 1)
    mean = sum((_sums(M) for _, M, _ in blocks_there(X, None, None)), np.zeros(d)) / count
    left, squares = np.zeros(d), np.zeros(d)
    for _, M, _ in blocks_there(X, mean, None):  # holes are zero in M
        left += _sums(M)
        squares += _sums(M * M)
    left /= count
    return mean + left, np.maximum(squares - observed * left**2, 0.0)


def _sums(M: Any) -> Array:
    return to_numpy(namespace(M).sum(M, axis=0))


@dataclass(frozen=True, eq=False)
class Moments:
    """Pooled numbers by feature: rows, observed entries, mean, squares within and between sites."""

    n: int
    observed: NDArray[np.int64]
    mean: Array
    within: Array
    between: Array


async def pooled_means() -> tuple[int, NDArray[np.int64], Array]:
    """Number of rows, observed entries (d,) and their means (d,), 0 where there are none."""
    n, observed, sums = await Sum(observed_sums)  # round 1
    return int(n), observed, sums / np.maximum(observed, 1)


async def pooled_moments() -> Moments:
    """As above, with squared deviations."""
    n, observed, mean = await pooled_means()
    within, between = await Sum(observed_squares, mean)  # round 2
    return Moments(n, observed, mean, within, between)


async def pooled_squares() -> tuple[NDArray[np.int64], Array, Array]:
    """Observed entries (d,), their means (d,) and squared deviations about these (d,), which tell no site's mean."""
    _, observed, mean = await pooled_means()
    sums, squares = await Sum(observed_pairs)  # round 2
    return observed, mean, deviations(observed, mean, sums, squares)


async def share_between() -> float:
    """The share of the variance of the rows, as they are now, that lies between the sites' means."""
    found = await pooled_moments()
    total = float(found.within.sum() + found.between.sum())
    if not np.isfinite(total):
        raise InputError("the squares of the values overflow; give the data in other units, for example divided by 1e100")
    return float(found.between.sum()) / total if total > 0 else 0.0


MOMENTS = Part(
    "Rows before they are prepared",
    {Sum: (observed_sums, observed_squares)},
    "Before the first preparer of `prepare=`, for the share of variance between sites, unless sums are secured; and of some of "
    "the preparers.",
)
