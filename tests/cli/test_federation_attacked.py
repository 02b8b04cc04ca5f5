"""What an attacker found in add, renew, install and revoke: each is refused, told, or done whole."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eigenpact.engines.federation import changes
from eigenpact.engines.federation.kits import Federation
from eigenpact.engines.flower.kits import FlowerKit, make_flower_kits
from eigenpact.errors import InputError
from eigenpact.storage import alone

pytest.importorskip("flwr", reason="needs eigenpact[flower]")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attacked") / "heart"
    make_flower_kits(Federation("heart", "localhost", 8102, ("north", "south"), 5, engine="flower"), folder)
    return folder


@pytest.fixture
def heart(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "heart")
    return tmp_path / "heart"


def test_a_second_certificate_in_a_file_is_noticed(heart: Path) -> None:
    """Whoever connects takes every certificate of the file for an authority's."""
    kit, own = FlowerKit.read(heart / "north", "site"), heart / "north" / "ca.crt"
    kit.expires()
    own.write_bytes(own.read_bytes() + own.read_bytes().replace(b"CERTIFICATE", b"TRUSTED CERTIFICATE"))
    with pytest.raises(InputError, match=r"ca.crt of .* holds more than one certificate; ask for the kit again"):
        kit.expires()


def test_a_folder_is_worked_on_by_one_at_a_time(tmp_path: Path) -> None:
    """Two sites that are added at once would both be of version 2."""
    came = threading.Event()

    def other() -> None:
        with alone(tmp_path):
            came.set()

    with alone(tmp_path):
        thread = threading.Thread(target=other)
        thread.start()
        assert not came.wait(0.3)
    assert came.wait(10)
    thread.join()
    assert list(tmp_path.glob(".*")) == []


def test_no_kit_is_signed_that_the_authority_does_not_know(
    heart: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its list cannot be written, nothing is made."""
    place = changes.place_parties

    def fail(path: Path, text: bytes) -> None:
        if path.parent.name == "authority":
            raise PermissionError(13, "Permission denied")
        place(path, text)

    monkeypatch.setattr(changes, "place_parties", fail)
    result = run("federation", "add", heart, "west")
    assert result.exit_code == 2
    assert "authority cannot be written: Permission denied; its list of parties must be yours to write" in result.stderr
    assert not (heart / "west").exists()
    monkeypatch.undo()
    assert run("federation", "add", heart, "west").exit_code == 0
    assert FlowerKit.read(heart / "coordinator", "coordinator").parties.version == 2


def test_a_renewal_made_before_a_revocation_is_told_when_it_is_installed(heart: Path, run: Callable[..., Any]) -> None:
    away = heart.parent / "coordinator"
    shutil.move(heart / "coordinator", away)
    assert run("federation", "renew", heart, "north").exit_code == 0
    assert run("federation", "revoke", away, "north").exit_code == 0
    told = run("federation", "install", away, heart / "parties.json")
    assert "north was revoked, and has another key in this list: it takes part again" in " ".join(told.stderr.split())
    assert run("federation", "revoke", away, "north").exit_code == 0
    assert FlowerKit.read(away, "coordinator").revoked() == ("north",)


@pytest.mark.parametrize("coordinator", ["here", "away"])
def test_an_authority_that_was_set_back_signs_nothing(
    heart: Path, run: Callable[..., Any], refused: Callable[..., str], coordinator: str
) -> None:
    """A backup that is restored would bring keys back that were renewed away."""
    before = (heart / "authority" / "parties.json").read_bytes()
    if coordinator == "away":
        shutil.move(heart / "coordinator", heart.parent / "away")
    assert run("federation", "renew", heart, "north").exit_code == 0
    (heart / "authority" / "parties.json").write_bytes(before)
    assert "copy the newer one over it, else keys that were renewed away come back" in refused("federation", "add", heart, "west")


def test_a_site_joins_while_the_coordinators_renewed_keys_wait(heart: Path, run: Callable[..., Any]) -> None:
    assert run("federation", "renew", heart, "coordinator").exit_code == 0
    told = run("federation", "add", heart, "west")
    assert told.exit_code == 0
    assert "parties.json to the coordinator" in " ".join(told.stdout.split())


def test_kits_of_two_federations_in_one_folder(heart: Path, refused: Callable[..., str], tmp_path: Path) -> None:
    shutil.rmtree(heart / "coordinator")
    make_flower_kits(Federation("heart", "localhost", 8102, ("a",), 5, engine="flower"), tmp_path / "other")
    shutil.copytree(tmp_path / "other" / "coordinator", heart / "coordinator")
    assert "is of another federation than" in refused("federation", "add", heart, "west")


@pytest.mark.parametrize("kind", ["link", "pipe", "missing"])
@pytest.mark.parametrize("name", ["site.key", "identity.key", "parties.json"])
def test_nothing_is_replaced_by_an_installation_that_cannot_be_whole(
    heart: Path, run: Callable[..., Any], kind: str, name: str
) -> None:
    assert run("federation", "renew", heart, "north").exit_code == 0
    source = heart / "north-renewed-2"
    (source / name).rename(heart / "aside")
    if kind == "link":
        (source / name).symlink_to(heart / "aside")
    elif kind == "pipe":
        os.mkfifo(source / name, 0o600)
    kit = {path.name: path.read_bytes() for path in (heart / "north").iterdir() if path.is_file()}
    result = run("federation", "install", heart / "north", source)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert kit == {path.name: path.read_bytes() for path in (heart / "north").iterdir() if path.is_file()}


def test_a_site_with_the_name_of_the_host(heart: Path, refused: Callable[..., str]) -> None:
    told = refused("federation", "add", heart, "localhost")
    assert "a site may not be called 'localhost', which is the coordinator's host; rename it" in told


def test_a_format_that_is_no_number(heart: Path, refused: Callable[..., str]) -> None:
    kit = heart / "north" / "kit.json"
    kit.write_text(kit.read_text().replace('"format": 4', '"format": 1e999'))
    assert "is not a kit made by eigenpact federation init" in refused("federation", "install", heart / "north", heart / "south")
