"""``FederatedPCA``: scikit-learn's PCA for rows that stay where they are."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..algorithms.goal import EXACT_ANGLE
from ..algorithms.setup import Center, Problem, Scale, Setup, agree, check_n_components
from ..algorithms.solution import Algorithm, Solution, cut_in_words
from ..errors import InputError, NotConvergedWarning, NotIdentifiableWarning
from ..numerics.linalg import Array, fix_signs
from ..numerics.rows import Rows
from ..runtime import Driver, Engine, Outcome, Plan, Program, RoundRecord
from .base import SiteEstimator
from .choices import find_joint_solver
from .inputs import check_new_rows, is_several_sites
from .plans import plan_of

DWARFS = 0.999
"""Share of the variance from which on one feature is said to dwarf the others."""

WORTH_TELLING = 2.0
"""How many times larger than what was reached an angle that rounded rows allow must be to be told of."""


class FederatedPCA(SiteEstimator):
    """Exact joint principal components of several sites, without pooling their rows.

    On one site this is scikit-learn's ``PCA``; on several it equals ``PCA`` of all rows together.

    Parameters
    ----------
    n_components : int, float or None
        Number of components; a share of the variance in (0, 1) (solvers "auto", "gram", "krylov"); None for all.
    solver : str or algorithm
        "auto", "gram", "krylov", "subspace", or an instance with parameters, e.g. ``ep.solvers.Krylov(proxy="A")``.
    center : "pooled", "site" or False
        Subtract the pooled mean, each site's own mean, or nothing.
    scale : None or "pooled"
        Divide by the pooled standard deviations, about the sites' own means for ``center="site"``, else about the pooled mean.
    tol : float, optional
        Bound on the scaled KKT residual ||(I - Z Z^T) C Z||_F / tr C; None takes the solver's own.
    max_rounds : int
        Rounds after which to stop with ``converged_ = False`` and a warning.
    random_state : int, RandomState or None
    engine : str or engine
        "inprocess", "mpi", "dask", or an instance such as ``ep.engines.InProcess(threads=1)``.
    journal : path, optional
        A file that lets a killed run go on: fit again with the same settings and the same path.
    callback : callable, optional
        Called with a record after every round: ``record.round``, ``record.basis``, ``record.kkt``, ``record.bytes_up``, ...

    Attributes
    ----------
    components_ : (k, n_features) array
        Orthonormal rows; in each, the entry of largest magnitude is positive.
    explained_variance_, explained_variance_ratio_, singular_values_ : (k,) arrays
    mean_, scale_ : (n_features,) arrays
        What ``transform`` subtracts and divides by (zeros for ``center=False``, ones for ``scale=None``).
    noise_variance_ : float
    n_components_, n_samples_seen_, n_features_in_ : int
    sites_ : tuple of str
        The sites whose joint PCA this is.
    n_rounds_, n_setup_rounds_ : int
    converged_ : bool
    stop_reason_ : str
    angle_estimate_ : float or None
        Estimated sine of the largest angle to the exact answer.
    between_site_share_ : float
        Share of the pooled variance that lies between site means; "pooled" and "site" centring differ by it.
    history_ : list of RoundRecord
    ledger_ : Ledger
        Every message: round, function, sender, receiver, shapes, dtypes, bytes.
    solver_ : str
        The solver that ran; with "auto", ``solver_choice_`` is the table it was chosen from.

    Examples
    --------
    >>> import numpy as np, eigenpact as ep
    >>> rng = np.random.default_rng(0)
    >>> A, B = rng.normal(size=(50, 6)) * [5, 4, 1, 1, 1, 1], rng.normal(size=(30, 6)) * [5, 4, 1, 1, 1, 1]
    >>> pca = ep.FederatedPCA(n_components=2).fit({"A": A, "B": B})
    >>> pca.transform(A).shape, pca.sites_
    ((50, 2), ('A', 'B'))
    """

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        solver: str | Algorithm = "auto",
        center: Center = "pooled",
        scale: Scale = None,
        tol: float | None = None,
        max_rounds: int = 3000,
        random_state: Any = None,
        engine: Any = "inprocess",
        journal: str | Path | None = None,
        callback: Callable[[RoundRecord], Any] | None = None,
    ) -> None:
        self.n_components = n_components
        self.solver = solver
        self.center = center
        self.scale = scale
        self.tol = tol
        self.max_rounds = max_rounds
        self.random_state = random_state
        self.engine = engine
        self.journal = journal
        self.callback = callback

    # -- fitting --------------------------------------------------------------------------------

    def _check_sizes(self, rows: int, features: int) -> None:
        check_n_components(self.n_components, rows, features)

    def _find_algorithm(self, engine: Engine) -> Algorithm:
        return find_joint_solver(self.solver, engine)

    def _plan(self, algorithm: Algorithm) -> Plan:
        return plan_of(algorithm, int(self.max_rounds), self._problem(0).n_components)

    def _program(self, algorithm: Algorithm, seed: int) -> Program:
        problem = self._problem(seed)

        async def program(start: Array | None, state: Mapping[str, Array] | None) -> tuple[Setup, Solution]:
            setup = await agree(problem)
            return setup, await algorithm.fit(setup, start, state)

        return program

    def _problem(self, seed: int) -> Problem:
        wanted = self.n_components
        return Problem(
            n_components=int(wanted) if isinstance(wanted, np.integer) else wanted,
            center=self.center,
            scale=self.scale,
            tol=None if self.tol is None else float(self.tol),
            max_rounds=int(self.max_rounds),
            seed=seed,
        )

    def _settings(self) -> dict[str, Any]:
        wanted = self.n_components if self.n_components is None else float(self.n_components)
        return {"n_components": wanted, "center": self.center, "scale": self.scale}

    def _check_parameters(self) -> None:
        if self.center not in ("pooled", "site", False) or (self.center == 0 and self.center is not False):
            raise InputError(f"center={self.center!r} must be 'pooled', 'site' or False")
        if self.scale not in (None, "pooled"):
            raise InputError(f"scale={self.scale!r} must be None or 'pooled'")
        super()._check_parameters()

    def _outcome(self, driver: Driver, result: tuple[Setup, Solution], algorithm: Algorithm) -> Outcome:
        setup, solution = result
        return Outcome(
            arrays={
                "basis": solution.basis,
                "eigenvalues": solution.eigenvalues,
                "mean": setup.mean,
                "scale": setup.scale,
            },
            facts={
                "n_samples": setup.n_samples,
                "dtype": "float32" if setup.single else "float64",
                "trace": setup.trace,
                "between_share": setup.between_share,
                "offset": setup.offset,
                "sites": list(driver.roster),
                "rounds": driver.rounds,
                "setup_rounds": driver.setup_rounds,
                "converged": bool(solution.converged),
                "reason": solution.reason,
                "angle": solution.angle,
                "cut": solution.cut,
                "solver": solution.notes.get("solver", algorithm.name),
                "choice": solution.notes.get("choice", []),
            },
            ledger=driver.ledger,
            history=driver.history,
        )

    def _adopt(self, outcome: Outcome) -> None:
        """Turn what the run ended with into fitted attributes."""
        arrays, facts = outcome.arrays, outcome.facts
        dtype = np.dtype(facts["dtype"])
        n, trace, eigenvalues = facts["n_samples"], facts["trace"], arrays["eigenvalues"]
        k, d = len(eigenvalues), len(arrays["mean"])
        self.n_components_ = k
        self.n_features_in_ = d
        self.n_samples_seen_ = n
        self.components_ = fix_signs(arrays["basis"]).T.astype(dtype)
        self.mean_ = (np.zeros(d) if self.center is False else arrays["mean"]).astype(dtype)
        self.scale_ = arrays["scale"].astype(dtype)
        self.explained_variance_ = (eigenvalues / (n - 1)).astype(dtype)
        self.explained_variance_ratio_ = (eigenvalues / trace if trace > 0 else np.zeros(k)).astype(dtype)
        self.singular_values_ = np.sqrt(eigenvalues).astype(dtype)
        rest = max(0.0, trace - float(eigenvalues.sum())) / (n - 1)
        self.noise_variance_ = rest / (min(n, d) - k) if k < min(n, d) else 0.0
        self.sites_ = tuple(facts["sites"])
        self.n_rounds_ = facts["rounds"]
        self.n_setup_rounds_ = facts["setup_rounds"]
        self.converged_ = facts["converged"]
        self.stop_reason_ = facts["reason"]
        last = float(eigenvalues[-1]) / n if k else 0.0
        limits = _limits(dtype, facts["offset"] if k < d else 0.0, last)
        self.angle_estimate_ = facts["angle"]
        if self.angle_estimate_ is not None:
            self.angle_estimate_ = min(1.0, float(np.linalg.norm([facts["angle"], *limits.values()])))
            what = max(limits, key=limits.__getitem__)
            if limits[what] > WORTH_TELLING * max(facts["angle"], EXACT_ANGLE):
                self.stop_reason_ += f"; {what} limits the sine to about {self.angle_estimate_:.1e}"
        advice = _advice(self)
        self.stop_reason_ += f"; {advice}" if advice else ""
        self.between_site_share_ = facts["between_share"]
        self.solver_ = facts["solver"]
        self.solver_choice_ = facts["choice"]
        self.history_ = outcome.history
        self.ledger_ = outcome.ledger
        if not self.converged_:
            warnings.warn(f"not converged: {self.stop_reason_}", NotConvergedWarning, stacklevel=3)
        unseen = self.tol is not None or facts["cut"] != "clear"  # else it was one round, which seldom proves an angle
        if advice and self.angle_estimate_ is None and self.converged_ and unseen:
            warnings.warn(f"components may be lost in rounding errors: {advice}", NotIdentifiableWarning, stacklevel=3)
        elif facts["cut"] == "empty" and self.n_components is not None:
            warnings.warn(f"{cut_in_words('empty', k)}; ask for fewer components", NotIdentifiableWarning, stacklevel=3)
        elif facts["cut"] in ("tied", "hidden"):
            warnings.warn(
                f"{cut_in_words(facts['cut'], k)}, so component {k} is one of many that would do; ask for fewer or more "
                "components, so that none of equal variance is left out",
                NotIdentifiableWarning,
                stacklevel=3,
            )

    # -- using ----------------------------------------------------------------------------------

    def transform(self, X: Any) -> Any:
        """Scores (n, k) of rows (n, n_features): centred by ``mean_``, scaled by ``scale_``, projected on the components."""
        rows = self._new_rows(X)
        return rows.project(self.components_.T.astype(np.float64)).astype(rows.X.dtype)

    def _new_rows(self, X: Any) -> Rows:
        """Checked rows (n, n_features), centred and scaled as the model's."""
        check_is_fitted(self)
        if is_several_sites(X):
            raise InputError("transform takes one table of rows; call it once for each site, where the scores are to stay")
        X = check_new_rows(self, X, accept_sparse=["csr", "csc"])
        return Rows(X, self.mean_.astype(np.float64), self.scale_.astype(np.float64))

    def inverse_transform(self, T: Any) -> Any:
        """Rows (n, n_features) whose scores are T (n, k)."""
        check_is_fitted(self)
        scores = np.asarray(T)
        if scores.ndim != 2 or scores.shape[1] != self.n_components_:
            raise InputError(
                f"scores have shape {scores.shape}; give a table with {self.n_components_} columns, one per component"
            )
        return (scores @ self.components_) * self.scale_ + self.mean_

    def fit_transform(self, X: Any, y: Any = None, *, sites: Any = None) -> Any:
        """Fit on one matrix and return its scores; for several sites use ``fit``, then ``transform`` for each site's rows."""
        if is_several_sites(X):
            raise InputError(
                "fit_transform takes one matrix, because the scores of several sites stay with their sites; "
                "call fit(X), then transform(rows) for each site"
            )
        return self.fit(X, y, sites=sites).transform(X)

    def score_samples(self, X: Any) -> Any:
        """Log-likelihood (n,) of rows under the probabilistic PCA model (Tipping and Bishop 1999)."""
        rows = self._new_rows(X)
        variances = self.explained_variance_.astype(np.float64)
        noise, d, k = self.noise_variance_, rows.d, len(variances)
        scores = rows.project(self.components_.T.astype(np.float64))
        distances = (scores**2 / variances).sum(axis=1)
        log_determinant = np.log(variances).sum() + 2 * np.log(self.scale_.astype(np.float64)).sum()
        if k < d:
            if noise <= 0:
                raise InputError("score needs noise outside the components: the data have rank n_components; ask for fewer")
            distances += (rows.row_squares() - (scores**2).sum(axis=1)) / noise
            log_determinant += (d - k) * np.log(noise)
        return -0.5 * (d * np.log(2 * np.pi) + log_determinant + distances)

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002
        """Average log-likelihood of rows, as ``sklearn.decomposition.PCA.score``."""
        return float(np.mean(self.score_samples(X)))

    # -- scikit-learn ---------------------------------------------------------------------------

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])


