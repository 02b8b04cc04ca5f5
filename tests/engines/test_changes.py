"""A federation that changes: who can add and renew, what kits take in, and which keys are believed before and after."""

from __future__ import annotations

import copy
import json
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from eigenpact.engines.federation.changes import add_site, find_authority, install, renew_party
from eigenpact.engines.federation.kits import EngineKit, Federation, read_kit
from eigenpact.engines.flare.kits import Kit, make_kits
from eigenpact.engines.flower.kits import FlowerKit, make_flower_kits
from eigenpact.errors import EigenpactError, FileError, InputError

ENGINES: dict[str, tuple[type[EngineKit], Callable[[Federation, Path], None], str]] = {
    "nvflare": (Kit, make_kits, "nvflare"),
    "flower": (FlowerKit, make_flower_kits, "flwr"),
}


class Consortium:
    """Kits of a federation, and short words for what is done with them."""

    def __init__(self, folder: Path, engine: str, **options: Any) -> None:
        self.folder, (self.kits, make, needs) = folder, ENGINES[engine]
        pytest.importorskip(needs, reason=f"needs eigenpact[{engine}]")
        make(Federation("test", "localhost", 8102, ("lima", "oslo"), 3, engine=engine, **options), folder)

    def kit(self, name: str) -> EngineKit:
        """As it lies on disk now."""
        return read_kit(self.folder / name, ("site", "coordinator"), self.kits)

    @property
    def list(self) -> Path:
        """The newest list of parties."""
        return self.folder / "authority" / "parties.json"

    def add(self, site: str) -> None:
        add_site(find_authority(self.folder, self.kits), site, self.folder / site)

    def renew(self, party: str) -> Path:
        folder = self.folder / f"{party}-renewed"
        shutil.rmtree(folder, ignore_errors=True)
        renew_party(find_authority(self.folder, self.kits), party, folder)
        return folder

    def tell(self, party: str) -> None:
        install(self.kit(party), self.list)

    def believes(self, reader: str, writer: str, kit: Path | None = None) -> bool:
        """Whether a party takes a text for that of another, who signs with the kit it has, or with this one."""
        signs = read_kit(kit or self.folder / writer, ("site", "coordinator"), self.kits).identity()
        return self.kit(reader).identity().genuine(writer, b"text", signs.sign(b"text"))

    def steal(self, party: str) -> Path:
        """What a thief has."""
        return Path(shutil.copytree(self.folder / party, self.folder.with_name(f"stolen-{party}"), dirs_exist_ok=True))


@pytest.fixture(scope="module", params=ENGINES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Consortium:
    """Kits, made once for each engine."""
    return Consortium(tmp_path_factory.mktemp("made") / "test", request.param)


@pytest.fixture
def consortium(made: Consortium, tmp_path: Path) -> Consortium:
    """A copy of them."""
    copied = copy.copy(made)
    copied.folder = Path(shutil.copytree(made.folder, tmp_path / "test"))
    return copied


@pytest.fixture(scope="module")
def other(made: Consortium, tmp_path_factory: pytest.TempPathFactory) -> Consortium:
    """Another federation of the same name and sites, which has added paris."""
    other = Consortium(tmp_path_factory.mktemp("other") / "test", made.kits.engine)
    other.add("paris")
    return other


def test_a_site_joins_and_nobody_else_needs_anything(consortium: Consortium) -> None:
    before = {path: path.read_bytes() for path in consortium.folder.rglob("*") if path.is_file()}
    consortium.add("quito")
    changed = {str(path.relative_to(consortium.folder)) for path, text in before.items() if path.read_bytes() != text}
    assert changed == {"authority/parties.json"}
    consortium.tell("coordinator")
    assert consortium.kit("coordinator").federation.sites == ("lima", "oslo", "quito")
    assert consortium.kit("quito").expires() == pytest.approx(consortium.kit("lima").expires(), abs=timedelta(minutes=5))
    for site in ("lima", "oslo", "quito"):
        assert consortium.believes(site, "coordinator")
        assert consortium.believes("coordinator", site)
    assert not consortium.believes("lima", "quito")
    consortium.tell("lima")
    assert consortium.believes("lima", "quito")
    kit = consortium.folder / "quito"
    assert kit.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 for path in kit.rglob("*.key"))
    assert not [path for path in consortium.folder.iterdir() if path.name.startswith(".")]


