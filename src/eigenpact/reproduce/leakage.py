"""What subspace iteration tells about one site: its scatter, recovered from the replies of more and more rounds."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..algorithms.consensus.subspace import Subspace
from ..datasets import partition, spectral_problem
from ..engines import InProcess
from ..engines.blas import limited_blas
from ..errors import NotConvergedWarning
from ..estimators import FederatedPCA
from ..numerics.linalg import Array
from ..privacy import Eavesdropper, minimum_norm, symmetric

ATTACKS: dict[str, Callable[[Array, Array], Array]] = {"minimum norm": minimum_norm, "symmetric": symmetric}
"""The paper's attack, and the one that also uses the symmetry of what it looks for."""

MORE_ROUNDS, MOST_ROUNDS = 4, 30
"""The attacks get the rounds after which the blocks could span everything and some more, but at most so many: by then
blocks of an iteration that converges have nothing new to tell in double precision."""


def spectral_rows(features: int, rows: int, sites: int, decay: float, seed: int) -> dict[str, Array]:
    """The FAPS paper's matrix (23)-(24)."""
    return spectral_problem(features, rows, decay=decay, sites=sites, seed=seed)


def normal_rows(features: int, rows: int, sites: int, seed: int) -> dict[str, Array]:
    """Independent normal entries, scaled to a largest singular value of 1, as that of (23) is."""
    A = np.random.default_rng(seed).normal(size=(rows, features))
    A /= np.sqrt(np.linalg.eigvalsh(A.T @ A)[-1])
    dealt: dict[str, Array] = partition.random(A, sites, seed=seed)
    return dealt


@dataclass(frozen=True)
class Reached:
    """By how many rounds an attack came within the accuracy, None if it did not, and its error after ``last`` rounds."""

    rounds: int | None
    last: int
    error: float


@dataclass(frozen=True, eq=False)
class Leak:
    """Subspace iteration on sites (name -> n_i x d), overheard.  Errors and KKT violations are not scaled, as in the paper."""

    sites: Mapping[str, Array]
    components: int
    seed: int

    @property
    def first(self) -> str:
        """The site that is attacked."""
        return next(iter(self.sites))

    @cached_property
    def wanted(self) -> Array:
        """The scatter of that site (d x d)."""
        X = self.sites[self.first]
        C: Array = X.T @ X
        return C

    @property
    def rounds(self) -> int:
        """Rounds that the attacks are given."""
        return min(-(-len(self.wanted) // self.components) + MORE_ROUNDS, MOST_ROUNDS)

    @cached_property
    def overheard(self) -> tuple[Array, Array]:
        """All blocks that SSI sent, and the site's replies, side by side (d x rounds p).

        Not those by which its answer is confirmed in the end: they are ours, and a random block among them tells more.
        """
        spy = Eavesdropper(InProcess())
        pca = self._iterate(1e-15, self.rounds + 1, spy)  # one round to confirm
        heard = zip(spy.replies(self.first, "scatter_action"), pca.history_, strict=True)
        own = [reply for reply, record in heard if "confirming" not in record.details]
        return np.hstack([reply.args[0] for reply in own]), np.hstack([reply.arrays[0] for reply in own])

    def error(self, attack: str, rounds: int) -> float:
        """||Phi - A_1 A_1^T||_F when the replies of so many rounds are used."""
        blocks, products = (part[:, : rounds * self.components] for part in self.overheard)
        with limited_blas(1):  # more threads are slower where others compute, too
            return float(np.linalg.norm(ATTACKS[attack](blocks, products) - self.wanted))

    def reached(self, attack: str, accuracy: float) -> Reached:
        """The first round after which the error is at most ``accuracy``, by bisection."""
        last = self.overheard[0].shape[1] // self.components
        error = self.error(attack, last)
        if error > accuracy:
            return Reached(None, last, error)
        below, enough = 0, last
        while enough - below > 1:
            middle = (below + enough) // 2
            below, enough = (below, middle) if self.error(attack, middle) <= accuracy else (middle, enough)
        return Reached(enough, last, error)

    def violations(self, accuracy: float, max_rounds: int) -> list[float]:
        """||(I - Z Z^T) A A^T Z||_F by round of SSI, until it is at most ``accuracy``."""
        trace = float(sum(np.sum(X**2) for X in self.sites.values()))
        pca = self._iterate(accuracy / trace, max_rounds, InProcess())
        own = (record for record in pca.history_ if "confirming" not in record.details)
        return [record.kkt * trace for record in own if record.kkt is not None]

    def _iterate(self, tol: float, max_rounds: int, engine: Any) -> FederatedPCA:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConvergedWarning)  # it is stopped on purpose
            return FederatedPCA(
                self.components,
                solver=Subspace(),
                center=False,
                tol=tol,
                max_rounds=max_rounds,
                random_state=self.seed,
                engine=engine,
            ).fit(dict(self.sites))
