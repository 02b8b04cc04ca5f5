"""Single precision where the tolerance allows it: who is asked, what the answer is, and when double precision takes over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import array_api_strict
import numpy as np
import pytest
import scipy.sparse

import eigenpact as ep
from eigenpact.algorithms.consensus import gram
from eigenpact.algorithms.rough import ALLOWED
from eigenpact.numerics.metrics import kkt, largest_sine
from eigenpact.numerics.site_rows import SiteRows

Sites = dict[str, Any]


def sites(n: int = 3000, d: int = 130, ratio: float = 0.9, mean: float = 3.0, dtype: Any = np.float32) -> Sites:
    """Three sites whose variances fall by a ratio."""
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    X = ((rng.normal(size=(n, d)) * ratio ** np.arange(d)) @ turn + mean).astype(dtype)
    return {"A": X[: n // 2], "B": X[n // 2 : n - 50], "C": X[n - 50 :]}


def scatter(held: Sites) -> Any:
    """The pooled scatter in double precision."""
    X = np.concatenate(list(held.values())).astype(float)
    X -= X.mean(axis=0)
    return X.T @ X


def fitted(held: Sites, k: int = 5, **options: Any) -> ep.FederatedPCA:
    """One fit."""
    return ep.FederatedPCA(k, **{"random_state": 0} | options).fit(held)


def called(pca: ep.FederatedPCA) -> set[str]:
    """Functions that were called after set-up."""
    return {message.function for message in pca.ledger_ if message.note != "setup"}


def test_krylov_multiplies_in_single_precision_where_the_tolerance_allows_it() -> None:
    """The residual that was asked for is that of the exact scatter, and the exact product is never asked for."""
    held = sites()
    C, pca = scatter(held), fitted(held, solver="krylov", tol=1e-4)
    Z = np.linalg.qr(pca.components_.astype(float).T)[0]
    assert called(pca) == {"rough_action"}
    assert pca.converged_
    assert kkt(C @ Z, Z, float(np.trace(C))) <= 1e-4
    assert "rough_action" not in called(fitted(held, solver="krylov", tol=0.9 * ALLOWED))
    assert called(fitted(held, solver="krylov")) == {"scatter_action"}


def test_gram_factorizes_a_triangle_in_single_precision_where_the_tolerance_allows_it() -> None:
    """One round, whose residual is that of the exact scatter."""
    held = sites()
    C, pca = scatter(held), fitted(held, solver="gram", tol=1e-4)
    Z = np.linalg.qr(pca.components_.astype(float).T)[0]
    assert called(pca) == {"rough_triangle"}
    assert pca.n_rounds_ == 1
    assert pca.converged_
    assert kkt(C @ Z, Z, float(np.trace(C))) <= 1e-4


def test_gram_without_a_tolerance_is_as_exact_as_in_double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """One product takes the errors of single precision away: these alone would be a hundred thousand times larger."""
    held = sites()
    values, vectors = np.linalg.eigh(scatter(held))
    exact = vectors[:, ::-1][:, :5]
    monkeypatch.setattr("eigenpact.estimators.pca.precision", lambda _: np.float64)
    pca = fitted(held, solver="gram")
    assert called(pca) == {"rough_triangle", "scatter_action"}
    assert pca.n_rounds_ == 2
    assert largest_sine(exact, pca.components_.T) <= 1e-13
    assert pca.angle_estimate_ <= 1e-9
    np.testing.assert_allclose(pca.singular_values_**2, values[::-1][:5], rtol=1e-13)
    monkeypatch.setattr(gram, "corrected", lambda C, _V, _CV: C)
    assert largest_sine(exact, fitted(held, solver="gram").components_.T) > 1e-9


@pytest.mark.parametrize("tol", [None, 1e-4])
def test_equal_variances_are_left_to_double_precision(tol: float | None) -> None:
    """At the cut they differ by less than the errors: the exact triangle decides, and the fit says what it is."""
    rng, n, d = np.random.default_rng(1), 4000, 130
    U = rng.normal(size=(n, d))
    U = np.linalg.qr(U - U.mean(axis=0))[0]
    X = (U * np.where(np.arange(d) < 3, 10.0, np.where(np.arange(d) < 7, 1 + 1e-8 * np.arange(d), 0.01))).astype(np.float32)
    pca = fitted({"A": X[:2000], "B": X[2000:]}, solver="gram", tol=tol)
    assert called(pca) >= {"rough_triangle", "scatter_triangle"}


def mirrored_outliers() -> Any:
    """Rows (3072 x 64) by a stranger: the second component, two outliers' difference, vanishes in single precision alone."""
    pair = np.zeros((1024, 2), np.float32)
    small = np.float32(1.419694321442344 / 511), np.float32(1.4287923237612652 / 511)
    pair[:512] = [-one for one in small]
    pair[0] = [511 * one for one in small]
    pair[512:] = pair[:512, ::-1]
    hidden = np.linalg.eigvalsh(pair.astype(float).T @ pair.astype(float))[0]
    others = np.zeros((2048, 64), np.float32)
    for j in range(2, 64):
        size = np.sqrt(hidden * (0.6 - 0.04 * (j - 2) if j < 8 else 0.01) / 2)
        others[2 * (j - 2) : 2 * (j - 1), j] = size, -size
    return np.concatenate([np.pad(pair, ((0, 0), (0, 62))), others])