def test_a_key_is_renewed_and_the_site_keeps_what_is_its_own(consortium: Consortium) -> None:
    lima, stolen = consortium.folder / "lima", consortium.steal("lima")
    own = {"policy.toml": "min_rows = 99\n", "site.toml": "kit = '.'\n", "ledger.jsonl": "{}\n", "ledger.jsonl.secret": "s"}
    for name, text in own.items():
        (lima / name).write_text(text)
    old = {name: (lima / name).read_bytes() for name in (*consortium.kit("lima").credentials, "identity.key")}
    renewed = consortium.renew("lima")
    assert consortium.believes("coordinator", "lima", stolen)  # nobody was told
    install(consortium.kit("coordinator"), consortium.list)
    assert not consortium.believes("coordinator", "lima")
    install(consortium.kit("lima"), renewed)
    assert consortium.believes("coordinator", "lima")
    assert not consortium.believes("coordinator", "lima", stolen)
    consortium.kit("lima").expires()
    assert {name: (lima / name).read_text() for name in own} == own
    for name, text in old.items():
        aside = lima / "replaced-1" / name
        assert aside.exists() == ((lima / name).read_bytes() != text)
        assert not aside.exists() or (aside.read_bytes() == text and stat.S_IMODE(aside.stat().st_mode) == 0o600)
    assert {path.name for path in (lima / "replaced-1").rglob("*.key")} >= {"identity.key"}


def test_the_coordinators_key_is_renewed(consortium: Consortium) -> None:
    """A site believes the stolen one until it has the new list, and never again."""
    stolen = consortium.steal("coordinator")
    old_list = (consortium.folder / "lima" / "parties.json").read_bytes()
    install(consortium.kit("coordinator"), consortium.renew("coordinator"))
    consortium.kit("coordinator").expires()
    assert consortium.believes("lima", "coordinator", stolen)
    assert not consortium.believes("lima", "coordinator")
    for site in ("lima", "oslo"):
        consortium.tell(site)
        assert consortium.believes(site, "coordinator")
        assert not consortium.believes(site, "coordinator", stolen)
        assert consortium.believes("coordinator", site)
    (consortium.folder / "old.json").write_bytes(old_list)  # genuine, and of before
    with pytest.raises(InputError, match=r"old.json has version 1 of the list of parties, and .*lima has version 2 already"):
        install(consortium.kit("lima"), consortium.folder / "old.json")
    with pytest.raises(InputError, match="has version 1 of the list"):
        install(consortium.kit("coordinator"), stolen)
    assert not consortium.believes("lima", "coordinator", stolen)


def test_a_revoked_site_comes_back_by_a_new_key_alone(consortium: Consortium) -> None:
    stolen = consortium.steal("lima")
    consortium.kit("coordinator").revoke("lima")
    consortium.add("quito")
    consortium.tell("coordinator")
    coordinator = consortium.kit("coordinator")
    assert coordinator.revoked() == ("lima",)
    assert not consortium.believes("coordinator", "lima")
    assert coordinator.federation.taking_part(None, 0, coordinator.revoked()) == (("oslo", "quito"), 2)
    with pytest.raises(InputError, match=r"'lima' is a site of federation 'test' already; .*federation renew"):
        consortium.add("lima")
    renewed = consortium.renew("lima")
    consortium.tell("coordinator")
    install(consortium.kit("lima"), renewed)
    assert consortium.kit("coordinator").revoked() == ()
    assert consortium.believes("coordinator", "lima")
    assert not consortium.believes("coordinator", "lima", stolen)
    consortium.kit("coordinator").revoke("lima")  # a second time, by its second key
    assert consortium.kit("coordinator").revoked() == ("lima",)
    assert len(json.loads((consortium.folder / "coordinator" / "revoked.json").read_text())) == 2


