"""The commands of a federation on Flower, up to where Flower's own programs take over."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from eigenpact.cli.commands import site
from eigenpact.engines.federation.sites import SiteFacts
from eigenpact.engines.flower.app import SETTINGS
from eigenpact.engines.flower.engine import free_port
from eigenpact.engines.flower.kits import FlowerKit

pytest.importorskip("flwr", reason="needs eigenpact[flower]")

CONSORTIUM = """\
name = "trial"
coordinator = "localhost:{port}"
sites = ["north", "south"]
features = ["age", "bmi", "glucose", "pressure", "rate"]
"""


@pytest.fixture
def kits(run: Callable[..., Any], tmp_path: Path) -> Path:
    (tmp_path / "consortium.toml").write_text(CONSORTIUM.format(port=free_port()))
    result = run("federation", "init", "consortium.toml", "--engine", "flower")
    assert result.exit_code == 0, result.output
    return tmp_path / "trial"


@pytest.fixture
def taken_over(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, str]]]:
    """Commands that would have taken this process over."""
    became: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(site, "become", lambda command, environment: became.append((command, environment)))
    return became


def test_kits_are_made_and_checked(kits: Path, run: Callable[..., Any]) -> None:
    assert {path.name for path in kits.iterdir()} == {"north", "south", "coordinator", "authority"}
    nodes = FlowerKit.read(kits / "coordinator", "coordinator").parties.nodes
    assert nodes == {name: (kits / name / "site.pub").read_text() for name in ("north", "south")}
    (kits / "north" / "site.toml").write_text(f'kit = "."\ndata = "{kits.parent / "north.csv"}"\n')
    result = run("site", "check", kits / "north" / "site.toml")
    assert result.exit_code == 0, result.output
    assert "north of federation trial" in result.stdout


def test_the_consortium_may_name_the_engine(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(CONSORTIUM.format(port=8102) + 'engine = "flower"\n')
    assert run("federation", "init", "c.toml", "-o", "kits").exit_code == 0
    assert FlowerKit.read(tmp_path / "kits" / "north", "site").federation.engine == "flower"
    result = run("federation", "init", "c.toml", "-o", "others", "--engine", "post")
    assert result.exit_code == 2
    assert "engine = 'post' is unknown; between institutions there are nvflare, flower" in " ".join(result.stderr.split())


def test_site_start_becomes_a_supernode(
    kits: Path, run: Callable[..., Any], taken_over: list[Any], sites: dict[str, Any], tmp_path: Path
) -> None:
    """With what its owner says in a file that the node's own configuration names; south.csv has its columns reversed."""
    trusted = tmp_path / "trusted.yaml"
    result = run("site", "start", kits / "south", "--data", "south.csv", "--trusted-entities", trusted)
    assert result.exit_code == 0, result.output
    ((command, environment),) = taken_over
    assert command[4:6] == ["eigenpact.engines.flower.node", "south"]
    assert command[command.index("--trusted-entities") + 1] == str(trusted)
    said = tomllib.loads(command[command.index("--node-config") + 1].replace(" eigenpact-digest", "\neigenpact-digest"))
    assert environment["FLWR_TELEMETRY_ENABLED"] == "0"
    facts = SiteFacts.read(said["eigenpact-site"], "this test", said["eigenpact-digest"])
    np.testing.assert_array_equal(facts.server()[0]._X, sites["south"])


