"""Problems that have broken PCA codes, in 26 families; each problem is determined by its family and a seed.

A family is a function from a random generator to a ``Problem``: rows by site, how many components are wanted, centre and scale.
No family has more than 120 features or about 500 rows, so that a fit takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import hadamard

Array = np.ndarray[Any, Any]
Rng = np.random.Generator


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows (n_i x d, dense or sparse) by site, and what is asked of them."""

    sites: dict[str, Any]
    k: int
    center: Any = "pooled"
    scale: str | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of all rows, and of features."""
        tables = list(self.sites.values())
        return sum(X.shape[0] for X in tables), tables[0].shape[1]


FAMILIES: dict[str, Callable[[Rng], Problem]] = {}
"""Family -> function from a generator to a problem."""


def problem(family: str, seed: int) -> Problem:
    """The problem of this family and seed, the number of components cut to what its rows can give."""
    rng = np.random.default_rng([list(FAMILIES).index(family), seed])
    made = FAMILIES[family](rng)
    return replace(made, k=int(np.clip(made.k, 1, min(made.shape))))


def family(name: str) -> Callable[[Callable[[Rng], Problem]], Callable[[Rng], Problem]]:
    """Put the function into the list of families."""

    def listed(make: Callable[[Rng], Problem]) -> Callable[[Rng], Problem]:
        FAMILIES[name] = make
        return make

    return listed


# -- what the families are made of --------------------------------------------------------------------


def sizes(rng: Rng) -> tuple[int, int]:
    """Rows and features of an ordinary problem."""
    return int(rng.integers(5, 300)), int(rng.integers(2, 40))


def few(rng: Rng, most: int) -> int:
    """A small number of components, at least one."""
    return int(rng.integers(1, max(2, min(most, 9))))


def lengths(rng: Rng, d: int) -> Array:
    """Standard deviations of d directions, descending, within a factor of thirty."""
    return np.sort(rng.uniform(0.1, 3.0, d))[::-1]


def rotation(rng: Rng, d: int) -> Array:
    return np.linalg.qr(rng.normal(size=(d, d)))[0]


def cloud(rng: Rng, n: int, d: int) -> Array:
    """Gaussian rows with directions of different lengths, the axes turned at random."""
    return (rng.normal(size=(n, d)) * lengths(rng, d)) @ rotation(rng, d)


def with_singular_values(rng: Rng, n: int, values: Array) -> Array:
    """Rows with mean zero and these singular values, up to rounding."""
    d = len(values)
    scores = rng.normal(size=(n, d))
    return (np.linalg.qr(scores - scores.mean(axis=0))[0] * values) @ rotation(rng, d)


def asked(rng: Rng, X: Any, k: int, **fixed: Any) -> Problem:
    """The rows of X dealt to one to eight sites in one of three ways, with a random centre and scale unless they are fixed."""
    n = X.shape[0]
    m = int(rng.integers(1, min(8, n) + 1))
    way = rng.integers(3)
    if way == 0:  # pieces of any size
        pieces = np.split(np.arange(n), np.sort(rng.permutation(np.arange(1, n))[: m - 1]))
    elif way == 1:
        pieces = np.array_split(np.arange(n), m)
    else:  # sites that differ: by the values of one feature
        pieces = np.array_split(np.argsort(X[:, rng.integers(X.shape[1])], kind="stable"), m)
    return ask(rng, {f"s{i:03d}": X[piece] for i, piece in enumerate(pieces)}, k, **fixed)


def ask(rng: Rng, sites: dict[str, Any], k: int, **fixed: Any) -> Problem:
    """The sites with a random centre and scale, unless these are fixed."""
    center = ("pooled", "pooled", "site", False)[rng.integers(4)]
    scale = (None, None, "pooled")[rng.integers(3)]
    return Problem(sites, k, **({"center": center, "scale": scale} | fixed))


def rearranged(made: Problem, change: Callable[[int, Any], Any]) -> Problem:
    """The same problem with ``change(number of the site, its rows)`` in place of each site's rows."""
    return replace(made, sites={name: change(i, X) for i, (name, X) in enumerate(made.sites.items())})


