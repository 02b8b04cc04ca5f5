"""RobustPCA as people use it: input of every kind, what is refused, transform of corrupted rows, what stays private."""

from __future__ import annotations

import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import eigenpact as ep
from eigenpact.errors import InputError, InputTypeError
from eigenpact.estimators import robust
from eigenpact.estimators.plans import functions_of, plan_of


@parametrize_with_checks([ep.RobustPCA(1), ep.RobustPCA(1, center=False, scale="robust")])
@pytest.mark.filterwarnings("ignore::eigenpact.errors.NotConvergedWarning")
def test_sklearn(estimator: Any, check: Any) -> None:
    """Its tables are noise without a low-rank part: a feature may be lost there, and then it says so."""
    check(estimator)


def fitted(seed: int = 0, **options: Any) -> tuple[ep.RobustPCA, Any, Any, Any]:
    rows, low_rank, sparse = ep.datasets.corrupted_problem(50, 150, 3, 0.1, sites=3, seed=seed)
    return ep.RobustPCA(3, random_state=0, **options).fit(rows), rows, low_rank, sparse


# -- transform --------------------------------------------------------------------------------------


@pytest.mark.parametrize("errors", ["large", "own"])
@pytest.mark.parametrize("center", ["pooled", False])
def test_scores_of_corrupted_rows_are_those_of_the_clean_ones(errors: str, center: Any) -> None:
    """Ten per cent of new entries grossly wrong, nothing else: scores within 1e-6; with a plain projection they are far off."""
    rows, low_rank, _ = ep.datasets.corrupted_problem(100, 400, 5, 0.1, sites=4)
    pca = ep.RobustPCA(5, center=center, random_state=0).fit(rows)
    rng = np.random.default_rng(1)
    L0 = np.concatenate(list(low_rank.values()))
    clean = rng.normal(size=(60, 400)) @ L0 / 20
    size = 1e3 if errors == "large" else 5 * clean.std()
    wrong = np.where(rng.random(clean.shape) < 0.1, clean + rng.uniform(-size, size, clean.shape), clean)
    exact = (clean - pca.mean_) @ pca.components_.T
    assert np.linalg.norm(pca.transform(wrong) - exact) <= 1e-6 * np.linalg.norm(exact)
    assert np.linalg.norm((wrong - pca.mean_) @ pca.components_.T - exact) > 0.1 * np.linalg.norm(exact)
    noisy = wrong + 1e-3 * rng.normal(size=clean.shape)
    assert np.linalg.norm(pca.transform(noisy) - exact) <= 2e-3 * np.linalg.norm(exact)
    gaps = np.where(rng.random(clean.shape) < 0.1, np.nan, wrong)
    assert np.linalg.norm(pca.transform(gaps) - exact) <= 1e-6 * np.linalg.norm(exact)
    np.testing.assert_allclose(pca.inverse_transform(pca.transform(wrong)), clean, atol=1e-6)
    low, sparse = pca.decompose(wrong)
    np.testing.assert_allclose(low + sparse, wrong, atol=1e-6)


def test_a_row_alone_has_the_same_scores() -> None:
    pca, rows, _, _ = fitted()
    X = rows["site2"]
    together = pca.transform(X)
    np.testing.assert_allclose(np.concatenate([pca.transform(X[i : i + 1]) for i in range(10)]), together[:10], atol=1e-10)


# -- what a site sees ---------------------------------------------------------------------------------


def test_low_rank_and_sparse_stay_with_their_sites() -> None:
    pca, rows, low_rank, sparse = fitted(private=["site1"])
    np.testing.assert_allclose(pca.low_rank("site0"), low_rank["site0"], atol=1e-8)
    np.testing.assert_allclose(pca.sparse("site0"), sparse["site0"], atol=1e-8)
    with pytest.raises(InputError, match="private"):
        pca.low_rank("site1")
    with pytest.raises(InputError, match="private"):
        pca.sparse("site1")
    assert set(pca.error_shares()) == {"site0", "site2"}
    low, errors = pca.decompose(rows["site1"])  # what its owner may run
    np.testing.assert_allclose(low, low_rank["site1"], atol=1e-8)
    np.testing.assert_allclose(errors, sparse["site1"], atol=1e-8)
    with pytest.raises(InputError, match=r"no site 'nowhere'.*site0, site1, site2"):
        pca.low_rank("nowhere")
    with pytest.raises(InputError, match="list of site names"):
        ep.RobustPCA(3, private="site1").fit(rows)
    with pytest.raises(InputError, match="'oslo', which is no site"):
        ep.RobustPCA(3, private=["oslo"], random_state=0).fit(rows)


