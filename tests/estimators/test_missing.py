"""``FederatedPCA(missing=...)``: means by sums, maximum likelihood, what is refused.  Truth is the plainest EM, row by row."""

from __future__ import annotations

import re
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.decomposition import PCA

import eigenpact as ep
from eigenpact.algorithms.missing import em
from eigenpact.algorithms.missing.first_space import FirstSpace, first_space
from eigenpact.errors import InputError, NotConvergedWarning
from eigenpact.numerics.metrics import largest_sine

Array = np.ndarray[Any, Any]


def low_rank(n: int, d: int, k: int, noise: float = 0.5, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.normal(size=(d, k)))[0] * np.geomspace(4, 2, k) * np.sqrt(d / 3)
    return rng.normal(size=(n, k)) @ axes.T + noise * rng.normal(size=(n, d)) + rng.normal(size=d)


def holed(X: Array, share: float, seed: int = 1) -> Array:
    X = X.copy()
    X[np.random.default_rng(seed).random(X.shape) < share] = np.nan
    return X


def four_sites(X: Array) -> dict[str, Array]:
    cuts = np.array([0, 0.2, 0.3, 0.65, 1]) * len(X)
    return {name: X[int(a) : int(b)] for name, a, b in zip("ABCD", cuts, cuts[1:], strict=False)}


def plain_em(X: Array, k: int, rounds: int) -> tuple[float, Array, Array, float]:
    """Log-likelihood, components (d x k), mean and noise: expected moments of whole rows, and PCA of them, again and again."""
    n, d = X.shape
    m, s = np.nanmean(X, axis=0), float(np.nanvar(X))
    C = s * np.eye(d)
    for _ in range(rounds):
        value, rows, spread = 0.0, [], np.zeros((d, d))
        for x in X:
            o = ~np.isnan(x)
            gain = C[:, o] @ np.linalg.inv(C[np.ix_(o, o)])
            r = x[o] - m[o]
            _, log_det = np.linalg.slogdet(C[np.ix_(o, o)])
            value -= 0.5 * (o.sum() * np.log(2 * np.pi) + log_det + r @ np.linalg.solve(C[np.ix_(o, o)], r))
            rows.append(m + gain @ r)
            spread += C - gain @ C[o]
        m = np.mean(rows, axis=0)
        S = ((np.array(rows) - m).T @ (np.array(rows) - m) + spread) / n
        values, vectors = np.linalg.eigh(S)
        s = float(values[: d - k].mean())
        U = vectors[:, ::-1][:, :k]
        C = s * np.eye(d) + (U * (values[::-1][:k] - s)) @ U.T
    return value, U, m, s


# -- maximum likelihood ----------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "seed"), [(0.1, 0), (0.3, 1)])
def test_em_finds_what_the_plainest_em_converges_to(share: float, seed: int) -> None:
    X = holed(low_rank(40, 6, 2, seed=seed), share)
    value, U, m, s = plain_em(X, 2, 120)
    pca = ep.FederatedPCA(2, missing="em", random_state=0).fit(four_sites(X))
    assert pca.converged_
    assert pca.history_[-1].objective == pytest.approx(value, rel=1e-8)
    assert largest_sine(pca.components_.T, U) <= 1e-6
    np.testing.assert_allclose(pca.mean_, m, atol=1e-6)
    assert pca.noise_variance_ == pytest.approx(s * 40 / 39, rel=1e-6)
    total = pca.explained_variance_.sum() + 4 * pca.noise_variance_
    np.testing.assert_allclose(pca.explained_variance_ratio_, pca.explained_variance_ / total)


def test_the_likelihood_never_falls_and_is_that_of_the_rows() -> None:
    X = holed(low_rank(150, 12, 3), 0.2)
    for scale in (None, "pooled"):
        pca = ep.FederatedPCA(3, missing="em", scale=scale, random_state=0).fit(four_sites(X))
        told = [record.objective for record in pca.history_ if record.objective is not None]
        assert len(told) > 5
        assert all(after >= before for before, after in pairwise(told))
        assert pca.score(X) * len(X) == pytest.approx(told[-1], rel=1e-10)
        if scale == "pooled":
            np.testing.assert_allclose(pca.scale_, np.nanstd(X, axis=0), rtol=1e-10)


