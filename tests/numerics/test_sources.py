"""Rows that are read a few at a time: equal to rows in memory, to the bit in the same blocks; readers end with the pass."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from eigenpact.errors import InputTypeError
from eigenpact.numerics import rows as rows_module
from eigenpact.numerics.columns import columns_nonzero, with_zeros
from eigenpact.numerics.rows import Rows
from eigenpact.numerics.site_rows import SiteRows, own_mean
from eigenpact.numerics.sources import ArraySource, ChangedRows, RowSource, pieces

N, D = 57, 6


class Sparse(RowSource):
    """Rows of a CSR matrix, given some at a time."""

    def __init__(self, X: Any) -> None:
        super().__init__(X.shape, X.dtype, sparse=True)
        self.X, self.passes = X, 0

    def read(self, first: int, last: int) -> Any:
        self.passes += first == 0
        return self.X[first:last].copy()


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "BLOCK_BYTES", 8 * D * 5)


def table() -> Any:
    """Zeros, a constant that is no power of two, and columns far from zero."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.6)
    X[:, 2] = 0.3
    X[:, 4] += 1e7
    return X


def in_pieces(source: RowSource, n: int = 13) -> RowSource:
    source.piece_bytes = n * source.row_bytes()
    return source


PRODUCTS: dict[str, Callable[[Rows], Any]] = {
    "column_sums": lambda rows: rows.column_sums(),
    "column_moments": lambda rows: np.stack(rows.column_moments()),
    "column_squares": lambda rows: rows.column_squares(),
    "column_largest": lambda rows: rows.column_largest(),
    "row_squares": lambda rows: rows.row_squares(),
    "residual_squares": lambda rows: rows.residual_squares(np.linalg.qr(np.eye(D, 2) + 0.1)[0]),
    "scatter": lambda rows: rows.scatter(),
    "scatter_action": lambda rows: rows.scatter_action(np.eye(D, 3) + 0.1),
    "project": lambda rows: rows.project(np.eye(D, 3) + 0.1),
    "transposed_action": lambda rows: rows.transposed_action(np.arange(3.0 * N).reshape(N, 3)),
    "row_products": lambda rows: rows.row_products(),
    "take": lambda rows: rows.take(np.array([40, 3, 3, 0])).project(np.eye(D, 3)),
    "top": lambda rows: rows.top(2)[0],
}


@pytest.mark.parametrize("product", PRODUCTS)
def test_dense_sources_give_the_bits_of_memory(product: str, tmp_path: Path) -> None:
    """Whatever the size of a piece; centred and scaled rows are taken in the same blocks."""
    X, mean, scale = table(), np.arange(D) + 0.5, np.arange(D) + 1.0
    expected = PRODUCTS[product](Rows(X, mean, scale))
    mapped = np.lib.format.open_memmap(tmp_path / "X.npy", mode="w+", dtype=X.dtype, shape=X.shape)
    mapped[:] = X
    for rows in (in_pieces(ArraySource(X), n) for n in (1, 13, 1000)):
        np.testing.assert_array_equal(PRODUCTS[product](Rows(rows, mean, scale)), expected)
    np.testing.assert_array_equal(PRODUCTS[product](Rows(mapped, mean, scale)), expected)
    np.testing.assert_allclose(PRODUCTS[product](Rows(ArraySource(X))), PRODUCTS[product](Rows(X)), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("product", PRODUCTS)
def test_sparse_sources_equal_the_written_out_matrix(product: str) -> None:
    """Centred implicitly part by part; columns far from zero keep their digits."""
    X, scale = table(), np.arange(D) + 1.0
    mean = X.mean(axis=0)
    expected = PRODUCTS[product](Rows(X, mean, scale))
    found = PRODUCTS[product](Rows(in_pieces(Sparse(sp.csr_array(X))), mean, scale))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("sparse", [False, True])
def test_a_sites_products_about_its_own_mean(sparse: bool) -> None:
    """Far from zero, and with an agreed mean; a constant column is zero about the site's own mean, also in parts."""
    X = table()
    source = in_pieces(Sparse(sp.csr_array(X)) if sparse else ArraySource(X))
    own, within = own_mean(source)
    np.testing.assert_allclose(within, ((X - X.mean(axis=0)) ** 2).sum(axis=0), rtol=1e-7, atol=1e-20)
    mean, scale, Z = X.mean(axis=0) + 0.25, np.arange(D) + 1.0, np.eye(D, 3) + 0.1
    Y = (X - mean) / scale
    rows = SiteRows(source, mean, scale, own)
    np.testing.assert_allclose(rows.scatter_action(Z), Y.T @ Y @ Z, rtol=1e-7)
    np.testing.assert_allclose(rows.scatter(), Y.T @ Y, rtol=1e-7, atol=1e-7)
    assert np.all(rows._own.scatter()[2] == 0.0)


def test_features_to_centre_first_are_found_once() -> None:
    """A sparse source is read once more in a run, not once more in every round."""
    source = in_pieces(Sparse(sp.csr_array(table())))
    own, _ = own_mean(source)
    passes = []
    for Z in (np.eye(D, 2), np.eye(D, 3), np.eye(D, 1)):
        source.passes = 0
        SiteRows(source, None, None, own).scatter_action(Z)
        passes.append(source.passes)
    assert passes == [2, 1, 1]


def test_counting_and_zeroing_columns_stays_lazy() -> None:
    X = table()
    for source in (in_pieces(ArraySource(X)), in_pieces(Sparse(sp.csr_array(X)))):
        np.testing.assert_array_equal(columns_nonzero(source), (X != 0).sum(axis=0))
        less = with_zeros(source, np.array([1, 4]))
        assert isinstance(less, ChangedRows)
        expected = X.copy()
        expected[:, [1, 4]] = 0
        got = less[:]
        np.testing.assert_array_equal(got.toarray() if less.sparse else got, expected)


def test_indexing() -> None:
    X = table()
    for source, dense in ((in_pieces(ArraySource(X)), np.asarray), (in_pieces(Sparse(sp.csr_array(X))), lambda x: x.toarray())):
        for key in (slice(3, 50), slice(50, 3), slice(None, None, -7), np.array([56, 0, 30, 30, -1]), X[:, 0] > 0, []):
            wanted = X[np.array(key, dtype=int)] if isinstance(key, list) else X[key]
            np.testing.assert_array_equal(dense(source[np.array(key, dtype=int) if isinstance(key, list) else key]), wanted)
        np.testing.assert_array_equal(dense(source[:, [4, 1]][2:9]), X[2:9][:, [4, 1]])
        np.testing.assert_array_equal(dense(source[2:9, 1:3]), X[2:9, 1:3])
        np.testing.assert_array_equal(dense(source[2:9, :]), X[2:9])
        with pytest.raises(IndexError, match="of 57 rows"):
            source[np.array([57])]
        with pytest.raises(InputTypeError, match="a few at a time"):
            np.asarray(source)


class Failing(ArraySource):
    """A disk that breaks in the middle."""

    def read(self, first: int, last: int) -> Any:
        if first >= 26:
            raise OSError(5, "Input/output error")
        return super().read(first, last)


def readers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("read-ahead")]


