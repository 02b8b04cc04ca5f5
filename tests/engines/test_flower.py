"""Flower's engine: every solver through its ClientApp, without Flower's network, where a round would take seconds.

A federation that is really started is in ``test_flower_faults.py``.
"""

from __future__ import annotations

import importlib
import json
import logging
import pickle
import subprocess
import sys
import threading
import time
import tomllib
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.engines.federation import changes, kits
from eigenpact.errors import FileError, InputError, MissingExtraError, PolicyError, ProgramError, SiteError, TooFewSitesError
from eigenpact.estimators.plans import functions_of_steps, functions_to_compare
from eigenpact.runtime import Outcome, greeting, read_site_ledger
from tests.engines import conformance
from tests.engines.problems import SOLVERS
from tests.engines.three_sites import NAMES, OPEN_POLICY, three_sites

pytest.importorskip("flwr", reason="needs eigenpact[flower]")

from cryptography import x509
from flwr.app import Array, ArrayRecord, Message, MessageType, RecordDict

from eigenpact.cli import flower_server
from eigenpact.engines.federation.engine import OpenFederation
from eigenpact.engines.federation.kits import AUTHORITY_DAYS, Federation
from eigenpact.engines.federation.relay import RelayPost, frame, hang_up, unframe
from eigenpact.engines.flower import engine
from eigenpact.engines.flower import site as flower_site
from eigenpact.engines.flower.app import SETTINGS, write_app
from eigenpact.engines.flower.engine import COSTS
from eigenpact.engines.flower.grid import GridPost, find_sites, letter, relay, text_of
from eigenpact.engines.flower.kits import FlowerKit, make_flower_kits
from tests.engines import flower_node
from tests.engines.flower_federation import FlowerParties
from tests.engines.flower_node import NodeGrid

pytestmark = pytest.mark.xdist_group("flower")

STEPS = (*functions_of_steps(["scale", "residualize"]), *functions_to_compare())
"""What sites list besides, whose rows are prepared, or lack features."""


@pytest.fixture
def described(tmp_path: Path) -> FlowerParties:
    """Kits and descriptions of three sites, without keys as for ``flwr run``; nothing is started."""
    return FlowerParties(tmp_path / "test", three_sites(), OPEN_POLICY, signed=False)


@pytest.fixture
def grid(described: FlowerParties, monkeypatch: pytest.MonkeyPatch) -> NodeGrid:
    monkeypatch.setattr(flower_site, "log_to_console", lambda _: None)
    return NodeGrid({name: described.folder / name / "site.json" for name in NAMES})


def opened(post: Any, **options: Any) -> OpenFederation:
    chosen: dict[str, Any] = {"costs": COSTS, "min_sites": 3, "round_timeout": 5.0} | options
    return OpenFederation("flower", post, NAMES, 20, **chosen)


def nodes(grid: NodeGrid) -> dict[str, int]:
    return {name: node for node, name in grid.names.items()}


# -- without Flower's network -----------------------------------------------------------------------------------------------


def test_conformance_of_the_client_app(grid: NodeGrid) -> None:
    """Every solver and collective, each message answered afresh from what the node's state holds: same bits, same ledger rows."""
    expected = conformance.suite(conformance.on(ep.engines.InProcess(threads=1), three_sites(), NAMES), graphs=False, own=False)
    found = conformance.suite(conformance.on(opened(GridPost(grid, nodes(grid))), {}, NAMES), graphs=False, own=False)
    assert set(found) >= {label for label in SOLVERS if not label.endswith("-proxy")} | {"Sum", "Gather", "Max", "Chain", "Local"}
    assert conformance.differences(found, expected) == []


def test_flwr_run_fits_and_writes_the_model(grid: NodeGrid, tmp_path: Path) -> None:
    """What ``flwr run`` starts: sites are found by asking every node who it is."""
    settings = SETTINGS | {"components": "3", "features": "20", "output": str(tmp_path / "model"), "solver": "krylov"}
    pca = flower_server.fit(grid, settings)  # type: ignore[arg-type]
    here = ep.FederatedPCA(3, solver="krylov", random_state=0).fit(three_sites())
    assert ep.load_model(tmp_path / "model").sites_ == tuple(sorted(NAMES))
    assert conformance.rows(pca.ledger_) == conformance.rows(here.ledger_)
    np.testing.assert_array_equal(pca.components_, here.components_)


