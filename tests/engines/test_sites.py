"""What stands at a site between institutions, without an engine: its log, and a site that cannot take part."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from eigenpact.engines.federation import sites
from eigenpact.engines.federation.sites import SiteFacts, refusals_to_log
from eigenpact.runtime import Plan, wire
from eigenpact.runtime.letters import CHECKSUM, PREFIX, checksum


def test_a_coordinator_does_not_fill_the_log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sites, "MOST_REFUSALS", 5)
    tell = refusals_to_log()
    with caplog.at_level(logging.WARNING, "eigenpact.site"):
        for i in range(50):
            tell(f"reason {i}")
    assert caplog.messages == [*(f"refused: reason {i}" for i in range(5)), "5 refusals within 24 hours: more are not logged"]


def test_a_site_that_cannot_take_part_says_so_to_a_plan_of_many_names(tmp_path: Path) -> None:
    """Its rows could not be read, but it knows how many columns were agreed: the plan is not too long for it."""
    names = tuple(f"feature {i}" for i in range(20_000))
    rules = {"solvers": ["gram"], "functions": ["eigenpact:no_such_function/1"]}
    end, _ = SiteFacts("lima", "nowhere:rows", "", names, rules, str(tmp_path / "ledger"), 1.0, kit="").stand_ready()
    header = {"what": "plan", "run": "r", "epoch": 0, "step": 0, "plan": Plan("gram", (), (), 5, 1, names).to_dict()}
    payload, after = wire.pack(header), bytes(PREFIX)
    reply = end.handle(after + checksum(after + checksum(payload)) + payload)
    told, _ = wire.unpack(memoryview(reply)[CHECKSUM:])
    assert told["failed"] == "SiteError: this site's table or policy cannot be used; its own log says why"
