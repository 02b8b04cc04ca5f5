"""Products in single precision of rows on a GPU, or by Triton's interpreter: how far they are off, and who is asked for them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.numerics.linalg import random_orthonormal
from eigenpact.numerics.metrics import kkt
from eigenpact.numerics.single import ERROR
from eigenpact.numerics.site_rows import SiteRows, own_mean

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # which Triton reads when it is imported
pytest.importorskip("triton")

from eigenpact.numerics import device_single, device_work  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def few_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over few parts, but several: the interpreter is slow."""
    monkeypatch.setattr(device_work, "PROGRAMS", 3)


def there(X: Any) -> Any:
    return torch.asarray(X, device=DEVICE)


def site(X: Any, shift: float = 0.1, scale: Any = None) -> SiteRows:
    """Rows on the device, about a centre that is not quite their mean."""
    on_device = there(X)
    own, within = own_mean(on_device)
    return SiteRows(on_device, own.sum(axis=0) + shift * np.sqrt(within / len(X)), scale, own, within)


def exact(X: Any, rows: SiteRows, Z: Any) -> tuple[Any, float]:
    """The product in long double, and the trace."""
    Y = (X.astype(np.longdouble) - rows.mean) / (1.0 if rows.scale is None else rows.scale)
    return (Y.T @ (Y @ Z)).astype(float), float(np.sum(Y**2))


def rare(rng: Any, n: int, d: int) -> Any:
    X = np.outer(rng.random(n) < 0.01, np.linspace(1, 2, d))
    X[0] += 0.001
    return X


KINDS: dict[str, Any] = {
    "normal": lambda rng, n, d: rng.normal(size=(n, d)),
    "positive": lambda rng, n, d: rng.random((n, d)),
    "far from zero": lambda rng, n, d: 1000.3 + 1e-2 * rng.normal(size=(n, d)),
    "nearly one direction": lambda rng, n, d: np.outer(rng.normal(size=n), rng.normal(size=d)) + 1e-3 * rng.normal(size=(n, d)),
    "uneven units": lambda rng, n, d: rng.normal(size=(n, d)) * 10.0 ** -np.linspace(0, 8, d),
    "one row apart": lambda rng, n, d: rng.normal(size=(n, d)) + 1e4 * (np.arange(n) == 3)[:, None],
    "equal but rare": rare,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "d", "k"), [(130, 70, 5), (97, 9, 9)])
def test_errors_are_below_the_share_of_the_trace_that_is_told(kind: str, n: int, d: int, k: int) -> None:
    """And they are not those of double precision, or the test would compare that."""
    X = KINDS[kind](np.random.default_rng(0), n, d).astype(np.float32)
    rows, Z = site(X), random_orthonormal(d, k, 0)
    (product, trace), found = exact(X, rows, Z), rows.single_action(Z)
    assert found is not None
    off = np.linalg.norm(found - product, axis=0)
    assert 1e-13 * trace < off.max() <= 2e-6 * trace
    assert found.tobytes() == rows.single_action(Z).tobytes()  # type: ignore[union-attr]


@pytest.mark.parametrize("large", [1.0, 1e3])
def test_the_bound_holds_where_all_roundings_point_the_same_way(large: float) -> None:
    """One large row before equal ones, few distinct numbers, equal columns: a stranger's rows."""
    X = np.zeros((700, 20), np.float32)
    X[0, :10], X[0, 10:] = large, 0.6 * large
    X[1:, 0] = 1 / 3
    rows = site(X, 0.0)
    for Z in (np.eye(20, 3), np.full((20, 1), 20**-0.5)):
        product, trace = exact(X, rows, Z)
        found = rows.single_action(Z)
        assert found is not None
        assert np.linalg.norm(found - product, axis=0).max() <= ERROR * trace


def test_sums_are_as_short_as_the_bound_says() -> None:
    """Features of a tile in the first pass, rows of one in the second; and the bound is below what is told."""
    for k in (1, 20, 48, 49, 120, device_work.WIDEST):
        forth, back = device_work.tiles(k, 4, single=True)
        assert max(forth.features, back.rows) <= device_single.SUMMED
    assert 2 * (9 / 8 * device_single.SUMMED + 9) * 2.0**-23 < ERROR


def test_a_scale_and_a_constant_column() -> None:
    """What does not vary is zero, whatever the scale."""
    X = np.random.default_rng(1).integers(0, 100, size=(150, 8)).astype(np.float32)
    X[:, 3] = 0.3
    rows, Z = site(X, 0.0, np.linspace(1, 2, 8)), random_orthonormal(8, 3, 0)
    found, (product, trace) = rows.single_action(Z), exact(X, rows, Z)
    assert found is not None
    np.testing.assert_allclose(found, product, atol=1e-6 * trace)
    assert not found[3].any()


def test_other_rows_are_left_to_double_precision() -> None:
    """Double precision, numbers whose squares overflow or vanish, no variance; and triangles always."""
    X, Z = np.random.default_rng(2).normal(size=(50, 4)).astype(np.float32), random_orthonormal(4, 2, 0)
    for other in (X.astype(float), X * np.float32(1e15), X * np.float32(1e-15), 0 * X):
        assert site(other, 0.0).single_action(Z) is None
    assert site(X, 0.0, np.full(4, 1e-30)).single_action(Z) is None
    assert site(X).single_action(Z) is not None
    assert site(X).single_triangle() is None


def test_who_is_asked_for_single_precision() -> None:
    """krylov, where the tolerance allows it; never gram, whose triangle a GPU makes in double precision."""
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(240, 20)) * 0.8 ** np.arange(20) + 3).astype(np.float32)
    held = {"A": there(X[:140]), "B": there(X[140:])}
    engine = ep.engines.InProcess(threads=None if DEVICE == "cuda" else 1)  # the interpreter knows no threads
    W = X.astype(float) - X.mean(axis=0, dtype=float)
    C = W.T @ W
    for solver, tol, expected in (
        ("krylov", 1e-4, "rough_action"),
        ("krylov", 1e-6, "scatter_action"),
        ("gram", 1e-4, "scatter_triangle"),
    ):
        pca = ep.FederatedPCA(3, solver=solver, tol=tol, random_state=0, engine=engine).fit(held)
        assert {message.function for message in pca.ledger_ if message.note != "setup"} == {expected}
        Z = np.linalg.qr(pca.components_.astype(float).T)[0]
        assert pca.converged_
        assert kkt(C @ Z, Z, float(np.trace(C))) <= tol
