"""One step after the other: numbered, sent to its sites, checked, written down - or taken from the journal of an earlier try.

An *epoch* is a stretch of the run with one roster of sites.  When a site is lost, :class:`RosterChanged` ends the epoch; steps
are numbered anew in the next one, and sites forget what they kept.  A lost site that is heard of again joins between two
rounds.

With a journal every site of an epoch's roster is first asked for the digest of its rows (``fingerprint.py``).  The digest is
written down when the site comes into the roster; a session that resumes asks again, and refuses to go on over other rows.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import JournalError, PolicyError, SiteError, TooFewSitesError
from . import wire
from .collectives import Call
from .doubts import Doubts
from .engine import Connection
from .fingerprint import ASIDE, DIGEST, rows_digest
from .journal import Entry, Journal
from .ledger import COORDINATOR, describe
from .local import Arrays, LocalFunction, as_arrays, frozen, frozen_copies
from .plan import Plan
from .records import check_records, check_result
from .requests import Perform, RosterChanged
from .secure_sum import Secured
from .sessions import Sessions
from .site import Request

ROUND_KINDS = frozenset({"sum", "gather", "max", "at", "chain", "exchange"})
"""Collectives that cost a round."""

CUT_AFTER = 1 << 24
"""The journal is cut at a ``Progress(state=...)`` once it has grown by this many bytes."""


MAX_RETURNS = 3
"""A site that was dropped may come back this many times in a run; one that is always too slow must not restart it forever."""


class Steps(Sessions):
    """Carries out steps over a connection, with an account and perhaps a journal."""

    def __init__(
        self,
        connection: Connection,
        *,
        journal: Journal | None,
        own: str | None,
        coordinated: bool,
        min_sites: int,
        plans: Sequence[Plan] = (),
        secure: Secured | None = None,
    ) -> None:
        run = journal.run if journal else os.urandom(8).hex()
        told = [_with_digest(plan) if journal else plan for plan in plans]
        self.chosen, absent = connection.announce(run, *told) if told else (0, {})
        resumes = journal is not None and journal.peek() is not None
        if absent and len(connection.sites()) < max(1, min_sites) and not resumes:
            raise _cannot_begin(absent, min_sites)
        super().__init__(connection, run, own, secure)
        if len(self.roster) < min_sites and not resumes:
            raise TooFewSitesError(
                f"{len(self.roster)} site(s) answer ({', '.join(self.roster)}), min_sites is {min_sites}; "
                "bring up the others and fit again, or lower the engine's min_sites"
            )
        if not resumes:
            for name, reason in sorted(absent.items()):
                self.account.event(name, f"refused: {reason}")
        self._journal = journal
        self._coordinated = coordinated
        self._min_sites = min_sites
        self._start: Arrays = ()  # the basis this epoch began with, if any
        self._setup_entries: list[Entry] = []
        self._can_cut = True
        self._over = False  # whether the epoch being replayed ended in a change of roster
        self._missing: dict[str, str] = {}  # sites found lost during the replay, and why
        self._known = connection.invited()  # all sites that are to take part
        self._digests: dict[str, str] = {}  # of the rows of sites in the roster, as the journal has them
        self._checked: set[str] = set()  # sites that were asked for it in this session
        self._losses: Counter[str] = Counter()
        if journal is not None:
            self._open_journal(journal)

    def _open_journal(self, journal: Journal) -> None:
        """Begin a new journal with the roster; to resume, all connected sites must have been meant to take part."""
        first = journal.peek()
        if first is None:
            journal.append(self._roster_entry())
            return
        check_records(journal.path, journal.rest())
        self._known = tuple(first.facts["known"])
        strangers = sorted(set(self.roster) - set(self._known))
        if strangers:
            raise JournalError(
                f"{journal.path}: site {strangers[0]!r} was not part of this run, whose sites are {', '.join(self._known)}; "
                "leave it out, or start afresh with another journal"
            )

    # -- epochs ---------------------------------------------------------------------------------

    def begin_epoch(self) -> dict[str, np.ndarray[Any, Any]] | None:
        """Start counting steps anew; give the state kept in a cut journal, if the run resumes from there."""
        journal, account = self._journal, self.account
        first = journal.peek() if journal else None
        if journal and first and first.facts["kind"] == "roster":
            journal.next()
            self.account.epoch, self.roster = first.facts["epoch"], tuple(first.facts["roster"])
            self._losses = Counter(first.facts["losses"])
            self.doubted |= first.facts["doubted"]
            account.rounds, account.setup_rounds = first.facts["rounds"]
            account.ledger.extend(first.facts["ledger"])
            self._digests = dict(first.facts["digests"])
            self._replay_digests(journal)
            (account.basis,) = first.arrays or (account.basis,)
        self._start = () if account.basis is None else (account.basis,)
        self.account.step, self._setup_entries, self._can_cut = 0, [], True
        self.doubts = Doubts(self.roster, self.n_features)
        self._after = dict(self.connection.positions(self._run, self.account.epoch))
        if self.masks:
            self.forget_session()
        self._over = journal is not None and journal.upcoming("roster") is not None
        if journal and not self._over:  # else the answer is not made of these sites' rows
            self._check_rows(journal)
        saved = journal.upcoming("state", "roster") if journal else None
        if saved is None or saved.facts["kind"] == "roster":
            return None
        return dict(zip(saved.facts["names"], saved.arrays, strict=False))

    def change(self, change: RosterChanged) -> None:
        """Go on without the lost sites and with those that came back, under a new epoch."""
        lost = ", ".join(f"{name} ({why})" if why else name for name, why in sorted(change.lost.items()))
        if not self._coordinated:
            raise SiteError(f"lost {lost}: a graph program needs every node; bring it back, or fit on the others")
        self._losses.update({name: 1 + MAX_RETURNS * (name in change.for_good) for name in change.lost})
        self.go_on_or_stop(change.lost, lost)
        for name in {*change.lost, *change.joined}:  # whoever comes back has begun anew, perhaps with other rows
            self._digests.pop(name, None)
            self._checked.discard(name)
        self.roster = tuple(sorted((set(self.roster) - set(change.lost)) | set(change.joined)))
        replaying = self._journal is not None and self._journal.peek() is not None
        if not replaying:  # else these rows are in the journal
            for name, why in sorted(change.lost.items()):
                self.account.event(name, f"lost: {why}" if why else "lost")
            for name in change.joined:
                self.account.event(name, "joined")
        if len(self.roster) < max(1, self._min_sites):
            error = TooFewSitesError(
                f"lost {lost}: {len(self.roster)} site(s) left, min_sites is {self._min_sites}; "
                "bring the sites back and fit again, or lower the engine's min_sites"
            )
            error.basis = self.account.basis
            raise error
        self.account.epoch += 1
        if self._journal and not replaying:
            self._journal.append(self._roster_entry(change))

    def check_returned(self) -> None:
        """Between two rounds: take back sites that are heard of again; where sums are secured that would show their part."""
        if self.masks:
            return
        upcoming = self._journal.peek() if self._journal else None
        if upcoming is not None:
            here = upcoming.facts["kind"] == "roster" and upcoming.facts["reported"] == len(self.account.history)
            if here and upcoming.facts["joined"]:
                raise RosterChanged({}, upcoming.facts["joined"])
            return
        present = self.connection.sites()
        if present == self.roster:  # as nearly always; sets of very many names take memory and time
            return
        back = set(present) & set(self._known) - set(self.roster) - set(self.doubted)
        joined = sorted(name for name in back if self._losses[name] <= MAX_RETURNS)
        if joined and self._coordinated:
            raise RosterChanged({}, joined)

    def _roster_entry(self, change: RosterChanged | None = None, start: Arrays = ()) -> Entry:
        facts = {
            "kind": "roster",
            "epoch": self.account.epoch,
            "roster": list(self.roster),
            "known": list(self._known),
            "lost": change.lost if change else {},
            "joined": list(change.joined) if change else [],
            "losses": dict(self._losses),
            "doubted": dict(self.doubted),
            "digests": dict(self._digests),
            "reported": len(self.account.history),
            "rounds": [self.account.rounds, self.account.setup_rounds],
            "ledger": self.account.unwritten(),
        }
        return Entry(facts, start)

    def finish(self) -> None:
        """The program has ended: a later replay ends here too, whoever has come back since."""
        if self._journal is not None and self._journal.peek() is None:
            self._journal.append(Entry({"kind": "end"}))

    # -- one step -------------------------------------------------------------------------------

    def do(self, call: Call, targets: tuple[str, ...], perform: Perform | None = None, sender: str = COORDINATOR) -> Arrays:
        """Number a step, count its round, and carry it out - or take its result from the journal.

        ``perform`` sends the request and makes the result of the replies; by default all replies one after the other.
        """
        function = call.function
        args = as_arrays(call.args)
        if function.keeps:  # what sites keep must not change with the body's own arrays
            args = frozen_copies(args)
        args = frozen(args)
        function.check_args(args, self.n_features)
        perform = perform or self.all_from(function, targets)
        replayed = self._replayed()
        self.account.step += 1
        if call.kind in ROUND_KINDS and not (call.kind == "at" and targets == (self._own,)):
            self.account.count_round(function)
        digest = wire.digest("|".join([call.kind, function.name, *targets]), args) if self._journal is not None else ""
        request = Request(self._run, self.account.epoch, self.account.step, call.kind, function.name, args, digest)
        if replayed is not None:
            self._catch_up(request, replayed, function, targets, perform)
            return replayed.arrays
        self.begin_session()
        if self._coordinated:
            self.enter(function, (sender,), targets, describe(args), kind=call.kind)
        arrays = frozen(as_arrays(perform(request)))
        self.note_told(function, args)
        self._write(request, function, arrays)
        return arrays

    # -- the rows -------------------------------------------------------------------------------

    def _replay_digests(self, journal: Journal) -> None:
        """Take the digests that were written after a roster."""
        while (entry := journal.peek()) is not None and entry.facts["kind"] == "rows":
            journal.next()
            self._digests |= entry.facts["digests"]
            self.account.ledger.extend(entry.facts["ledger"])

    def _check_rows(self, journal: Journal) -> None:
        """Refuse sites whose rows are not those the journal was written with; write down the digests of new ones."""
        known = tuple(name for name in self.roster if name in self._digests and name not in self._checked)
        told = self._ask_digests(journal, known, resumed=True)
        other = sorted(name for name in told if told[name] != self._digests[name])
        if other:
            sites = f"site{'s' if other[1:] else ''} {', '.join(map(repr, other))}"
            raise JournalError(
                f"{journal.path}: the rows of {sites} changed since the journal was written (values, their order, or dtype); "
                "give the rows of then to resume, or delete the journal, or choose another, to start afresh"
            )
        began = journal.peek() is not None  # then all who took part are known
        new = () if began else tuple(name for name in self.roster if name not in self._digests)
        learnt = self._ask_digests(journal, new, resumed=False)
        if learnt:
            self._digests |= learnt
            journal.append(Entry({"kind": "rows", "digests": learnt, "ledger": self.account.unwritten()}))
        self._checked |= told.keys() | learnt.keys()

    def _ask_digests(self, journal: Journal, names: tuple[str, ...], *, resumed: bool) -> dict[str, str]:
        """Site -> digest of its rows; sites that do not answer are found missing."""
        told: dict[str, str] = {}
        if not names:
            return told
        args = frozen((np.frombuffer(journal.key, dtype=np.uint8),))
        request = Request(self._run, self.account.epoch, ASIDE, DIGEST, rows_digest.name, args)
        self._resending = resumed
        try:
            self.enter(rows_digest, (COORDINATOR,), names, describe(args))
            for response in self.replies(request, rows_digest, names):
                told[response.site] = response.arrays[0].tobytes().hex()
        except RosterChanged as change:  # when the replay, if any, has come to its end
            self._missing |= change.lost
        finally:
            self._resending = False
        return told

    # -- the journal ----------------------------------------------------------------------------

    def _write(self, request: Request, function: LocalFunction, arrays: Arrays) -> None:
        if self._journal is None:
            self.account.unwritten()
            return
        facts: dict[str, Any] = {"kind": request.kind, "function": function.name, "digest": request.digest}
        facts["ledger"] = self.account.unwritten()
        if function.setup:  # what later replies must agree with
            facts["told"] = self.doubts.numbers()
        entry = Entry(facts, arrays)
        self._journal.append(entry)
        self._note_kept(entry, function)

    def _note_kept(self, entry: Entry, function: LocalFunction) -> None:
        """Set-up steps are sent again after a cut; what other steps made the sites keep would be forgotten."""
        if function.setup:
            self._setup_entries.append(entry)
        elif function.keeps:
            self._can_cut = False

    def _replayed(self) -> Entry | None:
        """The journal's entry for the step that comes now, if the run has been here before."""
        if self._journal is None:
            return None
        entry = self._journal.peek()
        if entry is not None and entry.facts["kind"] == "roster":
            raise RosterChanged(entry.facts["lost"], entry.facts["joined"])
        if self.at_saved_state():
            return self._replayed()
        entry = self._journal.next()
        if entry is None and self._missing:
            lost, self._missing = self._missing, {}
            raise RosterChanged(lost)
        return entry

    def _catch_up(
        self, request: Request, entry: Entry, function: LocalFunction, targets: tuple[str, ...], perform: Perform
    ) -> None:
        """Replay one step: check that it is the same step, and send it again to sites that must remember it and do not.

        Replies to re-sent set-up steps must have the journal's bits, or the data changed; other steps are sent again only for
        what they make a site keep, and their replies are not looked at.
        """
        assert self._journal is not None
        written = tuple(entry.facts.get(key, "nothing") for key in ("kind", "function", "digest"))
        if written != (request.kind, function.name, request.digest):
            raise JournalError(
                f"{self._journal.path}: step {request.step} was {written[0]} of {written[1]}, now it is "
                f"{request.kind} of {function.name}, or the arguments or sites differ; the program or its inputs changed since, "
                "so start afresh with another journal"
            )
        sizes = function.check_args(request.args, self.n_features)
        check_result(self._journal.path, request.step, entry, function, len(targets), sizes)
        self.account.ledger.extend(entry.facts["ledger"])
        self._note_kept(entry, function)
        self.doubts.recall(entry.facts.get("told", {}))
        if self.together and request.kind == "sum":  # sums are in the journal, single replies are not: note what they told again
            self.check_sum(function, request.args, entry.arrays)
        behind = tuple(name for name in targets if self._after.get(name, 0) < request.step and name not in self._missing)
        if self._over or not behind or not (function.setup or function.keeps):
            return
        if self.masks and behind != targets:  # the others' masks would not cancel; the run stops where the replay ends
            return
        self._resending = True
        try:
            self.begin_session()
            self.enter(function, (COORDINATOR,), behind, describe(request.args), kind=request.kind)
            if behind != targets:
                self.all_from(function, behind)(request)
            elif not _same(perform(request), entry.arrays) and function.setup:
                raise JournalError(
                    f"{self._journal.path}: the sites' data changed since the journal was written, or an earlier release of "
                    "eigenpact wrote it, whose sums end in other digits; start afresh"
                )
            self.note_told(function, request.args)
        except RosterChanged as change:  # first replay all that was reached with these sites
            self._missing |= change.lost
        finally:
            self._resending = False

    def save(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Cut the journal here, if it has grown enough and no site keeps anything that the cut would forget."""
        journal = self._journal
        if journal is None or journal.peek() is not None or not self._can_cut or journal.grown() < CUT_AFTER:
            return
        facts, basis = self.account.snapshot()
        facts |= {"kind": "state", "names": list(state), "step": self.account.step}
        saved = Entry(facts, (*state.values(), *basis))
        journal.cut([self._roster_entry(start=self._start), *self._setup_entries, saved])

    def at_saved_state(self) -> bool:
        """Whether the replay has come to the point where the journal was cut; if so, go on from there."""
        entry = self._journal.peek() if self._journal else None
        if self._journal is None or entry is None or entry.facts["kind"] != "state":
            return False
        self._journal.next()
        self.account.step = entry.facts["step"]
        self.account.restore(entry.facts, entry.arrays[len(entry.facts["names"]) :])
        self.check_returned()  # as after the Progress that was cut at
        return True


def _with_digest(plan: Plan) -> Plan:
    """What a run with a journal is about to do."""
    return replace(plan, functions=(*plan.functions, rows_digest.name), kinds=(*plan.kinds, DIGEST))


def _cannot_begin(absent: Mapping[str, str], min_sites: int) -> PolicyError | TooFewSitesError:
    """Sites that take no part, and why: by a rule of their own, or because they are not there."""
    told = "; ".join(f"{name}: {reason}" for name, reason in sorted(absent.items()))
    if any(reason.startswith("rule ") for reason in absent.values()):
        return PolicyError(f"refused before round 1 by {told}; ask for what these sites allow, or lower min_sites")
    return TooFewSitesError(f"no run without {told}; min_sites is {min_sites}: see to these sites, or lower min_sites")


def _same(a: Arrays, b: Arrays) -> bool:
    return len(a) == len(b) and all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))
