"""FederatedPCA between FLARE sites with mutual TLS on loopback, compared with the in-process engine."""

from __future__ import annotations

import json
import pickle
import queue
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import eigenpact as ep
from eigenpact.engines.flare import kits as flare_kits
from eigenpact.engines.flare.kits import Federation, Kit, make_kits
from eigenpact.errors import FileError, InputError, MissingExtraError, PolicyError, ProgramError, SiteError, TooFewSitesError
from eigenpact.runtime import Driver, Outcome, Plan, Sum, local, read_site_ledger, wire
from eigenpact.runtime.letters import Letter, hello, unseal
from tests.engines import conformance
from tests.engines.problems import SOLVERS, problem_sites
from tests.engines.three_sites import NAMES, OPEN_POLICY, three_sites

pytest.importorskip("nvflare", reason="needs eigenpact[nvflare]")

from eigenpact.engines.flare import site as flare_site
from eigenpact.engines.flare.guard import check_app
from tests.engines.federation import Parties, knock, reissue

pytestmark = pytest.mark.xdist_group("nvflare")


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parties]:
    made = Parties(tmp_path_factory.mktemp("flare") / "test", three_sites(), OPEN_POLICY)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def job(parties: Parties) -> Iterator[ExitStack]:  # noqa: ARG001
    """What ends the one job of all tests of this module; the last of them does."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def engine(parties: Parties, job: ExitStack) -> Any:
    """The job."""
    return job.enter_context(ep.engines.NVFlare(parties.folder / "coordinator", round_timeout=30).open())


def test_conformance(engine: Any) -> None:
    """Every solver and every collective with a coordinator: the same bits and ledger rows as in one process."""
    expected = conformance.suite(conformance.on(ep.engines.InProcess(threads=1), three_sites(), NAMES), graphs=False, own=False)
    found = conformance.suite(conformance.on(engine, {}, NAMES), graphs=False, own=False)
    assert set(found) >= {label for label in SOLVERS if not label.endswith("-proxy")} | {"Sum", "Gather", "Max", "Chain", "Local"}
    assert conformance.differences(found, expected) == []


def test_it_is_exact(engine: Any) -> None:
    pca = ep.FederatedPCA(3, engine=engine).fit()
    here = ep.FederatedPCA(3, solver=pca.solver_).fit(three_sites())
    assert pca.sites_ == tuple(sorted(NAMES))
    np.testing.assert_array_equal(pca.components_, here.components_)
    assert clone(pca).engine is engine


def test_a_site_writes_down_what_the_coordinator_received(engine: Any, parties: Parties) -> None:
    """The two accounts agree, and the site's is its own file."""
    path = parties.folder / "lima" / "ledger.jsonl"
    before = len(read_site_ledger(path))
    pca = ep.FederatedPCA(2, solver="krylov", random_state=0, engine=engine).fit()
    admitted, *sent = read_site_ledger(path)[before:]
    assert (admitted["what"], admitted["solver"], admitted["n_components"]) == ("admitted", "krylov", 2)
    received = [(m.step, m.function, m.bytes) for m in pca.ledger_ if m.sender == "lima"]
    assert [(row["step"], row["function"].rpartition(":")[2].partition("/")[0], row["bytes"]) for row in sent] == received


# -- what is refused --------------------------------------------------------------------------------------------------------


@local(sends={"X": "n d"})
def unlisted(site: Any) -> Any:
    """A function that no site knows."""
    return site.X


def run_with(engine: Any, function: Any, plan: Plan | None) -> Any:
    async def program(_start: Any, _state: Any) -> Any:
        return await Sum(function)

    def job(connection: Any) -> Outcome:
        driver = Driver(connection, plan=plan)
        driver._plan = None  # a hostile one does not hold itself to what it announced
        return Outcome({"sum": driver.run(program)}, {})

    return engine.execute({}, job).arrays["sum"]


