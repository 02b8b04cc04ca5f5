"""The last release and this one in one federation: who answers whom, with which bits, and what is said where they cannot.

Kits, policies and ledgers are those that the last release wrote.  ``test_flare_versions.py`` does the same on real FLARE.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.cli import app
from eigenpact.cli.kits import find_kit
from eigenpact.engines.federation.kits import FORMAT, KIT
from eigenpact.engines.flower.app import write_app
from eigenpact.estimators.model_files import MANIFEST
from eigenpact.runtime import protocol, read_site_ledger
from eigenpact.runtime.letters import run_of
from tests.compatibility import party
from tests.compatibility.released import LAST, build, this_release

pytest.importorskip("nvflare", reason="needs eigenpact[nvflare]")

pytestmark = pytest.mark.xdist_group("compatibility")

OLD_SITE = "lima"
GRAM = {"solver": "gram"}
REQUEST = b'"what":"request"'
SECURED = GRAM | {"secure": True}


class Mixed:
    """Kits that the last release made, sites of both releases at sockets, and what the last release's coordinator does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.old, self.new = build(LAST, folder / "old"), this_release()
        (folder / "kits").mkdir()
        self.old.party("make", str(folder / "kits"))
        here = {kits: self.at(f"new {kits}", kits, *party.NAMES) for kits in ("plain", "secured")}
        old = {kits: self.at(f"old {kits}", kits, OLD_SITE) for kits in ("plain", "secured")}
        later = self.at("later", "plain", "oslo")
        self._processes = [self.old.serve(old["plain"] | old["secured"]), self.new.serve(later, (3, 4))]
        for address, facts in (here["plain"] | here["secured"]).items():
            party.listen(address, facts)
        self.alike = {kits: dict.fromkeys(party.NAMES, *here[kits]) for kits in here}
        self.mixed = {kits: self.alike[kits] | dict.fromkeys([OLD_SITE], *old[kits]) for kits in here}
        self.later = self.alike["plain"] | dict.fromkeys(["oslo"], *later)

    def at(self, address: str, kits: str, *names: str) -> dict[str, dict[str, str]]:
        """A socket, and the sites that are answered for there."""
        return {str(self.folder / address): {name: str(self.kits(kits) / name / "site.json") for name in names}}

    def kits(self, kits: str) -> Path:
        return self.folder / "kits" / kits

    def ledger(self, name: str) -> list[dict[str, Any]]:
        return read_site_ledger(self.kits("plain") / name / "ledger.jsonl")

    def asked(self, kits: str, addresses: Mapping[str, str], **options: Any) -> dict[str, Any]:
        more = {key: options.pop(key) for key in ("model", "die_at") if key in options}
        return {"kit": str(self.kits(kits) / "coordinator"), "addresses": dict(addresses), "options": options} | more

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.communicate()


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    made = Mixed(tmp_path_factory.mktemp("versions"))
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def by_the_last_release(mixed: Mixed) -> dict[str, Any]:
    """What its coordinator got, and what it reads of kits and ledgers that this release wrote to."""
    party.fit(mixed.asked("plain", mixed.mixed["plain"], **GRAM))
    work = {
        "plain": ("fit", mixed.asked("plain", mixed.mixed["plain"], **GRAM, model=str(mixed.folder / "model"))),
        "secured": ("fit", mixed.asked("secured", mixed.mixed["secured"], **SECURED)),
        "later": ("fit", mixed.asked("plain", mixed.later, **GRAM)),
        "read plain": ("read", str(mixed.kits("plain"))),
        "read flower": ("read", str(mixed.kits("flower"))),
    }
    return dict(zip(work, mixed.old.do(*work.values()), strict=True))


def the_answer(**options: Any) -> dict[str, Any]:
    """Of the same rows in this process, where nothing is sent."""
    pca = ep.FederatedPCA(2, max_rounds=300, random_state=0, **options).fit(party.tables())
    return {name: getattr(pca, name) for name in ("components_", "explained_variance_", "mean_")}


def numbers_of(told: Mapping[str, Any]) -> dict[str, Any]:
    assert "error" not in told, told
    shapes = {"components_": (2, 4), "explained_variance_": (2,), "mean_": (4,)}
    return {name: np.frombuffer(bytes.fromhex(told[name])).reshape(shape) for name, shape in shapes.items()}


