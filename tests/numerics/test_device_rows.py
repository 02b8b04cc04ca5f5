"""Kernels for rows on a GPU: run there, or by Triton's interpreter where torch sees none; skipped without torch or Triton."""

from __future__ import annotations

import os

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.numerics.site_rows import SiteRows, own_mean

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # which Triton reads when it is imported
pytest.importorskip("triton")

from eigenpact.numerics import device_rows, device_work  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def few_parts(monkeypatch):
    """Sums over few parts, but several: the interpreter is slow."""
    monkeypatch.setattr(device_work, "PROGRAMS", 3)


def there(X):
    return torch.asarray(X, device=DEVICE)


def made(n, d, kind, offset=1.0, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n, d)) * np.geomspace(1, 30, d) + offset * np.arange(d)).astype(kind)


def truth(X, mean, scale, Z):
    Y = (X.astype(np.longdouble) - mean) / (1.0 if scale is None else scale)
    return np.asarray(Y.T @ (Y @ Z), dtype=float)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize(("n", "d", "k"), [(70, 9, 4), (33, 40, 20), (1, 6, 2)])
@pytest.mark.parametrize("scaled", [False, True])
def test_products_are_those_of_double_precision(kind, n, d, k, scaled):
    X = made(n, d, kind)
    own, _ = own_mean(X)
    mean, scale = own[0] + 0.5, np.linspace(1, 2, d) if scaled else None
    Z = np.linalg.qr(np.random.default_rng(1).normal(size=(d, k)))[0]
    found = SiteRows(there(X), mean, scale, own).scatter_action(Z)
    exact = truth(X, mean, scale, Z)
    assert np.linalg.norm(found - exact) <= 1e-14 * np.linalg.norm(exact)
    again = SiteRows(there(X), mean, scale, own).scatter_action(Z)
    assert again.tobytes() == found.tobytes()
    assert type(found) is np.ndarray
    assert found.flags.c_contiguous


def test_features_far_from_zero_and_constant_ones():
    X = made(60, 8, "float64", offset=1e6)
    X[:, 3], X[:, 5] = 0.3, 0.0
    own, _ = own_mean(there(X))
    Z = np.linalg.qr(np.random.default_rng(1).normal(size=(8, 3)))[0]
    found = SiteRows(there(X), own[0], None, own).scatter_action(Z)
    mean = X.astype(np.longdouble).mean(axis=0)
    exact = truth(X, mean, None, Z)
    assert np.linalg.norm(found - exact) <= 1e-12 * np.linalg.norm(exact)
    assert not found[[3, 5]].any()


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_means_and_squares_to_the_last_digit(kind):
    X = made(100, 6, kind, offset=1e4)
    (c, left), within = own_mean(there(X))
    exact = X.astype(np.longdouble)
    np.testing.assert_allclose(c, np.asarray(exact.mean(axis=0), dtype=float), rtol=3e-16)
    np.testing.assert_allclose(within, np.asarray(((exact - exact.mean(axis=0)) ** 2).sum(axis=0), dtype=float), rtol=1e-14)
    assert np.all(np.abs(left) <= 1e-15 * (np.abs(c) + 1))


@pytest.mark.parametrize("scaled", [False, True])
def test_the_triangle_of_the_scatter(scaled, monkeypatch):
    monkeypatch.setattr(device_rows, "STRIP", 4)
    monkeypatch.setattr(device_rows, "CHUNK_BYTES", 8 * 9 * 16)
    X = made(50, 9, "float32")
    own, within = own_mean(X)
    mean, scale = own[0] + 0.5, np.linspace(1, 2, 9) if scaled else None
    found = SiteRows(there(X), mean, scale, own).scatter_triangle()
    np.testing.assert_allclose(found, SiteRows(X, mean, scale, own, within).scatter_triangle(), rtol=1e-13, atol=1e-11)


def test_rows_that_do_not_lie_one_after_the_other():
    whole = made(40, 13, "float32")
    Z = np.linalg.qr(np.random.default_rng(1).normal(size=(7, 3)))[0]
    for some in (whole[:, 2:9], whole[::2, 1:8]):
        X = there(whole)[:, 2:9] if len(some) == 40 else there(whole)[::2, 1:8]
        own, _ = own_mean(X)
        exact = truth(some, own[0], None, Z)
        assert np.linalg.norm(SiteRows(X, own[0], None, own).scatter_action(Z) - exact) <= 1e-14 * np.linalg.norm(exact)


def test_what_is_kept_for_rows_is_made_once_and_goes_with_them():
    X = there(made(20, 5, "float64"))
    own, _ = own_mean(X)
    before = len(device_rows._prepared)
    mean = own[0]
    SiteRows(X, mean, None, own).scatter_action(np.eye(5, 2))
    _, one = device_rows.device_rows(X, mean, None, own)
    assert device_rows.device_rows(X, mean, None, own)[1] is one
    assert device_rows.device_rows(X, None, None, own)[1] is not one
    SiteRows(X, None, None, own).scatter_action(np.eye(5, 2))
    assert len(device_rows._prepared) == before + 1
    del X, _
    assert len(device_rows._prepared) == before


@pytest.mark.parametrize("solver", ["gram", "krylov"])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_a_fit_is_that_of_the_cpu(solver, kind):
    sites = {"A": made(60, 10, kind), "B": made(45, 10, kind, offset=2.0, seed=1)}
    engine = ep.engines.InProcess(threads=None if DEVICE == "cuda" else 1)  # the interpreter knows no threads
    here = ep.FederatedPCA(3, solver=solver, random_state=0).fit(sites)
    gpu = ep.FederatedPCA(3, solver=solver, random_state=0, engine=engine).fit({name: there(X) for name, X in sites.items()})
    atol = 1e-9 if kind == "float64" else 1e-6  # as components have the precision of the rows
    np.testing.assert_allclose(gpu.components_, here.components_, rtol=0, atol=atol)
    assert gpu.n_rounds_ == here.n_rounds_
