"""``ep.audit``: run an estimator in this process, keep what was sent, attack it, and compare with the truth.

>>> import eigenpact as ep
>>> rng = np.random.default_rng(0)
>>> sites = {name: rng.normal(size=(40, 6)) for name in ("A", "B", "C")}
>>> told = audit(ep.FederatedPCA(2, solver="krylov", random_state=0), sites)
>>> told.of("products, symmetric", "A")[0].verdict
'computed'
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import clone

from ..engines import InProcess
from ..errors import InputError
from ..estimators import FederatedPCA
from ..estimators.inputs import hold
from ..numerics.linalg import Array
from ..privacy.audit import all_secured, audit_ledger, in_order
from ..privacy.counting import Counted, count_rosters
from ..privacy.eavesdropping import Eavesdropper
from ..privacy.findings import Audit
from ..privacy.replies import Recorded, attack_replies
from ..runtime import Ledger
from .audit_sums import Run, attack_sums, dense
from .truth import pool
from .watching import unwarned

MOST_FEATURES = 3000
"""Every site's scatter matrix is formed, and compared."""


def audit(
    estimator: Any, X: Any = None, sites: Any = None, *, fit_sites: int = 1, sums: bool = True, secured: bool = False
) -> Audit:
    """Tell what could be computed about single sites and rows from what a run sends.

    With data, the run is simulated in this process, its messages are kept, and attacks are made on them.  Without, the ledger
    of a fitted estimator is read: equations are counted, and nothing is attacked.

    Parameters
    ----------
    estimator : FederatedPCA, or a fitted estimator, or a Ledger
        It is not fitted or changed here; the simulation uses a copy in one process.
    X, sites
        As for ``fit``.  Leave both out for a fitted estimator or a ledger.
    fit_sites : int
        Sites for which FAPS is fitted by a simulated site, up to a minute each.
    sums : bool
        Also make the attacks on sums and models, which take a few runs more.
    secured : bool
        Take all replies as masked, before there is a run that masks them.

    Returns
    -------
    Audit
    """
    if X is None:
        return _of_ledger(estimator, secured)
    if not isinstance(estimator, FederatedPCA):
        raise InputError(
            f"{type(estimator).__name__} is not attacked by this audit; give a FederatedPCA, or a fitted estimator without X to "
            "have its ledger read"
        )
    held = hold(FederatedPCA(), X, sites)
    run = simulate(estimator, held)
    if run.n_features > MOST_FEATURES:
        raise InputError(f"{run.n_features} features are more than the {MOST_FEATURES} that are attacked; take some of them")
    means = {name: dense(rows).mean(axis=0) for name, rows in held.items()}
    recorded = Recorded(run.heard, run.ledger, run.n_features, true_scatters(estimator, held), secured, means)
    masked = secured or all_secured(run.ledger)
    findings = list(attack_replies(recorded, fit_sites))
    if sums:
        findings += attack_sums(plain(estimator), held, recorded.truth, simulate, masked=masked)
    else:
        findings += count_rosters(Counted(run.ledger, run.n_features))
    about = {"rows": {name: int(rows.shape[0]) for name, rows in held.items()}, "n_components": run.pca.n_components_}
    facts = run.pca.solver_, tuple(held), run.n_features, run.pca.n_rounds_, masked
    return Audit("recorded", *facts, in_order(findings, held), about)


def simulate(estimator: Any, held: Mapping[str, Any], engine: Any = None) -> Run:
    """Fit a copy on these sites with an eavesdropper at the coordinator."""
    spy = Eavesdropper(InProcess() if engine is None else engine)
    copy = clone(estimator).set_params(engine=spy, journal=None, callback=None)
    with unwarned():  # the findings are about what was sent, however the run ended
        copy.fit(held)
    return Run(copy, tuple(spy.heard), copy.ledger_)


def plain(estimator: Any) -> Any:
    """The same without secured sums: a secured sum is the same sum, and here it can be heard."""
    copy = clone(estimator)
    return copy.set_params(secure=False) if "secure" in copy.get_params() else copy


def true_scatters(estimator: Any, held: Mapping[str, Any]) -> dict[str, Array]:
    """C_i of every site, centred and scaled as the solver sees its rows."""
    chosen = estimator.get_params()
    pooled = pool(held, {name: chosen[name] for name in ("center", "scale")} | {"n_components": 1})
    return {name: rows.scatter() for name, rows in zip(held, pooled.rows, strict=True)}


def made_up(shapes: Mapping[str, int], n_features: int, seed: int = 0) -> dict[str, Array]:
    """Rows (n_i x d) of these numbers that resemble nobody: normal, variances falling from 1 to 1/100, a mean of their own."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.normal(size=(n_features, n_features)))[0] * np.geomspace(1.0, 0.1, n_features)
    return {name: rng.normal(size=(n, n_features)) @ axes.T + 0.1 * rng.normal(size=n_features) for name, n in shapes.items()}


def _of_ledger(source: Any, secured: bool) -> Audit:
    if isinstance(source, Ledger):
        return audit_ledger(source, secured=secured)
    if not hasattr(source, "ledger_"):
        raise InputError(f"{type(source).__name__} is not fitted and has no ledger; give X to simulate a run, or fit it first")
    return audit_ledger(source.ledger_, solver=source.solver_, n_features=source.n_features_in_, secured=secured)
