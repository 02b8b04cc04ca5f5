"""What sites agree on of the entries that they have: counts, means and spread of each feature.

Problem
    Site i holds rows X_i (n_i x d), some entries missing (NaN).  Wanted are, for each feature over all sites, the number of
    entries that are there, their mean, and their squared deviations from it.

Rounds
    1. Sum of sites, rows, entries that are there, and of these entries, by feature.
    2. Sum of squared deviations about the mean, by feature, and of n_ij (m_ij - m_j)^2 over all of them: a second pass.
    Then every site is told centre and scale once, and keeps them.

Leaves the site
    n_i, three vectors of length d and a number, all summed.  Whoever sees a single reply learns how many entries of a feature
    the site lacks; a feature that it has once is told as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse

from ...errors import InputError
from ...numerics.either import there
from ...numerics.elsewhere import is_elsewhere, namespace, to_numpy
from ...numerics.holes import blocks_of
from ...numerics.linalg import Array
from ...numerics.rows import DEVICE_BLOCK_BYTES, block_rows
from ...runtime import Local, Reply, Site, Sum, local
from ...runtime.rare import DROPPED
from ..method import Part
from ..parameters import check_n_components
from ..rare import without_rare
from ..setup import LARGEST_TRACE, Problem, Setup
from ..spread import OTHER_UNITS

FEW_DIGITS = 1e-13
"""Deviations below this share of the mean may be rounding errors of it."""


@local(
    sends={"sites": "", "singles": "", "n": "", "seen": "d", "sums": "d"},
    bound={"sites": "count", "singles": "count", "n": "count", "seen": "count", "sums": "rows"},
    setup=True,
    holes=True,
)
def sum_observed(site: Site) -> Any:
    """One, one if the rows are single precision, rows, and by feature the number and the sum of entries that are there.

    Rows without any entry do not count: they say nothing about any model.
    """
    d = int(site.X.shape[1])
    n, seen, sums = 0, np.zeros(d, dtype=np.int64), np.zeros(d)
    for X, here in observed(site.X):
        n += int(namespace(here).count_nonzero(namespace(here).any(here, axis=1)))
        count = _counts(here)
        centre = _sums(X, here) / np.maximum(1, count)
        sums += count * centre + _sums(X - there(centre, X), here)  # which gives back what a long sum loses
        seen += count
    return np.int64(1), np.int64(str(site.X.dtype).endswith("float32")), np.int64(n), seen, sums


@local(
    takes={"mean": "d"},
    sends={"squares": "d", "between": ""},
    bound="squares",
    means={"mean": "centre"},
    setup=True,
    holes=True,
)
def spread_observed(site: Site, mean: Array) -> Any:
    """By feature, squared deviations from the mean of entries that are there; and what the site's own means have of them all."""
    d = int(site.X.shape[1])
    squares, sums, seen, m = np.zeros(d), np.zeros(d), np.zeros(d), there(mean, site.X)
    for X, here in observed(site.X):
        Y = X - m
        squares, sums, seen = squares + _sums(Y * Y, here), sums + _sums(Y, here), seen + _counts(here)
    return squares, np.float64(np.minimum(sums**2 / np.maximum(1.0, seen), squares).sum())


@local(
    takes={"mean": "d", "scale": "d"},
    keeps=("mean", "scale"),
    means={"mean": "centre", "scale": "scale"},
    setup=True,
    once=True,
    holes=True,
)
def keep_observed_centre(site: Site, mean: Array, scale: Array) -> Reply:  # noqa: ARG001
    """Remember the agreed centre and scale."""
    return Reply(keep={"mean": mean, "scale": scale})


def _sums(Y: Any, here: Any) -> Array:
    """Sums of the columns (d,) of the entries that are there."""
    xp = namespace(Y)
    return to_numpy(xp.sum(xp.where(here, Y, 0.0), axis=0))


def _counts(here: Any) -> Any:
    """How many entries of each column (d,) are there."""
    return to_numpy(namespace(here).count_nonzero(here, axis=0))