def refusals(parties: Parties, text: str, within: float = 10.0) -> set[str]:
    """Sites in whose logs a refusal with this text stands; a site may still be writing when the first one has stopped the run."""
    deadline = time.monotonic() + within
    while True:
        found = {name for name in NAMES if any("refused" in line and text in line for line in parties.log(name).splitlines())}
        if found == set(NAMES) or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def test_a_hostile_coordinator(engine: Any, parties: Parties, caplog: pytest.LogCaptureFixture) -> None:
    """An unlisted function, announced or not, and a run without a plan: refused by name, in both logs; nothing is sent."""
    counts = {name: len(sent_by(parties, name)) for name in NAMES}
    honest = Plan("programs", conformance.PLAN.functions, ("sum",), 100)
    hostile = Plan("programs", (unlisted.name,), ("sum",), 100)
    with pytest.raises(PolicyError, match=r"rule functions: .*unlisted"):
        run_with(engine, unlisted, hostile)
    with pytest.raises(SiteError, match=r"unknown function .*unlisted"):
        run_with(engine, unlisted, honest)
    with pytest.raises(TooFewSitesError, match="rule plan: this run was not announced"):
        run_with(engine, conformance.count, None)
    for text in ("rule functions", "unknown function", "not announced"):
        assert refusals(parties, text) == set(NAMES), text
        assert text in caplog.text
    assert {name: len(sent_by(parties, name)) for name in NAMES} == counts


def sent_by(parties: Parties, name: str) -> list[dict[str, Any]]:
    return [row for row in read_site_ledger(parties.folder / name / "ledger.jsonl") if row["what"] == "sent"]


def test_other_features(parties: Parties, engine: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(engine, "features", 21)
    with pytest.raises(PolicyError, match="rule features: the plan has 21 features, this site 20"):
        ep.FederatedPCA(2, engine=engine).fit()
    assert refusals(parties, "rule features") == set(NAMES)
    assert "rule features" in caplog.text


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (bytes((1 << 20) + 1), "refused unread: at most 1048576"),
        (b"nonsense", "the checksum of 8 bytes does not fit"),
        (pickle.dumps({"what": "hello"}), "the checksum of"),
    ],
    ids=["oversized", "malformed", "pickled"],
)
def test_bad_messages(engine: Any, parties: Parties, message: bytes, reason: str) -> None:
    """Through FLARE, past our own coordinator: refused with the reason, which the site logs, and the site goes on."""
    post = engine.post
    post.send("lima", message)
    name, reply = post.receive(post.now() + 30)
    header, arrays = unseal(memoryview(reply), "lima", engine.identity)
    assert (name, arrays) == ("lima", ())
    assert reason in header["damaged"]
    assert "lima" in refusals(parties, reason, within=0)
    assert ep.FederatedPCA(2, engine=engine).fit().sites_ == tuple(sorted(NAMES))


def test_letters_of_the_server_without_the_coordinators_key(engine: Any, parties: Parties) -> None:
    """Through FLARE, from its server's side: neither a plan nor a sum is answered, and no row is written down."""
    before = read_site_ledger(parties.folder / "lima" / "ledger.jsonl")
    plan = hello("spoofed", 0, "plan") | {"plan": conformance.PLAN.to_dict(), "sent": time.time_ns()}
    step = {"what": "request", "run": "spoofed", "epoch": 0, "step": 1, "kind": "sum", "digest": ""}
    own = Kit.read(parties.folder / "quito", "site").identity()
    for header in (plan, step | {"function": conformance.count.name}):
        for identity in (None, own):  # that of another site
            engine.post.send("lima", Letter(wire.pack(header), identity).to("lima", 0))
            _, reply = engine.post.receive(engine.post.now() + 30)
            told, arrays = unseal(memoryview(reply), "lima", engine.identity)
            assert (told["refused"], arrays) == ("letter not signed by this federation's coordinator", ())
    assert "lima" in refusals(parties, "letter not signed by this federation's coordinator", within=0)
    assert read_site_ledger(parties.folder / "lima" / "ledger.jsonl") == before


