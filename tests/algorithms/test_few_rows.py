"""row-gram: exact where rows are few, and never called converged on the word of a factorization that lost digits."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.decomposition import PCA

import eigenpact as ep
from eigenpact.numerics.metrics import largest_sine
from eigenpact.runtime import steps

RNG = np.random.default_rng(0)
WIDE = RNG.normal(size=(60, 900)) @ np.diag(np.linspace(3, 1, 900)) + RNG.normal(size=900)
ROW_GRAM = ep.solvers.Auto(costs=ep.runtime.Costs(latency=10.0, bandwidth=1.0, flops=1e9))  # what sends nothing is cheapest


def truth(X: Any, k: int) -> Any:
    return np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:k].T


def uneven(size: float) -> Any:
    """Rows in which the first feature is so many times larger than the others."""
    X = np.random.default_rng(1).normal(size=(40, 500)) * np.linspace(2, 1, 500)
    X[:, 0] *= size
    return X


def fitted(X: Any, k: int = 3, **options: Any) -> ep.FederatedPCA:
    return ep.FederatedPCA(k, solver=ROW_GRAM, random_state=0, **options).fit(X)


@pytest.mark.parametrize("kind", ["dense", "single", "sparse", "bytes"])
def test_exact_in_one_round(kind: str) -> None:
    X = {"sparse": np.where(WIDE > 4, WIDE, 0.0), "bytes": np.clip(WIDE * 9 + 90, 0, 255).astype(np.uint8)}.get(kind, WIDE)
    X = X.astype(np.float32) if kind == "single" else X
    pca = fitted(scipy.sparse.csr_array(X) if kind == "sparse" else X)
    assert (pca.solver_, pca.n_rounds_, pca.converged_) == ("row-gram", 1, True)
    assert largest_sine(pca.components_.T.astype(float), truth(X.astype(float), 3)) <= (1e-6 if kind == "single" else 1e-11)
    assert pca.angle_estimate_ < (1e-6 if kind == "single" else 1e-10)
    np.testing.assert_allclose(
        pca.explained_variance_, PCA(3, svd_solver="full").fit(X.astype(float)).explained_variance_, rtol=1e-5
    )
    assert "inner products of all rows were factorized" in pca.stop_reason_


def test_nothing_but_the_confirmation_is_sent() -> None:
    pca = fitted(WIDE)
    sent = [m.function for m in pca.ledger_ if m.sender == "site0" and m.note != "own"]
    assert sent == ["count_and_sum", "spread", "scatter_action"]
    assert {m.note for m in pca.ledger_ if m.function == "leading_of_rows"} == {"own"}


@pytest.mark.parametrize("center", ["pooled", "site", False])
@pytest.mark.parametrize("scale", [None, "pooled"])
def test_the_same_answer_as_krylovs(center: Any, scale: Any) -> None:
    ours = fitted(WIDE, center=center, scale=scale)
    krylov = ep.FederatedPCA(3, solver="krylov", center=center, scale=scale, random_state=0).fit(WIDE)
    assert ours.solver_ == "row-gram"
    assert largest_sine(ours.components_.T, krylov.components_.T) <= 2e-8


def test_weights() -> None:
    weights = RNG.integers(0, 4, size=60)
    ours = ep.FederatedPCA(3, solver=ROW_GRAM, random_state=0).fit(WIDE, sample_weight=weights)
    assert ours.solver_ == "row-gram"
    assert largest_sine(ours.components_.T, truth(np.repeat(WIDE, weights, axis=0), 3)) <= 1e-10


def test_where_digits_were_lost_rounds_go_on() -> None:
    """One direction has 10^10 to 10^14 times the variance of the others, beside which inner products of rows lose theirs."""
    for size, most in ((1e5, 1e-10), (1e6, 1e-8), (1e7, 1e-8)):
        X = uneven(size)
        pca = fitted(X, 2)
        assert (pca.solver_, pca.converged_) == ("row-gram", True)
        assert pca.n_rounds_ > 1
        assert largest_sine(pca.components_.T, truth(X, 2)) <= min(most, pca.angle_estimate_)


def test_sums_that_are_all_rounded_the_same_way() -> None:
    """A large number and then small ones, whose squares are lost one by one: a stranger's second component was missed."""
    part, parts, eps = 512, 8, float(np.finfo(float).eps)
    alike = np.where(np.arange(part) == 0, 1.0, 2**-26.6)
    X = np.zeros((4, part * parts + 40))
    X[0, : part * parts], X[1, : part * parts] = np.tile(alike, parts), np.tile(alike * (-1.0) ** np.arange(part), parts)
    X[[2, 3], [-1, -2]] = np.sqrt([200 * eps * parts, 130 * eps * parts])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        pca = fitted(np.concatenate([X, -X]), 2)
    true = np.stack([X[0] + X[1], X[0] - X[1]], axis=1)
    assert pca.solver_ == "row-gram"
    assert told or largest_sine(pca.components_.T, true / np.linalg.norm(true, axis=0)) <= pca.angle_estimate_


def test_equal_variances_are_told() -> None:
    """Components 2 and 3 are equal: no gap proves anything, and the user is warned as by every solver."""
    Q = np.linalg.qr(RNG.normal(size=(50, 7)))[0]
    X = np.concatenate([Q, -Q]) @ np.diag([3.0, 2.0, 2.0, 1.0, 0.9, 0.8, 0.7]) @ np.linalg.qr(RNG.normal(size=(400, 7)))[0].T
    with pytest.warns(ep.errors.NotIdentifiableWarning, match="components 2 and 3 have the same variance"):
        pca = fitted(X, 2)
    assert pca.solver_ == "row-gram"
    assert pca.angle_estimate_ is None


def test_rows_without_variance() -> None:
    """All alike: whatever is answered is one of many."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ep.errors.NotIdentifiableWarning)
        pca = fitted(np.ones((10, 50)), 2)
    np.testing.assert_array_equal(pca.explained_variance_, [0.0, 0.0])


def test_several_sites_are_never_factorized() -> None:
    pca = ep.FederatedPCA(3, solver=ROW_GRAM, random_state=0).fit([WIDE[:30], WIDE[30:]])
    assert "row-gram" not in {row["solver"] for row in pca.solver_choice_}
    assert "leading_of_rows" not in {m.function for m in pca.ledger_}


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_resumed_to_the_same_bits(stop: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where rounds go on after line 2, from a journal that is cut every round."""
    monkeypatch.setattr(steps, "CUT_AFTER", 1)
    X = uneven(1e5)

    def interrupt(record: Any) -> None:
        if record.round == stop:
            raise KeyboardInterrupt

    whole, path = fitted(X, 2), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        fitted(X, 2, journal=path, callback=interrupt)
    resumed = fitted(X, 2, journal=path)
    assert resumed.components_.tobytes() == whole.components_.tobytes()
    assert resumed.n_rounds_ == whole.n_rounds_ > 2
