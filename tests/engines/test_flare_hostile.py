"""Federations in which the coordinator or a site is hostile, or a site is not what was agreed: all of them really started."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.engines.flare import kits as flare_kits
from eigenpact.engines.flare.kits import Kit
from eigenpact.errors import PolicyError, TooFewSitesError
from eigenpact.estimators.plans import functions_of
from eigenpact.runtime import Plan, read_site_ledger, wire
from eigenpact.runtime.letters import Letter, hello

pytest.importorskip("nvflare", reason="needs eigenpact[nvflare]")

from eigenpact.engines.flare.engine import _Administrator
from tests.engines.federation import Parties, reissue

pytestmark = pytest.mark.xdist_group("flare-hostile")

FEATURES = ("age", "bmi", "rate")
POLICY = {"solvers": ["gram"], "functions": functions_of("gram"), "min_rows": 5, "max_rounds": 3000}
HONEST = ("lima", "oslo")
PROBER = "tests.engines.hostile.Prober"
ODD = ("cairo", "milan", "paris", "porto", "quito", "spy", "turin")


def rows() -> dict[str, Any]:
    rng = np.random.default_rng(7)
    return {name: rng.normal(size=(30, 3)) + 0.25 for name in (*HONEST, *ODD)}


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parties]:
    """Two honest sites, up; the others are started where they are needed.  The server lets hostile jobs pass."""
    made = Parties(tmp_path_factory.mktemp("flare") / "test", rows(), POLICY, features=FEATURES)
    disarm(made.folder / "coordinator" / "server" / "local")
    try:
        made.start("coordinator", *HONEST)
        yield made
    finally:
        made.stop()


def disarm(local: Path) -> None:
    """Take FLARE's own checks away from a server: it takes jobs with code, and builds a class that we did not foresee."""
    rights = json.loads((local / "authorization.json").read_text())
    rights["permissions"]["project_admin"]["byoc"] = "any"
    (local / "authorization.json").write_text(json.dumps(rights))
    resources = json.loads((local / "resources.json").read_text())
    resources["class_allow_list"].append(PROBER)
    (local / "resources.json").write_text(json.dumps(resources))


def submit(parties: Parties, folder: Path) -> None:
    """Hand a job to the server and wait until it is over."""
    with _Administrator(Kit.read(parties.folder / "coordinator", "coordinator")) as administrator:
        administrator.ask(f"submit {folder}")
        deadline = time.monotonic() + 60
        while administrator.ask("status") != "over":
            assert time.monotonic() < deadline
            time.sleep(0.2)


def sent(parties: Parties, *names: str) -> int:
    """Replies that have left these sites."""
    return sum(row["what"] == "sent" for name in names for row in read_site_ledger(parties.folder / name / "ledger.jsonl"))


# -- a hostile coordinator --------------------------------------------------------------------------------------------------


def with_code(app: Path, marker: Path) -> None:
    """Python runs this file when it finds it on its path, whatever the configuration says."""
    (app / "custom").mkdir()
    (app / "custom" / "sitecustomize.py").write_text(f"open({str(marker)!r}, 'a').write('ran')\n")


def with_a_class(app: Path, marker: Path) -> None:
    """FLARE would build this object when the job starts."""
    path = app / "config" / "config_fed_client.json"
    config = json.loads(path.read_text())
    config["components"].append({"id": "more", "path": "logging.FileHandler", "args": {"filename": str(marker)}})
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (with_code, "rule job: it brings 'custom/sitecustomize.py'"),
        (with_a_class, "rule job: it names the class 'logging.FileHandler'"),
    ],
)
def test_a_hostile_job(parties: Parties, tmp_path: Path, change: Callable[[Path, Path], None], reason: str) -> None:
    """Submitted to the running federation: refused at the sites by name, in both logs, and nothing of it is run."""
    marker = tmp_path / "marker"
    relay = {"address": str(tmp_path / "relay"), "key": str(tmp_path / "key"), "call_timeout": 10.0}
    flare_kits.write_job(tmp_path / "job", HONEST, 2, relay)
    change(tmp_path / "job" / "site", marker)
    before = {name: len(parties.family(name)) for name in HONEST}
    submit(parties, tmp_path / "job")
    for name in HONEST:
        parties.wait_for(name, reason)
        assert any("refused job" in line and reason in line for line in parties.log(name).splitlines())
        assert any(f"{name}: " in line and reason in line for line in parties.log("coordinator").splitlines())
    assert {name: len(parties.family(name)) for name in HONEST} == before
    assert not marker.exists()


