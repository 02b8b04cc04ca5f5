"""The ledger, condensed."""

from __future__ import annotations

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.report.messages import bytes_text, shapes_text, steps, what_left
from eigenpact.runtime import Ledger
from eigenpact.runtime.ledger import COORDINATOR, describe


@pytest.fixture(scope="module")
def ledger() -> Ledger:
    rng = np.random.default_rng(0)
    sites = {name: rng.normal(size=(n, 8)) for name, n in (("A", 30), ("B", 2), ("C", 20))}
    return ep.FederatedPCA(3, solver=ep.solvers.Krylov(start="one-shot", proxy="A"), random_state=0).fit(sites).ledger_


def test_what_left_accounts_for_every_byte_up(ledger):
    assert sum(row.bytes for row in what_left(ledger)) == ledger.bytes_up


def test_own_site_and_coordinator_are_not_listed(ledger):
    functions = [row.function for row in what_left(ledger)]
    assert "model_directions" not in functions  # the coordinator's own site
    assert "keep_centre" not in functions  # to the sites only
    assert len(functions) == len(set(functions))


def test_times_and_bytes_are_those_of_the_busiest_site(ledger):
    row = next(row for row in what_left(ledger) if row.function == "leading_directions")
    sent = [m for m in ledger if m.function == "leading_directions" and m.receiver == COORDINATOR]
    assert row.times == 1
    assert row.bytes_per_site == max(m.bytes for m in sent)
    assert row.shapes.split(", ")[0] == "8 x 3"


def test_setup_is_marked(ledger):
    assert {row.function for row in what_left(ledger) if row.setup} == {"count_and_sum", "spread"}


def test_many_shapes_are_cut_and_hops_are_told_apart():
    ledger = Ledger()
    for n in range(1, 6):
        ledger.sent(n, 0, n, "pass_on", ["A"], ["B"], describe((np.zeros(n),)))
    ledger.sent(6, 0, 6, "pass_on", ["B"], [COORDINATOR], describe((np.zeros(6),)))
    hop, last = what_left(ledger)
    assert (hop.receiver, hop.shapes, hop.times, hop.bytes) == ("another site", "1, 2, 3, ...", 5, 8 * 15)
    assert (last.receiver, last.bytes) == (COORDINATOR, 48)


def test_steps_account_for_every_message(ledger):
    rows = steps(ledger)
    count = {"A": 1, "B": 1, "C": 1, COORDINATOR: 1, "2 sites": 2, "3 sites": 3}
    assert sum(count[row.sender] * count[row.receiver] for row in rows) == len(ledger)
    total = sum(row.bytes_each * count[row.sender] * count[row.receiver] for row in rows if row.note != "own")
    assert total == ledger.bytes_up + ledger.bytes_down


def test_texts():
    assert shapes_text([()]) == "number"
    assert shapes_text([]) == ""
    assert [bytes_text(n) for n in (0, 999, 1000, 123_456, 5e9, 7e13)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "123 kB",
        "5.0 GB",
        "70.0 TB",
    ]
