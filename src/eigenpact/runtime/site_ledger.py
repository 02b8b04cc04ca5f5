"""A site's own account of what was admitted, refused and sent, in a file of the site: one JSON object a line, no values."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from ..errors import FileError, InputError
from ..storage import open_regular, owner_only, parse_json, read_regular, replace_private, sync, writing
from .forms import fits, misfit
from .lately import Lately
from .versions import Versions

SECRET_BYTES = 32
MOST_TOLD = 500
"""Characters of a reason that are written down and told; it may hold names that a coordinator chose."""


COUNTED = frozenset({"sent", "sent again", "failed", "session"})
"""Rows that are counted for each run."""

MOST_REFUSALS = 1000
"""Refusals that are written down within 24 hours: who is refused without end must not fill the site's disk."""

ROW: dict[str, Any] = {"time": str, "what": str}
FURTHER: dict[str, Any] = {"run": str, "data": str, "plan": str, "columns": int, "epoch": int, "sent": int, "roster": list[str]}
FURTHER |= {"question": str, "rho": float, "honest": int, "function": str}
"""What every row has, and what some have that is counted."""


class SiteLedger:
    """A site's own account in a file: one JSON object a line, on disk before anything leaves.

    A site may answer several jobs at a time, each in a process of its own.  All of them write to this file, and count what all of
    them wrote: otherwise a coordinator would have every limit once for every job.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.versions = Versions(self.path.with_name(self.path.name + ".rows"))
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

    def refuse(self, run: str, **facts: Any) -> None:
        """Append a refusal, unless there were too many; the last row that is left for the day says so."""
        with self.locked():
            left = MOST_REFUSALS - self._refusals.count()
            if left > 1:
                self.write(run=run, what="refused", **facts)
            elif left == 1:
                self.write(run="", what="refused", reason=f"{MOST_REFUSALS} refusals within 24 hours: more are not written down")

    def write(self, **facts: Any) -> None:
        """Append a row with the time, and wait until it is on disk."""
        row = {"time": datetime.now(UTC).isoformat(timespec="milliseconds")} | facts
        with self.locked():
            assert self._file is not None
            line = json.dumps(row, separators=(",", ":")).encode() + b"\n"
            self._file.write(line)
            sync(self._file)
            self._counted += len(line)
            self._lines += 1
            self._note(row)

    def plans(self, run: str) -> Collection[tuple[str, str]]:
        """Digests of the plans by which a run was admitted, each with the version of the rows; none if it was not."""
        return self._plans.get(run, ())

    def runs_today(self) -> int:
        """Runs admitted within the last 24 hours."""
        return self._admissions.count()

    def replies(self, run: str) -> int:
        """Replies sent in a run so far."""
        return self._rows["sent", run]

    def repeats(self, run: str) -> int:
        """Replies of a run that were sent once more."""
        return self._rows["sent again", run]

    def failures(self, run: str) -> int:
        """Requests of a run that failed here."""
        return self._rows["failed", run]

    def failures_about(self, data: str) -> int:
        """Secured sums that failed because of a version of the rows."""
        return self._rows["failed about", data]

    def dropped(self, data: str) -> Collection[str]:
        """Sets of features, as digests, that were dropped from a version of the rows in secured sums."""
        return self._dropped.get(data, ())

    def noise(self) -> Mapping[str, Mapping[str, Any]]:
        """By question, what was spent on noise."""
        if self.path.exists():
            with self.locked():
                return dict(self._noise)
        return {}

    def runs(self, data: str) -> int:
        """Runs admitted for a version of the rows."""
        return self._runs.get(data, 0)

    def columns(self, data: str) -> int:
        """Columns that left about a version of the rows."""
        return self._columns.get(data, 0)

    def sessions(self, run: str) -> int:
        """How often keys for secured sums were agreed on in a run."""
        return self._rows["session", run]

    def rosters(self, data: str) -> Collection[tuple[str, ...]]:
        """The sites of secured sums about a version of the rows."""
        return self._rosters.get(data, ())

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
        self._rosters: dict[str, set[tuple[str, ...]]] = {}
        self._dropped: dict[str, set[str]] = {}
        self._noise: dict[str, dict[str, Any]] = {}
        self._plans: dict[str, set[tuple[str, str]]] = {}
        self._rows: Counter[tuple[str, str]] = Counter()  # what, run
        self._admissions, self._refusals = Lately(), Lately()
        self.last_sent = 0  # when the newest plan that was admitted was sent, by the coordinator's clock
        self._counted, self._lines = 0, 0  # bytes and lines

    def _catch_up(self, file: IO[bytes]) -> None:
        """Count rows that others wrote; cut off one that was torn when the machine stopped, or the next would join it."""
        if file.seek(0, os.SEEK_END) < self._counted:  # the owner has begun another
            self._forget()
        file.seek(self._counted)
        written = file.read()
        whole = written[: written.rfind(b"\n") + 1]
        for number, row in enumerate(_rows(self.path, whole, self._lines), self._lines + 1):
            try:
                self._note(row)
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                self._forget()
                raise _no_row(self.path, number) from error
        self._counted += len(whole)
        self._lines += whole.count(b"\n")
        if whole != written:
            file.truncate(self._counted)

    def _note(self, row: Mapping[str, Any]) -> None:
        what, run, data = (str(row.get(key, "")) for key in ("what", "run", "data"))
        time = datetime.fromisoformat(row["time"]).astimezone(UTC)
        self._refusals.note(time, counts=what == "refused")
        self._admissions.note(time, counts=what == "admitted" and run not in self._plans)
        if what == "admitted":
            self._runs[data] = self._runs.get(data, 0) + (run not in self._plans)
            self._plans.setdefault(run, set()).add((str(row.get("plan", "")), data))
            self.last_sent = max(self.last_sent, int(row.get("sent", 0)))
        elif what == "sent":
            self._columns[data] = self._columns.get(data, 0) + int(row.get("columns", 0))
            self._epochs.setdefault(run, set()).add(int(row.get("epoch", 0)))
        elif what == "session":
            self._rosters.setdefault(data, set()).add(tuple(row["roster"]))
        elif what == "dropped":
            self._dropped.setdefault(data, set()).add(str(row["features"]))
        elif what == "noise":
            self._noise[row["question"]] = {key: value for key, value in row.items() if key != "what"}
        elif what == "failed" and data:
            self._rows["failed about", data] += 1
        if what in COUNTED:
            self._rows[what, run] += 1


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
    """A text as one line of bounded length, for logs and ledgers: whoever chose it writes no lines of his own there.

    >>> len(shortened("x" * 10_000)), shortened("no\\n2026-11-17 all is well")
    (500, 'no 2026-11-17 all is well')
    """
    begin = "".join(c if c.isprintable() else " " for c in text[: 4 * MOST_TOLD])
    line = " ".join(begin.split())
    return line if len(line) <= MOST_TOLD and len(text) <= 4 * MOST_TOLD else line[: MOST_TOLD - 3] + "..."


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
            or any(not fits(row[name], form) for name, form in FURTHER.items() if name in row)
            or not _is_time(row)
        ):
            raise _no_row(path, number)
        rows.append(row)
    return rows


def _no_row(path: str | Path, number: int) -> FileError:
    return FileError(f"{path}, line {number}: not a row of a site's ledger; restore the file, or begin another")


def _is_time(row: Mapping[str, Any]) -> bool:
    """Whether a row's time can be compared with others; it was written with its zone."""
    try:
        return datetime.fromisoformat(row["time"]).tzinfo is not None
    except ValueError:
        return False
