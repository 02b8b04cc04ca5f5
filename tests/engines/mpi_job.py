"""Run under mpiexec by test_mpi.py: every rank fits with its share of the sites; rank 0 writes what came out."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

import eigenpact as ep
from eigenpact.estimators.model_files import save_model
from tests.engines.problems import SOLVERS, problem_sites


def main(folder: Path) -> None:
    """Fit every solver and save each model under its name."""
    comm = MPI.COMM_WORLD
    sites = problem_sites()
    mine = {name: X for i, (name, X) in enumerate(sites.items()) if i % comm.size == comm.rank}
    for label, (solver, options) in SOLVERS.items():
        pca = ep.FederatedPCA(3, solver=solver, random_state=0, engine="mpi", **options).fit(mine or None)
        bits = np.frombuffer(pca.components_.tobytes() + pca.explained_variance_.tobytes(), dtype=np.uint8)
        everywhere = comm.allgather(bits.tobytes())
        assert len(set(everywhere)) == 1, "ranks ended with different models"
        if comm.rank == 0:
            save_model(pca, folder / label)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
