"""Flower really started on loopback - SuperLink with TLS, three SuperNodes with keys - as far as that takes minutes, or kills.

A round takes seconds there, so the list is short; every solver goes through the same code in ``test_flower.py``, without Flower's
network.
"""

from __future__ import annotations

import shutil
import signal
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.errors import PolicyError, TooFewSitesError
from eigenpact.runtime import read_site_ledger
from tests.engines import conformance
from tests.engines.heap import elsewhere, true_replies
from tests.engines.three_sites import NAMES, SOLVERS_POLICY, three_sites

pytest.importorskip("flwr", reason="needs eigenpact[flower]")

from eigenpact.engines.federation.changes import add_site, find_authority, install, renew_party
from eigenpact.engines.flower.engine import register_changes
from eigenpact.engines.flower.kits import FlowerKit, _make_site_key
from tests.engines.flower_federation import CASES, FlowerParties

pytestmark = [pytest.mark.xdist_group("flower"), pytest.mark.faults]
KILLS = pytest.mark.xdist_group("kills")
"""Tests that wait until Flower counts a node as gone: in a federation of their own, beside the others."""


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlowerParties]:
    made = FlowerParties(tmp_path_factory.mktemp("flower") / "test", three_sites(), SOLVERS_POLICY)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def engine(parties: FlowerParties) -> Iterator[Any]:
    """One Flower run for all tests of this module."""
    with ep.engines.Flower(parties.folder / "coordinator", round_timeout=120).open() as connected:
        yield connected


@pytest.mark.filterwarnings("ignore::eigenpact.errors.NotConvergedWarning")
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.label not in ("auto", "gram, secured")], ids=lambda case: case.label
)  # auto: the how-to; secured: below
def test_same_bits_and_ledger_rows_as_in_one_process(engine: Any, parties: FlowerParties, case: conformance.Case) -> None:
    """And the site's own ledger says what the coordinator's does."""
    path = parties.folder / "lima" / "ledger.jsonl"
    before = len(read_site_ledger(path))
    expected = conformance.on(ep.engines.InProcess(threads=1), three_sites())(case)
    found = conformance.on(engine, {})(case)
    assert found["rounds"] + found["setup_rounds"] >= 3
    assert conformance.differences({case.label: found}, {case.label: expected}) == []
    sent = [row["bytes"] * (row["step"] > 0) for row in read_site_ledger(path)[before:] if row["what"] == "sent"]
    assert sent == [row[8] for row in found["ledger"] if row[4] == "lima"]


def test_the_coordinator_holds_no_sites_reply(parties: FlowerParties, tmp_path: Path) -> None:
    """Neither in its objects nor in what it received; and its answer and ledger are those of one process."""
    held, found = elsewhere("flower", parties.folder / "coordinator", tmp_path, "gram", "--secure")
    assert [needle for needle in true_replies(three_sites(), "gram", secure=True) if needle in held] == []
    here = ep.FederatedPCA(3, solver="gram", random_state=0, engine=ep.engines.InProcess(threads=1), secure=True)
    assert conformance.differences({"": found}, {"": conformance.of_model(here.fit(three_sites()))}) == []


def test_the_same_look_finds_plain_replies(parties: FlowerParties, tmp_path: Path) -> None:
    """Else the test above would prove nothing."""
    held, _ = elsewhere("flower", parties.folder / "coordinator", tmp_path, "gram")
    assert all(needle in held for needle in true_replies(three_sites(), "gram", secure=False))


def test_wrong_features_and_broken_policies_are_refused_by_name(engine: Any, parties: FlowerParties) -> None:
    """In the coordinator's error, on the site's console and in its ledger; the other sites' replies are not asked for."""
    X = three_sites()["quito"]
    before = len(read_site_ledger(parties.folder / "lima" / "ledger.jsonl"))
    try:
        parties.describe("quito", X[:, :19], SOLVERS_POLICY, features=19)
        with pytest.raises(
            PolicyError, match="refused before round 1 by quito: rule features: the plan has 20 features, this site 19"
        ):
            ep.FederatedPCA(2, solver="gram", engine=engine).fit()
        parties.describe("quito", X, SOLVERS_POLICY | {"solvers": ["gram"]})
        with pytest.raises(PolicyError, match="refused before round 1 by quito: rule solvers: 'krylov' is not allowed here"):
            ep.FederatedPCA(2, solver="krylov", engine=engine).fit()
    finally:
        parties.describe("quito", X, SOLVERS_POLICY)
    assert "refused: rule features" in parties.console("quito")
    assert "refused: rule solvers" in parties.console("quito")
    refused = [row["reason"] for row in read_site_ledger(parties.folder / "quito" / "ledger.jsonl") if row["what"] == "refused"]
    assert [reason.split(":")[0] for reason in refused] == ["rule features", "rule solvers"]
    rows = read_site_ledger(parties.folder / "lima" / "ledger.jsonl")[before:]
    assert [row["what"] for row in rows] == ["admitted", "admitted"]


