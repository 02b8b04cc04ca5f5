"""FederatedPCA as a user meets it: inputs, attributes, scikit-learn's habits, errors."""

from __future__ import annotations

import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_info

import eigenpact as ep
from eigenpact.errors import InputError, InputTypeError, JournalError
from eigenpact.numerics.metrics import largest_sine
from eigenpact.runtime import steps

X, Y = load_digits(return_X_y=True)
SITES = {f"digit {label}": X[label == Y] for label in range(10)}
EXACT = ["gram", "krylov", "auto"]


ALL_COMPONENTS = {
    f"check_sample_weight_equivalence_on_{kind}_data": "all components of repeated rows are more than there are rows: the others "
    "have no variance, and may be any (with a number of components they are equal: test_weights.py)"
    for kind in ("dense", "sparse")
}


@parametrize_with_checks(
    [ep.FederatedPCA(solver=s) for s in (*EXACT, "subspace")], expected_failed_checks=lambda _: ALL_COMPONENTS
)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    """scikit-learn's own checks, every solver."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ep.errors.NotConvergedWarning)
        check(estimator)


@pytest.mark.parametrize("solver", EXACT)
@pytest.mark.parametrize("k", [1, 10, 64, None])
def test_one_site_is_scikit_learn(solver: str, k: int | None) -> None:
    """On one site every attribute is scikit-learn's, signs included."""
    pca = ep.FederatedPCA(k, solver=solver, random_state=0).fit(X)
    reference = PCA(k, svd_solver="full").fit(X)
    rank = 61  # of the centred digits: three pixels are always white
    well = min(k or 64, rank)
    np.testing.assert_allclose(np.abs(pca.components_[:well]), np.abs(reference.components_[:well]), atol=1e-9)
    np.testing.assert_allclose(pca.components_[:10], reference.components_[:10], atol=1e-9)
    for attribute in ("explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_"):
        np.testing.assert_allclose(getattr(pca, attribute), getattr(reference, attribute), rtol=1e-10, atol=1e-5)
    np.testing.assert_allclose(pca.noise_variance_, reference.noise_variance_, rtol=1e-10, atol=1e-10)
    assert pca.n_components_ == reference.n_components_
    np.testing.assert_allclose(pca.transform(X)[:, :10], reference.transform(X)[:, :10], atol=1e-8)
    np.testing.assert_allclose(
        pca.inverse_transform(pca.transform(X)), reference.inverse_transform(reference.transform(X)), atol=1e-8
    )


@pytest.mark.parametrize("solver", [*EXACT, "subspace"])
def test_exactness_on_digits_by_label(solver: str) -> None:
    """Ten very different sites give the pooled PCA; the angle estimate is honest."""
    pca = ep.FederatedPCA(10, solver=solver, tol=1e-12 if solver == "subspace" else None, random_state=0).fit(SITES)
    reference = PCA(10, svd_solver="full").fit(X)
    sine = largest_sine(pca.components_.T, reference.components_.T)
    assert sine <= (1e-7 if solver == "subspace" else 1e-8)
    np.testing.assert_allclose(pca.explained_variance_, reference.explained_variance_, rtol=1e-10)
    assert 0.1 <= pca.angle_estimate_ / max(sine, np.finfo(float).eps) <= 10


