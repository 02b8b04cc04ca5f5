"""Secured sums over FLARE, with keys that sites made and pinned: what the coordinator holds, and what happens on a death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eigenpact as ep
from eigenpact.errors import PolicyError
from eigenpact.estimators.model_files import load_model
from eigenpact.estimators.plans import functions_of
from eigenpact.runtime import read_site_ledger

pytest.importorskip("nvflare", reason="needs eigenpact[nvflare]")

from eigenpact.engines.federation.trust import make_own_key
from eigenpact.engines.flare.kits import Kit
from tests.engines import conformance
from tests.engines.federation import Parties
from tests.engines.heap import elsewhere, true_replies
from tests.engines.test_flare_faults import TIMEOUT, slow_problem, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.xdist_group("flare-secured")]

SOLVERS = ["gram", "krylov", "subspace"]
POLICY = {
    "solvers": SOLVERS,
    "functions": sorted({name for solver in SOLVERS for name in functions_of(solver)}),
    "min_rows": 5,
    "max_rounds": 5000,
    "exact_replies": True,
}
INPROCESS = ep.engines.InProcess(threads=1)


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parties]:
    """Every site made a key of its own, and pinned the others'."""
    made = Parties(tmp_path_factory.mktemp("flare") / "test", slow_problem(), POLICY, coordinator_timeout=TIMEOUT)
    pin(made)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def pin(parties: Parties, **rules: Any) -> None:
    """Describe all sites with pins; ``rules`` go before."""
    keys = {name: make_own_key(Kit.read(parties.folder / name, "site"))[0] for name in parties.sites}
    for name, X in slow_problem().items():
        parties.describe(name, X, POLICY | {"secure": "required", "participants": keys} | rules)


def test_the_coordinator_holds_no_sites_reply(parties: Parties, tmp_path: Path) -> None:
    """Neither in its objects nor in what it received; and its answer has the bits of one process."""
    held, answer = elsewhere("flare", parties.folder / "coordinator", tmp_path, "krylov", "--secure")
    needles = true_replies(slow_problem(), "krylov", secure=True)
    assert len(needles) > 10 * len(parties.sites)
    assert [needle for needle in needles if needle in held] == []
    here = ep.FederatedPCA(3, solver="krylov", random_state=0, engine=INPROCESS, secure=True).fit(slow_problem())
    assert answer["bits"] == conformance.of_model(here)["bits"]
    for name in parties.sites:
        rows = [row for row in read_site_ledger(parties.folder / name / "ledger.jsonl") if row["what"] == "sent"]
        assert {dtype for row in rows if row["kind"] == "sum" for dtype in row["dtypes"]} == {"uint64"}


def test_the_same_look_finds_plain_replies(parties: Parties, tmp_path: Path) -> None:
    """Else the test above would prove nothing."""
    pin(parties, secure="allowed")
    try:
        held, _ = elsewhere("flare", parties.folder / "coordinator", tmp_path, "krylov")
    finally:
        pin(parties)
    assert all(needle in held for needle in true_replies(slow_problem(), "krylov", secure=False))


def test_a_site_with_another_key_than_the_others_know(parties: Parties) -> None:
    """Made anew, and nobody told: refused by name, and so is a run whose sums are not secured."""
    engine = ep.engines.NVFlare(parties.folder / "coordinator", round_timeout=TIMEOUT)
    with engine.open() as connected, pytest.raises(PolicyError, match=r"by lima: rule secure = required: .* with --secure"):
        ep.FederatedPCA(3, solver="gram", engine=connected).fit()
    key = parties.folder / "oslo" / "secure.key"
    before = key.read_bytes()
    make_own_key(Kit.read(parties.folder / "oslo", "site"), renew=True)
    parties.describe("oslo", slow_problem()["oslo"], POLICY | {"secure": "required"})
    try:
        with (
            engine.open() as connected,
            pytest.raises(PolicyError, match="refused before round 1 by oslo: rule participants: this"),
        ):
            ep.FederatedPCA(3, solver="gram", engine=connected, secure=True).fit()
        described = {name: make_own_key(Kit.read(parties.folder / name, "site"))[0] for name in parties.sites}
        parties.describe("oslo", slow_problem()["oslo"], POLICY | {"secure": "required", "participants": described})
        with (
            engine.open() as connected,
            pytest.raises(ep.errors.EigenpactError, match="site 'oslo' has another key than the one"),
        ):
            ep.FederatedPCA(3, solver="gram", engine=connected, secure=True).fit()
    finally:
        key.write_bytes(before)
        pin(parties)


def coordinator_run(parties: Parties, *options: str) -> list[str]:
    command = [
        str(Path(sys.executable).with_name("eigenpact")),
        "coordinator",
        "run",
        "--kit",
        str(parties.folder / "coordinator"),
    ]
    return [*command, *options]


def replies(parties: Parties, name: str = "lima") -> int:
    return len(read_site_ledger(parties.folder / name / "ledger.jsonl"))


def new_run(parties: Parties, folder: Path) -> list[str]:
    asked = ("-k", "3", "--secure", "--solver", "subspace", "--max-rounds", "3000", "--round-timeout", str(TIMEOUT))
    return coordinator_run(parties, *asked, "-o", str(folder / "model"))


def resumed(parties: Parties, run: str) -> None:
    again = coordinator_run(parties, "--resume", run)
    done = subprocess.run(again, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "secured: the coordinator saw no site's part of a sum" in done.stdout


def check_bits(folder: Path) -> Any:
    model = load_model(folder / "model")
    whole = ep.FederatedPCA(3, solver="subspace", random_state=0, engine=INPROCESS, secure=True).fit(slow_problem())
    assert model.n_rounds_ == whole.n_rounds_
    for name in ("components_", "explained_variance_", "mean_"):
        assert getattr(model, name).tobytes() == getattr(whole, name).tobytes(), name
    return model


def test_a_coordinator_killed_in_mid_run_goes_on_with_new_keys(parties: Parties, tmp_path: Path) -> None:
    before = replies(parties)
    with subprocess.Popen(new_run(parties, tmp_path), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as first:
        wait_until(lambda: replies(parties) > before + 60, 120)
        first.kill()
    wait_until(lambda: all(len(parties.family(name)) == 1 for name in parties.sites), 3 * TIMEOUT)  # the daemons alone
    run = newest_run(parties)
    resumed(parties, run)
    check_bits(tmp_path)
    sessions = [row for row in read_site_ledger(parties.folder / "lima" / "ledger.jsonl")[before:] if row["what"] == "session"]
    assert len(sessions) == 2
    assert len({row["run"] for row in sessions}) == 1


def test_a_site_killed_in_mid_run_stops_it_until_it_is_back(parties: Parties, tmp_path: Path) -> None:
    before = replies(parties)
    with subprocess.Popen(new_run(parties, tmp_path), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as first:
        wait_until(lambda: replies(parties) > before + 60, 120)
        parties.signal("oslo", signal.SIGKILL)
        _, told = first.communicate(timeout=120)
    assert first.returncode == 2
    assert "sums are secured, and going on without oslo would show what only oslo has; bring oslo back, then resume" in told
    assert not (tmp_path / "model").exists()
    parties.start("oslo")
    resumed(parties, newest_run(parties))
    model = check_bits(tmp_path)
    assert model.sites_ == tuple(sorted(parties.sites))


def newest_run(parties: Parties) -> str:
    return max(os.listdir(parties.folder / "coordinator" / "runs"))
