"""FLARE really started on loopback: a fifth site joins while four run, keys are renewed, and old ones are worth nothing."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA

import eigenpact as ep
from eigenpact.engines.federation.changes import add_site, find_authority, install, renew_party
from eigenpact.engines.flare.kits import Kit
from eigenpact.errors import TooFewSitesError
from eigenpact.numerics.metrics import largest_sine
from eigenpact.runtime import read_site_ledger
from tests.engines.problems import problem_sites
from tests.engines.three_sites import SOLVERS_POLICY

pytest.importorskip("nvflare", reason="needs eigenpact[nvflare]")

from tests.engines.federation import Parties

pytestmark = [pytest.mark.faults, pytest.mark.xdist_group("flare-changes")]

SITES = problem_sites()
FOUR = tuple(sorted(SITES))[:4]
FIFTH = "uppsala"
TABLES = {name: SITES[name] for name in FOUR} | {FIFTH: next(iter(SITES.values()))[::-1] * 1.5}


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parties]:
    four = {name: TABLES[name] for name in FOUR}
    made = Parties(tmp_path_factory.mktemp("flare") / "test", four, SOLVERS_POLICY)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def fit(folder: Path, engine: Any = None, **options: Any) -> ep.FederatedPCA:
    """A joint PCA by a coordinator's kit, which must be that of the rows of the sites that it names."""
    engine = engine or ep.engines.NVFlare(folder, round_timeout=8, start_timeout=60, **options)
    pca = ep.FederatedPCA(2, solver="gram", engine=engine).fit()
    exact = PCA(2, svd_solver="full").fit(np.vstack([TABLES[name] for name in pca.sites_]))
    assert largest_sine(pca.components_.T, exact.components_.T) < 1e-7
    return pca


def authority(parties: Parties) -> Kit:
    return find_authority(parties.folder, Kit)


def sent_by(parties: Parties, name: str) -> int:
    """Replies with numbers in them, as the site itself has written down."""
    return sum(row["what"] == "sent" for row in read_site_ledger(parties.folder / name / "ledger.jsonl"))


def told(parties: Parties, *names: str) -> None:
    """Hand the newest list of parties to these."""
    for name in names:
        kit = Kit.read(parties.folder / name, "coordinator" if name == "coordinator" else "site")
        install(kit, parties.folder / "authority" / "parties.json")


def test_a_fifth_site_joins_while_four_run(parties: Parties) -> None:
    """Nothing is started again, and the run that is under way goes on with its four."""
    coordinator, kits = (
        parties.folder / "coordinator",
        {name: (parties.folder / name / "parties.json").read_bytes() for name in FOUR},
    )
    started = {name: process.pid for name, process in parties.processes.items()}
    with ep.engines.NVFlare(coordinator, round_timeout=30).open() as connected:
        assert fit(coordinator, connected).sites_ == FOUR
        add_site(authority(parties), FIFTH, parties.folder / FIFTH)
        told(parties, "coordinator")
        parties.describe(FIFTH, TABLES[FIFTH], SOLVERS_POLICY)
        parties.start(FIFTH)
        assert fit(coordinator, connected).sites_ == FOUR
    assert fit(coordinator).sites_ == (*FOUR, FIFTH)
    assert {name: parties.processes[name].pid for name in started} == started
    assert all(process.poll() is None for process in parties.processes.values())
    assert {name: (parties.folder / name / "parties.json").read_bytes() for name in FOUR} == kits


def test_replies_by_a_key_that_was_renewed_away_are_not_believed(parties: Parties, caplog: pytest.LogCaptureFixture) -> None:
    """The site that still runs with its old kit stands for a thief: its certificate connects, its replies are worth nothing."""
    coordinator, renewed = parties.folder / "coordinator", parties.folder / "renewed"
    site = FOUR[1]
    others = tuple(name for name in (*FOUR, FIFTH) if name != site)
    sent = sent_by(parties, site)
    renew_party(authority(parties), site, renewed)
    told(parties, "coordinator")
    assert fit(coordinator, min_sites=4).sites_ == others
    assert sent_by(parties, site) == sent  # it was asked nothing but the plan
    assert f"site {site}" in caplog.text
    assert "not signed" in caplog.text
    with pytest.raises(TooFewSitesError, match=site):
        fit(coordinator)
    before = read_site_ledger(parties.folder / site / "ledger.jsonl")
    install(Kit.read(parties.folder / site, "site"), renewed)
    parties.signal(site, signal.SIGKILL)
    parties.start(site)
    assert fit(coordinator).sites_ == (*FOUR, FIFTH)
    assert read_site_ledger(parties.folder / site / "ledger.jsonl")[: len(before)] == before


def test_a_revoked_site_comes_back_by_renewal_alone(parties: Parties) -> None:
    coordinator, renewed = parties.folder / "coordinator", parties.folder / "renewed-fifth"
    Kit.read(coordinator, "coordinator").revoke(FIFTH)
    assert fit(coordinator).sites_ == FOUR
    renew_party(authority(parties), FIFTH, renewed)
    told(parties, "coordinator")
    install(Kit.read(parties.folder / FIFTH, "site"), renewed)
    assert fit(coordinator).sites_ == (*FOUR, FIFTH)  # the process of the next run reads the new key; FLARE's own goes on


def test_the_coordinators_old_key_is_refused_by_sites_that_were_told(parties: Parties) -> None:
    """With the old kit and all its certificates a thief can start a job; no site answers its letters."""
    coordinator, stolen = parties.folder / "coordinator", parties.folder / "stolen"
    shutil.copytree(coordinator, stolen, ignore=shutil.ignore_patterns("jobs", "snapshots", "*.sock"))
    renew_party(authority(parties), "coordinator", parties.folder / "renewed-coordinator")
    told(parties, *FOUR, FIFTH)
    install(Kit.read(coordinator, "coordinator"), parties.folder / "renewed-coordinator")
    ledgers = {name: (parties.folder / name / "ledger.jsonl").read_bytes() for name in (*FOUR, FIFTH)}
    with pytest.raises(TooFewSitesError, match=r"none of 5 sites answered .* letter not signed by this federation's coordinator"):
        fit(stolen)
    assert {name: (parties.folder / name / "ledger.jsonl").read_bytes() for name in ledgers} == ledgers
    assert fit(coordinator).sites_ == (*FOUR, FIFTH)
