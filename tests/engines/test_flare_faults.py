"""FLARE federations in which processes are killed or stopped in mid-run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA

import eigenpact as ep
from eigenpact.estimators.model_files import load_model
from eigenpact.estimators.plans import functions_of
from eigenpact.numerics.metrics import largest_sine

pytest.importorskip("nvflare", reason="needs eigenpact[nvflare]")

from eigenpact.runtime import read_site_ledger
from tests.engines.federation import Parties

pytestmark = [pytest.mark.faults, pytest.mark.xdist_group("flare-faults")]

TIMEOUT = 12.0
"""Seconds a site may take; the coordinator's silence lasts as long before sites give up."""

RULES = {"min_rows": 5, "max_rounds": 5000, "exact_replies": True}
POLICY = {"solvers": ["subspace"], "functions": functions_of("subspace"), **RULES}


def slow_problem() -> dict[str, Any]:
    """Three sites whose third and fourth joint components nearly tie, so that subspace iteration takes hundreds of rounds."""
    rng = np.random.default_rng(3)
    spread = np.array([4.0, 3.0, 2.0, 1.985, *np.linspace(1, 0.5, 26)])
    return {name: rng.normal(size=(400, 30)) * spread + 0.1 * i for i, name in enumerate(("lima", "oslo", "quito"))}


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parties]:
    made = Parties(tmp_path_factory.mktemp("flare") / "test", slow_problem(), POLICY, coordinator_timeout=TIMEOUT)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.mark.parametrize("what", ["SIGKILL", "SIGSTOP"])
def test_a_site_is_lost_in_mid_run(parties: Parties, what: str) -> None:
    """Daemon and job: the run ends after at most one timeout, exact for the sites that are left; the ledger names the other."""
    hit, heard = [], []

    def strike(record: Any) -> None:
        heard.append(time.monotonic())
        if record.round == 20:
            assert len(parties.family("oslo")) == 2
            parties.signal("oslo", getattr(signal, what))
            hit.append(time.monotonic())

    engine = ep.engines.NVFlare(parties.folder / "coordinator", min_sites=2, round_timeout=TIMEOUT)
    pca = ep.FederatedPCA(3, solver="subspace", random_state=0, engine=engine, callback=strike)
    try:
        with engine.open() as connected:
            pca.set_params(engine=connected).fit()
            assert next(at for at in heard if at > hit[0]) - hit[0] < 2 * TIMEOUT  # the next round is of the others
            assert time.monotonic() - hit[0] < 3 * TIMEOUT  # and its rounds take time, too
    finally:
        parties.signal("oslo", signal.SIGKILL)
        parties.start("oslo")
    assert pca.sites_ == ("lima", "quito")
    left = np.concatenate([slow_problem()[name] for name in pca.sites_])
    assert largest_sine(pca.components_.T, PCA(3).fit(left).components_.T) < 1e-6
    events = [message for message in pca.ledger_ if message.note.startswith(("lost", "joined"))]
    assert [event.sender for event in events] == ["oslo"]


def test_a_killed_server_is_resumed_with_the_same_bits(parties: Parties, tmp_path: Path) -> None:
    """kill -9 of the server and its job: sites' processes end by themselves, and the resumed run ends as if nothing had been."""
    kit = parties.folder / "coordinator"
    command = [str(Path(sys.executable).with_name("eigenpact")), "coordinator", "run", "--kit", str(kit)]
    asked = ["-k", "3", "--solver", "subspace", "--max-rounds", "3000", "--round-timeout", str(TIMEOUT)]
    asked += ["-o", str(tmp_path / "model")]
    before = len(read_site_ledger(parties.folder / "lima" / "ledger.jsonl"))
    with subprocess.Popen([*command, *asked], stderr=subprocess.PIPE, text=True) as first:
        wait_until(lambda: len(read_site_ledger(parties.folder / "lima" / "ledger.jsonl")) > before + 50, 90)
        parties.signal("coordinator", signal.SIGKILL)
        parties.processes["coordinator"].wait()
        _, told = first.communicate(timeout=60)
    assert first.returncode == 2
    assert "server" in told
    assert "resume" in told
    wait_until(lambda: all(len(parties.family(name)) == 1 for name in parties.sites), 2 * TIMEOUT)  # the daemons alone
    (run,) = os.listdir(kit / "runs")
    parties.start("coordinator")
    second = subprocess.run([*command, "--resume", run], stderr=subprocess.PIPE, text=True, timeout=180, check=False)
    assert second.returncode == 0, second.stderr
    model = load_model(tmp_path / "model")
    whole = ep.FederatedPCA(3, solver="subspace", random_state=0, engine=ep.engines.InProcess(threads=1)).fit(slow_problem())
    assert model.sites_ == tuple(sorted(parties.sites))
    assert model.n_rounds_ == whole.n_rounds_
    for name in ("components_", "explained_variance_", "mean_"):
        assert getattr(model, name).tobytes() == getattr(whole, name).tobytes(), name
    wait_until(lambda: all(len(parties.family(name)) == 1 for name in parties.sites), 2 * TIMEOUT)


def wait_until(holds: Any, within: float) -> None:
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.1)
