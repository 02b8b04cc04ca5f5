"""The account of everything that crossed a boundary."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eigenpact.runtime import COORDINATOR, Ledger, Message, RoundRecord
from eigenpact.runtime.ledger import describe

TWO = describe((np.zeros((4, 2)), np.array(1, dtype=np.int32)))

names = st.sampled_from(["A", "B", "C"])
groups = st.tuples(
    st.integers(0, 9),
    st.integers(0, 3),
    st.integers(1, 99),
    st.sampled_from(["f", "g"]),
    st.just((COORDINATOR,)) | st.lists(names, unique=True, min_size=1),
    st.just((COORDINATOR,)) | st.lists(names, unique=True, min_size=1),
    st.sampled_from([TWO, describe((np.zeros(3),)), describe((np.zeros((0, 2)),))]),
    st.sampled_from(["", "own", "setup", "resent"]),
)


def filled(entries):
    ledger = Ledger()
    for entry in entries:
        ledger.sent(*entry)
    return ledger


def test_a_message_is_described_by_shapes_dtypes_and_bytes_only():
    assert TWO == (((4, 2), ()), ("float64", "int32"), 68)


def test_groups_are_expanded_to_one_row_per_sender_and_receiver():
    ledger = filled([(2, 1, 7, "f", ("A", "B"), (COORDINATOR,), TWO, "setup")])
    assert list(ledger) == [
        Message(2, 1, 7, "f", name, COORDINATOR, ((4, 2), ()), ("float64", "int32"), 68, "setup") for name in ("A", "B")
    ]
    assert len(ledger) == 2
    assert "2 messages, 136 bytes from sites, 0 bytes to sites" in repr(ledger)


@given(st.lists(groups, max_size=8))
def test_totals_are_those_of_the_rows_without_the_coordinators_own(entries):
    ledger = filled(entries)
    rows = [row for row in ledger if row.note != "own"]
    assert ledger.bytes_down == sum(row.bytes for row in rows if row.sender == COORDINATOR)
    assert ledger.bytes_up == sum(row.bytes for row in rows if row.sender != COORDINATOR)
    assert len(ledger) == len(list(ledger))


@given(st.lists(groups, max_size=6), st.lists(groups, max_size=6))
def test_what_was_entered_since_a_mark_can_be_stored_and_entered_again(before, later):
    whole, copy = filled(before), filled(before)
    mark = whole.mark()
    for entry in later:
        whole.sent(*entry)
    copy.extend(json.loads(json.dumps(whole.since(mark))))
    assert copy == whole
    assert (copy.bytes_up, copy.bytes_down) == (whole.bytes_up, whole.bytes_down)
    assert list(copy) == list(whole)
    everything = Ledger()
    everything.extend(json.loads(json.dumps(whole.since(0))))
    assert everything == whole


def test_a_message_without_arrays_is_none():
    ledger = filled([(1, 0, 1, "f", (COORDINATOR,), ("A",), describe(()), ""), (1, 0, 1, "f", (), ("A",), TWO, "")])
    assert len(ledger) == 0
    assert ledger == Ledger()


def test_ledgers_differ_by_content():
    assert filled([(1, 0, 1, "f", ("A",), ("B",), TWO, "")]) != filled([(1, 0, 1, "f", ("B",), ("A",), TWO, "")])


def test_records_are_stored_without_their_basis():
    record = RoundRecord(3, 2, 0.5, None, 10, 20, 0.1, basis=np.eye(2))
    stored = json.loads(json.dumps(record.to_dict()))
    assert RoundRecord(**stored) == record.without_basis()
    assert record.basis is not None


def test_names_of_many_sites_are_in_memory_once():
    ledger, names = Ledger(), [f"site{i}" for i in range(1000)]
    for step in range(3):
        ledger.sent(step, 0, step, "f", list(names), [COORDINATOR], describe((np.zeros(2),)))
    ledger.extend(json.loads(json.dumps(ledger.since(0))))
    assert len({id(row[4]) for row in ledger.since(0)}) == len({id(row[5]) for row in ledger.since(0)}) == 1
    assert len(ledger) == 6000
