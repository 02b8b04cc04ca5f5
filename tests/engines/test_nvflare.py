"""FederatedPCA between FLARE sites with mutual TLS on loopback, compared with the in-process engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import eigenpact as ep
from eigenpact.estimators.plans import functions_of
from tests.engines import conformance
from tests.engines.problems import SOLVERS, problem_sites

pytest.importorskip("nvflare", reason="needs eigenpact[nvflare]")

from tests.engines.federation import Parties

pytestmark = pytest.mark.xdist_group("nvflare")

NAMES = ("accra", "lima", "quito")
"""Three sites; the programs of the conformance suite name two of them."""

OPEN_POLICY = {
    "solvers": ["auto", "gram", "krylov", "subspace", "programs"],
    "functions": sorted({*functions_of("auto"), *functions_of("subspace"), *conformance.PLAN.functions}),
    "modules": ["tests.engines.conformance"],
    "min_rows": 5,
    "max_rounds": 3000,
    "allow_gather": True,
    "allow_at": True,
    "allow_max": True,
    "allow_chain": True,
}


def three_sites() -> dict[str, Any]:
    sites = problem_sites()
    return {name: sites[name] for name in NAMES}


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parties]:
    made = Parties(tmp_path_factory.mktemp("flare") / "test", three_sites(), OPEN_POLICY)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def engine(parties: Parties) -> Iterator[Any]:
    """One job for all tests of this module."""
    with ep.engines.NVFlare(parties.folder / "coordinator", round_timeout=30).open() as connected:
        yield connected


def test_conformance(engine: Any) -> None:
    """Every solver and every collective with a coordinator: the same bits and ledger rows as in one process."""
    expected = conformance.suite(conformance.on(ep.engines.InProcess(threads=1), three_sites()), graphs=False, own=False)
    found = conformance.suite(conformance.on(engine, {}), graphs=False, own=False)
    assert set(found) >= (set(SOLVERS) - {"krylov-proxy"}) | {"Sum", "Gather", "Max", "Chain", "Local"}
    assert conformance.differences(found, expected) == []