@pytest.mark.parametrize("tol", [1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("solver", ["krylov", "subspace", ep.solvers.Krylov(max_blocks=3), ep.solvers.Krylov(proxy=0)])
def test_angle_estimate_along_the_way(solver: Any, tol: float) -> None:
    """Stopped early, the estimated sine is within a factor of ten of the true one."""
    pca = ep.FederatedPCA(10, solver=solver, tol=tol, random_state=0).fit(SITES)
    reference = PCA(10, svd_solver="full").fit(X)
    sine = largest_sine(pca.components_.T, reference.components_.T)
    assert 0.1 <= pca.angle_estimate_ / max(sine, 1e-15) <= 10


def test_the_same_sites_in_three_ways() -> None:
    """Labels per row, a list of tables, and a dict of tables describe the same sites."""
    labelled = ep.FederatedPCA(4).fit(X, sites=Y)
    listed = ep.FederatedPCA(4).fit([X[label == Y] for label in range(10)])
    named = ep.FederatedPCA(4).fit({str(label): X[label == Y] for label in range(10)})
    assert labelled.components_.tobytes() == named.components_.tobytes()
    assert listed.components_.tobytes() == named.components_.tobytes()
    assert labelled.sites_ == tuple("0123456789")
    assert listed.sites_ == tuple(f"site{i}" for i in range(10))


@pytest.mark.parametrize("solver", [*EXACT, "subspace", ep.solvers.Krylov(start="one-shot"), ep.solvers.Krylov(proxy="digit 3")])
@pytest.mark.parametrize("scale", [None, "pooled"])
@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_array, sp.csr_array])
def test_sparse_equals_dense(solver: Any, scale: Any, kind: Any) -> None:
    """Sparse sites give the dense answer, centred and scaled."""
    sparse = {name: kind(rows) for name, rows in SITES.items()}
    one = ep.FederatedPCA(5, solver=solver, scale=scale, random_state=0).fit(sparse)
    other = ep.FederatedPCA(5, solver="gram", scale=scale).fit(SITES)
    sine = 1e-5 if solver == "subspace" else 1e-8
    assert largest_sine(one.components_.T, other.components_.T) <= sine
    np.testing.assert_allclose(one.explained_variance_, other.explained_variance_, rtol=1e-8)
    np.testing.assert_allclose(one.transform(kind(X)), one.transform(X), atol=1e-9)
    np.testing.assert_allclose(one.score(kind(X[:, :])), one.score(X), rtol=1e-9)


