"""The columns that vary most for their mean, chosen as scanpy and Seurat choose highly variable genes.

Problem
    Site i holds rows X_i = log(1 + counts) (n_i x d).  Of the counts exp(X) - 1 of all sites together, each feature has a mean
    m_j and a variance v_j.  Features are put into bins of equal width by log(1 + m_j); log(v_j / m_j) is standardized within its
    bin, and the ``n_top`` features with the largest values stay.  That is "seurat".  "cell_ranger" takes X_i as it is, bins
    between percentiles of m_j, and v_j / m_j about the median of its bin, divided by the median deviation.

Rounds
    1. Sum of n_i, of the counts and of their squares, as pairs of doubles: exact, so that variances follow without loss
       (``numerics/pairs.py``).  For "cell_ranger" two rounds, as in ``moments.py``.
    Then every site is told which columns stay; the others are zero to it from then on.

Leaves the site
    n_i and two vectors of pairs of length d, all summed.

Differences from the references
    The variances are those of all rows, to the last digits; scanpy's are rounded to single precision where its rows are.
    Flavours of scanpy that are not named here are left out.

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
from ...numerics.pairs import add, column_pairs, deviations
from ...numerics.preparation import Step
from ...runtime import Local, Reply, Site, Sum, local
from ..method import Part
from ..parameters import check_choice, check_whole
from ..robust.thresholds import NORMAL_MEDIAN
from ..second_moments import with_place
from .keeping import keeping, names_for
from .moments import observed_pairs, observed_sums, pooled_squares

Flavor = Literal["seurat", "cell_ranger"]

ABSENT = 1e-12
"""Stands for the mean of a feature without counts."""


@local(
    sends={"n": "", "sums": "d 2", "squares": "d 2"},
    bound={"n": "count", "sums": "pair", "squares": "pair"},
    setup=True,
)
def count_pairs(site: Site) -> Any:
    """Number of rows, and by feature the sums of exp(x) - 1 and of its squares, as pairs of doubles."""
    total: Any = np.zeros((2, int(site.X.shape[1]), 2))
    for C in _counts(site.X):
        total = add(total, np.stack(column_pairs(C)))
    return np.int64(site.X.shape[0]), with_place(total[0]), with_place(total[1])


@local(takes={"kept": "d"}, keeps=names_for("columns"), means={"kept": "count"}, setup=True, once=True)
def keep_columns(site: Site, kept: Any) -> Reply:  # noqa: ARG001
    """Remember which columns stay."""
    return keeping("columns", kept=np.asarray(kept, dtype=bool))


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


def dispersions_by_percentiles(mean: Array, variance: Array) -> Array:
    """variance / mean of features (d,), about the median of their bin, divided by its median deviation; bins by percentiles."""
    mean = np.where(mean == 0, ABSENT, mean)
    ratio, found = variance / mean, np.full(len(mean), np.nan)
    bin_of = np.searchsorted(np.percentile(mean, np.arange(10, 105, 5)), mean, side="left")
    for one in np.unique(bin_of):
        here = bin_of == one
        apart = ratio[here] - np.median(ratio[here])
        with np.errstate(divide="ignore", invalid="ignore"):  # as where most are the same
            found[here] = apart / (np.median(np.abs(apart)) / NORMAL_MEDIAN)
    return found


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
    flavor : "seurat" or "cell_ranger"
        As scanpy's ``highly_variable_genes`` with this flavour; "seurat" is its default.
    bins : int
        Bins of features by their mean, for "seurat".

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
        {Sum: (count_pairs, observed_sums, observed_pairs), Local: (keep_columns,)},
        'Of `HighlyVariable`; `count_pairs` with `flavor="seurat"`, the others with "cell_ranger".',
    )

    def __post_init__(self) -> None:
        check_whole("n_top", self.n_top)
        check_whole("bins", self.bins)
        check_choice("flavor", self.flavor, Flavor)

    async def agree(self) -> Step:
        """Agree on the columns that stay."""
        found = await (self._seurat() if self.flavor == "seurat" else self._cell_ranger())
        ranked = np.sort(found[~np.isnan(found)])[::-1]
        if not ranked.size:
            raise InputError("no column varies, so none can be chosen; leave HighlyVariable out")
        kept = np.nan_to_num(found, nan=-np.inf) >= ranked[min(self.n_top, ranked.size) - 1]
        await Local(keep_columns, kept)
        return Step("columns", {"kept": kept})

    async def _seurat(self) -> Array:
        n, sums, squares = await Sum(count_pairs)  # round 1
        mean = (sums[:, 0] + sums[:, 1]) / int(n)
        _check_counted(mean)
        return dispersions(mean, deviations(int(n), mean, sums, squares) / max(1, int(n) - 1), self.bins)

    async def _cell_ranger(self) -> Array:
        observed, mean, squares = await pooled_squares()
        _check_counted(mean)
        return dispersions_by_percentiles(mean, squares / np.maximum(observed - 1, 1))


def _check_counted(mean: Array) -> None:
    if np.any(mean < 0):
        raise InputError("the mean of a column is negative: these are no logarithms of counts; use LogNormalize before")
