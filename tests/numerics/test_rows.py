"""Centred and scaled rows as an operator: dense, sparse, single precision, other array libraries, against plain numpy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp

import eigenpact as ep
from eigenpact.numerics import leading
from eigenpact.numerics import rows as rows_module
from eigenpact.numerics.elsewhere import Elsewhere
from eigenpact.numerics.linalg import random_orthonormal
from eigenpact.numerics.metrics import largest_sine
from eigenpact.numerics.parts import threads_for_rows
from eigenpact.numerics.rows import Rows
from eigenpact.numerics.site_rows import SiteRows, own_mean
from eigenpact.numerics.sources import ArraySource
from eigenpact.numerics.sparse_rows import SparseRows
from eigenpact.numerics.weighted_sparse import WeightedSparseRows

KINDS: dict[str, Callable[[Any], Any]] = {
    "dense": np.array,
    "transposed": lambda X: np.asfortranarray(X),
    "csr": sp.csr_array,
    "csc": sp.csc_matrix,
    "array API": array_api_strict.asarray,
}


def problem(n: int = 23, d: int = 7) -> tuple[Any, Any, Any]:
    """Rows with zeros in them, a mean and a scale."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6) + (np.arange(d) == 2) * 5.0
    return X, rng.normal(size=d), rng.uniform(0.5, 3, size=d)


@pytest.fixture(params=["one block", "many blocks"], autouse=True)
def _blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with blocks of a few rows, so that their seams are tested."""
    if request.param == "many blocks":
        monkeypatch.setattr(rows_module, "BLOCK_BYTES", 8 * 7 * 4)
        monkeypatch.setattr(rows_module, "DEVICE_BLOCK_BYTES", 8 * 7 * 4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_every_product_equals_numpy(kind: str, centred: bool, scaled: bool) -> None:
    """Sums, squares, scatter, products and scores, against the centred matrix written out."""
    X, mean, scale = problem()
    mean, scale = (mean if centred else None), (scale if scaled else None)
    Y = (X - (0 if mean is None else mean)) / (1 if scale is None else scale)
    rows = Rows(KINDS[kind](X), mean, scale)
    Z, T = np.random.default_rng(1).normal(size=(7, 3)), np.random.default_rng(2).normal(size=(23, 3))
    close = {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(rows.column_sums(), X.sum(axis=0), **close)
    np.testing.assert_allclose(rows.column_squares(), (Y**2).sum(axis=0), **close)
    np.testing.assert_allclose(rows.row_squares(), (Y**2).sum(axis=1), **close)
    np.testing.assert_allclose(rows.scatter(), Y.T @ Y, **close)
    np.testing.assert_allclose(rows.scatter_action(Z), Y.T @ Y @ Z, **close)
    np.testing.assert_allclose(rows.project(Z), Y @ Z, **close)
    np.testing.assert_allclose(rows.transposed_action(T), Y.T @ T, **close)
    for result in (rows.scatter(), rows.scatter_action(Z), rows.project(Z)):
        assert type(result) is np.ndarray
        assert result.dtype == np.float64


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("side", [0, 1500])
@pytest.mark.parametrize(("n", "d"), [(40, 7), (5, 30)])
def test_leading_eigenpairs(kind: str, side: int, n: int, d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By dense factorization of the smaller side and by iteration, for tall and wide rows."""
    monkeypatch.setattr(leading, "DENSE_SIDE", side)
    X, mean, scale = problem(n, d)
    Y = (X - mean) / scale
    values, vectors = Rows(KINDS[kind](X), mean, scale).top(3)
    _, lengths, Vt = np.linalg.svd(Y, full_matrices=False)
    np.testing.assert_allclose(values, lengths[:3] ** 2, rtol=1e-9)
    assert largest_sine(vectors, Vt[:3].T) <= 1e-7
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(3), atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("far", [0.0, 1e7])
def test_products_of_rows_and_some_rows(kind: str, far: float) -> None:
    """Y Y^T near and far from the origin, and a choice of rows by number."""
    X, mean, scale = problem(9, 30)
    rows = Rows(KINDS[kind](X + far), mean + far, scale)
    Y = (X + far - (mean + far)) / scale
    np.testing.assert_allclose(rows.row_products(), Y @ Y.T, atol=1e-5 if far else 1e-10)
    np.testing.assert_allclose(rows.take(np.array([7, 2])).row_squares(), (Y[[7, 2]] ** 2).sum(axis=1), rtol=1e-5)


