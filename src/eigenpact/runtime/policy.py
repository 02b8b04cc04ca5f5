"""What a site allows, whoever asks: checked at the site before a function runs, and written down there.

The coordinator announces a :class:`Plan` - solver, functions, collectives, rounds - before the first round.  A site's
:class:`Gate` compares it with the site's own :class:`Policy` and refuses it by the name of the rule that it breaks; later it
compares every request with the plan it admitted, so that a coordinator cannot announce one thing and do another.  What was
admitted, refused and sent stands in the site's own ledger, a file with one JSON object a line; values are never written.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..errors import EigenpactError, FileError, InputError, PolicyError, WireError
from .fingerprint import DIGEST, rows_digest
from .ledger import COORDINATOR, describe
from .local import Arrays, LocalFunction, find_local

if TYPE_CHECKING:
    from .site import Request, Response

SINGLE_REPLIES = {
    "gather": "allow_gather",
    "at": "allow_at",
    "max": "allow_max",
    "chain": "allow_chain",
    DIGEST: "allow_digest",
}
"""Collectives in which somebody sees a single site's reply by intent, and the rule that allows each."""

ALWAYS = frozenset({"sum", "local"})
"""Collectives that need no rule of their own."""

RUN = re.compile(r"[0-9A-Za-z_-]{1,64}")
"""Identifiers of runs; they stand in every row of a site's ledger, so a coordinator may not choose them at will."""

MOST_TOLD = 500
"""Characters of a reason that are written down and told; it may hold names that a coordinator chose."""


@dataclass(frozen=True)
class Plan:
    """What a coordinator is about to do.

    Attributes
    ----------
    solver : str
    functions : tuple of str
        Full names of all local functions that may be called.
    kinds : tuple of str
        Collectives that may be used: "sum", "local", "gather", ...; and "digest" if there is a journal.
    max_rounds : int
        Rounds after which the solver stops.
    n_components : int or None
        Components asked for; None if a share of the variance, or all.
    features : tuple of str, int or None
        Names of the columns in order, or their number; None if it does not matter.
    """

    solver: str
    functions: tuple[str, ...]
    kinds: tuple[str, ...]
    max_rounds: int
    n_components: int | None = None
    features: tuple[str, ...] | int | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, facts: Any) -> Plan:
        """Inverse of :meth:`to_dict`, for what a coordinator sent: everything is checked."""
        if not isinstance(facts, dict) or set(facts) != {field.name for field in fields(cls)}:
            raise PolicyError(f"rule plan: a plan has {', '.join(f.name for f in fields(cls))}; the versions may differ")
        features = facts["features"]
        good = (
            isinstance(facts["solver"], str)
            and _texts(facts["functions"])
            and _texts(facts["kinds"])
            and _count(facts["max_rounds"])
            and (facts["n_components"] is None or _count(facts["n_components"]))
            and (features is None or _count(features) or _texts(features))
        )
        if not good:
            raise PolicyError("rule plan: the announced plan holds values of wrong types; the versions may differ")
        tuples = {key: tuple(facts[key]) for key in ("functions", "kinds")}
        return cls(**facts | tuples | {"features": tuple(features) if isinstance(features, list) else features})


