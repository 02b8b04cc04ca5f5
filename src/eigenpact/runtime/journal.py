"""A journal of a run: enough to go on, bit for bit, after the coordinator was killed.

One record per collective - name, digest of the arguments, result, ledger rows - is on disk (fsync) before the next request goes
out.  A record is ``length | checksum | payload``; the checksum is of the payload and of the checksum before.  So what is torn,
damaged, left out, put elsewhere or taken from another journal ends the chain: it and all after it is dropped when the file is
opened.  A checksum needs no secret: who can write the file can also forge it.  ``records.py`` refuses what no run writes, and no
more.  Nothing in it is pickled.

The file holds what the coordinator saw, so it is as confidential as the run itself, and is readable by its owner only.
Its header has a random key, and after each roster stand the sites' digests of their rows under that key (``fingerprint.py``): a
site with other rows is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import FileError, JournalError, WireError
from ..storage import open_regular, owner_only, replace_private, sync, writing
from . import wire
from .fingerprint import KEY_BYTES
from .forms import misfit
from .local import Arrays

FORMAT = 4
OLDER = {
    1: ", without digests of the sites' rows, so it cannot be told whether they are the same",
    2: ", whose requests name functions by the modules they were in",
    3: ", whose records do not tell which one they follow",
}
"""What earlier formats lack."""

MAGIC = b"eigenpact journal %d\n" % FORMAT
CHECKSUM = 16


@dataclass(frozen=True)
class Entry:
    """One record: JSON facts and arrays."""

    facts: dict[str, Any]
    arrays: Arrays = ()


class Journal:
    """Append-only file of entries; the first one describes the run."""

    def __init__(self, path: str | Path, description: Mapping[str, Any], run: str = "") -> None:
        """Open ``path`` for a run of this description: a new file, or an earlier run of the same description to resume.

        The description is whatever determines the run (solver, parameters, site names); ``resumed`` tells which it was.  A new
        run is called ``run``, or anything.
        """
        self.path = Path(path)
        self._replay: list[Entry] = []
        self._size = self._cut_size = 0
        self._last = MAGIC  # the checksum that the next record follows
        self._file: BinaryIO | None = None
        described = json.loads(json.dumps(dict(description)))
        entries, good, last = _read(self.path)
        self.resumed = bool(entries)
        if self.resumed:
            _check_header(self.path, entries[0].facts)
            _check_description(self.path, entries[0].facts["description"], described)
            self.header = entries[0]
            self._replay = entries[1:]
            with _writing(self.path):
                self._open(good, last)
        else:
            drawn = {"run": run or os.urandom(8).hex(), "seed": _seed(), "key": os.urandom(KEY_BYTES).hex()}
            self.header = Entry({"description": described} | drawn)
            self.cut([])

    @property
    def run(self) -> str:
        """The run's identifier, the same before and after a resume."""
        return str(self.header.facts["run"])

    @property
    def seed(self) -> int:
        """A seed for runs that were given none, the same before and after a resume."""
        return int(self.header.facts["seed"])

    @property
    def key(self) -> bytes:
        """The key of the sites' digests of their rows, drawn for this run and the same before and after a resume."""
        return bytes.fromhex(self.header.facts["key"])

    def next(self) -> Entry | None:
        """The next entry to replay, or None when the run is past the journal."""
        return self._replay.pop(0) if self._replay else None

    def peek(self) -> Entry | None:
        """The next entry to replay without taking it."""
        return self._replay[0] if self._replay else None

    def rest(self) -> list[Entry]:
        """All entries still to be replayed."""
        return list(self._replay)

    def upcoming(self, *kinds: str) -> Entry | None:
        """The first entry still to be replayed that is of one of these kinds."""
        return next((entry for entry in self._replay if entry.facts["kind"] in kinds), None)

    def append(self, entry: Entry) -> None:
        """Write an entry and wait until it is on disk."""
        assert self._file is not None
        record = _record(entry, self._last)
        with _writing(self.path):
            self._size += self._file.write(record)
            sync(self._file)
        self._last = _checksum_of(record)

    def grown(self) -> int:
        """Bytes written since the file was opened or last cut."""
        return self._size - self._cut_size

    def cut(self, entries: list[Entry]) -> None:
        """Replace everything after the header by these entries, in one step that a crash cannot tear."""
        records = [MAGIC]
        for entry in (self.header, *entries):
            records.append(_record(entry, _checksum_of(records[-1])))
        with _writing(self.path):
            size = replace_private(self.path, records)
            self.close()
            self._open(size, _checksum_of(records[-1]))

    def _open(self, size: int, last: bytes) -> None:
        """Go on writing after the first ``size`` bytes, the last record of which has this checksum."""
        self._last = last
        self._file = open(self.path, "r+b", opener=owner_only)  # noqa: SIM115  # closed by close()
        self._file.truncate(size)
        self._file.seek(size)
        self._size = self._cut_size = size

    def close(self) -> None:
        """Close the file; what could not be written was told by whoever tried."""
        if self._file is not None:
            with suppress(OSError):  # a full disk: closing tries once more
                self._file.close()