def test_a_coordinator_that_sends_too_much(
    engine: Any, parties: Parties, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By its own driver: both logs say which message was refused, and how large it was."""
    monkeypatch.setattr(engine, "round_timeout", 3.0)

    async def program(_start: Any, _state: Any) -> Any:
        return await Sum(conformance.action, np.zeros((20, 10_000)))

    def job(connection: Any) -> Outcome:
        return Outcome({"sum": Driver(connection, plan=conformance.PLAN).run(program)}, {})

    with pytest.raises(TooFewSitesError, match="bytes refused unread: at most 1048576"):
        engine.execute({}, job)
    assert refusals(parties, "message of 16") == set(NAMES)
    assert all(f"site {name}" in caplog.text for name in NAMES)
    assert "bytes refused unread: at most 1048576 are allowed here" in caplog.text


def test_the_time_of_one_request_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator may not keep a site computing for ever; the process ends, also if the coordinator is gone."""
    ended: queue.SimpleQueue[str] = queue.SimpleQueue()
    site = flare_site.FlareSite()

    def end(reason: str) -> None:
        ended.put(reason)
        threading.Event().wait()  # for ever, as the process would have ended

    class Slow:
        def handle(self, _data: bytes) -> bytes:
            return ended.get(timeout=30).encode()

    monkeypatch.setattr(flare_site, "_end", end)
    monkeypatch.setattr(flare_site, "_check_caller", lambda: None)
    site._endpoint = Slow()
    threading.Thread(target=site._watch, args=(60.0, 0.4), daemon=True).start()
    assert b"rule max_seconds = 0.4" in site.handle(b"")


def test_rows_graphs_and_proxies_are_refused(engine: Any) -> None:
    with pytest.raises(InputError, match=r"the rows lie at the sites; call fit\(\) without data"):
        ep.FederatedPCA(2, engine=engine).fit(problem_sites())
    with pytest.raises(ProgramError, match="graph programs do not run on NVIDIA FLARE"):
        engine.execute({}, lambda _: Outcome({}, {}), graph={"accra": ()})
    with pytest.raises(InputError, match=r"allowed here are none"):
        ep.FederatedPCA(2, solver=ep.solvers.Krylov(proxy="lima"), engine=engine).fit()


# -- certificates -----------------------------------------------------------------------------------------------------------


def test_a_wrong_certificate(parties: Parties, tmp_path: Path) -> None:
    """Expired, of another authority: refused at the site before it connects, and by the server if the site does not care."""
    port = Kit.read(parties.folder / "coordinator", "coordinator").federation.port
    other = tmp_path / "other"
    make_kits(Federation("other", "localhost", port, NAMES, 20), other)
    root = parties.folder / "lima" / "startup" / "rootCA.pem"
    now = datetime.now(UTC)
    cases = {
        "expired": (parties.folder / "authority", now - timedelta(days=1), "expired on", "certificate has expired"),
        "foreign": (other / "authority", now + timedelta(days=1), "not issued by this federation's", "certificate verify failed"),
    }
    assert knock(parties.folder / "lima", root, port).startswith(b"HTTP")
    for name, (authority, end, at_site, at_server) in cases.items():
        kit = tmp_path / name
        shutil.copytree(parties.folder / "lima", kit)
        reissue(kit, authority, now - timedelta(days=3), end)
        with pytest.raises(InputError, match=at_site):
            Kit.read(kit, "site").expires()
        before = parties.log("coordinator").count("refused")
        assert knock(kit, root, port) == b""
        parties.wait_for("coordinator", "refused", before + 1)
        assert at_server in parties.log("coordinator")


def test_a_kit_of_another_federation(parties: Parties, tmp_path: Path) -> None:
    """Whole and valid in itself, so that its site starts: refused by name in the logs of both, and no site of that name comes."""
    port = Kit.read(parties.folder / "coordinator", "coordinator").federation.port
    stranger = Parties(tmp_path / "other", {"paris": np.eye(20)}, OPEN_POLICY, port=port)
    refused, came = "refused: the other side broke the handshake off, as it does with a kit of another federation", "SSL paris"
    before = parties.log("coordinator").count(refused)
    try:
        stranger.start("paris", registers=False)
        parties.wait_for("coordinator", refused, before + 1)
        stranger.wait_for("paris", "certificate verify failed")
    finally:
        stranger.stop()
    assert came not in parties.log("coordinator")


def test_sites_have_no_blas_threads_that_spin(engine: Any, parties: Parties) -> None:  # noqa: ARG001
    """They would double the time of a round; see ``engines/flare/main.py``."""
    for pid in (pid for name in NAMES for pid in parties.family(name)):
        started_with = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        assert b"OPENBLAS_NUM_THREADS=1" in started_with or b"eigenpact.engines.flare.main" in command


def test_kits_hold_what_their_owner_needs(parties: Parties) -> None:
    """Keys for their owners only; no scripts that start FLARE past our checks; no code, no shell, no logs at the coordinator."""
    for name in NAMES:
        kit = parties.folder / name
        assert kit.stat().st_mode & 0o777 == 0o700
        assert not list(kit.rglob("*.sh"))
        assert (kit / "startup" / "client.key").stat().st_mode & 0o777 == 0o600
        resources = json.loads((kit / "local" / "resources.json").read_text())
        assert resources["allow_log_streaming"] is False
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert set(resources["class_allow_list"]) == {flare_kits.SITE_CLASS, flare_kits.EXECUTOR_CLASS}
        assert not any("log" in component["path"] for component in resources["components"])
        rights = json.loads((kit / "local" / "authorization.json").read_text())["permissions"]["project_admin"]
        assert rights["byoc"] == rights["shell_commands"] == rights["operate"] == "none"
        assert json.loads((kit / "startup" / "fed_client.json").read_text())["require_signed_jobs"] is True
    assert not list(parties.folder.glob("*/startup/*root*.key"))
    authority = {path.name: path for path in (parties.folder / "authority").rglob("*")}
    assert set(authority) == {"ca.key", "ca.crt", "identity.key", "kit.json", "parties.json"}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in authority.values())
    for key in parties.folder.rglob("*.key"):  # of every private key there is one copy
        text = key.read_bytes()
        secret = text.split()[5] if b"PRIVATE KEY" in text else text  # PEM, or the bytes of an identity
        holders = [path for path in parties.folder.rglob("*") if path.is_file() and secret in path.read_bytes()]
        assert holders == [key]


