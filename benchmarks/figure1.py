"""Figure 1 of the one-shot paper in plain numpy and scipy: what our solvers' errors are checked against.

Nothing of eigenpact is used, and all rows are drawn.  ``python -m benchmarks.figure1`` writes figure1.json beside this file, the
means and standard errors that ``make results FAMILY=statistical SIZE=small`` compares with; SIZE=paper computes them anew.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg

FEATURES, SITES, ROWS = 300, 25, (25, 100, 400, 1600)
REPEATS = 400
"""As in the paper; also of the numbers in the file."""
DISTRIBUTIONS = "normal", "uniform"
EIGENVALUES = np.concatenate([[1.0], 0.8 * 0.9 ** np.arange(FEATURES - 1)])
FILE = Path(__file__).with_name("figure1.json")

Array = np.ndarray[Any, Any]
Summary = Mapping[str, tuple[float, float]]
"""Estimator -> mean and standard error."""


def repeat(distribution: str, n: int, rng: np.random.Generator) -> dict[str, float]:
    """1 - (w^T v)^2 of every estimator on one draw of 25 sites of n rows."""
    if distribution == "normal":  # in the basis of eigenvectors, since everything turns with the data
        rows, v = [rng.standard_normal((n, FEATURES)) * np.sqrt(EIGENVALUES) for _ in range(SITES)], np.eye(FEATURES)[0]
    else:
        U = np.linalg.qr(rng.standard_normal((FEATURES, FEATURES)))[0]
        root = (U * np.sqrt(1.5 * EIGENVALUES)) @ U.T
        rows, v = [rng.uniform(-1.0, 1.0, (n, FEATURES)) @ root for _ in range(SITES)], U[:, 0]
    pooled = sum(X.T @ X for X in rows)
    V = np.array([_leading(X) for X in rows])  # one site a row
    agreement = V @ V.T
    signs = {"sign, site 1": np.sign(agreement[0]), "sign, medoid": np.sign(agreement[np.argmax((agreement**2).sum(axis=1))])}
    found = {
        "centralized": scipy.linalg.eigh(pooled, subset_by_index=(FEATURES - 1, FEATURES - 1))[1][:, 0],
        "average": rng.choice([-1.0, 1.0], SITES) @ V,
        **{name: s @ V for name, s in signs.items()},
        "projection": scipy.linalg.svd(V, full_matrices=False)[2][0],
    }
    errors = {name: _error(w, v) for name, w in found.items()}
    return errors | {"single site": float(np.mean([_error(w, v) for w in V]))}


def _leading(X: Array) -> Array:
    """The leading right singular vector of X (n x d), from the smaller of the two Gram matrices."""
    n, d = X.shape
    if n >= d:
        return np.asarray(scipy.linalg.eigh(X.T @ X, subset_by_index=(d - 1, d - 1))[1][:, 0])
    w = X.T @ scipy.linalg.eigh(X @ X.T, subset_by_index=(n - 1, n - 1))[1][:, 0]
    return np.asarray(w / np.linalg.norm(w))


def _error(w: Array, v: Array) -> float:
    return float(1 - (w @ v) ** 2 / (w @ w))


def summary(
    draw: Callable[[np.random.Generator], Mapping[str, float]], repeats: int, seed: int
) -> dict[str, tuple[float, float]]:
    """Means and standard errors over repeats."""
    rng = np.random.default_rng(seed)
    drawn = [draw(rng) for _ in range(repeats)]
    found = {name: np.array([errors[name] for errors in drawn]) for name in drawn[0]}
    return {name: (float(e.mean()), float(e.std(ddof=1) / np.sqrt(repeats))) for name, e in found.items()}


def computed(distribution: str, n: int, repeats: int, seed: int) -> Summary:
    """Figure 1 at one n."""
    return summary(lambda rng: repeat(distribution, n, rng), repeats, seed)


def stored(distribution: str, n: int) -> Summary:
    """The same from the file."""
    told = json.loads(FILE.read_text())["errors"][distribution][str(n)]
    return {name: (mean, error) for name, (mean, error) in told.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=2017)
    asked = parser.parse_args()
    errors = {kind: {str(n): computed(kind, n, REPEATS, asked.seed) for n in ROWS} for kind in DISTRIBUTIONS}
    FILE.write_text(json.dumps({"repeats": REPEATS, "seed": asked.seed, "errors": errors}, indent=1) + "\n")