def sparsely(rng: Rng, made: Problem, kinds: tuple[str, ...] = ("csr", "csc", "coo")) -> Problem:
    """The same rows in one of scipy's formats; "unsummed" is csr with every entry in two parts, as counting events leaves it."""
    kind = str(rng.choice(kinds))
    if kind == "unsummed":
        return rearranged(made, lambda _, X: _in_parts(sp.csr_matrix(X)))
    return rearranged(made, lambda _, X: sp.csr_matrix(X).asformat(kind))


def _in_parts(X: sp.csr_matrix) -> sp.csr_matrix:
    part = X.data * 0.25
    data = np.column_stack([part, X.data - part]).ravel()
    return sp.csr_matrix((data, np.repeat(X.indices, 2), 2 * X.indptr), shape=X.shape)


# -- spectra ------------------------------------------------------------------------------------------


@family("iid")
def _iid(rng: Rng) -> Problem:
    n, d = sizes(rng)
    return asked(rng, cloud(rng, n, d), few(rng, min(n, d)))


@family("gap")
def _gap(rng: Rng) -> Problem:
    """A relative gap at the cut between 1e-12 and 1e-3."""
    d = int(rng.integers(3, 40))
    k = few(rng, d)
    variances = np.empty(d)
    variances[:k] = np.sort(rng.uniform(1.0, 4.0, k))[::-1]
    below = variances[k - 1] * (1 - 10.0 ** rng.uniform(-12, -3))
    variances[k:] = below * np.r_[1.0, np.sort(rng.uniform(0.1, 0.9, d - k - 1))[::-1]]
    X = with_singular_values(rng, d + int(rng.integers(5, 250)), np.sqrt(variances))
    return asked(rng, X, k, center="pooled", scale=None)


@family("ties")
def _ties(rng: Rng) -> Problem:
    """Three values for all variances: most cuts part equals."""
    d = int(rng.integers(4, 40))
    values = np.sort(rng.choice([1.0, 2.0, 3.0], d))[::-1]
    return asked(rng, with_singular_values(rng, d + int(rng.integers(5, 250)), values), few(rng, d), center="pooled", scale=None)


