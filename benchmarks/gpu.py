"""Sites whose rows lie on a GPU: the same answer as on the CPU, and how long a round takes on either.

Run with ``python -m benchmarks.gpu`` where torch sees a GPU (or with ``--device cpu`` to try the code).  Times include the copy
of the block to the GPU and of the product back, because only numpy arrays cross the wire; the copy back waits for the GPU.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np

import eigenpact as ep
from eigenpact.linalg import random_orthonormal
from eigenpact.metrics import largest_sine
from eigenpact.rows import Rows


def median_seconds(rows: Rows, Z: Any, repeats: int = 10) -> float:
    """Median time of one product Y^T (Y Z), the result on the CPU."""
    rows.scatter_action(Z)  # warm-up
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        rows.scatter_action(Z)
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def main() -> None:
    """Compare answers and times."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--features", type=int, default=2_000)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    spectrum = 1.02 ** -np.arange(arguments.features)
    sites = {name: rng.normal(size=(arguments.rows, arguments.features)) * spectrum + 1 for name in ("A", "B")}
    there = {name: torch.asarray(X, device=arguments.device) for name, X in sites.items()}
    for solver in ("gram", "krylov", ep.Krylov(proxy="A"), ep.Krylov(start="one-shot")):
        pcas = [ep.FederatedPCA(10, solver=solver, random_state=0).fit(where) for where in (sites, there)]
        sine = largest_sine(pcas[0].components_.T, pcas[1].components_.T)
        rounds = [pca.n_rounds_ for pca in pcas]
        print(f"{solver!s:60.60s} rounds {rounds}, sine between the two answers {sine:.1e}")
    Z = random_orthonormal(arguments.features, 20, seed=0)
    mean = np.ones(arguments.features)
    cpu, gpu = (median_seconds(Rows(where["A"], mean), Z) for where in (sites, there))
    shape = f"{arguments.rows} x {arguments.features} by 20"
    print(f"one product, {shape}: CPU {cpu * 1e3:.1f} ms, {arguments.device} {gpu * 1e3:.1f} ms, ratio {cpu / gpu:.1f}")


if __name__ == "__main__":
    main()