def test_logs_are_their_owners_alone(engine: Any, parties: Parties) -> None:  # noqa: ARG001
    logs = [log for kit in (*NAMES, "coordinator") for log in (parties.folder / kit).rglob("*log.txt")]
    assert len(logs) > len(NAMES)
    assert {oct(log.stat().st_mode & 0o777) for log in logs} == {"0o600"}


def test_a_kit_of_an_earlier_format_is_refused_by_name(parties: Parties, tmp_path: Path) -> None:
    """It lacks the list that the authority signs, and its files name classes of modules that have moved since."""
    facts = json.loads((parties.folder / "coordinator" / "kit.json").read_text())
    assert facts.pop("format") == 4
    (tmp_path / "kit.json").write_text(json.dumps(facts))
    with pytest.raises(InputError, match=r"is a kit of format 1, .* reads 4 to 4: .*eigenpact federation init"):
        Kit.read(tmp_path, "coordinator")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda app: (app / "custom").mkdir() or (app / "custom" / "code.py").write_text("x = 1"), "it brings 'custom/code.py'"),
        (lambda app: (app / "config" / "more.json").write_text("{}"), "it brings 'config/more.json'"),
        (lambda app: (app / "config" / "config_fed_client.json").write_text("["), "cannot be read"),
        (lambda app: (app / "config" / "config_fed_client.json").write_text('{"executors": []}'), "is not that of eigenpact"),
        (
            lambda app: (app / "config" / "config_fed_client.json").write_text('{"components": [{"path": "shutil.rmtree"}]}'),
            "it names the class 'shutil.rmtree'",
        ),
    ],
)
def test_a_job_with_anything_else_in_it_is_refused_at_the_site(tmp_path: Path, change: Any, reason: str) -> None:
    flare_kits.write_job(tmp_path, ("a",), 1, {})
    app = tmp_path / "site"
    check_app(app)
    change(app)
    with pytest.raises(PolicyError, match=f"rule job: .*{reason}"):
        check_app(app)


