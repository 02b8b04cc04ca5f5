"""Centred and scaled rows as an operator: dense, sparse, single precision, other array libraries, against plain numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import array_api_strict
import numpy as np
import pytest
import scipy.sparse as sp

import eigenpact as ep
from eigenpact import rows as rows_module
from eigenpact.metrics import largest_sine
from eigenpact.rows import Rows

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
    monkeypatch.setattr(rows_module, "DENSE_SIDE", side)
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
    np.testing.assert_allclose(rows.some(np.array([7, 2])).row_squares(), (Y[[7, 2]] ** 2).sum(axis=1), rtol=1e-5)


def test_no_more_eigenpairs_than_rows() -> None:
    """A site with two rows has two directions, padded with nothing."""
    X, _, _ = problem(2, 9)
    values, vectors = Rows(X).top(5)
    assert values.shape == (2,)
    assert vectors.shape == (9, 2)


def test_single_precision_accumulates_in_double() -> None:
    """A million equal numbers: a single-precision sum would be off by a tenth of a percent."""
    X = np.full((1_000_000, 1), 0.1, dtype=np.float32)
    exact = 1_000_000 * float(np.float32(0.1))
    assert Rows(X).column_sums()[0] == pytest.approx(exact, rel=1e-12)
    assert Rows(X).column_squares()[0] == pytest.approx(exact * float(np.float32(0.1)), rel=1e-12)


def test_squares_far_from_the_origin() -> None:
    """Deviations of 1 about a mean of 1e9, dense and sparse, lose nothing."""
    X = np.array([[1e9 - 1.0], [1e9 + 1.0]])
    for rows in (Rows(X, np.array([1e9])), Rows(sp.csr_array(X), np.array([1e9]))):
        assert rows.column_squares()[0] == 2.0


def test_sites_of_another_array_library_give_the_same_answer() -> None:
    """Rows that lie in another library are computed there; components come back as numpy."""
    rng = np.random.default_rng(0)
    sites = {"A": rng.normal(size=(40, 6)), "B": rng.normal(size=(30, 6))}
    elsewhere = {name: array_api_strict.asarray(X) for name, X in sites.items()}
    for solver in ("gram", "krylov", ep.Krylov(start="one-shot"), ep.Krylov(proxy="B")):
        one = ep.FederatedPCA(2, solver=solver, random_state=0).fit(sites)
        other = ep.FederatedPCA(2, solver=solver, random_state=0).fit(elsewhere)
        np.testing.assert_allclose(one.components_, other.components_, atol=1e-9)
        assert type(other.components_) is np.ndarray


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (array_api_strict.asarray([[1.0, float("nan")], [2.0, float("inf")]]), "site 'A': 2 entries are NaN or infinite"),
        (array_api_strict.asarray([1.0, 2.0]), r"site 'A': shape \(2,\)"),
        (array_api_strict.asarray([[True, False]]), "site 'A': dtype .*bool.* does not hold real numbers"),
    ],
)
def test_bad_rows_of_another_array_library(X: Any, message: str) -> None:
    """The same errors, without copying the rows here."""
    with pytest.raises(ep.EigenpactError, match=message):
        ep.FederatedPCA(1).fit({"A": X})


@pytest.mark.parametrize("solver", ["gram", "krylov"])
def test_sparse_rows_far_from_the_origin(solver: str) -> None:
    """Sparse rows with a mean of a million times their spread: the dense answer, although X^T X alone has lost it."""
    X = np.random.default_rng(0).normal(size=(500, 3)) * [3, 2, 1] + 1e6
    sparse = ep.FederatedPCA(3, solver=solver, random_state=0).fit({"A": sp.csr_array(X[:200]), "B": sp.csr_array(X[200:])})
    dense = ep.FederatedPCA(3, solver="gram").fit({"A": X[:200], "B": X[200:]})
    np.testing.assert_allclose(sparse.explained_variance_, dense.explained_variance_, rtol=1e-8)
