"""Rare features: dropped for everyone before anything else, by sites that see to it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from sklearn.decomposition import PCA

import eigenpact as ep
from eigenpact.errors import InputError, PolicyError
from eigenpact.numerics.columns import columns_nonzero, with_zeros
from eigenpact.runtime.memory import unpack_memory
from tests.attacks.coordinator import Coordinator, Refused, Victim
from tests.attacks.lasting import Lasting

D = 8
RARE = (2, 5, 6)


def genotypes(seed, n=40):
    """Counts 0, 1 or 2; of features 2 and 5 few rows have any, of feature 6 none."""
    rng = np.random.default_rng(seed)
    X = rng.binomial(2, [0.4, 0.3, 0.0, 0.2, 0.5, 0.0, 0.0, 0.25], size=(n, D)).astype(float)
    X[:2, 2], X[3, 5] = 1.0, 2.0
    return X


TABLES = {name: genotypes(i) for i, name in enumerate("ABC")}
POOLED = np.vstack(list(TABLES.values()))
KEPT = [i for i in range(D) if i not in RARE]
SPARSE = {name: scipy.sparse.csr_array(X) for name, X in TABLES.items()}


def pca(k=2, **options):
    return ep.FederatedPCA(k, **{"solver": "gram", "max_rounds": 50, "random_state": 0, "min_nonzero": 10} | options)


@pytest.mark.parametrize("solver", ["gram", "krylov", "subspace"])
@pytest.mark.parametrize("secure", [True, False])
@pytest.mark.parametrize("tables", [TABLES, SPARSE], ids=["dense", "sparse"])
def test_the_result_is_the_pca_of_the_kept_columns(solver, secure, tables):
    found = pca(solver=solver, secure=secure, max_rounds=500).fit(tables)
    expected = PCA(2, svd_solver="full").fit(POOLED[:, KEPT])
    assert found.dropped_features_ == RARE
    assert found.n_features_in_ == D
    assert np.all(found.components_[:, list(RARE)] == 0)
    assert np.all(found.mean_[list(RARE)] == 0)
    assert np.allclose(np.abs(found.components_[:, KEPT]), np.abs(expected.components_), atol=1e-5)
    assert np.allclose(found.explained_variance_ratio_, expected.explained_variance_ratio_)
    assert np.isclose(found.noise_variance_, expected.noise_variance_)
    assert np.allclose(np.abs(found.transform(POOLED)), np.abs(expected.transform(POOLED[:, KEPT])), atol=1e-4)
    assert np.isclose(found.score(POOLED), expected.score(POOLED[:, KEPT]))


def test_scaled_and_all_components_are_those_of_the_kept_columns():
    found = pca(None, scale="pooled").fit(TABLES)
    assert found.n_components_ == len(KEPT)
    assert np.all(found.scale_[list(RARE)] == 1)
    with pytest.raises(InputError, match="rows of 5 features"):
        pca(6).fit(TABLES)


def test_without_the_parameter_nothing_is_counted_or_dropped():
    found = pca(min_nonzero=None).fit(TABLES)
    assert found.dropped_features_ == ()
    assert not any("nonzero" in message.function for message in found.ledger_)
    with pytest.raises(InputError, match="min_nonzero=0 must be a whole number >= 1"):
        pca(min_nonzero=0).fit(TABLES)


def test_a_model_folder_has_them(tmp_path):
    found = pca().fit(TABLES)
    ep.save_model(found, tmp_path / "model")
    again = ep.load_model(tmp_path / "model")
    assert again.dropped_features_ == RARE
    assert again.score(POOLED) == found.score(POOLED)


def test_a_run_that_is_resumed_drops_them_again(tmp_path):
    def stop(_record):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pca(solver="krylov", journal=tmp_path / "journal", callback=stop, secure=True).fit(TABLES)
    found = pca(solver="krylov", journal=tmp_path / "journal", secure=True).fit(TABLES)
    assert found.dropped_features_ == RARE
    assert found.components_.tobytes() == pca(solver="krylov", secure=True).fit(TABLES).components_.tobytes()


# -- what a site sees to ---------------------------------------------------------------------------


@pytest.mark.parametrize("secure", [True, False])
def test_a_site_with_the_rule_takes_part_only_where_they_are_dropped(tmp_path, secure):
    engine = Lasting(tmp_path, {} if secure else {"min_nonzero": 1}, {"B": {"min_nonzero": 10}})
    for least in (None, 9) if secure else (9,):
        with pytest.raises(PolicyError, match=r"refused before round 1 by B: rule min_nonzero = 10: .*fit with min_nonzero=10"):
            pca(min_nonzero=least, engine=engine, secure=secure).fit(TABLES)
    assert pca(engine=engine, secure=secure).fit(TABLES).dropped_features_ == RARE


def test_a_site_without_the_rule_tells_counts_in_secured_sums_alone(tmp_path):
    with pytest.raises(
        PolicyError, match=r"rule min_nonzero = 0: this site tells how many entries are not 0 only in secured sums"
    ):
        pca(engine=Lasting(tmp_path, {})).fit(TABLES)
    assert pca(engine=Lasting(tmp_path, {}), secure=True).fit(TABLES).dropped_features_ == RARE
    with pytest.raises(Refused, match="rule min_nonzero = 0"):
        Coordinator(Victim(TABLES["B"], tmp_path, {"solvers": ["gram"]}), also=("count_nonzero",))


def hostile(tmp_path, **rules):
    """A coordinator that announces what the site wants and then asks what it likes."""
    victim = Victim(TABLES["B"], tmp_path, {"solvers": ["gram"], "min_nonzero": 10} | rules)
    return victim, Coordinator(victim, min_nonzero=10, also=("count_nonzero", "drop_rare"))


@pytest.mark.parametrize("function", ["count_and_sum", "scatter_triangle"])
def test_nothing_is_answered_before_they_are_dropped(tmp_path, function):
    _, asks = hostile(tmp_path)
    with pytest.raises(Refused, match="rule min_nonzero = 10: rare features are counted and dropped before anything else"):
        asks.call(function)
    asks.call("count_nonzero")
    with pytest.raises(Refused, match="before anything else"):
        asks.call("count_and_sum")


def test_what_is_told_is_compared_with_what_the_site_has(tmp_path):
    _, asks = hostile(tmp_path)
    (own,) = asks.call("count_nonzero")
    with pytest.raises(Refused, match="fewer entries were told for all sites than this one has itself"):
        asks.call("drop_rare", own - (own > 0), np.int64(10), kind="local")
    with pytest.raises(Refused, match="rule min_nonzero = 10: the run would keep features of which 2 entries are not 0"):
        asks.call("drop_rare", own, np.int64(2), kind="local")


def test_dropped_columns_are_zero_in_whatever_is_asked(tmp_path):
    """Also in another process of the site, and until the next epoch, which begins with the count again."""
    victim, asks = hostile(tmp_path, exact_replies=True)
    (own,) = asks.call("count_nonzero")
    asks.call("drop_rare", own, np.int64(10), kind="local")
    with pytest.raises(Refused, match="rule set-up: what drop_rare tells was agreed in this epoch already"):
        asks.call("drop_rare", own + 100, np.int64(10), kind="local")
    other = Victim(TABLES["B"], tmp_path, victim.rules)
    other.end._server.recall(victim.end._server.remember())
    assert unpack_memory(victim.end._server.remember())["kept"]["dropped"].tolist() == list(RARE)
    for end in (victim.end, other.end):
        asks._ask = end.handle
        _, _, _, sums = asks.call("count_and_sum")
        assert not sums[list(RARE)].any()
        assert np.allclose(sums[KEPT], TABLES["B"].sum(axis=0)[KEPT])
        asks.step -= 1
        asks._ask = other.end.handle
    asks.begin_anew()
    with pytest.raises(Refused, match="before anything else"):
        asks.call("count_and_sum")


def test_what_is_not_enforced_counts_that_a_coordinator_makes_up(tmp_path):
    """As the page says: no site knows more of the sum than its own part."""
    _, asks = hostile(tmp_path, exact_replies=True)
    (own,) = asks.call("count_nonzero")
    asks.call("drop_rare", own + 10, np.int64(10), kind="local")
    assert np.allclose(asks.call("count_and_sum")[3], TABLES["B"].sum(axis=0))


def test_columns_of_any_kind_of_rows():
    X = np.array([[0.0, 2.0, np.nan], [-0.0, 0.0, 1.0]])
    duplicated = scipy.sparse.coo_array(([1.0, -1.0, 5.0], ([0, 0, 1], [0, 0, 1])), shape=(2, 3)).tocsr()
    assert columns_nonzero(X).tolist() == [0, 1, 1], "what is missing is no entry"
    assert columns_nonzero(duplicated).tolist() == [0, 1, 0]
    assert np.array_equal(with_zeros(X, np.array([2])), [[0, 2, 0], [0, 0, 0]])
    assert with_zeros(X, np.array([], dtype=int)) is X
    less = with_zeros(scipy.sparse.csr_array(X), np.array([1, 2]))
    assert scipy.sparse.issparse(less)
    assert less.nnz == 0
