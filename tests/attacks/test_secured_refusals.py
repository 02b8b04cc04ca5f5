"""Sites whose sums must be secured: whether something fails at one of them is nothing that a coordinator can see.

A trace that is told too small was refused, in a session or without one, by a single site.  Halving then gave the number of rows
of that site, and the mean and variance of each of its features.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.errors import EigenpactError
from eigenpact.runtime.memory import unpack_memory
from tests.attacks.coordinator import Coordinator, Refused, Victim, begin_session
from tests.attacks.guarded import Guarded
from tests.attacks.secured import Brought

D = 4
RNG = np.random.default_rng(0)
TABLES = {name: RNG.normal(size=(n, D)) * [4, 2, 1, 1] + 3 for name, n in (("A", 30), ("B", 45), ("C", 57))}
RULES = {"secure": "required"}


@pytest.fixture
def sites(tmp_path):
    return {name: Victim(X, tmp_path, RULES, name) for name, X in TABLES.items()}


def coordinators(sites, **more):
    return {name: Coordinator(site, secure=True, **more) for name, site in sites.items()}


def failures(site):
    return [row for row in map(json.loads, site.ledger.read_text().splitlines()) if row["what"] == "failed"]


def tell_trace(coordinator, trace):
    coordinator.call("keep_centre", np.zeros(D), np.ones(D), np.float64(trace), kind="local")


def test_nothing_is_told_to_a_site_outside_a_session(sites):
    spy = coordinators(sites)["A"]
    for trace in (1e-9, 1e9):
        with pytest.raises(Refused, match=r"rule secure = required: .* no session was begun"):
            tell_trace(spy, trace)


@pytest.mark.parametrize("trace", [1e-9, 1e9])
def test_a_trace_below_a_sites_own_looks_like_any_other(sites, trace):
    spies = coordinators(sites)
    begin_session(spies, bytes(32))
    for spy in spies.values():
        tell_trace(spy, trace)
        with pytest.raises(Refused, match="rule set-up: what keep_centre tells was agreed in this epoch already"):
            tell_trace(spy, trace)
    spies = coordinators(sites)
    begin_session(spies, bytes(31) + b"1")
    replies = []
    for spy in spies.values():
        tell_trace(spy, trace)
        spy.call("count_and_sum")
        replies.append(spy.call("scatter_triangle")[0])
    assert {(a.shape, a.dtype.name) for a in replies} == {((D * (D + 1) // 2,), "uint64")}
    total = np.sum(replies, axis=0).view(np.int64)[0] * 2.0 ** (np.ceil(np.log2(trace)) - 61)
    right = sum((X[:, 0] ** 2).sum() for X in TABLES.values())
    assert (abs(total / right - 1) < 1e-3) == (trace == 1e9)
    assert [len(failures(site)) for site in sites.values()] == [2 if trace < 1 else 0] * 3


def test_who_failed_is_noise_to_the_end_of_its_session_also_after_a_restart(sites):
    spies = coordinators(sites)
    begin_session(spies, bytes(32))
    spies["A"].call("keep_centre", np.zeros(D), np.ones(D), np.float64(1e-9), kind="local")
    server = sites["A"].end._server
    assert unpack_memory(server.remember())["session"]["masked"]["spoiled"]
    server.recall(server.remember())
    first = spies["A"].call("scatter_triangle")[0]
    assert not np.array_equal(first, spies["A"].call("scatter_triangle")[0])
    assert len(failures(sites["A"])) == 1
    spies = coordinators(sites)
    begin_session(spies, bytes(31) + b"1")
    totals = [spy.call("count_and_sum")[2] for spy in spies.values()]
    assert sum(int(n) for n in totals) % 2**64 == 132


def test_fewer_entries_than_a_site_has_are_not_refused_either(tmp_path):
    sites = {name: Victim(X, tmp_path, RULES | {"min_nonzero": 5}, name) for name, X in TABLES.items()}
    spies = coordinators(sites, min_nonzero=5, also=("drop_rare",))
    begin_session(spies, bytes(32))
    for spy in spies.values():
        spy.call("drop_rare", np.full(D, 40), np.int64(5), kind="local")
    assert [len(failures(site)) for site in sites.values()] == [0, 1, 1]
    assert all(spy.call("count_and_sum")[0].shape == () for spy in spies.values())


def test_replies_whose_shape_tells_of_the_rows_are_refused(tmp_path):
    rules = RULES | {"allow_gather": True, "solvers": ["one-shot", "gram"]}
    sites = {name: Victim(X, tmp_path, rules, name) for name, X in TABLES.items()}
    spies = coordinators(sites)
    begin_session(spies, bytes(32))
    tell_trace(spies["A"], 1e9)
    with pytest.raises(Refused, match="the shape of its reply depends on the rows"):
        spies["A"].call("own_directions", np.int64(4), np.int64(0))


def test_noise_is_not_used_again_for_rows_with_other_features_dropped(tmp_path):
    """In the same epoch, by another session: the difference of both sums would be without noise."""
    rules = RULES | {"solvers": ["noisy-gram", "gram"], "max_epsilon": 9.0}
    sites = {name: Victim(X, tmp_path, rules, name) for name, X in TABLES.items()}
    totals = []
    for i, counts in enumerate(([200] * D, [200] * D, [200, 200, 200, 60])):
        spies = coordinators(sites, also=("drop_rare",))
        begin_session(spies, bytes([i] * 32))
        for spy in spies.values():
            spy.call("drop_rare", np.array(counts), np.int64(100), kind="local")
        asked = np.zeros(D), np.float64(20.0), np.float64(0.01), np.int64(1)
        totals.append(np.sum([spy.call("noisy_triangle", *asked)[0] for spy in spies.values()], axis=0))
    assert np.array_equal(totals[0], totals[1])
    assert not np.any(totals[0] == totals[2])


def test_an_honest_coordinator_is_told_that_the_sum_is_none():
    tables = {name: X.copy() for name, X in TABLES.items()}
    tables["B"][0, 0] = 1e80  # whose square has no place in a secured sum
    guarded = Guarded(RULES)
    with pytest.raises(EigenpactError, match=r"masks did not cancel, .* a site's ledger may tell what failed there"):
        ep.FederatedPCA(2, solver="gram", secure=True, engine=guarded, max_rounds=20).fit(tables)
    right = ep.FederatedPCA(2, solver="gram", secure=True, engine=Guarded(RULES), max_rounds=20).fit(TABLES)
    assert right.converged_


def test_failures_about_the_same_rows_are_few_and_then_say_nothing(tmp_path):
    """A trace told too small spoils the sum, which shows: the largest trace of all sites could be found by halving."""
    brought, spoiled = Brought(tmp_path), []
    brought.announce()
    for told in (1e-3, 1e9, 1e-3, 1e-3, 1e9, 1e9):
        for run in brought.runs.values():
            run.begin_anew()
        brought.begin()
        for run in brought.runs.values():
            run.call("keep_centre", np.zeros(8), np.ones(8), np.float64(told), kind="local")
        try:
            brought.summed("scatter_triangle", trace=told)
            spoiled.append(False)
        except EigenpactError:
            spoiled.append(True)
    assert spoiled == [True, False, True, True, True, True]  # the last two would have been right
    for site in brought.sites.values():
        assert len(failures(site)) == 3
        silent = [row for row in map(json.loads, site.ledger.read_text().splitlines()) if row["what"] == "silent"]
        assert len(silent) == 2
        assert silent[0]["reason"].startswith("rule max_failures = 3: only noise leaves")