def test_sparse_is_never_densified(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 200,000 features, whose scatter would take 320 GB; any attempt to densify the rows fails."""
    rng = np.random.default_rng(0)
    wide = sp.random_array((60, 200_000), density=5e-5, random_state=0, format="csr", dtype=np.float64)
    wide = wide + sp.csr_array(rng.normal(size=(60, 2)) @ sp.random_array((2, 200_000), density=5e-4, random_state=1))

    def refuse(self: Any, *_: Any, **__: Any) -> None:
        raise AssertionError(f"a sparse matrix of shape {self.shape} was densified")

    monkeypatch.setattr(sp.csr_array, "toarray", refuse)
    monkeypatch.setattr(sp.csr_array, "todense", refuse)
    pca = ep.FederatedPCA(2, solver="krylov", random_state=0).fit({"A": wide[:20], "B": wide[20:]})
    assert pca.converged_
    assert pca.components_.shape == (2, 200_000)


def test_dok_matrix_is_one_matrix_although_it_is_a_dict() -> None:
    """scipy's DOK matrix is a dict; it is still one site."""
    one = ep.FederatedPCA(2).fit(sp.dok_matrix(X[:40]))
    assert one.sites_ == ("site0",)
    assert largest_sine(one.components_.T, PCA(2).fit(X[:40]).components_.T) <= 1e-8


def test_data_frames_with_names_in_another_order() -> None:
    """Columns are matched by name; the output carries names."""
    names = [f"pixel{i}" for i in range(64)]
    a = pd.DataFrame(X[:900], columns=names)
    b = pd.DataFrame(X[900:], columns=names)[names[::-1]]
    pca = ep.FederatedPCA(3).set_output(transform="pandas").fit({"A": a, "B": b})
    assert largest_sine(pca.components_.T, PCA(3, svd_solver="full").fit(X).components_.T) <= 1e-8
    assert list(pca.feature_names_in_) == names
    assert list(pca.transform(a).columns) == ["federatedpca0", "federatedpca1", "federatedpca2"]


@pytest.mark.parametrize("solver", EXACT)
def test_center_site_and_none(solver: str) -> None:
    """Each centring is the PCA of the rows centred that way by hand; the share between sites explains the difference."""
    within = np.concatenate([rows - rows.mean(axis=0) for rows in SITES.values()])
    site = ep.FederatedPCA(5, solver=solver, center="site").fit(SITES)
    assert largest_sine(site.components_.T, np.linalg.svd(within, full_matrices=False)[2][:5].T) <= 1e-8
    none = ep.FederatedPCA(5, solver=solver, center=False).fit(SITES)
    assert largest_sine(none.components_.T, np.linalg.svd(X, full_matrices=False)[2][:5].T) <= 1e-8
    np.testing.assert_array_equal(none.mean_, 0)
    np.testing.assert_allclose(none.explained_variance_ratio_.sum() * (X**2).sum(), (none.singular_values_**2).sum())
    total = ((X - X.mean(axis=0)) ** 2).sum()
    np.testing.assert_allclose(site.between_site_share_, 1 - (within**2).sum() / total)
    assert site.between_site_share_ == pytest.approx(none.between_site_share_)


@pytest.mark.parametrize("solver", EXACT)
def test_scale_is_standard_scaler_then_pca(solver: str) -> None:
    """Pooled scaling equals scikit-learn's StandardScaler before PCA, constant features included."""
    pca = ep.FederatedPCA(5, solver=solver, scale="pooled").fit(SITES)
    pipeline = make_pipeline(StandardScaler(), PCA(5, svd_solver="full")).fit(X)
    assert largest_sine(pca.components_.T, pipeline[-1].components_.T) <= 1e-8
    np.testing.assert_allclose(pca.explained_variance_, pipeline[-1].explained_variance_, rtol=1e-10)
    np.testing.assert_allclose(pca.transform(X), pipeline.transform(X), atol=1e-8)
    np.testing.assert_allclose(
        pca.inverse_transform(pca.transform(X)), pipeline.inverse_transform(pipeline.transform(X)), atol=1e-7
    )


@pytest.mark.parametrize("solver", EXACT)
@pytest.mark.parametrize("share", [0.05, 0.5, 0.95, 0.9999])
def test_a_share_of_the_variance(solver: str, share: float) -> None:
    """A share picks scikit-learn's number of components."""
    pca = ep.FederatedPCA(share, solver=solver, random_state=0).fit(SITES)
    reference = PCA(share, svd_solver="full").fit(X)
    assert pca.n_components_ == reference.n_components_
    assert largest_sine(pca.components_.T, reference.components_.T) <= 1e-8
    assert pca.explained_variance_ratio_.sum() > share


def test_a_share_with_subspace_says_what_to_use() -> None:
    """Subspace iteration cannot know how many components a share takes."""
    with pytest.raises(InputError, match=r"use solver='gram' or solver='krylov'"):
        ep.FederatedPCA(0.9, solver="subspace").fit(SITES)


def test_float32_is_kept_and_accurate() -> None:
    """Single-precision rows: results in single precision, computed in double."""
    singles = {name: rows.astype(np.float32) for name, rows in SITES.items()}
    pca = ep.FederatedPCA(5, random_state=0).fit(singles)
    assert pca.components_.dtype == pca.transform(singles["digit 0"]).dtype == np.float32
    assert largest_sine(pca.components_.T.astype(float), PCA(5, svd_solver="full").fit(X).components_.T) <= 1e-6


def test_score_is_scikit_learns() -> None:
    """Log-likelihood under probabilistic PCA."""
    pca, reference = ep.FederatedPCA(7).fit(SITES), PCA(7, svd_solver="full").fit(X)
    np.testing.assert_allclose(pca.score_samples(X), reference.score_samples(X), rtol=1e-9)
    assert pca.score(X) == pytest.approx(reference.score(X))


def test_history_and_callback_tell_every_round() -> None:
    """One record per round, bytes that add up to the ledger, and the basis for the callback only."""
    seen: list[Any] = []
    pca = ep.FederatedPCA(3, solver="krylov", random_state=0, callback=seen.append).fit(SITES)
    assert [record.round for record in pca.history_] == list(range(1, pca.n_rounds_ + 1))
    assert seen[-1].basis.shape == (64, 3)
    assert all(record.basis is None for record in pca.history_)
    assert sum(r.bytes_up for r in pca.history_) == pca.ledger_.bytes_up
    assert sum(r.bytes_down for r in pca.history_) == pca.ledger_.bytes_down
    up = sum(m.bytes for m in pca.ledger_ if m.receiver == "coordinator")
    assert up == pca.ledger_.bytes_up
    assert pca.history_[-1].details["angle"] == pca.angle_estimate_ <= 1e-8


def test_not_converging_is_a_warning_with_advice() -> None:
    """Too few rounds: a result, a reason and a warning."""
    with pytest.warns(ep.errors.NotConvergedWarning, match="max_rounds=2 reached"):
        pca = ep.FederatedPCA(3, solver="subspace", max_rounds=2, random_state=0).fit(SITES)
    assert not pca.converged_
    assert pca.n_rounds_ == 2
    assert "raise max_rounds" in pca.stop_reason_


@pytest.mark.parametrize("solver", ["krylov", ep.solvers.Krylov(start="one-shot"), ep.solvers.Subspace(start="one-shot")])
def test_max_rounds_counts_the_one_shot_start(solver: Any) -> None:
    """The one-shot start is a round like any other."""
    with pytest.warns(ep.errors.NotConvergedWarning):
        pca = ep.FederatedPCA(3, solver=solver, max_rounds=3, tol=0, random_state=0).fit(SITES)
    assert pca.n_rounds_ == 3


def test_auto_records_the_table_it_chose_from() -> None:
    """Few features: gram; many: krylov.  The estimates are kept."""
    few = ep.FederatedPCA(2).fit(SITES)
    assert few.solver_ == "gram"
    rng = np.random.default_rng(0)
    many = ep.FederatedPCA(2, random_state=0).fit([rng.normal(size=(20, 6000)), rng.normal(size=(20, 6000))])
    assert many.solver_ == "krylov"
    assert {row["solver"] for row in many.solver_choice_} == {"gram", "krylov"}
    assert [row["allowed"] for row in many.solver_choice_ if row["solver"] == "gram"] == [False]


def test_public_rows_as_proxy() -> None:
    """Rows that resemble the sites' save rounds and change nothing else."""
    public = X[::7]
    plain = ep.FederatedPCA(5, solver="krylov", random_state=0).fit(SITES)
    helped = ep.FederatedPCA(5, solver=ep.solvers.Krylov(proxy=public), random_state=0).fit(SITES)
    assert largest_sine(plain.components_.T, helped.components_.T) <= 1e-8
    assert helped.n_rounds_ <= plain.n_rounds_
    assert all(message.note != "own" for message in helped.ledger_)


def test_clone_pickle_and_repr() -> None:
    """Cloned with the same parameters; pickled without callback and rows, solvers and engines included."""
    pca = ep.FederatedPCA(3, solver=ep.solvers.Krylov(max_blocks=5), engine=ep.engines.InProcess(threads=1), callback=print)
    assert clone(pca).get_params()["solver"] is not None
    quiet = clone(pca).set_params(callback=lambda _: None).fit(SITES)
    again = pickle.loads(pickle.dumps(quiet))
    assert again.callback is None
    np.testing.assert_array_equal(again.transform(X), quiet.transform(X))
    assert len(pickle.dumps(quiet)) < X.nbytes / 4
    assert "FederatedPCA" in repr(pca)


def test_pipeline_and_grid_search_with_site_labels() -> None:
    """Site labels reach fit through metadata routing."""
    with sklearn.config_context(enable_metadata_routing=True):
        pca = ep.FederatedPCA(8).set_fit_request(sites=True)
        pipeline = make_pipeline(pca, LogisticRegression(max_iter=2000))
        pipeline.fit(X, Y, sites=Y)
        assert pipeline[0].sites_ == tuple("0123456789")
        search = GridSearchCV(pca, {"n_components": [2, 20]}, cv=3).fit(X, sites=Y)
        assert search.best_params_ == {"n_components": 20}
        assert len(search.best_estimator_.sites_) == 10


def test_fit_transform_of_one_matrix_and_of_several_sites() -> None:
    """One matrix gets its scores; several sites are told what to do."""
    np.testing.assert_allclose(ep.FederatedPCA(3).fit_transform(X, sites=Y), ep.FederatedPCA(3).fit(X, sites=Y).transform(X))
    with pytest.raises(InputError, match=r"call fit\(X\), then transform for the rows of each site"):
        ep.FederatedPCA(3).fit_transform(SITES)


def frame(**columns: Any) -> pd.DataFrame:
    """A small table."""
    return pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [2.0, 1.0, 0.0]} | columns)


