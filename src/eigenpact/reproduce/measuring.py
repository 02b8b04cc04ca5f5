"""Solvers on a problem whose answer is known: the true residual after every round, and the first round that is good enough."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

import numpy as np
import scipy.linalg

from ..algorithms.setup import Center
from ..algorithms.solution import Algorithm
from ..datasets import spectral_problem
from ..errors import NotConvergedWarning
from ..estimators import FederatedPCA
from ..numerics.linalg import Array
from ..numerics.rows import Rows
from ..runtime import RoundRecord
from .own_rounds import OwnRounds
from .registry import Watch

MAX_ROUNDS = 3000
"""The FAPS paper's MaxIter."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Sites, all held in this process, with what solvers are measured by.

    Attributes
    ----------
    name : str
    sites : name -> rows (n_i x d)
    n_components : int
    center : "pooled", "site" or False
    scatter : (d, d) array
        The pooled scatter C.
    exact : (n_components,) array
        The leading singular values of the pooled rows.
    """

    name: str
    sites: Mapping[str, Array]
    n_components: int
    center: Center
    scatter: Array
    exact: Array

    @property
    def trace(self) -> float:
        """Trace of the pooled scatter."""
        return float(np.trace(self.scatter))

    def measure(self, Z: Array) -> tuple[float, float, float]:
        """Of an orthonormal basis Z (d x k): scaled KKT, relative error of its singular values, captured variance."""
        G = self.scatter @ Z
        inside = Z.T @ G
        values = np.sqrt(np.maximum(scipy.linalg.eigvalsh(inside)[::-1], 0.0))
        error = float(np.linalg.norm(values - self.exact) / np.linalg.norm(self.exact))
        return float(np.linalg.norm(G - Z @ inside)) / self.trace, error, float(np.trace(inside))


def spectral(
    name: str,
    *,
    features: int,
    rows: int,
    sites: int | Sequence[int],
    components: int,
    decay: float = 1.01,
    condition: float | None = None,
    seed: int = 0,
) -> Problem:
    """The FAPS paper's problem (23) with the spectrum (24), or with ``condition`` that of its Section 5.6; not centred.

    >>> spectral("tiny", features=3, rows=12, sites=2, components=2, decay=2.0).exact.tolist()
    [1.0, 0.5]
    """
    held = spectral_problem(features, rows, decay=decay, sites=sites, seed=seed, condition=condition)
    steps = np.arange(components, dtype=np.float64)
    exact = decay**-steps if condition is None else 1.0 - steps / max(min(features, rows) - 1, 1) * (1.0 - 1.0 / condition)
    return Problem(name, held, components, False, _scatter(held, None), exact)


def real(name: str, sites: Mapping[str, Array], components: int, center: Center) -> Problem:
    """Real rows; ``center`` is "pooled" or False.  The exact singular values come from the eigenvalues of the scatter."""
    mean = None
    if center == "pooled":
        mean = reduce(np.add, (Rows(X).column_sums() for X in sites.values())) / sum(len(X) for X in sites.values())
    C = _scatter(sites, mean)
    d = len(C)
    values = scipy.linalg.eigvalsh(C, subset_by_index=(d - components, d - 1), check_finite=False)[::-1]
    return Problem(name, sites, components, center, C, np.sqrt(np.maximum(values, 0.0)))


def _scatter(sites: Mapping[str, Array], mean: Array | None) -> Array:
    return reduce(np.add, (Rows(X, mean).scatter() for X in sites.values()))


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


@dataclass(frozen=True)
class Point:
    """After a round of the method's own: the true scaled KKT of the basis, the relative error of its singular values, and its
    captured variance."""

    round: int
    kkt: float
    relative_error: float
    captured: float


@dataclass(frozen=True)
class Measured:
    """What a solver did.

    Attributes
    ----------
    target : float
        The scaled KKT it was asked for.
    rounds : int or None
        The first round after which the true KKT was at most ``target``; a one-shot start counts as a round, set-up does not,
        nor do rounds by which an answer is confirmed.
    kkt, relative_error : float
        After that round; if there is none, after the last one.
    own_stop : int
        Rounds until the solver itself stopped, with the ``confirming`` ones, by which all but krylov had their answer confirmed.
    seconds : float
        Until then, with all sites in this process and without the measuring.
    """

    problem: str
    name: str
    like: str | None
    target: float
    rounds: int | None
    kkt: float
    relative_error: float
    own_stop: int
    confirming: int
    converged: bool
    seconds: float
    curve: tuple[Point, ...]

    def rounds_to_error(self, error: float | None) -> int | None:
        """The first round after which the relative error of the singular values was at most ``error``."""
        return None if error is None else next((p.round for p in self.curve if p.relative_error <= error), None)

    def change_when_reached(self) -> float | None:
        """By how much the captured variance changed, relatively, in the round that reached the target: the quantity of (27)."""
        at = next((i for i, point in enumerate(self.curve) if point.round == self.rounds), 0)
        return abs(1 - self.curve[at - 1].captured / self.curve[at].captured) if at else None

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)


def measured(problem: Problem, contender: Contender, target: float, seed: int, watch: Watch) -> Measured:
    """Run a solver until its own rule stops it, and measure the basis after every round of its own."""
    curve, own = list[Point](), OwnRounds()
    begin, apart = time.perf_counter(), 0.0

    def callback(record: RoundRecord) -> None:
        nonlocal apart
        entered = time.perf_counter()
        number = own.number(record)
        if number is not None and record.basis is not None:
            curve.append(Point(number, *problem.measure(record.basis)))
            watch.on_round(f"{problem.name}, {contender.name}: round {number}, KKT {curve[-1].kkt:.1e}")
        apart += time.perf_counter() - entered

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)  # told by ``converged``
        pca = FederatedPCA(
            problem.n_components,
            solver=contender.solver,
            center=problem.center,
            tol=None if contender.own_rule else target / contender.tighter,
            max_rounds=contender.max_rounds,
            random_state=seed,
            callback=callback,
        ).fit(dict(problem.sites))
    seconds = time.perf_counter() - begin - apart
    hit = next((point for point in curve if point.kkt <= target), None)
    shown = hit or curve[-1]
    result = Measured(
        problem=problem.name,
        name=contender.name,
        like=contender.like,
        target=target,
        rounds=hit.round if hit else None,
        kkt=shown.kkt,
        relative_error=shown.relative_error,
        own_stop=int(pca.n_rounds_),
        confirming=own.confirming,
        converged=bool(pca.converged_),
        seconds=seconds,
        curve=tuple(curve),
    )
    reached = f"KKT {target:.2e} after {result.rounds} rounds" if hit else f"KKT {shown.kkt:.1e} after {shown.round} rounds"
    watch.on_run(f"{problem.name}, {contender.name}: {reached}, {seconds:.1f} s")
    return result
