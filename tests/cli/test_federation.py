"""``eigenpact federation``, ``check``, ``site`` and ``coordinator``, as far as they go without starting FLARE's processes."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import eigenpact as ep
from eigenpact.algorithms import start
from eigenpact.algorithms.consensus import krylov
from eigenpact.cli import app
from eigenpact.cli.commands import coordinator, federation, site
from eigenpact.cli.site_settings import SiteFile, read_policy
from eigenpact.engines.flare.kits import Kit
from eigenpact.errors import FileError, InputError, PolicyError
from eigenpact.estimators.model_files import save_model
from eigenpact.estimators.plans import functions_of, plan_of
from eigenpact.runtime import Gate, Plan, SiteLedger

pytest.importorskip("nvflare", reason="needs eigenpact[nvflare]")

from tests.engines.federation import reissue

from eigenpact.data.site_rows import open_rows
from eigenpact.engines.federation.sites import SiteFacts
from eigenpact.engines.flare.site import SITE_VARIABLE

CONSORTIUM = """\
name = "trial"
coordinator = "localhost:8102"
sites = ["north", "south"]
features = ["age", "bmi", "glucose", "pressure", "rate"]
"""
FEATURES = ("age", "bmi", "glucose", "pressure", "rate")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kits, made once."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "consortium.toml").write_text(CONSORTIUM)
    result = CliRunner().invoke(app, ["federation", "init", str(folder / "consortium.toml"), "-o", str(folder / "trial")])
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def kits(made: Path, tmp_path: Path) -> Path:
    """A copy of the kits in the current folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "trial"


@pytest.fixture
def taken_over(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, str]]]:
    """Commands that would have taken this process over."""
    became: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(site, "become", lambda command, environment: became.append((command, environment)))
    return became


def test_kits_are_made(kits: Path) -> None:
    assert {path.name for path in kits.iterdir()} == {"north", "south", "coordinator", "authority"}
    kit = Kit.read(kits / "north", "site")
    assert (kit.party, kit.federation.features[0], kit.federation.port) == ("north", "age", 8102)
    policy = read_policy(kits / "north" / "policy.toml")
    assert set(functions_of("auto", ["sum", "local"])) <= set(policy.functions)
    assert not policy.allow_gather


def test_the_default_policy_admits_exact_solvers_that_only_sum_and_nothing_else(kits: Path) -> None:
    policy = read_policy(kits / "north" / "policy.toml")
    exact = (ep.solvers.Gram(), ep.solvers.Krylov(), ep.solvers.Lanczos(), ep.solvers.Davidson(proxy=None), ep.solvers.Subspace())
    plans = [plan_of(solver, 300, 2, weighted=weighted) for solver in exact for weighted in (False, True)]
    for plan in plans:
        assert set(plan.functions) <= set(policy.functions)
        assert plan.kinds == ("local", "sum")
    assert set(policy.functions) == set().union(*(plan.functions for plan in plans))
    assert policy.solvers == ("auto", *(solver.name for solver in exact))


