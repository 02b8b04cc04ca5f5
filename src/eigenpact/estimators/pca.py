"""``FederatedPCA``: scikit-learn's PCA for rows that stay where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..algorithms.auto import Auto
from ..algorithms.consensus.gram import Gram
from ..algorithms.consensus.krylov import Krylov
from ..algorithms.lacking import COMMON, Common
from ..algorithms.missing.mean import MeanFill
from ..algorithms.parameters import check_n_components
from ..algorithms.preparing import Preparer
from ..algorithms.rare import RARE
from ..algorithms.rough import ROUGH
from ..algorithms.setup import Center, Scale, Setup, agree
from ..algorithms.solution import Algorithm, Solution, believed, cut_in_words
from ..data.agreement import MODES, Mode
from ..data.features_report import told_report
from ..engines import MPI, Dask, InProcess
from ..errors import InputError
from ..numerics.columns import with_zeros
from ..numerics.linalg import Array, fix_signs
from ..runtime import Engine, Plan, Program, RoundRecord, Secured
from .base import one_matrix
from .choices import find_engine, find_joint_solver
from .joint_result import UNKNOWN_GAP, JointResult, advice_on_units, limited_angle, rounding_limits
from .missing import (
    Missing,
    check_likely,
    check_whole_if_sparse,
    feature_names,
    likely_program,
    likely_solver,
    noise_of,
)
from .model_tables import ModelTables
from .plans import parts_to_prepare, plan_of
from .projection import Projecting
from .results import Result, precision
from .scoring import ScoringPCA
from .weights import check_weightable, with_weights


class FederatedPCA(ModelTables, Projecting, ScoringPCA):
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
        Bound on the scaled KKT residual ||(I - Z Z^T) C Z||_F / tr C; None takes the solver's own.  From 1e-4 on, gram and krylov
        multiply rows of single precision as they are, which is twice as fast.  gram of 1000 features or more finds few components
        as precisely as that.
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
    features : "strict", "intersection" or "union"
        What to do where sites have different columns: refuse and name what differs; use those that all sites have; or use those
        that any has, which needs missing entries to be filled in where a site lacks one.  Columns are matched by name.
    check_units : bool
        Whether sites that the engine holds look for columns whose unit differs from the others'; one that finds any says so in
        its own log, and ``features_report_`` counts such sites.  Tables in this process are compared in any case.
    prepare : sequence of preparers
        What sites agree on and do to their rows first, in this order, such as ``ep.prepare.LogNormalize()``.
    missing : "refuse", "mean" or "em"
        What to do where entries are missing (NaN): refuse them; fill them with pooled means, before all else; or find the
        components that make the entries that are there most likely, each site filling its own holes (``ep.solvers.EM``).  With
        "em", ``n_components`` is a number below that of the features, ``center`` not "site", and ``prepare`` empty.
    whiten : bool
        Whether ``transform`` divides scores by their standard deviations, so that each has variance 1 over the rows of the fit.
    verbose : bool
        Show each round on one line, in a terminal or a notebook; what is written to a file stays as it is.

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
        Rows of weight zero are not among those seen.
    weight_sum_ : float or None
        The sum of all weights; None where rows have none.
    sites_ : tuple of str
        The sites whose joint PCA this is.
    n_rounds_, n_setup_rounds_ : int
    converged_ : bool
    stop_reason_ : str
    angle_estimate_ : float or None
        Estimated sine of the largest angle to the exact answer.
    between_site_share_ : float
        Share of the pooled variance, before features are scaled, that lies between site means; "pooled" and "site" centring
        differ by it.  Where sums are secured, to about a quarter of a percent.
    between_site_share_before_ : float or None
        The same of the rows before ``prepare``; None where nothing was prepared, and where sums are secured.
    history_ : list of RoundRecord
    ledger_ : Ledger
        Every message: round, function, sender, receiver, shapes, dtypes, bytes.
    dropped_features_ : tuple of int
        Features that ``min_nonzero`` dropped.
    preparation_ : tuple of Step
        What ``prepare`` agreed on; ``transform`` does the same to new rows.
    features_report_ : FeaturesReport
        What became of the features of each site: ``mode``, ``n_features``, ``sites[name].dropped``, ``.lacking``, ``notes``.
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
    def _computes_there(self) -> bool:  # type: ignore[override]
        return all(getattr(preparer, "computes_there", False) for preparer in self.prepare)

    @property
    def _keeps_narrow(self) -> bool:  # type: ignore[override]
        return not self._takes_gaps and not self.prepare

    @property
    def _takes_gaps(self) -> bool:  # type: ignore[override]
        return self.takes_gaps

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
        features: Mode = "strict",
        check_units: bool = False,
        whiten: bool = False,
        verbose: bool = False,
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
        self.features = features
        self.check_units = check_units
        self.whiten = whiten
        self.verbose = verbose

    column_names: tuple[str, ...] = ()  # of rows that come as arrays, for errors: who read them from files sets it

    _weighted = False
    """Whether rows of this fit have weights."""

    # -- fitting --------------------------------------------------------------------------------

    def fit(self, X: Any = None, y: Any = None, *, sites: Any = None, sample_weight: Any = None) -> Self:  # noqa: ARG002
        """Fit on one matrix (with a site label per row in ``sites``), a list of tables, or a dict of named tables.

        X is None only where the engine holds the data.  With engine Dask, X may be a dask array or DataFrame: each worker's
        blocks are a site.

        ``sample_weight`` has a number >= 0 for each row, as often as which the row counts: an array for one matrix, a list of
        arrays for a list of sites, or a dict of arrays by the names of sites; True where the engine holds the data, whose sites
        name a column of weights in the descriptions of their files.  Mean and scatter are weighted, so that whole numbers do what
        repeated rows do; the n that ``explained_variance_`` divides by, less 1, is the sum of the weights, ``weight_sum_``.  All
        weights times one number leave the components as they are.  The coordinator is told each site's sum of weights.

        >>> import eigenpact as ep
        >>> A, B = np.array([[0.0, 1.0], [2.0, 2.0], [4.0, 0.0]]), np.array([[1.0, 1.0], [3.0, 5.0]])
        >>> weighted = ep.FederatedPCA(1).fit([A, B], sample_weight=[[1, 3, 1], [2, 1]])
        >>> repeated = ep.FederatedPCA(1).fit([A[[0, 1, 1, 1, 2]], B[[0, 0, 1]]])
        >>> bool(np.allclose(weighted.explained_variance_, repeated.explained_variance_)), weighted.weight_sum_
        (True, 8.0)
        """
        self._weighted = sample_weight is not None and sample_weight is not False
        if self._weighted:
            check_weightable(missing=self.missing, prepare=self.prepare, solver=self.solver)
        return self._fit(X, sites, sample_weight if self._weighted else None)

    def fit_transform(self, X: Any, y: Any = None, *, sites: Any = None, sample_weight: Any = None) -> Any:
        """Fit on one matrix and return its scores; for several sites use ``fit``, then ``transform`` for each site's rows."""
        X, sites = one_matrix(X, sites)
        return self.fit(X, y, sites=sites, sample_weight=sample_weight).transform(X)

    def _weighed(self, held: dict[str, Any], X: Any, sites: Any, sample_weight: Any) -> dict[str, Any]:
        if sample_weight is None:
            return held
        if (sample_weight is True) != (X is None):
            raise InputError(
                "sample_weight=True is for rows that the engine holds, whose sites know the weights; weights themselves are for "
                "rows given to fit: give the one that goes with X"
            )
        return held if sample_weight is True else dict(with_weights(held, X, sites, sample_weight))

    def _check_sizes(self, rows: int, features: int) -> None:
        check_n_components(self.n_components, rows, features)

    def _entrusted(self, held: dict[str, Any]) -> dict[str, Any]:
        if self._takes_gaps:
            check_whole_if_sparse(held)
        return held

    def _find_algorithm(self, engine: Engine) -> Algorithm:  # noqa: ARG002
        return likely_solver(self.solver) if self.missing == "em" else find_joint_solver(self.solver)

    def _plan(self, algorithm: Algorithm) -> Plan:
        least = self.min_nonzero or 0
        wanted = self._problem(self.n_components, 0).n_components
        counted = [COMMON] if self._told_features().asks else []
        filling = [MeanFill()] if self.missing == "mean" else []
        rough = [ROUGH] if self._in_house() and isinstance(algorithm, Auto | Gram | Krylov) else []
        also = [*([RARE] if least else []), *counted, *rough, *parts_to_prepare([*filling, *self.prepare])]
        return plan_of(algorithm, int(self.max_rounds), wanted, also=also, min_nonzero=least, weighted=self._weighted)

    def _tells_site_means(self) -> bool:
        own = (function for preparer in self.prepare for function in preparer.part.functions)
        return super()._tells_site_means() or any(function.site_means for function in own)

    def _program(self, algorithm: Algorithm, seed: int) -> Program:
        asked = self._problem(self.n_components, seed)
        names = feature_names(self)
        told = names or self.column_names
        filling = [MeanFill(told)] if self.missing == "mean" else []
        prepare = (*filling, *self.preparers(names or None))
        chosen: dict[str, Any] = {"prepare": prepare, "features": self._told_features(), "weighted": self._weighted}
        chosen |= {"in_house": self._in_house(), "triangles": self._suits_triangles}
        problem = replace(asked, min_nonzero=self.min_nonzero or 0, **chosen)
        if self.missing == "em":
            if problem.features.mode == "intersection":
                raise InputError("missing='em' models what sites lack, too: use features='union', or missing='mean'")
            return likely_program(algorithm, problem, told)

        async def program(start: Array | None, state: Mapping[str, Array] | None) -> tuple[Setup, Solution]:
            setup = await agree(problem)
            return setup, believed(setup, await algorithm.fit(setup, start, state), algorithm.default_angle)

        return program

    def _in_house(self) -> bool:
        """Whether all sites are on machines of who runs this: then they may be asked for less than all digits."""
        own = type(find_engine(self.engine)) in (InProcess, MPI, Dask) and not self.secure and self.missing != "em"
        return own and self._suits_single and not self._weighted

    def _told_features(self) -> Common:
        """How the sites agree on features by telling which they have; where tables are in this process they have agreed."""
        return Common(self.features, bool(self.check_units), self.takes_gaps) if self._elsewhere else Common()

    def _adopt(self, result: Result, kept: Mapping[str, Mapping[str, Any]]) -> None:
        super()._adopt(result, kept)
        steps = [step.arrays for step in self.preparation_ if step.kind == "features"]
        if steps or self._elsewhere:
            self.features_report_ = told_report(self.features, self.n_features_in_, *steps)

    def _settings(self) -> dict[str, Any]:
        wanted = self.n_components if self.n_components is None else float(self.n_components)
        settings = super()._settings() | {"n_components": wanted, "prepare": [repr(preparer) for preparer in self.prepare]}
        settings |= {"weighted": True} if self._weighted else {}
        return settings | {"agreement": settings.pop("features")}  # in a journal, features are names of columns

    def _check_parameters(self) -> None:
        self._check_choice("center", "pooled", "site", False)
        self._check_choice("scale", None, "pooled")
        self._check_choice("features", *MODES)
        self._check_choice("whiten", True, False)
        self._check_choice("verbose", True, False)
        self._check_choice("missing", "refuse", "mean", "em")
        if self.missing == "em":
            check_likely(self.center, self.prepare, self.solver)
        if self.min_nonzero is not None:
            self._check_limit("min_nonzero", self.min_nonzero)
        self._check_preparers(self.center)
        super()._check_parameters()

    def _result(self, found: tuple[Setup, Solution], **told: Any) -> JointResult:
        setup, solution = found
        n, d, trace, eigenvalues = setup.weight, setup.n_features, setup.trace, solution.eigenvalues
        largest = min(setup.n_samples, d - len(setup.empty))
        k, dtype = len(eigenvalues), precision(setup.single)
        basis = with_zeros(solution.basis.T, setup.empty).T  # where random starts leave roundings
        components = fix_signs(basis).T.astype(dtype)
        ratios = (eigenvalues / trace if trace > 0 else np.zeros(k)).astype(dtype)
        rest = max(0.0, trace - float(eigenvalues.sum())) / (n - 1)
        last = float(eigenvalues[-1]) if k else 0.0
        gap = last - solution.behind if 0 < solution.behind < last else last / UNKNOWN_GAP
        limits = rounding_limits(dtype, setup.offset if k < d else 0.0, gap / n)
        angle, limited = limited_angle(solution.angle, limits)
        advice = advice_on_units(components, ratios, getattr(self, "feature_names_in_", None)) if self.scale is None else ""
        return JointResult(
            n_components=k,
            n_features_in=d,
            n_samples_seen=setup.n_samples,
            weight_sum=setup.weights,
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
