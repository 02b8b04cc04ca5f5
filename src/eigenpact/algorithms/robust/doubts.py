"""What speaks against a robust answer although it is at rest: features about which the other features say nothing.

A robust solver can come to rest at a wrong answer, with some feature in one of two roles.  Either most of its entries are called
errors, so that it is not explained; or a component is spent on it alone, so that its entries are explained by themselves, errors
and all, while that component is missing elsewhere.  Both are seen in what every solver knows: the basis, and how many entries
of each feature are trusted.  Data can be so, too: a feature that is wrong in most rows cannot be told from one that is lost.  One
that makes a component of its own can be, by its scores: those of errors are zero, or very small, in most rows.  So sites then
count their scores along it by size: 160 counts, summed, in a round that is not needed otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...numerics.either import by_rows, kept_where, there
from ...numerics.linalg import Array, top_eigenpairs
from ...runtime import Progress, Site, Sum, local
from ..method import Part
from .agreement import RobustSetup
from .entries import MEDIANS, count_rows, entries_there, seen_rows
from .solution import score_scatter
from .thresholds import LEVELS, Residuals, tally

MOSTLY = 0.5
"""A feature of which no more than this share of the observed entries is trusted is lost."""

ALONE = 0.9
"""The squared length of a feature's row in the basis at which it is a component of its own; it is 1 if exactly so."""

FEW = 0.01
"""If fewer entries than this share are errors, those that a feature of its own can hide are too few to matter."""

SPARSE = 2.0
"""Scores whose root mean square exceeds their robust deviation so many times are errors; it equals it if they are normal."""


@local(takes={"axis": "k", "norm": ""}, sends={"counts": "160"}, reads=(*MEDIANS, "V"), bound="count")
def score_sizes(site: Site, axis: Array, norm: Any) -> NDArray[np.int64]:
    """The scores along an axis, counted by size, down from the norm of those of all sites."""
    V, counts = site.kept["V"], np.zeros(LEVELS, dtype=np.int64)
    along = by_rows(V @ there(axis, V))[:, None]
    for where, M, observed in entries_there(site):
        scores = kept_where(along[where, :], seen_rows(observed))
        counts += tally(scores, int(M.shape[0]) - count_rows(M, observed), float(norm))
    return counts


async def doubt_about(U: Array, B: Array, axes: Array, trusted: NDArray[Any], setup: RobustSetup, rounds: int) -> tuple[int, str]:
    """Rounds taken (0 or 1, if ``rounds`` are left), and a reason to doubt the basis U (d x k, orthonormal); "" if there is none.

    B is [V 1]^T [V 1] (k+1 x k+1) of scores V for U, which are what sites keep times ``axes`` (k x k).
    """
    lost, alone = lost_feature(trusted, setup.observed), own_feature(U, trusted, setup.observed)
    if lost or alone is None:
        return 0, lost
    doubt = f"feature {alone} makes a component of its own, which may be its errors; leave it out, or ask for fewer components"
    if rounds < 1:
        return 0, doubt
    principal = top_eigenpairs(score_scatter(B, setup.n_samples, setup.centred))[1]
    axis = principal[:, int(np.abs(U[alone] @ principal).argmax())]
    norm = float(np.sqrt(axis @ B[:-1, :-1] @ axis))
    counts = await Sum(score_sizes, axes @ axis, np.float64(norm))
    await Progress(basis=U, details={"rank": float(U.shape[1])})
    typical = Residuals(counts, norm, setup.n_samples).deviation
    return 1, doubt if norm > SPARSE * typical * np.sqrt(setup.n_samples) else ""


def lost_feature(trusted: NDArray[Any], observed: NDArray[Any]) -> str:
    """A reason to doubt an answer, from trusted and observed entries by feature (d,); "" if there is none.

    >>> lost_feature(np.array([9, 9, 2]), np.array([10, 10, 10]))
    'feature 2 would be wrong in 80 % of its entries; leave it out, use scale="robust" if units differ, or give the true rank'
    """
    shares = trusted / observed
    worst = int(shares.argmin())
    if shares[worst] > MOSTLY:
        return ""
    return (
        f"feature {worst} would be wrong in {100 * (1 - shares[worst]):.0f} % of its entries; leave it out, "
        'use scale="robust" if units differ, or give the true rank'
    )


def own_feature(U: Array, trusted: NDArray[Any], observed: NDArray[Any]) -> int | None:
    """The feature that has a component of the basis U (d x k, orthonormal) to itself, if there is one and there are errors.

    >>> U = np.array([[0.6, 0.0], [0.8, 0.0], [0.0, 1.0]])
    >>> own_feature(U, np.array([9, 10, 10]), np.array([10, 10, 10])), own_feature(U, np.full(3, 10), np.full(3, 10))
    (2, None)
    """
    lengths = np.einsum("ij,ij->i", U, U)
    errors = trusted.sum() < (1 - FEW) * observed.sum()
    return int(lengths.argmax()) if errors and U.shape[1] < len(U) and lengths.max() >= ALONE else None


DOUBTS = Part("Doubts (RobustPCA, only where a feature has a component to itself)", {Sum: (score_sizes,)})
