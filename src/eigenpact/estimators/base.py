"""What every estimator over sites shares: hold the rows, run one program where the engine puts it, keep a journal."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ..algorithms.method import declaration_of
from ..algorithms.setup import Problem
from ..errors import InputError
from ..numerics.single import suits_single, suits_single_products
from ..runtime import Connection, Driver, Engine, Journal, Outcome, Plan, Program, RoundRecord, Secured, Spreading
from ..runtime.consensus import Graph
from .choices import candidates_of, describe_solver, find_engine, informed, place_proxy, plain
from .frames import split_off_sites
from .inputs import adopt, hold, is_several_sites
from .results import Result
from .securing import as_secured, secured, secured_plan

EVERYWHERE = ("solver", "tol", "max_rounds", "random_state", "engine", "journal", "callback", "whiten", "verbose")
"""Parameters of all estimators."""


class SiteEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Fitting over sites.

    A subclass has the parameters ``tol``, ``random_state``, ``engine`` and ``callback``, and ``max_rounds`` and ``journal`` if
    there is a coordinator.  It checks its own in ``_check_parameters``, and says what is run and what becomes of it:
    ``_find_algorithm``, ``_plan``, ``_program``, ``_settings`` and ``_result``.
    """

    tol: float | None
    max_rounds: int = 1
    random_state: Any
    engine: Any
    journal: Any = None
    callback: Any
    secure: Any = False
    n_features_in_: int
    graph_: Graph | None = None
    _result_type: type[Result]
    _kept: tuple[str, ...] = ()
    """What sites keep of the answer, besides what the solver declares."""
    _scores_by_site = False
    """Whether scores depend on the site whose rows they are of."""
    _elsewhere = False
    """Whether the engine holds all rows, and this process none."""
    _suits_single = True
    """Whether rows of this process may be multiplied in single precision with a block, as far as their kind tells."""
    _suits_triangles = True
    """Whether with each other, too."""
    _computes_there = False
    """Whether rows of another array library are multiplied where they lie, say on a GPU; else they are copied here in pieces."""
    _keeps_narrow = False
    """Whether whole numbers of one or two bytes are not copied, but converted some at a time."""
    _takes_gaps = False
    """Whether NaN stands for a missing entry, and rows may stay on disk."""

    def fit(self, X: Any = None, y: Any = None, *, sites: Any = None) -> Self:  # noqa: ARG002
        """Fit on one matrix (with a site label per row in ``sites``), a list of tables, or a dict of named tables.

        ``sites`` may also be the name of a column of a DataFrame, which is then no feature: ``fit(df, sites="hospital")``.
        X is None only where the engine holds the data.  With engine Dask, X may be a dask array or DataFrame: each worker's
        blocks are a site.
        """
        return self._fit(X, sites)

    def _fit(self, X: Any, sites: Any, sample_weight: Any = None) -> Self:
        engine = find_engine(self.engine)
        self._check_parameters()
        held = adopt(self, engine, X, sites, gaps=self._takes_gaps)
        here: dict[str, Any] = {}
        if held is None:
            X, sites = (X, sites) if X is None or is_several_sites(X) else split_off_sites(X, sites)
            try:
                held = here = hold(self, X, sites, gaps=self._takes_gaps, narrow=self._keeps_narrow) if X is not None else {}
            except InputError as error:
                if sample_weight is None or "only finite numbers are allowed" not in str(error):
                    raise
                raise InputError(
                    f"{error}; rows of weight 0 must be finite, too: leave them out of X and sample_weight"
                ) from error
            held = self._weighed(held, X, sites, sample_weight)
        elif sample_weight is not None:
            raise InputError("sample_weight does not go with a dask array or DataFrame; give numpy tables, one per site")
        self._elsewhere = not held and not engine.spread
        if held and not engine.spread:
            rows = sum(int(part.shape[0]) for part in held.values())
            if rows < 2:
                raise InputError(f"n_samples={rows}: one row has no variance; give at least two rows in all")
            self._check_sizes(rows, self.n_features_in_)
        if isinstance(engine, Spreading):
            engine.check_features(getattr(self, "feature_names_in_", None) if held else None)
        algorithm = secured(self._find_algorithm(engine)) if self.secure else self._find_algorithm(engine)
        as_given = getattr(engine, "device", None) is None
        self._suits_single = as_given and all(map(suits_single_products, held.values()))
        self._suits_triangles = as_given and all(map(suits_single, held.values()))
        order = tuple(held)
        graph = self._find_graph(engine, order)
        held = self._entrusted(held)
        outcome = engine.execute(held, lambda connection: self._run(connection, algorithm, engine, order), graph=graph)
        self.history_, self.ledger_ = outcome.history, outcome.ledger
        result = self._result_type.from_outcome(outcome)
        self._adopt(result, outcome.kept)
        self._remember(here)
        for kind, text in result.warnings():
            warnings.warn(text, kind, stacklevel=2)
        return self

    def fit_transform(self, X: Any, y: Any = None, *, sites: Any = None) -> Any:
        """Fit on one matrix and return its scores; for several sites use ``fit``, then ``transform`` for each site's rows."""
        X, sites = one_matrix(X, sites, labelled=sites is not None and self._scores_by_site)
        return self.fit(X, y, sites=sites).transform(X)

    # -- what a subclass says -------------------------------------------------------------------

    def _check_parameters(self) -> None:
        """Refuse parameters that no data can suit, before anything runs."""
        if self.tol is not None and not (isinstance(self.tol, Real) and self.tol >= 0):
            raise InputError(f"tol={self.tol!r} must be a number >= 0, or None for the solver's own")
        if self.callback is not None and not callable(self.callback):
            raise InputError(f"callback={self.callback!r} must be a function of one record, or None")
        as_secured(self.secure)
        self._check_limit("max_rounds", self.max_rounds)

    def _check_choice(self, name: str, *allowed: Any) -> None:
        value = getattr(self, name)
        if not any(value is choice or (isinstance(value, str) and value == choice) for choice in allowed):
            *first, last = (repr(choice) for choice in allowed)
            raise InputError(f"{name}={value!r} must be {', '.join(first)} or {last}")

    @staticmethod
    def _check_limit(name: str, value: Any) -> None:
        if not (isinstance(value, Integral) and int(value) >= 1):
            raise InputError(f"{name}={value!r} must be a whole number >= 1")

    @abstractmethod
    def _check_sizes(self, rows: int, features: int) -> None:
        """Refuse what this many rows and features in all cannot give."""

    @abstractmethod
    def _find_algorithm(self, engine: Engine) -> Any:
        """The algorithm to run: a frozen dataclass with a ``name``."""

    def _meet(self, connection: Connection, order: tuple[str, ...]) -> None:
        """Look at the sites before anything is asked of them; ``order`` names those of this process."""

    def _entrusted(self, held: dict[str, Any]) -> dict[str, Any]:
        """The rows of this process (site -> rows) as they are given to the engine."""
        return held

    def _weighed(self, held: dict[str, Any], X: Any, sites: Any, sample_weight: Any) -> dict[str, Any]:  # noqa: ARG002
        """The rows of this process (site -> rows) with what was given as their weights."""
        return held

    def _least_sites(self, engine: Engine, connection: Connection) -> int:  # noqa: ARG002
        """How many sites must be left for a run to go on."""
        return engine.min_sites

    def _find_graph(self, engine: Engine, held: tuple[str, ...]) -> Graph | None:  # noqa: ARG002
        """Node -> neighbours, for programs without a coordinator, to be kept as ``graph_``; None for the others."""
        return None

    @abstractmethod
    def _plan(self, algorithm: Any) -> Plan:
        """What the run is about to do, for sites with a policy."""

    @abstractmethod
    def _program(self, algorithm: Any, seed: int) -> Program:
        """The program: from a start and a state to a coroutine."""

    def _secured(self, connection: Connection) -> Secured | None:  # noqa: ARG002
        """How sums of this run are secured, if they are."""
        return as_secured(self.secure)

    def _tells_site_means(self) -> bool:
        """Whether sums are asked for that tell few sites' means apart, even secured."""
        return bool(getattr(self, "center", None) == "site")

    def _problem(self, n_components: int | float | None, seed: int) -> Problem:
        """What is to be solved, for estimators with ``center`` and ``scale``."""
        return Problem(
            n_components=int(n_components) if isinstance(n_components, np.integer) else n_components,
            center=self.center,
            scale=self.scale,
            tol=None if self.tol is None else float(self.tol),
            max_rounds=int(self.max_rounds),
            seed=seed,
            secured=as_secured(self.secure) is not None,
        )

    def _settings(self) -> dict[str, Any]:
        """Parameters that a journal must agree with, besides those that all estimators have, as JSON can hold them."""
        given = self.get_params(deep=False)
        return {name: plain(value) for name, value in given.items() if name not in EVERYWHERE}

    @abstractmethod
    def _result(self, found: Any, **told: Any) -> Result:
        """What the program returned as fitted attributes, in the coordinator's process; ``told`` are those of every result."""

    def _adopt(self, result: Result, kept: Mapping[str, Mapping[str, Any]]) -> None:  # noqa: ARG002
        """Take over the attributes of a result, and what the sites of this process keep (site -> name -> value)."""
        self.__dict__ |= result.attributes()

    def _remember(self, held: dict[str, Any]) -> None:
        """Take note of the rows that this process holds (site -> rows); most estimators forget them."""

    @contextmanager
    def _watched(self) -> Iterator[Callable[[RoundRecord], Any] | None]:
        """Whom the driver tells of every round."""
        yield self.callback

    # -- running --------------------------------------------------------------------------------

    def _run(self, connection: Connection, algorithm: Any, engine: Engine, order: tuple[str, ...]) -> Outcome:
        """Advance the program; runs in one place only, wherever the engine puts the coordinator."""
        self._meet(connection, order)
        own = None
        if getattr(algorithm, "proxy", None) is not None:  # else nobody need be asked before the plan is announced
            everyone = connection.sites()
            algorithm, own = place_proxy(algorithm, order if set(order) == set(everyone) else everyone)
        if own is not None and own not in connection.own_sites():
            raise InputError(
                f"proxy={own!r} is not a site of the coordinator's own process, so its rows cannot help without travelling; "
                f"allowed here are {', '.join(connection.own_sites()) or 'none'}"
            )
        algorithm = informed(algorithm, engine, connection, self.journal, secured=self._secured(connection) is not None)
        own = own or getattr(algorithm, "alone", None)
        seed = self._seed()
        with self._open_journal(connection, algorithm, seed, order) as journal, self._watched() as callback:
            if seed is None:
                seed = journal.seed if journal is not None else int.from_bytes(os.urandom(4), "little")
            secure, could = self._secured(connection), [algorithm, *candidates_of(algorithm, connection)]
            plans = [self._plan(one) for one in could]
            if secure is not None:
                plans = [secured_plan(plan, secure, self._tells_site_means()) for plan in plans]
            driver = Driver(
                connection,
                journal=journal,
                callback=callback,
                own=own,
                graph=self.graph_,
                min_sites=self._least_sites(engine, connection),
                plan=plans[0],
                instead=plans[1:],
                secure=secure,
            )
            algorithm = could[driver.chosen]
            found = driver.run(self._program(algorithm, seed))
        rounds = {"n_rounds": driver.rounds, "n_setup_rounds": driver.setup_rounds}
        result = self._result(found, sites=driver.roster, solver=algorithm.name, left_out=driver.doubted, **rounds)
        if driver.chosen:
            result = result.chosen_instead([one.name for one in could[: driver.chosen + 1]])
        return result.to_outcome(driver, (*self._kept, *declaration_of(algorithm).results))

    def _seed(self) -> int | None:
        """The seed that ``random_state`` stands for; None if none was given."""
        if self.random_state is None:
            return None
        try:
            return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        except ValueError as error:
            raise InputError(f"random_state={self.random_state!r} is not a seed: give a whole number >= 0, or None") from error

    @contextmanager
    def _open_journal(
        self, connection: Connection, algorithm: Any, seed: int | None, order: tuple[str, ...]
    ) -> Iterator[Journal | None]:
        """The journal of a run with these parameters, if one is wanted; closed in the end."""
        if self.journal is None:
            yield None
            return
        description = {
            "n_features": next(iter(connection.n_features().values())),
            "features": _in_short(getattr(self, "feature_names_in_", None)) if order else None,
            "solver": describe_solver(algorithm),
            "tol": None if self.tol is None else float(self.tol),
            "max_rounds": int(self.max_rounds),
            "seed": seed,
        }
        named = getattr(connection, "run", "")  # of engines whose runs have a name for all parties
        journal = Journal(self.journal, description | self._settings(), named)
        try:
            yield journal
        finally:
            journal.close()

    # -- scikit-learn ---------------------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return state | {"callback": None}