def test_a_policy_file_without_rules_is_refused(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("# to be written\n")
    with pytest.raises(InputError, match="holds no rule; name at least the solvers"):
        read_policy(tmp_path / "policy.toml")


def test_what_a_policy_file_does_not_say_is_as_in_a_new_kit(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("min_rows = 31\n")
    assert read_policy(tmp_path / "policy.toml") == replace(read_policy(None), min_rows=31)


@pytest.mark.parametrize(
    ("rule", "function"), [("allow_gather", start.leading_directions), ("allow_at", krylov.model_directions)]
)
def test_what_may_not_be_gathered_may_not_be_summed(kits: Path, tmp_path: Path, rule: str, function: Any) -> None:
    """The coordinator sees every reply of a sum: asking in that way must not get around the rule."""
    hostile = Plan("krylov", (function.name,), ("sum",), 10)
    path = kits / "north" / "policy.toml"
    facts: dict[str, Any] = {"n_rows": 100, "features": 5}
    with pytest.raises(PolicyError, match=f"rule functions: .*{function.short_name}"):
        Gate("north", read_policy(path), SiteLedger(tmp_path / "ledger"), **facts).admit("r1", hostile.to_dict())
    path.write_text(path.read_text().replace(f"{rule} = false", f"{rule} = true"))
    Gate("north", read_policy(path), SiteLedger(tmp_path / "ledger"), **facts).admit("r1", hostile.to_dict())


def test_a_site_is_revoked(kits: Path, run: Callable[..., Any], refused: Callable[..., str]) -> None:
    result = run("federation", "revoke", kits / "coordinator", "north")
    assert (result.exit_code, "Site north takes part in no run from now on" in result.stdout) == (0, True)
    assert ep.engines.NVFlare(kits / "coordinator").sites == ("south",)
    told = refused("coordinator", "run", "--kit", kits / "coordinator", "-k", "2", "-o", "model", "--sites", "north,south")
    assert "'north' was revoked as a site of federation 'trial': south" in told


def test_a_site_is_added_and_renewed(kits: Path, run: Callable[..., Any], tmp_path: Path) -> None:
    """By the commands of the page, with the coordinator's kit where it was made."""
    told = run("federation", "add", "trial", "west").stdout
    assert "Hand trial/west to the data manager of west, over a channel you trust; it is valid until 20" in told
    assert "trial/coordinator knows west from the next run on (list of parties, version 2)" in told
    assert ep.engines.NVFlare(kits / "coordinator").sites == ("north", "south", "west")
    assert read_policy(kits / "west" / "policy.toml") == read_policy(kits / "north" / "policy.toml")
    np.savetxt(tmp_path / "west.csv", np.load(tmp_path / "west.npy"), delimiter=",", header=",".join(FEATURES), comments="")
    (kits / "west" / "policy.toml").write_text("min_rows = 12\n")
    (kits / "west" / "site.toml").write_text(f'data = "{tmp_path / "west.csv"}"\n')
    assert run("site", "check", kits / "west" / "site.toml").exit_code == 0
    told = run("federation", "renew", "trial", "west").stdout
    assert "Hand trial/west-renewed-3 to the data manager of west, over a channel you trust; it is valid until 20" in told
    assert "eigenpact federation install KIT west-renewed-3" in told
    assert "trial/coordinator believes the new key of west from the next run on, and the old one no longer" in told
    told = run("federation", "install", "trial/west", "trial/west-renewed-3").stdout
    assert "trial/west has version 3 of the list of parties: coordinator, north, south, west; stop and start west again" in told
    assert run("site", "check", kits / "west" / "site.toml").exit_code == 0
    assert (kits / "west" / "policy.toml").read_text() == "min_rows = 12\n"


def test_an_authority_that_is_kept_elsewhere(kits: Path, run: Callable[..., Any], tmp_path: Path) -> None:
    """As it should be: then the list is handed to the coordinator, and to the sites when the coordinator's key is another."""
    offline = tmp_path / "offline"
    shutil.move(kits / "authority", offline / "authority")
    told = run("federation", "add", "offline", "west").stdout
    assert "Hand offline/parties.json to the coordinator: eigenpact federation install KIT parties.json" in told
    assert (
        "trial/coordinator has version 2 of the list"
        in run("federation", "install", "trial/coordinator", "offline/parties.json").stdout
    )
    assert Kit.read(kits / "coordinator", "coordinator").federation.sites == ("north", "south", "west")
    told = run("federation", "renew", "offline", "coordinator").stdout
    assert "Hand offline/coordinator-renewed-3 to the coordinator" in told
    assert "Hand offline/parties.json to every site, which believes the old key until it is put in" in told
    for kit, source in (("coordinator", "coordinator-renewed-3"), ("north", "parties.json"), ("south", "parties.json")):
        assert run("federation", "install", f"trial/{kit}", f"offline/{source}").exit_code == 0
    letter = Kit.read(kits / "coordinator", "coordinator").identity().sign(b"text")
    assert Kit.read(kits / "north", "site").identity().genuine("coordinator", b"text", letter)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("add", "trial", "north"), "'north' is a site of federation 'trial' already; for a new key"),
        (("add", "trial", "my site"), "site 'my site' must be 1 to 61 letters"),
        (("add", "trial", "west", "-o", "trial/south"), "trial/south exists already; choose another folder"),
        (("add", "trial/coordinator", "west"), "trial/coordinator has no authority/; give the folder that federation init made"),
        (("add", "nowhere", "west"), "nowhere has no authority/"),
        (("renew", "trial", "west"), "'west' is no party of federation 'trial'; those with keys are coordinator, north, south"),
        (("renew", "trial", "authority"), "'authority' is no party"),
        (("renew", "trial", "north", "-o", "trial/north"), "trial/north exists already; choose another folder"),
        (
            ("install", "trial/authority", "trial/north"),
            "is the kit of 'authority', an authority; give the kit of a site or a coord",
        ),
        (("install", "trial/north", "trial/south"), "trial/south is for 'south', and"),
        (("install", "trial/north", "north.csv"), "north.csv cannot be read: Expecting value"),
        (("install", "nowhere", "trial/north"), "nowhere is not a kit made by eigenpact federation init"),
    ],
)
def test_changes_that_are_refused(kits: Path, refused: Callable[..., str], arguments: tuple[str, ...], message: str) -> None:  # noqa: ARG001
    """In one line, and with nothing written."""
    assert message in refused("federation", *arguments)


