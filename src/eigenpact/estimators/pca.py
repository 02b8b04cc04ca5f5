"""``FederatedPCA``: scikit-learn's PCA for rows that stay where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..algorithms.missing.mean import MeanFill
from ..algorithms.parameters import check_n_components
from ..algorithms.prepare.batch_adjust import own_step
from ..algorithms.prepare.residualize import Residualize
from ..algorithms.preparing import Preparer
from ..algorithms.rare import RARE
from ..algorithms.setup import Center, Scale, Setup, agree
from ..algorithms.solution import Algorithm, Solution, believed, cut_in_words
from ..errors import InputError
from ..numerics.columns import with_zeros
from ..numerics.linalg import Array, fix_signs
from ..numerics.preparation import Step, prepared, taken_out
from ..numerics.rows import Rows
from ..runtime import Engine, Plan, Program, RoundRecord, Secured
from .base import PooledEstimator
from .choices import find_joint_solver
from .inputs import check_new_rows
from .limits import limited_by, limits_of
from .missing import (
    Missing,
    check_likely,
    check_whole_if_sparse,
    feature_names,
    likelihoods,
    likely_program,
    likely_solver,
    noise_of,
)
from .plans import parts_to_prepare, plan_of
from .projection import Projecting
from .results import UNSEEN, Result, precision

DWARFS = 0.999
"""Share of the variance from which on one feature is said to dwarf the others."""

FILLING = frozenset({"fill", "expect", "genotypes"})
"""Kinds of steps after which no entry is missing."""


@dataclass(frozen=True, eq=False, kw_only=True)
class JointResult(Result):
    """Attributes of a fitted :class:`FederatedPCA`; ``basis`` (d x k) is float64 even where rows are single precision."""

    basis: Array = field(metadata=UNSEEN)
    n_components: int
    n_samples_seen: int
    components: Array
    mean: Array
    scale: Array
    explained_variance: Array
    explained_variance_ratio: Array
    singular_values: Array
    noise_variance: float
    between_site_share: float
    between_site_share_before: float | None = None
    angle_estimate: float | None
    solver_choice: list[Any]
    dropped_features: tuple[int, ...] = ()
    preparation: tuple[Step, ...] = ()


class FederatedPCA(Projecting, PooledEstimator):
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
    secure : bool or Secured
        Secure the sums: the coordinator sees no site's single reply, only sums over all sites, which are then exact.  Takes at
        least three sites and solvers that only sum, and a run that loses a site stops.  In one process it shows what would
        travel, and protects nobody from whoever runs the machine.
    min_nonzero : int, optional
        Drop features of which fewer entries are not zero, at all sites together, for example 10: a scatter matrix shows single
        rows in them.  The result is the PCA of the other features, with zeros at those; None keeps all.
    prepare : sequence of preparers
        What sites agree on and do to their rows first, in this order, such as ``ep.prepare.LogNormalize()``.
    missing : "refuse", "mean" or "em"
        What to do where entries are missing (NaN): refuse them; fill them with pooled means, before all else; or find the
        components that make the entries that are there most likely, each site filling its own holes (``ep.solvers.EM``).  With
        "em", ``n_components`` is a number below that of the features, ``center`` not "site", and ``prepare`` empty.

    Attributes
    ----------
    components_ : (k, n_features) array
        Orthonormal rows; in each, the entry of largest magnitude is positive.
    explained_variance_, explained_variance_ratio_, singular_values_ : (k,) arrays
        With ``missing="em"`` those of the model, n / (n - 1) times its variances, so that they are those of PCA where nothing
        is missing; the ratio is to the model's total variance, with that of the noise.
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
    between_site_share_before_ : float or None
        The same of the rows before ``prepare``; None where nothing was prepared.
    history_ : list of RoundRecord
    ledger_ : Ledger
        Every message: round, function, sender, receiver, shapes, dtypes, bytes.
    dropped_features_ : tuple of int
        Features that ``min_nonzero`` dropped.
    preparation_ : tuple of Step
        What ``prepare`` agreed on; ``transform`` does the same to new rows.
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

    _result_type = JointResult

    @property
    def _takes_gaps(self) -> bool:  # type: ignore[override]
        return self.takes_gaps

    @property
    def takes_gaps(self) -> bool:
        """Whether NaN stands for a missing entry, which preparation fills, or the model."""
        return self.missing != "refuse" or any(getattr(preparer, "fills", False) for preparer in self.prepare)

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
        secure: bool | Secured = False,
        min_nonzero: int | None = None,
        prepare: Sequence[Preparer] = (),
        missing: Missing = "refuse",
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
        self.secure = secure
        self.min_nonzero = min_nonzero
        self.prepare = prepare
        self.missing = missing

    # -- fitting --------------------------------------------------------------------------------

    def _check_sizes(self, rows: int, features: int) -> None:
        check_n_components(self.n_components, rows, features)

    def _entrusted(self, held: dict[str, Any]) -> dict[str, Any]:
        if self._takes_gaps:
            check_whole_if_sparse(held)
        return held

    def _find_algorithm(self, engine: Engine) -> Algorithm:
        return likely_solver(self.solver) if self.missing == "em" else find_joint_solver(self.solver, engine)

    def _plan(self, algorithm: Algorithm) -> Plan:
        least = self.min_nonzero or 0
        wanted = self._problem(self.n_components, 0).n_components
        filling = [MeanFill()] if self.missing == "mean" else []
        also = [*([RARE] if least else []), *parts_to_prepare([*filling, *self.prepare])]
        return plan_of(algorithm, int(self.max_rounds), wanted, also=also, min_nonzero=least)

    def _tells_site_means(self) -> bool:
        own = (function for preparer in self.prepare for function in preparer.part.functions)
        return super()._tells_site_means() or any(function.site_means for function in own)

    def _program(self, algorithm: Algorithm, seed: int) -> Program:
        asked = self._problem(self.n_components, seed)
        names = feature_names(self)
        filling = [MeanFill(names)] if self.missing == "mean" else []
        prepare = (*filling, *self.preparers(names or None))
        problem = replace(asked, min_nonzero=self.min_nonzero or 0, prepare=prepare)
        if self.missing == "em":
            return likely_program(algorithm, problem, names)

        async def program(start: Array | None, state: Mapping[str, Array] | None) -> tuple[Setup, Solution]:
            setup = await agree(problem)
            return setup, believed(setup, await algorithm.fit(setup, start, state), algorithm.default_angle)

        return program

    def preparers(self, names: Any) -> tuple[Preparer, ...]:
        """What ``prepare`` holds, with numbers in place of names of columns; ``names`` are those of all, if there are any."""
        names = names if isinstance(names, tuple | list | np.ndarray) else None
        return tuple(p.for_features(names) if isinstance(p, Residualize) else p for p in self.prepare)

    def _settings(self) -> dict[str, Any]:
        wanted = self.n_components if self.n_components is None else float(self.n_components)
        return super()._settings() | {"n_components": wanted, "prepare": [repr(preparer) for preparer in self.prepare]}

    def _check_parameters(self) -> None:
        self._check_choice("center", "pooled", "site", False)
        self._check_choice("scale", None, "pooled")
        self._check_choice("missing", "refuse", "mean", "em")
        if self.missing == "em":
            check_likely(self.center, self.prepare, self.solver)
        if self.min_nonzero is not None:
            self._check_limit("min_nonzero", self.min_nonzero)
        strange = [what for what in self.prepare if not isinstance(what, Preparer)]
        if strange:
            raise InputError(
                f"prepare holds {strange[0]!r}, which prepares no rows; give those of ep.prepare, such as ep.prepare.Scale()"
            )
        if self.center != "site" and any(isinstance(what, Residualize) and what.site for what in self.prepare):
            raise InputError(
                f"center={self.center!r} leaves the sites' own intercepts in, which Residualize(site=True) is to take out; use "
                "center='site'"
            )
        super()._check_parameters()

    def _result(self, found: tuple[Setup, Solution], **told: Any) -> JointResult:
        setup, solution = found
        n, d, trace, eigenvalues = setup.n_samples, setup.n_features, setup.trace, solution.eigenvalues
        largest = min(n, d - len(setup.empty))
        k, dtype = len(eigenvalues), precision(setup.single)
        basis = with_zeros(solution.basis.T, setup.empty).T  # where random starts leave roundings
        components = fix_signs(basis).T.astype(dtype)
        ratios = (eigenvalues / trace if trace > 0 else np.zeros(k)).astype(dtype)
        rest = max(0.0, trace - float(eigenvalues.sum())) / (n - 1)
        limits = limits_of(dtype, setup.offset if k < d else 0.0, float(eigenvalues[-1]) / n if k else 0.0)
        angle, limited = limited_by(solution.angle, limits)
        advice = self._advice_on_units(components, ratios)
        return JointResult(
            n_components=k,
            n_features_in=d,
            n_samples_seen=n,
            basis=basis,
            components=components,
            mean=(np.zeros(d) if self.center is False else setup.mean).astype(dtype),
            scale=setup.scale.astype(dtype),
            explained_variance=(eigenvalues / (n - 1)).astype(dtype),
            explained_variance_ratio=ratios,
            singular_values=np.sqrt(eigenvalues).astype(dtype),
            noise_variance=noise_of(setup, solution, rest / (largest - k) if k < largest else 0.0),
            dropped_features=setup.dropped,
            preparation=setup.preparation,
            between_site_share=setup.between_share,
            between_site_share_before=setup.share_before,
            angle_estimate=angle,
            converged=bool(solution.converged),
            stop_reason="; ".join(text for text in (solution.reason, limited, advice) if text),
            solver_choice=solution.notes.get("choice", []),
            doubts=tuple(self._doubts_of(solution, advice)),
            **told | {"solver": solution.notes.get("solver", told["solver"])},
        )

    def _advice_on_units(self, components: Array, ratios: Array) -> str:
        """What to say where one feature has nearly all the variance: usually a matter of its unit."""
        if self.scale is not None or components.shape[1] < 2 or len(components) == 0:
            return ""
        feature = int(np.argmax(np.abs(components[0])))
        if components[0, feature] ** 2 < DWARFS or ratios[0] < DWARFS:
            return ""
        names = getattr(self, "feature_names_in_", None)
        name = f"feature {feature}" if names is None else f"feature {names[feature]!r}"
        return f"{name} has {ratios[0]:.4%} of the variance by itself: if that is its unit, use scale='pooled'"

    def _doubts_of(self, solution: Solution, advice: str) -> Iterator[str]:
        k, cut = len(solution.eigenvalues), solution.cut
        unseen = self.tol is not None or cut != "clear"  # else it was one round, which seldom proves an angle
        if advice and solution.angle is None and solution.converged and unseen:
            yield f"components may be lost in rounding errors: {advice}"
        elif cut == "empty" and self.n_components is not None:
            yield f"{cut_in_words('empty', k)}; ask for fewer components"
        elif cut in ("tied", "hidden"):
            yield (
                f"{cut_in_words(cut, k)}, so component {k} is one of many that would do; ask for fewer or more "
                "components, so that none of equal variance is left out"
            )

    # -- using ----------------------------------------------------------------------------------

    def transform(self, X: Any) -> Any:
        """Scores (n, k) of rows (n, n_features): centred by ``mean_``, scaled by ``scale_``, projected on the components.

        Missing entries (NaN) are filled as ``missing`` says: with the agreed means, or with what the model expects of them, given
        the other entries of their row.
        """
        rows = self._new_rows(X)
        return rows.project(self.components_.T.astype(np.float64)).astype(rows.X.dtype)

    def for_site(self, rows: Any) -> Self:
        """The model as it is for one site, from its ``rows`` that were fitted; needed where sites were adjusted as batches.

        The rows stay where they are; what is found of them stands in the new model's ``preparation_``, which is the site's own.
        """
        check_is_fitted(self)
        steps: list[Step] = []
        X = self._checked_rows(rows)
        for step in self.preparation_:
            own = own_step(X, step.arrays) if step.kind == "batch" else step
            X, steps = own.apply(X), [*steps, own]
        model = copy(self)
        model.preparation_ = tuple(steps)
        return model

    def _new_rows(self, X: Any) -> Rows:
        """Checked rows (n, n_features), centred and scaled as the model's."""
        check_is_fitted(self)
        X = prepared(self._checked_rows(X), self.preparation_)
        return Rows(X, self.mean_.astype(np.float64), self.scale_.astype(np.float64))

    @property
    def fills_holes(self) -> bool:
        """Whether the fitted model takes new rows with missing entries (NaN)."""
        return any(step.kind in FILLING for step in self.preparation_)

    def _checked_rows(self, X: Any) -> Any:
        """Checked rows (n, n_features), with zeros for features that were dropped, and with holes where the model fills them."""
        finite = "allow-nan" if self.fills_holes else True
        X = check_new_rows(self, X, accept_sparse=["csr", "csc"], ensure_all_finite=finite)
        check_whole_if_sparse({"X": X})
        return with_zeros(X, np.array(self.dropped_features_, dtype=int))

    def score_samples(self, X: Any) -> Any:
        """Log-likelihood (n,) of rows under the probabilistic PCA model (Tipping and Bishop 1999).

        With ``missing="em"`` that of the entries that are there; with "mean", that of filled rows.
        """
        check_is_fitted(self)
        if any(step.kind == "expect" for step in self.preparation_):
            return likelihoods(self, self._checked_rows(X))
        rows = self._new_rows(X)
        variances = self.explained_variance_.astype(np.float64)
        empty = {*self.dropped_features_, *taken_out(self.preparation_)}
        noise, d, k = self.noise_variance_, rows.d - len(empty), len(variances)
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
