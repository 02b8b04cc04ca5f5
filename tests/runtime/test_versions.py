"""Rows that differ little from those of an earlier run: what two results would show, and the rule that refuses."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import eigenpact as ep
from eigenpact.errors import EigenpactError, FileError, PolicyError
from eigenpact.runtime.versions import FEW_FEATURES, Versions, changed_rows, row_hashes, version_of
from tests.attacks.coordinator import Coordinator, Refused, Victim
from tests.attacks.lasting import Lasting

SECRET = b"what only the site knows"


def rows(n, d=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)) * 3 + 1


# -- hashes ----------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=12), st.lists(st.integers(0, 5), max_size=12))
def test_changed_rows_are_counted_as_multisets(a, b):
    one, other = Counter(a), Counter(b)
    expected = max((one - other).total(), (other - one).total())
    assert changed_rows(*(np.sort(np.array(x, dtype=np.uint64)) for x in (a, b))) == expected


@pytest.mark.parametrize("d", [3, FEW_FEATURES + 1])
def test_how_rows_are_stored_does_not_matter(d):
    X = np.round(rows(7, d)) * (np.random.default_rng(1).random((7, d)) < 0.3)
    known = row_hashes(X, SECRET)
    assert known.dtype == np.uint64
    explicit_zeros = scipy.sparse.csr_matrix(X)
    explicit_zeros.data[:2] = 0.0
    for same in (
        X[::-1],
        np.asfortranarray(X),
        X.astype(np.float32),
        np.where(X == 0, -0.0, X),
        scipy.sparse.csr_array(X),
        scipy.sparse.csc_matrix(X),
    ):
        assert np.array_equal(row_hashes(same, SECRET), known)
    assert np.array_equal(row_hashes(explicit_zeros, SECRET), row_hashes(explicit_zeros.toarray(), SECRET))
    assert changed_rows(known, row_hashes(X[1:], SECRET)) == 1
    assert changed_rows(known, row_hashes(np.vstack([X, X[:2]]), SECRET)) == 2  # though they stand there already


def test_hashes_say_nothing_without_the_secret():
    X = rows(50)
    assert not set(row_hashes(X, b"one")) & set(row_hashes(X, b"another"))
    assert version_of(row_hashes(X, b"one"), b"one") != version_of(row_hashes(X, b"another"), b"another")


def test_what_is_kept_is_the_owners_alone(tmp_path):
    versions, known = Versions(tmp_path / "rows"), row_hashes(rows(20), SECRET)
    versions.keep("v1", known)
    assert (tmp_path / "rows").stat().st_mode & 0o077 == 0
    assert (tmp_path / "rows" / "v1").stat().st_mode & 0o077 == 0
    assert (tmp_path / "rows" / "v1").stat().st_size == 8 * 20
    (tmp_path / "rows" / "v1").write_bytes(b"torn")
    with pytest.raises(FileError, match="must hold 8 bytes a row, it holds 4; restore it, or remove it"):
        versions.check("v2", known, 10)


@pytest.mark.parametrize(("removed", "added", "refused"), [(1, 0, 1), (0, 9, 1), (5, 5, 1), (0, 10, 0), (10, 3, 0), (0, 0, 0)])
def test_fewer_than_the_rule_are_refused(tmp_path, removed, added, refused):
    X = rows(60)
    versions = Versions(tmp_path / "rows")
    versions.keep("v1", row_hashes(X, SECRET))
    now = row_hashes(np.vstack([X[removed:], rows(added, seed=9)]), SECRET)
    if not refused:
        versions.check("v2", now, 10)
        return
    with pytest.raises(PolicyError, match=r"rule min_changed_rows = 10: .* wait until more have changed"):
        versions.check("v2", now, 10)
    versions.check("v2", now, 1)  # the rule is off
    versions.keep("v2", now)
    versions.check("v2", now, 10)  # it left before: an exact repeat shows nothing more


# -- from run to run ---------------------------------------------------------------------------------

TABLES = {name: rows(40, seed=ord(name)) for name in "ABC"}
ONE_MORE = TABLES | {"B": np.vstack([TABLES["B"], [[1.25, -7.5, 3.0, 0.125]]])}


def fit(tables, engine, **options):
    return ep.FederatedPCA(1, solver="gram", max_rounds=50, random_state=0, engine=engine, **options).fit(tables)


def the_row(first, second):
    """What whoever has both models computes."""
    return second.n_samples_seen_ * second.mean_ - first.n_samples_seen_ * first.mean_


@pytest.mark.parametrize("secure", [True, False])
def test_two_models_that_differ_by_a_row_give_the_row_unless_the_rule_refuses(tmp_path, secure):
    lax = Lasting(tmp_path / "lax", {"min_changed_rows": 1})
    careful = Lasting(tmp_path / "careful", {})
    lax.folder.mkdir()
    careful.folder.mkdir()
    stolen = the_row(fit(TABLES, lax, secure=secure), fit(ONE_MORE, lax, secure=secure))
    assert np.abs(stolen - ONE_MORE["B"][-1]).max() < 1e-11
    fit(TABLES, careful, secure=secure)
    with pytest.raises(
        PolicyError, match=r"refused before round 1 by B: rule min_changed_rows = 10: .* take part with the rows of"
    ):
        fit(ONE_MORE, careful, secure=secure)
    fit({name: X[::-1] for name, X in TABLES.items()}, careful, secure=secure)  # exact repeats may be, in any order
    fit(TABLES | {"B": np.vstack([TABLES["B"], rows(10, seed=5)])}, careful, secure=secure)


def test_rows_of_which_nothing_left_do_not_count(tmp_path):
    first = Victim(TABLES["B"], tmp_path, {"solvers": ["gram"]}, versioned=True)
    Coordinator(first)  # a plan is admitted, and nothing asked
    second = Victim(ONE_MORE["B"], tmp_path, {"solvers": ["gram"]}, versioned=True)
    asks = Coordinator(second, run="r2")
    asks.call("count_and_sum")
    with pytest.raises(Refused, match="rule min_changed_rows = 10"):
        Coordinator(Victim(TABLES["B"], tmp_path, {"solvers": ["gram"]}, versioned=True), run="r3")


def test_keys_of_a_session_do_not_count_and_sums_do(tmp_path):
    engine = Lasting(tmp_path, {})
    fit({name: TABLES.get(name, rows(40)) for name in "ACD"}, engine, secure=True)
    with pytest.raises(EigenpactError, match="rule min_apart = 0"):
        fit(TABLES, engine, secure=True)
    assert not (tmp_path / "B.jsonl.rows").exists()
    fit({name: ONE_MORE.get(name, rows(40)) for name in "BEF"}, engine, secure=True)
    assert len(list((tmp_path / "B.jsonl.rows").iterdir())) == 1


def test_two_processes_of_a_site_with_other_rows_do_not_both_answer(tmp_path):
    """Both were admitted before anything left; the second is refused when it is about to reply."""
    both = [Victim(X, tmp_path, {"solvers": ["gram"]}, versioned=True) for X in (TABLES["B"], ONE_MORE["B"])]
    first, second = (Coordinator(victim, run=f"r{i}") for i, victim in enumerate(both))
    first.call("count_and_sum")
    with pytest.raises(Refused, match="rule min_changed_rows = 10"):
        second.call("count_and_sum")


def test_rows_that_change_within_a_run_end_it(tmp_path):
    """Where every message is answered by another process: the memory of one that had other rows is not gone on with."""
    first = Victim(TABLES["B"], tmp_path, {"solvers": ["gram"], "min_changed_rows": 1}, versioned=True)
    asks = Coordinator(first)
    asks.call("count_and_sum")
    second = Victim(ONE_MORE["B"], tmp_path, {"solvers": ["gram"], "min_changed_rows": 1}, versioned=True)
    second.end._server.recall(first.end._server.remember())
    asks._ask = second.end.handle
    with pytest.raises(Refused, match="rule plan: this site's rows changed since the run was admitted here; begin another"):
        asks.call("spread", TABLES["B"].mean(axis=0))
