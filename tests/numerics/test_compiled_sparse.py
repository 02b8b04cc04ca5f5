"""Compiled loops over sparse rows: equal to dense products for entries of any kind; a matrix with wrong parts is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from eigenpact.errors import InputError
from eigenpact.numerics import compiled_sparse, machine_code, sparse_rows
from eigenpact.numerics.compiled_sparse import sparse_products, worth_compiling
from eigenpact.numerics.machine_code import Processor, processor
from eigenpact.numerics.parts import threads_for_rows
from eigenpact.numerics.rows import Rows
from eigenpact.numerics.sources import RowSource
from eigenpact.numerics.weighted import Weighted

pytestmark = pytest.mark.skipif(
    processor() is None, reason="no loops are compiled on this machine: llvmlite, or AVX2, is missing"
)

OF_AVX2 = Processor("haswell", "+avx2,+fma", 32, 16)
KINDS = [sp.csr_matrix, sp.csr_array]


@pytest.fixture
def avx2(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor without AVX-512."""
    for module in (machine_code, compiled_sparse):
        monkeypatch.setattr(module, "processor", lambda: OF_AVX2)


@pytest.fixture
def worth(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Everything is worth a compiled loop; tells how many columns the loops were given."""
    monkeypatch.setattr(compiled_sparse, "WORTH", 1)
    given: list[int] = []

    def told(X: Any, A: Any, shift: Any) -> Any:
        given.append(A.shape[1])
        return sparse_products(X, A, shift)

    monkeypatch.setattr(sparse_rows, "sparse_products", told)
    return given


def table(n: int = 60, d: int = 40, share: float = 0.2) -> Any:
    """Whole numbers, so that no sum of products is rounded; the first, the last and some other rows and columns are empty."""
    rng = np.random.default_rng(0)
    X = rng.integers(1, 4, size=(n, d)) * (rng.random((n, d)) < share)
    X[[0, n // 2, n - 1]] = 0
    X[:, [0, d - 1]] = 0
    return X


def of_kinds(S: Any, data: Any, indices: Any, indptr: Any | None = None) -> Any:
    """The same matrix with parts of these kinds, which scipy's own functions would change."""
    S.data, S.indices = S.data.astype(data), S.indices.astype(indices)
    S.indptr = S.indptr.astype(indices if indptr is None else indptr)
    return S


def check(S: Any, X: Any, k: int) -> None:
    rng = np.random.default_rng(1)
    A, shift = rng.integers(-3, 4, size=(X.shape[1], k)).astype(float), rng.integers(-3, 4, size=k).astype(float)
    T = X @ A - shift
    before = [part.copy() for part in (S.data, S.indices, S.indptr)]
    for found, expected in zip(sparse_products(S, A, shift), (X.T @ T, T.sum(axis=0)), strict=True):
        np.testing.assert_array_equal(found, expected)
    for part, same in zip((S.data, S.indices, S.indptr), before, strict=True):
        np.testing.assert_array_equal(part, same)


@pytest.mark.parametrize("k", [1, 8, 9, 24, 64, 65, 130])
@pytest.mark.parametrize("kind", KINDS)
def test_products_of_whole_numbers_are_exact(kind: Any, k: int) -> None:
    X = table()
    for data in (np.float64, np.float32):
        for indices in (np.int32, np.int64):
            check(of_kinds(kind(X), data, indices), X, k)


@pytest.mark.parametrize("k", [1, 7, 64, 70])
def test_products_are_exact_with_the_registers_of_avx2(k: int, avx2: None) -> None:  # noqa: ARG001
    check(of_kinds(sp.csr_array(table()), np.float32, np.int64), table(), k)
    check(sp.csr_matrix(table().astype(float)), table(), k)


@pytest.mark.parametrize("data", [np.int64, np.uint8, np.bool_, np.float16, np.longdouble, ">f8", ">f4"])
@pytest.mark.parametrize("kind", KINDS)
def test_entries_of_other_kinds(kind: Any, data: Any) -> None:
    X = table() > 0 if data == np.bool_ else table()
    check(of_kinds(kind(X), data, np.int32), X.astype(float), 3)


@pytest.mark.parametrize(("indices", "indptr"), [("i4", "i8"), ("i8", "i4"), (">i4", ">i4"), ("u4", "u4"), ("i2", "i2")])
def test_numbers_of_columns_of_other_kinds(indices: str, indptr: str) -> None:
    check(of_kinds(sp.csr_array(table()), float, indices, indptr), table(), 3)


def test_parts_that_lie_anywhere() -> None:
    """With a stride, at odd addresses, not to be written to, and with room behind the last entry."""
    X = table()
    S = sp.csr_array(X.astype(float))
    S.data, S.indices, S.indptr = (np.repeat(part, 2)[::2] for part in (S.data, S.indices, S.indptr))
    check(S, X, 5)
    S.data, S.indices, S.indptr = (
        np.frombuffer(b"\0" + part.tobytes(), part.dtype, offset=1) for part in (S.data, S.indices, S.indptr)
    )
    check(S, X, 5)
    S = sp.csr_array(X.astype(float))
    S.data, S.indices = np.append(S.data, [np.nan] * 5), np.append(S.indices, [2**31 - 1, -1, 7, 7, 7]).astype(np.int32)
    check(S, X, 5)


def test_duplicates_and_columns_in_any_order() -> None:
    data, columns, starts = [1.0, 2.0, 3.0, -1.0, 5.0], [4, 1, 4, 0, 0], [0, 3, 3, 5]
    S = sp.csr_array((data, columns, starts), shape=(3, 6))
    check(S, S.toarray(), 4)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (3, 4), (1, 1)])