def test_who_has_the_coordinators_kit_alone_can_add_nobody(consortium: Consortium, other: Consortium, tmp_path: Path) -> None:
    """Not by the command, not by writing to the list, not with an authority of one's own."""
    with pytest.raises(FileError, match=r"coordinator has no authority/; give the folder that federation init made"):
        find_authority(consortium.folder / "coordinator", consortium.kits)
    path = consortium.folder / "coordinator" / "parties.json"
    honest = path.read_text()
    facts = json.loads(honest)
    facts["parties"]["keys"]["paris"] = facts["parties"]["keys"]["lima"]
    facts["parties"]["version"] = 2
    path.write_text(json.dumps(facts))
    with pytest.raises(InputError, match=r"parties.json is not signed by this federation's authority"):
        consortium.kit("coordinator")
    (tmp_path / "mine.json").write_text(json.dumps(facts))
    path.write_text(honest)
    with pytest.raises(InputError, match="is not signed by this federation's authority"):
        install(consortium.kit("lima"), tmp_path / "mine.json")
    with pytest.raises(InputError, match="is not signed by this federation's authority"):
        install(consortium.kit("coordinator"), other.list)
    with pytest.raises(InputError, match=r"was made by another authority than .*coordinator"):
        install(consortium.kit("coordinator"), other.renew("coordinator"))
    for name in ("kit.json", "parties.json", "identity.key"):  # this federation's certificates, and my list
        shutil.copy(other.folder / "authority" / name, consortium.folder / "authority" / name)
    with pytest.raises(InputError, match=r"ca.crt of .*authority is not the certificate of the authority of federation 'test'"):
        consortium.add("quito")
    assert not (consortium.folder / "quito").exists()


def test_an_authority_that_lacks_its_key(consortium: Consortium) -> None:
    authority = consortium.folder / "authority"
    key = (authority / "ca.key").read_bytes()
    (authority / "ca.key").write_bytes((authority / "identity.key").read_bytes())
    with pytest.raises(FileError, match=r"ca.key of .*authority cannot be read"):
        consortium.renew("lima")
    (authority / "ca.key").write_bytes(key)
    (authority / "identity.key").write_bytes((consortium.folder / "lima" / "identity.key").read_bytes())
    with pytest.raises(InputError, match=r"identity.key of .*authority is not the key that the federation knows of 'authority'"):
        consortium.renew("lima")
    assert not (consortium.folder / "lima-renewed").exists()
    assert consortium.kit("lima").parties.version == 1


@pytest.mark.parametrize(
    ("site", "message"),
    [
        ("lima", "'lima' is a site of federation 'test' already"),
        ("coordinator", "a site may not be called 'coordinator'"),
        ("authority", "a site may not be called 'authority'"),
        ("../paris", "site '../paris' must be 1 to 61 letters"),
        ("", "site '' must be 1 to 61 letters"),
    ],
)
def test_sites_that_cannot_be_added(consortium: Consortium, site: str, message: str) -> None:
    before = consortium.list.read_bytes()
    with pytest.raises(InputError, match=message):
        add_site(find_authority(consortium.folder, consortium.kits), site, consortium.folder / "new")
    assert not (consortium.folder / "new").exists()
    assert consortium.list.read_bytes() == before


def test_nothing_is_overwritten(consortium: Consortium) -> None:
    before = {path: path.read_bytes() for path in consortium.folder.rglob("*") if path.is_file()}
    authority = find_authority(consortium.folder, consortium.kits)
    with pytest.raises(FileError, match="lima exists already; choose another folder"):
        add_site(authority, "quito", consortium.folder / "lima")
    with pytest.raises(FileError, match="lima exists already; choose another folder"):
        renew_party(authority, "lima", consortium.folder / "lima")
    for party in ("paris", "authority"):
        with pytest.raises(
            InputError, match=f"'{party}' is no party of federation 'test'; those with keys are coordinator, lima"
        ):
            renew_party(authority, party, consortium.folder / "new")
    assert {path: path.read_bytes() for path in consortium.folder.rglob("*") if path.is_file()} == before