@pytest.mark.parametrize(
    ("sites", "error", "message"),
    [
        ({"A": np.ones((3, 4)), "B": np.ones((3, 5))}, InputError, "site 'B' has 5 features, site 'A' has 4"),
        ({"A": frame(), "B": frame(c=1.0)}, InputError, r"'B'.*has in addition \['c'\]"),
        ({"A": frame(), "B": frame().rename(columns={"b": "z"})}, InputError, r"lacks \['b'\].*\['z'\]"),
        ({"A": np.eye(3), "B": np.array([[1, np.nan, 0], [0, np.inf, np.nan]])}, InputError, "'B': column 1 has 1 NaN and 1"),
        ({"A": frame(), "B": frame(b=[1, np.nan, 2])}, InputError, "site 'B': column 'b' has 1 NaN"),
        ({"A": np.eye(3), "B": np.zeros((0, 3))}, InputError, "site 'B' has no rows"),
        ({"A": frame(), "B": frame(b=["x", "y", "z"])}, InputTypeError, "site 'B': columns 'b'"),
        ({"A": np.eye(2), "B": np.array([["u", "v"]], dtype=object)}, InputError, "site 'B': could not convert"),
        ({"A": np.eye(2), "B": np.array([[{}, 1]], dtype=object)}, InputTypeError, "site 'B'.*only real numbers"),
        ({}, InputError, "at least one"),
        ([], InputError, "at least one"),
        ({1: np.eye(3), "1": np.eye(3)}, InputError, "two sites read '1' as text"),
        ({"A": np.eye(3)[:1]}, InputError, "n_samples=1"),
    ],
)  # fmt: skip
def test_bad_sites_are_named(sites: Any, error: type[Exception], message: str) -> None:
    """Every error names the site and the difference, and leaves the estimator unfitted."""
    pca = ep.FederatedPCA(1)
    with pytest.raises(error, match=message) as caught:
        pca.fit(sites)
    assert isinstance(caught.value, ep.errors.EigenpactError)
    assert not hasattr(pca, "components_")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_components": 65}, r"n_components=65 must be between 1 and min\(n_samples, n_features\)=64"),
        ({"n_components": 0}, "n_components=0"),
        ({"n_components": 1.5}, "n_components=1.5"),
        ({"n_components": "mle"}, "n_components='mle'"),
        ({"solver": "svd"}, "unknown solver 'svd'; the solvers of FederatedPCA are auto, faps, gram, krylov"),
        ({"solver": 3}, "solver=3 must be one of auto, faps, .* or an instance such as ep.solvers.FAPS"),
        ({"solver": ep.solvers.Krylov(proxy="nobody")}, "proxy='nobody' is not a site; the sites are digit 0"),
        ({"solver": ep.solvers.Krylov(proxy=10)}, "proxy=10 is not an index of the 10 sites"),
        ({"engine": "spark"}, "unknown engine 'spark'; the engines are inprocess, mpi"),
        ({"center": "median"}, "center='median' must be 'pooled', 'site' or False"),
        ({"center": 0}, "center=0 must be"),
        ({"scale": True}, "scale=True must be None or 'pooled'"),
        ({"tol": -1}, "tol=-1"),
        ({"tol": "small"}, "tol='small'"),
        ({"callback": 3}, "callback=3 must be a function"),
        ({"solver": ep.solvers.Krylov(proxy=True)}, "proxy=True must be a site's name"),
        ({"solver": ep.solvers.Krylov(proxy=np.array([["a", "b"]]))}, "proxy is neither a site nor a dense table"),
        ({"solver": ep.solvers.Krylov(proxy=sp.eye_array(64))}, "proxy is neither a site nor a dense table"),
        ({"max_rounds": 0}, "max_rounds=0"),
        ({"max_rounds": "many"}, "max_rounds='many' must be a whole number"),
        ({"random_state": -1}, "random_state=-1 is not a seed"),
        (
            {"solver": ep.solvers.Krylov(proxy=np.ones((5, 3)))},
            r"proxy rows have shape \(5, 3\); give a table with the sites' 64",
        ),
    ],
)
def test_bad_parameters_are_named(options: dict[str, Any], message: str) -> None:
    """Every error names the value, what is allowed and what to do; a fitted estimator keeps its fit."""
    pca = ep.FederatedPCA(2).fit(SITES)
    before = pca.components_
    with pytest.raises(InputError, match=message):
        pca.set_params(**options).fit(SITES)
    assert pca.components_ is before


