"""PersonalizedPCA as users see it: scikit-learn's checks, sites and scores, clusters, ranks, errors."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import eigenpact as ep
from eigenpact.errors import InputError, SiteElsewhereError
from eigenpact.estimators.personalized import PersonalResult
from eigenpact.numerics.metrics import largest_sine

MODEL = ep.datasets.personalized_problem(6, 12, 2, 3, variances=(4.0, 2.0, 0.05), rows=200, seed=1)


def fitted(**options: Any) -> ep.PersonalizedPCA:
    settings = {"center": False, "random_state": 0} | options
    return ep.PersonalizedPCA(2, 3, **settings).fit(MODEL.sites)


@parametrize_with_checks([ep.PersonalizedPCA(), ep.PersonalizedPCA(solver=ep.solvers.PerPCA(start="random"), max_rounds=50)])
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    """scikit-learn's own checks, one matrix as one site."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ep.errors.NotConvergedWarning)
        check(estimator)


def test_one_site_captures_what_pca_captures() -> None:
    """With one site the global and the local part together are the leading components."""
    X = np.random.default_rng(0).normal(size=(60, 7)) * np.arange(1, 8)
    pca = ep.PersonalizedPCA(2, 2, random_state=0).fit(X)
    Y = X - X.mean(axis=0)
    lengths = np.linalg.svd(Y, compute_uv=False)
    assert pca.captured_ == pytest.approx((lengths[:4] ** 2).sum() / (lengths**2).sum(), rel=1e-10)
    assert pca.reconstruction_error(X) == pytest.approx((lengths[4:] ** 2).sum() / 60, rel=1e-8)


def test_recovers_the_model_and_keeps_parts_orthogonal() -> None:
    """Global and local components are those that made the data, up to noise; U and V_i are orthonormal and orthogonal."""
    pca = fitted()
    assert pca.converged_
    assert largest_sine(pca.components_.T, MODEL.U) < 0.05
    for site, V in MODEL.V.items():
        local = pca.local_components_[site]
        assert largest_sine(local.T, V) < 0.05
        W = np.concatenate([pca.components_, local])
        np.testing.assert_allclose(W @ W.T, np.eye(5), atol=1e-12)
        assert (np.diff(pca.local_explained_variance_[site]) <= 0).all()


def test_scores_parts_and_back() -> None:
    """Scores are projections, global first; parts add up to the reconstruction; the error is what they miss."""
    for center, scale in [(False, None), ("pooled", None), ("site", "pooled")]:
        sites = {name: X * np.linspace(1, 3, 12) + i for i, (name, X) in enumerate(MODEL.sites.items())}
        pca = ep.PersonalizedPCA(2, 3, center=center, scale=scale, random_state=0).fit(sites)
        X = sites["site3"]
        pooled = np.concatenate(list(sites.values()))
        mean = {False: np.zeros(12), "pooled": pooled.mean(axis=0), "site": X.mean(axis=0)}[center]
        Y = (X - mean) / pca.scale_
        W = np.concatenate([pca.components_, pca.local_components_["site3"]])
        T = pca.transform(X, site="site3")
        np.testing.assert_allclose(T, Y @ W.T, atol=1e-10)
        back = pca.inverse_transform(T, site="site3")
        shared, own = pca.parts(X, site="site3")
        np.testing.assert_allclose(shared + own + mean, back, atol=1e-10)
        np.testing.assert_allclose(shared, (Y @ pca.components_.T @ pca.components_) * pca.scale_, atol=1e-10)
        missed = (((X - back) / pca.scale_) ** 2).sum() / len(X)
        assert pca.reconstruction_error(X, site="site3") == pytest.approx(missed, rel=1e-8)
        np.testing.assert_allclose(pca.local_part(X), pca.local_components_["site3"], atol=1e-7)


def test_global_scores_for_a_site_that_was_not_there() -> None:
    pca = fitted()
    X = np.random.default_rng(9).normal(size=(5, 12))
    np.testing.assert_allclose(pca.transform_global(X), X @ pca.components_.T, atol=1e-12)