def test_a_coordinator_that_asks_for_files(parties: Parties, tmp_path: Path) -> None:
    """FLARE's client prints files for its server; a site of ours does not, whoever asks, and writes down that it was asked."""
    secret = "bmi of patient 7"
    files = {name: tmp_path / f"{name}.csv" for name in HONEST}
    for file in files.values():
        file.write_text(secret)
    report = tmp_path / "report.json"
    flare_kits.write_job(tmp_path / "job", HONEST, 2, {})
    path = tmp_path / "job" / "coordinator" / "config" / "config_fed_server.json"
    config = json.loads(path.read_text())
    arguments = {"files": {name: str(file) for name, file in files.items()}, "report": str(report)}
    config["components"] = [{"id": "relay", "path": PROBER, "args": arguments}]
    path.write_text(json.dumps(config))
    submit(parties, tmp_path / "job")
    told = json.loads(report.read_text())
    assert len(told) == 4
    assert secret not in report.read_text()
    for name in HONEST:
        parties.wait_for(name, "refused: rule commands: 'sys.shell'")
    assert "rule commands" in report.read_text()


# -- a hostile process on a site's machine ----------------------------------------------------------------------------------


def test_a_process_that_says_it_is_the_server(parties: Parties) -> None:
    """FLARE's client listens to its jobs on loopback, in the clear: whoever calls there gets as far as the signature."""
    plan = Plan("gram", tuple(functions_of("gram")), ("sum", "local"), 100, 1, FEATURES).to_dict()
    letter = Letter(wire.pack(hello("spoofed", 0, "plan") | {"plan": plan, "sent": time.time_ns()})).to("lima", 0)
    path = parties.folder / "lima" / "ledger.jsonl"
    with ep.engines.NVFlare(parties.folder / "coordinator", sites=HONEST, round_timeout=30).open() as engine:
        before = read_site_ledger(path)
        (pid,) = set(parties.family("lima")) - {parties.processes["lima"].pid}
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        url, job = (words[words.index(option) + 1] for option in ("-p", "-n"))
        command = [sys.executable, "-W", "ignore", "-m", "tests.engines.hostile", url, job, "lima", letter.hex()]
        for last in (*[False] * 9, True):  # a call that comes before the job listens is lost
            subprocess.run(command, capture_output=True, timeout=60, check=True)
            try:
                parties.wait_for("lima", "refused: letter not signed by this federation's coordinator", within=60 if last else 5)
                break
            except TimeoutError:
                if last:
                    raise
        assert read_site_ledger(path) == before
        assert ep.FederatedPCA(2, solver="gram", engine=engine).fit().sites_ == HONEST


# -- a hostile site ---------------------------------------------------------------------------------------------------------


def test_a_site_that_calls_the_other_sites(parties: Parties) -> None:
    """In a run that it takes part in, a site learns nothing from the others: they answer the coordinator alone."""
    parties.describe("spy", rows()["spy"], POLICY, opener="tests.engines.hostile:spying")
    parties.start("spy")
    report = parties.folder / "spy" / "report.json"
    with ep.engines.NVFlare(parties.folder / "coordinator", sites=(*HONEST, "spy"), round_timeout=30).open() as engine:
        pca = ep.FederatedPCA(2, solver="gram", engine=engine).fit()
        deadline = time.monotonic() + 60
        while not report.exists():
            assert time.monotonic() < deadline
            time.sleep(0.2)
    assert pca.sites_ == (*HONEST, "spy")
    told = json.loads(report.read_text())
    assert set(told["calls"]) == set(HONEST)
    for name in HONEST:
        assert "only the coordinator may call" in told["calls"][name]
        assert '"party"' not in told["files"][name]
        assert "rule commands" in told["files"][name]
        parties.wait_for(name, "refused: a call of 'spy', which is not the coordinator")


# -- a site that is not what was agreed -------------------------------------------------------------------------------------


