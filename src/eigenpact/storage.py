"""Files: read only where they are files, written whole or for their owner alone; and what to say where that fails.

Who can write to a folder can put a link, a device or a pipe where a file is expected.  Reading must not wait for a pipe, and
writing must not replace a device or follow a link: both are refused.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, NoReturn

from .errors import EigenpactError, FileError, InputError

try:
    import fcntl
except ImportError:  # a system without it: two commands at once are then not kept apart
    fcntl = None  # type: ignore[assignment]

NO_WAIT, NO_LINK = getattr(os, "O_NONBLOCK", 0), getattr(os, "O_NOFOLLOW", 0)
"""Flags of ``os.open``, where the system has them: do not wait for whoever writes to a pipe, do not follow a link."""

KINDS = {stat.S_IFDIR: "a folder", stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


def spool_folder() -> str:
    """Where temporary copies lie."""
    return os.environ.get("TMPDIR") or ("/var/tmp" if Path("/var/tmp").is_dir() else tempfile.gettempdir())


def check_regular(path: Path, *, follow: bool = False) -> None:
    """Raise a FileError where something is that is not a file; a link is one only if it may be followed."""
    try:
        mode = path.stat(follow_symlinks=follow).st_mode
    except FileNotFoundError:
        return
    except ValueError as error:  # a null byte in it
        raise FileError(f"{str(path)!r} is no path: {error}; choose another") from error
    if not stat.S_ISREG(mode):
        raise FileError(f"{path} is {KINDS.get(stat.S_IFMT(mode), 'a device')}, not a file; choose another path")


def open_regular(path: Path, *, follow: bool = False) -> BinaryIO:
    """Open a file to be read; what is none is refused, and never waited for."""
    check_regular(path, follow=follow)
    file = os.open(path, os.O_RDONLY | NO_WAIT | (0 if follow else NO_LINK) | getattr(os, "O_BINARY", 0))
    return os.fdopen(_checked_regular(file, path), "rb")


def read_regular(path: Path, most: int, *, follow: bool = False) -> bytes:
    """The content of a file; one of more than ``most`` bytes is refused."""
    with open_regular(path, follow=follow) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise FileError(f"{path} has {size} bytes, and at most {most} are read; give another file")
        return file.read(size)


def parse_json(text: bytes | str) -> Any:
    """JSON that somebody else may have written; whatever is wrong with it is an InputError.

    >>> parse_json(b'{"a": [1, 2]}')
    {'a': [1, 2]}
    >>> parse_json("[NaN]")
    Traceback (most recent call last):
    eigenpact.errors.InputError: NaN is not a number of JSON
    """
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError as error:
        raise InputError("it is nested too deeply") from error
    except UnicodeDecodeError as error:
        raise InputError(f"it is not UTF-8 ({error.reason} at byte {error.start})") from error
    except ValueError as error:
        raise error if isinstance(error, InputError) else InputError(str(error)) from error


def _no_number(name: str) -> NoReturn:
    raise InputError(f"{name} is not a number of JSON")


def _checked_regular(file: int, path: str | Path) -> int:
    """The descriptor, if it is a file's: what lay at the path may have changed since it was looked at."""
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FileError(f"{path} is not a file; choose another path")
    return file


@contextmanager
def writing(what: object, advice: str = "choose another name") -> Iterator[None]:
    """Tell an error of the system as a FileError: what cannot be written, why, and what to do."""
    try:
        yield
    except OSError as error:
        if isinstance(error, EigenpactError):
            raise
        raise FileError(f"{what} cannot be written: {error.strerror or error}; {advice}") from error


def check_file_target(path: Path, endings: Sequence[str], *, overwrite: bool = False) -> None:
    """Raise a FileError unless a file with one of these endings can be written to ``path``; call it before a long computation."""
    if path.suffix.lower() not in endings:
        allowed = endings[0] if len(endings) == 1 else f"one of {', '.join(endings)}"
        raise FileError(f"{path} must end in {allowed}; rename it")
    if path.is_dir():
        raise FileError(f"{path} is a folder; give the name of a file in it")
    check_regular(path)
    if path.exists() and not overwrite:
        raise FileError(f"{path} exists already; choose another name, or overwrite it (overwrite=True)")
    if not path.absolute().parent.is_dir():
        raise FileError(f"{path} cannot be written, because the folder {path.parent} does not exist; create it first")


@contextmanager
def replacing(path: Path, advice: str = "choose another name") -> Iterator[Path]:
    """A name beside ``path`` to write to; the file takes its place in the end, unless something is raised.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "numbers.txt")) as part:
    ...         _ = part.write_text("1 2 3")
    ...     os.listdir(folder)
    ['numbers.txt']
    """
    check_regular(path)
    part = _beside(path)
    try:
        with writing(path, advice):
            yield part
            check_regular(path)
            os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    """A name that nobody else can have taken."""
    return path.with_name(f".{secrets.token_hex(8)}.{path.name}")


def write_json(path: Path, value: Any) -> None:
    """Write numbers and texts for people and programs; the file appears complete or not at all."""
    content = json.dumps(value, indent=1, allow_nan=False) + "\n"
    with replacing(path) as part:
        part.write_text(content)


def place_folder(place: Path, files: Mapping[str, bytes]) -> None:
    """Write files to a folder next to ``place``, then rename it; an earlier folder there is moved away first."""
    place.parent.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(4)
    fresh, old = (place.with_name(f".{place.name}.{token}.{what}") for what in ("new", "old"))
    try:
        fresh.mkdir()
        for name, content in files.items():
            with (fresh / name).open("wb") as stream:
                stream.write(content)
                sync(stream)
        if place.exists():
            place.rename(old)
        fresh.rename(place)
    finally:
        if old.exists() and not place.exists():
            old.rename(place)
        for leftover in (fresh, old):
            shutil.rmtree(leftover, ignore_errors=True)


def sync(file: IO[Any]) -> None:
    """Wait until what was written is on disk."""
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait until no other process is at work in a folder, and keep others waiting meanwhile; nothing is left behind."""
    if fcntl is None or not folder.is_dir():
        yield
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def try_lock(path: Path) -> int | None:
    """Lock a file for this process and those that inherit the descriptor that is given; None if another process has it."""
    opened = os.open(path, os.O_RDONLY | NO_LINK)
    if fcntl is not None:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(opened)
            return None
    return opened


def owner_only(path: str, flags: int) -> int:
    """For ``open(..., opener=owner_only)``: a new file is its owner's alone; what is there and no file is refused."""
    check_regular(Path(path))
    return _checked_regular(os.open(path, flags | NO_LINK | NO_WAIT, 0o600), path)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that its owner alone can read."""
    with open(path, "wb", opener=owner_only) as file:
        file.write(data)


def write_private_json(path: Path, value: Any) -> None:
    """Write a JSON file that its owner alone can read."""
    write_private(path, (json.dumps(value, indent=2) + "\n").encode())


def replace_private(path: Path, parts: Iterable[bytes]) -> int:
    """Replace a file by one that its owner alone can read, in one step that a crash cannot tear; give its size."""
    check_regular(path)
    fresh = _beside(path)
    try:
        with open(fresh, "xb", opener=owner_only) as file:
            size = sum(file.write(part) for part in parts)
            sync(file)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # a new name is on disk only when its folder is
    finally:
        os.close(folder)
    return size