def truth() -> Any:
    X = np.vstack(list(party.tables().values()))
    return np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:2]


def same_bits(told: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    found = numbers_of(told)
    assert {name: found[name].tobytes() for name in found} == {name: expected[name].tobytes() for name in found}


# -- who answers whom ------------------------------------------------------------------------------


def test_a_site_of_the_last_release_takes_part_in_a_run_of_this_one(mixed: Mixed) -> None:
    """And the answer has the bits that it has where all have this release; the coordinator is told who is behind."""
    post, alone = party.SocketPost(mixed.mixed["plain"]), party.SocketPost(mixed.alike["plain"])
    done = party.fit(mixed.asked("plain", mixed.mixed["plain"], **GRAM), post)
    assert np.abs(np.abs(numbers_of(done)["components_"] @ truth().T) - np.eye(2)).max() < 1e-9
    same_bits(done, numbers_of(party.fit(mixed.asked("plain", mixed.alike["plain"], **GRAM), alone)))
    told = f"site 'lima' has eigenpact 0.1.0, which speaks protocol 1, and the coordinator {ep.__version__}"
    assert [line.startswith(told) and line.endswith("speaks protocol 1") for line in done["log"]] == [True]
    named = {name: [b'"protocol":2' in letter for letter in one.letters if REQUEST in letter] for name, one in
             {"mixed": post, "alone": alone}.items()}  # fmt: skip
    assert len(named["mixed"]) == len(named["alone"]) > 6
    assert not any(named["mixed"])  # the first protocol is what all of them speak, and its messages name none
    assert all(named["alone"])


def test_secured_sums_and_several_rounds_with_both_releases(mixed: Mixed) -> None:
    for kits, options in {"secured": SECURED, "plain": {"solver": "krylov"}}.items():
        done = numbers_of(party.fit(mixed.asked(kits, mixed.mixed[kits], **options)))
        expected = the_answer(**options)
        assert all(np.abs(done[name] - expected[name]).max() < 1e-7 * np.abs(expected[name]).max() for name in done)


def test_sites_of_this_release_take_part_in_runs_of_the_last_one(mixed: Mixed, by_the_last_release: dict[str, Any]) -> None:
    assert by_the_last_release["plain"]["release"] == LAST != ep.__version__
    for kits, options in {"plain": GRAM, "secured": SECURED}.items():
        same_bits(by_the_last_release[kits], numbers_of(party.fit(mixed.asked(kits, mixed.alike[kits], **options))))


# -- and where they cannot ------------------------------------------------------------------------


def test_a_coordinator_that_no_longer_speaks_the_first_protocol_names_the_site(
    mixed: Mixed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As some later release may be; nothing of the rows is asked for."""
    monkeypatch.setattr(protocol, "OLDEST", 2)
    before = [row["what"] for row in mixed.ledger(OLD_SITE)]
    told = party.fit(mixed.asked("plain", mixed.mixed["plain"], **GRAM))
    assert told["error"].startswith(
        "PolicyError: refused before round 1 by lima: rule protocol: site 'lima' must upgrade eigenpact: site 'lima' has "
        f"eigenpact 0.1.0, which speaks protocol 1; the coordinator has eigenpact {ep.__version__}, which speaks protocol 2"
    )
    assert [row["what"] for row in mixed.ledger(OLD_SITE)].count("sent") == before.count("sent")


@pytest.mark.parametrize("coordinator", ["last", "this"])
def test_a_site_that_speaks_later_protocols_alone_names_the_coordinator(
    mixed: Mixed, by_the_last_release: dict[str, Any], coordinator: str
) -> None:
    """Before it has read the plan; its ledger says so, too."""
    told = by_the_last_release["later"] if coordinator == "last" else party.fit(mixed.asked("plain", mixed.later, **GRAM))
    release, spoken = (LAST, "protocol 1") if coordinator == "last" else (ep.__version__, "protocols 1 to 2")
    reason = (
        f"rule protocol: the coordinator must upgrade eigenpact: the coordinator has eigenpact {release}, which speaks {spoken}; "
        f"site 'oslo' has eigenpact {ep.__version__}, which speaks protocols 3 to 4"
    )
    assert told["error"].startswith(f"PolicyError: refused before round 1 by oslo: {reason}")
    assert reason in [row.get("reason") for row in mixed.ledger("oslo") if row["what"] == "refused"]


# -- files ------------------------------------------------------------------------------------------


def test_kits_and_ledgers_are_read_by_both(mixed: Mixed, by_the_last_release: dict[str, Any]) -> None:
    """Also by the last release after this one wrote to them: who upgraded may go back."""
    for kits in ("plain", "flower"):
        found, other = party.read(str(mixed.kits(kits))), by_the_last_release[f"read {kits}"]
        assert found["until"] == other["until"]
        assert all(found["rows"][name] >= other["rows"][name] for name in party.NAMES)
    assert min(other["rows"][name] for name in party.NAMES for other in [by_the_last_release["read plain"]]) > 10


@pytest.mark.parametrize("engine", ["plain", "flower"])
def test_the_policy_of_a_kit_of_the_last_release_is_checked_as_one_of_this(
    mixed: Mixed, engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """``site check`` finds nothing to do in a kit, a ``site.toml`` and a ``policy.toml`` that it did not write."""
    app(["site", "check", str(mixed.kits(engine) / OLD_SITE / "site.toml")], standalone_mode=False)
    assert "NO" not in capsys.readouterr().out.split()


def test_a_site_joins_a_federation_of_the_last_release(mixed: Mixed) -> None:
    """By this one's command; what it writes has nothing that the last release does not read."""
    for kits in ("plain", "flower"):
        app(["federation", "add", str(mixed.kits(kits)), "quito"], standalone_mode=False)
        assert find_kit(mixed.kits(kits) / "quito", "site").federation.name == kits
        made, known = (json.loads((mixed.kits(kits) / name / KIT).read_text()) for name in ("quito", OLD_SITE))
        assert made | {"party": OLD_SITE} == known


def test_a_kit_of_a_later_release_says_where_to_upgrade(mixed: Mixed, tmp_path: Path) -> None:
    facts = json.loads((mixed.kits("plain") / OLD_SITE / KIT).read_text())
    (tmp_path / KIT).write_text(json.dumps(facts | {"format": FORMAT + 1}))
    with pytest.raises(
        ep.errors.InputError, match=rf"which a later release .* this is {ep.__version__}.*: upgrade eigenpact here"
    ):
        find_kit(tmp_path, "site")


def test_flower_gets_the_same_app(mixed: Mixed, tmp_path: Path) -> None:
    """A SuperLink takes the bundle of one release to sites of another."""
    write_app(tmp_path / "app")
    assert (tmp_path / "app" / "pyproject.toml").read_text() == (mixed.kits("app") / "pyproject.toml").read_text()


def test_a_journal_of_the_last_release_is_resumed_to_the_same_bits(mixed: Mixed, tmp_path: Path) -> None:
    """Its coordinator dies in mid-run, and the one of this release goes on with the same run."""
    sites, journal = mixed.alike["plain"], str(tmp_path / "run.journal")
    whole = party.SocketPost(sites)
    expected = numbers_of(party.fit(mixed.asked("plain", sites, **GRAM, journal=str(tmp_path / "other.journal")), whole))
    last = mixed.asked("plain", sites, **GRAM, journal=journal, die_at=len(whole.letters))
    mixed.old.do(("fit", last), code=party.DIED)
    begun = mixed.ledger("oslo")[-1]
    assert begun["what"] == "sent"
    rest = party.SocketPost(sites)
    same_bits(party.fit(mixed.asked("plain", sites, **GRAM, journal=journal), rest), expected)
    assert {run_of(memoryview(letter), True) for letter in rest.letters} == {begun["run"]}


def test_a_model_of_the_last_release_is_read(mixed: Mixed, by_the_last_release: dict[str, Any], tmp_path: Path) -> None:
    """And transforms to the bits of one that this release wrote."""
    assert "error" not in by_the_last_release["plain"]
    party.fit(mixed.asked("plain", mixed.alike["plain"], **GRAM, model=str(tmp_path / "model")))
    models = mixed.folder / "model", tmp_path / "model"
    assert [json.loads((model / MANIFEST).read_text())["eigenpact"] for model in models] == [LAST, ep.__version__]
    scores = [ep.load_model(model).transform(party.tables()["oslo"]) for model in models]
    assert scores[0].tobytes() == scores[1].tobytes()