def _limits(dtype: np.dtype[Any], offset: float, variance: float) -> dict[str, float]:
    """The sines that rounded rows and components allow at best, by what limits them.

    Components are rounded to ``dtype``.  A mean m known to eps ||m|| adds eps^2 m m^T to the covariance.  ``offset`` is ||m|| in
    the units of the components, ``variance`` that of the last one.
    """
    centring = (float(np.finfo(float).eps) * offset) ** 2 / variance if variance > 0 else 0.0
    rounding = 0.0 if dtype == np.float64 else float(np.finfo(dtype).eps) / 2
    return {"the rows' distance from the origin": min(1.0, centring), "single precision": rounding}


def _advice(pca: FederatedPCA) -> str:
    """What to say where one feature has nearly all the variance: usually a matter of its unit."""
    if pca.scale is not None or pca.n_features_in_ < 2 or pca.n_components_ == 0:
        return ""
    feature = int(np.argmax(np.abs(pca.components_[0])))
    if pca.components_[0, feature] ** 2 < DWARFS or pca.explained_variance_ratio_[0] < DWARFS:
        return ""
    names = getattr(pca, "feature_names_in_", None)
    name = f"feature {feature}" if names is None else f"feature {names[feature]!r}"
    return f"{name} has {pca.explained_variance_ratio_[0]:.4%} of the variance by itself: if that is its unit, use scale='pooled'"