class PooledEstimator(SiteEstimator):
    """What estimators share that give all sites the same components, ``mean_`` and ``scale_``."""

    def inverse_transform(self, T: Any) -> Any:
        """Rows (n, n_features) whose scores are T (n, k)."""
        check_is_fitted(self)
        scores = np.asarray(T)
        if scores.ndim != 2 or scores.shape[1] != self.n_components_:
            raise InputError(
                f"scores have shape {scores.shape}; give a table with {self.n_components_} columns, one per component"
            )
        return (scores @ self.components_) * self.scale_ + self.mean_

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])


def one_matrix(X: Any, sites: Any, *, labelled: bool = False) -> tuple[Any, Any]:
    """One matrix, without its column of sites if ``sites`` names one, and the labels of its rows; several sites are refused."""
    if is_several_sites(X) or labelled:
        raise InputError(
            "fit_transform takes one matrix, because the scores of several sites stay with their sites; "
            "call fit(X), then transform for the rows of each site"
        )
    return split_off_sites(X, sites)


def _in_short(names: Sequence[str] | None) -> str | None:
    """Names of columns as a journal's description holds them: their number, the first, and a digest of all in their order."""
    if names is None:
        return None
    whole = hashlib.blake2b(json.dumps([str(name) for name in names]).encode(), digest_size=8).hexdigest()
    return f"{len(names)} from {names[0]!s} on, {whole}"