@pytest.mark.parametrize("kind", [sp.csr_array, lambda X: X.astype(np.float32)])
def test_sparse_and_single_precision(kind: Any) -> None:
    """The same subspaces, in the data's own precision."""
    dense = fitted(center="pooled")
    pca = ep.PersonalizedPCA(2, 3, random_state=0).fit({name: kind(X) for name, X in MODEL.sites.items()})
    assert largest_sine(pca.components_.T.astype(float), dense.components_.T) < 1e-5
    single = kind is not sp.csr_array
    assert pca.components_.dtype == (np.float32 if single else np.float64)
    assert pca.transform(kind(MODEL.sites["site0"]), site="site0").shape == (200, 5)


@pytest.mark.filterwarnings("ignore::eigenpact.errors.NotConvergedWarning")
@pytest.mark.parametrize("solver", ["varpro", "perpca", ep.solvers.PerPCA(choice=2), "distpca"])
def test_ranks_by_site_and_sites_with_few_rows(solver: Any) -> None:
    """A dict gives every site its own rank; a site has no more local components than its rows leave."""
    sites = dict(MODEL.sites) | {"tiny": MODEL.sites["site0"][:2], "one": MODEL.sites["site1"][:1]}
    ranks = dict.fromkeys(sites, 3) | {"site2": 0, "site4": 5}
    pca = ep.PersonalizedPCA(2, ranks, solver=solver, center=False, random_state=0, max_rounds=60).fit(sites)
    assert {s: len(V) for s, V in pca.local_components_.items()} == ranks | {"tiny": 2, "one": 1}
    for V in pca.local_components_.values():
        W = np.concatenate([pca.components_, V])
        np.testing.assert_allclose(W @ W.T, np.eye(len(W)), atol=1e-12)
    with pytest.raises(ep.errors.EigenpactError, match="n_local has no entry for site 'one'"):
        ep.PersonalizedPCA(2, {s: 1 for s in sites if s != "one"}, solver=solver).fit(sites)
    for site, V in pca.local_components_.items():
        assert len(V) == len(pca.local_explained_variance_[site])


def test_local_parts_beyond_what_is_left() -> None:
    """More local components than features leave: as many as there are."""
    pca = ep.PersonalizedPCA(2, 30, center=False, random_state=0, misalignment=False).fit(MODEL.sites)
    assert {len(V) for V in pca.local_components_.values()} == {10}
    assert pca.captured_ == pytest.approx(1.0, abs=1e-12)


def test_misalignment_is_the_mean_projectors() -> None:
    """theta against numpy, and a warning where all sites share a local direction."""
    pca = fitted()
    mean = sum(V.T @ V for V in pca.local_components_.values()) / 6
    assert pca.misalignment_ == pytest.approx(1 - np.linalg.eigvalsh(mean)[-1], abs=1e-6)
    assert fitted(misalignment=False).misalignment_ is None
    same = {name: X @ np.diag([5, 4, 3] + [0.1] * 9) for name, X in MODEL.sites.items()}
    with pytest.warns(ep.errors.NotIdentifiableWarning, match="raise n_global or lower n_local"):
        ep.PersonalizedPCA(1, 2, center=False, random_state=0).fit(same)


def test_distances_and_clusters() -> None:
    """Sites of one group have the same local span; distances against projectors; clusters are the groups."""
    groups = ep.datasets.personalized_problem(12, 15, 2, 3, variances=(4.0, 2.0, 0.01), rows=200, n_groups=4, seed=3)
    pca = ep.PersonalizedPCA(2, 3, center=False, random_state=0).fit(groups.sites)
    V = list(pca.local_components_.values())
    projector = [v.T @ v for v in V]
    expected = [[np.linalg.norm(a - b) / np.sqrt(6) for b in projector] for a in projector]
    np.testing.assert_allclose(pca.site_distances_, expected, atol=1e-7)
    found = pca.cluster_sites(4)
    labels = [found[site] for site in pca.sites_]
    assert {(a, b) for a, b in zip(labels, groups.groups.values(), strict=True)} == set(
        dict(zip(labels, groups.groups.values(), strict=True)).items()
    )
    assert len(set(labels)) == 4
    with pytest.raises(InputError, match="n_clusters=13 must be a whole number from 2 to the number of sites, 12"):
        pca.cluster_sites(13)