def test_without_holes_em_is_pca() -> None:
    X = low_rank(80, 9, 3)
    truth, pca = PCA(3).fit(X), ep.FederatedPCA(3, missing="em", random_state=0).fit(four_sites(X))
    assert largest_sine(pca.components_.T, truth.components_.T) <= 1e-8
    for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_", "noise_variance_"):
        np.testing.assert_allclose(getattr(pca, name), getattr(truth, name), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(pca.transform(X), ep.FederatedPCA(3).fit(X).transform(X), atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"scale": "pooled"}, {"center": False}], ids=str)
def test_four_sites_are_the_pooled_rows(options: dict[str, Any]) -> None:
    X = holed(low_rank(200, 15, 3), 0.2)
    apart, together = (ep.FederatedPCA(3, missing="em", random_state=0, **options).fit(rows) for rows in (four_sites(X), X))
    assert apart.converged_
    np.testing.assert_allclose(apart.components_, together.components_, atol=1e-8)
    np.testing.assert_allclose(apart.explained_variance_, together.explained_variance_, rtol=1e-8)
    np.testing.assert_allclose(apart.transform(X), together.transform(X), atol=1e-7)


def test_rows_without_any_entry_change_nothing() -> None:
    sites = four_sites(holed(low_rank(200, 6, 2), 0.1))
    whole = {name: X[~np.isnan(X).all(axis=1)] for name, X in sites.items()}
    empty = {name: np.insert(X, [0] * len(X), np.nan, axis=0) for name, X in whole.items()}
    plain, pca = (ep.FederatedPCA(2, missing="em", random_state=0).fit(rows) for rows in (whole, empty))
    assert (pca.n_samples_seen_, pca.n_rounds_) == (plain.n_samples_seen_, plain.n_rounds_)
    for name in ("components_", "mean_", "explained_variance_", "noise_variance_"):
        np.testing.assert_allclose(getattr(pca, name), getattr(plain, name), rtol=1e-9, err_msg=name)


def test_secured_sums_give_the_same() -> None:
    X = holed(low_rank(90, 8, 2), 0.2)
    plain, secured = (ep.FederatedPCA(2, missing="em", random_state=0, secure=s).fit(four_sites(X)) for s in (False, True))
    assert secured.n_rounds_ == plain.n_rounds_
    np.testing.assert_allclose(secured.components_, plain.components_, atol=1e-9)
    assert {message.function for message in plain.ledger_} == {
        "sum_observed", "spread_observed", "keep_observed_centre", "observed_action", "observed_likelihood", "expected_action",
    }  # fmt: skip


def test_holes_are_filled_better_than_with_means_also_where_a_site_lacks_features() -> None:
    """The hidden entries are known here; a site that lacks a third of the features has them predicted as well as others."""
    X = low_rank(900, 30, 3)
    hidden = np.random.default_rng(2).random(X.shape) < 0.1
    hidden[:300, :10] = True  # all that site A has of these features
    sites = {name: np.where(h, np.nan, x) for name, x, h in zip("ABC", np.split(X, 3), np.split(hidden, 3), strict=True)}
    errors = {}
    for missing in ("em", "mean"):
        pca = ep.FederatedPCA(3, missing=missing, random_state=0).fit(sites)
        assert pca.converged_
        rebuilt = pca.inverse_transform(pca.transform(np.concatenate(list(sites.values()))))
        wrong = np.where(hidden, rebuilt - X, np.nan)
        errors[missing] = [float(np.sqrt(np.nanmean(part**2))) for part in (wrong[:300, :10], wrong[300:, :10])]
    there, elsewhere = errors["em"]
    assert there == pytest.approx(elsewhere, rel=0.1)
    assert there < 0.7 * errors["mean"][0]
    assert elsewhere < errors["mean"][1]


