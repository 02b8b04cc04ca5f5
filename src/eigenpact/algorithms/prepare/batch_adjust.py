"""Sites as batches: each one's location and scale, feature by feature, moved to the common ones with shrinkage (ComBat).

Problem
    Entry y of feature g at site i is taken as alpha_g + sigma_g (gamma_ig + delta_ig e).  alpha is the pooled mean, sigma^2 the
    pooled variance within sites; gamma and delta^2 of a site's features have a normal and an inverse gamma prior, whose
    parameters come from all features of that site: features with little evidence are drawn towards the others.  The entry becomes
    alpha + sigma ((y - alpha) / sigma - gamma*) / delta*, with the posterior gamma* and delta*.

Rounds
    1. Sum of n_i and of the columns.  2. Sum of the squares within sites (``moments.py``).
    Then every site is told alpha and sigma, and finds gamma* and delta* by itself: the priors are over features, not over sites.

Leaves the site
    n_i and three vectors of length d, all summed.  What a site is adjusted by stays there.

Differences from the paper
    Parametric priors alone, and no covariates besides the sites.  The equations for gamma* and delta* are iterated to 1e-10;
    the paper's program stops at 1e-4.  A model holds alpha and sigma alone; ``FederatedPCA.for_site(rows)`` finds a site's own
    part again, from that site's rows.

References
    W. E. Johnson, C. Li, A. Rabinovic, "Adjusting batch effects in microarray expression data using empirical Bayes methods",
    Biostatistics 8 (2007), Section 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...errors import InputError
from ...numerics.linalg import Array
from ...numerics.preparation import Step
from ...runtime import Local, Reply, Site, Sum, local
from ..method import Part
from .keeping import keeping, names_for
from .moments import observed_squares, observed_sums, own_moments, pooled_moments

CONSTANT = 1e-13
"""A standard deviation below this share of the mean is rounding: such a column is left as it is."""

CLOSE, MOST = 1e-10, 10_000
"""Relative change at which the equations count as solved, and how often they are iterated at most."""


@local(
    takes={"centre": "d", "scale": "d", "shrink": ""},
    keeps=names_for("batch"),
    means={"centre": "centre", "scale": "threshold", "shrink": "count"},
    setup=True,
    once=True,
)
def keep_batch(site: Site, centre: Array, scale: Array, shrink: Any) -> Reply:
    """Remember the common location and scale, and what this site is adjusted by, found from its own rows."""
    return keeping("batch", **own_step(site.X, {"centre": centre, "scale": scale, "shrink": np.bool_(shrink)}).arrays)


def own_step(X: Any, agreed: Any) -> Step:
    """The step of the site whose rows X (n x d) are, from the agreed ``centre`` and ``scale`` (d,) and whether to ``shrink``."""
    centre, scale = agreed["centre"], agreed["scale"]
    n, varies = int(X.shape[0]), scale > 0
    observed, own, within = own_moments(X, 1)
    if n < 2 or np.any(observed < n):
        raise InputError("a site is adjusted by the spread of its own rows: it needs two rows or more, without missing entries")
    shift, spread = np.zeros(len(own)), np.ones(len(own))
    unit = np.where(varies, scale, 1.0)
    location, squares = (own - centre) / unit, within / unit**2
    if varies.any():
        found = posterior if agreed["shrink"] and np.count_nonzero(varies) > 1 else plain
        shift[varies], spread[varies] = found(location[varies], squares[varies], n)
    own_part = {"shift": shift, "spread": spread, "own": np.bool_(True)}
    return Step("batch", {"centre": centre, "scale": scale, "shrink": np.bool_(agreed["shrink"])} | own_part)


def plain(location: Array, squares: Array, n: int) -> tuple[Array, Array]:
    """gamma and delta as they are found; 1 for the spread of a feature that has none here."""
    return location, np.sqrt(np.where(squares > 0, squares / (n - 1), 1.0))


def posterior(location: Array, squares: Array, n: int) -> tuple[Array, Array]:
    """gamma* and delta* of features, from their means (d,) over n rows and the squares about these (d,)."""
    variance = squares / (n - 1)
    prior_mean, prior_variance = location.mean(), location.var(ddof=1)
    mean, spread = variance.mean(), variance.var(ddof=1)
    if spread <= 0 or prior_variance <= 0:
        return plain(location, squares, n)  # nothing to learn from other features
    a, b = (2 * spread + mean**2) / spread, (mean * spread + mean**3) / spread
    shift, scale2 = location, np.where(variance > 0, variance, mean)
    for _ in range(MOST):
        shift_prev, scale2_prev = shift, scale2
        shift = (n * prior_variance * location + scale2_prev * prior_mean) / (n * prior_variance + scale2_prev)
        scale2 = (b + (squares + n * (location - shift) ** 2) / 2) / (n / 2 + a - 1)
        change = np.abs(scale2 - scale2_prev) / scale2_prev + np.abs(shift - shift_prev) / np.maximum(np.abs(shift_prev), 1e-3)
        if change.max() < CLOSE:
            break
    return shift, np.sqrt(scale2)


@dataclass(frozen=True)
class BatchAdjust:
    """Adjust the location and scale of each site's features to the common ones, as ComBat does with batches.

    What a site is adjusted by stays there.  So new rows are transformed by ``pca.for_site(rows).transform(X)``, where ``rows``
    are the site's own rows that were fitted; ``pca.transform`` alone refuses.

    Parameters
    ----------
    shrink : bool
        Draw the locations and scales of a site's features towards one another, as far as the evidence is little; else each
        feature of each site is centred and scaled by itself.

    Examples
    --------
    >>> import numpy as np, eigenpact as ep
    >>> rng = np.random.default_rng(0)
    >>> A, B = rng.normal(size=(50, 5)) + rng.normal(size=5), 2 * rng.normal(size=(40, 5)) - 3
    >>> pca = ep.FederatedPCA(2, prepare=[ep.prepare.BatchAdjust()]).fit({"A": A, "B": B})
    >>> pca.between_site_share_before_ > 0.4, pca.between_site_share_ < 0.01
    (True, True)
    >>> pca.for_site(A).transform(A).shape
    (50, 2)
    """

    shrink: bool = True

    part: ClassVar[Part] = Part(
        "Sites adjusted as batches",
        {Sum: (observed_sums, observed_squares), Local: (keep_batch,)},
        "Of `BatchAdjust`.",
    )

    async def agree(self) -> Step:
        """Agree on the common location and scale."""
        found = await pooled_moments()
        scale = np.sqrt(found.within / found.n)
        scale = np.where(scale > CONSTANT * np.abs(found.mean), scale, 0.0)
        await Local(keep_batch, found.mean, scale, np.bool_(self.shrink))
        nothing = {
            "shrink": np.bool_(self.shrink),
            "shift": np.zeros(len(scale)),
            "spread": np.ones(len(scale)),
            "own": np.bool_(False),
        }
        return Step("batch", {"centre": found.mean, "scale": scale} | nothing)