@dataclass(frozen=True)
class Policy:
    """A site's own rules.

    Parameters
    ----------
    solvers : tuple of str
        Solvers by name.
    functions : tuple of str
        Full names of local functions that may run here.
    modules : tuple of str
        Modules of the site's own, imported at the start, whose local functions may be named in ``functions``.
    min_rows : int
        With fewer rows the site takes no part.
    max_rounds : int
        Replies of one run, set-up included; counted over restarts of site and coordinator.
    max_runs_per_day : int
        Runs admitted within 24 hours.
    max_components : int
        Columns of any array that is sent here, and components that may be asked for.
    max_message_bytes : int
        Larger messages are refused unread.
    max_seconds : int
        Seconds that one request may be computed here; then this site's part of the run ends.
    allow_gather, allow_at, allow_max, allow_chain : bool
        Whether collectives are allowed that show this site's reply, and not only its part of a sum, to someone.
    allow_digest : bool
        Whether runs with a journal are allowed, which ask for a keyed digest of the rows (``fingerprint.py``).  The function
        that makes it need not be listed.
    """

    solvers: tuple[str, ...]
    functions: tuple[str, ...]
    modules: tuple[str, ...] = ()
    min_rows: int = 20
    max_rounds: int = 500
    max_runs_per_day: int = 50
    max_components: int = 100
    max_message_bytes: int = 1 << 28
    max_seconds: int = 3600
    allow_gather: bool = False
    allow_at: bool = False
    allow_max: bool = False
    allow_chain: bool = False
    allow_digest: bool = True

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any], where: str = "policy") -> Policy:
        """Rules as a TOML or JSON file holds them.

        >>> Policy.from_dict({"solvers": ["gram"], "functions": [], "min_rows": 5}).min_rows
        5
        """
        known = {field.name: field for field in fields(cls)}
        for name, value in facts.items():
            if name not in known:
                raise InputError(f"{where}: unknown rule {name!r}; the rules are {', '.join(known)}")
            kind = str(known[name].type)
            good = (
                _texts(value)
                if kind.startswith("tuple")
                else isinstance(value, bool)
                if kind == "bool"
                else _count(value) and value > 0
            )
            if not good:
                wanted = {"bool": "true or false", "int": "a whole number > 0"}.get(kind, "a list of texts")
                raise InputError(f"{where}: rule {name} = {value!r} must be {wanted}")
        rules: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in facts.items()}
        return cls(**rules)

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)

    def load(self) -> None:
        """Import the owner's modules, and see that every function is known that the rules name: a slip would allow less."""
        for module in self.modules:
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise InputError(
                    f"rule modules: {module!r} cannot be imported here ({error}); install it, or leave it out"
                ) from error
        for function in self.functions:
            try:
                find_local(function)
            except WireError as error:
                raise InputError(f"rule functions: {function!r} is not known here; check its name, and the modules") from error

    def kinds(self) -> frozenset[str]:
        """Collectives that are allowed."""
        return ALWAYS | {kind for kind, rule in SINGLE_REPLIES.items() if getattr(self, rule)}


