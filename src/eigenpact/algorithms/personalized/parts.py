"""What the methods of this family agree on before and after: ranks, rows held out, and how far the local parts differ.

Problem
    Site i holds the centred rows Y_i (n_i x d), S_i = Y_i^T Y_i / n_i.  Sites count equally, whatever their number of rows:

        maximize  1/N sum_i tr(U^T S_i U) + tr(V_i^T S_i V_i)   over orthonormal [U, V_i],  U (d x r1) the same everywhere

    which is to minimize the mean squared error of reconstructing a site's rows from U and its own V_i (d x r2_i).    (5), (7)

Rounds
    1. Before (one set-up round): every site is told its r2_i and which share of its rows to hold out, keeps both, and returns
       tr S_i, to be summed: the unit of objective and residuals.
    2. After (set-up rounds, at most ``THETA_ROUNDS``): block Krylov on the mean projector 1/N sum_i V_i V_i^T for its largest
       eigenvalue 1 - theta, of the sites that have a local part.  It can be told from the global one if theta > 0.        (11)

Leaves the site
    tr S_i and whether rows are held out (one number each), then V_i V_i^T Z (d x ``THETA_WIDTH``) and whether there is a V_i, all
    summed.  Whoever sees the single replies of the last rounds learns V_i's span, as from any d x r2 random products with it; the
    sum tells the mean.

References
    N. Shi, R. A. Kontar, "Personalized PCA: decoupling shared and unique features"; equation numbers are theirs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InputError
from ...numerics.krylov_space import KrylovSpace
from ...numerics.linalg import Array, random_orthonormal
from ...numerics.rows import Rows
from ...runtime import Local, Reply, Site, Sum, local
from ..method import Part
from ..setup import CENTRE, Setup, rows_of
from .local_part import HAS_VARIANCE, Covariance

THETA_ROUNDS, THETA_WIDTH, THETA_TOL = 12, 8, 1e-4
"""Rounds, columns and residual of the estimate of theta; the error of an eigenvalue is smaller than its residual."""

PATIENCE = 3
"""With rows held out: rounds without a smaller error on them before a run ends."""

PART = (*CENTRE, "held_out", "products")
"""Names under which a site keeps its part of the problem: see :func:`covariance_of`."""

RESULTS = ("V", "values", "mean")
"""What a site keeps of the answer: its local part (d x <=r2), the variances along it, and its centre."""


@dataclass(frozen=True, eq=False)
class PersonalSetup(Setup):
    """A :class:`Setup` whose ``n_components`` is the number of global components, and what this family adds.

    Attributes
    ----------
    n_local : int
        The largest number of local components of any site.
    total : float
        Mean over sites of tr S_i.
    n_held_out : int
        Sites that hold rows out.
    """

    n_local: int
    total: float
    n_held_out: int

    def scaled_kkt(self, gain: float, captured: float) -> float:
        """Square root of a promised gain over the residual variance, of which ``captured`` is the rest of the mean of tr S_i.

        Zero at stationary points only, as the gradient.  Its square is the share of what is still missed that a step would add.
        Where next to nothing is missed there is nothing to gain: zero.
        """
        residual = self.total - captured
        return float(np.sqrt(gain / residual)) if residual > HAS_VARIANCE * self.total else 0.0


@local(
    takes={"rank": "", "keys": "m", "ranks": "m", "share": "", "seed": ""},
    sends={"total": "", "holds": ""},
    reads=CENTRE,
    keeps=("rank", "seed", "products", "held_out"),
    bound={"total": "trace", "holds": "count"},
    means={"rank": "count", "keys": "bits", "ranks": "count", "share": "share", "seed": "seed"},
    setup=True,
    once=True,
)
def take_part(site: Site, rank: Any, keys: NDArray[np.uint64], ranks: NDArray[np.int64], share: Any, seed: Any) -> Reply:
    """Remember the number of local components (by the key of the site's name, if there are keys) and what rows to hold out."""
    own = int(rank)
    if len(keys):
        (found,) = np.nonzero(keys == _key(site.name))
        if len(found) != 1:
            raise InputError(f"n_local has no entry for site {site.name!r}; give one for every site, or one number for all")
        own = int(ranks[found[0]])
    rows = rows_of(site)
    held_out = site.first_of(rows.n, held_out_rows(rows.n, float(share), site.min_rows), int(seed))
    S = Covariance(training(rows, held_out))
    keep = {"rank": own, "seed": int(seed), "products": S.products, "held_out": held_out}
    return Reply((S.trace, np.int64(len(held_out) > 0)), keep)


@local(
    takes={"Z": "d m"},
    sends={"PZ": "d m", "has_own": ""},
    reads=("V",),
    bound={"PZ": "unit", "has_own": "count"},
    means={"Z": "orthonormal"},
    setup=True,
)
def local_share(site: Site, Z: Array) -> tuple[Array, np.int64]:
    """V_i (V_i^T Z), and whether the site has a local part: the sums' quotient is the mean projector's product with Z."""
    V: Array = site.kept["V"]
    return V @ (V.T @ Z), np.int64(V.shape[1] > 0)


@local(
    takes={"U": "d k", "more": ""},
    reads=(*PART, "rank"),
    keeps=("V", "values"),
    means={"U": "orthonormal", "more": "count"},
    setup=True,
)
def settle(site: Site, U: Array, more: Any) -> Reply:
    """The local part (r2_i + ``more``) of all rows, held out or not, given the final U; nothing leaves."""
    held_out, rank = site.kept["held_out"], site.kept["rank"] + int(more)
    values, V, _ = Covariance(rows_of(site), None if len(held_out) else site.kept["products"]).split(U, rank)
    return Reply(keep={"V": V, "values": values})


def held_out_rows(n: int, share: float, least: int) -> int:
    """How many of n rows to hold out, so that neither these nor the others are fewer than ``least``; none if that cannot be.

    >>> held_out_rows(100, 0.2, 1), held_out_rows(100, 0.95, 20), held_out_rows(30, 0.2, 20)
    (20, 80, 0)
    """
    count = min(n - max(1, least), round(share * n))
    return count if count >= max(1, least) else 0


def training(rows: Rows, held_out: NDArray[np.int64]) -> Rows:
    """The rows that are not held out."""
    return rows.take(np.setdiff1d(np.arange(rows.n), held_out)) if len(held_out) else rows


def covariance_of(site: Site) -> Covariance:
    """S_i of the rows that are not held out, for use inside local functions that declare ``reads=PART``."""
    return Covariance(training(rows_of(site), site.kept["held_out"]), site.kept["products"])


def held_out_error(site: Site, U: Array, V: Array) -> float:
    """Mean squared length of what [U, V] misses of the rows held out; 0 if there are none."""
    held_out = site.kept["held_out"]
    if not len(held_out):
        return 0.0
    return float(rows_of(site).take(held_out).residual_squares(np.concatenate([U, V], axis=1)).mean())


async def agree_on_parts(setup: Setup, n_local: int | Mapping[str, int], share: float) -> PersonalSetup:
    """Tell every site its rank and the share of rows to hold out; the set-up with what they returned.  One set-up round."""
    by_site = n_local if isinstance(n_local, Mapping) else {}
    largest = max(by_site.values()) if isinstance(n_local, Mapping) else n_local
    keys = np.array([_key(name) for name in by_site], dtype=np.uint64)
    ranks = np.array(list(by_site.values()), dtype=np.int64)
    total, holds = await Sum(take_part, np.int64(largest), keys, ranks, np.float64(share), np.float64(setup.seed))
    if share > 0 and not int(holds):
        raise InputError(
            f"validation_fraction={share:g} holds out no row: the sites have too few; give a larger share, or None for all rows"
        )
    known = {f.name: getattr(setup, f.name) for f in fields(Setup)}
    return PersonalSetup(**known, n_local=int(largest), total=float(total) / setup.n_sites, n_held_out=int(holds))


async def misalignment(setup: PersonalSetup, all_local: bool = False) -> float:
    """theta = 1 - lambda_max(1/N sum_i V_i V_i^T), at most ``THETA_ROUNDS`` set-up rounds; 1 where no site has a local part.

    ``all_local`` tells that the method made local parts of what was to be global.
    """
    if setup.n_local == 0 and not all_local:
        return 1.0
    space, largest = KrylovSpace.empty(setup.n_features), 0.0
    Z = random_orthonormal(setup.n_features, min(setup.n_features, THETA_WIDTH), setup.seed)
    for _ in range(THETA_ROUNDS):
        PZ, n_own = await Sum(local_share, Z)
        if int(n_own) < min(2, setup.n_sites):
            return 1.0  # no two local parts to compare
        space = space.add(Z, PZ / int(n_own))
        ritz = space.ritz(lambda _: 1)
        largest = float(ritz.values[0])
        Z = space.next_block(THETA_WIDTH)
        if np.linalg.norm(ritz.residual) <= THETA_TOL or Z.shape[1] == 0:
            break
    return min(1.0, max(0.0, 1.0 - largest))


def _key(name: str) -> np.uint64:
    """A site's name as a number, by which it finds its entry among those of all sites."""
    return np.uint64(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little"))


PARTS = Part(
    "Set-up and end of every solver of PersonalizedPCA",
    {Sum: (take_part, local_share), Local: (settle,)},
    "`local_share` runs unless `misalignment=False`; `settle` only if the last step tried was refused, or with rows held out.",
)
