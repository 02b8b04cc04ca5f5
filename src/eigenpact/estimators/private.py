"""``PrivatePCA``: principal components of which no single row can be told, with an account of what they reveal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from sklearn.utils.validation import check_array, check_is_fitted

from ..algorithms.private.moments import PrivateProblem, PrivateSetup, agree_privately
from ..algorithms.private.noisy_gram import NoisyGram
from ..algorithms.private.noisy_subspace import NoisySubspace
from ..algorithms.solution import Solution
from ..engines import Dask
from ..errors import InputError
from ..numerics.accounting import epsilon_by_zcdp, epsilon_of, rho_for
from ..numerics.linalg import Array, fix_signs
from ..numerics.rows import Rows
from ..runtime import Connection, Engine, Entrusted, Plan, Program, RoundRecord
from .base import PooledEstimator
from .choices import find_engine, find_solver
from .inputs import check_new_rows
from .persons import first_rows, persons_of
from .plans import plan_of
from .purses import BUDGET_KEYS, purse_in
from .results import UNSEEN, Result

SECURED = False
"""Whether sums are secured, so that nobody sees a single reply.  The one place to change when ``secure=True`` is there."""

FITS = 5000
"""Features up to which "auto" adds up scatter matrices."""

Unit = Literal["row", "person"]


@dataclass(frozen=True, eq=False, kw_only=True)
class PrivateResult(Result):
    """Attributes of a fitted :class:`PrivatePCA`."""

    basis: Array = field(metadata=UNSEEN)
    n_components: int
    n_samples_seen: int
    components: Array
    mean: Array
    scale: Array
    explained_variance: Array
    explained_variance_ratio: Array | None
    noise_deviation: float
    angle_estimate: float | None
    epsilon: float
    delta: float
    epsilon_zcdp: float
    epsilon_single_reply: float | None
    rho: float
    unit: str
    rows_per_person: int
    honest_sites: int
    promise: str


class PrivatePCA(PooledEstimator):
    """Joint principal components with differential privacy: nothing exact leaves a site.

    The number of rows, their sum, and their scatter matrix about the noisy mean leave the sites with noise; what is published is
    made of these alone.  Whether any one row (or person) was there changes the probability of any outcome by a factor of at most
    exp(epsilon), but for outcomes of probability delta.

    Parameters
    ----------
    n_components : int
    epsilon, delta : float
        What may be revealed, for the whole fit.  Epsilon of 1 is usual, 10 is weak; delta must be well below one over the rows.
    row_bound : float
        The length that rows are cut to about the noisy mean: a public number, from the meaning of the features and never from
        these rows.  Noise grows with its square; rows that are longer are shortened, which turns the components.
    mean_bound : float, optional
        The length that rows are cut to about ``origin`` before their mean is taken; by default ``row_bound``.
    origin : (n_features,) array, optional
        A public point near the rows, for data far from zero; by default zeros.
    unit : "row" or "person"
        What is hidden: any one row, or all rows of any one person, which needs ``rows_per_person`` and ``persons`` in ``fit``.
    rows_per_person : int, optional
        Of a person with more rows at a site, the first so many are used.
    honest_sites : int, optional
        Sites that add their share of the noise and keep it to themselves: each adds one such part of the variance.  By default 1,
        where every site adds all of it and need not trust others.  More than 1 is worth nothing against whoever sees single
        replies, unless sums are secured.
    solver : "auto", "noisy-gram", "noisy-subspace", or an instance such as ``ep.solvers.NoisySubspace(rounds=6)``
        "auto" takes "noisy-gram" up to 5000 features.
    budget : path or mapping, optional
        A folder in which the sites of this process keep what they spent and the noise they drew; or {"folder": path,
        "max_epsilon": 3.0, "max_delta": 1e-6}, to refuse what is more than that in all.
    random_state, engine, journal, callback
        As for ``FederatedPCA``; a journal needs a budget, so that a run that is resumed finds its noise.  Noise does not depend
        on ``random_state``.

    Attributes
    ----------
    components_, explained_variance_, explained_variance_ratio_, mean_, n_samples_seen_
        With noise in them; the ratio is None where the trace is not known ("noisy-subspace").  ``scale_`` is ones.
    epsilon_, delta_, unit_, rows_per_person_, honest_sites_
        What was promised, and on which assumption; ``promise_`` says it in a sentence.
    rho_, epsilon_zcdp_ : float
        The cost in zCDP, which adds up over fits; and the epsilon that follows from it without knowing that noise was Gaussian.
    epsilon_single_reply_ : float or None
        What somebody learns who sees single replies; None where nobody does.
    angle_estimate_ : float or None
        The sine of the angle that noise turned the components by, seldom more; None where it hides the gap, or is not known.
    noise_deviation_ : float
        Standard deviation of the noise on the diagonal of the scatter (in an entry of the last product for "noisy-subspace").

    Examples
    --------
    >>> import numpy as np, eigenpact as ep
    >>> X = np.random.default_rng(0).normal(size=(20000, 4)) * [2, 1, 0.2, 0.1]
    >>> pca = ep.PrivatePCA(2, epsilon=1, delta=1e-6, row_bound=5).fit({"A": X[:9000], "B": X[9000:]})
    >>> pca.unit_, pca.honest_sites_, bool(pca.angle_estimate_ < 0.2)
    ('row', 1, True)
    """

    _result_type = PrivateResult
    tol: float | None = None

    def __init__(
        self,
        n_components: int,
        *,
        epsilon: float,
        delta: float,
        row_bound: float,
        mean_bound: float | None = None,
        origin: Any = None,
        unit: Unit = "row",
        rows_per_person: int | None = None,
        honest_sites: int | None = None,
        solver: Any = "auto",
        budget: str | Path | Mapping[str, Any] | None = None,
        random_state: Any = None,
        engine: Any = "inprocess",
        journal: str | Path | None = None,
        callback: Callable[[RoundRecord], Any] | None = None,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.row_bound = row_bound
        self.mean_bound = mean_bound
        self.origin = origin
        self.unit = unit
        self.rows_per_person = rows_per_person
        self.honest_sites = honest_sites
        self.solver = solver
        self.budget = budget
        self.random_state = random_state
        self.engine = engine
        self.journal = journal
        self.callback = callback

    def fit(self, X: Any = None, y: Any = None, *, sites: Any = None, persons: Any = None) -> Self:
        """Fit on one matrix (with a site label per row in ``sites``), a list of tables, or a dict of named tables.

        ``persons`` tells whose row each is, in the same form as X: one label per row, or a list or dict of such.
        """
        if (persons is None) == (self.unit == "person"):
            raise InputError(f"unit={self.unit!r}: persons= must be given for unit='person', one label a row, and else left out")
        self._persons = persons_of(X, sites, persons)
        try:
            return super().fit(X, y, sites=sites)
        finally:
            del self._persons

    # -- fitting --------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        self._check_choice("unit", "row", "person")
        for name in ("n_components", "rows_per_person", "honest_sites"):
            value = getattr(self, name)
            if value is not None or name == "n_components":
                self._check_limit(name, value)
        if (self.rows_per_person is None) == (self.unit == "person"):
            raise InputError(
                f"rows_per_person={self.rows_per_person!r} with unit={self.unit!r}: give the most rows that count of one person "
                "for unit='person', and nothing for unit='row'"
            )
        for name in ("row_bound", "mean_bound"):
            value = getattr(self, name)
            if value is None and name == "mean_bound":
                continue
            if not (isinstance(value, Real) and 1e-100 < float(value) < 1e100):
                raise InputError(f"{name}={value!r} must be a positive number, known before the rows are looked at")
        budget = self.budget
        if isinstance(budget, Mapping) and ("folder" not in budget or set(budget) - set(BUDGET_KEYS)):
            raise InputError(f"budget={budget!r} must have a folder, and besides it at most {', '.join(BUDGET_KEYS[1:])}")
        if self.budget is not None and isinstance(find_engine(self.engine), Dask):
            raise InputError("budget= is for sites of this process; with engine Dask the rows are at workers")
        self._rho()
        super()._check_parameters()

    def _check_sizes(self, rows: int, features: int) -> None:  # noqa: ARG002
        if not self.n_components <= features:
            raise InputError(f"n_components={self.n_components} must be at most the number of features, {features}")

    def _rho(self) -> float:
        """What may be spent for one row: m rows of a person change everything m times as much."""
        return rho_for(self.epsilon, self.delta) / (self.rows_per_person or 1) ** 2

    def _find_algorithm(self, engine: Engine) -> Any:  # noqa: ARG002
        if isinstance(self.solver, str) and self.solver == "auto":
            return NoisyGram() if getattr(self, "n_features_in_", 0) <= FITS else NoisySubspace()
        return find_solver("PrivatePCA", self.solver, also=("auto",))

    def _entrusted(self, held: dict[str, Any]) -> dict[str, Any]:
        """Rows of persons up to their number, with the purse of each site."""
        if self.unit == "person":
            if not held and not find_engine(self.engine).spread:
                raise InputError("unit='person' needs the rows here; sites elsewhere say rows_per_person in their policy")
            held = {name: first_rows(rows, self._persons, name, int(self.rows_per_person or 1)) for name, rows in held.items()}
        if self.budget is None:
            if self.journal is not None and held:
                raise InputError(
                    "journal= needs budget=, a folder: a run that is resumed must find the noise that it drew before"
                )
            return held
        per_person = int(self.rows_per_person or 1)
        return {name: Entrusted(rows, purse_in(self.budget, name, rows, per_person)) for name, rows in held.items()}

    def _meet(self, connection: Connection, order: tuple[str, ...]) -> None:  # noqa: ARG002
        """Before anything is asked: noise divided among more sites than there are would be too little."""
        self._width = next(iter(connection.n_features().values()))
        self._check_sizes(0, self._width)
        sites = len(connection.sites())
        if (self.honest_sites or 1) > sites:
            raise InputError(f"honest_sites={self.honest_sites} of {sites} sites; it must be at most their number")

    def _least_sites(self, engine: Engine, connection: Connection) -> int:
        """All of them: to begin anew without a site would spend once more."""
        return max(engine.min_sites, len(connection.sites()))

    def _plan(self, algorithm: Any) -> Plan:
        return plan_of(algorithm, 1 + int(getattr(algorithm, "rounds", 1)), int(self.n_components))

    def _program(self, algorithm: Any, seed: int) -> Program:
        problem = PrivateProblem(
            n_components=int(self.n_components),
            rho=self._rho(),
            bound=float(self.row_bound),
            mean_bound=float(self.row_bound if self.mean_bound is None else self.mean_bound),
            origin=self._origin(),
            honest=int(self.honest_sites or 1),
            n_features=self._width,
            seed=seed,
        )
        begun = 0  # every beginning spends

        async def program(start: Array | None, state: Any) -> tuple[PrivateSetup, Solution, int]:  # noqa: ARG001
            nonlocal begun
            begun += 1
            setup = await agree_privately(problem)
            if setup.n_sites < problem.honest:
                raise InputError(f"honest_sites={problem.honest}, but {setup.n_sites} sites answered; their noise is too little")
            return setup, await algorithm.fit(setup), begun

        return program

    def _origin(self) -> Array | None:
        if self.origin is None:
            return None
        origin = np.asarray(check_array(self.origin, ensure_2d=False, dtype=np.float64))
        if origin.shape != (self._width,):
            raise InputError(f"origin has shape {origin.shape}; give one number for each of the {self._width} features")
        return origin

    def _settings(self) -> dict[str, Any]:
        given = super()._settings()
        return given | {"budget": None if given["budget"] is None else "kept"}

    def _result(self, found: tuple[PrivateSetup, Solution, int], **told: Any) -> PrivateResult:
        setup, solution, begun = found
        n, k, trace = setup.n_samples, setup.n_components, solution.notes["trace"]
        honest, per_person = setup.honest, int(self.rows_per_person or 1)
        rho = begun * self._rho() * per_person**2
        epsilon = epsilon_of(rho, self.delta)
        single = None if SECURED else epsilon_of(rho * honest, self.delta)
        values = np.maximum(solution.eigenvalues, 0.0)
        return PrivateResult(
            n_components=k,
            n_features_in=setup.n_features,
            n_samples_seen=n,
            basis=solution.basis,
            components=fix_signs(solution.basis).T,
            mean=setup.mean,
            scale=np.ones(setup.n_features),
            explained_variance=values / max(1, n - 1),
            explained_variance_ratio=None if trace is None else values / max(trace, float(values.sum()), np.finfo(float).tiny),
            noise_deviation=solution.notes["noise"],
            angle_estimate=solution.angle,
            epsilon=epsilon,
            delta=float(self.delta),
            epsilon_zcdp=epsilon_by_zcdp(rho, self.delta),
            epsilon_single_reply=single,
            rho=rho,
            unit=self.unit,
            rows_per_person=per_person,
            honest_sites=honest,
            promise=self._promise(epsilon, single, honest, len(told["sites"])),
            converged=bool(solution.converged),
            stop_reason=solution.reason,
            doubts=() if solution.cut == "clear" else (_hidden(k),),
            **told,
        )

    def _promise(self, epsilon: float, single: float | None, honest: int, sites: int) -> str:
        """What is promised, to whom, and what is assumed."""
        what = "any one row" if self.unit == "row" else f"the rows of any one person, up to {self.rows_per_person} at one site,"
        text = (
            f"whether {what} was there changes the probability of any result by a factor of at most exp({epsilon:.4g}), but for "
            f"results of probability {self.delta:g}, if {honest} of {sites} sites add their share of the noise and keep it to "
            "themselves"
        )
        if single is None or honest == 1:
            return text
        return f"{text}; sums were not secured: to whoever sees single replies, as the coordinator can, epsilon is {single:.4g}"

    # -- using ----------------------------------------------------------------------------------

    def transform(self, X: Any) -> Any:
        """Scores (n, k) of rows (n, n_features): centred by ``mean_``, projected on the components.  They are not private."""
        check_is_fitted(self)
        X = check_new_rows(self, X, accept_sparse=["csr", "csc"])
        return Rows(X, self.mean_).project(self.components_.T).astype(X.dtype)


def _hidden(k: int) -> str:
    return (
        f"noise hides whether component {k} has more variance than component {k + 1}; ask for fewer components, a smaller "
        "row_bound, or a larger epsilon"
    )
