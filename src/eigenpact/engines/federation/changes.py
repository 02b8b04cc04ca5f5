"""A federation that changes: a site joins, a key or certificate is renewed, and kits take in what is new (ADR 15).

Whoever keeps ``authority/`` makes the new files; nobody else can.  A party installs what it was given: only keys, certificates
and the list of parties are replaced, so a site's policy, table, ledger and secret stay.
"""

from __future__ import annotations

import secrets
import shutil
from dataclasses import replace
from pathlib import Path

from ...errors import FileError, InputError
from ...storage import read_regular, replace_private, write_private, writing
from .identities import KEY, make_key
from .kits import KIT, EngineKit, K, check_new_folder, describe_kit, read_kit
from .parties import AUTHORITY, COORDINATOR, MOST_BYTES, PARTIES, Parties, place_parties, read_parties

REPLACED = "replaced-{}"
"""Folder in a kit with the keys and certificates that were renewed away, by the version of the list that had them."""


def add_site(authority: EngineKit, site: str, folder: Path) -> Parties:
    """Make the kit of a new site in a new folder; give the list of parties with it."""
    sites = authority.federation.sites
    if site in sites:
        raise InputError(
            f"{site!r} is a site of federation {authority.federation.name!r} already; for a new key and certificate use "
            "eigenpact federation renew"
        )
    replace(authority.federation, sites=(*sites, site))  # refuses names that no site may have
    return _issue(authority, site, folder)


def renew_party(authority: EngineKit, party: str, folder: Path) -> Parties:
    """Make a party's kit with new keys and certificates in a new folder, to be installed; give the list of parties with them."""
    if party not in authority.parties.keys:
        others = ", ".join(authority.parties.keys)
        raise InputError(f"{party!r} is no party of federation {authority.federation.name!r}; those with keys are {others}")
    return _issue(authority, party, folder)


def _issue(authority: EngineKit, party: str, folder: Path) -> Parties:
    """Make a party's kit with new keys; from then on the authority's own list has them.

    A kit that is lost before it is in its place is made again by ``renew_party``.
    """
    _check_authority(authority)
    check_new_folder(folder)
    federation = authority.federation
    part = folder.absolute().with_name(f".{secrets.token_hex(8)}.{folder.name}")
    with writing(folder, "choose another folder"):
        try:
            node = authority.make_party(party, part)
            parties = authority.parties.with_party(party, make_key(part), node)
            signed = parties.signed(authority.identity().sign)
            describe_kit(part, party, federation, authority.authority)
            place_parties(part / PARTIES, signed)
            with writing(authority.folder, "its list of parties must be yours to write"):
                place_parties(authority.folder / PARTIES, signed)  # first: no kit is signed that the authority does not know
            part.replace(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return parties


def _check_authority(authority: EngineKit) -> None:
    """The keys that sign must be this federation's."""
    root = authority.check_root(authority.folder / "ca.crt")
    authority.check_key(authority.folder / "ca.key", root.public_key(), fits="ca.crt")
    authority.check_dates(root.not_valid_before_utc, root.not_valid_after_utc)
    authority.identity()


def install(kit: EngineKit, source: Path) -> Parties:
    """Take in a renewed kit, or a list of parties alone; give the list that holds from now on.

    What a renewed kit brings replaces the kit's own keys and certificates, which are kept aside.  An interrupted installation is
    repeated.
    """
    renewed = source.is_dir()
    parties = _renewed(kit, source).parties if renewed else read_parties(source, kit.authority)
    _check_newer(kit, parties, source)
    if not renewed and parties.keys.get(kit.party) != kit.parties.keys[kit.party]:
        what = "has another key of" if kit.party in parties.keys else "does not know"
        raise InputError(f"{source} {what} {kit.party!r} than {kit.folder}; install the folder that was made by federation renew")
    names = (*kit.credentials, KEY) if renewed else ()
    new = {name: read_regular(source / name, MOST_BYTES) for name in names}  # all of them, before anything is replaced
    text = read_regular(source / PARTIES if renewed else source, MOST_BYTES)
    with writing(kit.folder, "the kit must be in a folder of your own"):
        for name in names:
            _replace(kit, name, new[name])
        place_parties(kit.folder / PARTIES, text)
    return parties


def _renewed(kit: EngineKit, source: Path) -> EngineKit:
    """A folder with new files for this kit, which must be whole."""
    kind = kit.party if kit.party == COORDINATOR else "site"
    fresh = read_kit(source, kind, type(kit))
    if fresh.party != kit.party:
        raise InputError(f"{source} is for {fresh.party!r}, and {kit.folder} is the kit of {kit.party!r}; ask for your own")
    if fresh.authority != kit.authority:
        raise InputError(f"{source} was made by another authority than {kit.folder}; ask whoever keeps authority/ for your own")
    fresh.expires()
    fresh.identity()
    return fresh


def _check_newer(kit: EngineKit, parties: Parties, source: Path) -> None:
    """An older list could bring back a key that was renewed because it was stolen."""
    if parties.version < kit.parties.version or (parties.version == kit.parties.version and parties != kit.parties):
        raise InputError(
            f"{source} has version {parties.version} of the list of parties, and {kit.folder} has version {kit.parties.version} "
            "already; ask whoever keeps authority/ for the newest"
        )


def _replace(kit: EngineKit, name: str, new: bytes) -> None:
    """Put a new file in its place, in one step, and keep the old one aside."""
    place, aside = kit.folder / name, kit.folder / REPLACED.format(kit.parties.version) / name
    if place.exists() and read_regular(place, MOST_BYTES) != new and not aside.exists():
        aside.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(aside, read_regular(place, MOST_BYTES))
    replace_private(place, [new])


def find_authority(folder: Path, *engines: type[K]) -> K:
    """The authority in a folder that ``federation init`` made."""
    if not (folder / AUTHORITY / KIT).exists():
        raise FileError(f"{folder} has no {AUTHORITY}/; give the folder that federation init made: nothing else can sign")
    return read_kit(folder / AUTHORITY, AUTHORITY, *engines)
