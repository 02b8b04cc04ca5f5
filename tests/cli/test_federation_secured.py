"""Secured sums on the command line: what kits ask for, keys that sites make, and what is told of them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.cli.site_settings import read_policy
from eigenpact.engines.federation import trust
from eigenpact.engines.federation.identities import public_of
from eigenpact.engines.federation.kits import REVOKED, PartyKit, read_kit
from eigenpact.engines.federation.sites import SiteFacts
from eigenpact.errors import InputError, PolicyError

pytest.importorskip("nvflare", reason="needs eigenpact[nvflare]")

CONSORTIUM = """\
name = "trial"
coordinator = "localhost:8102"
sites = ["north", "south", "west"]
features = 5
engine = "flower"
"""


@pytest.fixture
def init(run: Callable[..., Any], tmp_path: Path) -> Callable[..., str]:
    """Make kits of three sites."""

    def make(*options: str, consortium: str = CONSORTIUM) -> str:
        (tmp_path / "consortium.toml").write_text(consortium)
        result = run("federation", "init", "consortium.toml", *options)
        assert result.exit_code == 0, result.output
        return str(result.stdout)

    return make


@pytest.fixture
def kits(init: Callable[..., str], tmp_path: Path) -> Path:
    init()
    for name in ("north", "south", "west"):
        (tmp_path / "trial" / name / "site.toml").write_text(f'data = "{tmp_path / "west.npy"}"\n')
        path = tmp_path / "trial" / name / "policy.toml"
        path.write_text(path.read_text().replace("min_rows = 20", "min_rows = 12"))
    return tmp_path / "trial"


def site_of(kits: Path, name: str) -> PartyKit:
    return read_kit(kits / name, "site", PartyKit)


def pin(kits: Path, name: str, lines: dict[str, str]) -> None:
    """Write others' keys into a policy, where the file of a new kit says."""
    path = kits / name / "policy.toml"
    text = path.read_text().replace("# [participants]", "[participants]")
    path.write_text(text + "".join(f'{site} = "{key}"\n' for site, key in lines.items()))


def line_of(run: Callable[..., Any], kits: Path, name: str, *options: str) -> dict[str, str]:
    """What ``site key`` prints, as a policy reads it."""
    result = run("site", "key", kits / name, *options)
    assert result.exit_code == 0, result.output
    return tomllib.loads(result.stdout)


def checked(run: Callable[..., Any], kits: Path, name: str, code: int = 0) -> str:
    result = run("site", "check", kits / name / "site.toml")
    assert result.exit_code == code, result.output
    return " ".join(result.stdout.split())


def test_kits_of_three_sites_ask_for_secured_sums_and_say_the_price(init: Callable[..., str], tmp_path: Path) -> None:
    told = init()
    assert "Policies ask for secured sums" in told
    assert "a site that is lost stops a run until it is back" in told
    for name in ("north", "south", "west"):
        assert read_policy(tmp_path / "trial" / name / "policy.toml").secure == "required"


def test_plain_sums_are_an_option_and_what_two_sites_have(init: Callable[..., str], tmp_path: Path) -> None:
    assert "secured" not in init("--plain-sums", "-o", "plain")
    assert "secured" not in init("-o", "two", consortium=CONSORTIUM.replace(', "west"', ""))
    for folder in ("plain", "two"):
        assert read_policy(tmp_path / folder / "north" / "policy.toml").secure == "allowed"
        assert read_policy(tmp_path / folder / "north" / "policy.toml") == read_policy(None)


def test_a_policy_that_does_not_say_is_as_its_kit(kits: Path, run: Callable[..., Any]) -> None:
    """Else a file of few lines would loosen what the federation agreed on."""
    (kits / "north" / "policy.toml").write_text("min_rows = 5\n")
    assert "sums ok secured or refused; keys of 2 others from the federation's list, not pinned" in checked(run, kits, "north")
    (kits / "north" / "policy.toml").write_text('min_rows = 5\nsecure = "allowed"\n')
    assert "sums ok plain, or secured where the coordinator asks for it" in checked(run, kits, "north")


def test_a_site_that_joins_has_the_federations_rule(kits: Path, run: Callable[..., Any], tmp_path: Path) -> None:
    told = " ".join(run("federation", "add", "trial", "east").stdout.split())
    assert read_policy(kits / "east" / "policy.toml").secure == "required"
    assert "Hand trial/parties.json to the other sites, too: in secured sums they take part with east once they know" in told
    assert "east" not in trust.known_to("north", site_of(kits, "north"), read_policy(None), b"").keys
    assert run("federation", "install", "trial/north", tmp_path / "trial" / "parties.json").exit_code == 0
    assert "east" in trust.known_to("north", site_of(kits, "north"), read_policy(None), b"").keys


def test_a_key_is_made_once_unless_it_is_renewed(kits: Path, run: Callable[..., Any]) -> None:
    first = line_of(run, kits, "north")
    path = kits / "north" / trust.OWN_KEY
    assert path.stat().st_mode & 0o777 == 0o600
    assert first == {"north": public_of(path.read_bytes())}
    assert line_of(run, kits, "north") == first
    assert line_of(run, kits, "north", "--renew") != first
    told = run("site", "key", kits / "north").stderr
    assert "Hand this line to the data managers of south, west" in told
    assert run("site", "key", kits / "coordinator").exit_code == 2