def test_check_notices_another_federations_certificate(kits: Path, run: Callable[..., Any], refused: Callable[..., str]) -> None:
    """And another site's, and one of the coordinator's that is a site's."""
    own = shutil.copytree(kits / "north" / "startup", kits / "kept")
    for name in ("client.crt", "client.key"):
        shutil.copy(kits / "south" / "startup" / name, kits / "north" / "startup" / name)
    refusal(run, kits, "client.crt of", "was issued to 'south', not to 'north'; every party has a kit of its own: ask for yours")
    shutil.copytree(own, kits / "north" / "startup", dirs_exist_ok=True)
    shutil.copy(kits / "north" / "startup" / "client.crt", kits / "north" / "startup" / "rootCA.pem")
    refusal(run, kits, "rootCA.pem of", "is not the certificate of the authority of federation 'trial'; ask for the kit again")
    for name in ("client.crt", "client.key"):
        shutil.copy(kits / "south" / "startup" / name, kits / "coordinator" / "admin" / "startup" / name)
    for arguments in (("start", kits / "coordinator"), ("run", "--kit", kits / "coordinator", "-k", "2", "-o", "model")):
        assert "was issued to 'south', not to 'coordinator@eigenpact.org'" in refused("coordinator", *arguments)


def test_kits_are_not_made_twice(kits: Path, refused: Callable[..., str]) -> None:  # noqa: ARG001
    assert "trial exists already" in refused("federation", "init", "consortium.toml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "trial"\n', "", "'name' is missing"),
        ("sites =", "places =", "'places' is unknown"),
        ("localhost:8102", "localhost", "must be host:port"),
        ('["north", "south"]', '"north"', "sites must be a list of names"),
        ('["north", "south"]', '["north", "north"]', "each once"),
        ('"trial"', '"my trial"', "must be 1 to 61 letters"),
        ('name = "trial"', 'name = "trial', "is not a TOML file"),
    ],
)
def test_a_bad_consortium(tmp_path: Path, refused: Callable[..., str], old: str, new: str, message: str) -> None:
    (tmp_path / "consortium.toml").write_text(CONSORTIUM.replace(old, new))
    assert message in refused("federation", "init", "consortium.toml")


def test_check(kits: Path, run: Callable[..., Any], tmp_path: Path) -> None:
    (kits / "north" / "site.toml").write_text(f'data = "{tmp_path / "north.csv"}"\n')
    result = run("site", "check", kits / "north" / "site.toml")
    assert result.exit_code == 0
    assert result.stdout.count(" ok ") == 7
    (kits / "north" / "policy.toml").write_text('solvers = ["gram"]\nmin_rows = 31\n')
    result = run("site", "check", kits / "north" / "site.toml")
    assert result.exit_code == 2
    assert "30 rows, but min_rows = 31" in result.stdout


