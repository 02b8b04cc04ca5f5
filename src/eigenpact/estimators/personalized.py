"""``PersonalizedPCA``: components that all sites share, and some of its own for every site."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_array, check_is_fitted

from ..algorithms.personalized.baselines import Individual
from ..algorithms.personalized.local_part import Covariance
from ..algorithms.personalized.parts import RESULTS, PersonalSetup, agree_on_parts, misalignment
from ..algorithms.setup import Center, Scale, agree
from ..algorithms.solution import Solution
from ..errors import InputError
from ..numerics.linalg import Array, fix_signs
from ..numerics.rows import Rows
from ..runtime import Connection, Engine, Plan, Program, RoundRecord, Secured
from .base import SiteEstimator
from .choices import find_solver
from .inputs import check_new_rows
from .local_parts import clusters, distances
from .plans import plan_of
from .rank_search import SEPARATE, is_count, suggested, tried
from .results import OfSites, Result, precision

ELSEWHERE = "at the site, local_part(rows) of this model computes it from the global components"

Found = tuple[PersonalSetup, Solution, float | None]


@dataclass(frozen=True, eq=False, kw_only=True)
class PersonalResult(Result):
    """Attributes of a fitted :class:`PersonalizedPCA` that all processes know."""

    n_samples_seen: int
    components: Array
    explained_variance: Array
    mean: Array
    scale: Array
    misalignment: float | None
    captured: float
    validation_error: float | None
    between_site_share: float


class PersonalizedPCA(SiteEstimator):
    """Global components shared by all sites and local components of each, orthogonal to one another.

    Finds U (the same everywhere) and V_i (site i's own, staying there) that reconstruct every site's rows best from [U, V_i].
    Sites count equally, whatever their number of rows.

    Parameters
    ----------
    n_global : int
        Number of global components.
    n_local : int or dict
        Number of local components, for all sites or by site; a site whose rows have lower rank gets fewer.
    solver : str or algorithm
        "varpro" (default), "perpca", the baselines "individual", "pooled" and "distpca", or an instance with parameters, e.g.
        ``ep.solvers.PerPCA(choice=2, start="covariance")``.
    center : "pooled", "site" or False
        Subtract the pooled mean, each site's own mean, or nothing (as the paper does; a mean that is 1e5 times the spread then
        leaves too few digits for the rest).
    scale : None or "pooled"
        Divide by the pooled standard deviations, about the sites' own means for ``center="site"``, else about the pooled mean.
    validation_fraction : float, optional
        Share of each site's rows to hold out: the run stops when the error on them no longer falls.  None uses all rows.
    misalignment : bool
        Measure ``misalignment_`` after the fit, which takes up to 12 small rounds more and tells whoever sees single replies
        what a site's local components span; False leaves it None.
    tol : float, optional
        Bound on the scaled KKT residual, the square root of g / (variance still missed), where g is half of what one step of
        subspace iteration promises to capture; None takes the solver's own.
    max_rounds, random_state, engine, journal, callback, secure
        As for ``FederatedPCA``.

    Attributes
    ----------
    components_ : (n_global, n_features) array
        Global components: orthonormal rows by decreasing variance; in each, the entry of largest magnitude is positive.
    explained_variance_ : (n_global,) array
        Mean over sites of the variance along them (divided by n_i, as the paper does), of the rows that are not held out; for
        "pooled" that of all rows together.
    local_components_ : mapping from site to (<= n_local, n_features) array
        Only of the sites that this process holds; for another an error says what to do there.
    local_explained_variance_ : mapping from site to (<= n_local,) array
    misalignment_ : float or None
        theta = 1 - lambda_max of the mean of the local projectors; near 0, global and local parts cannot be told apart.
    captured_ : float
        Mean over sites of the captured variance, as a share of the mean of tr S_i; of the rows that are not held out.
    validation_error_ : float or None
        Mean squared error on the rows held out.
    mean_, scale_ : (n_features,) arrays
    site_means_ : mapping from site to (n_features,) array
        What ``transform`` subtracts from a site's rows.
    n_samples_seen_, n_features_in_, sites_, n_rounds_, n_setup_rounds_, converged_, stop_reason_, between_site_share_, history_,
    ledger_, solver_
        As for ``FederatedPCA``; ``objective`` in ``history_`` is the captured share.

    Examples
    --------
    >>> import numpy as np, eigenpact as ep
    >>> rng = np.random.default_rng(0)
    >>> A, B = rng.normal(size=(80, 6)) * [4, 9, 1, 1, 1, 1], rng.normal(size=(30, 6)) * [4, 1, 9, 1, 1, 1]
    >>> pca = ep.PersonalizedPCA(n_global=1, n_local=1, random_state=0).fit({"A": A, "B": B})
    >>> scores = pca.transform(A, site="A")
    >>> scores.shape, round(pca.misalignment_, 1)
    ((80, 2), 0.5)
    """

    _result_type = PersonalResult
    _kept = RESULTS
    _scores_by_site = _computes_there = _keeps_narrow = True

    def __init__(
        self,
        n_global: int = 1,
        n_local: int | Mapping[str, int] = 1,
        *,
        solver: Any = "varpro",
        center: Center = "pooled",
        scale: Scale = None,
        validation_fraction: float | None = None,
        misalignment: bool = True,
        tol: float | None = None,
        max_rounds: int = 3000,
        random_state: Any = None,
        engine: Any = "inprocess",
        journal: str | Path | None = None,
        callback: Callable[[RoundRecord], Any] | None = None,
        secure: bool | Secured = False,
    ) -> None:
        self.n_global = n_global
        self.n_local = n_local
        self.solver = solver
        self.center = center
        self.scale = scale
        self.validation_fraction = validation_fraction
        self.misalignment = misalignment
        self.tol = tol
        self.max_rounds = max_rounds
        self.random_state = random_state
        self.engine = engine
        self.journal = journal
        self.callback = callback
        self.secure = secure

    # -- fitting --------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        self._check_choice("center", "pooled", "site", False)
        self._check_choice("scale", None, "pooled")
        if not is_count(self.n_global, 1):
            raise InputError(f"n_global={self.n_global!r} must be a whole number >= 1")
        ranks = self.n_local if isinstance(self.n_local, Mapping) else {"": self.n_local}
        for site, rank in ranks.items():
            if not is_count(rank, 0):
                where = f" for site {site!r}" if site else ""
                raise InputError(f"n_local={rank!r}{where} must be a whole number >= 0, or a dict with one for every site")
        if not ranks:
            raise InputError("n_local={} has no entry; give one number for all sites, or a dict with one for every site")
        share = self.validation_fraction
        if share is not None and not (isinstance(share, Real) and 0 < share < 1):
            raise InputError(f"validation_fraction={share!r} must be a share between 0 and 1, or None for all rows")
        if not isinstance(self.misalignment, (bool, np.bool_)):
            raise InputError(f"misalignment={self.misalignment!r} must be True or False")
        super()._check_parameters()

    def _check_sizes(self, rows: int, features: int) -> None:
        if self.n_global > min(rows, features):
            raise InputError(
                f"n_global={self.n_global!r} must be between 1 and min(n_samples, n_features)={min(rows, features)} "
                f"for {rows} rows of {features} features"
            )

    def _find_algorithm(self, engine: Engine) -> Any:  # noqa: ARG002
        return find_solver("PersonalizedPCA", self.solver)

    def _plan(self, algorithm: Any) -> Plan:
        return plan_of(algorithm, int(self.max_rounds), int(self.n_global))

    def _meet(self, connection: Connection, order: tuple[str, ...]) -> None:
        """Make sure that ``n_local`` names no site that is not there; a process without rows may not know all sites."""
        ranks = self._ranks()
        unknown = [site for site in ranks if site not in connection.sites()] if isinstance(ranks, dict) and order else []
        if unknown:
            some = ", ".join(connection.sites()[:10])
            raise InputError(f"n_local has an entry for {unknown[0]!r}, which is no site; the sites are {some}")

    def _ranks(self) -> int | dict[str, int]:
        """``n_local`` as plain numbers; by site in sorted order."""
        if isinstance(self.n_local, Mapping):
            return {str(site): int(rank) for site, rank in sorted(self.n_local.items(), key=lambda item: str(item[0]))}
        return int(self.n_local)

    def _program(self, algorithm: Any, seed: int) -> Program:
        problem = self._problem(self.n_global, seed)
        ranks, share = self._ranks(), float(self.validation_fraction or 0.0)

        async def program(start: Array | None, state: Any) -> Found:
            setup = await agree_on_parts(await agree(problem), ranks, share)
            solution = await algorithm.fit(setup, start, state)
            return setup, solution, await misalignment(setup, isinstance(algorithm, Individual)) if self.misalignment else None

        return program

    def _settings(self) -> dict[str, Any]:
        return super()._settings() | {"n_local": self._ranks()}

    def _result(self, found: Found, **told: Any) -> PersonalResult:
        setup, solution, theta = found
        dtype, d = precision(setup.single), setup.n_features
        doubts = []
        if len(told["sites"]) > 1 and theta is not None and theta < SEPARATE and told["solver"] not in ("individual", "pooled"):
            doubts.append(
                f"misalignment_={theta:.1e}: the sites' local components have a direction in common, so what is "
                "global and what is local cannot be told apart; raise n_global or lower n_local (suggest_ranks tries both)"
            )
        return PersonalResult(
            n_features_in=d,
            n_samples_seen=setup.n_samples,
            components=fix_signs(solution.basis).T.astype(dtype),
            explained_variance=solution.eigenvalues.astype(dtype),
            mean=(setup.mean if self.center == "pooled" else np.zeros(d)).astype(dtype),
            scale=setup.scale.astype(dtype),
            misalignment=theta,
            captured=solution.notes["captured"],
            validation_error=solution.notes["held_out"] if setup.n_held_out else None,
            between_site_share=setup.between_share,
            converged=bool(solution.converged),
            stop_reason=solution.reason,
            doubts=tuple(doubts),
            **told,
        )

    def _adopt(self, result: Result, kept: Mapping[str, Mapping[str, Any]]) -> None:
        super()._adopt(result, kept)
        dtype = self.components_.dtype
        held = {site: found for site, found in kept.items() if site in self.sites_ and "V" in found}
        of_sites = partial(OfSites, self.sites_, what="the local part", advice=ELSEWHERE)
        self.local_components_ = of_sites({s: fix_signs(found["V"]).T.astype(dtype) for s, found in held.items()})
        self.local_explained_variance_ = of_sites({s: found["values"].astype(dtype) for s, found in held.items()})
        means = {s: self.mean_ if found["mean"] is None else found["mean"].astype(dtype) for s, found in held.items()}
        self.site_means_ = of_sites(means)

    # -- using ----------------------------------------------------------------------------------

    def transform(self, X: Any, *, site: str | None = None) -> Any:
        """Scores (n, n_global + n_local of the site): global ones first, then local ones.

        ``site`` may be left out if the model has one site.
        """
        rows, W = self._rows_and_components(X, site)
        return rows.project(W.astype(np.float64)).astype(rows.X.dtype)

    def inverse_transform(self, T: Any, *, site: str | None = None) -> Any:
        """Rows (n, n_features) whose scores at a site are T (n, n_global + n_local of the site)."""
        check_is_fitted(self)
        name = self._site(site)
        W = np.concatenate([self.components_, self.local_components_[name]])
        options = {"ensure_2d": False, "allow_nd": True, "ensure_min_features": 0}
        scores = check_array(T, dtype=[np.float64, np.float32], input_name="T", estimator=self, **options)
        if scores.ndim != 2 or scores.shape[1] != len(W):
            raise InputError(
                f"scores have shape {scores.shape}; give a table with {len(W)} columns: {len(self.components_)} global ones, "
                f"then {len(W) - len(self.components_)} of site {name!r}"
            )
        return (scores @ W) * self.scale_ + self.site_means_[name]

    def parts(self, X: Any, *, site: str | None = None) -> tuple[Any, Any]:
        """The global and the local part of rows: two tables (n, n_features), centred, in the units of X.

        Their sum and the site's mean make the reconstruction.
        """
        rows, W = self._rows_and_components(X, site)
        k, T = len(self.components_), rows.project(W.astype(np.float64))
        split = (T[:, :k] @ W[:, :k].T) * self.scale_, (T[:, k:] @ W[:, k:].T) * self.scale_
        return split[0].astype(rows.X.dtype), split[1].astype(rows.X.dtype)

    def transform_global(self, X: Any) -> Any:
        """Global scores (n, n_global) of rows of any site, also of one that the model has not seen.

        Rows are centred as by ``local_part``: with ``center="site"`` by their own mean, so give all rows of one site at once.
        """
        rows = self._rows_of_any_site(X)
        return rows.project(self.components_.T.astype(np.float64)).astype(rows.X.dtype)

    def local_part(self, X: Any, n_local: int | None = None) -> Any:
        """Local components (<= n_local, n_features) of a site's rows, given the global ones: what the site itself computed.

        For use at a site whose local part is not in this process, or at a new site.  Rows are centred by ``mean_``; with
        ``center="site"`` by their own mean.  Without ``n_local`` there are as many as the solver gives a site: n_local, for
        "individual" n_global + n_local, for "pooled" none.
        """
        rows = self._rows_of_any_site(X)
        rank = self._local_rank() if n_local is None else n_local
        if not is_count(rank, 0):
            raise InputError(f"n_local={rank!r} must be a whole number >= 0, or None for the model's own")
        _, V, _ = Covariance(rows).split(self.components_.T.astype(np.float64), int(rank))
        return fix_signs(V).T.astype(self.components_.dtype)

    def reconstruction_error(self, X: Any, *, site: str | None = None) -> float:
        """Mean squared length of what global and local components miss of a site's rows, scaled as the model's, (29)."""
        rows, W = self._rows_and_components(X, site)
        return float(rows.residual_squares(W.astype(np.float64)).mean())

    def _rows_and_components(self, X: Any, site: str | None) -> tuple[Rows, Array]:
        """Checked rows of a site, centred and scaled as the model's, and [U, V_i] (n_features x columns)."""
        check_is_fitted(self)
        name = self._site(site)
        W = np.concatenate([self.components_, self.local_components_[name]]).T
        return self._rows(X, self.site_means_[name]), W

    def _local_rank(self) -> int:
        """How many local components the fit gave every site."""
        ranks = self._ranks()
        if self.solver_ == "pooled":
            return 0
        if isinstance(ranks, dict):
            raise InputError("n_local differs by site in this model; give n_local= for these rows")
        return ranks + int(self.n_global) if self.solver_ == "individual" else ranks

    def _rows_of_any_site(self, X: Any) -> Rows:
        """Checked rows of a site that the model may not know, centred by ``mean_``, or by their own mean."""
        check_is_fitted(self)
        rows = self._rows(X, self.mean_)
        return Rows(rows.X, Rows(rows.X).column_sums() / rows.n, rows.scale) if self.center == "site" else rows

    def _rows(self, X: Any, mean: Any) -> Rows:
        X = check_new_rows(self, X, accept_sparse=["csr", "csc"])
        return Rows(X, mean.astype(np.float64), self.scale_.astype(np.float64))

    def _site(self, site: str | None) -> str:
        if site is None and len(self.sites_) > 1:
            some = ", ".join(self.sites_[:10])
            raise InputError(f"site=None: local scores need a site; give one of {some}, or use transform_global")
        return self.sites_[0] if site is None else str(site)

    # -- sites ----------------------------------------------------------------------------------

    @property
    def site_distances_(self) -> Array:
        """Distances (N x N) of the sites' local parts, in the order of ``sites_``: 0 for the same span, 1 for orthogonal ones.

        ||P_i - P_j||_F over the square root of r_i + r_j, (31).  Needs the local parts of all sites in this process.
        """
        return distances(self._local_parts())

    def cluster_sites(self, n_clusters: int) -> dict[str, int]:
        """Sites grouped by their local parts: site -> number of its cluster.

        Spectral clustering with the affinity (tr P_i P_j / r)^2, r the smaller rank; distances themselves are no affinity.
        """
        check_is_fitted(self)
        if not is_count(n_clusters, 2) or n_clusters > len(self.sites_):
            raise InputError(
                f"n_clusters={n_clusters!r} must be a whole number from 2 to the number of sites, {len(self.sites_)}"
            )
        labels = clusters(self._local_parts(), int(n_clusters), 0 if self.random_state is None else self.random_state)
        return dict(zip(self.sites_, labels, strict=True))

    def _local_parts(self) -> list[Array]:
        check_is_fitted(self)
        return [self.local_components_[site].astype(np.float64) for site in self.sites_]

    def suggest_ranks(
        self, X: Any, *, n_global: Sequence[int] = (1, 2, 4), n_local: Sequence[int] = (1, 2, 4), sites: Any = None
    ) -> list[dict[str, Any]]:
        """Try a grid of ranks with rows held out: one dict per pair, the suggested one first.

        Each has ``n_global``, ``n_local``, ``validation_error`` (mean squared error on rows held out), ``noise`` (that error per
        dimension left over, which stops falling at the ranks of data with even noise), ``misalignment`` and ``identifiable``.
        Identifiable pairs come first, by noise; where it is within ``ALIKE`` of the least, the fewest components win.  Pairs that
        the rows cannot have, or that leave no dimension over, are left out.  All pairs hold out the same rows.
        """
        seed = self.random_state if isinstance(self.random_state, Integral) else self._seed()
        seed = int.from_bytes(os.urandom(4), "little") % 2**31 if seed is None else seed
        share = 0.2 if self.validation_fraction is None else self.validation_fraction
        trial = clone(self).set_params(validation_fraction=share, misalignment=True, journal=None, random_state=seed)
        return suggested(tried(trial, X, sites, sorted(n_global), sorted(n_local)))

    @property
    def _n_features_out(self) -> int:
        return int(len(self.components_) + max((len(V) for V in self.local_components_.held.values()), default=0))

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Names of the columns that ``transform`` gives, where they are as many for every site."""
        check_is_fitted(self)
        if len({len(V) for V in self.local_components_.held.values()}) > 1:
            what = "the number of local components differs by site, so there is no one list of names for the scores"
            raise InputError(f"{what}; use set_output(transform='default') and name them by site")
        return super().get_feature_names_out(input_features)
