"""Rows that a stranger broke fits with: each was refused, crashed, or gave other bits, or a bound that did not hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import eigenpact as ep
from eigenpact.numerics.metrics import largest_sine

Matrix = np.ndarray[Any, Any]


@pytest.mark.parametrize("scale", [None, "pooled"])
@pytest.mark.parametrize("n", [2000, 20000])
def test_sorted_sparse_columns_are_not_doubted(n: int, scale: Any) -> None:
    """A long sum of sorted deviations lost so many digits that the site's own mean looked like a lie."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = np.sort(3 * rng.normal(size=(n, 2)) * (rng.random((n, 2)) < 0.3) + [1, 0], axis=0)
        pca = ep.FederatedPCA(1, scale=scale, solver="gram").fit([scipy.sparse.csr_matrix(X)])
        np.testing.assert_allclose(pca.mean_, X.mean(axis=0), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("solver", ["gram", "krylov"])
@pytest.mark.parametrize("constant", [1e120, 1e200, -1e300])
@pytest.mark.filterwarnings("ignore")
def test_a_huge_constant_column_does_not_overflow(constant: float, solver: str) -> None:
    """The other columns have their variance, or the answer says that it is none; a bare error is raised nowhere."""
    X = np.random.default_rng(0).normal(size=(60, 5))
    X[:, 2] = constant
    pca = ep.FederatedPCA(2, solver=solver, random_state=0).fit({"A": X[:20], "B": X[20:]})
    assert pca.angle_estimate_ is None or 0 <= pca.angle_estimate_ <= 1


@pytest.mark.parametrize("solver", ["gram", "krylov"])
def test_the_bound_on_the_angle_knows_the_gap(solver: str) -> None:
    """Far from the origin the mean is rounded, which turns components the more, the closer the next variance is."""
    rng, offset, gap = np.random.default_rng(0), 1e10, 1e-4
    left, right = (np.linalg.qr(rng.normal(size=(n, 6)))[0] for n in (400, 6))
    left -= left.mean(axis=0)
    X = (left * [1, 1e-3, 1e-3 * (1 - gap), 1e-4, 1e-4, 1e-4]) @ right.T * 20 + offset * rng.normal(size=6)
    exact = (X.astype(np.longdouble) - X.astype(np.longdouble).mean(axis=0)).astype(np.float64)
    pca = ep.FederatedPCA(2, solver=solver, random_state=0).fit({"A": X[:150], "B": X[150:]})
    sine = largest_sine(pca.components_.T, np.linalg.svd(exact, full_matrices=False)[2][:2].T)
    assert pca.angle_estimate_ is None or sine <= pca.angle_estimate_


@pytest.mark.parametrize("dtype", ["f8", "f4", "i2"])
@pytest.mark.parametrize("shape", [(600, 60), (120, 400)])
def test_bits_do_not_depend_on_where_and_how_rows_lie(tmp_path: Path, dtype: str, shape: tuple[int, int]) -> None:
    """In C order, in Fortran order, in a file, at an odd byte, as rows lie that Dask sent, or the last row first."""
    X = (20 * np.random.default_rng(0).normal(size=shape) * np.linspace(2, 1, shape[1])).astype(dtype)
    np.save(tmp_path / "rows.npy", X)
    odd = np.frombuffer(b"." + X.tobytes(), dtype, offset=1).reshape(shape)
    held = [X, np.asfortranarray(X), np.load(tmp_path / "rows.npy", mmap_mode="r"), odd, np.ascontiguousarray(X[::-1])[::-1]]
    for solver in (ep.solvers.Krylov(max_blocks=3), "auto"):
        first, *others = [ep.FederatedPCA(3, solver=solver, random_state=0).fit({"A": rows}) for rows in held]
        for other in others:
            assert other.components_.dtype == first.components_.dtype
            assert other.components_.tobytes() == first.components_.tobytes()


@pytest.mark.parametrize("solver", ["gram", "krylov"])
def test_rows_that_overlap_in_memory(solver: str) -> None:
    """Windows of a series: numpy does not hand them to BLAS as they are."""
    windows = np.lib.stride_tricks.sliding_window_view(np.random.default_rng(0).normal(size=500).cumsum(), 20)
    one, other = (ep.FederatedPCA(3, solver=solver, random_state=0).fit({"A": rows}) for rows in (windows, windows.copy()))
    assert one.components_.tobytes() == other.components_.tobytes()


def test_whole_numbers_whose_sums_are_not_exact(tmp_path: Path) -> None:
    """They have the same bits in a file as in memory."""
    X = np.random.default_rng(0).integers(-(10**9), 10**9, size=(6400, 100)).astype(float)
    np.save(tmp_path / "rows.npy", X)
    held = X, np.load(tmp_path / "rows.npy", mmap_mode="r")
    one, other = (ep.FederatedPCA(3, solver="gram", random_state=0).fit({"A": rows}) for rows in held)
    assert one.components_.tobytes() == other.components_.tobytes()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("solver", ["auto", "krylov"])
@pytest.mark.parametrize("shape", [(40, 700), (400, 50)])
def test_a_huge_constant_is_no_reason_to_warn(solver: str, shape: tuple[int, int]) -> None:
    X = np.random.default_rng(0).normal(size=shape)
    expected = ep.FederatedPCA(2, solver=solver, random_state=0).fit({"A": np.delete(X, 3, axis=1)})
    for huge in (1e160, 2.0**1000):
        X[:, 3] = huge
        pca = ep.FederatedPCA(2, solver=solver, random_state=0).fit({"A": X})
        np.testing.assert_allclose(pca.explained_variance_, expected.explained_variance_, rtol=1e-10)


@pytest.mark.parametrize("solver", ["gram", "krylov"])
@pytest.mark.parametrize("offset", [0.0, 1.3])
def test_rows_in_long_runs_of_equal_ones(offset: float, solver: str) -> None:
    """All rounding errors point one way.  The answer was off by 1000 times the estimated angle; the page allows 30."""
    i, gap = np.arange(80000), 1e-5
    signs = (np.where(i // b % 2, 1, -1.0) for b in (1, 2, 4))
    X = np.stack([size * h for size, h in zip((1.0, 1 - gap, 0.05), signs, strict=True)], axis=1)
    X = X @ np.linalg.qr(np.random.default_rng(1).normal(size=(3, 3)))[0] + offset
    X = X[np.argsort(X[:, 0], kind="stable")]
    distinct = np.unique(X, axis=0).astype(np.longdouble)  # each as often as the others
    assert len(distinct) == 8
    C = (distinct - distinct.mean(axis=0)).T @ (distinct - distinct.mean(axis=0))
    for _ in range(22):  # its power 2^22 has nothing but the leading direction
        C = C @ C
        C /= np.max(np.abs(C))
    pca = ep.FederatedPCA(1, solver=solver, random_state=0).fit({"A": X})
    sine = largest_sine(pca.components_.T, (C[:, :1] / np.linalg.norm(C[:, 0].astype(float))).astype(float))
    assert sine <= 30 * pca.angle_estimate_ <= 1e-4