def test_check_says_how_many_rows_weighted_ones_count_as(kits: Path, run: Callable[..., Any], tmp_path: Path) -> None:
    header, *lines = (tmp_path / "north.csv").read_text().splitlines()
    times = [0, *[1] * 14, *[3] * 15]
    weighted = [f"{header},times", *(f"{line},{t}" for line, t in zip(lines, times, strict=True))]
    data = kits / "north" / "patients.csv"
    data.write_text("\n".join(weighted) + "\n")
    data.with_name("patients.csv.toml").write_text('weights = "times"\n')
    result = run("site", "check", kits / "north" / "site.toml")
    told, counted = " ".join(result.stdout.split()), int(sum(times) ** 2 / sum(t * t for t in times))
    assert result.exit_code == 0, told
    assert f"29 that have weights, which count as {counted}, (sum w)^2 / sum w^2; at least 20 are needed" in told
    assert "takes part only in runs with --weights" in told
    (kits / "north" / "policy.toml").write_text('solvers = ["gram"]\nmin_rows = 29\n')
    told = " ".join(run("site", "check", kits / "north" / "site.toml").stdout.split())
    assert f"{counted} rows, as which 29 rows count by their weights, but min_rows = 29" in told
    weighted[3] = ",".join([*weighted[3].split(",")[:2], "", *weighted[3].split(",")[3:]])
    data.write_text("\n".join(weighted) + "\n")
    (kits / "north" / "policy.toml").write_text('solvers = ["gram"]\nfill_missing = true\n')
    result = run("site", "check", kits / "north" / "site.toml")
    assert result.exit_code == 2
    assert "no run takes these rows with weights" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("min_row = 3", "unknown rule 'min_row'"),
        ('solvers = ["magic"]', "unknown solver 'magic'; allowed are auto"),
        ("max_rounds = 1.5", "rule max_rounds = 1.5 must be a whole number"),
    ],
)
def test_check_names_what_is_wrong(kits: Path, run: Callable[..., Any], tmp_path: Path, rules: str, message: str) -> None:
    """A bad rule, and a column that was agreed on and is not there; all in one go."""
    text = (tmp_path / "north.csv").read_text().replace("bmi", "weight")
    (kits / "north" / "patients.csv").write_text(text)
    (kits / "north" / "policy.toml").write_text(rules + "\n")
    result = run("site", "check", kits / "north" / "site.toml")
    assert result.exit_code == 2
    told = " ".join(result.stdout.split())
    assert "lacks the agreed columns bmi" in told
    assert message in told


def test_check_repeats_what_nobody_has_decided(kits: Path, run: Callable[..., Any], tmp_path: Path) -> None:
    described = tmp_path / "south.csv.toml"
    described.write_text("# DECIDE: column 2: -9 occurs 1 times\nmissing = []\n")
    (kits / "south" / "site.toml").write_text(f'data = "{tmp_path / "south.csv"}"\n')
    result = run("site", "check", kits / "south" / "site.toml")
    assert result.exit_code == 0, result.output
    assert "DECIDE: column 2: -9 occurs 1 times" in result.stdout
    assert "decide, and delete the remarks in south.csv.toml" in result.stdout
    assert "features     look" in result.stdout
    described.write_text("missing = []\n")
    assert "features     ok" in run("site", "check", kits / "south" / "site.toml").stdout


def test_check_suggests_a_description(kits: Path, run: Callable[..., Any], tmp_path: Path) -> None:
    text = (tmp_path / "north.csv").read_text()
    data = kits / "north" / "patients.csv"
    data.write_bytes(text.replace(",", ";").replace(".", ",").replace("bmi", "BMI ").replace("p0;", "p\xfc;").encode("latin-1"))
    result = run("site", "check", kits / "north" / "site.toml")
    assert result.exit_code == 2
    told = " ".join(result.stdout.split())
    assert "line 2, column 1: byte 0xfc is not UTF-8" in told
    description = result.stdout[result.stdout.index("# What patients.csv is") :]
    data.with_name("patients.csv.toml").write_text(description, encoding="utf-8")
    result = run("site", "check", kits / "north" / "site.toml")
    assert result.exit_code == 0, result.stdout
    assert "it is described by patients.csv.toml" in result.stdout


