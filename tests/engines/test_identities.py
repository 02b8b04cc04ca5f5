"""Keys in kits: whose signature is believed, and what is said of keys that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eigenpact.engines.federation.identities import KEY, KitIdentity
from eigenpact.engines.federation.kits import Federation, PartyKit, describe_kits, read_kit
from eigenpact.errors import FileError, InputError

SITES = ("lima", "oslo")


@pytest.fixture
def kits(tmp_path: Path) -> Path:
    for party in ("authority", "coordinator", *SITES):
        (tmp_path / party).mkdir()
    describe_kits(tmp_path, Federation("test", "localhost", 8102, SITES, 3), "no certificate")
    return tmp_path


def kit_of(kits: Path, party: str) -> PartyKit:
    return read_kit(kits / party, "coordinator" if party == "coordinator" else "site", PartyKit)


def test_all_parties_know_one_another(kits: Path) -> None:
    parties = ("coordinator", *SITES)
    own = {party: kit_of(kits, party).identity() for party in parties}
    for reader in parties:
        for writer in parties:
            signature = own[writer].sign(b"text")
            assert own[reader].genuine(writer, b"text", signature)
            assert not own[reader].genuine(writer, b"other text", signature)
            assert not own[reader].genuine(next(p for p in parties if p != writer), b"text", signature)
    assert not own["lima"].genuine("nobody", b"text", signature)
    assert not own["lima"].genuine("oslo", b"text", b"")


def test_a_private_key_is_its_owners_alone(kits: Path) -> None:
    texts = [path.read_bytes() for path in kits.rglob("*") if path.is_file()]
    for party in ("coordinator", *SITES):
        path = kits / party / KEY
        assert path.stat().st_mode & 0o777 == 0o600
        assert sum(path.read_bytes() in text or path.read_bytes().hex().encode() in text for text in texts) == 1


def test_keys_that_cannot_be_used(kits: Path) -> None:
    path = kits / "lima" / KEY
    path.chmod(0o640)
    with pytest.raises(InputError, match="may be read by others; make it yours alone: chmod 600"):
        kit_of(kits, "lima").identity()
    path.chmod(0o600)
    path.write_bytes((kits / "oslo" / KEY).read_bytes())
    with pytest.raises(InputError, match="is not the key that the federation knows of 'lima'; ask for the kit again"):
        kit_of(kits, "lima").identity()
    path.write_bytes(b"short")
    with pytest.raises(FileError, match=r"cannot be read: .*; ask for the kit again"):
        kit_of(kits, "lima").identity()
    path.unlink()
    with pytest.raises(FileError, match=r"cannot be read: .*No such file"):
        kit_of(kits, "lima").identity()
    with pytest.raises(FileError, match=r"the keys of .* cannot be read"):
        KitIdentity(kits / "oslo", "oslo", {"oslo": "no digits"})


def test_a_revoked_site_takes_no_part(kits: Path) -> None:
    coordinator, lima = kit_of(kits, "coordinator"), kit_of(kits, "lima")
    signature = lima.identity().sign(b"text")
    assert coordinator.identity().genuine("lima", b"text", signature)
    coordinator.revoke("lima")
    assert not coordinator.identity().genuine("lima", b"text", signature)
    assert coordinator.federation.taking_part(None, 0, coordinator.revoked()) == (("oslo",), 1)
    with pytest.raises(InputError, match="'lima' was revoked as a site of federation 'test': oslo"):
        coordinator.federation.taking_part(("lima", "oslo"), 0, coordinator.revoked())
    with pytest.raises(InputError, match="'lima' was revoked"):
        coordinator.revoke("lima")
    with pytest.raises(InputError, match="'quito' is not a site"):
        coordinator.revoke("quito")


@pytest.mark.parametrize("text", ["{", '{"lima": 1}', "[1]"])
def test_a_list_of_revoked_sites_that_is_damaged_is_an_error(kits: Path, text: str) -> None:
    """Else whoever damages it would bring them back."""
    (kits / "coordinator" / "revoked.json").write_text(text)
    with pytest.raises(FileError, match=r"revoked.json .*restore it"):
        kit_of(kits, "coordinator").identity()


def test_kits_without_a_signed_list_are_refused_by_name(kits: Path) -> None:
    path = kits / "lima" / "kit.json"
    facts = json.loads(path.read_text())
    for earlier in (2, 3):
        path.write_text(json.dumps(facts | {"format": earlier}))
        with pytest.raises(InputError, match=rf"format {earlier}, .* lack the list of parties that the authority signs; .*init"):
            kit_of(kits, "lima")