@family("rank deficient")
def _rank_deficient(rng: Rng) -> Problem:
    """Fewer directions than features, and perhaps more components asked for than there are directions."""
    n, d = sizes(rng)
    rank = int(rng.integers(1, max(2, min(n, d) // 2 + 1)))
    return asked(rng, rng.normal(size=(n, rank)) @ rng.normal(size=(rank, d)), int(rng.integers(1, min(n, d) + 1)))


@family("condition")
def _condition(rng: Rng) -> Problem:
    """Lengths that fall geometrically by four to twelve decades."""
    n, d = sizes(rng)
    X = (rng.normal(size=(n, d)) * np.logspace(0, -rng.uniform(4, 12), d)) @ rotation(rng, d)
    return asked(rng, X, few(rng, min(n, d)))


@family("all components")
def _all_components(rng: Rng) -> Problem:
    d = int(rng.integers(1, 12))
    return asked(rng, cloud(rng, d + int(rng.integers(2, 200)), d), d)


@family("wide")
def _wide(rng: Rng) -> Problem:
    """More features than rows."""
    n, d = int(rng.integers(3, 30)), int(rng.integers(40, 121))
    return asked(rng, rng.normal(size=(n, d)), int(rng.integers(1, n + 1)))


@family("heavy tails")
def _heavy_tails(rng: Rng) -> Problem:
    """Scores without a variance: a few rows carry nearly everything."""
    n, d = sizes(rng)
    return asked(rng, (rng.standard_t(1.5, size=(n, d)) * lengths(rng, d)) @ rotation(rng, d), few(rng, min(n, d)))


# -- features -----------------------------------------------------------------------------------------


@family("duplicate features")
def _duplicate_features(rng: Rng) -> Problem:
    n, half = int(rng.integers(5, 300)), int(rng.integers(2, 20))
    X = np.tile(rng.normal(size=(n, half)), (1, 2))
    if rng.random() < 0.5:
        X = np.column_stack([X, np.full(n, 7.25)])
    return asked(rng, X, few(rng, min(n, half)))


@family("constant features")
def _constant_features(rng: Rng) -> Problem:
    """About half of the features constant, far from zero or not."""
    n, d = sizes(rng)
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-2, 2, d)
    X[:, rng.random(d) < 0.5] = rng.normal() * 10.0 ** rng.uniform(0, 8)
    return asked(rng, X, few(rng, min(n, d)))


@family("offset")
def _offset(rng: Rng) -> Problem:
    """Means of a hundred to ten thousand million spreads, in some of the features."""
    n, d = sizes(rng)
    return asked(rng, cloud(rng, n, d) + 10.0 ** rng.uniform(2, 10) * rng.choice([-1.0, 0.0, 0.3, 1.0], d), few(rng, min(n, d)))


@family("tiny")
def _tiny(rng: Rng) -> Problem:
    """Values whose squares are small, subnormal or zero."""
    n, d = sizes(rng)
    return asked(rng, cloud(rng, n, d) * 10.0 ** float(rng.choice([-170, -165, -160, -150, -80, -60, -20])), few(rng, min(n, d)))


@family("huge")
def _huge(rng: Rng) -> Problem:
    """Values whose squares are large or overflow."""
    n, d = sizes(rng)
    return asked(rng, cloud(rng, n, d) * 10.0 ** float(rng.choice([20, 60, 69, 80, 150, 160, 300])), few(rng, min(n, d)))


@family("units")
def _units(rng: Rng) -> Problem:
    """Every feature in units of its own, sixteen decades apart at most."""
    n, d = sizes(rng)
    reach = rng.uniform(1, 8)
    X = cloud(rng, n, d) * 10.0 ** rng.uniform(-reach, reach, d) + 10.0 ** rng.uniform(-reach, reach, d)
    return asked(rng, X, few(rng, min(n, d)))


# -- sites --------------------------------------------------------------------------------------------


@family("dominating site")
def _dominating_site(rng: Rng) -> Problem:
    """One site with nearly all rows, the others with one row each."""
    n, d = sizes(rng)
    X, alone = cloud(rng, n, d), int(rng.integers(1, min(9, n)))
    sites = {"s000": X[alone:]} | {f"s{i + 1:03d}": X[i : i + 1] for i in range(alone)}
    return ask(rng, sites, few(rng, min(n, d)))


@family("disjoint sites")
def _disjoint_sites(rng: Rng) -> Problem:
    """Every site has features of its own that are zero elsewhere, and perhaps some that all have."""
    m, own, common = int(rng.integers(2, 9)), int(rng.integers(1, 5)), int(rng.integers(0, 4))
    sites = {}
    for i in range(m):
        X = np.zeros((int(rng.integers(1, 60)), own * m + common))
        X[:, i * own : (i + 1) * own] = rng.normal(size=(len(X), own)) * 10.0 ** rng.uniform(-1, 1)
        X[:, own * m :] = rng.normal(size=(len(X), common)) * 10.0 ** rng.uniform(-1.5, 0.5)
        sites[f"s{i:03d}"] = X
    return ask(rng, sites, few(rng, own * m + common))


@family("own and shared directions")
def _own_and_shared(rng: Rng) -> Problem:
    """A strong direction per site and a weaker one in all of them, which may be the first of the pool."""
    m, weight = int(rng.integers(5, 40)), rng.uniform(0.02, 0.3)
    sites = {}
    for i in range(m):
        X = 1e-3 * rng.normal(size=(int(rng.integers(10, 14)), m + 3))
        X[:, i] += rng.uniform(0.9, 1.1) * rng.normal(size=len(X))
        X[:, m] += np.sqrt(weight) * rng.normal(size=len(X))
        sites[f"s{i:03d}"] = X
    return ask(rng, sites, int(rng.integers(1, 6)))


@family("many sites")
def _many_sites(rng: Rng) -> Problem:
    n, d = int(rng.integers(200, 500)), int(rng.integers(2, 40))
    pieces = np.array_split(cloud(rng, n, d), int(rng.choice([40, 60, 200])))
    return ask(rng, {f"s{i:03d}": X for i, X in enumerate(pieces)}, few(rng, d))


@family("factorial design")
def _factorial_design(rng: Rng) -> Problem:
    """Features that are uncorrelated within each site, so that single features are eigenvectors everywhere.

    Each site has strong features of its own and weaker ones that all sites have.  Pooled, the first shared one leads by a little,
    but a single site sees its own ahead, or (the first site, a proxy, say) another shared one.  A solver whose start or model
    lies in what one site prefers finds an invariant subspace there: its residual vanishes, and the answer is wrong.
    """
    contrasts = hadamard(8)[:, 1:].astype(float)
    m, own, lead = int(rng.integers(6, 60)), int(rng.integers(1, 3)), 10.0 ** rng.uniform(-2, -0.4)
    strengths = rng.uniform(0.5, 1.0, (m, own))
    kind = rng.choice(["rival", "rival", "own", "level"])
    if kind == "rival":  # two shared features; the first site alone prefers the second
        shared = np.tile([1.0 + lead, 1.0], (m, 1)) * max(1.5 / m, 0.15)
        shared[0] *= [1.0 / (1.0 + lead), 1.0 + 0.01 * rng.uniform()]
    else:  # one shared feature, which the strongest own one follows
        shared = np.tile([1.0 + lead, 0.0], (m, 1)) / m
        strengths[0, 0] = 1.0
        if kind == "level":  # all sites alike, but for the first, which sees only its own
            strengths = np.full((m, own), 1 / (1 + 2 * lead))
            strengths[0, 0] = 1.0
    sites = {}
    for i in range(m):
        X = np.zeros((8, own * m + 2))
        X[:, own * i : own * (i + 1)] = contrasts[:, :own] * np.sqrt(strengths[i])
        X[:, own * m :] = contrasts[:, own : own + 2] * np.sqrt(shared[i])
        sites[f"s{i:03d}"] = X
    return Problem(sites, 1 if rng.random() < 0.7 else 2, center=("pooled", "site", False)[rng.integers(3)])


# -- how the rows are stored --------------------------------------------------------------------------


@family("integers")
def _integers(rng: Rng) -> Problem:
    """Whole numbers, truth values and half precision."""
    n, d = sizes(rng)
    kind = [np.uint8, np.int8, np.int32, np.int64, np.bool_, np.float16][rng.integers(6)]
    X = rng.normal(size=(n, d)) if kind is np.float16 else rng.integers(0, 2 if kind is np.bool_ else 100, size=(n, d))
    return asked(rng, X.astype(kind), few(rng, min(n, d)))


@family("float32")
def _float32(rng: Rng) -> Problem:
    n, d = sizes(rng)
    return asked(rng, (cloud(rng, n, d) + rng.choice([0.0, 100.0, 1e4])).astype(np.float32), few(rng, min(n, d)))


@family("mixed precision")
def _mixed_precision(rng: Rng) -> Problem:
    """Single precision at every other site."""
    n, d = sizes(rng)
    made = asked(rng, cloud(rng, n, d), few(rng, min(n, d)))
    return rearranged(made, lambda i, X: X.astype(np.float32) if i % 2 else X)


@family("sparse")
def _sparse(rng: Rng) -> Problem:
    n, d = sizes(rng)
    X = np.where(rng.random((n, d)) < rng.uniform(0.02, 0.5), rng.uniform(size=(n, d)), 0.0)
    return sparsely(rng, asked(rng, X, few(rng, min(n, d))), ("csr", "csc", "coo", "unsummed"))


@family("sparse, offset")
def _sparse_offset(rng: Rng) -> Problem:
    """Sparse storage of features that are far from zero."""
    n, d = sizes(rng)
    X = cloud(rng, n, d)
    X[:, rng.random(d) < 0.4] += 10.0 ** rng.uniform(1, 9)
    return sparsely(rng, asked(rng, X, few(rng, min(n, d))))


@family("sparse, units")
def _sparse_units(rng: Rng) -> Problem:
    """One feature of huge spread beside others that are far from zero, which the sum over features does not show."""
    n, d = sizes(rng)
    far = 10.0 ** rng.uniform(1, 8)
    X = cloud(rng, n, d) + far * (rng.random(d) < 0.5)
    X[:, 0] = 100 * far * rng.normal(size=n)
    return sparsely(rng, asked(rng, X, few(rng, min(n, d))))


@family("strided memory")
def _strided_memory(rng: Rng) -> Problem:
    """Columns first, every other row of a larger table, or backwards; what lies between is not a number."""
    n, d = sizes(rng)

    def stored(i: int, X: Array) -> Array:
        if i % 3 == 0:
            return np.asfortranarray(X)
        if i % 3 == 1:
            around = np.full((2 * len(X), 3 * X.shape[1]), np.nan)
            around[::2, ::3] = X
            return around[::2, ::3]
        return X[::-1, ::-1].copy()[::-1, ::-1]

    return rearranged(asked(rng, cloud(rng, n, d), few(rng, min(n, d))), stored)
