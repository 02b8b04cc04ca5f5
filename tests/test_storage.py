"""Files that appear complete or not at all, and files for their owner alone."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eigenpact import storage
from eigenpact.errors import FileError, InputError, PolicyError


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


# -- what is no file ----------------------------------------------------------------------------


def make_link(path: Path) -> None:
    (path.parent / "elsewhere").write_bytes(b"precious")
    path.symlink_to(path.parent / "elsewhere")


NO_FILES: dict[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "a link": make_link,
    "a pipe": os.mkfifo,
    "a socket": lambda path: socket.socket(socket.AF_UNIX).bind(str(path)),
    "a device": lambda path: os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3)),
}


@pytest.fixture(params=NO_FILES)
def no_file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    """Something that is no file, and what it is."""
    monkeypatch.chdir(tmp_path)  # the address of a socket must be short
    path = Path("there.json")
    try:
        NO_FILES[request.param](path)
    except PermissionError:
        pytest.skip("only root makes devices")
    return path, request.param


WRITERS: dict[str, Callable[[Path], object]] = {
    "json": lambda path: storage.write_json(path, 1),
    "private": lambda path: storage.write_private(path, b"x"),
    "replaced": lambda path: storage.replace_private(path, [b"x"]),
    "appended": lambda path: open(path, "ab+", opener=storage.owner_only),  # noqa: SIM115
    "checked": lambda path: storage.check_file_target(path, (".json",), overwrite=True),
    "read": lambda path: storage.read_regular(path, 100),
}


@pytest.mark.filterwarnings("ignore:unclosed <socket")
@pytest.mark.parametrize("name", WRITERS)
def test_what_is_no_file_is_neither_read_nor_replaced_nor_followed(no_file: tuple[Path, str], name: str) -> None:
    path, what = no_file
    before = os.lstat(path), sorted(os.listdir())
    with pytest.raises(FileError, match=what):
        WRITERS[name](path)
    assert (os.lstat(path)[:7], sorted(os.listdir())) == (before[0][:7], before[1])
    if what == "a link":
        assert path.read_bytes() == b"precious"


def test_a_link_put_there_after_the_look_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_link(tmp_path / "key")
    monkeypatch.setattr(storage, "check_regular", lambda *_, **__: None)
    with pytest.raises(OSError, match="symbolic links"):
        storage.write_private(tmp_path / "key", b"secret")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match="pipe is not a file"):
        storage.open_regular(tmp_path / "pipe")
    assert (tmp_path / "elsewhere").read_bytes() == b"precious"


def test_reading_is_bounded_and_may_follow_links(tmp_path: Path) -> None:
    make_link(tmp_path / "table")
    assert storage.read_regular(tmp_path / "table", 8, follow=True) == b"precious"
    with pytest.raises(FileError, match="has 8 bytes, and at most 7 are read"):
        storage.read_regular(tmp_path / "table", 7, follow=True)


def test_what_is_no_path_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="is no path: embedded null"):
        storage.read_regular(tmp_path / "a\0b", 10)


def test_a_failed_replacement_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "journal").write_bytes(b"old")

    def parts() -> Iterator[bytes]:
        yield b"half"
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        storage.replace_private(tmp_path / "journal", parts())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"journal": b"old"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b"9" * 5000, "4300 digits"),
        (b"\xff{}", "not UTF-8"),
        (b"[Infinity]", "Infinity is not a number of JSON"),
        (b"", "Expecting value"),
    ],
)
def test_json_that_cannot_be_read_is_an_input_error(text: bytes, told: str) -> None:
    with pytest.raises(InputError, match=told):
        storage.parse_json(text)
