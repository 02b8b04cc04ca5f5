"""Where the global part may begin: at random, or at a merge of what the sites have in common.

Rounds
    1. Every site returns its own leading r1 + r2 eigenvectors (one round).
    2. "distpca": U <- leading r1 eigenvectors of the mean of the sites' projectors (Fan et al.).  "covariance": U <- leading r1
       eigenvectors of the mean of the sites' covariances, each known by its leading part (Qu et al., the paper's start).

Leaves the site
    Leading eigenvectors (d x (r1 + r2)), for "covariance" scaled by the roots of their eigenvalues.  This is a ``Gather``: a mean
    of projectors would be d x d numbers to sum, and a merge needs the vectors themselves.  Single replies tell the coordinator
    what a site's global and local part span together.  ``start="random"`` reveals nothing and takes a few rounds more.

Differences from the paper
    The paper begins at "covariance".  Where local variances exceed global ones that returns local components, which is far away;
    the projectors count every direction equally, and what is common to the sites stands out.

References
    J. Fan et al., Ann. Stat. 47 (2019); Y. Qu et al., "Principal component analysis for dimension reduction in massive
    distributed data sets", ICDM 2002; N. Shi, R. A. Kontar, Sections 7 and 7.1.2.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ...errors import InputError
from ...numerics.linalg import Array, orthonormalize, random_orthonormal, top_eigenpairs
from ...runtime import Gather, Progress, Site, local
from ..method import Part
from .parts import PART, PersonalSetup, covariance_of

Start = Literal["distpca", "covariance", "random"]

STIR = 1e-3
"""Size of the random part mixed into a merged start: one that is exactly a saddle point would be left by rounding only."""


@local(takes={"k": "", "scaled": ""}, sends={"V": "d <=k"}, reads=PART, bound="none")
def leading_part(site: Site, k: Any, scaled: Any) -> Array:
    """At most k leading eigenvectors of S_i, if ``scaled`` times the square roots of their eigenvalues."""
    values, V = covariance_of(site).leading(int(k))
    return V * np.sqrt(values) if bool(scaled) else V


async def merged_start(setup: PersonalSetup, kind: Start) -> Array:
    """The leading r1 left singular vectors (d x r1) of all sites' vectors side by side.  One round."""
    if setup.max_rounds < 2:
        raise InputError(f"max_rounds={setup.max_rounds} leaves no round after a merged start; give 2 or more, or start='random'")
    r1, d = setup.whole_components(), setup.n_features
    replies = await Gather(leading_part, np.int64(min(d, r1 + setup.n_local)), np.bool_(kind == "covariance"))
    side_by_side = np.concatenate(list(replies.values()), axis=1)
    if side_by_side.shape[1] >= d:
        U = top_eigenpairs(side_by_side @ side_by_side.T, r1)[1]
    else:
        U = side_by_side @ top_eigenpairs(side_by_side.T @ side_by_side, min(r1, side_by_side.shape[1]))[1]
        U = orthonormalize(np.concatenate([U, random_orthonormal(d, r1, setup.seed)], axis=1))[:, :r1]
    return np.ascontiguousarray(U)


async def first_global(setup: PersonalSetup, kind: Start, start: Array | None) -> tuple[Array, int]:
    """An orthonormal global part (d x r1) to begin with - ``start`` if there is one - and the rounds that it took."""
    random = random_orthonormal(setup.n_features, setup.whole_components(), setup.seed)
    if start is not None:
        return start, 0
    if kind == "random":
        return random, 0
    U = orthonormalize(await merged_start(setup, kind) + STIR * random)
    await Progress(basis=U)
    return U, 1


MERGED_START = Part("Merged start of PersonalizedPCA (only when asked for)", {Gather: (leading_part,)})
