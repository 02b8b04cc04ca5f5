"""How solvers are run here: without warnings about what is told by numbers, on a clock that stops while they are measured."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from ..algorithms.confirmation import LOST
from ..algorithms.solution import Algorithm
from ..errors import NotConvergedWarning
from ..estimators import FederatedPCA
from ..estimators.base import SiteEstimator
from ..numerics.linalg import Array
from ..numerics.metrics import largest_sine
from ..runtime import RoundRecord

MAX_ROUNDS = 3000
"""The FAPS paper's MaxIter."""

Model = TypeVar("Model", bound=SiteEstimator)
Look = TypeVar("Look")


@dataclass(frozen=True)
class Contender:
    """A solver under the name it is shown with; ``like`` is the paper's name for it, if the paper has it.

    ``own_rule`` keeps the solver's own stopping rule, where that is not the KKT residual; ``max_rounds`` caps it.  ``tighter``
    asks for a KKT so many times smaller than the one to which rounds are counted.
    """

    name: str
    solver: Algorithm
    like: str | None = None
    own_rule: bool = False
    tighter: float = 1.0
    max_rounds: int = MAX_ROUNDS

    def estimator(self, n_components: int, seed: int, **settings: Any) -> FederatedPCA:
        """Not yet fitted."""
        return FederatedPCA(n_components, solver=self.solver, max_rounds=self.max_rounds, random_state=seed, **settings)


class OwnRounds:
    """Numbers the rounds of one run as if nothing had been confirmed.

    Rounds by which the answer of a paper's method is confirmed are ours, and do not count as its rounds.
    A method whose answer was not confirmed goes on.  Where that was because it had missed a direction, it goes on from what the
    confirmation found: from then on no round is its own.
    """

    def __init__(self) -> None:
        self.confirming = 0
        self._confirmed: Array | None = None
        self._set_right = False

    def number(self, record: RoundRecord) -> int | None:
        """The round of the method that the record is about, None if it is none of its own."""
        if "confirming" in record.details:
            self.confirming += 1
            self._confirmed = record.basis
            return None
        if self._confirmed is not None and record.basis is not None:
            self._set_right = self._set_right or largest_sine(self._confirmed, record.basis) > LOST
            self._confirmed = None
        self._set_right = self._set_right or "set_right" in record.details
        return None if self._set_right else record.round - self.confirming


class Stopwatch:
    """Seconds since it was made, without those spent ``apart``."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Do not count what is done meanwhile."""
        entered = time.perf_counter()
        yield
        self._begin += time.perf_counter() - entered

    @property
    def seconds(self) -> float:
        """Until now."""
        return time.perf_counter() - self._begin


def fit_quietly(pca: Model, sites: Mapping[str, Any], *known: type[Warning]) -> Model:
    """Fit without warnings that it did not converge, or of the kinds ``known``: whoever asks tells it by numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        for kind in known:
            warnings.simplefilter("ignore", kind)
        pca.fit(dict(sites))
    return pca


def follow(pca: FederatedPCA, sites: Mapping[str, Array], look: Callable[[int, Array], Look]) -> tuple[list[Look], int, float]:
    """Fit, and look at the basis after every round of the method's own.

    Handed back are the looks, how many rounds were to confirm the answer, and seconds without the looking.
    """
    looks, own, clock = list[Look](), OwnRounds(), Stopwatch()

    def callback(record: RoundRecord) -> None:
        with clock.apart():
            number = own.number(record)
            if number is not None and record.basis is not None:
                looks.append(look(number, record.basis))

    fit_quietly(pca.set_params(callback=callback), sites)
    return looks, own.confirming, clock.seconds