def observed(X: Any, dropped: Any = None, k: int = 1) -> Iterator[tuple[Any, Any]]:
    """Rows (n x d) a block at a time, in double precision, and which entries are there; none of columns that were dropped.

    Blocks are small enough for a k x k matrix a row.  Entries that a sparse matrix does not store are zeros, not missing.
    Rows of another library stay where they are, and blocks are larger.
    """
    if is_elsewhere(X):
        xp, (n, d) = namespace(X), (int(size) for size in X.shape)
        kept = np.ones(d, dtype=np.bool_)
        kept[np.zeros(0, dtype=np.intp) if dropped is None else np.asarray(dropped)] = False
        mask, step = there(kept, X), block_rows(max(d, k * k), DEVICE_BLOCK_BYTES)
        for first in range(0, n, step):
            part = xp.astype(X[first : min(first + step, n), :], xp.float64)
            yield part, ~xp.isnan(part) & mask
        return
    for where in blocks_of(int(X.shape[0]), int(X.shape[1]), k):
        block = X[where]
        rows = np.asarray(block.toarray() if scipy.sparse.issparse(block) else block, dtype=np.float64)
        seen = ~np.isnan(rows)
        if dropped is not None:
            seen[:, np.asarray(dropped)] = False
        yield rows, seen


def holed_rows(site: Site, k: int) -> Iterator[tuple[Any, Any]]:
    """The site's rows about the agreed centre, in the agreed scale, and which entries are there, a block at a time."""
    mean, scale = there(site.kept["mean"], site.X), there(site.kept["scale"], site.X)
    for X, seen in observed(site.X, site.kept.get(DROPPED), k):
        yield (X - mean) / scale, seen


@dataclass(frozen=True, eq=False)
class ObservedSetup(Setup):
    """What the sites agreed on, of rows with holes; ``trace`` is n times the sum of the features' variances.

    Attributes
    ----------
    seen : (d,) array
        Entries of each feature that are there; 0 for features that were dropped.
    variances : (d,) array
        Of each feature about the centre, in the scale in use.
    """

    seen: Array = field(kw_only=True)
    variances: Array = field(kw_only=True)


async def agree_on_observed(problem: Problem, names: tuple[str, ...] = ()) -> ObservedSetup:
    """Agree on counts, centre and scale of the entries that are there; ``names`` are those of the features, if known."""
    dropped = await without_rare(problem.min_nonzero)
    n_sites, n_single, n_rows, seen, sums = await Sum(sum_observed)  # round 1
    check_observed(seen, names)
    n, d = int(n_rows), len(seen)
    seen = np.array(seen)
    seen[list(dropped)] = 0  # they are zero in all rows, and no part of the model
    count = np.maximum(seen, 1)
    mean = sums / count
    n_components = check_n_components(problem.n_components, n, d - len(dropped))
    squares, between = await Sum(spread_observed, mean)  # round 2
    scale = np.ones(d)
    if problem.scale is not None:
        deviations = np.sqrt(squares / count)
        scale = np.where(deviations <= FEW_DIGITS * np.abs(mean), 1.0, deviations)
    variances = squares / count / scale**2
    centre = mean if problem.center == "pooled" else np.zeros(d)
    if problem.center is False:
        variances = variances + (mean / scale) ** 2
    total = n * float(variances.sum())
    if not np.isfinite(total) or total > LARGEST_TRACE or 0 < total < 1 / LARGEST_TRACE:
        raise InputError(f"the squares of the values overflow or underflow; {OTHER_UNITS} times or divided by 1e100")
    await Local(keep_observed_centre, centre, scale)
    return ObservedSetup(
        n_sites=int(n_sites),
        single=bool(n_single == n_sites),
        n_samples=n,
        n_features=d,
        mean=mean,
        scale=scale,
        trace=total,
        grain=0.0,
        between_share=float(between / squares.sum()) if squares.any() else 0.0,
        offset=0.0 if problem.center is False else float(np.hypot.reduce(mean / scale)),
        n_components=n_components,
        center=problem.center,
        tol=problem.tol,
        max_rounds=problem.max_rounds,
        seed=problem.seed,
        dropped=dropped,
        seen=seen.astype(np.float64),
        variances=variances,
    )


def check_observed(seen: Any, names: tuple[str, ...] = ()) -> None:
    """Refuse features of which no site has an entry."""
    empty = np.flatnonzero(seen == 0).tolist()
    if empty:
        shown = ", ".join(repr(names[j]) if len(names) == len(seen) else str(j) for j in empty[:5])
        more = f" and {len(empty) - 5} more" if len(empty) > 5 else ""
        raise InputError(f"feature {shown}{more}: every entry is missing at every site; leave such features out")


OBSERVED = Part(
    "Set-up where missing entries are modelled",
    {Sum: (sum_observed, spread_observed), Local: (keep_observed_centre,)},
)
