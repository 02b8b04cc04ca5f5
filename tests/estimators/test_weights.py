"""``sample_weight``: weighted PCA of several sites, compared with numpy on pooled rows, and with rows that are repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data

import eigenpact as ep
from eigenpact.algorithms.graph.features import dense
from eigenpact.errors import EigenpactError, FileError, InputError, InputTypeError
from eigenpact.estimators.model_files import load_model, save_model
from eigenpact.estimators.registry import solvers_for
from eigenpact.numerics.metrics import largest_sine
from eigenpact.numerics.preparation import check_preparable
from eigenpact.numerics.sources import ArraySource, ChangedRows
from eigenpact.numerics.weighted import Weighted, rows_spoken_of, weighted
from eigenpact.numerics.whole_rows import whole_sum

SIZES = {"A": 40, "B": 25, "C": 60}
SPREAD = np.array([6.0, 4.0, 2.5, 1.0, 0.6, 0.3])
ESTIMATES = ("one-shot", "hot-potato")


def tables(seed: int = 0, offset: float = 20.0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    mix = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    return {name: rng.normal(size=(n, 6)) * SPREAD @ mix + offset + i for i, (name, n) in enumerate(SIZES.items())}


def weights(seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {name: rng.gamma(1.0, 2.0, n) for name, n in SIZES.items()}


def by_numpy(X: Any, w: Any, k: int) -> tuple[Any, Any, Any]:
    """Mean, components (k, d) and variances of pooled weighted PCA, by the singular values of centred rows times roots."""
    X, w = np.concatenate(list(X.values())), np.concatenate(list(w.values()))
    mean = np.average(X, axis=0, weights=w)
    _, lengths, Vt = np.linalg.svd(np.sqrt(w)[:, None] * (X - mean), full_matrices=False)
    return mean, Vt[:k], lengths[:k] ** 2 / (w.sum() - 1)


def assert_pooled(pca: Any, X: Any, w: Any, sine: float = 1e-9, relative: float = 1e-9) -> None:
    mean, V, variances = by_numpy(X, w, pca.n_components_)
    assert np.allclose(pca.mean_, mean, rtol=0, atol=1e-10 * np.abs(mean).max())
    assert largest_sine(pca.components_.T, V.T) <= sine
    assert np.allclose(pca.explained_variance_, variances, rtol=relative)


@pytest.mark.parametrize("solver", sorted(set(solvers_for("FederatedPCA")) - {*ESTIMATES}))
def test_every_exact_solver_gives_the_pooled_weighted_answer(solver: str) -> None:
    X, w = tables(), weights()
    pca = ep.FederatedPCA(3, solver=solver, random_state=0).fit(X, sample_weight=w)
    assert pca.converged_
    assert_pooled(pca, X, w, sine=5e-6 if pca.angle_estimate_ is None else max(1e-8, 10 * pca.angle_estimate_), relative=1e-8)
    assert pca.weight_sum_ == pytest.approx(sum(v.sum() for v in w.values()), rel=1e-14)
    assert pca.n_samples_seen_ == 125


@pytest.mark.parametrize("solver", ["gram", "krylov", "subspace"])
@pytest.mark.parametrize("options", [{}, {"secure": True}, {"scale": "pooled"}, {"secure": True, "scale": "pooled"}])
def test_whole_weights_are_repeated_rows(solver: str, options: dict[str, Any]) -> None:
    X, rng = tables(), np.random.default_rng(2)
    times = {name: rng.integers(0, 4, n) for name, n in SIZES.items()}
    rows = np.concatenate([np.repeat(X[name], times[name], axis=0) for name in X])
    truth = PCA(3, svd_solver="full").fit(StandardScaler().fit_transform(rows) if "scale" in options else rows)
    pca = ep.FederatedPCA(3, solver=solver, random_state=0, **options).fit(X, sample_weight=times)
    assert largest_sine(pca.components_.T, truth.components_.T) <= (1e-9 if solver != "subspace" else 5e-6)
    assert np.allclose(pca.explained_variance_, truth.explained_variance_, rtol=1e-9)
    assert np.allclose(pca.explained_variance_ratio_, truth.explained_variance_ratio_, rtol=1e-9)
    assert np.allclose(pca.noise_variance_, truth.noise_variance_, rtol=1e-9)
    assert pca.weight_sum_ == len(rows)
    assert pca.n_samples_seen_ == sum(np.count_nonzero(t) for t in times.values())


def as_source(X: Any) -> Any:
    source = ArraySource(X)
    source.piece_bytes = 7 * 8 * X.shape[1]
    return source


def as_sparse_source(X: Any) -> Any:
    source = as_source(X)
    return ChangedRows(source, sp.csr_matrix, sparse=True)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix, as_source, as_sparse_source, np.float32])
@pytest.mark.parametrize("center", ["pooled", "site", False])
def test_every_form_of_rows(form: Any, center: Any) -> None:
    """Sparse rows with a column that all rows have, far from zero, and others that few have; in memory and in pieces."""
    X = {name: np.where(np.random.default_rng(4).random(x.shape) < 0.4, x, 0.0) for name, x in tables().items()}
    for x in X.values():
        x[:, 1] = 1000.0 + x[:, 1] / 50
    w = weights()
    given = {name: x.astype(np.float32) if form is np.float32 else form(x) for name, x in X.items()}
    pca = ep.FederatedPCA(3, center=center, solver="krylov", random_state=0).fit(given, sample_weight=w)
    truth = given if form is np.float32 else X
    centred = {}
    pooled = np.average(np.concatenate(list(truth.values()), dtype=np.float64), axis=0, weights=np.concatenate(list(w.values())))
    for name, x in truth.items():
        means = {"pooled": pooled, "site": np.average(x.astype(np.float64), axis=0, weights=w[name]), False: 0.0}
        centred[name] = np.sqrt(w[name])[:, None] * (x.astype(np.float64) - means[center])
    _, lengths, Vt = np.linalg.svd(np.concatenate(list(centred.values())), full_matrices=False)
    single = form is np.float32
    assert largest_sine(pca.components_.T.astype(float), Vt[:3].T) <= (1e-6 if single else 1e-9)
    total = sum(v.sum() for v in w.values())
    assert np.allclose(pca.explained_variance_, lengths[:3] ** 2 / (total - 1), rtol=1e-5 if single else 1e-9)


@given(seed=st.integers(0, 10**6), factor=st.sampled_from([0.5, 3.0, 1e3, 1e6]))
@settings(max_examples=10, deadline=None)
def test_order_scale_and_zeros_change_nothing(seed: int, factor: float) -> None:
    X, w = tables(seed), weights(seed + 1)
    rng = np.random.default_rng(seed)
    for v in w.values():
        v[rng.random(len(v)) < 0.3] = 0.0
    pca = ep.FederatedPCA(3, solver="gram").fit(X, sample_weight=w)
    orders = {name: rng.permutation(n) for name, n in SIZES.items()}
    turned = ep.FederatedPCA(3, solver="gram").fit(
        {name: X[name][orders[name]] for name in reversed(X)}, sample_weight={name: w[name][orders[name]] for name in X}
    )
    removed = ep.FederatedPCA(3, solver="gram").fit(
        {name: x[w[name] > 0] for name, x in X.items()}, sample_weight={name: v[v > 0] for name, v in w.items()}
    )
    scaled = ep.FederatedPCA(3, solver="gram").fit(X, sample_weight={name: factor * v for name, v in w.items()})
    for other in (turned, removed, scaled):
        assert np.allclose(other.components_, pca.components_, atol=1e-10)
        assert np.allclose(other.explained_variance_ratio_, pca.explained_variance_ratio_, rtol=1e-10)
        assert np.isclose(other.between_site_share_, pca.between_site_share_, rtol=1e-9)
    assert np.array_equal(removed.components_, pca.components_)
    assert removed.n_samples_seen_ == pca.n_samples_seen_ == sum(np.count_nonzero(v) for v in w.values())


def test_weights_of_one_are_none() -> None:
    X = tables()
    plain = ep.FederatedPCA(3, solver="gram").fit(X)
    ones = ep.FederatedPCA(3, solver="gram").fit(X, sample_weight={name: np.ones(n) for name, n in SIZES.items()})
    assert np.allclose(ones.components_, plain.components_, atol=1e-13)
    assert plain.weight_sum_ is None
    assert ones.weight_sum_ == plain.n_samples_seen_


def test_forms_of_weights() -> None:
    X, w = tables(), weights()
    named = ep.FederatedPCA(2, solver="gram").fit(X, sample_weight=w)
    listed = ep.FederatedPCA(2, solver="gram").fit(list(X.values()), sample_weight=list(w.values()))
    labels = np.repeat(list(SIZES), list(SIZES.values()))
    order = np.random.default_rng(0).permutation(125)
    whole, all_weights = np.concatenate(list(X.values()))[order], np.concatenate(list(w.values()))[order]
    labelled = ep.FederatedPCA(2, solver="gram").fit(whole, sites=labels[order], sample_weight=pd.Series(all_weights))
    alone = ep.FederatedPCA(2, solver="gram").fit(whole, sample_weight=all_weights.tolist())
    for other in (listed, labelled, alone):
        assert np.allclose(other.components_, named.components_, atol=1e-10)
    scores = ep.FederatedPCA(2, solver="gram").fit_transform(whole, sample_weight=all_weights)
    assert np.allclose(scores, alone.transform(whole))


WRONG: list[tuple[Any, str]] = [
    ({"A": np.ones(40), "B": np.ones(25)}, "lacks site 'C'"),
    ({"A": np.ones(40), "B": np.ones(25), "C": np.ones(60), "D": np.ones(2)}, "names 'D', which is no site"),
    ({"A": np.ones(40), "B": np.ones(24), "C": np.ones(60)}, r"site 'B': sample_weight has shape \(24,\) for 25 rows"),
    ({"A": np.ones(40), "B": np.r_[np.ones(24), np.nan], "C": np.ones(60)}, "site 'B': sample_weight of row 24 is nan"),
    ({"A": np.ones(40), "B": np.r_[-1.0, np.ones(24)], "C": np.ones(60)}, "site 'B': sample_weight of row 0 is -1.0"),
    ({"A": np.ones(40), "B": np.zeros(25), "C": np.ones(60)}, "site 'B': sample_weight is zero for all 25 rows"),
    ({"A": np.ones(40), "B": ["x"] * 25, "C": np.ones(60)}, "site 'B': sample_weight has dtype <U1"),
    (np.ones(125), "give a dict with weights for each site"),
    (True, "sample_weight=True is for rows that the engine holds"),
    (
        {name: np.full(n, 1e-3) for name, n in SIZES.items()},
        "add up to 0.125; .* if yours are shares, multiply them by the number",
    ),
    ({name: np.full(n, 1e200) for name, n in SIZES.items()}, r"site 'A': sample_weight of row 0 is 1e\+200, which is too large"),
    ({name: np.full(n, 1e308) for name, n in SIZES.items()}, "site 'A': sample_weight of row 0 is .* which is too large; divide"),
    ({name: np.full(n, 0.9e140 / n) for name, n in SIZES.items()}, r"all rows add up to 2.7e\+140, which is too large.*; divide"),
]


@pytest.mark.parametrize(("given_weights", "told"), WRONG)
def test_wrong_weights_are_refused_by_the_site_s_name(given_weights: Any, told: str) -> None:
    with pytest.raises((InputError, InputTypeError), match=told):
        ep.FederatedPCA(2).fit(tables(), sample_weight=given_weights)


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("total", [1 - 1e-12, 1.0, 1 + 1e-12, 1 + 1e-6, 1.02])
def test_shares_are_refused_however_they_are_rounded(total: float, secure: bool) -> None:
    """Sums of shares are 1 up to rounding, of float64, float32 or of few decimals in a file."""
    for seed in range(6):
        w = weights(seed)
        whole = sum(v.sum() for v in w.values())
        shares = {name: total * v / whole for name, v in w.items()}
        with pytest.raises(
            InputError, match=r"weights are counts of rows.* if yours are shares, multiply them by the number of rows"
        ):
            ep.FederatedPCA(2, solver="gram", secure=secure).fit(tables(), sample_weight=shares)


def test_few_rows_of_whole_weights_are_enough() -> None:
    X = {"A": np.array([[0.0, 1.0]]), "B": np.array([[3.0, 5.0]])}
    pca = ep.FederatedPCA(1).fit(X, sample_weight={"A": [1], "B": [1]})
    assert pca.explained_variance_ == pytest.approx([12.5])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"missing": "em"}, "do not go with missing='em'"),
        ({"missing": "mean"}, "do not go with missing='mean'"),
        ({"prepare": [ep.prepare.Scale()]}, "do not go with prepare"),
        ({"solver": "one-shot"}, "do not go with one-shot merges by 'projection'"),
        ({"solver": ep.solvers.OneShot(merge="sign")}, "do not go with one-shot merges by 'sign'"),
    ],
)
def test_what_does_not_go_with_weights_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        ep.FederatedPCA(2, **options).fit(tables(), sample_weight=weights())


def test_whoever_knows_of_no_weights_is_refused_and_never_wrong() -> None:
    """Weighted rows given to an engine by another estimator, or to a run that was not told: never an unweighted answer."""
    from eigenpact.engines import InProcess
    from eigenpact.runtime import Driver, Outcome

    held = {name: weighted(x, weights()[name]) for name, x in tables().items()}
    estimators = [
        ep.FederatedPCA(2), ep.FederatedPCA(2, missing="em"), ep.FederatedPCA(2, missing="mean"), ep.PersonalizedPCA(1, 1),
        *(ep.FederatedPCA(2, prepare=[p]) for p in (ep.prepare.Scale(), ep.prepare.LogNormalize(), ep.prepare.BatchAdjust())),
        ep.RobustPCA(2),
    ]  # fmt: skip
    for estimator in estimators:
        estimator.n_features_in_ = 6
        algorithm = estimator._find_algorithm(InProcess())

        def job(connection: Any, estimator: Any = estimator, algorithm: Any = algorithm) -> Outcome:
            return Driver(connection).run(estimator._program(algorithm, 0))  # type: ignore[return-value]

        with pytest.raises(EigenpactError, match="weights"):
            InProcess(threads=1).execute(held, job)
    for function in (lambda X: whole_sum(X, np.zeros(6), 1.0), dense, check_preparable):  # of PrivatePCA, of graphs, of prepare
        with pytest.raises(InputTypeError, match="weights"):
            function(held["A"])


def test_model_files_keep_the_sum_of_weights(tmp_path: Path) -> None:
    pca = ep.FederatedPCA(2, solver="gram").fit(tables(), sample_weight=weights())
    save_model(pca, tmp_path / "model")
    assert load_model(tmp_path / "model").weight_sum_ == pca.weight_sum_


def test_a_journal_knows_weights(tmp_path: Path) -> None:
    """A run is not gone on with over other weights, nor without them."""
    X, w = tables(), weights()
    first = ep.FederatedPCA(2, solver="krylov", random_state=0, journal=tmp_path / "journal").fit(X, sample_weight=w)
    again = ep.FederatedPCA(2, solver="krylov", random_state=0, journal=tmp_path / "journal").fit(X, sample_weight=w)
    assert np.array_equal(first.components_, again.components_)
    for other in ({**w, "A": w["A"] * 2}, None):
        with pytest.raises(EigenpactError):
            ep.FederatedPCA(2, solver="krylov", random_state=0, journal=tmp_path / "journal").fit(X, sample_weight=other)


@pytest.mark.parametrize("solver", ["gram", "krylov"])
def test_scikit_learn_s_check_with_some_components(solver: str) -> None:
    check_sample_weight_equivalence_on_dense_data("FederatedPCA", ep.FederatedPCA(3, solver=solver, random_state=0))


def test_rows_of_little_weight_count_little() -> None:
    """For the rule min_rows: what sums speak of, not how many lines a table has."""
    X = np.ones((10, 2))
    assert rows_spoken_of(X) == 10
    assert rows_spoken_of(weighted(X, np.full(10, 0.37))) == 10
    assert rows_spoken_of(weighted(X, np.r_[np.zeros(6), np.ones(4)])) == 4
    assert rows_spoken_of(Weighted(X, np.r_[1e-9 * np.ones(9), 1.0])) == 1


def test_versions_of_rows_tell_weights_apart() -> None:
    """A site's rule min_changed_rows sees a row whose weight changed, and one that a weight of zero takes out."""
    from eigenpact.runtime.versions import changed_rows, row_hashes

    X = tables()["A"]
    plain, ones = row_hashes(X, b"s"), row_hashes(weighted(X, np.ones(40)), b"s")
    assert changed_rows(plain, ones) == 0
    w = np.ones(40)
    w[3] = 0
    assert changed_rows(plain, row_hashes(weighted(X, w), b"s")) == 1
    w[3:5] = 2.0
    assert changed_rows(plain, row_hashes(weighted(X, w), b"s")) == 2