def test_suggested_ranks_are_the_models() -> None:
    """The grid's first entry is what made the data; too many local components are not identifiable or not needed."""
    found = ep.PersonalizedPCA(center=False, random_state=0, tol=1e-4).suggest_ranks(
        MODEL.sites, n_global=(1, 2, 3), n_local=(2, 3, 5)
    )
    assert (found[0]["n_global"], found[0]["n_local"]) == (2, 3)
    assert len(found) == 9
    assert all(row["validation_error"] > 0 for row in found)


def test_early_stopping_stops_and_keeps_the_best() -> None:
    """Few rows and many components: with rows held out the run ends early, at the least error seen."""
    rng = np.random.default_rng(0)
    sites = {f"s{i}": rng.normal(size=(25, 40)) @ np.diag(0.9 ** np.arange(40)) for i in range(5)}
    pca = ep.PersonalizedPCA(8, 3, validation_fraction=0.3, random_state=0).fit(sites)
    errors = [record.details["held_out"] for record in pca.history_ if "held_out" in record.details]
    assert pca.validation_error_ == min(errors)
    assert "held out" in pca.stop_reason_
    assert pca.converged_
    for site, X in sites.items():  # local parts are of all rows
        np.testing.assert_allclose(np.abs(pca.local_part(X) @ pca.local_components_[site].T), np.eye(3), atol=1e-6)


def test_site_elsewhere() -> None:
    """A site that another process holds: the error names what to do there."""
    pca = fitted()
    names = {field.name: getattr(pca, f"{field.name}_", ()) for field in fields(PersonalResult)}
    result = PersonalResult(**names | {"sites": ("here", "there")})
    pca._adopt(result, {"here": {"V": np.eye(12, 1), "values": np.ones(1), "mean": None}})
    assert pca.local_components_["here"].shape == (1, 12)
    with pytest.raises(SiteElsewhereError, match=r"site 'there' is at that site.*local_part\(rows\)"):
        pca.transform(MODEL.sites["site0"], site="there")
    with pytest.raises(InputError, match="no site 'moon' in this model"):
        pca.transform(MODEL.sites["site0"], site="moon")
    with pytest.raises(InputError, match="site=None: local scores need a site"):
        pca.transform(MODEL.sites["site0"])


