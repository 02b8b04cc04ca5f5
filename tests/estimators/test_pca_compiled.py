"""Whole fits with loops that are compiled for rows, and without: the same components to rounding, after as many rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import eigenpact as ep
from eigenpact.numerics import compiled_action, compiled_parts, compiled_sparse, compiled_triangle, sparse_rows, whole_gram
from eigenpact.numerics.compiled_action import NarrowProducts
from eigenpact.numerics.machine_code import VARIABLE, processor
from eigenpact.numerics.metrics import largest_sine

pytestmark = pytest.mark.skipif(
    processor() is None, reason="no loops are compiled on this machine: llvmlite, or AVX2, is missing"
)


def dense() -> Any:
    rng = np.random.default_rng(0)
    return rng.normal(size=(600, 8)) * 2.0 ** -np.arange(8) @ rng.normal(size=(8, 90)) + 0.05 * rng.normal(size=(600, 90))


def sparse() -> Any:
    X = dense()
    X[np.random.default_rng(1).random(X.shape) < 0.8] = 0
    return sp.csr_array(X)


ROWS: dict[str, tuple[Callable[[], Any], float, float]] = {
    "float64": (dense, 1e-9, 1e-9),
    "float32": (lambda: dense().astype(np.float32), 2e-7, 1e-5),
    "bytes": (lambda: np.rint(9 * dense() + 128).clip(0, 255).astype(np.uint8), 1e-9, 1e-9),
    "by columns": (lambda: np.asfortranarray(dense()), 1e-9, 1e-9),
    "far from zero": (lambda: dense() + 1e6, 1e-7, 1e-7),
    "float32, far from zero": (lambda: (dense() + 1e3).astype(np.float32), 2e-7, 1e-5),
    "sparse": (sparse, 1e-9, 1e-9),
    "sparse, float32": (lambda: sparse().astype(np.float32), 2e-7, 2e-7),
}
"""Rows, and what entries of components may differ by: where they are as exact as can be, and where the fit stops early.  Those of
rows in float32 are told in float32."""


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Everything is worth a compiled loop where loops are compiled; tells what was multiplied by one."""
    for module in (compiled_action, compiled_sparse):
        monkeypatch.setattr(module, "WORTH", 1)
    given: list[str] = []
    over, products = NarrowProducts.over, sparse_rows.sparse_products

    def dense_told(self: NarrowProducts, blocks: Any) -> Any:
        given.append(f"dense {self._A.dtype}")
        return over(self, blocks)

    def sparse_told(*arguments: Any) -> Any:
        given.append("sparse")
        return products(*arguments)

    monkeypatch.setattr(NarrowProducts, "over", dense_told)
    monkeypatch.setattr(sparse_rows, "sparse_products", sparse_told)
    yield given
    monkeypatch.undo()
    processor.cache_clear()


@pytest.mark.parametrize("tol", [None, 1e-4])
@pytest.mark.parametrize("rows", ROWS)
def test_fits_are_the_same_without_compiled_loops(
    rows: str, tol: float | None, used: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make, exact, early = ROWS[rows]
    X = make()
    sites = {"A": X[:100], "B": X[100:350], "C": X[350:]}
    fits = []
    for said in ("yes", "no"):
        monkeypatch.setenv(VARIABLE, said)
        processor.cache_clear()
        del used[:]
        fits.append(ep.FederatedPCA(4, solver="krylov", tol=tol, random_state=0).fit(sites))
        assert bool(used) == (said == "yes"), used
        if said == "yes":
            assert ("sparse" in used) == sp.issparse(X)
            assert ("dense float32" in used) == (tol is not None and rows.startswith("float32"))
    one, other = fits
    assert one.n_rounds_ == other.n_rounds_
    np.testing.assert_allclose(one.components_, other.components_, rtol=0, atol=exact if tol is None else early)
    np.testing.assert_allclose(one.explained_variance_, other.explained_variance_, rtol=1e-6 if tol else 1e-9)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Every scatter matrix is worth a compiled loop where loops are compiled; tells the precisions of those."""
    monkeypatch.setattr(compiled_triangle, "WORTH", 1)
    given, triangle = list[str](), compiled_triangle.compiled_triangle

    def told(blocks: Any, d: int, precision: Any, *centres: Any) -> Any:
        given.append(str(precision))
        return triangle(blocks, d, precision, *centres)

    for module in (compiled_parts, whole_gram):
        monkeypatch.setattr(module, "compiled_triangle", told)
    yield given
    monkeypatch.undo()
    processor.cache_clear()


@pytest.mark.parametrize("tol", [None, 1e-4])
@pytest.mark.parametrize("rows", [rows for rows in ROWS if not rows.startswith("sparse")])
def test_scatter_matrices_are_the_same_without_compiled_loops(
    rows: str, tol: float | None, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By gram, of rows in single precision, in double precision and as bytes."""
    make, exact, early = ROWS[rows]
    X = np.concatenate([make()] * 3)
    fits = []
    for said in ("yes", "no"):
        monkeypatch.setenv(VARIABLE, said)
        processor.cache_clear()
        del made[:]
        fits.append(ep.FederatedPCA(4, solver="gram", tol=tol, random_state=0).fit({"A": X[:500], "B": X[500:]}))
        assert bool(made) == (said == "yes"), made
        if said == "yes" and rows != "bytes":
            assert ("float32" in made) == rows.startswith("float32")  # there are many rows for each feature
    one, other = fits
    np.testing.assert_allclose(one.components_, other.components_, rtol=0, atol=exact if tol is None else early)
    np.testing.assert_allclose(one.explained_variance_, other.explained_variance_, rtol=1e-6 if tol else 1e-9)


def test_a_fit_is_that_of_all_rows_together(used: list[str]) -> None:
    """Against numpy's own decomposition."""
    X = dense()
    pca = ep.FederatedPCA(3, solver="krylov", random_state=0).fit({"A": X[:200], "B": X[200:]})
    Vt = np.linalg.svd(X - X.mean(axis=0))[2][:3]
    assert largest_sine(pca.components_.T, Vt.T) <= 1e-8
    assert used