def test_a_key_that_is_not_registered_is_refused(engine: Any, parties: FlowerParties) -> None:
    """Another key than the one in the coordinator's kit: the SuperLink refuses it, the node says so and ends."""
    kit = parties.folder / "mallory"
    shutil.copytree(parties.folder / "lima", kit)
    (kit / "console.txt").unlink()
    _make_site_key(kit)
    parties.start_sites("mallory", connects=False)
    assert parties.nodes["mallory"].wait(60) != 0
    assert "SuperNode ID" not in parties.console("mallory")
    assert "Failed to activate SuperNode" in parties.console("mallory")
    assert "No SuperNode found with the given public key" in parties.kit.log.read_text()
    del engine  # the run goes on all the while


def test_others_than_those_with_the_authoritys_certificate_are_refused(parties: FlowerParties) -> None:
    """TLS is verified: by a client that knows the federation's authority, and by one that does not."""
    address = f"https://localhost:{parties.kit.federation.port}/"
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(address, timeout=10)
    context = ssl.create_default_context(cafile=str(parties.folder / "lima" / "ca.crt"))
    with pytest.raises(urllib.error.HTTPError):  # answered, with "not found"
        urllib.request.urlopen(address, timeout=10, context=context)


class Fleet(BaseHTTPRequestHandler):
    """The proxy of the how-to: passes on what SuperNodes ask for, and nothing else."""

    superlink = ""
    context: ssl.SSLContext
    paths: ClassVar[set[str]] = set()

    def do_POST(self) -> None:
        self.paths.add(self.path)
        if not self.path.startswith("/v1/fleet/"):
            self.send_error(404)
            return
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = urllib.request.Request(f"https://{self.superlink}{self.path}", body, dict(self.headers), method="POST")
        try:
            with urllib.request.urlopen(request, timeout=60, context=self.context) as answer:
                status, headers, content = answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            status, headers, content = error.code, error.headers, error.read()
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date", "server"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.mark.xdist_group("proxy")  # it has a federation of its own
def test_a_proxy_that_publishes_the_fleet_alone_is_enough(tmp_path: Path) -> None:
    """A federation whose host is another than the SuperLink's 127.0.0.1: sites take part, and the rest is not to be reached."""
    parties = FlowerParties(tmp_path / "test", three_sites(), SOLVERS_POLICY, host="127.0.0.2")
    kit = parties.kit
    Fleet.superlink, Fleet.context = kit.local_address, ssl.create_default_context(cafile=str(kit.folder / "ca.crt"))
    published = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    published.load_cert_chain(kit.folder / "server.crt", kit.folder / "server.key")
    with ThreadingHTTPServer((kit.federation.host, kit.federation.port), Fleet) as proxy:
        proxy.socket = published.wrap_socket(proxy.socket, server_side=True)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        try:
            parties.start()
            pca = ep.FederatedPCA(3, solver="gram", engine=ep.engines.Flower(kit.folder)).fit()
            assert pca.sites_ == tuple(sorted(NAMES))
            assert {path.rpartition("/")[0] for path in Fleet.paths} == {"/v1/fleet"}
            for address, status in ((kit.local_address, 200), (kit.address, 404)):
                command = urllib.request.Request(f"https://{address}/v1/control/list-runs", b"", method="POST")
                command.add_header("Content-Type", "application/protobuf")
                assert status_of(command, Fleet.context) == status
        finally:
            parties.stop()
            proxy.shutdown()