def test_site_start_takes_columns_in_the_agreed_order(
    kits: Path, run: Callable[..., Any], taken_over: list[Any], sites: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """south.csv has its columns reversed; what FLARE's process will read is the table in the federation's order."""
    result = run("site", "start", kits / "south", "--data", "south.csv", "--coordinator-timeout", "5")
    assert result.exit_code == 0, result.output
    ((command, environment),) = taken_over
    assert str(kits / "south") in command
    facts = SiteFacts.read(environment[SITE_VARIABLE], SITE_VARIABLE)
    assert (facts.name, facts.coordinator_timeout) == ("south", 5.0)
    seen = {}
    monkeypatch.setattr("eigenpact.engines.federation.sites.SiteServer", lambda _name, X, **_: seen.setdefault("X", X))
    facts.server()
    np.testing.assert_array_equal(seen["X"], sites["south"])


def test_site_start_refuses(kits: Path, run: Callable[..., Any], taken_over: list[Any], tmp_path: Path) -> None:
    (tmp_path / "wrong.csv").write_text((tmp_path / "north.csv").read_text().replace("bmi", "weight"))
    result = run("site", "start", kits / "north", "--data", "wrong.csv")
    assert result.exit_code == 2
    assert "lacks the agreed columns bmi" in " ".join(result.stdout.split())
    assert "this site is not ready" in result.stderr
    assert run("site", "start", kits / "coordinator", "--data", "north.csv").exit_code == 2
    assert run("site", "start", kits / "north", "--data", "north.csv", "--coordinator-timeout", "0").exit_code == 2
    assert taken_over == []


def test_site_start_refuses_an_expired_certificate(kits: Path, run: Callable[..., Any], taken_over: list[Any]) -> None:
    now = datetime.now(UTC)
    reissue(kits / "north", kits / "authority", now - timedelta(days=3), now - timedelta(days=1))
    result = run("site", "start", kits / "north", "--data", "north.csv")
    assert result.exit_code == 2
    assert f"the certificate of 'north' expired on {now - timedelta(days=1):%Y-%m-%d}" in " ".join(result.stdout.split())
    assert taken_over == []


def test_coordinator_start(kits: Path, run: Callable[..., Any], taken_over: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "_check_port", lambda _host, _port: None)
    result = run("coordinator", "start", kits / "coordinator")
    assert result.exit_code == 0
    assert "Serving federation trial at localhost:8102" in result.stdout
    ((command, _),) = taken_over
    assert str(kits / "coordinator" / "server") in command
    resources = json.loads((kits / "coordinator" / "server" / "local" / "resources.json").read_text())
    assert str(kits) in resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"]  # nothing outside the kit


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "model"), "a new run needs -k and -o"),
        (("-k", "2"), "a new run needs -k and -o"),
        (("-k", "2", "-o", "model", "--solver", "magic"), "unknown solver 'magic'"),
        (("-k", "2", "-o", "model", "--sites", "north,paris"), "'paris' is not a site of federation 'trial': north, south"),
        (("-k", "2", "-o", "model", "--min-sites", "3"), "--min-sites 3 must be between"),
        (("-k", "2", "-o", "model", "--round-timeout", "0"), "--round-timeout 0.0 must be"),
        (("-k", "two", "-o", "model"), "-k two is not allowed"),
        (("-k", "2", "-o", "north.csv"), "north.csv is a file"),
        (("--resume", "yesterday"), "is not the folder of a run"),
    ],
)
def test_a_bad_run(kits: Path, refused: Callable[..., str], arguments: tuple[str, ...], message: str) -> None:
    """Refused before anything is started or written."""
    assert message in refused("coordinator", "run", "--kit", kits / "coordinator", *arguments)


def test_a_site_transforms_its_own_rows(kits: Path, run: Callable[..., Any], sites: dict[str, Any], tmp_path: Path) -> None:
    pca = ep.FederatedPCA(2).fit({"north": sites["north"], "south": sites["south"]})
    pca.feature_names_in_ = np.array(Kit.read(kits / "north", "site").federation.features, dtype=object)
    save_model(pca, tmp_path / "model")
    result = run("site", "transform", kits / "south", "model", "--data", "south.csv", "-o", "scores.npy")
    assert result.exit_code == 0, result.output
    expected = (sites["south"] - pca.mean_) @ pca.components_.T
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), expected, atol=1e-12)


def test_a_site_that_was_not_in_the_run_is_told(
    kits: Path, refused: Callable[..., str], sites: dict[str, Any], tmp_path: Path
) -> None:
    save_model(ep.FederatedPCA(2).fit({"north": sites["north"], "west": sites["west"]}), tmp_path / "model")
    assert "without south" in refused("site", "transform", kits / "south", "model", "--data", "south.csv", "-o", "scores.npy")
    assert "name it with --data" in refused("site", "transform", kits / "south", "model", "-o", "scores.npy")


