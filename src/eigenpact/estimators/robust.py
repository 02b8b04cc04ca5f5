"""``RobustPCA``: principal components of rows that are low rank plus sparse gross errors, without pooling them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..algorithms.robust.agreement import Center, Rank, RobustProblem, RobustSetup, Scale, agree_robustly, check_components
from ..algorithms.robust.dcf import scores, solve
from ..algorithms.robust.entries import remove_errors
from ..algorithms.robust.shares import SHARES, error_shares
from ..algorithms.robust.solution import RobustAlgorithm, RobustSolution
from ..algorithms.robust.thresholds import START
from ..errors import InputError
from ..numerics.blas import limited_blas
from ..numerics.blocks import blocks_there, finer
from ..numerics.either import kept_where, there
from ..numerics.elsewhere import is_elsewhere, namespace, to_numpy
from ..numerics.linalg import Array, fix_signs, soft
from ..numerics.parts import side_by_side, threads_for_rows
from ..runtime import Connection, Engine, Plan, Program, RoundRecord, Secured
from .base import PooledEstimator
from .choices import find_solver
from .inputs import check_new_rows
from .plans import plan_of
from .results import PRIVATE, Result, precision

SMALLEST_THRESHOLD = 1e-10
"""Residuals below this, in units of an entry's size, are never errors: they are what rounding leaves."""

SUSPECT, SUSPECT_TIMES = 0.1, 3.0
"""A site is suspect whose share of errors exceeds SUSPECT by SUSPECT_TIMES the lower median of all shares (one of two can be)."""

PART_ENTRIES = 1 << 17
"""Entries of which one thread removes errors at a time."""

Found = tuple[RobustSetup, RobustSolution, dict[str, float]]


@dataclass(frozen=True, eq=False, kw_only=True)
class RobustResult(Result):
    """Attributes of a fitted :class:`RobustPCA`."""

    n_components: int
    n_samples_seen: int
    components: Array
    mean: Array
    scale: Array
    explained_variance: Array
    singular_values: Array
    threshold: float
    entry_size: float
    noise_scale: float
    error_share: float
    rank_fall: float | None
    shares: dict[str, float] = field(metadata=PRIVATE)
    origin: Array = field(metadata=PRIVATE)
    factor: Array = field(metadata=PRIVATE)
    rho: float | None = field(metadata=PRIVATE)


