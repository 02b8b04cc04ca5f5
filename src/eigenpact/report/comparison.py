"""Every solver on the same sites, all held in this process: rounds, bytes, seconds, accuracy, and what each site revealed.

A rehearsal on data one may hold.  Because all rows are here, accuracy is measured and not believed: after every round the basis
is multiplied by the pooled scatter, and compared with the exact components of the pooled rows.

>>> import numpy as np
>>> rng = np.random.default_rng(0)
>>> sites = {name: rng.normal(size=(40, 6)) * [5, 4, 1, 1, 1, 1] for name in ("A", "B")}
>>> comparison = compare(sites, 2)
>>> gram = next(run for run in comparison.runs if run.name == "gram")
>>> gram.outcome, gram.rounds, gram.sine < 1e-12
('converged', 1, True)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np
import scipy.sparse

from ..algorithms import auto
from ..algorithms.consensus.krylov import Krylov
from ..algorithms.setup import Center, Scale
from ..algorithms.solution import Algorithm
from ..algorithms.statistical.davidson import Davidson
from ..algorithms.statistical.one_shot import Merge, OneShot
from ..algorithms.statistical.shift_invert import ShiftInvert
from ..errors import EigenpactError, InputError
from ..estimators import FederatedPCA
from ..estimators.choices import joint_solvers
from ..estimators.inputs import hold
from ..numerics.linalg import Array
from ..privacy.replies import Recorded, from_products, in_short
from ..runtime import COORDINATOR, Ledger, RoundRecord, Sites, find_local
from .messages import Left, bytes_text, what_left
from .styles import solver_of
from .truth import Pooled, Reference, exact, pool
from .watching import Watched, unwarned

OnRound = Callable[[str, RoundRecord], object]

TOL, MAX_ROUNDS = 1e-8, 500
"""Loose and long enough for solvers that converge linearly."""

AUDITED_FEATURES = 128
"""Up to so many, the replies of the last site are attacked; ``eigenpact audit`` takes its time for more."""

MOST_CURVES = 8
"""More in one picture are not told apart."""

CONVERGED, NOT_CONVERGED, NOT_APPLICABLE, FAILED = "converged", "not converged", "not applicable", "failed"


@dataclass(frozen=True)
class Point:
    """Where a solver stood after a round: what had travelled until then (all sites, with set-up), and how good its basis was.

    ``kkt`` is the scaled residual by the pooled scatter, whatever the solver itself believes; ``sine`` is that of the largest
    angle to the exact components, None where they are undetermined or another number of them.
    """

    round: int
    bytes_up: int
    bytes_down: int
    seconds: float
    kkt: float
    sine: float | None


@dataclass(frozen=True)
class Revealed(Left):
    """What a local function sent from each site, what that is, the names of its arrays, and how it left.

    ``collective`` is "sum" where the coordinator needs nothing but the sum, "gather" where it needs every reply, and so on.
    """

    meaning: str
    arrays: str
    collective: str


@dataclass(frozen=True)
class Run:
    """One solver's run.  A solver that could not run has a ``reason`` and no numbers.

    ``single_replies`` says how well the last site's scatter C_i was computed from its single replies.
    """

    name: str
    outcome: str
    reason: str
    n_components: int | None = None
    rounds: int | None = None
    setup_rounds: int | None = None
    bytes_up: int | None = None
    bytes_down: int | None = None
    seconds: float | None = None
    sine: float | None = None
    kkt: float | None = None
    revealed: tuple[Revealed, ...] = ()
    curve: tuple[Point, ...] = ()
    single_replies: str = ""


@dataclass(frozen=True, eq=False)
class Comparison:
    """All runs, the truth they were measured by, and the problem.

    ``sites`` are numbers of rows by name; ``pooled_bytes`` is what sending all rows would have taken.
    """

    sites: Mapping[str, int]
    n_features: int
    settings: Mapping[str, Any]
    reference: Reference
    pooled_bytes: int
    runs: tuple[Run, ...]

    @property
    def n_samples(self) -> int:
        """Rows of all sites."""
        return sum(self.sites.values())

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it; numbers that are not finite become None."""
        reference = {"how": self.reference.how, "n_components": int(self.reference.basis.shape[1])}
        reference |= {"uncertainty": self.reference.uncertainty, "seconds": self.reference.seconds}
        whole = {
            "sites": dict(self.sites),
            "n_features": self.n_features,
            "settings": dict(self.settings),
            "reference": reference,
            "pooled_bytes": self.pooled_bytes,
            "runs": [asdict(run) for run in self.runs],
        }
        return _finite(whole)  # type: ignore[no-any-return]


