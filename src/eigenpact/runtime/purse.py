"""A site's purse: what it has spent of its privacy budget, and the noise that it drew for that.

A local function that adds noise asks its site for it: ``site.noise(rho, honest, scales)``.  The purse then

1. names the question by a keyed digest of the run, its epoch (one epoch has one roster), the function, the arguments, the
   version of the rows and what was told of them at set-up, so that the same question has the same name and any other has another;
2. gives the noise that it has for that name, if it has any: asked again, after a crash or because a message was lost, the site
   sends the very same numbers, and spends nothing.  Noise drawn anew would let the average of two replies tell more;
3. else compares what would be spent with the owner's limit, and refuses by the name of the rule;
4. writes down what is spent, and waits until it is on disk;
5. draws the noise, writes it to a file of the owner alone, and only then gives it away.

Whoever loses the file of noise loses no privacy: the question then costs once more.  Why noise is drawn once and kept, and not
made again from a key: docs/adr/0017-noise-is-drawn-once-and-kept.md.

The noise is that of the discrete Gaussian, from OpenDP, which draws it exactly and from the operating system's entropy.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BudgetError, FileError, InputError, MissingExtraError
from ..numerics.accounting import LEAST_DEVIATION, epsilon_of, rho_for
from ..storage import open_regular, owner_only, parse_json, read_regular, replace_private, sync, writing
from . import wire
from .forms import misfit
from .local import Arrays

if TYPE_CHECKING:
    from .site_ledger import SiteLedger

Scales = Sequence[tuple[float, int]]
"""Standard deviations in steps, and how many numbers have each."""

ROW: dict[str, Any] = {"time": str, "run": str, "epoch": int, "function": str, "rho": float, "honest": int, "question": str}
"""What every line of a budget file holds."""

LARGEST_DEVIATION = 2.0**55
"""Of a site's noise, in steps: sums must fit into 64 bits."""

MOST_KEPT = 100
"""Questions whose noise is kept, the latest: who asks without end must not fill the site's disk.  Older ones cost once more."""

AT_ONCE = 1 << 16
"""Numbers drawn in one call."""


@dataclass(frozen=True)
class Limits:
    """What a site's owner allows to be spent.

    Attributes
    ----------
    max_epsilon, max_delta : float
        All queries together may cost no more than this, for one row, or for one person; an infinite epsilon is no limit.
    max_shares : int, optional
        The most honest sites that noise may be divided among: with 1 the site adds all of it and trusts nobody; None is no limit.
    rows_per_person : int
        The most rows of one person in the table: all are hidden together.
    """

    max_epsilon: float = np.inf
    max_delta: float = 1e-6
    max_shares: int | None = None
    rows_per_person: int = 1


@dataclass(frozen=True)
class Question:
    """What a site is asked, in which run, and after it was told what: which features are dropped, for one."""

    run: str
    epoch: int
    function: str
    args: Arrays
    told: str = ""


@dataclass(frozen=True, eq=False)
class Entrusted:
    """Rows (n x d) with the purse that belongs to them, for engines whose sites are in this process."""

    rows: Any
    purse: Purse

    @property
    def shape(self) -> tuple[int, int]:
        """Of the rows."""
        return int(self.rows.shape[0]), int(self.rows.shape[1])


