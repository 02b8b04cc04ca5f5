"""Kits as the commands take them, whatever engine they were made for."""

from __future__ import annotations

from pathlib import Path

from ..engines.extras import bring
from ..engines.federation import changes
from ..engines.federation.kits import KIT, Federation, read_kit
from ..engines.federation.parties import COORDINATOR, PARTIES, Parties, read_parties
from ..engines.flare.kits import Kit, make_kits
from ..engines.flower.engine import register_changes
from ..engines.flower.kits import FlowerKit, make_flower_kits
from ..errors import InputError

KITS: tuple[type[Kit | FlowerKit], ...] = (Kit, FlowerKit)


def find_kit(folder: Path, kind: str | tuple[str, ...], engine: str | None = None) -> Kit | FlowerKit:
    """The kit of a site or of the coordinator, or of either; ``engine``, if given, must be the one it was made for."""
    kit = read_kit(folder, kind, *KITS)
    if engine not in (None, kit.engine):
        raise InputError(f"{folder} was made for engine {kit.engine!r}, not {engine!r}; leave --engine out, or make kits with it")
    return kit


def make_all_kits(federation: Federation, folder: Path) -> None:
    """Make the kits of all parties."""
    (make_flower_kits if federation.engine == "flower" else make_kits)(federation, folder)


def authority_and_coordinator(folder: Path) -> tuple[Kit | FlowerKit, Kit | FlowerKit | None]:
    """The authority, and the coordinator's kit if it lies where ``federation init`` left it and can take a new list.

    It cannot while its own renewed keys wait to be installed.  What does not fit together is an error before anything is made.
    """
    authority, place = changes.find_authority(folder, *KITS), folder / COORDINATOR
    if (folder / PARTIES).exists():
        _check_not_older(authority, folder / PARTIES, read_parties(folder / PARTIES, authority.authority))
    if not (place / KIT).exists():
        return authority, None
    coordinator = find_kit(place, COORDINATOR)
    if coordinator.authority != authority.authority:
        raise InputError(
            f"{place} is of another federation than {authority.folder}; put each federation into a folder of its own"
        )
    _check_not_older(authority, place / PARTIES, coordinator.parties)
    current = coordinator.parties.keys[COORDINATOR] == authority.parties.keys[COORDINATOR]
    return authority, coordinator if current else None


def _check_not_older(authority: Kit | FlowerKit, path: Path, parties: Parties) -> None:
    """An authority whose list was set back would sign keys again that were renewed away."""
    if parties.version > authority.parties.version:
        raise InputError(
            f"{authority.folder / PARTIES} has version {authority.parties.version}, and {path} has version {parties.version}; "
            "copy the newer one over it, else keys that were renewed away come back"
        )


def install(kit: Kit | FlowerKit, source: Path) -> Parties:
    """Take new keys or a new list of parties into a kit; a SuperLink that is up here learns of them at once."""
    parties = changes.install(kit, source)
    if isinstance(kit, FlowerKit) and kit.party == COORDINATOR:
        register_changes(FlowerKit.read(kit.folder, COORDINATOR))
    return parties


def check_installed(kit: Kit | FlowerKit) -> None:
    """The kit's engine must be installed here."""
    bring(kit.engine, "flwr" if kit.engine == "flower" else "nvflare")