def test_a_private_site_takes_part() -> None:
    """The same components as without the word private, and its rows are not remembered."""
    open_, private = fitted()[0], fitted(private=["site1"])[0]
    assert open_.components_.tobytes() == private.components_.tobytes()
    assert set(private._held()) == {"site0", "site2"}


def test_no_row_and_no_score_is_in_the_ledger() -> None:
    """No message has an axis as long as a site's number of rows, and none of a decomposition."""
    pca, rows, _, _ = fitted()
    before = len(pca.ledger_)
    pca.low_rank("site0")
    pca.error_shares()
    assert len(pca.ledger_) == before
    assert all(50 not in shape[1:] for m in pca.ledger_ for shape in m.shapes)
    lengths = {n for m in pca.ledger_ for shape in m.shapes for n in shape}
    uneven = {name: X[: 37 + i] for i, (name, X) in enumerate(rows.items())}
    lengths |= {n for m in ep.RobustPCA(3, random_state=0).fit(uneven).ledger_ for shape in m.shapes for n in shape}
    assert not lengths & {37, 38, 39}


def test_pickling_drops_the_rows() -> None:
    pca, rows, low_rank, _ = fitted(callback=print)
    data = pickle.dumps(pca)
    assert len(data) < sum(X.nbytes for X in rows.values())
    loaded = pickle.loads(data)
    np.testing.assert_array_equal(loaded.transform(rows["site0"]), pca.transform(rows["site0"]))
    with pytest.raises(InputError, match=r"does not hold the rows of site 'site0'; at the site, run decompose\(rows\)"):
        loaded.low_rank("site0")
    np.testing.assert_allclose(loaded.decompose(rows["site0"])[0], low_rank["site0"], atol=1e-8)
    again = clone(pca).fit(rows)
    assert again.components_.tobytes() == pca.components_.tobytes()


def test_a_model_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputTypeError, match="RobustPCA has no model folder yet"):
        ep.save_model(fitted()[0], tmp_path / "model")


# -- input ------------------------------------------------------------------------------------------


def test_rows_on_disk_stay_there(tmp_path: Path) -> None:
    """A memory map gives the same bits as the array, and most of it is never in memory."""
    rows, _, _ = ep.datasets.corrupted_problem(200, 20000, 3, 0.05)
    X = rows["site0"]
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    in_memory = ep.RobustPCA(3, center=False, random_state=0, tol=1e-3).fit(X)
    tracemalloc.start()
    try:
        pca = ep.RobustPCA(3, center=False, random_state=0, tol=1e-3, engine=ep.engines.InProcess(threads=1)).fit(mapped)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.25 * X.nbytes
    assert pca.components_.tobytes() == in_memory.components_.tobytes()
    assert isinstance(pca._held()["site0"].array, np.memmap)