@pytest.mark.parametrize("algorithm", [ep.solvers.Krylov, ep.solvers.Subspace])
def test_unknown_start(algorithm: Any) -> None:
    """A start that does not exist is not taken for another."""
    with pytest.raises(InputError, match="start='oneshot' must be one of random, one-shot"):
        algorithm(start="oneshot")


def test_nan_in_labelled_rows_names_the_site() -> None:
    """Rows labelled by site: the error names the site, not the whole."""
    holes = X.copy()
    holes[Y == 4, 7] = np.nan
    with pytest.raises(InputError, match="site '4': column 7 has 181 NaN"):
        ep.FederatedPCA(2).fit(holes, sites=Y)


def test_transform_of_several_sites_says_what_to_do() -> None:
    """Scores stay with their sites."""
    pca = ep.FederatedPCA(2).fit(SITES)
    for several in (SITES, list(SITES.values())):
        with pytest.raises(InputError, match="give one table of rows; call once for each site"):
            pca.transform(several)


def test_max_blocks_too_small() -> None:
    """A basis of two blocks cannot be restarted."""
    with pytest.raises(InputError, match="max_blocks=2 must be a whole number >= 3"):
        ep.solvers.Krylov(max_blocks=2)


def test_labels_must_fit_the_rows() -> None:
    """One label per row, and labels only for one matrix."""
    with pytest.raises(InputError, match="sites has 3 labels for 1797 rows"):
        ep.FederatedPCA(2).fit(X, sites=[1, 2, 3])
    with pytest.raises(InputError, match="leave sites out"):
        ep.FederatedPCA(2).fit(SITES, sites=Y)


