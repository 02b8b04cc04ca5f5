"""Sparse matrices that files store by columns, read as rows a piece at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenpact.data import by_columns
from eigenpact.data.array_sources import CsrSource
from eigenpact.data.readers import read_table
from eigenpact.errors import FileError
from eigenpact.numerics.sources import RowSource


def in_file(matrix: sp.csc_matrix, piece_bytes: int) -> CsrSource:
    n, d = matrix.shape
    columns = CsrSource(Path("a.h5ad"), matrix.data, matrix.indices, matrix.indptr, (d, n))
    columns.piece_bytes = piece_bytes
    return columns


@given(
    st.integers(1, 30), st.integers(1, 20), st.sampled_from([0.0, 0.1, 0.6]), st.sampled_from([1, 60, 10**6]), st.integers(0, 999)
)
@settings(max_examples=40, deadline=None)
def test_turned_is_scipy_s_csr(n: int, d: int, density: float, piece_bytes: int, seed: int) -> None:
    """Whatever the pieces: the same entries, columns of a row in their order."""
    matrix = sp.random(n, d, density, format="csc", rng=np.random.default_rng(seed))
    rows = by_columns.turned(in_file(matrix, piece_bytes))
    expected = matrix.tocsr()
    expected.sort_indices()
    found = rows[:]
    assert np.array_equal(found.indptr, expected.indptr)
    assert np.array_equal(found.indices, expected.indices)
    assert np.array_equal(found.data, expected.data)
    some = np.random.default_rng(seed).integers(0, n, 5)
    assert np.array_equal(rows[some].toarray(), expected[some].toarray())


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int32])
def test_a_sparse_npz_by_columns_is_read_in_pieces(tmp_path: Path, kind: type) -> None:
    matrix = sp.random(300, 20, 0.3, format="csc", rng=np.random.default_rng(0)) * 10
    matrix = matrix.astype(kind)
    sp.save_npz(tmp_path / "a.npz", matrix)
    X = read_table(tmp_path / "a.npz", memory=1000).X
    assert isinstance(X, RowSource)
    assert np.array_equal(X[:].toarray(), matrix.toarray())


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(by_columns.os, "posix_fallocate", full)
    with pytest.raises(FileError, match="No space left on device; set TMPDIR"):
        by_columns.turned(in_file(sp.csc_matrix(np.eye(3)), 10**6))