def test_an_example_without_data_is_generated(run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the heart-disease file is absent, and it can be federated all the same."""
    monkeypatch.delenv("EIGENPACT_DATA", raising=False)
    monkeypatch.setenv("EIGENPACT_CACHE", str(tmp_path / "cache"))
    result = run("federation", "example", "hospitals")
    assert result.exit_code == 0, result.output
    assert "generated rows" in result.stdout
    assert run("federation", "init", "hospitals/consortium.toml").exit_code == 0
    assert run("site", "check", "hospitals/va.toml").exit_code == 0


def test_the_page_shows_the_example_as_it_is_written(run: Callable[..., Any], tmp_path: Path) -> None:
    """On any port that is asked for; the page has the usual one."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "federate.md").read_text()
    for folder, options in (("one", ("--port", "8102")), ("two", ("--port", "65001"))):
        assert run("federation", "example", folder, *options).exit_code == 0
    written = (tmp_path / "one" / "consortium.toml").read_text()
    assert f"```toml\n{written}```" in page
    assert (tmp_path / "two" / "consortium.toml").read_text() == written.replace("8102", "65001")


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ('modules = ["no_such_module"]', "rule modules: 'no_such_module' cannot be imported here"),
        (
            'functions = ["eigenpact.algorithms.start:leading_directions"]',
            "rule functions: unknown function 'eigenpact.algorithms.start:leading_directions': this is a name by module",
        ),
    ],
)
def test_a_slip_in_a_policy_is_named(kits: Path, run: Callable[..., Any], tmp_path: Path, rules: str, message: str) -> None:
    """Before the site is started, not when the first run comes."""
    (kits / "north" / "policy.toml").write_text(f'solvers = ["gram"]\n{rules}\n')
    (kits / "north" / "site.toml").write_text(f'data = "{tmp_path / "north.csv"}"\n')
    result = run("site", "check", kits / "north" / "site.toml")
    assert result.exit_code == 2
    assert message in " ".join(result.stdout.split())


def test_a_private_key_must_fit_and_be_its_owners_alone(kits: Path, run: Callable[..., Any]) -> None:
    """FLARE would wait for ever without a word where the key is missing or another's."""
    key, other = (kits / name / "startup" / "client.key" for name in ("north", "south"))
    own = key.read_bytes()
    key.chmod(0o640)
    assert "client.key of" in refusal(run, kits, "may be read by others; make it yours alone: chmod 600")
    key.chmod(0o600)
    key.write_bytes(other.read_bytes())
    refusal(run, kits, "client.key of", "does not belong to client.crt")
    key.unlink()
    refusal(run, kits, "client.key of", "cannot be read")
    key.write_bytes(own)
    key.chmod(0o600)
    assert (
        f"valid until {Kit.read(kits / 'north', 'site').expires():%Y-%m-%d}"
        in run("site", "check", kits / "north" / "site.toml").stdout
    )


def refusal(run: Callable[..., Any], kits: Path, *texts: str) -> str:
    """What ``check`` says of a kit's certificate."""
    told = " ".join(run("site", "check", kits / "north" / "site.toml").stdout.split())
    assert all(text in told for text in texts), told
    return told


def test_a_policy_with_own_modules(tmp_path: Path) -> None:
    """A site's owner may list functions of modules that are installed there; they are imported when the site starts."""
    (tmp_path / "policy.toml").write_text('solvers = ["mine"]\nmodules = ["mine.locals"]\nfunctions = ["mine.locals:f"]\n')
    policy = read_policy(tmp_path / "policy.toml")
    assert (policy.solvers, policy.functions, policy.modules) == (("mine",), ("mine.locals:f",), ("mine.locals",))


def test_errors_have_their_builtin() -> None:
    assert issubclass(PolicyError, PermissionError)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no rule; name at least the solvers"),
        ("solvers = []", "allows no solver; add a line such as"),
        ('solver = ["gram"]', "unknown rule 'solver'; the rules are solvers"),
        ('solvers = "gram"', "rule solvers = 'gram' must be a list of texts"),
        ('solvers = ["Gram"]', "unknown solver 'Gram'; allowed are"),
        ('solvers = ["gram", 1]', "must be a list of texts"),
        ('solvers = ["gram"]\nMin_rows = 5', "unknown rule 'Min_rows'; the rules are"),
        ('solvers = ["gram"]\n[policy]\nmin_rows = 5', "unknown rule 'policy'"),
        ('solvers = ["gram"]\nmin_rows = 0', "rule min_rows = 0 must be a whole number > 0"),
        ('solvers = ["gram"]\nmin_rows = 1e3', "rule min_rows = 1000.0 must be a whole number > 0"),
        ('solvers = ["gram"]\nmin_rows = 99999999999999999999', "min_rows = a number of 64 bits or more must be a whole number"),
        ('solvers = ["gram"]\nallow_gather = "false"', "rule allow_gather = 'false' must be true or false"),
        ("solvers = " + "[" * 5000, "is not a TOML file"),
        ('solvers = ["gram"]\nmin_rows = ' + "9" * 5000, "is not a TOML file"),
        ('solvers = ["gram"]\nsolvers = ["krylov"]', "is not a TOML file"),
        ("\x00", "is not a TOML file"),
    ],
)
def test_policies_with_a_slip_are_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(InputError, match=re.escape(told)):
        read_policy(tmp_path / "policy.toml")


