"""``PersonalizedPCA``: components that all sites share, and some of its own for every site."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_array, check_is_fitted

from ..algorithms.personalized.baselines import Individual
from ..algorithms.personalized.local_part import Covariance
from ..algorithms.personalized.parts import RESULTS, PersonalSetup, agree_on_parts, misalignment
from ..algorithms.setup import Center, Problem, Scale, agree
from ..algorithms.solution import Solution
from ..errors import InputError, NotConvergedWarning, NotIdentifiableWarning, SiteElsewhereError
from ..numerics.linalg import Array, fix_signs
from ..numerics.rows import Rows
from ..runtime import Connection, Driver, Engine, Outcome, Plan, Program, RoundRecord
from .base import SiteEstimator
from .choices import find_solver
from .inputs import check_new_rows, is_several_sites
from .plans import plan_of

SEPARATE = 1e-2
"""Below this misalignment local parts have a direction in common that could as well be global."""

ALIKE = 0.05
"""``suggest_ranks`` takes the fewest components whose noise is at most this share above the least."""

NO_NOISE = 1e-12
"""Noise below this share of the global variance is rounding."""


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
    max_rounds, random_state, engine, journal, callback
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

    # -- fitting --------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        if self.center not in ("pooled", "site", False) or (self.center == 0 and self.center is not False):
            raise InputError(f"center={self.center!r} must be 'pooled', 'site' or False")
        if self.scale not in (None, "pooled"):
            raise InputError(f"scale={self.scale!r} must be None or 'pooled'")
        if not _is_count(self.n_global, 1):
            raise InputError(f"n_global={self.n_global!r} must be a whole number >= 1")
        ranks = self.n_local if isinstance(self.n_local, Mapping) else {"": self.n_local}
        for site, rank in ranks.items():
            if not _is_count(rank, 0):
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

    def _run(self, connection: Connection, algorithm: Any, engine: Engine, order: tuple[str, ...]) -> Outcome:
        """As every estimator, if ``n_local`` names no site that is not there; a process without rows may not know all sites."""
        ranks = self._ranks()
        unknown = [site for site in ranks if site not in connection.sites()] if isinstance(ranks, dict) and order else []
        if unknown:
            some = ", ".join(connection.sites()[:10])
            raise InputError(f"n_local has an entry for {unknown[0]!r}, which is no site; the sites are {some}")
        return super()._run(connection, algorithm, engine, order)

    def _ranks(self) -> int | dict[str, int]:
        """``n_local`` as plain numbers; by site in sorted order."""
        if isinstance(self.n_local, Mapping):
            return {str(site): int(rank) for site, rank in sorted(self.n_local.items(), key=lambda item: str(item[0]))}
        return int(self.n_local)

    def _program(self, algorithm: Any, seed: int) -> Program:
        problem = Problem(
            n_components=int(self.n_global),
            center=self.center,
            scale=self.scale,
            tol=None if self.tol is None else float(self.tol),
            max_rounds=int(self.max_rounds),
            seed=seed,
        )
        ranks, share = self._ranks(), float(self.validation_fraction or 0.0)

        async def program(start: Array | None, state: Any) -> tuple[PersonalSetup, Solution, float | None]:
            setup = await agree_on_parts(await agree(problem), ranks, share)
            solution = await algorithm.fit(setup, start, state)
            return setup, solution, await misalignment(setup, isinstance(algorithm, Individual)) if self.misalignment else None

        return program

    def _settings(self) -> dict[str, Any]:
        return {
            "n_global": int(self.n_global),
            "n_local": self._ranks(),
            "center": self.center,
            "scale": self.scale,
            "validation_fraction": self.validation_fraction,
            "misalignment": bool(self.misalignment),
        }

    def _outcome(self, driver: Driver, result: tuple[PersonalSetup, Solution, float | None], algorithm: Any) -> Outcome:
        setup, solution, theta = result
        return Outcome(
            arrays={"basis": solution.basis, "variances": solution.eigenvalues, "mean": setup.mean, "scale": setup.scale},
            facts={
                "n_samples": setup.n_samples,
                "dtype": "float32" if setup.single else "float64",
                "between_share": setup.between_share,
                "sites": list(driver.roster),
                "rounds": driver.rounds,
                "setup_rounds": driver.setup_rounds,
                "converged": bool(solution.converged),
                "reason": solution.reason,
                "solver": algorithm.name,
                "captured": solution.notes["captured"],
                "held_out": solution.notes["held_out"] if setup.n_held_out else None,
                "theta": theta,
            },
            ledger=driver.ledger,
            history=driver.history,
            results=RESULTS,
        )

    def _adopt(self, outcome: Outcome) -> None:
        """Turn what the run ended with into fitted attributes."""
        arrays, facts = outcome.arrays, outcome.facts
        dtype, d = np.dtype(facts["dtype"]), len(arrays["mean"])
        self.n_features_in_ = d
        self.n_samples_seen_ = facts["n_samples"]
        self.components_ = fix_signs(arrays["basis"]).T.astype(dtype)
        self.explained_variance_ = arrays["variances"].astype(dtype)
        self.mean_ = (arrays["mean"] if self.center == "pooled" else np.zeros(d)).astype(dtype)
        self.scale_ = arrays["scale"].astype(dtype)
        self.sites_ = tuple(facts["sites"])
        held = {site: kept for site, kept in outcome.kept.items() if site in self.sites_ and "V" in kept}
        self.local_components_ = _OfSites(self.sites_, {s: fix_signs(kept["V"]).T.astype(dtype) for s, kept in held.items()})
        self.local_explained_variance_ = _OfSites(self.sites_, {s: kept["values"].astype(dtype) for s, kept in held.items()})
        means = {s: self.mean_ if kept["mean"] is None else kept["mean"].astype(dtype) for s, kept in held.items()}
        self.site_means_ = _OfSites(self.sites_, means)
        self.misalignment_ = facts["theta"]
        self.captured_ = facts["captured"]
        self.validation_error_ = facts["held_out"]
        self.n_rounds_ = facts["rounds"]
        self.n_setup_rounds_ = facts["setup_rounds"]
        self.converged_ = facts["converged"]
        self.stop_reason_ = facts["reason"]
        self.between_site_share_ = facts["between_share"]
        self.solver_ = facts["solver"]
        self.history_ = outcome.history
        self.ledger_ = outcome.ledger
        if not self.converged_:
            warnings.warn(f"not converged: {self.stop_reason_}", NotConvergedWarning, stacklevel=3)
        joint = self.solver_ not in ("individual", "pooled")
        if joint and len(self.sites_) > 1 and self.misalignment_ is not None and self.misalignment_ < SEPARATE:
            warnings.warn(
                f"misalignment_={self.misalignment_:.1e}: the sites' local components have a direction in common, so what is "
                "global and what is local cannot be told apart; raise n_global or lower n_local (suggest_ranks tries both)",
                NotIdentifiableWarning,
                stacklevel=3,
            )

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
        if not _is_count(rank, 0):
            raise InputError(f"n_local={rank!r} must be a whole number >= 0, or None for the model's own")
        rank = int(rank)
        _, V, _ = Covariance(rows).split(self.components_.T.astype(np.float64), rank)
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
        check_is_fitted(self)
        if is_several_sites(X):
            raise InputError("give one table of rows; call once for each site, with site=, where the scores are to stay")
        X = check_new_rows(self, X, accept_sparse=["csr", "csc"])
        return Rows(X, mean.astype(np.float64), self.scale_.astype(np.float64))

    def _site(self, site: str | None) -> str:
        if site is None and len(self.sites_) > 1:
            some = ", ".join(self.sites_[:10])
            raise InputError(f"site=None: local scores need a site; give one of {some}, or use transform_global")
        return self.sites_[0] if site is None else str(site)

    def fit_transform(self, X: Any, y: Any = None, *, sites: Any = None) -> Any:
        """Fit on one matrix as one site and return its scores; for several sites use ``fit``, then ``transform`` for each."""
        if is_several_sites(X) or sites is not None:
            raise InputError(
                "fit_transform takes one matrix as one site, because the scores of several sites stay with their sites; "
                "call fit(X), then transform(rows, site=name) for each site"
            )
        return self.fit(X, y).transform(X)

    # -- sites ----------------------------------------------------------------------------------

    @property
    def site_distances_(self) -> Array:
        """Distances (N x N) of the sites' local parts, in the order of ``sites_``: 0 for the same span, 1 for orthogonal ones.

        ||P_i - P_j||_F over the square root of r_i + r_j, (31).  Needs the local parts of all sites in this process.
        """
        overlaps, ranks = self._overlaps()
        sums = ranks[:, None] + ranks
        return np.where(sums > 0, np.sqrt(np.maximum(0.0, 1.0 - 2.0 * overlaps / np.maximum(sums, 1.0))), 0.0)

    def cluster_sites(self, n_clusters: int) -> dict[str, int]:
        """Sites grouped by their local parts: site -> number of its cluster.

        Spectral clustering with the affinity (tr P_i P_j / r)^2, r the smaller rank; distances themselves are no affinity.
        """
        check_is_fitted(self)
        if not _is_count(n_clusters, 2) or n_clusters > len(self.sites_):
            raise InputError(
                f"n_clusters={n_clusters!r} must be a whole number from 2 to the number of sites, {len(self.sites_)}"
            )
        from sklearn.cluster import SpectralClustering  # only here: it takes a fifth of a second to import

        overlaps, ranks = self._overlaps()
        affinity = (overlaps / np.maximum(1.0, np.minimum(ranks[:, None], ranks))) ** 2
        seed = 0 if self.random_state is None else self.random_state
        spectral = SpectralClustering(int(n_clusters), affinity="precomputed", assign_labels="cluster_qr", random_state=seed)
        return dict(zip(self.sites_, spectral.fit_predict(affinity).tolist(), strict=True))

    def _overlaps(self) -> tuple[Array, Array]:
        """tr P_i P_j (N x N) and the numbers of local components (N), in the order of ``sites_``."""
        check_is_fitted(self)
        parts = [self.local_components_[site].astype(np.float64) for site in self.sites_]
        ranks = np.array([len(V) for V in parts], dtype=float)
        stacked = np.concatenate(parts)
        first = np.concatenate([[0], np.cumsum(ranks)]).astype(int)
        squares = (stacked @ stacked.T) ** 2
        return np.array([[squares[a:b, c:e].sum() for c, e in _pairs(first)] for a, b in _pairs(first)]), ranks

    def suggest_ranks(
        self, X: Any, *, n_global: Sequence[int] = (1, 2, 4), n_local: Sequence[int] = (1, 2, 4), sites: Any = None
    ) -> list[dict[str, Any]]:
        """Try a grid of ranks with rows held out: one dict per pair, the suggested one first.

        Each has ``n_global``, ``n_local``, ``validation_error`` (mean squared error on rows held out), ``noise`` (that error per
        dimension left over, which stops falling at the ranks of data with even noise), ``misalignment`` and ``identifiable``.
        Identifiable pairs come first, by noise; where it is within ``ALIKE`` of the least, the fewest components win.  Pairs that
        the rows cannot have, or that leave no dimension over, are left out.  All pairs hold out the same rows.
        """
        found = []
        share = 0.2 if self.validation_fraction is None else self.validation_fraction
        seed = self.random_state if isinstance(self.random_state, Integral) else self._seed()
        seed = int.from_bytes(os.urandom(4), "little") % 2**31 if seed is None else seed
        n_global, n_local = sorted(n_global), sorted(n_local)
        most, features, rounding = np.inf, np.inf, 0.0  # known after the first fit
        for r1 in n_global:
            for r2 in n_local:
                if r1 > most or r1 + r2 >= features:
                    continue
                trial = clone(self).set_params(n_global=r1, n_local=r2, misalignment=True, random_state=seed)
                trial.set_params(validation_fraction=share, journal=None)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", NotIdentifiableWarning)
                    trial.fit(X, sites=sites)
                features = trial.n_features_in_
                most = min(trial.n_samples_seen_, features)
                theta, left = trial.misalignment_, features - r1 - r2
                rounding = max(rounding, NO_NOISE * float(trial.explained_variance_.sum()))
                if left <= 0:
                    continue
                found.append(
                    {
                        "n_global": r1,
                        "n_local": r2,
                        "validation_error": trial.validation_error_,
                        "noise": trial.validation_error_ / left,
                        "misalignment": theta,
                        "identifiable": bool(theta >= SEPARATE),
                    }
                )
        if not found:
            raise InputError(f"n_global={n_global!r}, n_local={n_local!r}: no pair leaves one of {features} features over")
        least = min((row["noise"] for row in found if row["identifiable"]), default=np.inf)

        def order(row: dict[str, Any]) -> tuple[Any, ...]:
            near = row["identifiable"] and row["noise"] <= (1 + ALIKE) * least + rounding
            size = row["n_global"] + row["n_local"] if near else 0
            return not row["identifiable"], not near, size, row["noise"]

        return sorted(found, key=order)

    # -- scikit-learn ---------------------------------------------------------------------------

    @property
    def _n_features_out(self) -> int:
        return int(len(self.components_) + max((len(V) for V in self.local_components_.held.values()), default=0))

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Names of the columns that ``transform`` gives, where they are as many for every site."""
        check_is_fitted(self)
        if len({len(V) for V in self.local_components_.held.values()}) > 1:
            raise InputError(
                "the number of local components differs by site, so there is no one list of names for the scores; "
                "use set_output(transform='default') and name them by site"
            )
        return super().get_feature_names_out(input_features)


class _OfSites(Mapping[str, Any]):
    """What belongs to single sites, by name: there for the sites that this process holds, an error with advice for others."""

    def __init__(self, sites: tuple[str, ...], held: dict[str, Any]) -> None:
        self.sites, self.held = sites, held

    def __getitem__(self, site: str) -> Any:
        if site in self.held:
            return self.held[site]
        if site in self.sites:
            raise SiteElsewhereError(
                f"the local part of site {site!r} is at that site, not in this process (here: {', '.join(self.held) or 'none'}); "
                "at the site, local_part(rows) of this model computes it from the global components"
            )
        raise InputError(f"no site {site!r} in this model; the sites are {', '.join(self.sites[:10])}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)

    def __repr__(self) -> str:
        return repr(self.held)


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def _pairs(first: Any) -> list[tuple[int, int]]:
    return list(zip(first[:-1].tolist(), first[1:].tolist(), strict=True))