class Purse:
    """A site's account of noise, in a file and a folder beside it; in memory where there is no path.

    Parameters
    ----------
    path : Path, optional
        The budget file; noise is kept in the folder of the same name with ".noise" behind it.
    limits : Limits
    secret : bytes
        Names of questions are keyed with it.
    ledger : SiteLedger, optional
        Remembers what was spent, too: a budget file that is lost, or lacks lines, is noticed.
    data : function
        Gives the version of the rows.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        limits: Limits | None = None,
        secret: bytes = b"",
        data: Callable[[], str] = str,
        ledger: SiteLedger | None = None,
    ) -> None:
        self.path, self.limits, self._ledger = path, limits or Limits(), ledger
        self._secret, self._data = secret, data
        self._rows: list[dict[str, Any]] = []  # where there is no path
        self._noise: dict[str, NDArray[np.int64]] = {}

    def noise(self, question: Question, rho: float, honest: int, scales: Scales) -> NDArray[np.int64]:
        """Noise for a question that costs rho if ``honest`` sites add their shares, drawn once."""
        self._check(rho, honest, scales)
        asked = " ".join([question.run, str(question.epoch), question.function, self._data(), *question.told.split()])
        name = hashlib.blake2b(wire.digest(asked, question.args).encode(), key=self._secret, digest_size=16).hexdigest()
        size = sum(count for _, count in scales)
        with self._locked() as file:
            before = self._read(file)
            self._check_whole(before)
            kept = self._kept(name, size)
            if kept is not None:
                return kept
            spent = [*before, self._row(question, rho, honest, name)]
            self._check_limit(spent)
            self._write(file, spent[-1])
            if self._ledger is not None:
                self._ledger.write(what="noise", **{key: value for key, value in spent[-1].items() if key != "time"})
            drawn = np.concatenate([draw(scale, count) for scale, count in scales])
            self._keep(name, drawn)
        return drawn

    def spent(self) -> list[dict[str, Any]]:
        """Every question that was paid for: time, run, epoch, function, rho for a row or a person, honest sites, its name."""
        with self._locked() as file:
            return list(self._read(file))

    def _row(self, question: Question, rho: float, honest: int, name: str) -> dict[str, Any]:
        """All rows of one person are hidden together: m of them change a sum m times as much, and cost m^2 times."""
        facts = {"run": question.run, "epoch": question.epoch, "function": question.function}
        cost = rho * self.limits.rows_per_person**2
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        return {"time": time, **facts, "rho": cost, "honest": honest, "question": name}

    def _check(self, rho: float, honest: int, scales: Scales) -> None:
        if not (np.isfinite(rho) and rho > 0 and honest >= 1):
            raise BudgetError(f"noise for rho={rho!r} and {honest!r} honest sites; both must be positive")
        if self.limits.max_shares is not None and honest > self.limits.max_shares:
            raise BudgetError(
                f"rule max_shares = {self.limits.max_shares}: noise is to be divided among {honest} sites taken for honest"
            )
        least = min(scale for scale, _ in scales)
        if not least >= LEAST_DEVIATION:
            raise BudgetError(f"noise of {least:.0f} steps is too little to be told from rounding; ask for a smaller epsilon")
        most = max(scale for scale, _ in scales)
        if not most <= LARGEST_DEVIATION:
            raise BudgetError(f"noise of {most:.1e} steps is more than 64-bit integers hold; ask for a larger epsilon")

    def _check_whole(self, spent: list[dict[str, Any]]) -> None:
        """Refuse to count on a budget file that was removed or cut short: what was spent stays spent."""
        if self.path is None:
            return
        remembered = {} if self._ledger is None else self._ledger.noise()
        lost = set(remembered) - {row["question"] for row in spent}
        if lost:
            raise BudgetError(
                f"{self.path} lacks {len(lost)} of the {len(remembered)} questions that the site's ledger tells of: restore it, "
                "or have it written anew from the ledger: eigenpact site budget KIT --restore"
            )
        drawn = self._place("any").parent
        if not spent and self._ledger is None and drawn.is_dir() and any(drawn.iterdir()):
            raise BudgetError(
                f"{self.path} tells of no question, and {drawn} holds noise that was paid for: restore the file; whoever removes "
                "the folder, too, forgets what was spent"
            )

    def _check_limit(self, spent: list[dict[str, Any]]) -> None:
        most, delta = self.limits.max_epsilon, self.limits.max_delta
        total = total_rho(spent)
        if np.isfinite(most) and total > rho_for(most, delta) * (1 + 1e-9):
            before = epsilon_of(total - spent[-1]["rho"], delta)
            raise BudgetError(
                f"rule max_epsilon = {most:g}: {before:.3g} of it (delta {delta:g}) is spent, and this query would make it "
                f"{epsilon_of(total, delta):.3g}"
            )

    # -- where it is written --------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[IO[bytes] | None]:
        """Nobody else draws or spends meanwhile."""
        if self.path is None:
            yield None
            return
        import fcntl  # not everywhere, unlike this module

        with (
            writing(f"the budget file {self.path}", "nothing was sent"),
            open(self.path, "ab+", opener=owner_only) as file,
        ):
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file

    def _read(self, file: IO[bytes] | None) -> list[dict[str, Any]]:
        """All lines; one that was torn when the machine stopped is cut off, for nothing was sent after it."""
        if file is None:
            return self._rows
        file.seek(0)
        written = file.read()
        whole = written[: written.rfind(b"\n") + 1]
        if whole != written:
            file.truncate(len(whole))
        return parsed(self.path, whole)

    def _write(self, file: IO[bytes] | None, row: dict[str, Any]) -> None:
        if file is None:
            self._rows.append(row)
            return
        file.seek(0, os.SEEK_END)
        file.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")
        sync(file)

    def _kept(self, name: str, size: int) -> NDArray[np.int64] | None:
        if self.path is None:
            return self._noise.get(name)
        try:
            held = read_regular(self._place(name), 8 * size + 1)
        except FileNotFoundError:
            return None
        if len(held) != 8 * size:
            raise FileError(f"{self._place(name)} must hold {size} numbers; remove it, and the question costs once more")
        return np.frombuffer(held, dtype="<i8").astype(np.int64)

    def _keep(self, name: str, drawn: NDArray[np.int64]) -> None:
        if self.path is None:
            self._noise[name] = drawn
            return
        self._place(name).parent.mkdir(mode=0o700, exist_ok=True)
        replace_private(self._place(name), [drawn.astype("<i8").tobytes()])
        by_age = sorted(self._place(name).parent.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for old in by_age[:-MOST_KEPT]:
            old.unlink(missing_ok=True)

    def _place(self, name: str) -> Path:
        assert self.path is not None
        return self.path.with_name(self.path.name + ".noise") / name


def budget_beside(ledger: Path) -> Path:
    """The budget file of a site that has this ledger.

    >>> budget_beside(Path("ledger.jsonl")).name
    'ledger.jsonl.budget'
    """
    return ledger.with_name(ledger.name + ".budget")


def read_budget(path: str | Path) -> list[dict[str, Any]]:
    """The lines of a site's budget file; none if there is no file yet."""
    try:
        with open_regular(Path(path)) as file:
            written = file.read()
    except FileNotFoundError:
        return []
    return parsed(Path(path), written[: written.rfind(b"\n") + 1])