@pytest.mark.parametrize("solver", ["gram", "auto"])
def test_a_direction_that_single_precision_hides_is_found(solver: str) -> None:
    """It lies outside the leading directions of the rough matrix altogether, so no product with these corrects it."""
    X = mirrored_outliers()
    exact = np.linalg.svd(X.astype(float) - X.mean(axis=0, dtype=float))[2][:2].T
    pca = fitted({"A": X[:1024], "B": X[1024:]}, 2, solver=solver)
    assert largest_sine(exact, pca.components_.T.astype(float)) < 1e-6


@pytest.mark.parametrize("solver", ["gram", "auto", "krylov"])
@pytest.mark.parametrize("tol", [1e-4, 1e-3])
def test_honest_sites_are_not_accused_of_roundings(solver: str, tol: float) -> None:
    """Rare indicators: in single precision all components have a little more than all of the variance."""
    X = (np.random.default_rng(0).random((20000, 20)) < 0.0002).astype(np.float32)
    pca = fitted({"A": X[:10000], "B": X[10000:]}, 20, solver=solver, tol=tol)
    assert pca.converged_
    assert abs(pca.explained_variance_ratio_.astype(float).sum() - 1) < 1e-4


def test_krylov_goes_on_in_double_precision_where_single_sees_no_variance() -> None:
    """Two of five components have variances that are rounding errors in single precision."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(4000, 60)) * np.where(np.arange(60) < 3, 1.0, np.where(np.arange(60) < 5, 1e-4, 1e-8))
    X = X.astype(np.float32)
    pca = fitted({"A": X[:2000], "B": X[2000:]}, solver="krylov", tol=1e-4)
    assert called(pca) == {"rough_action", "scatter_action"}
    assert np.all(np.abs(pca.components_[3:, 3:5]).max(axis=1) > 0.7)


def test_components_that_vanish_in_single_precision_are_found() -> None:
    """A variance of 1e-11 of the largest, in a feature of its own: errors of single precision are ten thousand times larger."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(4000, 130)) * np.where(np.arange(130) == 0, 1e5, np.where(np.arange(130) == 1, 0.3, 1e-3))
    X = X.astype(np.float32)
    pca = fitted({"A": X[:1500], "B": X[1500:]}, 2, solver="gram")
    assert "scatter_triangle" in called(pca)
    assert abs(pca.components_[1, 1]) > 1 - 1e-4


@pytest.mark.parametrize(
    "change", [{"secure": True}, {"solver": "subspace"}, {"n_components": 0.9}, {"max_rounds": 2}, {"max_rounds": 1, "tol": 1e-3}]
)
def test_who_is_not_asked_for_single_precision(change: dict[str, Any]) -> None:
    """Secured sums, other solvers, a share of the variance, and where rounds may not suffice."""
    held = sites(d=60)
    k = change.pop("n_components", 3)
    options = {"solver": "gram"} | change
    assert not {"rough_action", "rough_triangle"} & called(fitted(held, k, **options))


def test_rows_of_other_kinds_are_not_asked_twice() -> None:
    """Sparse and weighted rows, and those of another library: single precision would not be used, so nobody asks for it."""
    held = sites(d=60)
    sparse = {name: scipy.sparse.csr_array(rows) for name, rows in held.items()}
    elsewhere = {name: array_api_strict.asarray(rows) for name, rows in held.items()}
    for other in (sparse, elsewhere):
        assert called(fitted(other, 3, solver="gram")) == {"scatter_triangle"}
    weights = {name: np.full(len(rows), 2.0) for name, rows in held.items()}
    weighted = ep.FederatedPCA(3, solver="gram", random_state=0).fit(held, sample_weight=weights)
    assert called(weighted) == {"scatter_triangle"}


