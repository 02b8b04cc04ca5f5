"""The conformance suite on engines of one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eigenpact.engines import InProcess, inprocess
from tests.engines import conformance
from tests.engines.problems import PERSONALIZED, ROBUST, SOLVERS, problem_sites


@pytest.fixture(scope="module")
def serial() -> dict[str, conformance.Answer]:
    """The answers that every engine must give."""
    return conformance.suite(conformance.on(InProcess(threads=1), problem_sites()))


def test_every_solver_and_every_collective_has_a_case(serial: dict[str, conformance.Answer]) -> None:
    assert {*SOLVERS, *PERSONALIZED, *ROBUST} <= set(serial)
    assert {"gram, secured", "krylov, secured", "personalized, secured", "robust, secured"} <= set(serial)
    assert {"Sum", "Gather", "Max", "At", "Chain", "Local", "Exchange on a ring", "Max on a graph"} <= set(serial)
    assert all(answer["ledger"] and answer["bits"] for answer in serial.values())


@pytest.mark.parametrize(
    ("engine", "graphs"),
    [(InProcess(threads=1), True), (InProcess(threads=4), True), (InProcess(round_timeout=30), False)],
    ids=["again", "threads", "messages"],
)
def test_same_bits_and_ledger_in_process(
    engine: Any, graphs: bool, serial: dict[str, conformance.Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads, and sites spoken to by message, change nothing; nor does the order in which sites are given."""
    monkeypatch.setattr(inprocess, "THREADS_PAY", -1.0)
    sites = dict(reversed(problem_sites().items()))
    found = conformance.suite(conformance.on(engine, sites), graphs=graphs)
    assert len(found) == len([case for case in conformance.CASES if graphs or case.graph is None])
    assert conformance.differences(found, serial) == []


def test_what_the_sites_of_a_graph_agree_on(serial: dict[str, conformance.Answer]) -> None:
    """In a graph program messages go from neighbour to neighbour only, and none to a coordinator."""
    for case in conformance.CASES:
        if case.graph is not None:
            for _, _, _, _, sender, receiver, *_ in serial[case.label]["ledger"]:
                assert receiver in case.graph[sender], case.label


def test_global_and_local_parts_are_orthonormal_after_every_round(serial: dict[str, conformance.Answer]) -> None:
    """The sites' own measure, whose bits every engine is compared with: at most 1e-12, and not zero for want of a local part."""
    for label in conformance.WATCHED:
        (text,) = serial[label]["bits"].values()
        worst = np.frombuffer(bytes.fromhex(text.split()[-1]))
        assert len(worst) >= 4, label
        assert 0 < worst.max() <= 1e-12, label