def test_clone_pickle_and_labels() -> None:
    pca = fitted(callback=print)
    again = pickle.loads(pickle.dumps(pca))
    assert again.callback is None
    np.testing.assert_array_equal(again.local_components_["site5"], pca.local_components_["site5"])
    X, labels = np.concatenate(list(MODEL.sites.values())), np.repeat(list(MODEL.sites), [len(Y) for Y in MODEL.sites.values()])
    other = clone(pca).set_params(callback=None).fit(X, sites=labels)
    np.testing.assert_array_equal(other.components_, pca.components_)
    with pytest.raises(InputError, match="fit_transform takes one matrix"):
        clone(pca).fit_transform(X, sites=labels)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_global": 0}, "n_global=0 must be a whole number >= 1"),
        ({"n_global": 13}, r"n_global=13 must be between 1 and min\(n_samples, n_features\)=12"),
        ({"n_local": -1}, "n_local=-1 must be a whole number >= 0"),
        ({"n_local": {"site0": 1.5}}, "n_local=1.5 for site 'site0'"),
        ({"n_local": {}}, "has no entry"),
        ({"solver": "krylov"}, "the solvers of PersonalizedPCA are perpca, varpro"),
        ({"solver": ep.solvers.PerPCA}, r"an instance such as ep.solvers.PerPCA\(\)"),
        ({"center": "median"}, "center='median'"),
        ({"scale": "site"}, "scale='site'"),
        ({"validation_fraction": 1.0}, "validation_fraction=1.0 must be a share"),
        ({"tol": -1}, "tol=-1"),
        ({"misalignment": "no"}, "misalignment='no' must be True or False"),
        ({"n_local": dict.fromkeys(MODEL.sites, 1) | {"moon": 1}}, "n_local has an entry for 'moon', which is no site"),
    ],
)
def test_refused_parameters(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ep.PersonalizedPCA(**{"n_global": 2, "n_local": 3} | options).fit(MODEL.sites)


def test_baselines_against_numpy() -> None:
    """Individual, pooled and distPCA from dense eigenvectors."""
    S = {name: X.T @ X / len(X) for name, X in MODEL.sites.items()}
    total = np.mean([np.trace(s) for s in S.values()])
    top = {name: np.linalg.eigh(s)[1][:, -5:] for name, s in S.items()}
    individual = fitted(solver="individual")
    share = np.mean([np.linalg.eigvalsh(s)[-5:].sum() for s in S.values()]) / total
    assert individual.captured_ == pytest.approx(share, rel=1e-10)
    assert individual.transform(MODEL.sites["site0"], site="site0").shape == (200, 5)
    pooled = fitted(solver="pooled")
    X = np.concatenate(list(MODEL.sites.values()))
    assert largest_sine(pooled.components_.T, np.linalg.svd(X, full_matrices=False)[2][:5].T) < 1e-6
    assert len(pooled.local_components_["site0"]) == 0
    distpca = fitted(solver="distpca")
    U = np.linalg.eigh(sum(W @ W.T for W in top.values()))[1][:, -2:]
    assert largest_sine(distpca.components_.T, U) < 1e-7
    P = np.eye(12) - U @ U.T
    V = np.linalg.eigh(P @ S["site2"] @ P)[1][:, -3:]
    assert largest_sine(distpca.local_components_["site2"].T, V) < 1e-6
    assert (individual.n_rounds_, distpca.n_rounds_) == (1, 2)
    assert fitted().captured_ > max(distpca.captured_, pooled.captured_)


def test_data_frames_where_ranks_differ_by_site() -> None:
    """set_output("pandas") needs one list of names: where there is none, an error says what to do."""
    pytest.importorskip("pandas")
    same = fitted().set_output(transform="pandas")
    assert list(same.transform(MODEL.sites["site0"], site="site0").columns) == list(same.get_feature_names_out())
    ranks = dict.fromkeys(MODEL.sites, 3) | {"site2": 1}
    pca = ep.PersonalizedPCA(2, ranks, center=False, random_state=0).fit(MODEL.sites).set_output(transform="pandas")
    for site in ("site0", "site2"):
        with pytest.raises(InputError, match=r"differs by site.*set_output\(transform='default'\)"):
            pca.transform(MODEL.sites[site], site=site)
    assert pca.set_output(transform="default").transform(MODEL.sites["site2"], site="site2").shape == (200, 3)


def test_rank_suggestions_leave_out_what_cannot_be() -> None:
    """Pairs without a dimension left over are skipped; tiny sites are an error that names the share; one seed for all pairs."""
    plain = ep.PersonalizedPCA(center=False, tol=1e-3, random_state=0)
    found = plain.suggest_ranks(MODEL.sites, n_global=(2, 13), n_local=(3, 10, 20))
    assert [(row["n_global"], row["n_local"]) for row in found] == [(2, 3)]
    with pytest.raises(InputError, match="no pair leaves one of 12 features over"):
        plain.suggest_ranks(MODEL.sites, n_global=(6,), n_local=(6,))
    tiny = {name: X[:2] for name, X in MODEL.sites.items()}
    with pytest.raises(InputError, match=r"validation_fraction=0.2 holds out no row"):
        plain.suggest_ranks(tiny, n_global=(1,), n_local=(1,))
    unseeded = ep.PersonalizedPCA(center=False, tol=1e-3)
    twice = unseeded.suggest_ranks(MODEL.sites, n_global=(2, 2), n_local=(3,))
    assert twice[0] == twice[1]


def test_a_share_that_holds_out_no_row_is_refused() -> None:
    with pytest.raises(InputError, match=r"validation_fraction=0.001 holds out no row"):
        fitted(validation_fraction=0.001)


def test_rows_of_any_site_are_centred_by_one_rule() -> None:
    """center="site": global scores and local parts are about the mean of the rows given."""
    pca = ep.PersonalizedPCA(2, 3, center="site", random_state=0).fit(MODEL.sites)
    X = MODEL.sites["site1"] + 7.0
    np.testing.assert_allclose(pca.transform_global(X), (X - X.mean(axis=0)) @ pca.components_.T, atol=1e-10)
    np.testing.assert_allclose(pca.transform_global(X), pca.transform(X - 7.0, site="site1")[:, :2], atol=1e-10)
    np.testing.assert_allclose(pca.local_part(X), pca.local_components_["site1"], atol=1e-6)


@pytest.mark.parametrize(("solver", "rank"), [("varpro", 3), ("distpca", 3), ("individual", 5), ("pooled", 0)])
def test_local_part_is_what_the_solver_gives_a_site(solver: str, rank: int) -> None:
    pca = fitted(solver=solver)
    X = MODEL.sites["site3"]
    V = pca.local_part(X)
    assert V.shape == (rank, 12)
    np.testing.assert_allclose(V, pca.local_components_["site3"], atol=1e-6)
    assert pca.local_part(X, np.int64(2)).shape == (2, 12)
    with pytest.raises(InputError, match=r"n_local=1.5 must be a whole number >= 0"):
        pca.local_part(X, 1.5)


def test_sites_without_local_components_are_alike() -> None:
    ranks = dict.fromkeys(MODEL.sites, 0) | {"site5": 3}
    pca = ep.PersonalizedPCA(2, ranks, center=False, random_state=0).fit(MODEL.sites)
    np.testing.assert_allclose(pca.site_distances_[:5, :5], 0.0, atol=1e-12)
    np.testing.assert_allclose(pca.site_distances_[5], [1, 1, 1, 1, 1, 0], atol=1e-7)


@pytest.mark.filterwarnings("ignore::eigenpact.errors.NotConvergedWarning")
def test_max_rounds_is_never_exceeded() -> None:
    for solver in ("varpro", "perpca", "distpca"):
        with pytest.raises(InputError, match="max_rounds=1 leaves no round after a merged start"):
            fitted(solver=solver, max_rounds=1)
    with pytest.raises(InputError, match="max_rounds=1 leaves no round for the objective"):
        fitted(solver="pooled", max_rounds=1)
    for solver in (ep.solvers.VarPro(start="random"), ep.solvers.PerPCA(start="random"), "individual"):
        assert fitted(solver=solver, max_rounds=1).n_rounds_ == 1
    for solver in ("varpro", "perpca", "distpca", "pooled"):
        for most in (2, 3):
            assert fitted(solver=solver, max_rounds=most).n_rounds_ <= most


def test_scores_are_checked() -> None:
    pca = fitted()
    assert pca.inverse_transform([[1, 2, 3, 4, 5]], site="site0").shape == (1, 12)
    with pytest.raises(ValueError, match="NaN"):
        pca.inverse_transform(np.full((2, 5), np.nan), site="site0")
    for bad in (np.zeros((2, 4)), np.zeros(5)):
        with pytest.raises(InputError, match="scores have shape"):
            pca.inverse_transform(bad, site="site0")


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_reconstruction_error_keeps_its_digits(dtype):
    rng = np.random.default_rng(0)
    sites = {name: (rng.normal(size=(60, 8)) + 1000).astype(dtype) for name in ("a", "b")}
    pca = ep.PersonalizedPCA(3, 2, center=False, tol=1e-3, misalignment=False, random_state=0).fit(sites)
    for site, X in sites.items():
        W = np.concatenate([pca.components_, pca.local_components_[site]]).T.astype(float)
        Y = X.astype(float)
        expected = np.mean(np.sum((Y - (Y @ W) @ W.T) ** 2, axis=1))
        assert pca.reconstruction_error(X, site=site) == pytest.approx(expected, rel=1e-9)


def test_ranks_of_rows_without_noise():
    for seed in range(3):
        sites = ep.datasets.personalized_problem(6, 10, 2, 2, variances=(4.0, 1.0, 0.0), rows=60, seed=seed).sites
        pca = ep.PersonalizedPCA(center=False, random_state=0)
        found = pca.suggest_ranks(sites, n_global=iter((1, 2, 3)), n_local=iter((1, 2, 3)))
        assert len(found) == 9
        assert (found[0]["n_global"], found[0]["n_local"]) == (2, 2)
