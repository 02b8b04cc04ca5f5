"""The last release and this one in one federation on real FLARE: a site that is behind, then a coordinator that is."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from tests.compatibility import party
from tests.compatibility.released import LAST, Release, build
from tests.engines.three_sites import SOLVERS_POLICY

pytest.importorskip("nvflare", reason="needs eigenpact[nvflare]")

from tests.engines.federation import Parties

pytestmark = [pytest.mark.faults, pytest.mark.xdist_group("flare-versions")]

OLD_SITE = "lima"
ASKED: dict[str, dict[str, Any]] = {"krylov": {"solver": "krylov"}, "secured gram": {"solver": "gram", "secure": True}}


@pytest.fixture(scope="module")
def last(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return build(LAST, tmp_path_factory.mktemp("last"))


@pytest.fixture(scope="module")
def parties(last: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parties]:
    made = Parties(tmp_path_factory.mktemp("flare") / "test", party.tables(), SOLVERS_POLICY)
    made.sources[OLD_SITE] = last.source
    try:
        made.start()
        yield made
    finally:
        made.stop()


def asked(parties: Parties, what: str) -> dict[str, Any]:
    return {"kit": str(parties.folder / "coordinator"), "options": ASKED[what]}


def in_one_process(what: str) -> Any:
    """Components where nothing is sent."""
    return ep.FederatedPCA(2, random_state=0, max_rounds=300, **ASKED[what]).fit(party.tables()).components_


def test_a_site_then_the_coordinator_of_the_last_release(parties: Parties, last: Release) -> None:
    """The bits of one process where sums are exact in any order; in the end two sites alone have this release."""
    for what in ASKED:
        done = party.fit_on_flare(asked(parties, what))
        found = np.frombuffer(bytes.fromhex(done["components_"])).reshape(2, 4)
        assert np.abs(found - in_one_process(what)).max() < 1e-9, what  # a release may multiply rows in another order
        assert done["sites"] == sorted(party.NAMES)
    assert found.tobytes() == in_one_process("secured gram").tobytes()
    parties.signal("coordinator", signal.SIGKILL)
    parties.sources["coordinator"] = last.source
    parties.start("coordinator")  # sites come back by themselves
    (done,) = last.do(("fit_on_flare", asked(parties, "secured gram")))
    assert (done["components_"], done["release"]) == (found.tobytes().hex(), LAST)


def test_the_site_really_ran_the_last_release(parties: Parties, last: Release) -> None:
    """Else the test above would compare this release with itself."""
    environments = {
        name: [Path(f"/proc/{pid}/environ").read_bytes() for pid in parties.family(name)] for name in (OLD_SITE, "oslo")
    }
    assert environments[OLD_SITE]
    assert all(str(last.source).encode() in text for text in environments[OLD_SITE])
    assert not any(str(last.source).encode() in text for text in environments["oslo"])