def test_matrices_without_entries(shape: tuple[int, int]) -> None:
    check(sp.csr_array(shape), np.zeros(shape), 3)


def test_rows_longer_than_what_is_asked_for_beforehand_in_many_parts() -> None:
    """Few columns, so that there is a part for every few rows."""
    X = table(3000, 7, 0.9)
    S = sp.csr_array(X.astype(float))
    assert len(S.data) // (compiled_sparse.LONG_PART * 7) > 20
    check(S, X, 5)
    rng = np.random.default_rng(2)
    A, shift = rng.normal(size=(7, 5)), rng.normal(size=5)
    expected = sparse_products(S, A, shift)
    for threads in (2, 3):
        with threads_for_rows(threads):
            for one, other in zip(sparse_products(S, A, shift), expected, strict=True):
                np.testing.assert_array_equal(one, other)


def test_what_is_not_finite_stays_where_scipy_has_it() -> None:
    for value in (np.nan, np.inf, 1e300, 5e-324):
        X, A = table().astype(float), np.random.default_rng(3).normal(size=(40, 9))
        row = int(np.flatnonzero(X[:, 5])[0])
        X[row, 5], A[5, 2] = value, 0.0
        S = sp.csr_array(X)
        with np.errstate(all="ignore"):
            expected = S.T @ (S @ A)
            G, _ = sparse_products(S, A, np.zeros(9))
        assert np.array_equal(np.isnan(G), np.isnan(expected))
        np.testing.assert_allclose(G, expected, rtol=1e-10, atol=1e-10)


def test_errors_are_those_of_a_sum_of_which_the_shift_is_taken_at_last() -> None:
    """Many small entries that are added to one large number would lose a digit in each."""
    rng = np.random.default_rng(4)
    S, A, shift = sp.csr_array(rng.random((1, 4000))), rng.random((4000, 16)), np.full(16, 1e6)
    T = (S.toarray().astype(np.longdouble) @ A) - shift
    _, sums = sparse_products(S, A, shift)
    assert np.max(np.abs(sums - T[0])) <= 2 * np.spacing(1e6)


def broken(part: str, place: int, value: int) -> Any:
    S = sp.csr_array(table().astype(float))
    getattr(S, part)[place] = value
    return S