class Gate:
    """Admits or refuses what a coordinator asks of one site.

    Parameters
    ----------
    site : str
    policy : Policy
    ledger : SiteLedger
    n_rows : int
    features : sequence of str, or int
        The site's columns in order, or their number.
    """

    def __init__(self, site: str, policy: Policy, ledger: SiteLedger, *, n_rows: int, features: Sequence[str] | int) -> None:
        self._site = site
        self._policy = policy
        self._ledger = ledger
        self._n_rows = n_rows
        self._features = features if isinstance(features, int) else tuple(features)
        self._plan: Plan | None = None
        self._run = ""
        self._withdrawn = ""  # why the plan would no longer be admitted

    @property
    def policy(self) -> Policy:
        """The site's rules."""
        return self._policy

    def admit(self, run: str, facts: Any) -> None:
        """Admit a run by its plan, or refuse it by the name of a rule; the plan of another run ends with that."""
        most = self._policy.max_runs_per_day
        try:
            if not RUN.fullmatch(run):
                raise PolicyError("rule plan: a run is named by at most 64 letters, digits, - or _")
            plan = Plan.from_dict(facts)
            self._check_plan(plan)
            with self._ledger.locked():
                if not self._ledger.knows(run) and self._ledger.runs_today() >= most:
                    raise PolicyError(f"rule max_runs_per_day = {most}: as many runs were admitted already")
                row = {"solver": plan.solver, "n_components": plan.n_components, "max_rounds": plan.max_rounds}
                self._ledger.write(run=run, what="admitted", **row)
        except PolicyError as error:
            self.refused(run, str(error))
            raise
        self._plan, self._run, self._withdrawn = plan, run, ""

    def remember(self) -> dict[str, Any]:
        """The run that was admitted and its plan, for another process of this site."""
        return {"run": self._run, "plan": None if self._plan is None else self._plan.to_dict()}

    def recall(self, facts: Mapping[str, Any]) -> None:
        """Go on with what another process of this site admitted; the site's rules may have changed since, and hold."""
        if facts["plan"] is None:
            return
        self._plan, self._run = Plan.from_dict(facts["plan"]), facts["run"]
        try:
            self._check_plan(self._plan)
        except PolicyError as error:
            self._withdrawn = str(error)

    def check(self, request: Request, function: LocalFunction) -> None:
        """Refuse a request that breaks a rule or was not announced."""
        try:
            self._check_request(request, function)
        except PolicyError as error:
            self.refused(request.run, str(error), request.function)
            raise

    def sent(self, request: Request, response: Response, again: bool = False) -> None:
        """Write down what is about to leave, unless another process of this site has sent the run's last reply meanwhile."""
        shapes, dtypes, size = describe(response.arrays)
        if not shapes:
            return
        try:
            with self._ledger.locked():
                if not again:
                    self._check_rounds(request.run)
                self._ledger.write(
                    run=request.run,
                    what="sent again" if again else "sent",
                    to=COORDINATOR,
                    epoch=request.epoch,
                    step=max(0, request.step),  # 0, as at the coordinator, for what is no step
                    kind=request.kind,
                    function=request.function,
                    shapes=shapes,
                    dtypes=dtypes,
                    bytes=size,
                )
        except PolicyError as error:
            self.refused(request.run, str(error), request.function)
            raise

    def refused(self, run: str, reason: str, function: str = "") -> None:
        """Write down a refusal."""
        self._write_reason("refused", run, reason, function)

    def failed(self, request: Request, reason: str) -> None:
        """Write down that a function failed, which the coordinator is told."""
        self._write_reason("failed", request.run, reason, request.function)

    def _write_reason(self, what: str, run: str, reason: str, function: str) -> None:
        named = {"function": shortened(function)} if function else {}
        self._ledger.write(run=shortened(run), what=what, reason=shortened(reason), **named)

    def _check_plan(self, plan: Plan) -> None:
        rules = self._policy
        if plan.solver not in rules.solvers:
            raise PolicyError(
                f"rule solvers: {plan.solver!r} is not allowed here; allowed are {', '.join(rules.solvers) or 'none'}"
            )
        for kind in plan.kinds:
            self._check_kind(kind)
        unlisted = sorted(set(plan.functions) - set(rules.functions) - {rows_digest.name})  # which has a rule of its own
        if unlisted:
            raise PolicyError(f"rule functions: {unlisted[0]!r} is not listed at this site")
        if plan.max_rounds > rules.max_rounds:
            raise PolicyError(f"rule max_rounds = {rules.max_rounds}: the plan allows itself {plan.max_rounds}")
        if plan.n_components is not None and plan.n_components > rules.max_components:
            raise PolicyError(f"rule max_components = {rules.max_components}: the plan asks for {plan.n_components}")
        if self._n_rows < rules.min_rows:
            raise PolicyError(f"rule min_rows = {rules.min_rows}: this site has fewer")
        self._check_features(plan.features)

    def _check_features(self, wanted: tuple[str, ...] | int | None) -> None:
        mine = self._features
        if wanted is None or wanted == mine:
            return
        count = mine if isinstance(mine, int) else len(mine)
        if isinstance(wanted, int) or isinstance(mine, int):
            n = wanted if isinstance(wanted, int) else len(wanted)
            if n != count:
                raise PolicyError(f"rule features: the plan has {n} features, this site {count}")
            return
        missing, extra = sorted(set(wanted) - set(mine)), sorted(set(mine) - set(wanted))
        detail = (
            "the same in another order"
            if not missing and not extra
            else "; ".join(
                f"{what} {', '.join(some[:5])}" for what, some in (("not here:", missing), ("not in the plan:", extra)) if some
            )
        )
        raise PolicyError(f"rule features: this site's columns are not the plan's ({detail})")

    def _check_request(self, request: Request, function: LocalFunction) -> None:
        rules, plan = self._policy, self._plan
        if plan is None or request.run != self._run:
            raise PolicyError("rule plan: this run was not announced here; announce its plan first")
        if self._withdrawn:
            raise PolicyError(self._withdrawn)
        if function.name not in rules.functions and (request.kind, function) != (DIGEST, rows_digest):
            raise PolicyError(f"rule functions: {function.name!r} is not listed at this site")
        if function.name not in plan.functions:
            raise PolicyError(f"rule plan: {function.name!r} is not in the plan that was admitted")
        self._check_kind(request.kind)
        if request.kind not in plan.kinds:
            raise PolicyError(f"rule plan: {request.kind!r} is not in the plan that was admitted")
        if request.kind != "local":
            self._check_rounds(request.run)
        self._check_widths(function, request.args)

    def _check_rounds(self, run: str) -> None:
        most = self._policy.max_rounds
        if self._ledger.replies(run) >= most:
            raise PolicyError(f"rule max_rounds = {most}: as many replies of this run were sent already")

    def _check_kind(self, kind: str) -> None:
        if kind in ALWAYS:
            return
        if kind not in SINGLE_REPLIES:
            raise PolicyError(f"rule collectives: {kind!r} is not allowed between institutions")
        if not getattr(self._policy, SINGLE_REPLIES[kind]):
            raise PolicyError(f"rule {SINGLE_REPLIES[kind]} = false: {kind!r} would show this site's own reply")

    def _check_widths(self, function: LocalFunction, args: Arrays) -> None:
        """Every axis but features and fixed ones is a number of columns the coordinator chose; so is a number named like one."""
        most = self._policy.max_components
        for (label, shape), array in zip(function.takes.items(), args, strict=True):
            axes = shape.text.split() if shape.text != "..." else ["..."] * array.ndim
            chosen = [n for axis, n in zip(axes, array.shape, strict=True) if axis != "d" and not axis.isdigit()]
            number = [int(array)] if array.ndim == 0 and label in function.size_names else []
            if max([*chosen, *number], default=0) > most:
                size = f"{number[0]}" if number else f"({shape.text}) of shape {array.shape}"
                raise PolicyError(f"rule max_components = {most}: argument {label!r} of {function.short_name} is {size}")


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

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else writes meanwhile, and what others wrote before is counted."""
        import fcntl  # not everywhere, unlike this module

        if self._file is not None:
            yield
            return
        try:
            with open(self.path, "ab+", opener=_owner_only) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                self._catch_up(file)
                self._file = file
                yield
        except OSError as error:
            if isinstance(error, EigenpactError):
                raise
            raise FileError(f"the site's ledger {self.path} cannot be written: {error.strerror}; nothing was sent") from error
        finally:
            self._file = None

    def write(self, **facts: Any) -> None:
        """Append a row with the time, and wait until it is on disk."""
        row = {"time": datetime.now(UTC).isoformat(timespec="milliseconds")} | facts
        with self.locked():
            assert self._file is not None
            line = json.dumps(row, separators=(",", ":")).encode() + b"\n"
            self._file.write(line)
            self._file.flush()
            os.fsync(self._file.fileno())
            self._counted += len(line)
            self._note(row)

    def knows(self, run: str) -> bool:
        """Whether the run was admitted before."""
        return run in self._admitted

    def runs_today(self) -> int:
        """Runs admitted within the last 24 hours."""
        since = datetime.now(UTC) - timedelta(days=1)
        return sum(time > since for time in self._admitted.values())

    def replies(self, run: str) -> int:
        """Replies sent in a run so far."""
        return self._replies.get(run, 0)

    def _forget(self) -> None:
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

    def _note(self, row: Mapping[str, Any]) -> None:
        run = str(row.get("run", ""))
        if row.get("what") == "admitted":
            self._admitted.setdefault(run, datetime.fromisoformat(row["time"]))
        elif row.get("what") == "sent":
            self._replies[run] = self._replies.get(run, 0) + 1


def read_site_ledger(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a site's ledger; none if there is no file yet.  A torn last line tells of nothing that left."""
    try:
        written = Path(path).read_bytes()
    except FileNotFoundError:
        return []
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
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise FileError(f"{path}, line {number}: not a row of a site's ledger; restore the file, or begin another")
        rows.append(row)
    return rows


def _owner_only(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
