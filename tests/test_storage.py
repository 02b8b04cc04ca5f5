"""Files that appear complete or not at all, and files for their owner alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from eigenpact import storage
from eigenpact.errors import FileError, PolicyError


def test_errors_of_the_system_are_told_as_file_errors(tmp_path: Path) -> None:
    told = "the table cannot be written: No such file or directory; make the folder"
    with pytest.raises(FileError, match=told), storage.writing("the table", "make the folder"):
        (tmp_path / "no" / "file").write_text("x")
    with pytest.raises(PolicyError, match=r"^rule: no$"), storage.writing("the table"):  # an OSError too, with its own words
        raise PolicyError("rule: no")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("a.txt", r"a.txt must end in one of .json, .csv; rename it"),
        ("folder.json", "folder.json is a folder; give the name of a file in it"),
        ("there.json", r"there.json exists already; choose another name, or overwrite it \(overwrite=True\)"),
        ("no/a.json", "the folder .*no does not exist; create it first"),
    ],
)
def test_targets_that_are_refused(tmp_path: Path, name: str, told: str) -> None:
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "there.json").write_text("precious")
    with pytest.raises(FileError, match=told):
        storage.check_file_target(tmp_path / name, (".json", ".csv"))
    storage.check_file_target(tmp_path / "there.json", (".json",), overwrite=True)
    storage.check_file_target(tmp_path / "new.JSON", (".json",))


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "numbers.json"
    storage.write_json(path, {"a": 1})
    assert path.read_text() == '{\n "a": 1\n}\n'
    with pytest.raises(ZeroDivisionError), storage.replacing(path) as part:
        _ = part.write_text("half of it") / 0
    with pytest.raises(ValueError, match="JSON"):
        storage.write_json(path, float("nan"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(FileError, match=r"numbers.json cannot be written: No space left on device; choose another name"):
        storage.write_json(path, {"a": 2})
    assert path.read_text() == '{\n "a": 1\n}\n'
    assert os.listdir(tmp_path) == ["numbers.json"]


def test_a_folder_is_replaced_with_all_its_files(tmp_path: Path) -> None:
    place = tmp_path / "above" / "model"
    storage.place_folder(place, {"a": b"1", "b": b"2"})
    storage.place_folder(place, {"a": b"3"})
    assert {path.name: path.read_bytes() for path in place.iterdir()} == {"a": b"3"}
    assert os.listdir(place.parent) == ["model"]


def test_private_files_are_their_owners_alone(tmp_path: Path) -> None:
    storage.write_private(tmp_path / "key", b"secret")
    storage.write_private_json(tmp_path / "kit.json", {"party": "lima"})
    assert (tmp_path / "kit.json").read_text() == '{\n  "party": "lima"\n}\n'
    (tmp_path / "journal").write_bytes(b"old")
    (tmp_path / "journal").chmod(0o644)
    assert storage.replace_private(tmp_path / "journal", [b"new ", b"content"]) == 11
    assert (tmp_path / "journal").read_bytes() == b"new content"
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    assert sorted(os.listdir(tmp_path)) == ["journal", "key", "kit.json"]