@pytest.mark.parametrize(
    "asked",
    [
        {"missing": "mean", "prepare": "residualize:0; scale:max=3"},
        {"missing": "em", "solver": "auto"},
        {"missing": "mean", "agreement": "union", "check-units": True},
    ],
    ids=str,
)
def test_flwr_run_fills_and_prepares_as_in_one_process(
    described: FlowerParties, grid: NodeGrid, tmp_path: Path, asked: dict[str, Any]
) -> None:
    """One site has holes, another lacks a feature where that is allowed; each message is answered by another process."""
    sites = three_sites()
    sites["lima"][::7, 3] = np.nan
    if "agreement" in asked:
        sites["quito"][:, 5] = np.nan
    policy = OPEN_POLICY | {"fill_missing": True, "functions": [*OPEN_POLICY["functions"], *STEPS]}
    for name, X in sites.items():
        described.describe(name, X, policy)
    settings = SETTINGS | {"components": "3", "features": "20", "output": str(tmp_path / "model"), "solver": "gram"} | asked
    pca = flower_server.fit(grid, settings)  # type: ignore[arg-type]
    words: dict[str, Any] = {"missing": asked["missing"]}
    if "prepare" in asked:
        words["prepare"] = (ep.prepare.Residualize((0,)), ep.prepare.Scale(max_value=3))
    here = ep.FederatedPCA(3, solver=settings["solver"], random_state=0, engine=ep.engines.InProcess(threads=1), **words)
    np.testing.assert_array_equal(pca.components_, here.fit(sites).components_)
    kinds = [step.kind for step in pca.preparation_ if step.kind != "features"]
    assert kinds == [step.kind for step in here.preparation_]


def test_flwr_run_with_secured_sums(grid: NodeGrid, tmp_path: Path) -> None:
    """Each message is answered by another process of the site, which knows the session from what the last one remembered."""
    settings = SETTINGS | {"components": "3", "features": "20", "output": str(tmp_path / "model"), "secure": True}
    pca = flower_server.fit(grid, settings)  # type: ignore[arg-type]
    here = ep.FederatedPCA(3, solver=pca.solver_, random_state=0, secure=True).fit(three_sites())
    assert conformance.rows(pca.ledger_) == conformance.rows(here.ledger_)
    np.testing.assert_array_equal(pca.components_, here.components_)


def test_a_secured_run_is_resumed_with_new_keys_and_the_same_bits(grid: NodeGrid, tmp_path: Path) -> None:
    """The sites are still in the session of the coordinator that died."""
    engine = opened(GridPost(grid, nodes(grid)))
    options: dict[str, Any] = {"solver": "krylov", "random_state": 0, "secure": True}

    def die(record: Any) -> None:
        if record.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ep.FederatedPCA(3, engine=engine, journal=tmp_path / "journal", callback=die, **options).fit()
    pca = ep.FederatedPCA(3, engine=engine, journal=tmp_path / "journal", **options).fit()
    here = ep.FederatedPCA(3, engine=ep.engines.InProcess(threads=1), **options).fit(three_sites())
    np.testing.assert_array_equal(pca.components_, here.components_)
    assert pca.n_rounds_ == here.n_rounds_
    sessions = [row for row in read_site_ledger(grid.described["lima"].with_name("ledger.jsonl")) if row["what"] == "session"]
    assert len(sessions) == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"go-on-without": 1}, "--go-on-without is for --secure"),
        ({"components": ""}, "give components, features"),
        ({"features": "19"}, "refused before round 1 by accra: rule features: the plan has 19 features, this site 20"),
        ({"features": ""}, "give components, features"),
        ({"output": str(Path(__file__).parent)}, "exists already; choose another folder"),
        ({"sites": "accra, oslo"}, "not connected within 1 s: oslo"),
        ({"min-sites": 4}, "not connected within 1 s: 1 more"),
        ({"solver": "fastest"}, "unknown solver 'fastest'"),
        ({"missing": "guess"}, "missing='guess' must be 'refuse', 'mean' or 'em'"),
        ({"prepare": "scale; scaling"}, "--prepare scaling: no preparer is called 'scaling'"),
    ],
)
def test_settings_of_flwr_run_are_checked(grid: NodeGrid, tmp_path: Path, given: dict[str, Any], message: str) -> None:
    settings = SETTINGS | {"components": "2", "features": "20", "output": str(tmp_path / "m"), "start-timeout": 1.0} | given
    with pytest.raises((FileError, InputError, PolicyError, TooFewSitesError), match=message):
        flower_server.fit(grid, settings)  # type: ignore[arg-type]


