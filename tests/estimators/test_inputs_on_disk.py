"""Rows on disk, and bytes that become floats when they are read: the same answers as from arrays in memory."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from sklearn.decomposition import PCA

import eigenpact as ep
from eigenpact.errors import InputError, InputTypeError
from eigenpact.numerics.sources import ArraySource, CountRows, RowSource
from eigenpact.runtime.fingerprint import digest_of
from eigenpact.runtime.versions import row_hashes

ALONE = ep.engines.InProcess(threads=1)


def table(n: int = 300, d: int = 12) -> Any:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, d)) * np.linspace(3, 1, d) + 5


def on_disk(X: Any, folder: Path, kind: str) -> Any:
    if kind == "memory map":
        np.save(folder / "X.npy", X)
        return np.load(folder / "X.npy", mmap_mode="r")
    if kind == "zarr":
        array = zarr.create_array(folder / "X.zarr", shape=X.shape, chunks=(50, 5), dtype=X.dtype)
        array[:] = X
        return array
    with h5py.File(folder / "X.h5", "w") as file:
        file["X"] = X
    return h5py.File(folder / "X.h5", "r")["X"]


class SparseRows(RowSource):
    """A CSR matrix, given some rows at a time."""

    def __init__(self, X: Any) -> None:
        super().__init__(X.shape, X.dtype, sparse=True)
        self.X, self.piece_bytes = X, 8 * 20 * X.shape[1]

    def read(self, first: int, last: int) -> Any:
        return self.X[first:last].copy()


@pytest.mark.parametrize("kind", ["memory map", "zarr", "HDF5"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16])
def test_rows_on_disk_give_the_bits_of_memory(kind: str, dtype: Any, tmp_path: Path) -> None:
    """Fitted and transformed; whole numbers as float64."""
    X = (100 * table()).astype(dtype)
    disk = on_disk(X, tmp_path, kind)
    inside = ep.FederatedPCA(3, solver="krylov", scale="pooled", random_state=0).fit({"A": X[:100], "B": X[100:]})
    pca = ep.FederatedPCA(3, solver="krylov", scale="pooled", random_state=0)
    labels = np.where(np.arange(len(X)) < 100, "A", "B")
    pca.fit(disk, sites=labels)
    assert pca.components_.tobytes() == inside.components_.tobytes()
    assert pca.transform(disk).tobytes() == inside.transform(X).tobytes()
    assert pca.score(disk) == inside.score(X)


@pytest.mark.parametrize("solver", ["gram", "krylov", "subspace", "one-shot", "faps", "hot-potato", "shift-invert", "davidson"])
def test_every_kind_of_solver_takes_sources(solver: str) -> None:
    """Dense and sparse; the answer is that of the rows in memory."""
    X = table() * (np.random.default_rng(1).random((300, 12)) < 0.4)
    parts = {"A": X[:140], "B": X[140:]}
    options: dict[str, Any] = {"solver": solver, "random_state": 0, "engine": ALONE}
    expected = ep.FederatedPCA(2, **options).fit(parts)
    dense = ep.FederatedPCA(2, **options).fit({name: ArraySource(part) for name, part in parts.items()})
    assert dense.components_.tobytes() == expected.components_.tobytes()
    sparse = ep.FederatedPCA(2, **options).fit({name: SparseRows(sp.csr_array(part)) for name, part in parts.items()})
    np.testing.assert_allclose(sparse.components_, expected.components_, atol=1e-6)


def test_counts_stay_bytes() -> None:
    """Genotypes as bytes, of which 255 is missing: scikit-learn's answer; a missing one is refused by its column."""
    counts = np.random.default_rng(0).integers(0, 3, (60, 9)).astype(np.uint8)
    pca = ep.FederatedPCA(2).fit({"A": CountRows(counts[:20]), "B": CountRows(counts[20:])})
    np.testing.assert_allclose(pca.explained_variance_, PCA(2).fit(counts.astype(float)).explained_variance_)
    assert pca.components_.dtype == np.float64
    counts[7, 4] = counts[9, 4] = 255
    with pytest.raises(InputError, match="'A': column 4 has 2 NaN"):
        ep.FederatedPCA(2).fit({"A": CountRows(counts[:20]), "B": CountRows(counts[20:])})
    with pytest.raises(InputError, match="column 4 has 2 NaN"):
        pca.transform(CountRows(counts))


def test_a_large_memory_map_is_never_in_memory(tmp_path: Path) -> None:
    """What Python and numpy allocate stays far below the rows."""
    shape = (60000, 100)
    X = np.lib.format.open_memmap(tmp_path / "X.npy", mode="w+", dtype=np.float64, shape=shape)
    rng = np.random.default_rng(0)
    for first in range(0, shape[0], 5000):
        X[first : first + 5000] = rng.normal(size=(5000, 100)) * np.linspace(3, 1, 100)
    source = ArraySource(X)
    source.piece_bytes = 1 << 22
    tracemalloc.start()
    try:
        pca = ep.FederatedPCA(2, solver="krylov", tol=1e-3, random_state=0, engine=ALONE, min_nonzero=1).fit(source)
        pca.transform(source)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < X.nbytes / 2


def test_digests_and_hashes_do_not_depend_on_where_rows_lie() -> None:
    X = table() * (np.random.default_rng(1).random((300, 12)) < 0.4)
    source = ArraySource(X)
    source.piece_bytes = 5000
    csr = sp.csr_array(X)
    assert digest_of(source, b"k") == digest_of(X, b"k")
    assert digest_of(SparseRows(csr), b"k") == digest_of(csr, b"k")
    assert row_hashes(source, b"k").tobytes() == row_hashes(SparseRows(csr), b"k").tobytes() == row_hashes(X, b"k").tobytes()


def test_a_journal_resumes_over_rows_on_disk(tmp_path: Path) -> None:
    X = ArraySource(table())
    first = ep.FederatedPCA(2, journal=tmp_path / "run", random_state=0).fit(X)
    assert ep.FederatedPCA(2, journal=tmp_path / "run", random_state=0).fit(table()).components_.tobytes() == (
        first.components_.tobytes()
    )


def test_other_estimators_take_sources() -> None:
    X = table(120, 5)
    held, sources = {"A": X[:60], "B": X[60:]}, {"A": ArraySource(X[:60]), "B": ArraySource(X[60:])}
    for make in (
        lambda: ep.PersonalizedPCA(1, 1, random_state=0),
        lambda: ep.GraphPCA(2, graph="complete", random_state=0),
        lambda: ep.RobustPCA(2, random_state=0, tol=1e-3),
    ):
        assert make().fit(sources).components_.tobytes() == make().fit(held).components_.tobytes()


def test_what_is_no_table_on_disk_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.array([["a", "b"]]))
    with pytest.raises(InputTypeError, match="does not hold real numbers"):
        ep.FederatedPCA(1).fit(np.load(tmp_path / "X.npy", mmap_mode="r"))
    np.save(tmp_path / "Y.npy", np.zeros((3, 2, 2)))
    with pytest.raises(InputError, match="is not a table"):
        ep.FederatedPCA(1).fit(np.load(tmp_path / "Y.npy", mmap_mode="r"))
    with pytest.raises(InputError, match="12 features, but FederatedPCA is expecting 5"):
        ep.FederatedPCA(1).fit(table(30, 5)).transform(ArraySource(table()))
