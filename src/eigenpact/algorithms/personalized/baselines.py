"""What personalized PCA is compared with, in its own interface: individual, pooled and distributed PCA with local deflation.

Problem
    Reconstruct a site's rows Y_i from at most r1 + r2 directions, as personalized PCA does, but choose the directions otherwise.

Rounds
    individual: site i keeps its own r1 + r2 leading eigenvectors; nothing is global.  One round, for the objective.
    pooled: r1 + r2 components of all rows together, by ``krylov``; nothing is local.  Its rounds, and one for the objective.
    distpca: U <- leading r1 eigenvectors of the mean projector; V_i <- r2 leading eigenvectors of S_i without U.  Two rounds.

Leaves the site
    individual: one number.  pooled: what ``krylov`` sends.  distpca: r1 + r2 leading directions (``start.py``), then M_i (d x r1)
    as in ``varpro.py``.

Cost
    As the methods that they are made of.

References
    N. Shi, R. A. Kontar, "Personalized PCA: decoupling shared and unique features", Sections 7.1.2 and 7.1.5 (indivPCA, CPCA, and
    distPCA with local deflation); J. Fan et al., Ann. Stat. 47 (2019).

>>> import numpy as np, eigenpact as ep
>>> rows = {name: np.random.default_rng(i).normal(size=(40, 5)) for i, name in enumerate("AB")}
>>> individual = ep.PersonalizedPCA(n_global=1, n_local=2, solver="individual").fit(rows)
>>> individual.components_.shape, individual.local_components_["A"].shape
((0, 5), (3, 5))
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import InputError
from ...numerics.linalg import Array, top_eigenpairs
from ...runtime import Local, Progress, Reply, Site, Sum, local
from ..consensus.krylov import Krylov
from ..method import method
from ..solution import Solution, State
from .local_part import promised_gain
from .parts import PART, PersonalSetup, covariance_of, held_out_error, settle
from .start import MERGED_START, merged_start
from .varpro import exact_local_part


@local(
    takes={"U": "d k", "r1": ""},
    sends={"captured": "", "held_out": ""},
    reads=(*PART, "rank"),
    keeps=("V", "values"),
    bound="trace",
    means={"U": "orthonormal"},
)
def own_part(site: Site, U: Array, r1: Any) -> Reply:
    """What r1 + r2 of the site's own components capture besides U; with a negative r1 none are kept."""
    values, V, SU = covariance_of(site).split(U, site.kept["rank"] + int(r1) if int(r1) >= 0 else 0)
    captured = float(np.sum(U * SU) + values.sum())
    return Reply((captured, held_out_error(site, U, V)), {"V": V, "values": values})


@method("personalized", {Sum: (own_part,)}, role="baseline")
class Individual:
    """Every site's own PCA with r1 + r2 components; nothing is shared."""

    name = "individual"
    default_tol = 0.0

    async def fit(self, setup: PersonalSetup, start: Array | None = None, state: State | None = None) -> Solution:  # noqa: ARG002
        """One round."""
        nothing = np.zeros((setup.n_features, 0))
        r1 = np.int64(setup.whole_components())
        captured, held_out = await Sum(own_part, nothing, r1)
        if setup.n_held_out:
            await Local(settle, nothing, r1)
        notes = _notes(setup, captured, held_out)
        await Progress(basis=nothing, objective=notes["captured"])
        return Solution(nothing, np.zeros(0), None, None, True, "every site solved its own problem", notes)


@method("personalized", {Sum: (own_part,)}, includes=(Krylov,), role="baseline")
class Pooled:
    """PCA of all rows together with r1 + r2 components; nothing is local."""

    name = "pooled"
    default_angle = Krylov.default_angle

    async def fit(self, setup: PersonalSetup, start: Array | None = None, state: State | None = None) -> Solution:  # noqa: ARG002
        """By ``krylov``, then one round for the objective."""
        count = min(setup.whole_components() + setup.n_local, setup.n_samples, setup.n_features)
        if setup.max_rounds < 2:
            raise InputError(f"max_rounds={setup.max_rounds} leaves no round for the objective; give 2 or more")
        if setup.n_held_out:
            raise InputError("solver='pooled' holds no rows out; give validation_fraction=None, and measure on rows of your own")
        found = await Krylov().fit(replace(setup, n_components=count, max_rounds=setup.max_rounds - 1), start)
        captured, held_out = await Sum(own_part, found.basis, np.int64(-1))
        notes = _notes(setup, captured, held_out)
        await Progress(basis=found.basis, objective=notes["captured"], kkt=found.kkt)
        return replace(found, eigenvalues=found.eigenvalues / setup.n_samples, notes=notes)


@method("personalized", {Sum: (exact_local_part,)}, parts=(MERGED_START,), role="baseline")
class DistPCA:
    """Global components from the mean of the sites' projectors, local ones from what they leave: two rounds."""

    name = "distpca"
    default_tol = 0.0

    async def fit(self, setup: PersonalSetup, start: Array | None = None, state: State | None = None) -> Solution:  # noqa: ARG002
        """Merge, then deflate; always anew, because the merge is the answer: an earlier one has sites that are gone."""
        U = await merged_start(setup, "distpca")
        M, captured, held_out = await Sum(exact_local_part, U)
        if setup.n_held_out:
            await Local(settle, U, np.int64(0))
        notes = _notes(setup, captured, held_out)
        M = M / setup.n_sites
        B = U.T @ M
        values, rotation = top_eigenpairs(B)
        kkt = setup.scaled_kkt(promised_gain(M - U @ B, B, setup.total), float(captured) / setup.n_sites)
        await Progress(basis=U, objective=notes["captured"], kkt=kkt)
        return Solution(U @ rotation, np.maximum(values, 0.0), kkt, None, True, "two rounds are all there are", notes)


def _notes(setup: PersonalSetup, captured: Any, held_out: Any) -> dict[str, float]:
    total = setup.total * setup.n_sites
    return {"captured": float(captured) / total if total > 0 else 0.0, "held_out": float(held_out) / max(1, setup.n_held_out)}