def test_nodes_that_are_no_site_or_the_same_one(
    described: FlowerParties, grid: NodeGrid, caplog: pytest.LogCaptureFixture
) -> None:
    (described.folder / "lima" / "site.json").unlink()
    with caplog.at_level(logging.WARNING, "eigenpact"):
        assert find_sites(grid, (), 0, 5.0).nodes.keys() == {"accra", "quito"}  # type: ignore[arg-type]
    assert "takes no part: this node does not describe a site; its own console says why" in caplog.text
    assert "site.json" not in "".join(r.message for r in caplog.records if r.name == "eigenpact.coordinator")
    (described.folder / "lima" / "site.json").write_text((described.folder / "quito" / "site.json").read_text())
    with caplog.at_level(logging.WARNING, "eigenpact"):
        assert find_sites(grid, (), 0, 5.0).nodes == {"accra": 1, "quito": 3}  # type: ignore[arg-type]
    assert "node 2 takes no part: it was registered as lima, and says it is site quito" in caplog.text


def test_a_name_that_two_nodes_claim_is_nobodys(
    described: FlowerParties, grid: NodeGrid, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if one of them answers long before the other, and all sites wanted seem to be there; keys have no names here."""
    grid.registered.clear()
    (described.folder / "accra" / "site.json").write_text((described.folder / "lima" / "site.json").read_text())
    pull, looks = grid.pull_messages, []

    def lima_is_late(identifiers: Any) -> list[Message]:
        came = pull(identifiers)
        looks.append(came)
        late = [reply for reply in came if len(looks) < 4 and reply.metadata.src_node_id == 2]
        grid.replies += late
        return [reply for reply in came if reply not in late]

    monkeypatch.setattr(grid, "pull_messages", lima_is_late)
    with pytest.raises(TooFewSitesError, match=r"not connected within 5 s: lima \(claimed by several nodes\)"):
        find_sites(grid, ("lima", "quito"), 0, 5.0)  # type: ignore[arg-type]
    assert "nodes 1, 2 all say they are site lima: none of them takes part" in caplog.text
    assert find_sites(grid, ("lima", "quito"), 1, 5.0).nodes == {"quito": 3}  # type: ignore[arg-type]


def test_an_answer_that_names_no_site(grid: NodeGrid, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    client = flower_node.client
    monkeypatch.setattr(
        flower_node, "client", lambda m, c: Message(letter(b"garbage"), reply_to=m) if c.node_id == 1 else client(m, c)
    )
    assert find_sites(grid, (), 0, 5.0).nodes == {"lima": 2, "quito": 3}  # type: ignore[arg-type]
    assert "node 1 takes no part: its answer is damaged, or names no site" in caplog.text


def test_a_relay_carries_a_fit(grid: NodeGrid) -> None:
    """What ``coordinator run`` uses: nodes are those of the registered keys, however many have the same name in Flower."""
    grid.registered = dict.fromkeys(grid.names, "lima")
    here, there = Pipe()
    thread = threading.Thread(target=relay, args=(grid, there), daemon=True)
    thread.start()
    here.send_bytes(frame("", json.dumps(nodes(grid) | {"oslo": 9}).encode()))
    assert json.loads(unframe(here.recv_bytes())[1]) == list(NAMES)
    post = RelayPost(here, NAMES)
    pca = ep.FederatedPCA(3, solver="faps", tol=1e-2, engine=opened(post)).fit()
    assert pca.sites_ == tuple(sorted(NAMES))
    hang_up(here)
    thread.join(10)
    assert not thread.is_alive()


def test_letters_are_signed_where_sites_have_kits(described: FlowerParties, grid: NodeGrid) -> None:
    """A process for every message, and the keys in each: a fit with the coordinator's kit, and no answer without it."""
    described.signed = True
    for name, X in three_sites().items():
        described.describe(name, X, OPEN_POLICY)
    coordinator = FlowerKit.read(described.folder / "coordinator", "coordinator").identity()
    signed = ep.FederatedPCA(2, solver="gram", engine=opened(GridPost(grid, nodes(grid)), identity=coordinator)).fit()
    assert signed.sites_ == NAMES
    with pytest.raises(TooFewSitesError, match=r"letter not signed by this federation's coordinator|none of 3 sites answered"):
        ep.FederatedPCA(2, solver="gram", engine=opened(GridPost(grid, nodes(grid)), round_timeout=0.5)).fit()


def test_a_silent_node_is_left_out(grid: NodeGrid) -> None:
    """After one timeout; the answer is that of the rest."""

    def fall_silent(record: Any) -> None:
        if record.round == 2:
            grid.silent.add("accra")

    fewer = opened(GridPost(grid, nodes(grid)), min_sites=2, round_timeout=0.5)
    pca = ep.FederatedPCA(3, solver="krylov", random_state=0, engine=fewer, callback=fall_silent).fit()
    assert pca.sites_ == ("lima", "quito")
    here = ep.FederatedPCA(3, solver="gram").fit({name: three_sites()[name] for name in ("lima", "quito")})
    np.testing.assert_allclose(pca.components_, here.components_, atol=1e-9)


def test_flowers_own_errors_and_lost_nodes_end_a_site(
    grid: NodeGrid, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    post = GridPost(grid, nodes(grid) | {"oslo": 9})
    grid.silent.add("lima")
    post.send("lima", greeting())
    ((identifier, _),) = post.waiting.items()
    grid.fail(identifier, "node\nunavailable", Message(letter(b""), 2, MessageType.QUERY))
    assert post.receive(post.now() + 1) == ("lima", None)
    assert "site lima: node unavailable" in caplog.text
    post.send("bergen", greeting())
    assert post.receive(post.now()) == ("bergen", None)
    post.send("lima", greeting())
    monkeypatch.setattr(grid, "get_node_ids", lambda: [1, 3])
    monkeypatch.setattr("eigenpact.engines.flower.grid.LOOK_FOR_NODES", 0.0)
    assert post.receive(post.now() + 1) == ("lima", None)
    assert "its node is no longer connected" in caplog.text


def test_what_is_no_message_is_refused(grid: NodeGrid) -> None:
    """Another program's records, a wrong length: no answer, and no word of what went wrong to the SuperLink."""
    assert text_of(letter(b"abc")) == b"abc"
    wrong = Array("uint8", (4,), "eigenpact bytes", b"abc")
    foreign = Array(np.zeros(3))
    for content in (RecordDict(), *(RecordDict({"mail": ArrayRecord({"bytes": a})}) for a in (wrong, foreign))):
        grid.push_messages([Message(content, 1, MessageType.QUERY)])
        (reply,) = grid.pull_messages([str(grid.counted)])
        assert reply.has_error()
        assert reply.error.reason == "this node does not describe a site; its own console says why"


def test_a_request_may_not_take_for_ever(described: FlowerParties, grid: NodeGrid, caplog: pytest.LogCaptureFixture) -> None:
    X = three_sites()["lima"]
    described.describe("lima", X, OPEN_POLICY | {"max_seconds": 1}, opener="tests.engines.test_flower:open_slowly")
    post = GridPost(grid, nodes(grid))
    begin = time.monotonic()
    post.send("lima", greeting())
    assert post.receive(post.now() + 5) == ("lima", None)
    assert time.monotonic() - begin < 4
    assert "rule max_seconds = 1: the request took longer" in caplog.text
    RELEASED.set()


def test_after_a_request_that_took_too_long_the_run_is_over_there(described: FlowerParties, grid: NodeGrid) -> None:
    """The site's ledger says so, and nothing is left from which a later message of that run could be answered."""
    X = three_sites()["lima"]
    RELEASED.clear()

    def slow_down(record: Any) -> None:
        if record.round == 2:
            described.describe("lima", X, OPEN_POLICY | {"max_seconds": 1}, opener="tests.engines.test_flower:open_slowly")

    fewer = opened(GridPost(grid, nodes(grid)), min_sites=2)
    pca = ep.FederatedPCA(3, solver="krylov", random_state=0, engine=fewer, callback=slow_down).fit()
    RELEASED.set()
    assert pca.sites_ == ("accra", "quito")
    rows = read_site_ledger(described.folder / "lima" / "ledger.jsonl")
    failed = [row for row in rows if row["what"] == "failed"]
    assert [(row["run"], row["reason"]) for row in failed] == [(rows[0]["run"], "rule max_seconds = 1: the request took longer")]
    assert grid.contexts[2].state.config_records["eigenpact"]["memory"] == b""


RELEASED = threading.Event()


def open_slowly(*_: Any, **_options: Any) -> Any:
    """An opener that takes longer than allowed."""
    RELEASED.wait(10)
    return three_sites()["lima"]


def test_what_goes_wrong_at_a_site_stays_there(
    described: FlowerParties, grid: NodeGrid, caplog: pytest.LogCaptureFixture
) -> None:
    """An opener that fails with a row in its text: the coordinator hears that it failed, and no more."""
    described.describe("lima", three_sites()["lima"], OPEN_POLICY, opener="tests.engines.test_flower:quote_a_row")
    grid.push_messages([Message(letter(greeting()), 2, MessageType.QUERY)])
    (reply,) = grid.pull_messages([str(grid.counted)])
    assert reply.error.reason == "the message could not be answered; the site's console says why"
    assert "patient 17" in caplog.text


def quote_a_row(*_: Any, **_options: Any) -> Any:
    """An opener with a defect."""
    raise RuntimeError("patient 17 has 3.1")


# -- kits and arguments -----------------------------------------------------------------------------------------------------


def test_kits(described: FlowerParties, monkeypatch: pytest.MonkeyPatch) -> None:
    """Private keys are their owners' alone, and nobody else's kit has them; telemetry and the like are off."""
    kit = described.kit
    lima = FlowerKit.read(described.folder / "lima", "site")
    assert lima.expires() - kit.expires() == timedelta(days=AUTHORITY_DAYS - 360)  # a site has no certificate but the authority's
    assert {path.name for path in kit.folder.rglob("*") if path.suffix == ".key"} == {"server.key", "identity.key"}
    assert all((path.stat().st_mode & 0o077) == 0 for path in described.folder.rglob("*.key"))
    assert (described.folder / "authority" / "ca.key").exists()
    environment = kit.environment()
    assert (environment["FLWR_TELEMETRY_ENABLED"], environment["FLWR_DISABLE_UPDATE_CHECK"]) == ("0", "1")
    command = kit.superlink()
    assert {"--enable-supernode-auth", "--disable-runtime-dependency-installation"} <= set(command)
    assert "--insecure" not in command + lima.supernode(Path("site.json"), 1)
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert lima.supernode(Path("s"), 1, Path("them.yaml"))[-2:] == ["--trusted-entities", "them.yaml"]
    (lima.folder / "site.key").chmod(0o644)
    with pytest.raises(InputError, match=r"site.key .* may be read by others"):
        lima.expires()
    (lima.folder / "site.key").chmod(0o600)
    (lima.folder / "site.key").write_bytes((described.folder / "quito" / "site.key").read_bytes())
    with pytest.raises(InputError, match=r"site.key .* does not belong to site.pub"):
        lima.expires()
    (lima.folder / "site.pub").write_bytes(b"")
    with pytest.raises(FileError, match="ask for the kit again"):
        lima.expires()
    monkeypatch.setattr(kits, "datetime", later(400))
    with pytest.raises(InputError, match="the certificate of 'coordinator' expired"):
        kit.expires()


@pytest.mark.parametrize("host", ["localhost", "pca.example.org", "192.0.2.10", "0.0.0.0"])
def test_a_superlink_listens_on_loopback_alone(tmp_path: Path, host: str) -> None:
    """Whoever reaches its port can send code to every site; sites elsewhere come through a proxy, with the kit's certificate."""
    make_flower_kits(Federation("t", host, 8102, ("a",), 3, engine="flower"), tmp_path / "t")
    kit = FlowerKit.read(tmp_path / "t" / "coordinator", "coordinator")
    for command in (kit.superlink(), kit.superlink(9000)):
        assert [command[i + 1] for i, word in enumerate(command) if word == "--host"] == ["127.0.0.1"]
        assert not {"--insecure", "--fleet-api-address", "--control-api-address"} & set(command)
    kit.configure()
    connection = tomllib.loads((kit.workspace / "config.toml").read_text())["superlink"]["eigenpact"]
    assert connection["address"] == "127.0.0.1:8102"
    names = x509.load_pem_x509_certificate((kit.folder / "server.crt").read_bytes()).extensions
    covered = names.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(name.value) for name in covered} >= {host, "localhost", "127.0.0.1"}
    command = FlowerKit.read(tmp_path / "t" / "a", "site").supernode(Path("s"), 1)
    assert command[command.index("--superlink") + 1] == f"{host}:8102"
    said = f"listens on 127.0.0.1:8102 only.  Sites reach it if a proxy on this machine publishes /v1/fleet/ at {host}:8102"
    assert kit.needs_proxy == "" if host == "localhost" else said in kit.needs_proxy


def later(days: int) -> Any:
    class Later(kits.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return super().now(tz) + timedelta(days=days)

    return Later


def test_kits_of_another_engine_or_federation(described: FlowerParties, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a kit for engine 'flower'; give one that was made for 'nvflare'"):
        ep.engines.NVFlare(described.kit.folder)
    make_flower_kits(Federation("other", "127.0.0.1", 8102, ("a",), 3, engine="flower"), tmp_path / "other")
    (described.kit.folder / "server.crt").write_bytes((tmp_path / "other" / "coordinator" / "server.crt").read_bytes())
    with pytest.raises(InputError, match="was not issued by this federation's authority"):
        described.kit.expires()
    with pytest.raises(FileError, match="exists already"):
        make_flower_kits(described.kit.federation, described.folder)
    with pytest.raises(InputError, match="engine = 'carrier pigeon' is unknown"):
        Federation("t", "h", 1, ("a",), 3, engine="carrier pigeon")


def test_arguments(described: FlowerParties, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = described.folder / "coordinator"
    made = ep.engines.Flower(folder)
    assert (made.sites, made.min_sites, made.costs.latency) == (NAMES, 3, COSTS.latency)
    assert pickle.loads(pickle.dumps(made)) == made
    assert ep.engines.Flower(described.kit).sites == NAMES  # a kit that was read already
    for options, message in (
        ({"sites": ("oslo",)}, "'oslo' is not a site of federation"),
        ({"min_sites": 4}, "min_sites=4 must be between"),
        ({"round_timeout": 0}, "round_timeout=0 must be"),
    ):
        with pytest.raises(InputError, match=message):
            ep.engines.Flower(folder, **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="is the kit of 'lima', a site"):
        ep.engines.Flower(described.folder / "lima")
    connected = opened(None)
    with pytest.raises(InputError, match=r"with engine 'flower' the rows lie at the sites; call fit\(\) without data"):
        ep.FederatedPCA(2, engine=connected).fit(three_sites())
    with pytest.raises(ProgramError, match="graph programs do not run on Flower"):
        connected.execute({}, lambda _: Outcome({}, {}), graph={"accra": ()})
    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"pip install 'eigenpact\[flower\]'"):
        ep.FederatedPCA(2, engine=made).fit()


def missing(name: str) -> Any:
    raise ImportError(f"No module named {name!r}")


def test_a_superlink_that_does_not_come_up(described: FlowerParties) -> None:
    workspace = described.kit.folder / "flower"
    workspace.mkdir()
    (workspace / "superlink.db").write_text("not a database")
    keys = {site: {"key": key, "node": 1} for site, key in described.kit.parties.nodes.items()}
    (workspace / "registered.json").write_text(json.dumps(keys))
    with pytest.raises(SiteError, match=r"did not come up at 127.0.0.1:\d+; see .*log.txt"):
        ep.FederatedPCA(2, engine=ep.engines.Flower(described.folder / "coordinator")).fit()


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Sites whose keys were registered with a SuperLink, which is not started here."""
    sites: list[str] = []

    def ask(kit: FlowerKit, *command: str) -> dict[str, Any]:
        assert command[:2] == ("supernode", "register")
        (kit.workspace / "superlink.db").touch()
        sites.append(command[-1])
        return {"success": True, "node-id": str(2**63 + len(sites))}

    monkeypatch.setattr(engine, "ask", ask)
    monkeypatch.setattr(engine, "_superlink", lambda *_: nullcontext())
    return sites


def test_keys_are_registered_once_and_afresh_if_they_change(described: FlowerParties, registered: list[str]) -> None:
    """Flower refuses a key that it knows, and keeps one that was replaced; so another list of keys takes another database."""
    kit = described.kit
    with pytest.raises(SiteError, match="does not know the keys of"):
        engine.registered_nodes(kit)
    engine._register_keys(kit)
    engine._register_keys(kit)
    assert registered == list(NAMES)
    assert engine.registered_nodes(kit) == {name: 2**63 + i + 1 for i, name in enumerate(NAMES)}
    for change in ("key", "list", "database"):
        registered.clear()
        for name in ("superlink.db", "superlink.db-wal"):
            (kit.workspace / name).write_text("of before")
        if change == "key":
            kit = replace(kit, parties=kit.parties.with_party("lima", kit.parties.keys["lima"], "another"))
        elif change == "list":
            (kit.workspace / "registered.json").unlink()
        else:
            (kit.workspace / "superlink.db").unlink()
        with pytest.raises(SiteError, match="stop it and start it again"):
            engine.registered_nodes(kit)
        engine._register_keys(kit)
        assert registered == list(NAMES)
        assert (kit.workspace / "superlink.db").read_text() == ""
        assert not (kit.workspace / "superlink.db-wal").exists()
        assert engine.registered_nodes(kit).keys() == set(NAMES)


def test_keys_that_come_or_change_are_told_to_a_superlink_that_is_up(
    described: FlowerParties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more site, and a key renewed: nobody else's registration changes, and what was renewed away is forgotten."""
    asked: list[tuple[str, ...]] = []

    def ask(kit: FlowerKit, *command: str) -> dict[str, Any]:
        (kit.workspace / "superlink.db").touch()
        asked.append((command[1], command[2] if command[1] == "unregister" else command[-1]))
        return {"node-id": str(len(asked))}

    monkeypatch.setattr(engine, "ask", ask)
    monkeypatch.setattr(engine, "_superlink", lambda *_: nullcontext())
    engine._register_keys(described.kit)
    asked.clear()
    authority = changes.find_authority(described.folder, FlowerKit)
    changes.add_site(authority, "oslo", described.folder / "oslo")
    authority = changes.find_authority(described.folder, FlowerKit)
    changes.renew_party(authority, "lima", described.folder / "lima-renewed")
    changes.install(described.kit, described.folder / "authority" / "parties.json")
    kit = FlowerKit.read(described.kit.folder, "coordinator")
    engine.register_changes(kit)
    assert asked == []  # no SuperLink is up
    monkeypatch.setattr(engine, "listens", lambda *_: True)
    with engine.serving(kit) as started:
        assert started is None
    engine.register_changes(kit)
    assert asked == [("unregister", "2"), ("register", "lima"), ("register", "oslo")]
    nodes = engine.registered_nodes(kit)
    assert (nodes["accra"], nodes["lima"], nodes["oslo"], nodes["quito"]) == (1, 2, 3, 3)
    assert (kit.workspace / "lima.pub").read_bytes() == (described.folder / "lima-renewed" / "site.pub").read_bytes()


SERVER_APP = """
import sys, time
from multiprocessing.connection import Client
from pathlib import Path
driver = Client(sys.argv[1], "AF_UNIX", authkey=Path(sys.argv[2]).read_bytes())
try:
    while len(asked := driver.recv_bytes()) > 1:
        if sys.argv[3] != "silent":
            driver.send_bytes(bytes(1) + b"[]")
except EOFError:
    pass
time.sleep(60 if sys.argv[3] == "stuck" else 1)
"""


@pytest.mark.parametrize(
    ("does", "raised", "ends"),
    [
        ("answers", "not connected within 1 s: accra", 0),
        ("silent", "does not answer within 1 s", 0),
        ("stuck", "not connected", -9),
    ],
)
def test_no_server_app_is_left_behind(
    described: FlowerParties, registered: list[str], monkeypatch: pytest.MonkeyPatch, does: str, raised: str, ends: int
) -> None:
    """It has ended by itself, or was killed, when a run that could not begin has told why."""
    engine._register_keys(described.kit)
    started: list[subprocess.Popen[bytes]] = []

    def ask(_: FlowerKit, *command: str) -> dict[str, Any]:
        assert command[0] == "run"
        told = tomllib.loads(command[-1].replace(" relay-key", "\nrelay-key"))
        started.append(subprocess.Popen([sys.executable, "-c", SERVER_APP, told["relay"], told["relay-key"], does]))
        return {"run-id": 7}

    monkeypatch.setattr(engine, "ask", ask)
    monkeypatch.setattr(engine, "serving", lambda _: nullcontext())
    monkeypatch.setattr(engine, "END_WITHIN", 0.5 if does == "stuck" else 10.0)
    runs = ep.engines.Flower(described.kit.folder, start_timeout=1.0)
    try:
        with pytest.raises((SiteError, TooFewSitesError), match=raised), runs.open():
            pass
        if does == "stuck":
            started[0].wait(5)  # the signal was sent
        assert started[0].poll() == ends
    finally:
        started[0].kill()
        started[0].wait()
    assert len(registered) == len(NAMES)


def test_another_process_of_that_number_is_not_killed() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        began = engine._began(process.pid)
        engine._await_end(process.pid, str(int(began) - 1), 0.0)
        time.sleep(0.2)
        assert process.poll() is None
        engine._await_end(process.pid, began, 0.0)
        assert process.wait(5) == -9


def test_auto_takes_few_rounds(grid: NodeGrid) -> None:
    """With seconds a round, one sum of scatter matrices beats many small rounds, also of many features."""
    few = ep.FederatedPCA(3, engine=opened(GridPost(grid, nodes(grid)))).fit()
    assert (few.solver_, few.n_rounds_ + few.n_setup_rounds_) == ("gram", 3)
    by_hand = {row["solver"]: row["seconds"] for row in few.solver_choice_}
    assert by_hand["krylov"] - by_hand["gram"] > COSTS.latency  # the sites' few features are learnt in two or three rounds


def test_the_app_names_what_is_installed(tmp_path: Path) -> None:
    """No code travels: the bundle is one file of settings."""
    write_app(tmp_path / "app")
    assert [path.name for path in (tmp_path / "app").iterdir()] == ["pyproject.toml"]
    with pytest.raises(FileError, match="exists already"):
        write_app(tmp_path / "app")