def missing_from(budget: Sequence[Mapping[str, Any]], remembered: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Lines that a budget file lacks, by what the site's ledger remembers."""
    there = {row["question"] for row in budget}
    return [{key: row[key] for key in ROW} for question, row in remembered.items() if question not in there]


def restore_budget(path: Path, ledger: SiteLedger) -> int:
    """Append the lines that a budget file lacks; how many."""
    purse = Purse(path)
    with purse._locked() as file:
        lines = missing_from(purse._read(file), ledger.noise())
        for line in lines:
            purse._write(file, line)
    return len(lines)


def parsed(path: Path | None, text: bytes) -> list[dict[str, Any]]:
    """Lines of a budget file; a damaged one is an error, because a limit that cannot be counted is none."""
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            row = parse_json(line)
        except InputError:
            row = None
        if misfit(row, ROW) or not row["rho"] > 0:
            raise FileError(f"{path}, line {number}: not a line of a budget file; restore it: what was spent stays spent")
        rows.append(row)
    return rows


def total_rho(rows: Sequence[dict[str, Any]]) -> float:
    """What these lines cost together."""
    return float(sum(row["rho"] for row in rows))


def draw(scale: float, count: int) -> NDArray[np.int64]:
    """Whole numbers (count,) from the discrete Gaussian with this standard deviation, from the operating system's entropy."""
    try:
        opendp = importlib.import_module("opendp.prelude")
    except ImportError as error:
        raise MissingExtraError(f"differential privacy needs opendp ({error}): pip install 'eigenpact[private]'") from error
    opendp.enable_features("contrib")
    vectors = opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.l2_distance(T="f64")
    add_noise = opendp.m.make_gaussian(*vectors, scale=float(scale))
    parts = [add_noise([0] * min(AT_ONCE, count - first)) for first in range(0, count, AT_ONCE)]
    return np.concatenate([np.array(part, dtype=np.int64) for part in parts] or [np.zeros(0, dtype=np.int64)])
