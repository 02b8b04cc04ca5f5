"""Synthetic problems with a known spectrum, or with known shared and own directions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from ..errors import InputError, InputTypeError

FloatArray = NDArray[np.float64]


def site_names(n_sites: int) -> list[str]:
    """Return ``n_sites`` names whose sorted order is their given order.

    >>> site_names(2), site_names(11)[-1]
    (['site0', 'site1'], 'site10')
    >>> site_names(11)[0]
    'site00'
    """
    width = len(str(max(n_sites - 1, 0)))
    return [f"site{i:0{width}d}" for i in range(n_sites)]


def spectral_problem(
    n_features: int,
    n_rows: int,
    decay: float = 1.01,
    sites: int | Sequence[int] = 1,
    seed: int = 0,
    condition: float | None = None,
) -> dict[str, FloatArray]:
    """Make the FAPS paper's test matrix, equations (23)-(24), split into sites.

    The paper's matrix is A = U S V^T, n_features x n_rows, where U and V are orthonormalizations (QR) of matrices with
    independent entries uniform on [-1, 1], and S is diagonal with S_ii = decay^(1 - i).  What is returned is X = A^T, so
    rows are samples, cut into consecutive blocks of rows, one per site.  X is not centred: its right singular vectors are U.

    Parameters
    ----------
    n_features, n_rows : int
        Columns and rows of the stacked X.  The rank is r = min(n_features, n_rows).
    decay : float, at least 1
        Ratio of consecutive singular values (the paper's xi).
    sites : int or sequence of int
        A number of sites (row counts differ by at most one), or the row count of each site, summing to ``n_rows``.
    seed : int
        The same seed gives the same X whatever the sites are.
    condition : float, at least 1, optional
        Take the arithmetic spectrum of the paper's Section 5.6 instead, S_ii = 1 - (i - 1)/(r - 1) (1 - 1/condition);
        ``decay`` is then not used.

    Returns
    -------
    dict of str to float64 array
        "site0", "site1", ... ("site00", ... from 11 sites on), each C-contiguous, n_i x n_features.

    Examples
    --------
    >>> problem = spectral_problem(3, 10, decay=2.0, sites=[4, 6])
    >>> {name: X.shape for name, X in problem.items()}
    {'site0': (4, 3), 'site1': (6, 3)}
    >>> np.linalg.svd(np.vstack(list(problem.values())), compute_uv=False).round(6).tolist()
    [1.0, 0.5, 0.25]
    """
    n = _positive_int("n_features", n_features)
    m = _positive_int("n_rows", n_rows)
    counts = _row_counts(sites, m)
    rank = min(n, m)
    sigma = _spectrum(rank, decay, condition)
    rng = np.random.default_rng(seed)
    scaled = sigma[:, np.newaxis] * _random_orthonormal(rng, n, rank).T  # r x n
    v = _random_orthonormal(rng, m, rank)  # m x r
    stops = np.cumsum(counts)
    names = site_names(len(counts))
    return {
        name: np.ascontiguousarray(v[stop - count : stop] @ scaled)
        for name, count, stop in zip(names, counts, stops, strict=True)
    }


def _random_orthonormal(rng: np.random.Generator, rows: int, columns: int) -> FloatArray:
    """QR of a uniform[-1, 1] matrix, rows x columns; drawn in LAPACK's memory order so that nothing is copied."""
    draws = rng.uniform(-1.0, 1.0, size=(columns, rows)).T
    q: FloatArray = linalg.qr(draws, mode="economic", overwrite_a=True, check_finite=False)[0]
    return q


def _spectrum(rank: int, decay: float, condition: float | None) -> FloatArray:
    """Return the singular values, length ``rank``, largest first."""
    steps = np.arange(rank, dtype=np.float64)
    if condition is None:
        return float(_at_least_one("decay", decay)) ** -steps
    kappa = _at_least_one("condition", condition)
    return 1.0 - steps / max(rank - 1, 1) * (1.0 - 1.0 / kappa)


def _row_counts(sites: int | Sequence[int], n_rows: int) -> list[int]:
    """Return the row count of each site."""
    if isinstance(sites, Integral):
        n_sites = _positive_int("sites", sites)
        if n_sites > n_rows:
            raise InputError(
                f"sites={n_sites} is more than n_rows={n_rows}; every site needs a row: ask for at most {n_rows} sites"
            )
        small, larger = divmod(n_rows, n_sites)
        return [small + 1] * larger + [small] * (n_sites - larger)
    if isinstance(sites, str) or not isinstance(sites, Sequence | np.ndarray):
        raise InputTypeError(f"sites={sites!r} is a {type(sites).__name__}; give a number of sites or a list of row counts")
    counts = [_positive_int(f"sites[{i}]", count) for i, count in enumerate(sites)]
    if sum(counts) != n_rows:
        raise InputError(f"sites={counts} sum to {sum(counts)}, not to n_rows={n_rows}; change either so that they agree")
    return counts


def _positive_int(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InputTypeError(f"{name}={value!r} is a {type(value).__name__}; give a whole number, at least 1")
    if value < 1:
        raise InputError(f"{name}={value!r} is too small; give a whole number, at least 1")
    return int(value)


def _at_least_one(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputTypeError(f"{name}={value!r} is a {type(value).__name__}; give a number, at least 1")
    if not 1.0 <= float(value) < math.inf:
        raise InputError(f"{name}={value!r} is not allowed; give a finite number, at least 1")
    return float(value)


@dataclass(frozen=True, eq=False)
class PersonalizedProblem:
    """Sites made of shared and own directions, and what they were made of.

    Attributes
    ----------
    sites, test : dict of site to rows (n_i, n_features)
        Rows to fit, and rows of the same kind to test on.
    U : (n_features, n_global) array
        The global directions.
    V : dict of site to (n_features, n_local) array
        The local ones, orthogonal to U.
    groups : dict of site to int
        Sites of one group have the same local directions; each its own group unless asked for.
    """

    sites: dict[str, FloatArray]
    test: dict[str, FloatArray]
    U: FloatArray
    V: dict[str, FloatArray]
    groups: dict[str, int]


def personalized_problem(
    n_sites: int,
    n_features: int,
    n_global: int,
    n_local: int,
    *,
    variances: tuple[float, float, float] = (1.0, 1.0, 0.1),
    rows: int | Sequence[int] = 1000,
    test_rows: int = 0,
    n_groups: int | None = None,
    seed: int = 0,
) -> PersonalizedProblem:
    """Make rows of the personalized PCA paper's model (1): global and local scores and noise, all independent and normal.

    Parameters
    ----------
    n_sites, n_features, n_global, n_local : int
    variances : (local, global, noise)
        Of every local score, every global score and every entry of the noise.
    rows : int or sequence of int
        Rows of each site, or the row counts one by one.
    test_rows : int
        Further rows of each site, in ``test``.
    n_groups : int, optional
        Deal the sites into so many groups with common local directions.
    seed : int

    >>> problem = personalized_problem(3, 8, 2, 1, rows=[10, 20, 30])
    >>> [X.shape for X in problem.sites.values()]
    [(10, 8), (20, 8), (30, 8)]
    """
    if n_global + n_local > n_features:
        raise InputError(f"n_global + n_local = {n_global + n_local} must be at most n_features={n_features}")
    counts = [rows] * n_sites if isinstance(rows, int) else [int(n) for n in rows]
    if len(counts) != n_sites:
        raise InputError(f"rows has {len(counts)} entries for {n_sites} sites; give one number, or one for each site")
    rng = np.random.default_rng(seed)
    U = _orthonormal(rng, n_features, n_global)
    n_groups = n_groups or n_sites
    own = [_orthonormal(rng, n_features, n_local, beside=U) for _ in range(n_groups)]
    of_local, of_global, of_noise = (math.sqrt(v) for v in variances)

    def draw(n: int, V: FloatArray) -> FloatArray:
        scores = of_global * rng.standard_normal((n, n_global)) @ U.T + of_local * rng.standard_normal((n, n_local)) @ V.T
        drawn: FloatArray = scores + of_noise * rng.standard_normal((n, n_features))
        return drawn

    names = site_names(n_sites)
    groups = {name: i % n_groups for i, name in enumerate(names)}
    V = {name: own[groups[name]] for name in names}
    sites = {name: draw(n, V[name]) for name, n in zip(names, counts, strict=True)}
    return PersonalizedProblem(sites, {name: draw(test_rows, V[name]) for name in names}, U, V, groups)


def _orthonormal(rng: np.random.Generator, n: int, k: int, beside: FloatArray | None = None) -> FloatArray:
    """A random orthonormal basis (n x k), orthogonal to the columns of ``beside``."""
    A = rng.standard_normal((n, k))
    if beside is not None:
        A -= beside @ (beside.T @ A)
    Q: FloatArray = linalg.qr(A, mode="economic")[0]
    return Q
