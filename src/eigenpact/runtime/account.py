"""How far a run has come and what it has sent: rounds, ledger, history, last basis."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .collectives import Progress
from .ledger import Description, Ledger, Names, RoundRecord
from .local import Arrays, LocalFunction, frozen


class Account:
    """The books of one run; the one place where rounds and bytes are counted."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.history: list[RoundRecord] = []
        self.rounds = self.setup_rounds = 0
        self.epoch = self.step = 0
        self._basis: np.ndarray[Any, Any] | Callable[[], np.ndarray[Any, Any]] | None = None
        self._unwritten: list[list[Any]] = []
        self._begin_record()

    @property
    def basis(self) -> np.ndarray[Any, Any] | None:
        """The basis last told of; made now where it was told of by a function."""
        if callable(self._basis):
            (self._basis,) = frozen((self._basis().copy(),))
        return self._basis

    @basis.setter
    def basis(self, basis: np.ndarray[Any, Any] | None) -> None:
        self._basis = basis

    def count_round(self, function: LocalFunction) -> None:
        """One more round, of set-up or of the solver."""
        if function.setup:
            self.setup_rounds += 1
        else:
            self.rounds += 1

    def enter(self, function: LocalFunction, senders: Names, receivers: Names, description: Description, note: str) -> None:
        """Write messages of the current step into the ledger."""
        round_ = self.setup_rounds if function.setup else self.rounds
        mark = self.ledger.mark()
        self.ledger.sent(round_, self.epoch, self.step, function.short_name, senders, receivers, description, note)
        self._unwritten += self.ledger.since(mark)

    def event(self, site: str, note: str) -> None:
        """Write into the ledger that a site was lost or joined."""
        mark = self.ledger.mark()
        self.ledger.event(self.rounds, self.epoch, self.step, site, note)
        self._unwritten += self.ledger.since(mark)

    def unwritten(self) -> list[list[Any]]:
        """Ledger rows that no journal entry holds yet, handed over once."""
        rows, self._unwritten = self._unwritten, []
        return rows

    def record(self, progress: Progress, n_sites: int, *, shown: bool) -> RoundRecord:
        """A record of the progress told, with what travelled since the last one; with the basis if it is ``shown`` to anybody."""
        now = time.perf_counter()
        since, up, down = self._since
        if callable(progress.basis):
            self._basis = progress.basis
        elif progress.basis is not None:
            (self._basis,) = frozen((progress.basis.copy(),))  # the body may go on to change its own
        record = RoundRecord(
            round=self.rounds,
            sites=n_sites,
            objective=None if progress.objective is None else float(progress.objective),
            kkt=None if progress.kkt is None else float(progress.kkt),
            bytes_up=self.ledger.bytes_up - up,
            bytes_down=self.ledger.bytes_down - down,
            seconds=now - since,
            details={name: float(value) for name, value in progress.details.items()},
            basis=self.basis if shown and progress.basis is not None else None,
        )
        self._begin_record()
        self.history.append(record.without_basis())
        return record

    def snapshot(self) -> tuple[dict[str, Any], Arrays]:
        """Everything, as a journal can hold it."""
        self._unwritten = []  # they are in the whole ledger
        facts = {
            "rounds": [self.rounds, self.setup_rounds],
            "ledger": self.ledger.since(0),
            "history": [record.to_dict() for record in self.history],
        }
        return facts, () if self.basis is None else (self.basis,)

    def restore(self, facts: dict[str, Any], basis: Arrays) -> None:
        """Go back to a snapshot, keeping the rows entered since the run resumed."""
        self.rounds, self.setup_rounds = facts["rounds"]
        self.ledger = Ledger()
        self.ledger.extend(facts["ledger"])
        self.ledger.extend(self._unwritten)
        self.history = [RoundRecord.from_dict(record) for record in facts["history"]]
        (self.basis,) = basis or (None,)
        self._begin_record()

    def _begin_record(self) -> None:
        self._since = time.perf_counter(), self.ledger.bytes_up, self.ledger.bytes_down