def test_it_says_when_there_is_no_maximum_and_when_rounds_are_over() -> None:
    rng = np.random.default_rng(0)
    X = holed(rng.normal(size=(60, 2)) @ rng.normal(size=(2, 10)), 0.1)
    with pytest.warns(NotConvergedWarning, match="no noise beside 2 components"):
        assert not ep.FederatedPCA(2, missing="em", random_state=0).fit(X).converged_
    with pytest.warns(NotConvergedWarning, match="max_rounds=8 reached"):
        assert ep.FederatedPCA(2, missing="em", random_state=0, max_rounds=8).fit(holed(low_rank(80, 9, 3), 0.3)).n_rounds_ == 8


def test_a_missed_direction_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """From a start that has nothing of the first component, where the gradient has nothing of it either."""
    X = np.random.default_rng(0).normal(size=(4000, 6)) * np.array([5.0, 4.0, 3.0, 1.0, 1.0, 1.0])
    X -= X.mean(axis=0)
    X[:, 0] -= X[:, 1:] @ np.linalg.lstsq(X[:, 1:], X[:, 0])[0]  # exactly uncorrelated with the others

    async def blind(*args: Any) -> FirstSpace:
        found = await first_space(*args)
        Q = np.eye(6)[:, 1:]
        S = np.cov(X.T, bias=True)
        return FirstSpace(type(found.space)(Q, S @ Q * (np.arange(6) > 0)[:, None]), found.omega, found.rounds)

    monkeypatch.setattr(em, "first_space", blind)
    pca = ep.FederatedPCA(2, missing="em", random_state=0).fit(four_sites(X))
    assert pca.converged_
    assert largest_sine(pca.components_.T, PCA(2).fit(X).components_.T) <= 1e-7
    assert any("confirming" in record.details and record.details["confirming"] > 0.5 for record in pca.history_)


# -- means -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"scale": "pooled"}, {"center": "site"}, {"solver": "gram"}], ids=str)
def test_mean_is_the_pca_of_rows_filled_with_the_pooled_means(options: dict[str, Any]) -> None:
    X = holed(low_rank(120, 10, 3), 0.2)
    X[:24, 2] = np.nan  # site A lacks this feature
    whole = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    pca = ep.FederatedPCA(3, missing="mean", random_state=0, **options).fit(four_sites(X))
    truth = ep.FederatedPCA(3, random_state=0, **options).fit(four_sites(whole))
    assert largest_sine(pca.components_.T, truth.components_.T) <= 1e-8
    np.testing.assert_allclose(pca.explained_variance_, truth.explained_variance_, rtol=1e-10)
    np.testing.assert_allclose(pca.transform(X), truth.transform(whole), atol=1e-8)


def test_sparse_rows_have_no_holes() -> None:
    X = np.where(np.random.default_rng(0).random((60, 8)) < 0.7, 0.0, low_rank(60, 8, 2))
    sparse = scipy.sparse.csr_matrix(X)
    for missing in ("mean", "em"):
        pca = ep.FederatedPCA(2, missing=missing, random_state=0).fit({"A": sparse[:30], "B": X[30:]})
        assert largest_sine(pca.components_.T, PCA(2).fit(X).components_.T) <= 1e-7
        sparse.data[3] = np.nan
        with pytest.raises(InputError, match="has 1 NaN; only finite"):
            ep.FederatedPCA(2, missing=missing).fit({"A": sparse[:30], "B": X[30:]})
        with pytest.raises(InputError, match="NaN"):
            pca.transform(sparse)
        sparse = scipy.sparse.csr_matrix(X)


@pytest.mark.parametrize("missing", ["mean", "em"])
def test_rows_on_disk_give_the_same(missing: str, tmp_path: Path) -> None:
    X = holed(low_rank(90, 8, 2), 0.2)
    np.save(tmp_path / "X.npy", X)
    on_disk = np.load(tmp_path / "X.npy", mmap_mode="r")
    there, here = (ep.FederatedPCA(2, missing=missing, random_state=0).fit(rows) for rows in (on_disk, X))
    np.testing.assert_allclose(there.components_, here.components_, atol=1e-9)
    np.testing.assert_allclose(there.transform(on_disk), here.transform(X), atol=1e-9)