# -- the description --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"round_timeout": 0}, "round_timeout=0 must be a number of seconds > 0"),
        ({"min_sites": 4}, "min_sites=4 must be between 1 and the number of sites 3"),
        ({"sites": ("lima", "paris")}, "'paris' is not a site of federation 'test': accra, lima, quito"),
    ],
)
def test_bad_parameters_are_refused(parties: Parties, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ep.engines.NVFlare(parties.folder / "coordinator", **options)


def test_a_wrong_kit_is_named(parties: Parties, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is the kit of 'lima', a site; give the kit of a coordinator"):
        ep.engines.NVFlare(parties.folder / "lima")
    with pytest.raises(FileError, match="is not a kit made by eigenpact federation init"):
        ep.engines.NVFlare(tmp_path)


def test_without_a_server(tmp_path: Path) -> None:
    make_kits(Federation("test", "localhost", 1, NAMES, 20), tmp_path / "test")
    with pytest.raises(TooFewSitesError, match="does not answer; start it with: eigenpact coordinator start"):
        ep.FederatedPCA(2, engine=ep.engines.NVFlare(tmp_path / "test" / "coordinator")).fit()


def test_a_missing_extra_is_named(parties: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvflare", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'eigenpact\[nvflare\]'"):
        ep.FederatedPCA(2, engine=ep.engines.NVFlare(parties.folder / "coordinator")).fit()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "a b"}, "name 'a b' must be"),
        ({"sites": ("a", "a")}, "each once"),
        ({"sites": ("coordinator",)}, "may not be called 'coordinator'"),
        ({"port": 0}, "port = 0 must be between"),
        ({"features": ()}, "features must be one or more"),
        ({"features": 0}, "features = 0 must be"),
        ({"valid_days": 0}, "valid_days = 0 must be"),
    ],
)
def test_bad_federations_are_refused(options: dict[str, Any], message: str) -> None:
    facts: dict[str, Any] = {"name": "test", "host": "localhost", "port": 8102, "sites": ("a",), "features": 3}
    with pytest.raises(InputError, match=message):
        Federation(**facts | options)


def test_no_process_is_left_when_a_job_is_over(parties: Parties, engine: Any, job: ExitStack) -> None:
    """A second job beside the first, at one of the sites; both end with their contexts, and the sites' processes with them."""
    with ThreadPoolExecutor(2) as ends, ExitStack() as second:
        options = {"sites": ("lima",), "round_timeout": 30}
        connected = second.enter_context(ep.engines.NVFlare(parties.folder / "coordinator", **options).open())
        assert {name: len(parties.family(name)) for name in NAMES} == {"accra": 2, "lima": 3, "quito": 2}
        for both in (engine, connected):
            ep.FederatedPCA(2, engine=both).fit()
        for ended in [ends.submit(stack.close) for stack in (job, second)]:
            ended.result()
    deadline = time.monotonic() + 30
    while any(len(parties.family(name)) > 1 for name in NAMES):
        assert time.monotonic() < deadline
        time.sleep(0.2)