class RobustPCA(PooledEstimator):
    """Joint principal components of several sites although some entries are grossly wrong or missing.

    Rows are taken to be a low-rank part (n_components dimensions about a common mean), sparse errors of any size, and perhaps
    dense noise.  NaN in the input is a missing entry.  Rows given as a numpy memory map or a zarr array are read in blocks and
    never held in memory at once.

    Parameters
    ----------
    n_components : int
        Number of components, or with ``rank="upper"`` an upper bound on it.  With more than the low-rank part has, spare
        components fit errors, and L_i are off where they do.
    rank : "exact" or "upper"
        "upper" looks for the steepest fall of the spectrum after a few rounds and cuts there (solver "shrinking");
        "exact" needs the true rank.
    solver : str or algorithm
        "shrinking" (hard thresholds, exact consensus step), "dcf" (the paper's DCF-PCA), or an instance with parameters, e.g.
        ``ep.solvers.DCF(K=2)``.
    center : "pooled" or False
        Find a common mean along with the components, beginning at the medians; or none, for rows whose mean is near zero.
    scale : None or "robust"
        Divide features by the median deviations from their medians, so that one threshold suits features of different units.
    private : list, tuple or set of site names
        Sites that take part but reveal no L_i: ``low_rank`` and ``sparse`` refuse them, and their rows are not remembered.
    tell_shares : bool
        Ask every site in the end for the share of its entries that are wrong, so that ``error_shares()`` knows all sites.
        Sites held by this process are known without asking.
    tol : float, optional
        How far the basis may still turn in a round; None takes the solver's own.
    max_rounds : int
        Rounds after which to stop with ``converged_ = False`` and a warning.
    random_state, engine, journal, callback, secure
        As for :class:`FederatedPCA`.

    Attributes
    ----------
    components_ : (k, n_features) array
        Orthonormal rows; in each, the entry of largest magnitude is positive.
    explained_variance_, singular_values_ : (k,) arrays
        Of the low-rank part.
    mean_, scale_ : (n_features,) arrays
        Mean of the low-rank part (zeros for ``center=False``), and what features are divided by.
    threshold_ : float
        Residuals beyond it (after scaling) are errors.
    entry_size_, noise_scale_ : float
        Robust standard deviation of the entries and of the residuals.
    error_share_ : float
        Share of all observed entries that are errors.
    rank_fall_ : float or None
        With ``rank="upper"``: the ratio of the eigenvalues where the spectrum was cut; None if it was not.
    n_components_, n_samples_seen_, n_features_in_, sites_, n_rounds_, n_setup_rounds_, converged_, stop_reason_, history_,
    ledger_, solver_
        As for :class:`FederatedPCA`.

    Examples
    --------
    >>> import numpy as np, eigenpact as ep
    >>> rows, low_rank, sparse = ep.datasets.corrupted_problem(40, 120, rank=2, share=0.1, sites=3)
    >>> pca = ep.RobustPCA(2, random_state=0).fit(rows)
    >>> round(pca.error_share_, 3), bool(np.allclose(pca.sparse("site1"), sparse["site1"]))
    (0.1, True)
    """

    _result_type = RobustResult
    _takes_gaps = _computes_there = True

    def __init__(
        self,
        n_components: int,
        *,
        rank: Rank = "exact",
        solver: str | RobustAlgorithm = "shrinking",
        center: Center = "pooled",
        scale: Scale = None,
        private: Collection[str] = (),
        tell_shares: bool = False,
        tol: float | None = None,
        max_rounds: int = 200,
        random_state: Any = None,
        engine: Any = "inprocess",
        journal: str | Path | None = None,
        callback: Callable[[RoundRecord], Any] | None = None,
        secure: bool | Secured = False,
    ) -> None:
        self.n_components = n_components
        self.rank = rank
        self.solver = solver
        self.center = center
        self.scale = scale
        self.private = private
        self.tell_shares = tell_shares
        self.tol = tol
        self.max_rounds = max_rounds
        self.random_state = random_state
        self.engine = engine
        self.journal = journal
        self.callback = callback
        self.secure = secure

    # -- fitting --------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        self._check_choice("center", "pooled", False)
        self._check_choice("scale", None, "robust")
        self._check_choice("rank", "exact", "upper")
        self._private = self._named_private()
        super()._check_parameters()
        if self.tell_shares and self.max_rounds < 2:
            raise InputError("max_rounds=1 leaves no round for tell_shares=True, which takes the last one; give at least 2")

    def _named_private(self) -> frozenset[str]:
        """The sites that ``private`` names now."""
        named = self.private
        if not isinstance(named, list | tuple | set | frozenset) or not all(isinstance(name, str) for name in named):
            raise InputError(f"private={named!r} must be a list of site names, such as ['north']")
        return frozenset(named)

    def _meet(self, connection: Connection, order: tuple[str, ...]) -> None:  # noqa: ARG002
        """Make sure that no private site is spelt wrongly."""
        strangers = sorted(self._private - set(connection.sites())) if self._private else []
        if strangers:
            some = ", ".join(sorted(connection.sites())[:10])
            raise InputError(f"private names {strangers[0]!r}, which is no site; the sites are {some}")

    def _check_sizes(self, rows: int, features: int) -> None:
        check_components(self.n_components, rows, features)

    def _find_algorithm(self, engine: Engine) -> RobustAlgorithm:  # noqa: ARG002
        found: RobustAlgorithm = find_solver("RobustPCA", self.solver)
        return found

    def _plan(self, algorithm: RobustAlgorithm) -> Plan:
        also = (SHARES,) if self.tell_shares else ()
        return plan_of(algorithm, int(self.max_rounds), int(self.n_components), also=also)

    def _program(self, algorithm: RobustAlgorithm, seed: int) -> Program:
        problem = RobustProblem(
            n_components=int(self.n_components),
            rank=self.rank,
            center=self.center,
            scale=self.scale,
            tol=None if self.tol is None else float(self.tol),
            max_rounds=int(self.max_rounds),
            seed=seed,
            rounds_after=int(bool(self.tell_shares)),
        )

        async def program(start: Array | None, state: Mapping[str, Array] | None) -> Found:
            setup = await agree_robustly(problem)
            solution = await algorithm.fit(setup, start, state)
            shares: dict[str, float] = {}
            if self.tell_shares:
                shares = await error_shares(solution.basis, solution.shift, START * setup.size, _last(setup, solution))
            return setup, solution, shares

        return program

    def _settings(self) -> dict[str, Any]:
        told = super()._settings() | {"estimator": "RobustPCA", "tell_shares": bool(self.tell_shares)}
        return {name: value for name, value in told.items() if name != "private"}  # which changes nothing that is sent

    def _result(self, found: Found, **told: Any) -> RobustResult:
        setup, solution, shares = found
        dtype, notes, soft = precision(setup.single), solution.notes, solution.soft
        components = np.ascontiguousarray(fix_signs(solution.basis).T).astype(dtype)
        k, d = components.shape
        mean = setup.centre + setup.scale * solution.shift if self.center == "pooled" else np.zeros(d)
        return RobustResult(
            n_components=k,
            n_features_in=d,
            n_samples_seen=setup.n_samples,
            components=components,
            mean=mean,
            scale=setup.scale,
            explained_variance=(solution.eigenvalues / max(setup.n_samples - 1, 1)).astype(dtype),
            singular_values=np.sqrt(solution.eigenvalues).astype(dtype),
            threshold=_last(setup, solution),
            entry_size=setup.size,
            noise_scale=solution.deviation,
            error_share=solution.share,
            rank_fall=notes["fall"] if notes.get("revealed") else None,
            converged=bool(solution.converged),
            stop_reason=solution.reason,
            shares=shares,
            origin=setup.centre if soft else mean,
            factor=soft.U if soft else np.zeros((d, 0)),
            rho=soft.rho if soft else None,
            **told,
        )

    def _remember(self, held: dict[str, Any]) -> None:
        """References to the rows of sites that are not private; dropped when pickled."""
        self._rows = {name: rows for name, rows in held.items() if name not in self._private}

    # -- using ----------------------------------------------------------------------------------

    def low_rank(self, site: str) -> Any:
        """The low-rank part L_i (n_i, n_features) of a site's rows, mean included; computed here, nothing is sent.

        With ``solver="dcf"`` it is the paper's U V_i^T, V_i being least in (7) for the last U.
        """
        return self._decomposed(self._rows_of(site))[1]

    def sparse(self, site: str) -> Any:
        """The errors S_i (n_i, n_features) of a site's rows, zero where there are none; computed here, nothing is sent."""
        return self._decomposed(self._rows_of(site))[2]

    def decompose(self, X: Any) -> tuple[Any, Any]:
        """Low-rank part and errors (n, n_features) of any rows; what a site runs to see its own."""
        return self._decomposed(self._new_rows(X))[1:]

    def transform(self, X: Any) -> Any:
        """Scores (n, k) of rows (n, n_features) that may have wrong and missing entries: errors are removed first."""
        rows = self._new_rows(X)
        return self._decomposed(rows, parts=False)[0].astype(rows.dtype)

    def error_shares(self) -> dict[str, float]:
        """Site -> share of its observed entries that are errors; for all sites with ``tell_shares=True``, else for those here."""
        check_is_fitted(self)
        if self._shares:
            return dict(self._shares)
        return {name: self._error_share(rows) for name, rows in sorted(self._held().items())}

    def suspect_sites(self) -> dict[str, float]:
        """Site -> share of errors, for sites with far more errors than the others."""
        shares = self.error_shares()
        usual = sorted(shares.values())[(len(shares) - 1) // 2] if shares else 0.0
        return {name: share for name, share in shares.items() if share > SUSPECT + SUSPECT_TIMES * usual}

    def summary(self) -> str:
        """A few lines for people: rank, rounds, errors, and sites that stand out."""
        lines = [
            f"{self.n_components_} components of {len(self.sites_)} sites after {self.n_rounds_} rounds; "
            f"{'converged' if self.converged_ else 'not converged'}: {self.stop_reason_}",
            f"errors: {100 * self.error_share_:.2f} % of the observed entries; noise {self.noise_scale_:.2g} beside entries of "
            f"{self.entry_size_:.2g}",
        ]
        suspects = self.suspect_sites()
        lines += [f"site {name!r} stands out: {100 * share:.1f} % of its entries are errors" for name, share in suspects.items()]
        return "\n".join(lines if suspects else [*lines, "no site stands out"])

    # -- how ------------------------------------------------------------------------------------

    def _held(self) -> dict[str, Any]:
        return getattr(self, "_rows", {})

    def _rows_of(self, site: str) -> Any:
        check_is_fitted(self)
        if site not in self.sites_:
            raise InputError(f"no site {site!r} in this model; the sites are {', '.join(self.sites_[:10])}")
        if site in self._private | self._named_private():
            raise InputError(
                f"site {site!r} is private: it takes part but reveals no L_i; its owner may run decompose(rows) there"
            )
        if site not in self._held():
            raise InputError(
                f"this process does not hold the rows of site {site!r}; at the site, run decompose(rows) of this model, "
                "which gives the low-rank part and the errors without sending anything"
            )
        return self._held()[site]

    def _new_rows(self, X: Any) -> Any:
        """Checked rows (n, n_features)."""
        return check_new_rows(self, X, accept_sparse="csr", ensure_all_finite="allow-nan")

    def _decomposed(self, X: Any, *, parts: bool = True) -> tuple[Array, Array, Array]:
        """Scores (n, k), low-rank part and errors (n, n_features) of rows, a block at a time; without ``parts`` the scores."""
        n, d = (int(size) for size in X.shape)
        V = np.zeros((n, self.n_components_))
        L, S = (np.zeros((n, d)) for _ in range(2)) if parts else (np.zeros((0, d)), np.zeros((0, d)))

        def explain(part: tuple[slice, Any, Any]) -> None:
            where, M, observed = part
            scores, fitted, errors = self._explain(M, observed)
            V[where] = to_numpy(scores)
            if parts:
                R = to_numpy(kept_where(M - fitted, errors))
                S[where] = (R if self._rho is None else soft(R, self.threshold_)) * self.scale_
                L[where] = to_numpy(fitted) * self.scale_ + self._origin

        entries = blocks_there(X, self._origin, self.scale_)
        if is_elsewhere(X):
            for part in entries:
                explain(part)
            return V, L, S
        threads = max(1, min(os.cpu_count() or 1, -(-n * d // PART_ENTRIES)))  # none are started for one part
        with limited_blas(1), threads_for_rows(threads):  # products are small: BLAS's own threads would wait and spin
            for _ in side_by_side(explain, finer(entries, PART_ENTRIES)):
                pass
        return V, L, S

    def _explain(self, M: Any, observed: Any) -> tuple[Any, Any, Any]:
        """Scores of a block, its low-rank part from the origin, and where its errors are; all of them where the block lies."""
        Z = there(np.ascontiguousarray(self.components_.T, dtype=np.float64), M)
        V, wrong = remove_errors(M, observed, Z, START * self.entry_size_, self.threshold_)
        if self._rho is None:
            return V, V @ Z.T, wrong
        U = there(self._factor, M)
        V = solve(M, observed, U, scores(V @ Z.T, U, self._rho), self.threshold_, self._rho)  # from near the end: steps are short
        fitted = V @ U.T
        wrong = abs(M - fitted) > self.threshold_
        away = there((self.mean_ - self._origin) / self.scale_, M)
        return (fitted - away) @ Z, fitted, wrong if observed is None else wrong & observed

    def _error_share(self, X: Any) -> float:
        wrong = seen = 0
        for _, M, observed in blocks_there(X, self._origin, self.scale_):
            count = namespace(M).count_nonzero
            wrong += int(count(self._explain(M, observed)[2]))
            seen += prod(M.shape) if observed is None else int(count(observed))
        return wrong / max(seen, 1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_rows"}


def _last(setup: RobustSetup, solution: RobustSolution) -> float:
    """The threshold beyond which a residual is an error."""
    return max(solution.threshold, SMALLEST_THRESHOLD * setup.size, setup.rounding)