def test_what_is_not_for_a_kit_is_not_put_into_it(consortium: Consortium, tmp_path: Path) -> None:
    renewed = consortium.renew("lima")
    before = {path: path.read_bytes() for path in consortium.folder.rglob("*") if path.is_file()}
    damaged = shutil.copytree(renewed, tmp_path / "damaged")
    (damaged / "identity.key").write_bytes(bytes(32))
    mixed = shutil.copytree(renewed, tmp_path / "mixed")
    for name in consortium.kit("oslo").credentials:
        shutil.copy(consortium.folder / "oslo" / name, mixed / name)
    partial = shutil.copytree(renewed, tmp_path / "partial")
    (partial / consortium.kit("lima").credentials[1]).unlink()
    linked = shutil.copytree(renewed, tmp_path / "linked")
    (linked / "parties.json").unlink()
    (linked / "parties.json").symlink_to(renewed / "parties.json")
    for kit, source, message in (
        ("oslo", renewed, r"is for 'lima', and .*oslo is the kit of 'oslo'"),
        ("coordinator", renewed, "is the kit of 'lima', a site; give the kit of a coordinator"),
        (
            "lima",
            consortium.list,
            r"parties.json has another key of 'lima' than .*install the folder that was made by federation",
        ),
        ("lima", damaged, "is not the key that the federation knows of 'lima'"),
        ("lima", mixed, r"was issued to 'oslo', not to 'lima'|is not the key that the federation knows of 'lima'"),
        ("lima", partial, "cannot be read"),
        ("lima", linked, "is a link, not a file"),
        ("lima", consortium.folder / "nothing", r"nothing cannot be read: .*ask for parties.json again"),
        ("lima", consortium.folder / "lima" / "kit.json", "is not a list of parties: 'parties' is missing"),
    ):
        with pytest.raises(EigenpactError, match=message):
            install(consortium.kit(kit), source)
    assert {path: path.read_bytes() for path in before} == before
    assert not list(consortium.folder.rglob("replaced-*"))


def test_two_lists_of_one_version_are_told_apart(consortium: Consortium, tmp_path: Path) -> None:
    """An authority whose folder was copied and used twice: whoever has one of the lists does not take the other."""
    twin = shutil.copytree(consortium.folder / "authority", tmp_path / "twin" / "authority").parent
    consortium.add("quito")
    add_site(find_authority(twin, consortium.kits), "paris", twin / "paris")
    consortium.tell("coordinator")
    consortium.tell("coordinator")  # the same once more does no harm
    with pytest.raises(InputError, match=r"has version 2 of the list of parties, and .* has version 2 already"):
        install(consortium.kit("coordinator"), twin / "authority" / "parties.json")


