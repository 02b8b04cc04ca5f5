"""Kits as the commands take them, whatever engine they were made for."""

from __future__ import annotations

from pathlib import Path

from ..engines.federation.kits import ENGINES, Federation, engine_of
from ..engines.flare.kits import Kit, flare, make_kits
from ..engines.flower.kits import FlowerKit, flower, make_flower_kits
from ..errors import InputError


def find_kit(folder: Path, kind: str, engine: str | None = None) -> Kit | FlowerKit:
    """The kit of a site or of the coordinator; ``engine``, if given, must be the one it was made for."""
    made_for = engine_of(folder)
    if engine is not None and engine != made_for:
        raise InputError(f"{folder} was made for engine {made_for!r}, not {engine!r}; leave --engine out, or make kits with it")
    return (FlowerKit if made_for == "flower" else Kit).read(folder, kind)


def make_all_kits(federation: Federation, folder: Path) -> None:
    """Make the kits of all parties."""
    (make_flower_kits if federation.engine == "flower" else make_kits)(federation, folder)


def check_installed(kit: Kit | FlowerKit) -> None:
    """The kit's engine must be installed here."""
    if isinstance(kit, FlowerKit):
        flower("flwr")
    else:
        flare("nvflare")


__all__ = ["ENGINES", "check_installed", "find_kit", "make_all_kits"]