@pytest.mark.parametrize("dtype", [np.float64, np.uint8])
def test_sites_of_other_precision(dtype: Any) -> None:
    """Double precision stays so, and whole numbers, whose gram is exact in single precision anyway, do."""
    held = {name: np.clip(rows * 8 + 100, 0, 255).astype(dtype) for name, rows in sites().items()}
    assert called(fitted(held, solver="gram")) == {"scatter_triangle"}
    assert called(fitted(held, solver="krylov", tol=1e-4)) == {"scatter_action"}


def test_an_audit_knows_products_in_single_precision() -> None:
    """Of a ledger with them: they tell a site's scatter as exact ones do."""
    held = sites(d=40)
    for solver in ("gram", "krylov"):
        pca = fitted(held, 3, solver=solver, tol=1e-4)
        assert called(pca) <= {"rough_action", "rough_triangle"}
        found = ep.audit(pca)
        assert any(finding.wanted.startswith("C_i") and finding.verdict.startswith("could") for finding in found.findings)


@pytest.mark.parametrize("solver", ["gram", "krylov"])
@pytest.mark.parametrize("tol", [None, 1e-4])
def test_a_resumed_run_has_the_same_bits(tmp_path: Path, solver: str, tol: float | None) -> None:
    """Stopped after any round, it goes on as it would have."""
    held = sites(d=80, ratio=0.97)
    options: dict[str, Any] = {"solver": solver, "tol": tol}
    whole = fitted(held, 2, **options)
    for last in range(1 if solver == "krylov" else whole.n_rounds_, whole.n_rounds_ + 1):

        def stop(record: Any, last: int = last) -> None:
            if record.round == last:
                raise KeyboardInterrupt

        journal = tmp_path / f"{last}.journal"
        with pytest.raises(KeyboardInterrupt):
            fitted(held, 2, journal=journal, callback=stop, **options)
        resumed = fitted(held, 2, journal=journal, **options)
        np.testing.assert_array_equal(resumed.components_, whole.components_)
        assert resumed.n_rounds_ == whole.n_rounds_


def test_a_site_whose_rows_overflow_in_single_precision_replies_in_double(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found out beforehand, or by the product."""
    held = {name: rows * np.float32(1e16) for name, rows in sites(mean=0.0).items()}
    C = scatter(held)
    exact = np.linalg.eigh(C)[1][:, ::-1][:, :5]
    for known in (True, False):
        if not known:
            monkeypatch.setattr(SiteRows, "_lends_itself", lambda _: True)
        assert largest_sine(exact, fitted(held, solver="krylov", tol=1e-4).components_.T) < 1e-4
        assert largest_sine(exact, fitted(held, solver="gram").components_.T) < 1e-4


def test_scaled_features_whose_squares_single_precision_has_no_digits_for() -> None:
    """A stranger's unit: squares are rounded to 1 and to 20 of the smallest number there is, and the trace is the same."""
    n, d, least = 8192, 64, 2.0**-149
    numbers = np.arange(n)

    def signs(mask: int) -> Any:
        return 1.0 - 2 * (np.bitwise_count(numbers & mask) % 2)

    low = [signs(1 << bit) < 0 for bit in range(3)]
    flips = {0.75: low[0] & low[1] & low[2], 0.5: low[0] & low[1], 0.25: low[0] & (low[1] | low[2])}
    columns = []
    for pair, correlation in enumerate([0.75, 0.5] + [0.25] * 6):
        first = signs((pair + 1) << 4)
        columns += [first, np.where(flips[correlation], -first, first)]
    columns += [signs((column + 20) << 4) for column in range(d - len(columns))]
    units = np.ones(d)
    units[:2], units[-32:] = np.sqrt(1.49 * least), np.sqrt(20 * least / (1 + 2 * (1 - 1 / 1.49) / 32))
    pca = fitted({"A": (np.stack(columns, axis=1) * units).astype(np.float32)}, 1, solver="gram", scale="pooled")
    np.testing.assert_allclose(pca.explained_variance_, 1.75 * n / (n - 1), rtol=1e-5)
    np.testing.assert_allclose(np.abs(pca.components_[0, :2]), np.sqrt(0.5), rtol=1e-5)


def test_a_tiny_unit_is_no_reason_to_doubt_a_site() -> None:
    """Of features of 1e-23, the trace in single precision is not the one that the site told."""
    held = {name: X * np.where(np.arange(X.shape[1]) < 3, np.float32(1e-23), np.float32(1)) for name, X in sites().items()}
    one, other = (fitted(held, solver=solver, scale="pooled") for solver in ("gram", "krylov"))
    np.testing.assert_allclose(one.explained_variance_, other.explained_variance_, rtol=1e-5)