def test_an_interrupted_installation_is_repeated(consortium: Consortium, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever it was: the list comes last, and the old files that are kept aside are those of before."""
    renewed, old = consortium.renew("lima"), (consortium.folder / "lima" / "identity.key").read_bytes()
    consortium.tell("coordinator")

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("eigenpact.engines.federation.changes.place_parties", fail)
        with pytest.raises(FileError, match="cannot be written: No space left on device"):
            install(consortium.kit("lima"), renewed)
    with pytest.raises(InputError, match="is not the key that the federation knows of 'lima'"):
        consortium.kit("lima").identity()
    install(consortium.kit("lima"), renewed)
    assert consortium.believes("coordinator", "lima")
    assert (consortium.folder / "lima" / "replaced-1" / "identity.key").read_bytes() == old


def test_lost_keys_are_put_in_again(consortium: Consortium) -> None:
    """As when a data manager deleted them; and the renewed folder is a whole kit, for one whose disk died."""
    for name in (*consortium.kit("lima").credentials, "identity.key"):
        (consortium.folder / "lima" / name).unlink()
    renewed = consortium.renew("lima")
    consortium.tell("coordinator")
    install(consortium.kit("lima"), renewed)
    consortium.kit("lima").expires()
    assert consortium.believes("coordinator", "lima")
    assert consortium.believes("coordinator", "lima", renewed)
    kept = {str(path.relative_to(consortium.folder / "oslo")) for path in (consortium.folder / "oslo").rglob("*")}
    assert {str(path.relative_to(renewed)) for path in renewed.rglob("*")} == kept


@pytest.mark.parametrize("engine", ENGINES)
def test_certificates_are_valid_as_long_as_was_agreed_and_then_renewed(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The authority's own lives longer; so what it signs can be extended."""
    consortium = Consortium(tmp_path / "test", engine, valid_days=30)
    first = consortium.kit("coordinator").expires()
    assert abs(first - datetime.now(UTC) - timedelta(days=30)) < timedelta(hours=1)

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return super().now(tz) + timedelta(days=shift)

    for module in ("federation", "flare", "flower"):
        monkeypatch.setattr(f"eigenpact.engines.{module}.kits.datetime", Later)
    shift = 31
    with pytest.raises(InputError, match=r"the certificate of 'coordinator' expired on .*: eigenpact federation renew FOLDER"):
        consortium.kit("coordinator").expires()
    install(consortium.kit("coordinator"), consortium.renew("coordinator"))
    assert consortium.kit("coordinator").expires() - first > timedelta(days=30)
    shift = 4000
    with pytest.raises(InputError, match="the certificate of 'authority' expired"):
        consortium.renew("coordinator")


# -- what is in a kit and is another's ----------------------------------------------------------------------------------------


def test_a_foreign_certificate_is_noticed(consortium: Consortium, other: Consortium) -> None:
    """Of another federation of the same name and sites, alone or with its authority's; and another party's."""
    for party in ("lima", "coordinator"):
        kit = consortium.kit(party)
        kit.expires()
        own = {name: (kit.folder / name).read_bytes() for name in kit.credentials}
        roots = {name for name in own if name.endswith((".pem", "ca.crt"))}
        for names, message in (
            (set(own) - roots, "not issued by this federation's authority|is not the key that the federation knows"),
            (roots, "is not the certificate of the authority of federation 'test'"),
            (set(own), "is not the certificate of the authority of federation 'test'"),
        ):
            for name in names:
                (kit.folder / name).write_bytes((other.folder / party / name).read_bytes())
            with pytest.raises(InputError, match=message):
                kit.expires()
            for name, text in own.items():
                (kit.folder / name).write_bytes(text)
        kit.expires()
    for name in consortium.kit("lima").credentials:
        shutil.copy(consortium.folder / "oslo" / name, consortium.folder / "lima" / name)
    with pytest.raises(
        InputError, match=r"was issued to 'oslo', not to 'lima'|is not the key that the federation knows of 'lima'"
    ):
        consortium.kit("lima").expires()


@pytest.mark.parametrize("made", ["nvflare"], indirect=True)
def test_every_certificate_of_a_flare_coordinator_is_looked_at(consortium: Consortium) -> None:
    folder = consortium.folder / "coordinator"
    for ending in (".crt", ".key"):
        shutil.copy(consortium.folder / "lima" / "startup" / f"client{ending}", folder / "admin" / "startup" / f"client{ending}")
    with pytest.raises(InputError, match=r"client.crt of .*coordinator was issued to 'lima', not to 'coordinator@eigenpact.org'"):
        consortium.kit("coordinator").expires()


def test_a_list_of_another_federation_or_without_the_party(consortium: Consortium) -> None:
    """Signed by the right authority all the same: one authority's key may have been used for two federations."""
    authority = find_authority(consortium.folder, consortium.kits)
    lima = consortium.folder / "lima" / "parties.json"
    for parties, what in (
        (replace(authority.parties, federation="other"), "federation 'test'"),
        (replace(authority.parties, keys={"coordinator": "0" * 64, "oslo": "0" * 64}), "party 'lima'"),
    ):
        lima.write_bytes(parties.signed(authority.identity().sign))
        with pytest.raises(InputError, match=f"parties.json does not know {what}; ask whoever keeps authority/"):
            consortium.kit("lima")
