"""The written account of everything that crossed a boundary, and the record of progress round by round.

Bytes are the arrays' own (8 per float64), without any engine's envelope, so that the account is the same on every engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, get_type_hints

import numpy as np

from ..errors import InputError
from .forms import fits, misfit
from .local import DTYPE_NAMES, Arrays

COORDINATOR = "coordinator"

Names = Sequence[str]

ROW = tuple[int, int, int, str, list[str], list[str], list[list[int]], list[str], int, str]
"""The form of a row that a file holds; see :meth:`Ledger.since`."""

MOST_ENDS = 16
"""Of senders and receivers in a row, one kind has at most so many: a few names must not stand for millions of messages."""

Description = tuple[tuple[tuple[int, ...], ...], tuple[str, ...], int]
"""Shapes, dtypes and bytes of the arrays in a message."""


def describe(arrays: Arrays) -> Description:
    """What the ledger writes about arrays: never their values."""
    return tuple(a.shape for a in arrays), tuple(DTYPE_NAMES[a.dtype] for a in arrays), sum(a.nbytes for a in arrays)


@dataclass(frozen=True, slots=True)
class Message:
    """One message: who sent which arrays to whom, in which round, computed by which local function.

    ``note`` is "setup" for set-up rounds, "own" for the coordinator's own site (nothing travelled), "resent" for what a resumed
    run sent again, "lost: ..." and "joined" (without arrays) for sites that left or came back, else empty.
    """

    round: int
    epoch: int
    step: int
    function: str
    sender: str
    receiver: str
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    bytes: int
    note: str = ""


@dataclass(frozen=True)
class RoundRecord:
    """Where the run stood when the algorithm reported progress; ``basis`` (d x k) goes to the callback only.

    ``bytes_up`` and ``bytes_down`` are what travelled since the last record, summed over sites; ``seconds`` likewise.
    ``details`` are numbers that only some algorithms watch, by name.
    """

    round: int
    sites: int
    objective: float | None
    kkt: float | None
    bytes_up: int
    bytes_down: int
    seconds: float
    details: Mapping[str, float] = field(default_factory=dict)
    basis: np.ndarray[Any, Any] | None = None

    @classmethod
    def from_dict(cls, facts: Any) -> RoundRecord:
        """Inverse of :meth:`to_dict`, for what a file holds; an InputError tells of other things."""
        wrong = misfit(facts, RECORD) or ("" if len(facts) == len(RECORD) else "it holds more than a record has")
        if wrong:
            raise InputError(f"a record of the history is none: {wrong}")
        return cls(**facts)

    def without_basis(self) -> RoundRecord:
        """The record as it is stored in ``history_``."""
        return replace(self, basis=None)

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        values = asdict(self.without_basis())
        del values["basis"]
        return values


RECORD = {name: form for name, form in get_type_hints(RoundRecord).items() if name != "basis"}
"""The form of a record that a file holds."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Messages of one step that differ in sender or receiver only."""

    round: int
    epoch: int
    step: int
    function: str
    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    bytes: int
    note: str

    def expand(self) -> Iterator[Message]:
        for sender in self.senders:
            for receiver in self.receivers:
                yield Message(
                    self.round, self.epoch, self.step, self.function, sender, receiver,
                    self.shapes, self.dtypes, self.bytes, self.note,
                )  # fmt: skip


class Ledger:
    """Every message of a run.  Iterate over it for :class:`Message` rows.

    >>> ledger = Ledger()
    >>> ledger.sent(1, 0, 3, "gram_action", ["A", "B"], [COORDINATOR], describe((np.zeros((4, 2)),)))
    >>> [(m.sender, m.receiver, m.bytes) for m in ledger], ledger.bytes_up, ledger.bytes_down
    ([('A', 'coordinator', 64), ('B', 'coordinator', 64)], 128, 0)
    """

    def __init__(self) -> None:
        self._groups: list[_Group] = []
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}  # senders and receivers are the same ones in most steps
        self.bytes_up = 0
        self.bytes_down = 0

    def sent(
        self,
        round: int,
        epoch: int,
        step: int,
        function: str,
        senders: Names,
        receivers: Names,
        description: Description,
        note: str = "",
    ) -> None:
        """Enter arrays of one description sent from every sender to every receiver; a message without arrays is none."""
        shapes, dtypes, size = description
        if shapes and senders and receivers:
            ends = self._once(senders), self._once(receivers)
            self._enter(_Group(round, epoch, step, function, *ends, shapes, dtypes, size, note))

    def event(self, round: int, epoch: int, step: int, site: str, note: str) -> None:
        """Enter that a site was lost or joined."""
        self._enter(_Group(round, epoch, step, "", (site,), (COORDINATOR,), (), (), 0, note))

    def _once(self, names: Names) -> tuple[str, ...]:
        """These names, in memory once however many rows of the ledger have them."""
        return self._names.setdefault(ends := tuple(names), ends)

    def _enter(self, group: _Group) -> None:
        self._groups.append(group)
        if group.note == "own":
            return
        size = group.bytes * len(group.senders) * len(group.receivers)
        if group.senders == (COORDINATOR,):
            self.bytes_down += size
        else:
            self.bytes_up += size

    def __iter__(self) -> Iterator[Message]:
        for group in self._groups:
            yield from group.expand()

    def __len__(self) -> int:
        return sum(len(g.senders) * len(g.receivers) for g in self._groups)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ledger) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # mutable, compared by content

    def __repr__(self) -> str:
        return f"<Ledger: {len(self)} messages, {self.bytes_up} bytes from sites, {self.bytes_down} bytes to sites>"

    def mark(self) -> int:
        """A position, for :meth:`since`."""
        return len(self._groups)

    def since(self, mark: int) -> list[list[Any]]:
        """What was entered since a position, as JSON can hold it."""
        return [
            [g.round, g.epoch, g.step, g.function, g.senders, g.receivers, g.shapes, g.dtypes, g.bytes, g.note]
            for g in self._groups[mark:]
        ]

    def extend(self, entries: Sequence[Sequence[Any]]) -> None:
        """Enter what :meth:`since` gave, e.g. from a journal or a saved model; an InputError tells of other things."""
        if not fits(entries, list[ROW]):
            raise InputError(
                "a row of the ledger is none: it must hold round, epoch, step, function, ... as a ledger writes them"
            )
        for round_, epoch, step, function, senders, receivers, shapes, dtypes, size, note in entries:
            if size < 0 or min(len(senders), len(receivers)) > MOST_ENDS:
                raise InputError(f"a row of the ledger is none: {size} bytes from {len(senders)} to {len(receivers)}")
            shape_tuples, ends = tuple(tuple(s) for s in shapes), (self._once(senders), self._once(receivers))
            self._enter(_Group(round_, epoch, step, function, *ends, shape_tuples, tuple(dtypes), size, note))
