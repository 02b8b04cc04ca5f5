"""The columns that vary most for their mean, chosen as scanpy and Seurat choose highly variable genes.

Problem
    Site i holds rows X_i = log(1 + counts) (n_i x d).  Of the counts exp(X) - 1 of all sites together, each feature has a mean
    m_j and a variance v_j.  Features are put into bins of equal width by log(1 + m_j); log(v_j / m_j) is standardized within its
    bin, and the ``n_top`` features with the largest values stay.

Rounds
    1. Sum of n_i and of the counts.
    2. Sum of squares about the site's own mean, and of n_i (m_ij - m_j)^2.
    Then every site is told which columns stay; the others are zero to it from then on.

Leaves the site
    n_i and three vectors of length d, all summed.

Differences from the references
    The variances are those of all rows, to the last digits; scanpy's are rounded to single precision where its rows are.
    Flavours other than "seurat" are not here.

References
    R. Satija et al., "Spatial reconstruction of single-cell gene expression data", Nat. Biotechnol. 33 (2015).
    F. A. Wolf, P. Angerer, F. J. Theis, "SCANPY", Genome Biol. 19 (2018): ``highly_variable_genes(flavor="seurat")``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ...errors import InputError
from ...numerics.blocks import some_rows
from ...numerics.linalg import Array
from ...numerics.preparation import Step
from ...numerics.rows import Rows
from ...runtime import Local, Reply, Site, Sum, local
from ..method import Part
from ..parameters import check_choice, check_whole
from .keeping import keeping, names_for

Flavor = Literal["seurat"]

ABSENT = 1e-12
"""Stands for the mean of a feature without counts."""


@local(sends={"n": "", "sums": "d"}, bound={"n": "count", "sums": "rows"}, setup=True)
def count_sums(site: Site) -> Any:
    """Number of rows, and by feature the sum of exp(x) - 1."""
    return np.int64(site.X.shape[0]), int(site.X.shape[0]) * own_count_moments(site.X)[0]


@local(takes={"mean": "d"}, sends={"squares": "d"}, bound="squares", means={"mean": "centre"}, setup=True)
def count_squares(site: Site, mean: Array) -> Any:
    """By feature, squared deviations of exp(x) - 1 from the pooled mean, made about the site's own."""
    own, within = own_count_moments(site.X)
    return within + int(site.X.shape[0]) * (own - mean) ** 2


@local(takes={"kept": "d"}, keeps=names_for("columns"), means={"kept": "count"}, setup=True, once=True)
def keep_columns(site: Site, kept: Any) -> Reply:  # noqa: ARG001
    """Remember which columns stay."""
    return keeping("columns", kept=np.asarray(kept, dtype=bool))


def own_count_moments(X: Any) -> tuple[Array, Array]:
    """Means (d,) of exp(x) - 1 over the rows of X (n x d), and squares about them (d,)."""
    n, d = (int(size) for size in X.shape)
    mean = sum((Rows(C).column_sums() for C in _counts(X)), np.zeros(d)) / max(1, n)
    left, squares = np.zeros(d), np.zeros(d)
    for C in _counts(X):
        sums, of_squares = Rows(C, mean).column_moments()
        left, squares = left + sums / max(1, n), squares + of_squares
    return mean + left, np.maximum(squares - n * left**2, 0.0)


def _counts(X: Any) -> Iterator[Any]:
    """exp(x) - 1, a few rows at a time."""
    for part in some_rows(X):
        with np.errstate(over="ignore"):  # found out below
            C = part.astype(np.float64).expm1() if scipy.sparse.issparse(part) else np.expm1(part, dtype=np.float64)
        if not np.all(np.isfinite(C.data if scipy.sparse.issparse(C) else C)):
            raise InputError("exp(x) is not finite for some entries; choose columns after LogNormalize, of rows without holes")
        yield C


def dispersions(mean: Array, variance: Array, bins: int) -> Array:
    """log(variance / mean) of features (d,), standardized within bins of log(1 + mean); NaN for those that do not vary."""
    mean = np.where(mean == 0, ABSENT, mean)
    ratio = variance / mean
    with np.errstate(divide="ignore"):
        spread: Array = np.where(ratio == 0, np.nan, np.log(ratio))
    level = np.log1p(mean)
    return _within_bins(spread, _bins_of(level, bins))


def _bins_of(level: Array, bins: int) -> NDArray[np.intp]:
    """In which of so many bins of equal width, closed above, each number is; the lowest edge is a little lower."""
    low, high = float(level.min()), float(level.max())
    if low == high:
        return np.zeros(len(level), dtype=np.intp)
    edges = np.linspace(low, high, bins + 1)
    edges[0] -= 0.001 * (high - low)
    return np.searchsorted(edges, level, side="left") - 1


def _within_bins(values: Array, bin_of: NDArray[np.intp]) -> Array:
    """(value - mean) / standard deviation of its bin; of a bin with one value, 1."""
    found: Array = np.full(len(values), np.nan)
    for one in np.unique(bin_of):
        here = (bin_of == one) & ~np.isnan(values)
        if np.count_nonzero(here) == 1:
            found[here] = 1.0
        elif here.any():
            deviation = values[here].std(ddof=1)
            with np.errstate(divide="ignore", invalid="ignore"):  # as where all are the same
                found[here] = (values[here] - values[here].mean()) / deviation
    return found


@dataclass(frozen=True)
class HighlyVariable:
    """Keep the columns that vary most for their mean; the others become zero.  Comes after ``LogNormalize``.

    Parameters
    ----------
    n_top : int
        How many columns stay; all whose value equals the last one's stay, too.
    flavor : "seurat"
        As scanpy's ``highly_variable_genes`` with this flavour, its default.
    bins : int
        Bins of features by their mean.

    Examples
    --------
    >>> import numpy as np, eigenpact as ep
    >>> X = np.random.default_rng(0).poisson(np.linspace(1, 9, 30), size=(60, 30)).astype(float)
    >>> prepare = [ep.prepare.LogNormalize(), ep.prepare.HighlyVariable(10)]
    >>> pca = ep.FederatedPCA(2, prepare=prepare).fit(X, sites=np.arange(60) % 2)
    >>> print(pca.preparation_[1])
    10 of 30 columns kept
    """

    n_top: int = 2000
    flavor: Flavor = "seurat"
    bins: int = 20

    part: ClassVar[Part] = Part(
        "Highly variable columns",
        {Sum: (count_sums, count_squares), Local: (keep_columns,)},
        "Of `HighlyVariable`.",
    )

    def __post_init__(self) -> None:
        check_whole("n_top", self.n_top)
        check_whole("bins", self.bins)
        check_choice("flavor", self.flavor, Flavor)

    async def agree(self) -> Step:
        """Agree on the columns that stay."""
        n, sums = await Sum(count_sums)  # round 1
        mean = sums / int(n)
        squares = await Sum(count_squares, mean)  # round 2
        if np.any(mean < 0):
            raise InputError("the mean of exp(x) - 1 is negative: these are no logarithms of counts; use LogNormalize before")
        found = dispersions(mean, squares / max(1, int(n) - 1), self.bins)
        ranked = np.sort(found[~np.isnan(found)])[::-1]
        if not ranked.size:
            raise InputError("no column varies, so none can be chosen; leave HighlyVariable out")
        kept = np.nan_to_num(found, nan=-np.inf) >= ranked[min(self.n_top, ranked.size) - 1]
        await Local(keep_columns, kept)
        return Step("columns", {"kept": kept})
