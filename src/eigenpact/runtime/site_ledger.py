"""A site's own account of what was admitted, refused and sent, in a file of the site: one JSON object a line, no values."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

from ..errors import FileError, InputError
from ..storage import open_regular, owner_only, parse_json, read_regular, replace_private, sync, writing
from .forms import fits, misfit

SECRET_BYTES = 32
DAY = timedelta(days=1)
MOST_TOLD = 500
"""Characters of a reason that are written down and told; it may hold names that a coordinator chose."""


ROW: dict[str, Any] = {"time": str, "what": str}
COUNTED: dict[str, Any] = {"run": str, "data": str, "columns": int, "epoch": int}
"""What every row has, and what is counted of rows that have it."""


class SiteLedger:
    """A site's own account in a file: one JSON object a line, on disk before anything leaves.

    A site may answer several jobs at a time, each in a process of its own.  All of them write to this file, and count what all of
    them wrote: otherwise a coordinator would have every limit once for every job.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file: IO[bytes] | None = None  # while it is locked
        self._forget()
        if self.path.exists():
            with self.locked():
                pass

    def secret(self) -> bytes:
        """32 bytes that only this site knows, in a file of its owner alone beside the ledger; made at the first call."""
        path = self.path.with_name(self.path.name + ".secret")
        with self.locked():
            try:
                known = read_regular(path, SECRET_BYTES)
            except FileNotFoundError:
                known = os.urandom(SECRET_BYTES)
                replace_private(path, [known])
        if len(known) != SECRET_BYTES:
            raise FileError(f"{path} must hold {SECRET_BYTES} bytes, it holds {len(known)}; remove it, and another is made")
        return known

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else writes meanwhile, and what others wrote before is counted."""
        import fcntl  # not everywhere, unlike this module

        if self._file is not None:
            yield
            return
        failing = writing(f"the site's ledger {self.path}", "nothing was sent")
        try:
            with failing, open(self.path, "ab+", opener=owner_only) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                self._catch_up(file)
                self._file = file
                yield
        finally:
            self._file = None

    def write(self, **facts: Any) -> None:
        """Append a row with the time, and wait until it is on disk."""
        row = {"time": datetime.now(UTC).isoformat(timespec="milliseconds")} | facts
        with self.locked():
            assert self._file is not None
            line = json.dumps(row, separators=(",", ":")).encode() + b"\n"
            self._file.write(line)
            sync(self._file)
            self._counted += len(line)
            self._note(row)

    def knows(self, run: str) -> bool:
        """Whether the run was admitted before."""
        return run in self._admitted

    def runs_today(self) -> int:
        """Runs admitted within the last 24 hours."""
        since = datetime.now(UTC) - DAY
        return sum(time > since for time in self._admitted.values())

    def replies(self, run: str) -> int:
        """Replies sent in a run so far."""
        return self._replies.get(run, 0)

    def runs(self, data: str) -> int:
        """Runs admitted for a version of the rows."""
        return self._runs.get(data, 0)

    def columns(self, data: str) -> int:
        """Columns that left about a version of the rows."""
        return self._columns.get(data, 0)

    def begins(self, run: str, epoch: int) -> bool:
        """Whether nothing of this epoch left so far."""
        return epoch not in self._epochs.get(run, ())

    def epochs(self, run: str) -> int:
        """Epochs of a run in which something left."""
        return len(self._epochs.get(run, ()))

    def _forget(self) -> None:
        self._runs: dict[str, int] = {}
        self._columns: dict[str, int] = {}
        self._epochs: dict[str, set[int]] = {}
        self._admitted: dict[str, datetime] = {}
        self._replies: dict[str, int] = {}
        self._counted, self._lines = 0, 0  # bytes and lines

    def _catch_up(self, file: IO[bytes]) -> None:
        """Count rows that others wrote; cut off one that was torn when the machine stopped, or the next would join it."""
        if file.seek(0, os.SEEK_END) < self._counted:  # the owner has begun another
            self._forget()
        file.seek(self._counted)
        written = file.read()
        whole = written[: written.rfind(b"\n") + 1]
        for row in _rows(self.path, whole, self._lines):
            self._note(row)
        self._counted += len(whole)
        self._lines += whole.count(b"\n")
        if whole != written:
            file.truncate(self._counted)

    def _not_ahead(self, time: datetime) -> datetime:
        """A row of a clock that was ahead would count as today's until that day comes."""
        if time > datetime.now(UTC) + DAY:
            raise FileError(
                f"{self.path} has a row of {time:%Y-%m-%d}, which is yet to come; set this machine's clock, or correct the row"
            )
        return time

    def _note(self, row: Mapping[str, Any]) -> None:
        run, data = str(row.get("run", "")), str(row.get("data", ""))
        if row.get("what") == "admitted":
            self._runs[data] = self._runs.get(data, 0) + (run not in self._admitted)
            self._admitted.setdefault(run, self._not_ahead(datetime.fromisoformat(row["time"])))
        elif row.get("what") == "sent":
            self._replies[run] = self._replies.get(run, 0) + 1
            self._columns[data] = self._columns.get(data, 0) + int(row.get("columns", 0))
            self._epochs.setdefault(run, set()).add(int(row.get("epoch", 0)))


def read_site_ledger(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a site's ledger; none if there is no file yet.  A torn last line tells of nothing that left."""
    try:
        with open_regular(Path(path)) as file:
            written = file.read()
    except FileNotFoundError:
        return []
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"the site's ledger {path} cannot be read: {error.strerror}") from error
    return _rows(path, written[: written.rfind(b"\n") + 1])


def shortened(text: str) -> str:
    """A text of bounded length, for logs and ledgers.

    >>> len(shortened("x" * 10_000))
    500
    """
    return text if len(text) <= MOST_TOLD else text[: MOST_TOLD - 3] + "..."


def _rows(path: str | Path, text: bytes, before: int = 0) -> list[dict[str, Any]]:
    """Rows of whole lines, the first of which comes after so many others."""
    rows = []
    for number, line in enumerate(text.splitlines(), before + 1):
        try:
            row = parse_json(line)
        except InputError:
            row = None
        if (
            misfit(row, ROW)
            or any(not fits(row[name], form) for name, form in COUNTED.items() if name in row)
            or not _is_time(row)
        ):
            raise FileError(f"{path}, line {number}: not a row of a site's ledger; restore the file, or begin another")
        rows.append(row)
    return rows


def _is_time(row: Mapping[str, Any]) -> bool:
    """Whether a row's time can be compared with others; it was written with its zone."""
    try:
        return datetime.fromisoformat(row["time"]).tzinfo is not None
    except ValueError:
        return False
