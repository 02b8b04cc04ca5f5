"""Split one table into sites.

Every function takes X (n_rows x n_features: a numpy array, a scipy sparse matrix or a pandas DataFrame) and returns a dict from
site name to the rows of that site, n_i x n_features, of the same kind as X.  Every row lands in exactly one site, rows keep their
order within a site, no site is empty, and names are sorted; numbers in names are padded with zeros so that this order is natural.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ..errors import InputError, InputTypeError
from .synthetic import _positive_int, site_names

Rows = NDArray[np.intp]


def by_label(X: Any, y: ArrayLike) -> dict[str, Any]:
    """Make one site per class, the most uneven split there is.

    ``y`` has one label per row of X (length n_rows).  Numbers become "label0", "label1", ...; text is used as it is.

    >>> sites = by_label(np.arange(8.0).reshape(4, 2), [1, 0, 1, 10])
    >>> {name: rows[:, 0].tolist() for name, rows in sites.items()}
    {'label00': [2.0], 'label01': [0.0, 4.0], 'label10': [6.0]}
    """
    return _by_values(X, y, "y", "label")


def by_group(X: Any, groups: ArrayLike) -> dict[str, Any]:
    """Make one site per group: a writer, a hospital, a station.

    ``groups`` has one entry per row of X (length n_rows).  Numbers become "group0", "group1", ...; text is used as it is.

    >>> sites = by_group(np.eye(3), ["north", "south", "north"])
    >>> {name: rows.shape for name, rows in sites.items()}
    {'north': (2, 3), 'south': (1, 3)}
    """
    return _by_values(X, groups, "groups", "group")


def random(X: Any, n_sites: int, seed: int = 0) -> dict[str, Any]:
    """Deal the rows out at random to ``n_sites`` sites whose row counts differ by at most one.

    >>> [len(rows) for rows in random(np.ones((10, 2)), 3).values()]
    [4, 3, 3]
    """
    n_rows = _count_rows(X)
    n_sites = _site_count(n_sites, n_rows)
    order = np.random.default_rng(seed).permutation(n_rows)
    return _take_all(X, np.array_split(order, n_sites))


def unequal(X: Any, sizes: Sequence[float], seed: int = 0) -> dict[str, Any]:
    """Deal the rows out at random to sites of the given sizes.

    ``sizes`` are row counts (whole numbers summing to n_rows) or proportions (at least one of them a float, summing to 1).
    Proportions are rounded by largest remainders, and no site is left without a row.

    >>> [len(rows) for rows in unequal(np.ones((10, 2)), [7, 2, 1]).values()]
    [7, 2, 1]
    >>> [len(rows) for rows in unequal(np.ones((10, 2)), [0.9, 0.09, 0.01]).values()]
    [8, 1, 1]
    """
    n_rows = _count_rows(X)
    counts = _counts_from(sizes, n_rows)
    order = np.random.default_rng(seed).permutation(n_rows)
    return _take_all(X, np.split(order, np.cumsum(counts)[:-1]))


def dirichlet(X: Any, y: ArrayLike, n_sites: int, alpha: float, seed: int = 0, min_rows: int = 1) -> dict[str, Any]:
    """Split each class over the sites by proportions drawn from a symmetric Dirichlet(alpha) distribution.

    Small ``alpha`` gives sites with few classes each, large ``alpha`` nearly equal mixtures.  ``y`` has one label per row of X
    (length n_rows).  A site that ends with fewer than ``min_rows`` rows receives rows drawn at random from the largest sites.

    >>> y = np.repeat([0, 1], 50)
    >>> sites = dirichlet(np.ones((100, 2)), y, n_sites=4, alpha=0.5, min_rows=5)
    >>> sum(len(rows) for rows in sites.values()), min(len(rows) for rows in sites.values()) >= 5
    (100, True)
    """
    n_rows = _count_rows(X)
    n_sites = _site_count(n_sites, n_rows)
    if isinstance(min_rows, bool) or not isinstance(min_rows, Integral) or not 1 <= min_rows <= n_rows // n_sites:
        raise InputError(
            f"min_rows={min_rows!r} is not allowed for {n_rows} rows on {n_sites} sites; "
            f"give a whole number from 1 to {n_rows // n_sites}, or fewer sites"
        )
    if isinstance(alpha, bool) or not isinstance(alpha, Real) or not 1e-3 <= float(alpha) <= 1e6:
        raise InputError(f"alpha={alpha!r} is not allowed; give a number from 0.001 (few classes per site) to 1e6 (equal)")
    _, labels = np.unique(_names_of(y, n_rows, "y", "label"), return_inverse=True)
    rng = np.random.default_rng(seed)
    held: list[list[Rows]] = [[] for _ in range(n_sites)]
    for label in range(int(labels.max()) + 1):
        rows = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(n_sites, float(alpha)))
        cuts = np.minimum(np.round(np.cumsum(shares)[:-1] * rows.size).astype(np.intp), rows.size)
        for site, part in zip(held, np.split(rows, cuts), strict=True):
            site.append(part)
    parts = [np.concatenate(site) for site in held]
    return _take_all(X, _top_up(parts, int(min_rows), rng))


def _top_up(parts: list[Rows], min_rows: int, rng: np.random.Generator) -> list[Rows]:
    """Move random rows from the largest parts to those below ``min_rows``; the total never changes."""
    for i in range(len(parts)):
        while parts[i].size < min_rows:
            largest = max(range(len(parts)), key=lambda j: parts[j].size)
            spare = min(parts[largest].size - min_rows, min_rows - parts[i].size)
            mixed = rng.permutation(parts[largest])
            parts[i], parts[largest] = np.concatenate([parts[i], mixed[:spare]]), mixed[spare:]
    return parts


def _by_values(X: Any, values: ArrayLike, argument: str, prefix: str) -> dict[str, Any]:
    names = _names_of(values, _count_rows(X), argument, prefix)
    table = _indexable(X)
    unique, codes = np.unique(names, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    stops = np.cumsum(np.bincount(codes))[:-1]
    return {str(name): _take(table, rows) for name, rows in zip(unique, np.split(order, stops), strict=True)}


def _names_of(values: ArrayLike, n_rows: int, argument: str, prefix: str) -> NDArray[np.str_]:
    """Return a site name for each row (length n_rows)."""
    array = np.asarray(values)
    if array.shape != (n_rows,):
        raise InputError(f"{argument} has shape {array.shape}, X has {n_rows} rows; give one entry per row: ({n_rows},)")
    if array.dtype.kind == "O":
        for row, value in enumerate(array):
            if not isinstance(value, str | Real | np.generic) or value != value:
                raise InputError(f"{argument}[{row}]={value!r} is not a label; give text or a number for every row")
        if all(isinstance(value, Real) for value in array):
            array = array.astype(np.float64)
    elif array.dtype.kind in "fmM" and bool(np.any(array != array)):
        row = int(np.flatnonzero(array != array)[0])
        raise InputError(f"{argument}[{row}] is missing; drop that row or give it a label")
    elif array.dtype.kind not in "biufUmM":
        raise InputTypeError(f"{argument} has dtype {array.dtype}; give text or numbers, one per row")
    unique, codes = np.unique(array.astype(str) if array.dtype.kind == "O" else array, return_inverse=True)
    labels = _format_unique(unique, prefix)
    if "" in labels or len(set(labels)) < len(labels):
        raise InputError(f"{argument} has empty or coinciding labels among {labels[:5]}; give each site its own name")
    named: NDArray[np.str_] = np.asarray(labels)[codes]
    return named


def _format_unique(unique: NDArray[Any], prefix: str) -> list[str]:
    if unique.dtype.kind == "f" and bool(np.all((np.abs(unique) < 2**53) & (unique == np.round(unique)))):
        unique = unique.astype(np.int64)
    if unique.dtype.kind in "iu":
        width = max(len(str(value)) for value in unique.tolist())
        return [f"{prefix}{value:0{width}d}" for value in unique.tolist()]
    return [value if isinstance(value, str) else f"{prefix}{value}" for value in unique.tolist()]


def _counts_from(sizes: Sequence[float], n_rows: int) -> NDArray[np.intp]:
    """Turn row counts or proportions into row counts, each at least 1, summing to n_rows."""
    wanted = list(sizes)
    if not wanted or any(isinstance(s, bool) or not isinstance(s, Real) for s in wanted):
        raise InputError(f"sizes={wanted!r} is not allowed; give a list of row counts or of proportions")
    _site_count(len(wanted), n_rows)
    if any(not 0 < s < math.inf for s in wanted):
        raise InputError(f"sizes={wanted!r} has an entry that is not positive; every site needs a row")
    if all(isinstance(s, Integral) for s in wanted):
        if sum(wanted) != n_rows:
            raise InputError(
                f"sizes={wanted!r} sum to {sum(wanted)}, X has {n_rows} rows; "
                "give counts that sum to the rows, or proportions (floats) that sum to 1"
            )
        return np.asarray(wanted, dtype=np.intp)
    if abs(sum(wanted) - 1.0) > 1e-9:
        raise InputError(f"sizes={wanted!r} sum to {sum(wanted)}; proportions must sum to 1: divide them by their sum")
    exact = np.asarray(wanted, dtype=np.float64) / sum(wanted) * n_rows
    counts = np.floor(exact).astype(np.intp)
    short = n_rows - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:short]] += 1
    for empty in np.flatnonzero(counts == 0):
        counts[np.argmax(counts)] -= 1
        counts[empty] = 1
    return counts


def _count_rows(X: Any) -> int:
    shape = X.shape if hasattr(X, "shape") else np.shape(X)
    if len(shape) != 2:
        raise InputError(f"X has shape {tuple(shape)}; give a table, n_rows x n_features")
    if shape[0] == 0:
        raise InputError(f"X has shape {tuple(shape)}: no rows to split; give at least one row per site")
    return int(shape[0])


def _site_count(n_sites: int, n_rows: int) -> int:
    if _positive_int("n_sites", n_sites) > n_rows:
        raise InputError(f"{n_sites} sites cannot share {n_rows} rows; give from 1 to {n_rows} sites")
    return int(n_sites)


def _take_all(X: Any, parts: Sequence[Rows]) -> dict[str, Any]:
    table = _indexable(X)
    return {name: _take(table, np.sort(rows)) for name, rows in zip(site_names(len(parts)), parts, strict=True)}


def _indexable(X: Any) -> Any:
    if sparse.issparse(X):
        return X.tocsr()
    return X if hasattr(X, "iloc") else np.asarray(X)


def _take(table: Any, rows: Rows) -> Any:
    return table.iloc[rows] if hasattr(table, "iloc") else table[rows]