def test_policies_may_begin_as_windows_writes_them(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text('\ufeffsolvers = ["gram"]\nmin_rows = 100\n')
    assert read_policy(tmp_path / "policy.toml").min_rows == 100


@pytest.mark.parametrize(
    "line", ['coordinator_timeout = "x"', "coordinator_timeout = nan", "coordinator_timeout = -1", "kit = 3"]
)
def test_site_files_with_a_slip_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "site.toml").write_text(f'data = "patients.csv"\n{line}\n')
    with pytest.raises(InputError, match="must be"):
        SiteFile.read(tmp_path / "site.toml")


def test_settings_are_not_read_from_pipes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "policy.toml")
    with pytest.raises(FileError, match="is a pipe, not a file"):
        read_policy(tmp_path / "policy.toml")


def test_a_site_that_lacks_columns_is_told_which_and_what_looks_alike(kits: Path, run: Callable[..., Any]) -> None:
    rows = np.random.default_rng(0).normal(size=(30, 4)).round(3).tolist()
    lines = ["age,bmi,Glucose (mg/dL),pressure", *(",".join(map(str, row)) for row in rows)]
    (kits / "north" / "patients.csv").write_text("\n".join(lines) + "\n")
    lacks = "lacks the agreed columns glucose, rate (2 of 5); is 'Glucose (mg/dL)' of the file 'glucose'?"
    result = run("site", "check", kits / "north" / "site.toml")
    assert result.exit_code == 2
    told = " ".join(result.stdout.split())
    assert f"features NO patients.csv {lacks}; add them" in told
    assert "set compare_columns = true" in told
    path = kits / "north" / "policy.toml"
    path.write_text(path.read_text().replace("compare_columns = false", "compare_columns = true"))
    result = run("site", "check", kits / "north" / "site.toml")
    assert result.exit_code == 0, result.output
    told = " ".join(result.stdout.split())
    assert f"features partly {lacks}; this site takes part only in runs with --features intersection or union" in told


def test_a_site_with_missing_entries_is_told_where_and_which_rule_helps(kits: Path, run: Callable[..., Any]) -> None:
    rows = np.random.default_rng(0).normal(size=(30, 5)).round(3).astype(str)
    rows[[3, 7, 8], 1] = ""
    (kits / "north" / "patients.csv").write_text("\n".join([",".join(FEATURES), *map(",".join, rows)]) + "\n")
    result = run("site", "check", kits / "north" / "site.toml")
    assert result.exit_code == 2
    told = " ".join(result.stdout.split())
    assert "features NO patients.csv: column 'bmi' is missing in 3 of 30 rows; drop those rows" in told
    assert "set fill_missing = true in the policy, for runs with --missing mean or em" in told
    assert "needs a description" not in told
    path = kits / "north" / "policy.toml"
    path.write_text(path.read_text().replace("fill_missing = false", "fill_missing = true"))
    assert "eigenpact:keep_fill/1" in read_policy(path).functions
    result = run("site", "check", kits / "north" / "site.toml")
    assert result.exit_code == 0, result.output
    told = " ".join(result.stdout.split())
    assert "partly column 'bmi' is missing in 3 of 30 rows; this site takes part only in runs with --missing mean or em" in told


