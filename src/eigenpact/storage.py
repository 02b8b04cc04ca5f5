"""Writing files: complete or not at all, or for their owner alone; and what to say where that fails."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from .errors import EigenpactError, FileError


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
    part = path.with_name(f".{secrets.token_hex(4)}.{path.name}")
    try:
        with writing(path, advice):
            yield part
            os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


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


def owner_only(path: str, flags: int) -> int:
    """For ``open(..., opener=owner_only)``: a new file is its owner's alone."""
    return os.open(path, flags, 0o600)


def write_private(path: Path, data: bytes) -> None:
    """Write a file that its owner alone can read."""
    with open(path, "wb", opener=owner_only) as file:
        file.write(data)


def write_private_json(path: Path, value: Any) -> None:
    """Write a JSON file that its owner alone can read."""
    write_private(path, (json.dumps(value, indent=2) + "\n").encode())


def replace_private(path: Path, parts: Iterable[bytes]) -> int:
    """Replace a file by one that its owner alone can read, in one step that a crash cannot tear; give its size."""
    fresh = path.with_name(path.name + ".cut")
    with open(fresh, "wb", opener=owner_only) as file:
        size = sum(file.write(part) for part in parts)
        sync(file)
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # a new name is on disk only when its folder is
    finally:
        os.close(folder)
    return size
