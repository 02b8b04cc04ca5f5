"""Somebody with a cluster: an array larger than the memory that a job is allowed, then parts of it under MPI."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA

import eigenpact as ep

from .person import Person, needs

FIT_FILES, MPI = "docs/how-to/fit-files.md", "docs/how-to/run-under-mpi.md"
COLUMNS, REPEATED = 200, 2000
LARGE = {"small": (10**8, "64MB", 250 * 10**6), "paper": (6 * 10**9, "1GB", 10**9)}
"""Bytes of the file, what --memory says, and the most anonymous memory that a command may take."""


def play(person: Person, size: str = "small") -> None:
    """Components of the large file as of the block that it repeats; peaks of memory below what is allowed."""
    n_bytes, given, most = LARGE[size]
    block = write_large(person.folder / "large.npy", n_bytes)
    person.types(FIT_FILES, "eigenpact fit large.npy -k 2 -o large -q --memory 512MB", {"512MB": given, "2": "5"})
    scored = "eigenpact transform large large.npy -o large-scores.npy --memory 512MB"
    person.types(FIT_FILES, scored, {"512MB": given, "large-scores.npy": "scores.npy"})
    assert max(person.peaks) <= most, person.peaks
    truth = PCA(5).fit(block.astype(float))
    components = ep.load_model(person.folder / "large").components_
    np.testing.assert_allclose(np.abs(components @ truth.components_.T), np.eye(5), atol=1e-6)
    scores = np.load(person.folder / "scores.npy", mmap_mode="r")
    np.testing.assert_allclose(np.abs(scores[:REPEATED]), np.abs(truth.transform(block.astype(float))), atol=1e-3)


def play_mpi(person: Person) -> None:
    """Three files by three ranks: the same bits as in one process."""
    needs("mpi4py")
    rng = np.random.default_rng(2)
    parts = {name: rng.normal(size=(80, 6)) * np.arange(6, 0, -1) for name in ("part0", "part1", "part2")}
    for name, X in parts.items():
        np.save(person.folder / f"{name}.npy", X)
    person.types(MPI, "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
    line = "mpiexec --oversubscribe -n 3 eigenpact fit north.npy south.npy west.npy -k 2 --engine mpi -o model -q"
    person.types(MPI, line, {"north.npy": "part0.npy", "south.npy": "part1.npy", "west.npy": "part2.npy"})
    here = ep.FederatedPCA(2, random_state=0).fit(parts)
    assert ep.load_model(person.folder / "model").components_.tobytes() == here.components_.tobytes()
    np.testing.assert_allclose(
        np.abs(here.components_ @ PCA(2).fit(np.vstack(list(parts.values()))).components_.T), np.eye(2), atol=1e-8
    )


def write_large(path: Path, n_bytes: int) -> np.ndarray:
    """A file of single precision that repeats a block of rows; the block."""
    block = (np.random.default_rng(0).normal(size=(REPEATED, COLUMNS)) * np.linspace(5, 1, COLUMNS)).astype(np.float32)
    n = n_bytes // (4 * COLUMNS) // REPEATED * REPEATED
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (n, COLUMNS))
    for first in range(0, n, REPEATED):
        rows[first : first + REPEATED] = block
    rows.flush()
    return block