def candidates(own: str, solvers: Sequence[str] = ()) -> dict[str, Algorithm]:
    """The solvers of these names, by default all, some of them in several variants; ``own`` is the coordinator's own site.

    >>> list(candidates("A", ["krylov"]))
    ['krylov', 'krylov, own site as proxy', 'krylov, one-shot start']
    """
    known = joint_solvers()
    unknown = [name for name in solvers if name not in known]
    if unknown:
        raise InputError(f"unknown solver {unknown[0]!r}; the solvers to compare are {', '.join(known)}")
    variants: dict[str, dict[str, Algorithm]] = {
        "krylov": {
            "krylov": Krylov(),
            "krylov, own site as proxy": Krylov(proxy=own),
            "krylov, one-shot start": Krylov(start="one-shot"),
        },
        "davidson": {"davidson, own site as proxy": Davidson(proxy=own)},  # without one it is lanczos
        "shift-invert": {"shift-invert, own site as proxy": ShiftInvert(proxy=own)},
        "one-shot": {f"one-shot, {merge}": OneShot(merge=merge) for merge in get_args(Merge)},
    }
    chosen: dict[str, Algorithm] = {}
    for name, make in known.items():
        if name in solvers or not solvers:
            chosen |= variants.get(name, {name: make()})
    return chosen


def compare(
    sites: Any,
    n_components: int | float | None,
    *,
    solvers: Mapping[str, Algorithm] | None = None,
    center: Center = "pooled",
    scale: Scale = None,
    tol: float = TOL,
    max_rounds: int = MAX_ROUNDS,
    random_state: int = 0,
    on_round: OnRound | None = None,
    on_run: Callable[[Run], object] | None = None,
) -> Comparison:
    """Run solvers one after the other on the same sites, from the same seed to the same tolerance.

    Parameters
    ----------
    sites : dict or list of tables
        As for ``FederatedPCA.fit``; arrays or scipy sparse matrices of rows (n_i x d).
    n_components, center, scale, tol, max_rounds, random_state
        As for ``FederatedPCA``.
    solvers : mapping of names to algorithms, optional
        By default every solver there is, with the first site as the coordinator's own.
    on_round : function of a solver's name and a RoundRecord, optional
    on_run : function of a Run, optional
        Called when a solver is done.
    """
    held = hold(FederatedPCA(), sites)
    settings: dict[str, Any] = {
        "n_components": n_components,
        "center": center,
        "scale": scale,
        "tol": tol,
        "max_rounds": max_rounds,
        "random_state": random_state,
    }
    pooled = pool(held, settings)
    reference = exact(pooled, held, settings)
    runs = []
    for name, solver in (candidates(next(iter(held))) if solvers is None else solvers).items():
        refusal = _too_large(solver, pooled)
        measure = _Measure(pooled, reference)
        runs.append(Run(name, NOT_APPLICABLE, refusal) if refusal else _run(name, solver, held, settings, measure, on_round))
        if on_run is not None:
            on_run(runs[-1])
    return Comparison(
        sites={name: int(X.shape[0]) for name, X in held.items()},
        n_features=pooled.setup.n_features,
        settings=settings,
        reference=reference,
        pooled_bytes=sum(_size(X) for X in held.values()),
        runs=tuple(runs),
    )


def worth_drawing(runs: Sequence[Run]) -> list[Run]:
    """At most eight runs for one picture: the best variant of each solver first, then the best of the others.

    Better is what converged, in fewer rounds, then with fewer bytes.  The order is that of ``runs``.
    """
    drawable = [run for run in runs if run.curve]
    best_first = sorted(drawable, key=lambda run: (run.outcome != CONVERGED, run.rounds or 0, run.bytes_up or 0))
    first_of = {solver_of(run.name)[0]: run for run in reversed(best_first)}
    ranked = sorted(best_first, key=lambda run: first_of[solver_of(run.name)[0]] is not run)
    chosen = {run.name for run in ranked[:MOST_CURVES]}
    return [run for run in drawable if run.name in chosen]


