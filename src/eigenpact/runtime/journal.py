"""A journal of a run: enough to go on, bit for bit, after the coordinator was killed.

One record per collective - name, digest of the arguments, result, ledger rows - is on disk (fsync) before the next request goes
out.  A record is ``length | checksum | payload``; a torn or damaged tail is dropped when the file is opened.  Nothing in it is
pickled.  The file holds what the coordinator saw, so it is as confidential as the run itself, and is readable by its owner only.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import FileError, JournalError
from . import wire
from .local import Arrays

MAGIC = b"eigenpact journal 1\n"
CHECKSUM = 16


@dataclass(frozen=True)
class Entry:
    """One record: JSON facts and arrays."""

    facts: dict[str, Any]
    arrays: Arrays = ()


class Journal:
    """Append-only file of entries; the first one describes the run."""

    def __init__(self, path: str | Path, description: Mapping[str, Any]) -> None:
        """Open ``path`` for a run of this description: a new file, or an earlier run of the same description to resume.

        The description is whatever determines the run (solver, parameters, site names); ``resumed`` tells which it was.
        """
        self.path = Path(path)
        self._replay: list[Entry] = []
        self._size = 0
        entries, good = _read(self.path)
        self.resumed = bool(entries)
        try:
            self._file: BinaryIO = self.path.open("r+b" if self.resumed else "wb")
        except OSError as error:
            raise FileError(f"cannot write journal {self.path}: {error.strerror}; choose another path") from error
        if self.resumed:
            _check_description(self.path, entries[0].facts["description"], dict(description))
            self.header = entries[0]
            self._replay = entries[1:]
            self._file.seek(good)
            self._file.truncate()
            self._size = good
        else:
            os.chmod(self.path, 0o600)
            self._file.write(MAGIC)
            self._size = len(MAGIC)
            self.header = Entry({"description": dict(description), "run": os.urandom(8).hex(), "seed": _seed()})
            self.append(self.header)
        self._cut_size = self._size

    @property
    def run(self) -> str:
        """The run's identifier, the same before and after a resume."""
        return str(self.header.facts["run"])

    @property
    def seed(self) -> int:
        """A seed for runs that were given none, the same before and after a resume."""
        return int(self.header.facts["seed"])

    def next(self) -> Entry | None:
        """The next entry to replay, or None when the run is past the journal."""
        return self._replay.pop(0) if self._replay else None

    def peek(self) -> Entry | None:
        """The next entry to replay without taking it."""
        return self._replay[0] if self._replay else None

    def upcoming_state(self) -> Entry | None:
        """The state entry of the epoch about to be replayed, if the journal was cut in it."""
        for entry in self._replay:
            if entry.facts["kind"] in ("state", "roster"):
                return entry if entry.facts["kind"] == "state" else None
        return None

    def append(self, entry: Entry) -> None:
        """Write an entry and wait until it is on disk."""
        self._size += self._file.write(_record(entry))
        self._file.flush()
        os.fsync(self._file.fileno())

    def grown(self) -> int:
        """Bytes written since the file was opened or last cut."""
        return self._size - self._cut_size

    def cut(self, entries: list[Entry]) -> None:
        """Replace everything after the header by these entries, in one step that a crash cannot tear."""
        fresh = self.path.with_name(self.path.name + ".cut")
        with fresh.open("wb") as file:
            os.chmod(fresh, 0o600)
            file.write(MAGIC)
            for entry in [self.header, *entries]:
                file.write(_record(entry))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)
        self._file.close()
        self._file = self.path.open("r+b")
        self._file.seek(0, os.SEEK_END)
        self._size = self._cut_size = self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _seed() -> int:
    return int.from_bytes(os.urandom(4), "little")


def _record(entry: Entry) -> bytes:
    payload = bytes(wire.pack(entry.facts, entry.arrays))
    return len(payload).to_bytes(8, "little") + hashlib.blake2b(payload, digest_size=CHECKSUM).digest() + payload


def _read(path: Path) -> tuple[list[Entry], int]:
    """All undamaged entries of a journal and the position after the last of them."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise FileError(f"cannot read journal {path}: {error.strerror}") from error
    if not data.startswith(MAGIC):
        if MAGIC.startswith(data):  # killed while writing the very first bytes
            return [], 0
        raise JournalError(f"{path} is not an eigenpact journal; choose another path, nothing was changed")
    entries: list[Entry] = []
    at = len(MAGIC)
    while at + 8 + CHECKSUM <= len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        start = at + 8 + CHECKSUM
        payload = data[start : start + length]
        if len(payload) < length or hashlib.blake2b(payload, digest_size=CHECKSUM).digest() != data[at + 8 : start]:
            break
        facts, arrays = wire.unpack(payload)
        entries.append(Entry(facts, arrays))
        at = start + length
    return entries, at


def _check_description(path: Path, written: dict[str, Any], wanted: dict[str, Any]) -> None:
    different = sorted(k for k in written.keys() | wanted.keys() if written.get(k) != wanted.get(k))
    if different:
        detail = "; ".join(f"{k}: journal has {written.get(k)!r}, this run {wanted.get(k)!r}" for k in different[:3])
        raise JournalError(f"{path} belongs to another run ({detail}); use the same settings to resume, or another path")