BROKEN: dict[str, Callable[[], Any]] = {
    "a column beyond": lambda: broken("indices", 3, 40),
    "a column far beyond": lambda: broken("indices", -1, 2**31 - 1),
    "a column below zero": lambda: broken("indices", 0, -1),
    "int64, a column below zero": lambda: of_kinds(broken("indices", 7, -(2**30)), float, np.int64),
    "rows that end behind the entries": lambda: broken("indptr", -1, 10**6),
    "a row that ends behind the entries": lambda: broken("indptr", 5, 10**6),
    "a row that begins below zero": lambda: broken("indptr", 0, -9),
    "a row that ends before it begins": lambda: broken("indptr", 9, 0),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_matrix_whose_parts_do_not_fit_together_is_refused(how: str) -> None:
    """Else memory of others would be read, and written to."""
    S = BROKEN[how]()
    with pytest.raises(InputError, match="sparse"):
        sparse_products(S, np.ones((40, 3)), np.zeros(3))


def test_a_matrix_that_lacks_the_start_of_a_row_is_refused() -> None:
    S = sp.csr_array(table().astype(float))
    S.indptr = S.indptr[:-1]
    with pytest.raises(InputError, match="sparse"):
        sparse_products(S, np.ones((40, 3)), np.zeros(3))
    S = sp.csr_array(table().astype(float))
    S.indices = S.indices[:-1]
    with pytest.raises(InputError, match="sparse"):
        sparse_products(S, np.ones((40, 3)), np.zeros(3))


# -- as rows use them -------------------------------------------------------------------------------


class Sparse(RowSource):
    """Rows of a CSR matrix, given some at a time."""

    def __init__(self, X: Any) -> None:
        super().__init__(X.shape, X.dtype, sparse=True)
        self.X = X

    def read(self, first: int, last: int) -> Any:
        return self.X[first:last].copy()


@pytest.mark.parametrize("agreed", [(), ("mean",), ("scale",), ("mean", "scale", "left")])
@pytest.mark.parametrize("kind", KINDS)
def test_centred_and_scaled_rows(agreed: tuple[str, ...], kind: Any, worth: list[int]) -> None:
    rng, X = np.random.default_rng(5), table() * 1.25
    of = {"mean": X.mean(axis=0), "scale": rng.random(40) + 0.5, "left": np.full(40, 1e-17)}
    of = {name: of[name] for name in agreed}
    Y, Z = (X - of.get("mean", 0)) / of.get("scale", 1), rng.normal(size=(40, 6))
    expected = Y.T @ (Y @ Z)
    rows = Rows(kind(X), **of)
    np.testing.assert_allclose(rows.scatter_action(Z), expected, atol=1e-12 * np.abs(expected).max())
    assert worth == [6]
    assert rows.scatter_action(Z).flags.c_contiguous
    source = Sparse(kind(X))
    source.piece_bytes = 17 * source.row_bytes()
    np.testing.assert_allclose(Rows(source, **of).scatter_action(Z), expected, atol=1e-12 * np.abs(expected).max())
    assert len(worth) == 2 + 4  # of four pieces, of which none is empty


def test_features_far_from_zero_and_weights_are_left_to_scipy(worth: list[int]) -> None:
    rng, X = np.random.default_rng(6), table().astype(float)
    Z, w = rng.normal(size=(40, 6)), rng.random(60)
    Y = X - X.mean(axis=0)
    weighted = Rows(Weighted(sp.csr_array(X), w), X.mean(axis=0)).scatter_action(Z)
    np.testing.assert_allclose(weighted, Y.T @ (w[:, None] * (Y @ Z)), atol=1e-10)
    X[:, 5] = 1e8 + rng.normal(size=60)
    Y = X - X.mean(axis=0)
    np.testing.assert_allclose(Rows(sp.csr_array(X), X.mean(axis=0)).scatter_action(Z), Y.T @ (Y @ Z), rtol=1e-6, atol=1e-6)
    assert worth == []


def test_rows_add_up_duplicates_first(worth: list[int]) -> None:
    S = sp.csr_array(([1.0, 2.0, 3.0, -1.0, 5.0], [4, 1, 4, 0, 0], [0, 3, 3, 5]), shape=(3, 6))
    X, Z = S.toarray(), np.random.default_rng(7).normal(size=(6, 2))
    np.testing.assert_allclose(Rows(S).scatter_action(Z), X.T @ (X @ Z), atol=1e-13)
    assert len(S.data) == 5
    assert worth == [2]


def test_small_work_is_not_compiled_and_large_work_is() -> None:
    assert not worth_compiling(1000, 10)
    assert worth_compiling(1 << 23, 1)


def test_several_threads_begin_at_once() -> None:
    X, found = table(), []
    S, A = sp.csr_array(X.astype(float)), np.random.default_rng(8).integers(-3, 4, size=(40, 33)).astype(float)
    compiled_sparse._kernel.cache_clear()
    ready = threading.Barrier(5)

    def begin() -> None:
        ready.wait(30)
        found.append(sparse_products(S, A, np.zeros(33))[0])

    threads = [threading.Thread(target=begin) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 5
    for G in found:
        np.testing.assert_array_equal(G, X.T @ (X @ A))
