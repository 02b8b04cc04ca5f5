"""Problems for honest runs, with and without gates.  ``python -m tests.attacks.honest`` prints the answers as JSON.

It uses nothing that an older version of the package lacks, so that a benchmark can run it over one.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.datasets import load_breast_cancer, load_digits

import eigenpact as ep
from eigenpact.data.loaders import genomes, heart_disease, mnist

ROUNDS = 490
"""What the policy of a new kit lets a plan ask for, set-up included."""

EXACT = ("gram", "krylov", "lanczos", "davidson", "subspace")


def by_label(X: Any, y: Any) -> dict[str, Any]:
    return {f"label{c}": X[y == c] for c in np.unique(y)}


def digits() -> dict[str, Any]:
    return by_label(*load_digits(return_X_y=True))


def sparse() -> dict[str, Any]:
    S = scipy.sparse.random(600, 80, 0.1, random_state=0, format="csr")
    return {"a": S[:300], "b": S[300:]}


def cancer() -> dict[str, Any]:
    X = load_breast_cancer().data
    return {"a": X[:200], "b": X[200:]}


def hospitals() -> dict[str, Any]:
    """Four hospitals, the features that all have measured."""
    data = heart_disease()
    common = ~np.isnan(data.X[:, [0, 1, 2]]).any(axis=1)
    return {str(site): data.X[common & (data.groups["site"] == site)][:, [0, 1, 2]] for site in np.unique(data.groups["site"])}


def populations() -> dict[str, Any]:
    data = genomes()
    labels = data.groups["population"]
    sites = {str(p): np.asarray(data.X[labels == p][:, :1000], dtype=float) for p in np.unique(labels)}
    return {name: X for name, X in sites.items() if len(X) >= 20}


PROBLEMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "digits by label": (digits, {}),
    "digits, own centres": (digits, {"center": "site"}),
    "digits, no centre": (digits, {"center": False}),
    "patients, scaled": (cancer, {"scale": "pooled"}),
    "patients": (cancer, {}),
    "sparse": (sparse, {}),
    "sparse, scaled": (sparse, {"scale": "pooled"}),
}
REAL: dict[str, tuple[Any, dict[str, Any]]] = {
    "MNIST by label": (lambda: by_label(np.asarray(mnist().X[:4000], dtype=float), mnist().y[:4000]), {}),
    "hospitals": (hospitals, {}),
    "genomes by population": (populations, {}),
}


def fitted(engine: Any, solver: str, problem: str) -> Any:
    make, options = (PROBLEMS | REAL)[problem]
    k = 2 if problem == "hospitals" else 4
    model = ep.FederatedPCA(k, solver=solver, random_state=0, max_rounds=ROUNDS, tol=1e-4 if solver == "subspace" else None)
    return model.set_params(engine=engine, **options).fit(make())


def main() -> int:
    """Fit every problem that needs no data of its own, in one process."""
    warnings.simplefilter("ignore")
    answers = {}
    for problem in PROBLEMS:
        for solver in EXACT:
            pca = fitted("inprocess", solver, problem)
            answers[f"{problem} {solver}"] = {"components": pca.components_.tolist(), "rounds": pca.n_rounds_}
    print(json.dumps(answers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