def test_shares_are_refused_at_each_site_of_several():
    """They add up to the number of sites, and every site would count as one row; a single row of weight 1 is what it says."""
    rng = np.random.default_rng(0)
    rows = {"A": rng.normal(size=(30, 3)), "B": rng.normal(size=(20, 3)), "C": rng.normal(size=(25, 3))}
    shares = {name: np.full(len(X), 1 / len(X)) for name, X in rows.items()}
    with pytest.raises(InputError, match=r"site 'A': sample_weight adds up to 1, .*multiply them by the number of rows, 30"):
        ep.FederatedPCA(1).fit(rows, sample_weight=shares)
    counts = {name: weights * len(weights) for name, weights in shares.items()}
    np.testing.assert_allclose(
        ep.FederatedPCA(1).fit(rows, sample_weight=counts).components_, ep.FederatedPCA(1).fit(rows).components_, atol=1e-12
    )
    ep.FederatedPCA(1).fit({"A": rows["A"], "B": rows["B"][:1]}, sample_weight={"A": np.ones(30), "B": [1.0]})


def test_rows_of_weight_zero_must_be_finite():
    X = np.random.default_rng(0).normal(size=(10, 2))
    X[3, 1] = np.nan
    weights = np.ones(10)
    weights[3] = 0
    with pytest.raises(InputError, match=r"1 NaN; only finite numbers .*rows of weight 0 must be finite, too: leave them out"):
        ep.FederatedPCA(1).fit(X, sample_weight=weights)
    with pytest.raises(InputError) as plain:
        ep.FederatedPCA(1).fit(X)
    assert "weight" not in str(plain.value)


def test_a_model_with_another_sum_of_weights_is_damaged(tmp_path):
    X = np.random.default_rng(0).normal(size=(10, 2))
    save_model(ep.FederatedPCA(1).fit(X, sample_weight=np.arange(1.0, 11)), tmp_path / "model")
    manifest = tmp_path / "model" / "manifest.json"
    text = manifest.read_text()
    assert '"weight_sum": 55.0' in text
    for nonsense in ("1e9", "54.0"):
        manifest.write_text(text.replace('"weight_sum": 55.0', f'"weight_sum": {nonsense}'))
        with pytest.raises(FileError, match=r"'weight_sum' is .*, by which the variances are not divided"):
            load_model(tmp_path / "model")
