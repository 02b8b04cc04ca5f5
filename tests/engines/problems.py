"""One problem, fitted by every engine: named sites of unequal size, solvers with and without kept state and own sites."""

from __future__ import annotations

from typing import Any

import numpy as np

import eigenpact as ep
from eigenpact.algorithms.goal import LINEAR_ANGLE
from eigenpact.estimators.registry import solvers_for

OWN = "oslo"
"""The coordinator's own site, where a case needs one."""

RANKS = {"oslo": 3, "bergen": 2, "lima": 0, "accra": 1, "quito": 2}
"""Numbers of local components, by site."""


def _alone(name: str, angle: float) -> tuple[Any, dict[str, Any]]:
    """A solver by name; to a loose tolerance if it takes many rounds: it converges, and ten rounds show other bits as well."""
    return name, {"tol": 1e-2} if LINEAR_ANGLE <= angle < 1 else {}


SOLVERS: dict[str, tuple[Any, dict[str, Any]]] = {
    name: _alone(name, solver.default_angle) for name, solver in solvers_for("FederatedPCA").items()
}
SOLVERS |= {  # those with "-proxy" need the coordinator's own site
    "krylov-site-centred": ("krylov", {"center": "site"}),
    "krylov-scaled": ("krylov", {"scale": "pooled"}),
    "krylov-proxy": (ep.solvers.Krylov(proxy=OWN), {}),
    "krylov-one-shot": (ep.solvers.Krylov(start="one-shot", max_blocks=3), {}),
    "faps-random": (ep.solvers.FAPS(start="random"), {"tol": 1e-2}),
    "davidson": (ep.solvers.Davidson(proxy=np.random.default_rng(8).normal(size=(50, 20)), start="one-shot"), {}),
    "davidson-proxy": (ep.solvers.Davidson(proxy=OWN), {}),
    "shift-invert-proxy": (ep.solvers.ShiftInvert(proxy=OWN), {"tol": 1e-2}),
    "one-shot": (ep.solvers.OneShot(merge="sign"), {}),
    "missing-em": ("auto", {"missing": "em"}),
    "missing-mean": ("gram", {"missing": "mean"}),
}
"""Every solver of FederatedPCA that there is, and variants."""

PERSONALIZED: dict[str, tuple[Any, dict[str, Any]]] = {
    "personalized": ("varpro", {"tol": 1e-2}),
    "personalized, ranks by site": ("varpro", {"tol": 1e-3, "n_local": RANKS, "validation_fraction": 0.2, "center": "site"}),
    "personalized, perpca": (ep.solvers.PerPCA(), {"tol": 1e-1}),
    "personalized, perpca 2": (
        ep.solvers.PerPCA(choice=2, retraction="qr", start="random"),
        {"tol": 1e-1, "misalignment": False},
    ),
    "personalized, pooled": ("pooled", {}),
}
"""Cases of PersonalizedPCA with two global and (at most) two local components."""

ROBUST: dict[str, dict[str, Any]] = {
    "robust": {"tol": 0.05, "tell_shares": True},
    "robust-scaled": {"rank": "upper", "scale": "robust", "tol": 0.1},
    "robust-dcf": {"solver": ep.solvers.DCF(K=2, lam=1.0), "center": False, "tol": 0.05},
}
"""Options of RobustPCA.  The rows are not of low rank: with DCF's own lam nearly all entries would be errors, which it doubts."""


def problem_sites() -> dict[str, np.ndarray[Any, Any]]:
    """Five named sites with 20 features and 7 to 120 rows."""
    rng = np.random.default_rng(7)
    mixing = rng.normal(size=(20, 20)) * np.linspace(3, 0.3, 20)
    sizes = {"oslo": 120, "bergen": 60, "lima": 33, "accra": 7, "quito": 90}
    return {name: rng.normal(size=(n, 20)) @ mixing.T + rng.normal(size=20) for name, n in sizes.items()}


def ring() -> dict[str, tuple[str, ...]]:
    """The sites in a ring, each with two neighbours; the order is not that of the names."""
    names = list(problem_sites())
    return {name: (names[i - 1], names[(i + 1) % len(names)]) for i, name in enumerate(names)}


def directed_ring() -> dict[str, tuple[str, ...]]:
    """Every site sends to the next one and to itself."""
    names = list(problem_sites())
    return {name: (names[(i + 1) % len(names)], name) for i, name in enumerate(names)}