def described(path: str | Path) -> dict[str, Any] | None:
    """The description of the run whose journal this is; None where there is no file, or an empty one."""
    entries = _read(Path(path))[0]
    if not entries:
        return None
    _check_header(Path(path), entries[0].facts)
    return dict(entries[0].facts["description"])


def _writing(path: Path) -> AbstractContextManager[None]:
    return writing(f"the journal {path}", "make room or choose another path; what it holds so far can be resumed from")


def _seed() -> int:
    return int.from_bytes(os.urandom(4), "little")


def _record(entry: Entry, before: bytes) -> bytes:
    """An entry as it follows the record with the checksum ``before``."""
    payload = bytes(wire.pack(entry.facts, entry.arrays))
    return len(payload).to_bytes(8, "little") + _checksum(before, payload) + payload


def _checksum(before: bytes, payload: bytes | memoryview) -> bytes:
    checksum = hashlib.blake2b(before, digest_size=CHECKSUM)
    checksum.update(payload)
    return checksum.digest()


def _checksum_of(record: bytes) -> bytes:
    """What the next record follows; the first follows the file's first line."""
    return MAGIC if record == MAGIC else record[8 : 8 + CHECKSUM]


def _read(path: Path) -> tuple[list[Entry], int, bytes]:
    """All undamaged entries of a journal, the position after the last of them, and its checksum."""
    try:
        with open_regular(path) as file:
            data = file.read()
    except FileNotFoundError:
        return [], 0, MAGIC
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"the journal {path} cannot be read: {error.strerror}; check its permissions") from error
    if not data:
        return [], 0, MAGIC
    other = re.match(rb"eigenpact journal ([0-9]{1,9})\n", data)
    if other and int(other[1]) != FORMAT:
        older = int(other[1]) < FORMAT
        lacks = OLDER.get(int(other[1]), "")
        raise JournalError(
            f"{path} is a journal of format {int(other[1])}{lacks}; this version of eigenpact reads format {FORMAT}: go on with "
            f"the {'earlier' if older else 'later'} version that wrote it, or delete it and start afresh; nothing was changed"
        )
    if not data.startswith(MAGIC):
        raise JournalError(f"{path} is not an eigenpact journal; choose another path, nothing was changed")
    entries: list[Entry] = []
    at, last, view = len(MAGIC), MAGIC, memoryview(data)
    while at + 8 + CHECKSUM <= len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        start = at + 8 + CHECKSUM
        payload = view[start : start + length]
        if len(payload) < length or _checksum(last, payload) != data[at + 8 : start]:
            break
        try:
            entries.append(Entry(*wire.unpack(payload)))
        except WireError as error:
            raise JournalError(f"{path}: a record cannot be read ({error}); restore the file, or start afresh") from error
        at, last = start + length, data[at + 8 : start]
    if not entries:  # a new journal appears with its description whole, so this is damage and not a torn tail
        raise JournalError(f"{path}: the journal's description is damaged; restore the file or choose another path")
    return entries, at, last


def _check_header(path: Path, facts: Mapping[str, Any]) -> None:
    wrong = misfit(facts, {"description": dict[str, Any], "run": str, "seed": int, "key": str})
    if not wrong and not re.fullmatch(f"[0-9a-f]{{{2 * KEY_BYTES}}}", facts["key"]):
        wrong = "its key is none"
    if wrong:
        raise JournalError(f"{path}: the journal's description is damaged ({wrong}); restore the file or choose another path")


def _check_description(path: Path, written: dict[str, Any], wanted: dict[str, Any]) -> None:
    different = sorted(k for k in written.keys() | wanted.keys() if written.get(k) != wanted.get(k))
    if different:
        detail = "; ".join(f"{k}: journal has {written.get(k)!r}, this run {wanted.get(k)!r}" for k in different[:3])
        raise JournalError(f"{path} belongs to another run ({detail}); use the same settings to resume, or another path")