def test_no_more_eigenpairs_than_rows() -> None:
    """A site with two rows has two directions, padded with nothing."""
    X, _, _ = problem(2, 9)
    values, vectors = Rows(X).top(5)
    assert values.shape == (2,)
    assert vectors.shape == (9, 2)


def test_single_precision_accumulates_in_double() -> None:
    """A hundred thousand equal numbers: a single-precision sum would be off in the fourth digit."""
    X = np.full((100_000, 1), 0.1, dtype=np.float32)
    exact = 100_000 * float(np.float32(0.1))
    assert Rows(X).column_sums()[0] == pytest.approx(exact, rel=1e-12)
    assert Rows(X).column_squares()[0] == pytest.approx(exact * float(np.float32(0.1)), rel=1e-12)


def test_squares_far_from_the_origin() -> None:
    """Deviations of 1 about a mean of 1e9, dense and sparse, lose nothing."""
    X = np.array([[1e9 - 1.0], [1e9 + 1.0]])
    for rows in (Rows(X, np.array([1e9])), Rows(sp.csr_array(X), np.array([1e9]))):
        assert rows.column_squares()[0] == 2.0


def far_rows(far: float, spread: float = 1.0, missing: int = 0) -> Any:
    """Rows (200 x 7), mostly zeros; three features far from the origin, of which the second lacks some entries."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(200, 7)) * (rng.random((200, 7)) < 0.3)
    X[:, [1, 4, 6]] = far + spread * rng.normal(size=(200, 3))
    X[:missing, 4] = 0.0
    return X


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("far", "missing"), [(1e4, 0), (1e8, 0), (1e8, 1), (1e8, 20), (1e10, 0)])
@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_sparse_features_far_from_the_origin(kind: str, far: float, missing: int, scaled: bool) -> None:
    """Every product of sparse rows, feature by feature as exact as that of dense rows: one far feature costs no other a digit."""
    X = far_rows(far, missing=missing)
    X[:, 0] *= 100 * far  # a feature of large spread, which must not hide that others are far
    mean = X.mean(axis=0)
    scale = Rows(X, mean).column_squares() ** 0.5 if scaled else None
    dense, sparse = Rows(X, mean, scale), Rows(KINDS[kind](X), mean, scale)
    size = dense.column_squares() ** 0.5
    rng = np.random.default_rng(1)
    T, Z = rng.normal(size=(200, 2)), rng.normal(size=(7, 2)) / size[:, None]

    def close(one: Any, other: Any, unit: Any) -> None:
        assert np.max(np.abs(one - other) / unit) <= 1e-12

    close(sparse.column_squares(), dense.column_squares(), size**2)
    close(sparse.scatter(), dense.scatter(), np.outer(size, size))
    close(sparse.project(Z), dense.project(Z), 1.0)
    close(sparse.transposed_action(T), dense.transposed_action(T), size[:, None])
    close(sparse.scatter_action(Z), dense.scatter_action(Z), size[:, None])
    close(sparse.row_squares(), dense.row_squares(), dense.row_squares().mean())
    close(sparse.row_products(), dense.row_products(), dense.row_squares().mean())
    V = np.linalg.qr(Z)[0]
    close(sparse.residual_squares(V), dense.residual_squares(V), dense.row_squares().mean())


@pytest.mark.parametrize(("n", "d"), [(40, 7), (5, 30)])
def test_leading_eigenpairs_of_sparse_rows_far_from_the_origin(n: int, d: int) -> None:
    """Local eigenvectors lose nothing either."""
    X, mean, scale = problem(n, d)
    X, mean = X + 1e9 * (np.arange(d) % 3 == 1), mean + 1e9 * (np.arange(d) % 3 == 1)
    values, vectors = Rows(sp.csr_array(X), mean, scale).top(3)
    other, wanted = Rows(X, mean, scale).top(3)
    np.testing.assert_allclose(values, other, rtol=1e-12)
    assert largest_sine(vectors, wanted) <= 1e-12


def test_only_features_stored_in_almost_every_row_become_dense() -> None:
    """A sparse matrix with one timestamp stays sparse, also if its first rows are full."""
    X = far_rows(1e8)
    X[:, [4, 6]] = 0.0
    X[:20, 5] = 1e8
    far, columns = SparseRows(sp.csr_array(X), X.mean(axis=0), None, None).far()
    assert far.tolist() == [1]
    assert columns.shape == (200, 1)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_entries_stored_more_than_once(kind: str) -> None:
    """They are added up, in a copy; what the user passed stays as it is."""
    X, mean, scale = problem()
    row, column = np.nonzero(X)
    halves = X[row, column] / 2
    twice = sp.coo_array((np.tile(halves, 2), (np.tile(row, 2), np.tile(column, 2))), shape=X.shape)
    if kind != "coo":  # conversion would add them up
        order = np.lexsort((twice.col, twice.row) if kind == "csr" else (twice.row, twice.col))
        major, minor = (twice.row, twice.col) if kind == "csr" else (twice.col, twice.row)
        starts = np.concatenate([[0], np.cumsum(np.bincount(major, minlength=X.shape[kind == "csc"]))])
        make = sp.csr_array if kind == "csr" else sp.csc_array
        twice = make((twice.data[order], minor[order], starts), shape=X.shape)
    data = twice.data.copy()
    rows, Y = Rows(twice, mean, scale), (X - mean) / scale
    np.testing.assert_allclose(rows.column_squares(), (Y**2).sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(rows.row_squares(), (Y**2).sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(rows.scatter(), Y.T @ Y, atol=1e-12)
    np.testing.assert_array_equal(twice.data, data)
    assert twice.nnz == 2 * len(row)


def test_rows_stored_once_are_not_copied() -> None:
    """Nor is anything else done to them."""
    X = sp.csr_array(problem()[0])
    assert Rows(X).X is X


@pytest.mark.parametrize("kind", ["dense", "csr", "array API"])
def test_long_sums_keep_their_digits(kind: str) -> None:
    """Thousands of numbers near 1e8: added one by one they would lose a digit or two."""
    X = 1e8 + np.random.default_rng(0).normal(size=(20_000, 1))
    exact = float(X.astype(np.longdouble).sum())
    assert abs(Rows(KINDS[kind](X)).column_sums()[0] / exact - 1) <= 1e-15


@pytest.mark.parametrize("weighted", [False, True])
def test_sparse_rows_with_few_values_keep_the_digits_of_their_scatter_matrix(weighted: bool) -> None:
    """Of .1 and .3 a sum without runs is off by 3e-12 of the trace here: each addition is rounded the same way."""
    rng = np.random.default_rng(0)
    X = rng.choice([0.0, 0.1, 0.3], p=[0.1, 0.45, 0.45], size=(200_000, 4))
    mean, w = X.mean(axis=0), np.full(len(X), 0.7) if weighted else np.ones(len(X))
    given = (sp.csr_array(X), w) if weighted else (sp.csr_array(X),)
    rows = (WeightedSparseRows if weighted else SparseRows)(*given, mean, None, None)
    Y = X.astype(np.longdouble) - mean
    truth = Y.T @ (w[:, None] * Y)
    assert np.abs(rows.scatter() - truth).max() <= 1e-13 * np.trace(truth)


@pytest.mark.parametrize("kind", KINDS)
def test_moments_and_largest_values(kind: str) -> None:
    """Sums, squares and largest sizes of the columns of Y."""
    X, mean, scale = problem()
    Y = (X - mean) / scale
    rows = Rows(KINDS[kind](X), mean, scale)
    sums, squares = rows.column_moments()
    np.testing.assert_allclose(sums, Y.sum(axis=0), atol=1e-12)
    np.testing.assert_allclose(squares, (Y**2).sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(rows.column_largest(), np.abs(Y).max(axis=0), rtol=1e-14)


def test_sites_of_another_array_library_give_the_same_answer() -> None:
    """Rows that lie in another library are computed there; components come back as numpy."""
    rng = np.random.default_rng(0)
    sites = {"A": rng.normal(size=(40, 6)), "B": rng.normal(size=(30, 6))}
    elsewhere = {name: array_api_strict.asarray(X) for name, X in sites.items()}
    for solver in ("gram", "krylov", ep.solvers.Krylov(start="one-shot"), ep.solvers.Krylov(proxy="B")):
        one = ep.FederatedPCA(2, solver=solver, random_state=0).fit(sites)
        other = ep.FederatedPCA(2, solver=solver, random_state=0).fit(elsewhere)
        np.testing.assert_allclose(one.components_, other.components_, atol=1e-9)
        assert type(other.components_) is np.ndarray


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (array_api_strict.asarray([[1.0, float("nan")], [2.0, float("inf")]]), "site 'A': 2 entries are NaN or infinite"),
        (array_api_strict.asarray([1.0, 2.0]), r"got 1D array instead: X has shape \(2,\)"),
        (array_api_strict.asarray([[True, False]]), "site 'A': dtype .*bool.* does not hold real numbers"),
    ],
)
def test_bad_rows_of_another_array_library(X: Any, message: str) -> None:
    """The same errors, without copying the rows here."""
    with pytest.raises(ep.errors.EigenpactError, match=message):
        ep.FederatedPCA(1).fit({"A": X})


@pytest.mark.parametrize("solver", ["gram", "krylov", "lanczos"])
@pytest.mark.parametrize("scale", [None, "pooled"])
def test_sparse_rows_far_from_the_origin(solver: str, scale: Any) -> None:
    """Sparse rows with a mean of 1e8 times their spread beside a feature of large spread: the dense answer."""
    X = np.random.default_rng(0).normal(size=(300, 6)) @ np.random.default_rng(1).normal(size=(6, 6))
    X[:, 0] *= 1e10 if scale else 1.0
    X[:, 1:4] += 1e8
    sites = {"A": X[:100], "B": X[100:]}
    sparse = ep.FederatedPCA(2, solver=solver, scale=scale, random_state=0).fit({k: sp.csr_array(Y) for k, Y in sites.items()})
    dense = ep.FederatedPCA(2, solver="gram", scale=scale).fit(sites)
    np.testing.assert_allclose(sparse.explained_variance_, dense.explained_variance_, rtol=1e-12)
    assert largest_sine(sparse.components_.T, dense.components_.T) <= 1e-12
    assert sparse.between_site_share_ == pytest.approx(dense.between_site_share_, rel=1e-12)
    few = sp.csr_array(X[:9])
    np.testing.assert_allclose(dense.transform(few), dense.transform(X[:9]), atol=1e-12 * dense.singular_values_[0])


@pytest.mark.parametrize("offset", [0.0, 3.0, 1e6])
@pytest.mark.parametrize("scaled", [False, True])
def test_a_sites_products_without_centred_rows(offset: float, scaled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features near zero for their spread, constant ones among them, need no centred copy; those far from it get one."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(300, 9)) * np.geomspace(1, 100, 9) + offset * np.arange(9) / 9
    X[:, 3], X[:, 4] = 0.3, 0.0
    mean, scale = X.mean(axis=0) + 0.5, np.linspace(1, 2, 9) if scaled else None
    own, within = own_mean(X)
    Z = np.linalg.qr(rng.normal(size=(9, 4)))[0]
    monkeypatch.setattr("eigenpact.numerics.tiles.UNPACKED", 9 * 4 * 40)  # blocks of 40 rows
    monkeypatch.setattr("eigenpact.numerics.rows.PART_ENTRIES", 9 * 90)
    centred = SiteRows(X, mean, scale, own)
    rows = SiteRows(X, mean, scale, own, within)
    assert (rows._varying(10.0) is None) == (offset > 1e3)
    Y = (X.astype(np.longdouble) - mean) / (1.0 if scale is None else scale)
    truth = np.asarray(Y.T @ (Y @ Z), dtype=float)
    sizes = np.sqrt(np.asarray((Y**2).sum(axis=0), dtype=float))[:, None] * np.sqrt(float((Y**2).sum()))
    for found in (rows.scatter_action(Z), centred.scatter_action(Z)):
        assert np.all(np.abs(found - truth) <= 4e-14 * sizes)
    lengths = np.sqrt(np.asarray((Y**2).sum(axis=0), dtype=float))
    for found in (rows.scatter(), centred.scatter()):
        assert np.all(np.abs(found - np.asarray(Y.T @ Y, dtype=float)) <= 4e-14 * np.outer(lengths, lengths))
        assert scaled or np.array_equal(found, found.T)
    with threads_for_rows(3):
        again = SiteRows(X, mean, scale, own, within)
        np.testing.assert_array_equal(again.scatter_action(Z), rows.scatter_action(Z))
        np.testing.assert_array_equal(again.scatter(), rows.scatter())


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int16])
@pytest.mark.parametrize("d", [9, 70])
def test_rows_of_other_dtypes_have_the_bits_of_their_copy(dtype: Any, d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are converted a block at a time; also where a tile has few of the features."""
    X = (np.random.default_rng(8).normal(size=(300, d)) * 20 + 60).astype(dtype)
    monkeypatch.setattr("eigenpact.numerics.tiles.UNPACKED", 4 * 70 * 20)
    copy, Z = X.astype(np.float64), random_orthonormal(d, 4, 0)

    def found(rows: Any) -> list[Any]:
        own, within = own_mean(rows)
        site = SiteRows(rows, own[0] + 1, None, own, within)
        return [own, within, site.scatter(), site.scatter_action(Z), Rows(rows).column_sums()]

    for one, other, streamed in zip(found(X), found(copy), found(ArraySource(X)), strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(streamed, other)
    Y = copy - (copy.mean(axis=0) + 1)
    np.testing.assert_allclose(found(X)[3], Y.T @ (Y @ Z), rtol=1e-12, atol=1e-9)


def test_a_constant_column_meets_no_agreed_number() -> None:
    """However large a scale makes its row of the block: else scores of single rows would be rounded away."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(50, 4))
    X[:, 1] = 0.5
    own, within = own_mean(X)
    Z, scale = np.linalg.qr(rng.normal(size=(4, 2)))[0], np.array([1.0, 1e-200, 1.0, 1.0])
    found = SiteRows(X, own[0], scale, own, within).scatter_action(Z)
    W = X - X.mean(axis=0)
    W[:, 1] = 0.0
    np.testing.assert_allclose(found, W.T @ (W @ Z), rtol=0, atol=1e-12)


@pytest.mark.parametrize("streamed", [False, True])
def test_sums_do_not_depend_on_threads(streamed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor on whether rows are in memory: parts are the same, and are added up in their order."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(1000, 6)) + 2
    monkeypatch.setattr("eigenpact.numerics.rows.PART_ENTRIES", 6 * 70)
    monkeypatch.setattr("eigenpact.numerics.rows.BLOCK_BYTES", 8 * 6 * 16)
    mean, Z, T = X.mean(axis=0), rng.normal(size=(6, 2)), rng.normal(size=(1000, 2))

    def found(rows: Rows) -> list[Any]:
        return [rows.scatter(), rows.scatter_action(Z), rows.column_sums(), *rows.column_moments(), rows.transposed_action(T)]

    alone = found(Rows(X, mean))
    with threads_for_rows(4):
        together = found(Rows(Elsewhere(X) if streamed else X, mean))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)
    Y = X - mean
    np.testing.assert_allclose(alone[0], Y.T @ Y, rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(alone[1], Y.T @ (Y @ Z), rtol=1e-12, atol=1e-10)


def test_sums_of_a_constant_column_keep_their_digits_in_many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a constant column of a large table would seem to vary, and be divided by what rounding made of it."""
    monkeypatch.setattr("eigenpact.numerics.rows.BLOCK_BYTES", 8 * 2 * 4)
    monkeypatch.setattr("eigenpact.numerics.rows.PART_ENTRIES", 8)
    values = np.array([0.019120613635715503, 0.3])
    X = np.broadcast_to(values, (200_000, 2))
    exact = np.array([math.fsum(X[:, j]) for j in range(2)])
    np.testing.assert_allclose(Rows(X).column_sums(), exact, rtol=4e-16)


def test_sparse_products_with_no_columns_are_empty() -> None:
    """As dense ones are; BLAS would refuse them."""
    rows = SparseRows(sp.csr_array(np.eye(4, 3)), np.full(3, 0.25), None, None)
    assert rows.scatter_action(np.zeros((3, 0))).shape == (3, 0)
    Y, Z = np.eye(4, 3) - 0.25, np.eye(3, 2)
    np.testing.assert_allclose(rows.scatter_action(Z), Y.T @ (Y @ Z), atol=1e-15)
