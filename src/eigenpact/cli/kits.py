"""Kits as the commands take them, whatever engine they were made for."""

from __future__ import annotations

from pathlib import Path

from ..engines.extras import bring
from ..engines.federation.kits import Federation, read_kit
from ..engines.flare.kits import Kit, make_kits
from ..engines.flower.kits import FlowerKit, make_flower_kits
from ..errors import InputError

KITS: tuple[type[Kit | FlowerKit], ...] = (Kit, FlowerKit)


def find_kit(folder: Path, kind: str, engine: str | None = None) -> Kit | FlowerKit:
    """The kit of a site or of the coordinator; ``engine``, if given, must be the one it was made for."""
    kit = read_kit(folder, kind, *KITS)
    if engine not in (None, kit.engine):
        raise InputError(f"{folder} was made for engine {kit.engine!r}, not {engine!r}; leave --engine out, or make kits with it")
    return kit


def make_all_kits(federation: Federation, folder: Path) -> None:
    """Make the kits of all parties."""
    (make_flower_kits if federation.engine == "flower" else make_kits)(federation, folder)


def check_installed(kit: Kit | FlowerKit) -> None:
    """The kit's engine must be installed here."""
    bring(kit.engine, "flwr" if kit.engine == "flower" else "nvflare")
