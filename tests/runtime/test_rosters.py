"""Rosters over time: what combinations of sums show, histories that sites pool, and who can change them."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eigenpact as ep
from eigenpact.errors import EigenpactError, PolicyError
from eigenpact.runtime import site_ledger
from eigenpact.runtime.keys import Session, Trust, pack_roster
from eigenpact.runtime.rosters import HISTORY_BYTES, MOST_NAMES, independent, isolated, pack_history, unpack_history
from tests.attacks.lasting import Lasting

rosters = st.lists(st.sets(st.sampled_from("ABCDEFG"), min_size=1), min_size=1, max_size=7)
ABCD, ABE, CDE = ("A", "B", "C", "D"), ("A", "B", "E"), ("C", "D", "E")


def rank(matrix):
    """By elimination with fractions, as in a textbook."""
    rows, found = [[Fraction(x) for x in row] for row in matrix], 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((i for i in range(found, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[found], rows[pivot] = rows[pivot], rows[found]
        for i in range(found + 1, len(rows)):
            factor = rows[i][column] / rows[found][column]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[found], strict=True)]
        found += 1
    return found


def shown_by(known, few):
    """Whether a combination of rosters has these sites in it alone: without them, the rank is less."""
    names = sorted({name for roster in known for name in roster})
    whole = [[name in roster for name in names] for roster in known]
    return rank(whole) > rank([[name in roster for name in names if name not in few] for roster in known])


@settings(max_examples=100, deadline=None)
@given(rosters, st.integers(1, 4))
def test_isolated_sites_are_those_that_the_ranks_tell(known, min_apart):
    names = sorted({name for roster in known for name in roster})
    few = [some for size in range(1, min_apart) for some in combinations(names, size) if shown_by(known, some)]
    assert isolated(known, min_apart) == (few[0] if few else ())


@settings(max_examples=60, deadline=None)
@given(rosters)
def test_a_history_tells_as_much_as_all_rosters(known):
    less = independent(known)
    names = sorted({name for roster in known for name in roster})
    assert len(less) == rank([[name in roster for name in names] for roster in known]) <= len(names)
    assert all(set(roster) in [set(some) for some in known] for roster in less)
    assert [isolated(less, m) for m in range(1, 4)] == [isolated(known, m) for m in range(1, 4)]
    assert bool(isolated(less, 0)) == bool(isolated(known, 0))  # refused or not; it may name fewer
    with_me = [roster | {"me"} for roster in known]
    assert set(unpack_history(pack_history(with_me), "me")) <= {tuple(sorted(roster)) for roster in with_me}


def test_no_history_is_no_bytes():
    assert pack_history([]) == b""
    assert unpack_history(b"", "A") == []


def test_sixty_four_sites_with_sixty_rosters_each_fit():
    names = [f"hospital-of-some-town-{i:02}" for i in range(64)]
    rng = np.random.default_rng(0)
    packed = pack_history([[names[0], *(n for n in names[1:] if rng.random() < 0.8)] for _ in range(60)])
    assert len(packed) < HISTORY_BYTES / 10
    assert len(unpack_history(packed, names[0])) == 60


def test_a_history_too_long_is_refused_with_a_remedy():
    with pytest.raises(PolicyError, match="more than a session can look at together; ask the same sites as before"):
        pack_history([["me", *(f"site{i}" for i in range(MOST_NAMES))]])


@pytest.mark.parametrize(
    "packed",
    [
        b"[",
        b"7",
        b'[["A"]]',
        b'[["A","B"],["4"]]',
        b'[["A","B"],["0"]]',
        b'[["A","B"],["-1"]]',
        b'[["A","A"],["3"]]',
        b'[["A","B"],["3","1","3"]]',
        b'[["B","C"],["3"]]',  # without the teller
        b'[["A","B"],[3]]',
        b'[["A",7],["1"]]',
        b"[" * 5000,
        json.dumps([["A"], ["1"]]).encode() + b" " * HISTORY_BYTES,
        json.dumps([["A", *map(str, range(MOST_NAMES))], ["1"]]).encode(),
    ],
)
def test_histories_that_are_none_are_refused(packed):
    with pytest.raises(PolicyError, match="what site 'A' tells of earlier sessions are no rosters that it was in"):
        unpack_history(packed, "A")


# -- in a session ----------------------------------------------------------------------------------


def session_of(name, history=b"", run="run", nonce=bytes(32)):
    return Session(name, Trust(key=name.encode() * 32), run, 0, nonce, history)


def test_sites_learn_each_others_histories():
    told = {"C": [ABCD], "D": [ABCD], "E": [ABE]}
    sessions = [session_of(name, pack_history(told[name])) for name in CDE]
    for session in sessions:
        session.join(pack_roster([s.member for s in sessions]))
        assert set(session.histories) == {ABCD, ABE}
        assert isolated([*session.histories, session.names], 2) == ("E",)


@pytest.mark.parametrize("other", [b"", pack_history([ABE])])
def test_a_history_that_is_left_out_or_changed_is_noticed(other):
    sessions = [session_of(name, pack_history([ABCD]) if name != "E" else b"") for name in CDE]
    members = [replace(s.member, history=other) if s.site == "C" else s.member for s in sessions]
    with pytest.raises(PolicyError, match="key and history of site 'C' are not signed by it for this session"):
        sessions[2].join(pack_roster(members))


@pytest.mark.parametrize("before", [{"run": "another"}, {"nonce": b"n" * 32}])
def test_the_history_of_an_earlier_session_is_noticed(before):
    sessions = [session_of(name) for name in CDE]
    members = [session_of("C", **before).member, sessions[1].member, sessions[2].member]
    with pytest.raises(PolicyError, match="key and history of site 'C' are not signed"):
        sessions[2].join(pack_roster(members))


def test_a_session_remembers_its_history():
    sessions = [session_of(name, pack_history([ABCD]) if name != "E" else b"") for name in CDE]
    roster = pack_roster([s.member for s in sessions])
    first = Session.recall("C", Trust(key=b"C" * 32), sessions[0].remember())
    assert first.member == sessions[0].member
    assert first.join(roster) == sessions[1].join(roster)
    assert first.pairs["D"] == sessions[1].pairs["C"]


# -- from run to run ---------------------------------------------------------------------------------


def tables(names):
    return {name: np.random.default_rng(ord(name)).normal(size=(30, 4)) * [4, 3, 2, 1] for name in names}


def fit(names, engine):
    return ep.FederatedPCA(1, solver="gram", max_rounds=50, random_state=0, engine=engine, secure=True).fit(tables(names))


def test_three_rosters_of_which_no_site_saw_all_are_refused(tmp_path):
    engine = Lasting(tmp_path, {"min_apart": 2})
    fit(ABCD, engine)
    fit(ABE, engine)
    with pytest.raises(
        EigenpactError, match=r"rule min_apart = 2: .* the part of E could be computed; ask the same sites as before"
    ):
        fit(CDE, engine)
    assert len(engine.refusals) == 3
    rows = [row for name in CDE for row in site_ledger.read_site_ledger(tmp_path / f"{name}.jsonl")]
    assert sum(row["what"] == "refused" and "min_apart" in row["reason"] for row in rows) == 3
    assert not any(row["what"] == "session" and row["roster"] == list(CDE) for row in rows)
    fit(ABCD, engine)


def test_and_they_would_give_what_the_one_site_has(tmp_path):
    """With a rule that lets them: the sums of three runs are the rows and their sum of E, which no two runs show."""
    engine = Lasting(tmp_path, {"min_apart": 1})
    first, second, third = (fit(names, engine) for names in (ABCD, ABE, CDE))
    n = (second.n_samples_seen_ + third.n_samples_seen_ - first.n_samples_seen_) / 2
    sums = sum(sign * pca.n_samples_seen_ * pca.mean_ for sign, pca in ((1, second), (1, third), (-1, first))) / 2
    E = tables("E")["E"]
    assert n == len(E)
    assert np.allclose(sums / n, E.mean(axis=0), atol=1e-12)


def test_one_site_whose_rules_are_stricter_stops_it(tmp_path):
    engine = Lasting(tmp_path, {"min_apart": 1}, {"A": {"min_apart": 0}})
    fit(("A", "B", "C", "D"), engine)
    fit(("B", "C", "D"), engine)  # without A, who learns of it from the others
    with pytest.raises(EigenpactError, match=r"rule min_apart = 0: .* the part of A could be computed"):
        fit(("A", "B", "C", "D"), engine)