def test_the_reading_thread_ends_with_the_pass() -> None:
    """After the last row, after an error of the disk, and where a pass is left in the middle."""
    assert sum(len(piece) for _, piece in pieces(in_pieces(ArraySource(table())))) == N
    assert readers() == []
    with pytest.raises(OSError, match="Input/output"):
        Rows(in_pieces(Failing(table()))).column_sums()
    assert readers() == []
    left = pieces(in_pieces(ArraySource(table())))
    assert next(left)[0] == 0
    assert len(readers()) == 1
    left.close()
    assert readers() == []


def test_the_next_rows_are_read_meanwhile() -> None:
    """While the first piece is used, the second has been read, and no third."""

    class Waiting(ArraySource):
        seen: tuple[int, ...] = ()
        second = threading.Event()

        def read(self, first: int, last: int) -> Any:
            self.seen += (first,)
            if first == 13:
                self.second.set()
            return super().read(first, last)

    source = Waiting(table())
    coming = pieces(in_pieces(source))
    next(coming)
    assert source.second.wait(10)
    assert source.seen == (0, 13)
    coming.close()


def mapped_bytes(path: Path) -> int:
    """Bytes of a file's memory map that this process holds, as Linux tells."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    starts = [i for i, line in enumerate(lines) if line.endswith(str(path))]
    return sum(1024 * int(next(line for line in lines[i:] if line.startswith("Rss:")).split()[1]) for i in starts)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not tell what is mapped")
@pytest.mark.parametrize("mode", ["r", "r+"])
def test_a_pass_lets_go_of_the_pages_of_a_memory_map(mode: Any, tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(20_000, 100))
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode=mode)
    some = mapped[7:19_993]  # which begins and ends within a page
    assert some.sum() != 0
    assert mapped_bytes(tmp_path / "X.npy") > 0.9 * X.nbytes
    source = ArraySource(some)
    source.piece_bytes = 1 << 21  # the system maps some pages around those that are read
    assert np.array_equal(np.vstack([rows for _, rows in pieces(source)]), X[7:19_993])
    assert mapped_bytes(tmp_path / "X.npy") < 0.2 * X.nbytes
    assert np.array_equal(mapped, X)


def test_changes_of_a_memory_map_that_are_in_memory_alone_stay(tmp_path: Path) -> None:
    X = np.arange(4000.0).reshape(400, 10)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="c")
    mapped[:] = -X
    for _ in range(2):
        assert np.array_equal(ArraySource(mapped)[:], -X)
    changed = np.load(tmp_path / "X.npy", mmap_mode="r+")
    changed[:] = 2 * X  # not flushed
    for _ in range(2):
        assert np.array_equal(ArraySource(changed)[:], 2 * X)