def status_of(request: urllib.request.Request, context: ssl.SSLContext) -> int:
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def outcome_with_quito_killed(
    parties: FlowerParties, moment: Callable[[list[dict[str, Any]]], bool], fit: Callable[[], Any]
) -> Any:
    """What a fit gives, or the error that it ends with, where all processes of quito are killed once its ledger says so.

    quito is started again then.  Where the machine is so busy that Flower loses another node in the same run, too, once more.
    """
    path = parties.folder / "quito" / "ledger.jsonl"
    for tries_left in (2, 1, 0):
        before, over, outcome = len(read_site_ledger(path)), threading.Event(), None

        def kill(before: int = before, over: threading.Event = over) -> None:
            while not over.wait(0.1):
                if moment(read_site_ledger(path)[before:]):
                    parties.signal("quito", signal.SIGKILL)
                    return

        thread = threading.Thread(target=kill, daemon=True)
        thread.start()
        try:
            outcome = fit()
        except TooFewSitesError as error:
            outcome = error
        finally:
            over.set()
            thread.join()
            if parties.nodes["quito"].poll() is not None:
                parties.start_sites("quito")
        others_lost = [name for name in NAMES if name != "quito" and isinstance(outcome, Exception) and name in str(outcome)]
        if not (others_lost and tries_left):
            break
    return outcome


@KILLS
def test_a_node_killed_in_mid_run(engine: Any, parties: FlowerParties, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run waits once, goes on without it, and has the bits of the rest; started again, the node takes part again."""
    monkeypatch.setattr(engine, "min_sites", 2)
    monkeypatch.setattr(engine, "round_timeout", 90.0)
    pca = outcome_with_quito_killed(
        parties,
        lambda rows: len(rows) >= 2,  # admitted, and the first reply sent
        ep.FederatedPCA(3, solver="gram", engine=engine).fit,
    )
    here = ep.FederatedPCA(3, solver="gram").fit({name: X for name, X in three_sites().items() if name != "quito"})
    assert pca.sites_ == ("accra", "lima")
    np.testing.assert_array_equal(pca.components_, here.components_)
    (lost,) = [m for m in pca.ledger_ if m.note.startswith("lost")]
    assert (lost.sender, lost.epoch) == ("quito", 0)
    monkeypatch.undo()
    again = ep.FederatedPCA(3, solver="gram", engine=engine).fit()
    assert again.sites_ == tuple(sorted(NAMES))


@KILLS
def test_a_node_killed_in_a_secured_run_stops_it_until_it_is_back(
    engine: Any, parties: FlowerParties, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Going on would show its part; started again, it takes part in new keys, and the answer has the bits of one process."""
    monkeypatch.setattr(engine, "min_sites", 2)
    monkeypatch.setattr(engine, "round_timeout", 90.0)
    options: dict[str, Any] = {"solver": "gram", "random_state": 0, "secure": True}
    journaled = ep.FederatedPCA(3, engine=engine, journal=tmp_path / "journal", **options)
    stopped = outcome_with_quito_killed(parties, lambda rows: any(row.get("kind") == "sum" for row in rows), journaled.fit)
    assert isinstance(stopped, TooFewSitesError)
    assert "going on without quito would show what only quito has; bring quito back" in str(stopped)
    again = journaled.fit()
    here = ep.FederatedPCA(3, engine=ep.engines.InProcess(threads=1), **options).fit(three_sites())
    assert again.sites_ == tuple(sorted(NAMES))
    np.testing.assert_array_equal(again.components_, here.components_)


@KILLS
def test_a_site_joins_and_a_key_is_renewed_while_the_superlink_is_up(parties: FlowerParties) -> None:
    """Nobody else is started again; the SuperLink forgets the key that was renewed away, and its node can not come back."""
    folder = parties.folder
    process = parties.nodes["quito"].pid
    add_site(find_authority(folder, FlowerKit), "uppsala", folder / "uppsala")
    renew_party(find_authority(folder, FlowerKit), "lima", folder / "renewed")
    install(FlowerKit.read(folder / "coordinator", "coordinator"), folder / "authority" / "parties.json")
    coordinator = FlowerKit.read(folder / "coordinator", "coordinator")
    register_changes(coordinator)
    tables = three_sites() | {"uppsala": three_sites()["quito"][::-1] * 1.5}
    parties.describe("uppsala", tables["uppsala"], SOLVERS_POLICY)
    parties.signal("lima", signal.SIGKILL)
    parties.start_sites("lima", connects=False)  # with the old key
    assert parties.nodes["lima"].wait(60) != 0
    install(FlowerKit.read(folder / "lima", "site"), folder / "renewed")
    parties.start_sites("lima", "uppsala")
    pca = ep.FederatedPCA(2, solver="gram", engine=ep.engines.Flower(coordinator)).fit()
    here = ep.FederatedPCA(2, solver="gram").fit(tables)
    assert pca.sites_ == here.sites_
    np.testing.assert_allclose(pca.components_, here.components_, atol=1e-12)
    assert parties.nodes["quito"].pid == process
    assert parties.nodes["quito"].poll() is None
