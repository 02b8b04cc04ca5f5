"""``eigenpact site start``: one process for one kit, which answers with the table and the policy that it was started with."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from eigenpact.cli import app
from eigenpact.cli.commands import site
from eigenpact.engines.federation.running import FACTS, LOCK, keep_from_children, locked
from eigenpact.engines.federation.sites import SiteFacts
from eigenpact.engines.flare.kits import DIGEST_VARIABLE, SITE_VARIABLE
from eigenpact.engines.flower.kits import FlowerKit
from eigenpact.errors import InputError, PolicyError
from eigenpact.runtime import read_site_ledger

pytest.importorskip("flwr", reason="needs eigenpact[flower]")

CONSORTIUM = """\
name = "trial"
coordinator = "localhost:8102"
sites = ["north", "south"]
features = ["age", "bmi", "glucose", "pressure", "rate"]
engine = "flower"
"""


@pytest.fixture
def kit(run: Callable[..., Any], tmp_path: Path) -> Path:
    """The kit of north, whose table is named in its site.toml; kits of Flower are made faster."""
    (tmp_path / "consortium.toml").write_text(CONSORTIUM)
    assert run("federation", "init", "consortium.toml", "-o", "trial").exit_code == 0
    (tmp_path / "trial" / "north" / "site.toml").write_text('data = "../../north.csv"\n')
    return tmp_path / "trial" / "north"


@pytest.fixture
def started(kit: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """A site that was started without options: the file with its facts, and their digest; it holds its kit."""
    became: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(site, "become", lambda command, environment: became.append((command, environment)))
    result = run("site", "start", kit)
    assert result.exit_code == 0, result.output
    ((command, environment),) = became
    said = command[command.index("--node-config") + 1]
    assert LOCK in environment
    with locked(FlowerKit.read(kit, "site")):
        yield kit / FACTS, said.partition('eigenpact-digest="')[2].rstrip('"')


def test_site_toml_says_what_is_not_given(started: tuple[Path, str], tmp_path: Path) -> None:
    facts = SiteFacts.read(str(started[0]), "this test", started[1])
    assert Path(facts.data).resolve() == tmp_path / "north.csv"
    assert facts.ledger == str(started[0].parent / "ledger.jsonl")
    assert facts.pid == os.getpid()


def test_a_kit_is_started_once(started: tuple[Path, str], run: Callable[..., Any], refused: Callable[..., str]) -> None:
    """The second start says who has it, since when and with what, and changes nothing; also from elsewhere."""
    before = started[0].read_bytes()
    since = SiteFacts.read(str(started[0]), "this test").since.replace("T", " ")[:16]
    for arguments in ((started[0].parent,), (started[0].parent / "site.toml",)):
        told = refused("site", "start", *arguments, "--data", "south.csv")
        assert f"north is started already, by process {os.getpid()} since {since}" in told
        assert "with north.csv; stop that one first, with Ctrl-C or kill" in told
    assert started[0].read_bytes() == before
    assert run("site", "check", started[0].parent / "site.toml").exit_code == 0  # which only looks


def test_the_lock_goes_with_the_process_and_not_with_its_children(kit: Path) -> None:
    """A child that outlives the site must not keep the next one out."""
    owned = FlowerKit.read(kit, "site")
    holder = (
        f"import os; from {keep_from_children.__module__} import keep_from_children as k; k(); os.system('sleep 30 >&- 2>&- &')"
    )
    with locked(owned) as environment:
        options: dict[str, Any] = {"env": os.environ | environment, "close_fds": False}
        with subprocess.Popen([sys.executable, "-c", f"{holder}; input()"], stdin=subprocess.PIPE, **options) as process:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
    with locked(owned):  # what the process has started is still there
        pass


def test_a_table_that_changed_is_not_answered_with(started: tuple[Path, str], tmp_path: Path) -> None:
    facts = SiteFacts.read(str(started[0]), "this test", started[1])
    facts.server()
    text = (tmp_path / "north.csv").read_text().splitlines()
    (tmp_path / "north.csv").write_text("\n".join([text[0], *reversed(text[1:])]) + "\n")
    facts.server()  # the same rows in another order are the same
    (tmp_path / "north.csv").write_text("\n".join(text[:-1]) + "\n")
    with pytest.raises(PolicyError, match="rule data: this site's table is not the one that the site was started with; its own"):
        facts.server()
    endpoint, _ = facts.stand_ready()
    assert endpoint is not None


def test_a_policy_that_changed_is_not_answered_with(started: tuple[Path, str]) -> None:
    path, digest = started
    path.write_text(path.read_text().replace('"min_rows": 20', '"min_rows": 1'))
    with pytest.raises(InputError, match=r"site.json' was changed since the site was started.* stop it and start it again"):
        SiteFacts.read(str(path), "this test", digest)
    SiteFacts.read(str(path), "this test")  # the file itself is fine


def test_the_ledger_names_table_and_policy(started: tuple[Path, str], kit: Path, run: Callable[..., Any]) -> None:
    """By name and version, not by value; another policy has another digest."""
    (row,) = read_site_ledger(kit / "ledger.jsonl")
    facts = SiteFacts.read(str(started[0]), "this test")
    assert (row["what"], row["table"], row["rows"], row["data"]) == ("started", "north.csv", 30, facts.version)
    assert row["pid"] == os.getpid()
    assert row["solvers"][:2] == ["auto", "gram"]
    text = (kit / "policy.toml").read_text()
    (kit / "stricter.toml").write_text(text.replace("max_rounds = 500", "max_rounds = 400"))
    described = run("site", "describe", "n", "--data", "north.csv", "--policy", kit / "stricter.toml", "-o", "n.json")
    assert described.exit_code == 0, described.output
    (other,) = read_site_ledger("n.ledger.jsonl")
    assert other["what"] == "described"
    assert other["policy"] != row["policy"]


def test_a_kit_of_flare_is_told_in_its_environment(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nvflare", reason="needs eigenpact[nvflare]")
    became: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(site, "become", lambda command, environment: became.append((command, environment)))
    (tmp_path / "consortium.toml").write_text(CONSORTIUM)
    assert run("federation", "init", "consortium.toml", "-o", "flare", "--engine", "nvflare").exit_code == 0
    assert run("site", "start", tmp_path / "flare" / "north", "--data", "north.csv").exit_code == 0
    ((_, environment),) = became
    SiteFacts.read(environment[SITE_VARIABLE], SITE_VARIABLE, environment[DIGEST_VARIABLE])


def test_without_a_table_it_says_where_to_name_one(kit: Path, run: Callable[..., Any]) -> None:
    (kit / "site.toml").write_text('data = "patients.csv"\n')
    result = run("site", "start", kit)
    assert result.exit_code == 2
    assert "patients.csv" in result.stdout
    assert "this site is not ready; see the lines marked NO" in result.stderr


def test_every_kit_says_what_to_do_with_it(kit: Path, run: Callable[..., Any], tmp_path: Path) -> None:
    """The commands that its README names are those that there are; also in the kit of a site that joined."""
    assert run("federation", "add", "trial", "west").exit_code == 0
    for party in ("north", "west", "coordinator"):
        text = (kit.parent / party / "README.md").read_text()
        assert "{" not in text
        commands = [line.split() for line in text.splitlines() if line.startswith("       eigenpact ")]
        assert len(commands) == (2 if party == "coordinator" else 3)
        for words in commands:
            name = words[1:2] if words[1] == "describe" else words[1:3]
            help_ = CliRunner().invoke(app, [*name, "--help"], prog_name="eigenpact").stdout
            assert f"Usage: eigenpact {' '.join(name)} [OPTIONS]" in help_
    site_text = (kit / "README.md").read_text()
    assert "needs the columns age, bmi, glucose, pressure, rate" in " ".join(site_text.split())
    assert "valid until 20" in site_text
    assert str(tmp_path) not in site_text