class _Measure:
    """Called after every round: measures the basis, and keeps its own time out of the solver's."""

    def __init__(self, pooled: Pooled, reference: Reference) -> None:
        self.curve: list[Point] = []
        self._pooled, self._reference = pooled, reference
        self._up = self._down = 0
        self._begin, self._measuring = time.perf_counter(), 0.0

    def __call__(self, record: RoundRecord) -> None:
        now = time.perf_counter()
        self._up += record.bytes_up
        self._down += record.bytes_down
        if record.basis is not None:
            residual, sine = self.accuracy(record.basis)
            self.curve.append(Point(record.round, self._up, self._down, self.seconds(now), residual, sine))
        self._measuring += time.perf_counter() - now

    def accuracy(self, Z: Array) -> tuple[float, float | None]:
        """Scaled KKT residual of Z (d x k), and the sine of its largest angle to the truth."""
        return self._pooled.residual(Z), self._reference.sine(Z)

    @property
    def n_features(self) -> int:
        """Features of the problem."""
        return self._pooled.setup.n_features

    def told_by_replies(self, engine: Watched, ledger: Ledger, sites: Sequence[str]) -> str:
        """How well the replies of the one site that was listened to give its scatter, and by which round."""
        if not engine.listened:
            return f"not attacked: more than {AUDITED_FEATURES} features"
        truth = {name: rows.scatter() for name, rows in zip(sites, self._pooled.rows, strict=True)}
        return in_short(from_products(Recorded(engine.heard, ledger, self.n_features, truth), engine.listened))

    def seconds(self, now: float) -> float:
        """Seconds the solver has taken until ``now``."""
        return now - self._begin - self._measuring


def _run(
    name: str, solver: Algorithm, held: Sites, settings: Mapping[str, Any], measure: _Measure, on_round: OnRound | None
) -> Run:
    """Run one solver; what stops it is told, not raised."""
    audited = list(held)[-1]  # the first is the coordinator's own
    engine = Watched(listened=audited if measure.n_features <= AUDITED_FEATURES else "")

    def callback(record: RoundRecord) -> None:
        measure(record)
        if on_round is not None:
            on_round(name, record)

    try:
        with unwarned():  # told by the outcome, by the reference, once for all, and by the reason
            pca = FederatedPCA(**settings, solver=solver, engine=engine, callback=callback).fit(held)
        seconds = measure.seconds(time.perf_counter())
        residual, sine = measure.accuracy(engine.bases[-1])
    except InputError as error:
        return Run(name, NOT_APPLICABLE, str(error))
    except (EigenpactError, np.linalg.LinAlgError) as error:
        return Run(name, FAILED, str(error), curve=tuple(measure.curve))
    return Run(
        name=name,
        outcome=CONVERGED if pca.converged_ else NOT_CONVERGED,
        reason=pca.stop_reason_,
        n_components=pca.n_components_,
        rounds=pca.n_rounds_,
        setup_rounds=pca.n_setup_rounds_,
        bytes_up=pca.ledger_.bytes_up,
        bytes_down=pca.ledger_.bytes_down,
        seconds=seconds,
        sine=sine,
        kkt=residual,
        revealed=_revealed(pca.ledger_, engine.steps),
        curve=tuple(measure.curve),
        single_replies=measure.told_by_replies(engine, pca.ledger_, tuple(held)),
    )


def _too_large(solver: Algorithm, pooled: Pooled) -> str:
    """Why "auto" would not consider this solver on a problem of this size; empty if it would, or has no opinion."""
    for row in auto.estimates(pooled.setup, Watched.costs):
        if row["solver"] == solver.name and not row["allowed"]:
            d, size = pooled.setup.n_features, bytes_text(row["bytes"])
            return f"{d} features are beyond its limit of {auto.GRAM_FEATURES}: it would send {size} at once; use krylov"
    return ""


def _revealed(ledger: Ledger, steps: Mapping[tuple[int, int], tuple[str, str]]) -> tuple[Revealed, ...]:
    """What left the sites, with the collectives by which it left."""
    asked: dict[str, dict[str, str]] = {}
    for message in ledger:
        if message.sender != COORDINATOR and message.shapes and message.note != "own":
            kind, function = steps[message.epoch, message.step]
            asked.setdefault(message.function, {})[kind] = function
    revealed = []
    for row in what_left(ledger):
        kinds = asked[row.function]
        local = find_local(next(iter(kinds.values())))
        meaning = (local.__doc__ or "").partition("\n")[0].replace("``", "")
        revealed.append(Revealed(**vars(row), meaning=meaning, arrays=", ".join(local.sends), collective=", ".join(kinds)))
    return tuple(revealed)


def _size(X: Any) -> int:
    """Bytes of a table; of a sparse one, as it is stored."""
    if scipy.sparse.issparse(X):
        return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes)
    return int(X.nbytes) if hasattr(X, "nbytes") else int(np.prod(X.shape)) * X.dtype.itemsize


def _finite(value: Any) -> Any:
    """The same, with None for numbers that JSON cannot hold."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value
