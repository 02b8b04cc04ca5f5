"""Genotypes in the unit of what chance makes of them, as Patterson, PLINK and Hail do before principal components.

Problem
    Entry g of a person is the number of copies of an allele, 0 to 2, or missing (NaN).  With p_j the share of that allele among
    the genotypes that all sites together observed of variant j, g becomes (g - 2 p_j) / s_j, and 0 where it is missing.  s_j is
    sqrt(p (1 - p)) ("patterson", equation 3 there), sqrt(2 p (1 - p)) ("plink"), or sqrt(2 p (1 - p) m) with m the number of
    variants that vary ("hail").  Components are the same; variances differ by the factors 2 and m.  Variants of which nobody has
    the other allele become zero.

Rounds
    1. Sum of the observed genotypes and of the copies, by variant.  Then every site is told 2 p and s.

Leaves the site
    n_i and two vectors of length d, summed: how many genotypes it observed, and how many copies these have.

Differences from the paper
    p is the plain share; the paper's estimate (1 + copies) / (2 + 2 n), its equation 2, is meant for simulated drift and is not
    what its successors use.

References
    N. Patterson, A. L. Price, D. Reich, "Population structure and eigenanalysis", PLoS Genet. 2 (2006), equations 1 to 3.
    C. C. Chang et al., "Second-generation PLINK", GigaScience 4 (2015).  Hail's ``hwe_normalized_pca``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from ...errors import InputError
from ...numerics.blocks import some_rows
from ...numerics.changes import check_genotypes
from ...numerics.linalg import Array
from ...numerics.preparation import Step, check_dense_enough
from ...runtime import Local, Reply, Site, Sum, local
from ..method import Part
from ..parameters import check_choice
from .keeping import keeping, names_for

By = Literal["patterson", "plink", "hail"]

SAME = 1e-12
"""An allele's share this close to 0 or 1 is that of a variant which does not vary."""


@local(sends={"observed": "d", "copies": "d"}, bound={"observed": "count", "copies": "rows"}, setup=True, holes=True)
def count_alleles(site: Site) -> Any:
    """By variant, observed genotypes and the copies they have; of a variant with fewer than ``min_rows`` of them, nothing."""
    d = int(site.X.shape[1])
    observed, copies = np.zeros(d, dtype=np.int64), np.zeros(d)
    for part in some_rows(site.X):
        check_dense_enough(part, "genotypes")
        G = np.asarray(part, dtype=np.float64)
        check_genotypes(G)
        seen = ~np.isnan(G)
        observed += seen.sum(axis=0)
        copies += np.where(seen, G, 0.0).sum(axis=0)
    told = observed >= site.min_rows
    return np.where(told, observed, 0), np.where(told, copies, 0.0)


@local(
    takes={"centre": "d", "scale": "d"},
    keeps=names_for("genotypes"),
    means={"centre": "centre", "scale": "threshold"},
    setup=True,
    once=True,
    holes=True,
)
def keep_genotypes(site: Site, centre: Array, scale: Array) -> Reply:  # noqa: ARG001
    """Remember 2 p and s, which is 0 for a variant that does not vary."""
    return keeping("genotypes", centre=centre, scale=scale)


@dataclass(frozen=True)
class GenotypeScale:
    """Genotypes (0 to 2 copies, NaN where missing) centred and scaled by the pooled share of the allele.

    Parameters
    ----------
    by : "patterson", "plink" or "hail"
        Divide by sqrt(p (1 - p)), by sqrt(2 p (1 - p)), or by that times the root of the number of variants that vary.

    Examples
    --------
    >>> import numpy as np, eigenpact as ep
    >>> G = np.random.default_rng(0).binomial(2, [0.1, 0.5, 0.3, 0.0], size=(60, 4)).astype(float)
    >>> G[0, 1] = np.nan
    >>> pca = ep.FederatedPCA(2, prepare=[ep.prepare.GenotypeScale()]).fit(G, sites=np.arange(60) % 2)
    >>> print(pca.preparation_[0])
    genotypes centred and scaled, missing ones at the mean; 3 of 4 variants vary
    """

    by: By = "patterson"

    fills: ClassVar[bool] = True
    part: ClassVar[Part] = Part(
        "Genotypes",
        {Sum: (count_alleles,), Local: (keep_genotypes,)},
        "Of `GenotypeScale`.",
    )

    def __post_init__(self) -> None:
        check_choice("by", self.by, By)

    async def agree(self) -> Step:
        """Agree on the share of each allele."""
        observed, copies = await Sum(count_alleles)  # round 1
        p = copies / (2.0 * np.maximum(observed, 1))
        varies = (p > SAME) & (p < 1 - SAME)
        if not varies.any():
            raise InputError(f"none of {len(p)} variants varies: everybody has the same allele; check which allele is counted")
        factor = {"patterson": 1.0, "plink": 2.0, "hail": 2.0 * np.count_nonzero(varies)}[self.by]
        arrays = {"centre": 2 * p, "scale": np.where(varies, np.sqrt(factor * p * (1 - p)), 0.0)}
        await Local(keep_genotypes, *arrays.values())
        return Step("genotypes", arrays)