def test_zarr_and_whole_numbers_on_disk(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr", reason="needs eigenpact[zarr]")
    rng = np.random.default_rng(0)
    L = (rng.integers(0, 5, size=(90, 2)) @ rng.integers(0, 9, size=(2, 40))).astype(np.int16)
    X = np.where(rng.random(L.shape) < 0.05, 3000, L).astype(np.int16)
    stored = zarr.create_array(store=str(tmp_path / "a.zarr"), data=X, chunks=(16, 40))
    pca = ep.RobustPCA(2, center=False, random_state=0).fit({"a": stored, "b": X})
    np.testing.assert_allclose(pca.low_rank("a"), L, atol=1e-6)
    mapped = np.lib.format.open_memmap(tmp_path / "c.npy", mode="w+", dtype=np.complex128, shape=(9, 3))
    with pytest.raises(InputTypeError, match="complex128 does not hold real numbers"):
        ep.RobustPCA(2).fit({"a": mapped})
    flat = np.lib.format.open_memmap(tmp_path / "f.npy", mode="w+", dtype=np.float64, shape=(9, 3))
    flat[2, 1] = np.inf
    with pytest.raises(InputError, match="site 'a': column 1 has 1 infinite"):
        ep.RobustPCA(2).fit({"a": flat})


def test_tables_labels_sparse_and_single_precision() -> None:
    pd = pytest.importorskip("pandas")
    pca, rows, low_rank, _ = fitted()
    X = np.concatenate(list(rows.values()))
    labels = np.repeat(list(rows), 50)
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(50)])
    frame.iloc[3, 4] = np.nan
    by_label = ep.RobustPCA(3, random_state=0).fit(frame, sites=labels)
    assert by_label.sites_ == pca.sites_
    assert list(by_label.feature_names_in_) == list(frame.columns)
    np.testing.assert_allclose(by_label.low_rank("site0"), low_rank["site0"], atol=1e-8)
    thin = {name: scipy.sparse.csr_matrix(part) for name, part in rows.items()}
    assert ep.RobustPCA(3, random_state=0).fit(thin).components_.tobytes() == pca.components_.tobytes()
    single = ep.RobustPCA(3, random_state=0).fit({name: part.astype(np.float32) for name, part in rows.items()})
    assert single.components_.dtype == np.float32
    np.testing.assert_allclose(single.components_, pca.components_, atol=1e-5)
    assert single.transform(rows["site0"].astype(np.float32)).dtype == np.float32


def test_features_of_very_different_units() -> None:
    """With scale="robust" one threshold suits them all; the low-rank part comes back in the user's units."""
    pca, rows, low_rank, _ = fitted()
    units = 10.0 ** np.random.default_rng(0).uniform(-4, 4, 50)
    scaled = ep.RobustPCA(3, scale="robust", random_state=0).fit({name: X * units for name, X in rows.items()})
    np.testing.assert_allclose(scaled.low_rank("site1") / units, low_rank["site1"], atol=1e-7)
    assert scaled.error_share_ == pytest.approx(pca.error_share_, abs=1e-3)