@pytest.mark.parametrize(
    "solver", ["auto", "gram", "krylov", "subspace", ep.solvers.Krylov(max_blocks=np.int64(4)), ep.solvers.Krylov(proxy=X[:9])]
)
def test_a_finished_journal_gives_the_same_model_again(solver: Any, tmp_path: Path) -> None:
    """Every solver and numpy's own numbers as parameters can be journaled; a second fit replays to the same bits."""
    options = {"tol": np.float32(1e-6), "max_rounds": np.int64(500), "random_state": np.random.RandomState(3)}
    one = ep.FederatedPCA(np.int64(3), solver=solver, journal=tmp_path / "run", **options).fit(SITES)
    options["random_state"] = np.random.RandomState(3)
    again = ep.FederatedPCA(np.int64(3), solver=solver, journal=tmp_path / "run", **options).fit(SITES)
    assert one.components_.tobytes() == again.components_.tobytes()
    assert one.n_rounds_ == again.n_rounds_


def test_a_journal_of_another_seed_or_solver_is_refused(tmp_path: Path) -> None:
    """The error names what differs, and the journal is left alone."""
    path = tmp_path / "run"
    ep.FederatedPCA(3, solver="krylov", random_state=0, journal=path).fit(SITES)
    before = path.read_bytes()
    for options, named in (({"random_state": 1}, "seed"), ({"solver": "gram"}, "solver"), ({"tol": 1e-3}, "tol")):
        with pytest.raises(JournalError, match=named):
            ep.FederatedPCA(3, **({"solver": "krylov", "random_state": 0, "journal": path} | options)).fit(SITES)
    assert path.read_bytes() == before