def test_site_describe(run: Callable[..., Any], tmp_path: Path) -> None:
    """For a SuperNode that is there already: columns, rules and a ledger, and what to tell the node."""
    result = run("site", "describe", "north", "--data", "north.csv", "--features", "rate, age", "-o", "north.json")
    assert result.exit_code == 0, result.output
    assert f"--node-config 'eigenpact-site=\"{tmp_path / 'north.json'}\"'" in result.stdout.replace("\n", "")
    facts = SiteFacts.read(str(tmp_path / "north.json"), "this test")
    assert (facts.features, facts.policy["allow_gather"]) == (("rate", "age"), False)
    assert facts.ledger == str(tmp_path / "north.ledger.jsonl")  # another site's in this folder has another
    assert (tmp_path / "north.json").stat().st_mode & 0o077 == 0
    (tmp_path / "strict.toml").write_text("min_rows = 100000\n")
    for arguments, message in (
        (("coordinator",), "name 'coordinator' must be"),
        (("north", "--features", "age,height"), "lacks the agreed columns height"),
        (("north", "--policy", "strict.toml"), "min_rows = 100000"),
        (("north", "--policy", "none.toml"), "cannot be read"),
    ):
        result = run("site", "describe", *arguments, "--data", "north.csv", "-o", "other.json")
        assert result.exit_code == 2
        assert message in " ".join(result.stderr.split())
    assert not (tmp_path / "other.json").exists()


def test_federation_app(run: Callable[..., Any], tmp_path: Path) -> None:
    result = run("federation", "app", "eigenpact-app")
    assert result.exit_code == 0, result.output
    written = tomllib.loads((tmp_path / "eigenpact-app" / "pyproject.toml").read_text())
    assert written["tool"]["flwr"]["app"]["config"] == SETTINGS
    assert run("federation", "app", "eigenpact-app").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--engine", "nvflare"), "was made for engine 'flower', not 'nvflare'"),
        (("--sites", "oslo"), "'oslo' is not a site of federation 'trial'"),
        (("--solver", "fastest"), "unknown solver 'fastest'"),
    ],
)
def test_coordinator_run_refuses(kits: Path, run: Callable[..., Any], arguments: tuple[str, ...], message: str) -> None:
    result = run("coordinator", "run", "--kit", kits / "coordinator", "-k", "2", "-o", "model", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert not (kits / "coordinator" / "runs").exists()


def test_coordinator_start_says_that_a_proxy_is_needed(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a host that is not this machine; the SuperLink itself is not started here."""

    @contextmanager
    def served(_: FlowerKit) -> Iterator[Any]:
        yield SimpleNamespace(wait=lambda: 0)

    monkeypatch.setattr("eigenpact.engines.flower.engine.serving", served)
    port = free_port()
    for host in ("localhost", "pca.example.org"):
        (tmp_path / "c.toml").write_text(CONSORTIUM.format(port=port).replace("localhost", host) + 'engine = "flower"\n')
        assert run("federation", "init", "c.toml", "-o", host).exit_code == 0
        result = run("coordinator", "start", tmp_path / host / "coordinator")
        assert result.exit_code == 0, result.output
        assert (f"listens on 127.0.0.1:{port} only" in result.stdout) == (host != "localhost")
        assert (f"publishes /v1/fleet/ at {host}:{port}" in result.stdout) == (host != "localhost")


def test_an_expired_or_foreign_site_does_not_start(kits: Path, run: Callable[..., Any], taken_over: list[Any]) -> None:
    (kits / "north" / "site.key").write_bytes((kits / "south" / "site.key").read_bytes())
    result = run("site", "start", kits / "north", "--data", "north.csv")
    assert result.exit_code == 2
    assert "does not belong to site.pub" in " ".join(result.stdout.split())
    assert taken_over == []


def test_a_second_description_does_not_change_what_a_node_answers_by(
    run: Callable[..., Any], refused: Callable[..., str], tmp_path: Path
) -> None:
    words = ("site", "describe", "north", "--data", "north.csv", "-o", "north.json")
    assert run(*words).exit_code == 0
    before = (tmp_path / "north.json").read_bytes()
    (tmp_path / "other.toml").write_text('solvers = ["gram"]\n')
    told = refused(*words, "--policy", "other.toml")
    assert "stop the node first and give --overwrite" in " ".join(told.split())
    assert (tmp_path / "north.json").read_bytes() == before
    assert run(*words, "--policy", "other.toml", "--overwrite").exit_code == 0
    assert (tmp_path / "north.json").read_bytes() != before