OPENED = {"opener": "eigenpact.data.site_rows:open_rows"}
OTHERS = {
    "milan": (3, {"features": ["age", "bmi", "weight"]}, "rule features: .*not here: rate; not in the plan: weight"),
    "paris": (2, {"features": 2}, "rule features: the plan has 3 features, this site 2"),
    "porto": (
        "id,age,bmi,weight\n" + "".join(f"p{i},{i},{i % 3},{i % 5}\n" for i in range(8)),
        OPENED,
        "rule features: this site's table lacks the agreed columns rate",
    ),
    "quito": (4, OPENED, "rule features: this site's table has 4 columns, agreed on are 3"),
}
"""Columns without names, or a .csv file's text; what the owner says of it; why it takes no part."""


def test_wrong_features_and_a_table_that_cannot_be_read(parties: Parties, caplog: pytest.LogCaptureFixture) -> None:
    """Sites that were started with other columns: refused before round 1 with their names, in both logs; nothing is sent.

    Why a table cannot be read stays at its site: the reason names the file, and quotes it.
    """
    for name, (table, facts, _) in OTHERS.items():
        describe(parties, name, table, facts)
    describe(parties, "turin", "id,age,bmi,rate\np1,1,2,3\np2,4,5,Mrs Smith\n", OPENED)
    parties.start(*OTHERS, "turin")
    sites = (HONEST[0], *OTHERS, "turin")
    before = sent(parties, *sites)
    with pytest.raises(PolicyError, match="refused before round 1 by milan: rule features") as caught:
        ep.FederatedPCA(2, solver="gram", engine=ep.engines.NVFlare(parties.folder / "coordinator", sites=sites)).fit()
    for name, (_, _, reason) in OTHERS.items():
        assert re.search(f"{name}: {reason}", str(caught.value)), str(caught.value)
        assert re.search(f"site {name} takes no part in run .*{reason}", caplog.text)
        assert re.search(f"(refused|cannot take part): {reason}", parties.log(name))
    assert sent(parties, *sites) == before
    assert "turin: SiteError: this site's table or policy cannot be used; its own log says why" in str(caught.value)
    for text in (str(caught.value), caplog.text, parties.log("coordinator")):
        assert "Smith" not in text
        assert "turin.csv" not in text
    assert "Mrs Smith" in parties.log("turin")


def describe(parties: Parties, name: str, table: int | str, facts: dict[str, Any]) -> None:
    """Give a site another table."""
    path = parties.folder / name / f"{name}.csv"
    columns = table if isinstance(table, int) else 3
    if isinstance(table, str):
        path.write_text(table)
        facts = facts | {"data": str(path)}
    parties.describe(name, np.random.default_rng(1).normal(size=(30, columns)), POLICY, **facts)


# -- a site whose certificate has expired -----------------------------------------------------------------------------------


def expire(parties: Parties, name: str) -> None:
    now = datetime.now(UTC)
    reissue(parties.folder / name, parties.folder / "authority", now - timedelta(days=3), now - timedelta(days=1))


@pytest.mark.faults
def test_a_certificate_that_expires_while_the_site_is_up(parties: Parties) -> None:
    """When the site connects again the server refuses it; both logs say that its certificate expired, and no run begins."""
    parties.start("cairo")
    expire(parties, "cairo")
    parties.signal("coordinator", signal.SIGKILL)
    parties.start("coordinator")
    parties.wait_for("coordinator", "refused: certificate verify failed: certificate has expired")
    parties.wait_for("cairo", "refused: the certificate of 'cairo' expired on")
    engine = ep.engines.NVFlare(parties.folder / "coordinator", sites=("cairo",), start_timeout=5)
    with pytest.raises(TooFewSitesError, match="not connected within 5 s: cairo"):
        ep.FederatedPCA(2, solver="gram", engine=engine).fit()
    assert sent(parties, "cairo") == 0


def test_a_site_that_is_started_with_an_expired_certificate(parties: Parties) -> None:
    """Its process ends at once with the reason in the log, also where nobody has called ``eigenpact site start``."""
    parties.signal("cairo", signal.SIGKILL)
    expire(parties, "cairo")
    parties.start("cairo", registers=False)
    assert parties.processes["cairo"].wait(30) == 2
    assert "refused: the certificate of 'cairo' expired on" in (parties.folder / "cairo" / "log.txt").read_text()