@pytest.mark.parametrize("solver", ["subspace", "krylov", ep.solvers.Krylov(start="one-shot"), ep.solvers.Krylov(max_blocks=3)])
@pytest.mark.parametrize("max_rounds", [5, 3000])
def test_resume_from_a_journal_cut_at_every_round(
    solver: Any, max_rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped at any round of a journal that is cut every round, the run goes on to the same bits."""
    monkeypatch.setattr(steps, "CUT_AFTER", 1)
    options: dict[str, Any] = {"solver": solver, "max_rounds": max_rounds, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ep.errors.NotConvergedWarning)
        whole = ep.FederatedPCA(3, **options).fit(SITES)
        for stop in (1, 2, whole.n_rounds_ - 1, whole.n_rounds_):
            path = tmp_path / f"run{stop}"

            def interrupt(record: Any, stop: int = stop) -> None:
                if record.round == stop:
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                ep.FederatedPCA(3, journal=path, callback=interrupt, **options).fit(SITES)
            resumed = ep.FederatedPCA(3, journal=path, **options).fit(SITES)
            assert resumed.components_.tobytes() == whole.components_.tobytes(), stop
            assert resumed.n_rounds_ == whole.n_rounds_
            assert [r.kkt for r in resumed.history_] == [r.kkt for r in whole.history_]


def test_a_failed_refit_leaves_the_model_usable() -> None:
    """Bad data in a later site of a refit change nothing, not even the number of features."""
    pca = ep.FederatedPCA(2).fit(SITES)
    scores = pca.transform(X)
    bad = {"A": np.eye(8), "B": np.full((3, 8), np.nan)}
    with pytest.raises(InputError, match="site 'B'"):
        pca.fit(bad)
    assert pca.n_features_in_ == 64
    np.testing.assert_array_equal(pca.transform(X), scores)


def test_rows_without_a_label_are_named() -> None:
    """NaN and None are no labels."""
    for missing in (np.nan, None):
        labels = np.array([1.0] * 10, dtype=object)
        labels[4] = missing
        with pytest.raises(InputError, match="row 4 and 0 more have no site label"):
            ep.FederatedPCA(2).fit(X[:10], sites=labels)


def test_inverse_transform_checks_the_width() -> None:
    """Scores of another number of components are refused by name."""
    with pytest.raises(InputError, match=r"scores have shape \(3, 5\); give a table with 2 columns"):
        ep.FederatedPCA(2).fit(SITES).inverse_transform(np.ones((3, 5)))


def test_values_whose_squares_overflow() -> None:
    """Not a NaN somewhere inside, but what to do."""
    with pytest.raises(InputError, match="overflow; give the data in other units"), np.errstate(over="ignore"):
        ep.FederatedPCA(2).fit({"A": X * 1e160})


def test_overlapping_fits_restore_the_number_of_blas_threads() -> None:
    """Two fits in two threads: whichever ends last, BLAS has as many threads as before."""
    before = [info["num_threads"] for info in threadpool_info()]
    with ThreadPoolExecutor(4) as pool:
        fits = [pool.submit(ep.FederatedPCA(3, solver="krylov", random_state=i).fit, SITES) for i in range(12)]
        assert all(f.result().converged_ for f in fits)
    assert [info["num_threads"] for info in threadpool_info()] == before


def test_a_residual_that_could_not_be_confirmed_is_not_called_converged() -> None:
    """Stopped by max_rounds right after a start that may have missed a direction: small residual, but no claim."""
    own, other = np.random.default_rng(0).normal(size=(2, 30, 40))
    own[:, 0], other[:, 3] = np.linspace(-3, 3, 30), np.linspace(-4, 4, 30)
    with pytest.warns(ep.errors.NotConvergedWarning, match="a direction of larger variance is not excluded yet"):
        pca = ep.FederatedPCA(1, solver=ep.solvers.Krylov(proxy="a"), tol=0.5, max_rounds=1, center="site", random_state=0).fit(
            {"a": own, "b": other}
        )
    assert not pca.converged_