def test_steps_of_prepare_are_allowed_by_name(kits: Path, refused: Callable[..., str]) -> None:  # noqa: ARG001
    path = kits / "north" / "policy.toml"
    assert "eigenpact:keep_scale/1" not in read_policy(path).functions
    path.write_text(path.read_text().replace("prepare = []", 'prepare = ["scale"]'))
    assert {"eigenpact:keep_scale/1", "eigenpact:observed_sums/1"} <= set(read_policy(path).functions)
    assert "eigenpact:keep_genotypes/1" not in read_policy(path).functions
    path.write_text(path.read_text().replace('prepare = ["scale"]', 'prepare = ["scaling"]'))
    with pytest.raises(InputError, match="rule prepare names 'scaling', which is no step; there are log-normalize, hvg, scale"):
        read_policy(path)


def test_a_description_may_lie_anywhere(
    kits: Path, run: Callable[..., Any], tmp_path: Path, taken_over: list[tuple[list[str], dict[str, str]]]
) -> None:
    """Named in site.toml for the check, by --describe for the start; the site's process and its scores use the same one."""
    text = (tmp_path / "north.csv").read_text().replace(",", ";").replace(".", ",")
    (tmp_path / "patients.csv").write_text(text.replace("bmi", "BMI"))
    (tmp_path / "said.toml").write_text('decimal = ","\nseparator = ";"\nid = "id"\n[rename]\nBMI = "bmi"\n')
    (tmp_path / "site.toml").write_text('kit = "trial/north"\ndata = "patients.csv"\ndescription = "said.toml"\n')
    result = run("site", "check", tmp_path / "site.toml")
    assert result.exit_code == 0, result.output
    result = run("site", "start", kits / "north", "--data", "patients.csv", "--describe", "said.toml")
    assert result.exit_code == 0, result.output
    facts = SiteFacts.read(taken_over[0][1][SITE_VARIABLE], "the test")
    assert facts.description == str(tmp_path / "said.toml")
    assert facts.server()[0].n_features == 5
    X = np.genfromtxt(tmp_path / "north.csv", delimiter=",", skip_header=1)[:, 1:]
    pca = ep.FederatedPCA(2).fit({"north": X})
    expected = pca.transform(X)
    pca.feature_names_in_ = np.array(FEATURES, dtype=object)
    save_model(pca, tmp_path / "model")
    result = run("site", "transform", kits / "north", "model", "-o", "scores.npy")
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(np.load("scores.npy"), expected)


def test_site_files_of_earlier_versions_say_nothing_of_a_description(tmp_path: Path) -> None:
    facts: dict[str, Any] = dict.fromkeys(("name", "opener", "data", "ledger", "kit"), "x")
    facts |= {"features": 5, "policy": {}, "coordinator_timeout": 60.0}
    (tmp_path / "old.json").write_text(json.dumps(facts))
    assert SiteFacts.read(str(tmp_path / "old.json"), "the test").description == ""


def test_a_consortium_may_agree_on_the_variants_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "agreed.bim").write_text("1 rs1 0 10 A G\n1 rs2 0 20 C T\n")
    consortium = tmp_path / "consortium.toml"
    consortium.write_text(re.sub(r"features = .*", 'features = "agreed.bim"', CONSORTIUM))
    assert federation.read_consortium(consortium).features == ("rs1 1:10 A/G", "rs2 1:20 C/T")


def test_columns_that_nobody_agreed_on_are_not_looked_at(kits: Path, run: Callable[..., Any], tmp_path: Path) -> None:
    """Whatever they hold; and rows are the same bits as without them."""
    bare = (tmp_path / "south.csv").read_text().splitlines()
    header, *lines = bare
    wider = [f"{header},comment,nr", *(f"{line},hello; {i} ?,{i}" for i, line in enumerate(lines))]
    (tmp_path / "wide.csv").write_text("\n".join(wider) + "\n")
    features = Kit.read(kits / "south", "site").federation.features
    expected = open_rows("south", str(tmp_path / "south.csv"), features)
    assert open_rows("south", str(tmp_path / "wide.csv"), features).tobytes() == expected.tobytes()
    (kits / "south" / "site.toml").write_text(f'data = "{tmp_path / "wide.csv"}"\n')
    result = run("site", "check", kits / "south" / "site.toml")
    assert result.exit_code == 0, result.output
    assert "nr" not in result.stdout.split()
    (tmp_path / "lacks.csv").write_text("\n".join(wider).replace("bmi", "BMI_") + "\n")
    (kits / "south" / "site.toml").write_text(f'data = "{tmp_path / "lacks.csv"}"\n')
    assert "'hello; 0 ?' is not a number" in " ".join(run("site", "check", kits / "south" / "site.toml").stdout.split())
