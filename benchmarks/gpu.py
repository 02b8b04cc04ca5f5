"""Sites whose rows lie on a GPU: the same answer as on the CPU, and how long a round takes on either.

Run with ``python -m benchmarks.gpu`` where torch sees a GPU (or with ``--device cpu`` to try the code), or as a table with
``make results FAMILY=gpu``.  A product is Y^T (Y Z) of a site's centred rows Y with a block Z of 20 columns, a site's work in a
round.  Times include the copy of the block to the GPU and of the product back, because only numpy arrays cross the wire; the copy
back waits for the GPU.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import eigenpact as ep
from benchmarks.table import Row, print_rows
from eigenpact.numerics.linalg import random_orthonormal
from eigenpact.numerics.metrics import largest_sine
from eigenpact.numerics.rows import Rows

SIZES = {"small": (5_000, 500), "paper": (50_000, 2_000)}
"""Rows of each of two sites, and features."""

FAMILIES: dict[str, Any] = {
    "FederatedPCA, scaled": lambda: ep.FederatedPCA(5, scale="pooled", random_state=0),
    "FederatedPCA, prepared": lambda: ep.FederatedPCA(5, prepare=(ep.prepare.Scale(),), random_state=0),
    'FederatedPCA, missing="em"': lambda: ep.FederatedPCA(5, missing="em", random_state=0),
    "PersonalizedPCA": lambda: ep.PersonalizedPCA(3, 2, random_state=0),
    "RobustPCA": lambda: ep.RobustPCA(5, random_state=0),
    "GraphPCA": lambda: ep.GraphPCA(3, random_state=0),
    "GraphKernelPCA": lambda: ep.GraphKernelPCA(2, solver="random-features", random_state=0),
}
"""Every family: the first and PersonalizedPCA multiply where rows lie, the others copy rows to numpy a few at a time."""

SAME = 1e-8
"""How far answers may be apart."""

SOLVERS: dict[str, Any] = {
    "gram": "gram",
    "krylov": "krylov",
    "krylov, a site as proxy": ep.solvers.Krylov(proxy="A"),
    "krylov, one-shot start": ep.solvers.Krylov(start="one-shot"),
}


def median_seconds(rows: Rows, Z: Any, repeats: int = 10) -> float:
    """Median time of one product Y^T (Y Z), the result on the CPU."""
    rows.scatter_action(Z)  # warm-up
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        rows.scatter_action(Z)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def measure(device: str, n_rows: int, n_features: int) -> Iterator[Row]:
    """Compare answers, then times, of two sites on the CPU and on the device."""
    import torch

    rng = np.random.default_rng(0)
    spectrum = 1.02 ** -np.arange(n_features)
    sites = {name: rng.normal(size=(n_rows, n_features)) * spectrum + 1 for name in ("A", "B")}
    there = {name: torch.asarray(X, device=device) for name, X in sites.items()}
    for label, solver in SOLVERS.items():
        pcas = [ep.FederatedPCA(10, solver=solver, random_state=0).fit(where) for where in (sites, there)]
        sine = largest_sine(pcas[0].components_.T, pcas[1].components_.T)
        rounds = " and ".join(str(pca.n_rounds_) for pca in pcas)
        yield Row(f"{label}, answers on CPU and {device}", "reported", f"sine between them {sine:.1e}; {rounds} rounds", True)
    yield from families(device)
    Z = random_orthonormal(n_features, 20, seed=0)
    mean = np.ones(n_features)
    cpu, gpu = (median_seconds(Rows(where["A"], mean), Z) for where in (sites, there))
    reached = f"CPU {cpu * 1e3:.1f} ms, {device} {gpu * 1e3:.1f} ms, ratio {cpu / gpu:.1f}"
    yield Row(f"one product, {n_rows} x {n_features} by 20", "reported", reached, True)


def families(device: str) -> Iterator[Row]:
    """Every family's answer for rows on the device beside that for numpy's."""
    import torch

    rng = np.random.default_rng(1)
    low = rng.normal(size=(5, 60)) * 1.5 ** -np.arange(5)[:, None]
    sites = {name: rng.normal(size=(400, 5)) @ low + 0.05 * rng.normal(size=(400, 60)) + 1 for name in "ABCD"}
    for i, X in enumerate(sites.values()):  # each has directions of its own
        X[:, 2 * i : 2 * i + 2] += 2 * rng.normal(size=(400, 2))
    there = {name: torch.asarray(X, device=device) for name, X in sites.items()}
    for label, make in FAMILIES.items():
        here, elsewhere = make().fit(sites), make().fit(there)
        answers = [pca.transform(sites["A"]) if "Kernel" in label else pca.components_ for pca in (here, elsewhere)]
        apart = float(np.abs(answers[0] - answers[1]).max())
        yield Row(f"{label}: entries of the answer, CPU and {device}", f"<= {SAME:g} apart", f"{apart:.1e}", apart <= SAME)


def rows(size: str) -> Iterator[Row]:
    """The table, where there is a GPU."""
    if importlib.util.find_spec("torch") is None or not importlib.import_module("torch").cuda.is_available():
        yield Row("answers and times on a GPU", "reported", "", None, "needs torch and a GPU")
        return
    yield from measure("cuda", *SIZES[size])


def main() -> None:
    """Print the table for any device."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, default=SIZES["paper"][0])
    parser.add_argument("--features", type=int, default=SIZES["paper"][1])
    arguments = parser.parse_args()
    print_rows(f"gpu, {arguments.device}", measure(arguments.device, arguments.rows, arguments.features), markdown=False)


if __name__ == "__main__":
    main()