def test_only_this_estimator_takes_missing_entries() -> None:
    X = np.random.default_rng(0).normal(size=(20, 4))
    X[3, 2] = np.nan
    with pytest.raises(InputError, match="column 2 has 1 NaN"):
        ep.FederatedPCA(2).fit({"a": X})
    ep.RobustPCA(2, random_state=0, tol=1e-3).fit({"a": X})
    X[4, 2] = np.inf
    with pytest.raises(InputError, match="column 2 has 1 infinite"):
        ep.RobustPCA(2).fit({"a": X})
    X[:, 1] = np.nan
    X[4, 2] = 0
    with pytest.raises(InputError, match="feature 1 is missing in every row"):
        ep.RobustPCA(2).fit({"a": X})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_components": 0}, "n_components=0 must be a whole number between 1 and"),
        ({"n_components": 0.5}, "n_components=0.5 must be a whole number"),
        ({"n_components": 9}, "n_samples, n_features.=4"),
        ({"rank": "about"}, "rank='about' must be 'exact' or 'upper'"),
        ({"center": "site"}, "center='site' must be 'pooled' or False"),
        ({"scale": "pooled"}, "scale='pooled' must be None or 'robust'"),
        ({"solver": "krylov"}, "unknown solver 'krylov'; the solvers of RobustPCA are dcf, shrinking"),
        ({"solver": ep.solvers.Krylov()}, "is one of FederatedPCA; the solvers of RobustPCA are dcf, shrinking"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    X = np.random.default_rng(0).normal(size=(20, 4))
    with pytest.raises(InputError, match=message):
        ep.RobustPCA(**({"n_components": 2} | options)).fit(X)


def test_several_sites_are_transformed_one_by_one() -> None:
    pca, rows, _, _ = fitted()
    with pytest.raises(InputError, match="once for each site"):
        pca.transform(rows)
    with pytest.raises(InputError, match="fit_transform takes one matrix"):
        ep.RobustPCA(2).fit_transform(rows)


def test_not_converging_is_said() -> None:
    rows, _, _ = ep.datasets.corrupted_problem(50, 150, 3, 0.1)
    with pytest.warns(ep.errors.NotConvergedWarning, match="max_rounds=3 reached"):
        assert not ep.RobustPCA(3, random_state=0, max_rounds=3).fit(rows).converged_


def test_site_policies_know_the_solvers() -> None:
    """A plan lists the robust set-up and no gather, unless shares are asked for."""
    plan = plan_of(ep.solvers.Shrinking(), 200, 3)
    assert plan.kinds == ("local", "sum")
    assert set(plan.functions) <= set(functions_of("shrinking"))
    assert any("count_parts" in name for name in plan.functions)
    assert not any("spread" in name for name in plan.functions)
    assert "gather" in ep.RobustPCA(3, tell_shares=True)._plan(ep.solvers.Shrinking()).kinds
    assert any(name == "eigenpact:descend/1" for name in functions_of("dcf"))


@pytest.mark.parametrize("named", [(s for s in ["site1"]), iter(["site1"]), {"site1": 1}, [1]])
def test_private_sites_are_a_list_and_not_used_up(named: Any) -> None:
    """A generator is empty the second time it is read, and the private site would be revealed."""
    rows, _, _ = ep.datasets.corrupted_problem(50, 150, 3, 0.1, sites=3)
    with pytest.raises(InputError, match="must be a list of site names"):
        ep.RobustPCA(3, private=named).fit(rows)


def test_private_is_fixed_by_fitting_and_checked_before_it() -> None:
    names, (rows, _, _) = ["site1"], ep.datasets.corrupted_problem(50, 150, 3, 0.1, sites=3)
    pca = ep.RobustPCA(3, private=names, random_state=0).fit(rows)
    names.clear()
    with pytest.raises(InputError, match="private"):
        pca.low_rank("site1")
    pca.set_params(private=("site0",))
    with pytest.raises(InputError, match="private"):
        pca.low_rank("site0")
    wrong = ep.RobustPCA(3, private={"oslo"}, random_state=0)
    with pytest.raises(InputError, match="'oslo', which is no site; the sites are site0, site1, site2"):
        wrong.fit(rows)
    assert not hasattr(wrong, "components_")


def test_one_of_two_sites_can_be_suspect() -> None:
    rng = np.random.default_rng(0)
    L = rng.normal(size=(600, 3)) @ rng.normal(size=(3, 60))
    X = L.copy()
    X[:60] = np.where(rng.random((60, 60)) < 0.6, 30.0, X[:60])
    pca = ep.RobustPCA(3, random_state=0).fit({"bad": X[:60], "good": X[60:]})
    assert list(pca.suspect_sites()) == ["bad"]


@pytest.mark.parametrize("solver", ["shrinking", "dcf"])
def test_telling_shares_counts_as_a_round(solver: str) -> None:
    rows, _, _ = ep.datasets.corrupted_problem(50, 150, 3, 0.1, sites=3)
    for most in (3, 5):
        with pytest.warns(ep.errors.NotConvergedWarning, match=f"max_rounds={most} reached"):
            pca = ep.RobustPCA(3, solver=solver, random_state=0, max_rounds=most, tell_shares=True).fit(rows)
        assert pca.n_rounds_ == most
        assert set(pca.error_shares()) == set(rows)
    with pytest.raises(InputError, match="leaves no round for tell_shares"):
        ep.RobustPCA(3, tell_shares=True, max_rounds=1).fit(rows)


def test_parts_and_threads_do_not_change_low_rank_parts(monkeypatch):
    """Rows do not depend on one another, so that they are worked on in parts, by as many threads as there are cores."""
    sites, _, _ = ep.datasets.corrupted_problem(40, 90, rank=2, share=0.1, sites=2)
    sites["site0"][3, 5] = np.nan
    pca = ep.RobustPCA(2, center=False, random_state=0).fit(sites)
    found = {}
    for cores in (1, 3):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        for entries in (1 << 16, 7 * 40):
            monkeypatch.setattr(robust, "PART_ENTRIES", entries)
            found[cores, entries] = pca.low_rank("site0")
    assert found[1, 280].tobytes() == found[3, 280].tobytes()
    np.testing.assert_allclose(found[1, 280], found[1, 1 << 16], rtol=0, atol=1e-12)