def test_single_precision_and_rare_features() -> None:
    X = holed(low_rank(120, 8, 2), 0.1)
    X[:, 5] = 0.0
    X[::40, 5], X[1::40, 5] = 1.0, np.nan  # 3 entries that are not zero, 3 that are missing
    for missing in ("mean", "em"):
        pca = ep.FederatedPCA(2, missing=missing, min_nonzero=4, random_state=0).fit(four_sites(X))
        rest = ep.FederatedPCA(2, missing=missing, random_state=0).fit(four_sites(np.delete(X, 5, axis=1)))
        assert pca.dropped_features_ == (5,)
        assert largest_sine(np.delete(pca.components_, 5, axis=1).T, rest.components_.T) <= 1e-7
        np.testing.assert_allclose(pca.explained_variance_ratio_, rest.explained_variance_ratio_, rtol=1e-7)
        np.testing.assert_allclose(pca.transform(X), rest.transform(np.delete(X, 5, axis=1)), atol=1e-6)
        single = ep.FederatedPCA(2, missing=missing, random_state=0).fit(four_sites(X.astype(np.float32)))
        assert single.components_.dtype == single.transform(X.astype(np.float32)).dtype == np.float32


# -- what is refused -------------------------------------------------------------------------------


def test_what_is_refused_is_named() -> None:
    X = holed(low_rank(40, 5, 2), 0.2)
    frame = pd.DataFrame(X, columns=list("vwxyz"))
    with pytest.raises(InputError, match=rf"site 'A': column 'v' has {int(np.isnan(X[:, 0]).sum())} NaN"):
        ep.FederatedPCA(2).fit({"A": frame, "B": frame})
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"missing": "median"}, "missing='median' must be 'refuse', 'mean' or 'em'"),
        ({"missing": "em", "center": "site"}, "center='site' does not go with missing='em'"),
        ({"missing": "em", "solver": "gram"}, "unknown solver 'gram'; the solvers of FederatedPCA(missing='em') are em"),
        ({"missing": "em", "solver": ep.solvers.Krylov()}, "is one of FederatedPCA; the solvers of"),
        ({"solver": ep.solvers.EM()}, "is one of FederatedPCA(missing='em')"),
        ({"missing": "em", "n_components": 5}, "n_components=5 with missing='em' must be a whole number between 1 and 4"),
        ({"missing": "em", "n_components": 0.9}, "n_components=0.9 with missing='em' must be a whole number between 1 and 4"),
    ]
    for options, told in refusals:
        with pytest.raises(InputError, match=re.escape(told)):
            ep.FederatedPCA(**{"n_components": 2} | options).fit({"A": X, "B": X} if "missing" in options else low_rank(40, 5, 2))
    frame["x"] = np.nan
    for missing in ("mean", "em"):
        with pytest.raises(InputError, match="feature 'x': every entry is missing at every site"):
            ep.FederatedPCA(2, missing=missing).fit({"A": frame, "B": frame})
    with pytest.raises(InputError, match="NaN"):
        ep.FederatedPCA(2).fit(low_rank(40, 5, 2)).transform(X)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e9 + 0.1])
@pytest.mark.parametrize("scale", [None, "pooled"])
def test_em_refuses_rows_that_do_not_vary(value: float, scale: Any) -> None:
    X = np.full((30, 4), value)
    X[3, 1] = np.nan
    with pytest.raises(InputError, match=r"all values of every feature are the same, .* give rows that vary"):
        ep.FederatedPCA(1, missing="em", scale=scale).fit(X, sites=np.arange(30) % 2)


def test_a_model_keeps_what_it_does_with_holes() -> None:
    X = holed(low_rank(60, 6, 2), 0.2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        likely, mean = (ep.FederatedPCA(2, missing=missing, random_state=0).fit(X) for missing in ("em", "mean"))
    assert [step.kind for step in likely.preparation_] == ["expect"]
    assert [step.kind for step in mean.preparation_] == ["fill"]
    row = X[:1].copy()
    row[:] = np.nan  # nothing is known of it
    np.testing.assert_allclose(likely.transform(row), 0.0, atol=1e-12)
    np.testing.assert_allclose(mean.transform(row), 0.0, atol=1e-12)
