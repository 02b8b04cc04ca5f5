"""A site of the last release in a federation of this one, on real Flower: its app is the coordinator's, its eigenpact its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import eigenpact as ep
from tests.compatibility import party
from tests.compatibility.released import LAST, build
from tests.engines.three_sites import SOLVERS_POLICY

pytest.importorskip("flwr", reason="needs eigenpact[flower]")

from tests.engines.flower_federation import FlowerParties

pytestmark = [pytest.mark.faults, pytest.mark.xdist_group("flower-versions")]

OLD_SITE = "lima"


@pytest.fixture
def parties(tmp_path: Path) -> Iterator[FlowerParties]:
    made = FlowerParties(tmp_path / "test", party.tables(), SOLVERS_POLICY)
    made.sources[OLD_SITE] = build(LAST, tmp_path / "last").source
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_a_site_of_the_last_release_takes_part(parties: FlowerParties, caplog: pytest.LogCaptureFixture) -> None:
    """With the bits of one process, where sums are exact in any order; it is named, so it really had the last release."""
    options = {"solver": "gram", "max_rounds": 300, "random_state": 0}
    with caplog.at_level(logging.INFO, "eigenpact.coordinator"):
        engine = ep.engines.Flower(parties.folder / "coordinator", round_timeout=120)
        found = ep.FederatedPCA(2, engine=engine, **options).fit()
    alone = ep.FederatedPCA(2, **options).fit(party.tables())
    assert found.components_.tobytes() == alone.components_.tobytes()
    told = [record.getMessage() for record in caplog.records if "speaks protocol" in record.getMessage()]
    assert [line.split(", and")[0] for line in told] == [f"site 'lima' has eigenpact {LAST}, which speaks protocol 1"]