def test_pinned_keys(kits: Path, run: Callable[..., Any]) -> None:
    """``site check`` tells whose keys are pinned; what cannot be is refused, and named."""
    lines = {name: line_of(run, kits, name)[name] for name in ("north", "south", "west")}
    assert "sums NO rule participants: this site made a key of its own (secure.key), and" in checked(run, kits, "north", 2)
    pin(kits, "north", {"south": lines["south"]})
    assert "keys of 1 others pinned in the policy, not of west" in checked(run, kits, "north")
    pin(kits, "south", lines)  # its own line may stand there too
    assert "sums ok secured or refused; keys of 2 others pinned in the policy rows" in checked(run, kits, "south")
    pin(kits, "west", lines | {"west": lines["south"]})
    assert "it names another key for 'west' itself than this site has" in checked(run, kits, "west", 2)
    (kits / "south" / trust.OWN_KEY).chmod(0o640)
    assert "secure.key of" in checked(run, kits, "south", 2)
    (kits / "south" / trust.OWN_KEY).chmod(0o600)
    (kits / "south" / trust.OWN_KEY).write_bytes(b"short")
    assert "make another with eigenpact site key --renew" in checked(run, kits, "south", 2)
    (kits / "south" / trust.OWN_KEY).unlink()
    pin(kits, "south", {})
    assert "another key for 'south' itself" in checked(run, kits, "south", 2)


def test_a_site_whose_others_are_pinned_keeps_the_key_of_its_kit(kits: Path, run: Callable[..., Any]) -> None:
    pin(kits, "north", {name: line_of(run, kits, name)[name] for name in ("south", "west")})
    assert "this site's own came with its kit: make one with eigenpact site key" in checked(run, kits, "north")


def test_who_is_trusted(kits: Path) -> None:
    """By default the signed list of the kit, without who was revoked there; sums over at least as many as the policy says."""
    policy, kit = read_policy(None), site_of(kits, "north")
    found = trust.trust_of("north", kit, policy, b"")
    assert found.key == (kits / "north" / "identity.key").read_bytes()
    assert found.pins == {name: kit.parties.keys[name] for name in ("north", "south", "west")}
    assert found.least == 3
    (kits / "north" / REVOKED).write_text(json.dumps({kit.parties.keys["west"]: "west"}))
    assert set(trust.trust_of("north", site_of(kits, "north"), policy, b"").pins or {}) == {"north", "south"}


def test_a_site_without_a_kit_knows_nobody_that_its_policy_does_not_name(run: Callable[..., Any], tmp_path: Path) -> None:
    """A Flower node of somebody's own: its key comes of its secret, so that every process of it has the same."""
    told = run("site", "describe", "west", "--data", "west.npy", "--policy", policy_file(tmp_path), "-o", "west.json").stdout
    server, _ = SiteFacts.read(str(tmp_path / "west.json"), "this test").server()
    found = server._session._trust
    assert found.pins is not None
    assert found.pins == {"west": public_of(found.key)}
    assert f'west = "{public_of(found.key)}"' in told


def policy_file(folder: Path) -> Path:
    (folder / "policy.toml").write_text("min_rows = 5\n")
    return folder / "policy.toml"


def test_the_coordinator_is_told_when_a_site_pinned_nobody(kits: Path, run: Callable[..., Any]) -> None:
    line_of(run, kits, "north")
    with pytest.raises(PolicyError, match="rule participants: this site made a key of its own"):
        trust.trust_of("north", site_of(kits, "north"), read_policy(None), b"")


def test_fit_secured(run: Callable[..., Any], sites: dict[str, Any]) -> None:
    for name, X in sites.items():
        np.save(f"{name}.npy", X)
    files = [f"{name}.npy" for name in sites]
    result = run("fit", *files, "-k", "2", "-o", "model", "--secure")
    assert result.exit_code == 0, result.output
    assert "secured: the coordinator saw no site's part of a sum" in result.stdout
    here = ep.FederatedPCA(2, random_state=0, secure=True).fit(sites)
    np.testing.assert_array_equal(ep.load_model(Path("model")).components_, here.components_)
    assert "secured: the coordinator" in run("show", "model").stdout
    assert run("fit", *files, "-k", "2", "-o", "without", "--secure", "--go-on-without", "1").exit_code == 0
    plain = run("fit", *files, "-k", "2", "-o", "plain")
    assert "plain: the coordinator saw every site's part of a sum" in plain.stdout


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--go-on-without", "1"), "--go-on-without is for --secure"),
        (("--secure", "--go-on-without", "-1"), "--go-on-without -1 must be a whole number >= 0"),
        (("--secure", "--start", "one-shot"), "uses 'gather', which shows single replies; use"),
        (("--secure", "--solver", "hot-potato"), "uses 'chain', which shows single replies; use"),
    ],
)
def test_fit_refuses(refused: Callable[..., str], options: tuple[str, ...], told: str) -> None:
    assert told in refused("fit", "north.csv", "south.csv", "a=north.csv", "-k", "2", "-o", "model", *options)


def test_two_sites_are_too_few(refused: Callable[..., str]) -> None:
    assert "3" in refused("fit", "north.csv", "south.csv", "-k", "2", "-o", "model", "--secure")


def test_a_kit_says_whether_its_federation_is_secured(kits: Path) -> None:
    facts = json.loads((kits / "north" / "kit.json").read_text())
    (kits / "north" / "kit.json").write_text(json.dumps(facts | {"secure": "yes"}))
    with pytest.raises(InputError, match="secure = 'yes' must be true or false"):
        site_of(kits, "north")
