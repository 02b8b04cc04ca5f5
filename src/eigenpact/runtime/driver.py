"""The driver: advances a program, carries out its collectives, and is the one place where things are counted and written down.

A program is a function ``program(start, state)`` that returns a coroutine.  The driver calls it once, and again from the
beginning - with ``start`` the last basis reported - whenever the set of sites changes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InputError, JournalError, ProgramError, SiteFailure, TooFewSites, WireError
from . import wire
from .collectives import At, Call, Chain, Collective, Exchange, Gather, Local, Max, Progress, Sum
from .consensus import Graph, agreed_maximum, check_nodes, diameter, pass_on_maximum
from .engine import Connection
from .journal import Entry, Journal
from .ledger import COORDINATOR, Description, Ledger, RoundRecord, describe
from .local import Arrays, LocalFunction, as_arrays
from .site import Request, Response
from .summation import PlainSum, Summation

Program = Callable[[Any, Any], Coroutine[Collective, Any, Any]]

ROUND_KINDS = frozenset({"sum", "gather", "max", "at", "chain", "exchange"})

SILENT_KINDS = frozenset({"local", "consider"})
"""Nothing comes back from these."""

CUT_AFTER = 1 << 24
"""The journal is cut at a ``Progress(state=...)`` once it has grown by this many bytes."""


class _RosterChanged(Exception):
    """Sites were lost; the program starts again with the others."""

    def __init__(self, lost: Sequence[str]) -> None:
        super().__init__(f"lost {', '.join(lost)}")
        self.lost = tuple(lost)


class Driver:
    """Runs one program over one connection.

    Parameters
    ----------
    connection : Connection
    summation : Summation, optional
        How replies become sums; plain float64 by default.
    journal : Journal, optional
    callback : callable, optional
        Called with a :class:`RoundRecord` after every reported round.
    own : str, optional
        The coordinator's own site: ``At`` there sends nothing and counts no round.
    graph : mapping, optional
        Node -> neighbours.  With it the program is a graph program: Exchange, Local and Max only, and no coordinator.
    min_sites : int
        The run goes on as long as this many sites are left.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        summation: Summation | None = None,
        journal: Journal | None = None,
        callback: Callable[[RoundRecord], Any] | None = None,
        own: str | None = None,
        graph: Graph | None = None,
        min_sites: int = 1,
    ) -> None:
        if graph is not None and journal is not None:
            raise ProgramError("graph programs have no coordinator to keep a journal; pass journal=None")
        self.connection = connection
        self.roster = tuple(sorted(connection.sites()))
        self.ledger = Ledger()
        self.history: list[RoundRecord] = []
        self.rounds = 0
        self.setup_rounds = 0
        self._summation = summation or PlainSum()
        self._journal = journal
        self._callback = callback
        self._own = own
        self._graph = graph
        self._min_sites = min_sites
        self._run = journal.run if journal else os.urandom(8).hex()
        self._epoch = 0
        self._step = 0
        self._since = time.perf_counter(), 0, 0
        self._basis: np.ndarray[Any, Any] | None = None
        self._after: dict[str, int] = {}
        self._setup_entries: list[Entry] = []
        self._can_cut = True
        self._resending = False
        self._start: Arrays = ()  # the basis this epoch began with, if any
        self._over = False  # whether the epoch being replayed ended in a change of roster
        self._missing: set[str] = set()  # sites found lost during the replay
        self._unwritten: list[list[Any]] = []  # ledger rows that no journal entry holds yet
        self._d = _agreed_features(connection, self.roster)
        self._perform: dict[type[Collective], Callable[[Any], Any]] = {
            Sum: self._sum,
            Gather: self._gather,
            Max: self._max if graph is None else self._max_consensus,
            At: self._at,
            Chain: self._chain,
            Exchange: self._exchange,
            Local: self._local,
            Progress: self._progress,
        }
        if graph is not None:
            check_nodes(graph, self.roster)
            self._diameter = diameter(graph)
            self._perform |= dict.fromkeys((Sum, Gather, At, Chain), _refuse_on_graph)

    def run(self, program: Program) -> Any:
        """Advance the program to its end and return what it returns."""
        while True:
            state = self._begin_epoch()
            body = program(self._basis, state)
            try:
                return self._advance(body)
            except _RosterChanged as change:
                self._drop(change.lost)
            finally:
                body.close()

    def _advance(self, body: Coroutine[Collective, Any, Any]) -> Any:
        value = None
        while True:
            try:
                collective = body.send(value)
            except StopIteration as stop:
                return stop.value
            if type(collective) not in self._perform:
                allowed = ", ".join(kind.__name__ for kind in self._perform)
                raise ProgramError(f"the program awaits {collective!r}; the driver carries out {allowed} only")
            value = self._perform[type(collective)](collective)

    # -- collectives ----------------------------------------------------------------------------

    def _sum(self, call: Sum) -> Any:
        """Fold the replies one by one; no more of them are held than the engine holds."""

        def fold(request: Request) -> Arrays:
            replies = self._replies(request, call.function, self.roster)
            return self._summation.combine(call.function, request.step, _of_one_shape(call.function, replies))

        return _unwrap(self._do(call, self.roster, fold))

    def _gather(self, call: Gather) -> dict[str, Any]:
        width = len(call.function.sends)
        flat = self._do(call, self.roster, self._all_from(call.function, self.roster))
        return {name: _unwrap(flat[i * width : (i + 1) * width]) for i, name in enumerate(self.roster)}

    def _max(self, call: Max) -> Any:
        def fold(request: Request) -> Arrays:
            best: Arrays = ()
            for arrays in _of_one_shape(call.function, self._replies(request, call.function, self.roster)):
                best = tuple(np.maximum(a, b) for a, b in zip(best, arrays, strict=True)) if best else arrays
            return best

        return _unwrap(self._do(call, self.roster, fold))

    def _at(self, call: At) -> Any:
        if call.site not in self.roster:
            raise InputError(f"no site {call.site!r} in this run; the sites are {', '.join(self.roster)}")
        return _unwrap(self._do(call, (call.site,), self._all_from(call.function, (call.site,))))

    def _chain(self, call: Chain) -> Any:
        """One step and one round for every hop; each hop is journaled."""
        state, sender = as_arrays(call.args), COORDINATOR
        for name in self.roster:
            receiver = COORDINATOR if name == self.roster[-1] else ""  # else entered as the next hop's argument
            hop = self._all_from(call.function, (name,), receiver)
            state = self._do(Chain(call.function, *state), (name,), hop, sender)
            sender = name
        return _unwrap(state)

    def _local(self, call: Local) -> None:
        self._do(call, self.roster, self._all_from(call.function, self.roster))

    def _exchange(self, call: Exchange) -> None:
        if self._graph is None:
            raise ProgramError("Exchange needs a graph; coordinator programs use Sum, Gather, Max, At or Chain")

        def swap(request: Request) -> Arrays:
            sizes = call.function.check_args(request.args, self._d)
            for response in self.connection.exchange(request, self._positions(self.roster)):
                if response.lost:
                    raise _RosterChanged([response.site])
                self._accept(response, request, call.function)
                for neighbour, arrays in sorted(response.messages.items()):
                    call.function.check_reply(arrays, sizes)
                    self._enter(call.function, (response.site,), (neighbour,), describe(arrays))
            return ()

        self._do(call, self.roster, swap)

    def _max_consensus(self, call: Max) -> Any:
        """Maximum without a coordinator: every node passes on the largest value it has seen, as often as the graph is wide."""
        if len(call.function.sends) != 1:
            raise ProgramError(f"Max on a graph agrees on one array; {call.function.short_name} sends {len(call.function.sends)}")
        consider = Local(call.function, *call.args)
        consider.kind = "consider"
        self._do(consider, self.roster, self._all_from(call.function, self.roster))
        for _ in range(self._diameter):
            self._exchange(Exchange(pass_on_maximum))
        read = Local(agreed_maximum)
        read.kind = "read"
        values = self._do(read, self.roster, self._all_from(agreed_maximum, self.roster, receiver=""))
        return values[0]

    def _progress(self, progress: Progress) -> None:
        upcoming = self._journal.peek() if self._journal else None
        if self._journal and upcoming and upcoming.facts["kind"] == "state":  # told before the journal was cut here
            self._journal.next()
            self._restore(upcoming)
            return
        now = time.perf_counter()
        since, up, down = self._since
        if progress.basis is not None:
            (self._basis,) = _frozen((progress.basis.copy(),))  # the body may go on to change its own
        record = RoundRecord(
            round=self.rounds,
            sites=len(self.roster),
            objective=None if progress.objective is None else float(progress.objective),
            kkt=None if progress.kkt is None else float(progress.kkt),
            bytes_up=self.ledger.bytes_up - up,
            bytes_down=self.ledger.bytes_down - down,
            seconds=now - since,
            basis=None if progress.basis is None else self._basis,
        )
        self._since = now, self.ledger.bytes_up, self.ledger.bytes_down
        self.history.append(record.without_basis())
        if progress.state is not None:
            self._save(progress.state)
        if self._callback is not None:
            self._callback(record)

    # -- one step -------------------------------------------------------------------------------

    def _do(
        self,
        call: Call,
        targets: tuple[str, ...],
        perform: Callable[[Request], Arrays],
        sender: str = COORDINATOR,
    ) -> Arrays:
        """Number a step, count its round, and carry it out - or take its result from the journal."""
        function = call.function
        args = as_arrays(call.args)
        if function.keeps:  # what sites keep must not change with the body's own arrays
            args = tuple(a.copy() for a in args)
        args = _frozen(args)
        function.check_args(args, self._d)
        replayed = self._replayed()
        self._step += 1
        if call.kind in ROUND_KINDS and not self._is_own(targets, call.kind):
            if function.setup:
                self.setup_rounds += 1
            else:
                self.rounds += 1
        digest = wire.digest("|".join([call.kind, function.name, *targets]), args) if self._journal is not None else ""
        request = Request(self._run, self._epoch, self._step, call.kind, function.name, args, digest)
        if replayed is not None:
            self._catch_up(request, replayed, function, targets, perform)
            return replayed.arrays
        if self._graph is None:
            self._enter(function, (sender,), targets, describe(args), kind=call.kind)
        arrays = _frozen(as_arrays(perform(request)))
        self._write(request, function, arrays)
        return arrays

    def _all_from(
        self, function: LocalFunction, targets: tuple[str, ...], receiver: str = COORDINATOR
    ) -> Callable[[Request], Arrays]:
        """Carry out a request at these sites and collect the replies in order."""

        def collect(request: Request) -> Arrays:
            replies = self._replies(request, function, targets, receiver)
            return tuple(array for response in replies for array in response.arrays)

        return collect

    def _replies(
        self, request: Request, function: LocalFunction, targets: Sequence[str], receiver: str = COORDINATOR
    ) -> Iterator[Response]:
        """Checked responses in sorted site order; every one that arrived is in the ledger even if the round fails."""
        sizes = function.check_args(request.args, self._d)
        arrived: dict[Description, list[str]] = {}
        lost = []
        try:
            for response in self.connection.call(request, self._positions(targets)):
                if response.lost:
                    lost.append(response.site)
                    continue
                self._accept(response, request, function)
                if request.kind not in SILENT_KINDS:
                    function.check_reply(response.arrays, sizes)
                    arrived.setdefault(describe(response.arrays), []).append(response.site)
                yield response
        finally:
            for description, senders in arrived.items():
                if receiver:
                    self._enter(function, tuple(senders), (receiver,), description, kind=request.kind)
        if lost:
            raise _RosterChanged(lost)

    def _accept(self, response: Response, request: Request, function: LocalFunction) -> None:
        if response.error:
            raise SiteFailure(f"{function.short_name} at site {response.site!r}: {response.error}")
        self._after[response.site] = request.step

    def _positions(self, targets: Sequence[str]) -> dict[str, int]:
        return {name: self._after.get(name, 0) for name in targets}

    def _is_own(self, targets: Sequence[str], kind: str) -> bool:
        return kind == "at" and tuple(targets) == (self._own,)

    def _enter(
        self,
        function: LocalFunction,
        senders: tuple[str, ...],
        receivers: tuple[str, ...],
        description: Description,
        kind: str = "",
    ) -> None:
        own = kind == "at" and self._own in (*senders, *receivers)
        note = "own" if own else "resent" if self._resending else "setup" if function.setup else ""
        round_ = self.setup_rounds if function.setup else self.rounds
        mark = self.ledger.mark()
        self.ledger.sent(round_, self._epoch, self._step, function.short_name, senders, receivers, description, note)
        if self._journal is not None:
            self._unwritten += self.ledger.since(mark)

    # -- roster and journal ---------------------------------------------------------------------

    def _begin_epoch(self) -> dict[str, np.ndarray[Any, Any]] | None:
        """Start counting steps anew; give the state kept in a cut journal, if the run resumes from there."""
        first = self._journal.peek() if self._journal else None
        if self._journal and first and first.facts["kind"] == "roster":
            self._journal.next()
            self._epoch, self.roster = first.facts["epoch"], tuple(first.facts["roster"])
            self.rounds, self.setup_rounds = first.facts["rounds"]
            self.ledger.extend(first.facts["ledger"])
            (self._basis,) = first.arrays or (self._basis,)
        self._start = () if self._basis is None else (self._basis,)
        self._step, self._setup_entries, self._can_cut = 0, [], True
        self._after = dict(self.connection.positions(self._run, self._epoch))
        self._over = self._journal is not None and self._journal.upcoming("roster") is not None
        saved = self._journal.upcoming("state", "roster") if self._journal else None
        if saved is None or saved.facts["kind"] == "roster":
            return None
        return dict(zip(saved.facts["names"], saved.arrays, strict=False))

    def _drop(self, lost: Sequence[str]) -> None:
        """Go on without these sites, under a new epoch."""
        if self._graph is not None:
            raise SiteFailure(f"lost {', '.join(lost)}: a graph program needs every node; bring it back, or fit on the others")
        self.roster = tuple(name for name in self.roster if name not in lost)
        if len(self.roster) < self._min_sites:
            raise TooFewSites(
                f"lost {', '.join(lost)}: {len(self.roster)} site(s) left, min_sites is {self._min_sites}; "
                "bring the sites back and fit again, or lower the engine's min_sites"
            )
        self._epoch += 1
        if self._journal and self._journal.peek() is None:
            self._journal.append(self._roster_entry(lost))

    def _roster_entry(self, lost: Sequence[str] = (), start: Arrays = ()) -> Entry:
        facts = {
            "kind": "roster",
            "epoch": self._epoch,
            "roster": list(self.roster),
            "lost": list(lost),
            "rounds": [self.rounds, self.setup_rounds],
            "ledger": self._unwritten,
        }
        self._unwritten = []
        return Entry(facts, start)

    def _replayed(self) -> Entry | None:
        """The journal's entry for the step that comes now, if the run has been here before."""
        if self._journal is None:
            return None
        entry = self._journal.peek()
        if entry is not None and entry.facts["kind"] == "roster":
            raise _RosterChanged(entry.facts["lost"])
        entry = self._journal.next()
        if entry is None and self._missing:
            lost, self._missing = sorted(self._missing), set()
            raise _RosterChanged(lost)
        if entry is not None and entry.facts["kind"] == "state":
            self._restore(entry)
            return self._replayed()
        return entry

    def _catch_up(
        self,
        request: Request,
        entry: Entry,
        function: LocalFunction,
        targets: tuple[str, ...],
        perform: Callable[[Request], Arrays],
    ) -> None:
        """Replay one step: check that it is the same step, and send it again to sites that must remember it and do not."""
        assert self._journal is not None
        if (entry.facts["kind"], entry.facts["function"], entry.facts["digest"]) != (request.kind, function.name, request.digest):
            raise JournalError(
                f"{self._journal.path}: step {request.step} was {entry.facts['kind']} of {entry.facts['function']}, now it is "
                f"{request.kind} of {function.name}, or the arguments or sites differ; the program or its inputs changed since, "
                "so start afresh with another journal"
            )
        self.ledger.extend(entry.facts["ledger"])
        self._note_kept(entry, function)
        behind = tuple(name for name in targets if self._after.get(name, 0) < request.step and name not in self._missing)
        if self._over or not behind or not (function.setup or function.keeps):
            return
        self._resending = True
        try:
            self._enter(function, (COORDINATOR,), behind, describe(request.args), kind=request.kind)
            if behind != targets:
                self._all_from(function, behind)(request)
            elif not _same(perform(request), entry.arrays) and function.setup:
                raise JournalError(f"{self._journal.path}: the sites' data changed since the journal was written; start afresh")
        except _RosterChanged as change:  # first replay all that was reached with these sites
            self._missing |= set(change.lost)
        finally:
            self._resending = False

    def _write(self, request: Request, function: LocalFunction, arrays: Arrays) -> None:
        if self._journal is None:
            return
        facts = {
            "kind": request.kind,
            "function": function.name,
            "digest": request.digest,
            "ledger": self._unwritten,
        }
        self._unwritten = []
        entry = Entry(facts, arrays)
        self._journal.append(entry)
        self._note_kept(entry, function)

    def _note_kept(self, entry: Entry, function: LocalFunction) -> None:
        """Set-up steps are sent again after a cut; what other steps made the sites keep would be forgotten."""
        if function.setup:
            self._setup_entries.append(entry)
        elif function.keeps:
            self._can_cut = False

    def _save(self, state: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Cut the journal here, if it has grown enough and no site keeps anything that the cut would forget."""
        journal = self._journal
        if journal is None or journal.peek() is not None or not self._can_cut or journal.grown() < CUT_AFTER:
            return
        facts = {
            "kind": "state",
            "names": list(state),
            "step": self._step,
            "rounds": [self.rounds, self.setup_rounds],
            "ledger": self.ledger.since(0),
            "history": [record.to_dict() for record in self.history],
            "basis": self._basis is not None,
        }
        arrays = [*state.values(), *([] if self._basis is None else [self._basis])]
        self._unwritten = []  # they are in the whole ledger above
        journal.cut([self._roster_entry(start=self._start), *self._setup_entries, Entry(facts, tuple(arrays))])

    def _restore(self, entry: Entry) -> None:
        self._step = entry.facts["step"]
        self._basis = entry.arrays[-1] if entry.facts["basis"] else None
        self.rounds, self.setup_rounds = entry.facts["rounds"]
        self.ledger = Ledger()
        self.ledger.extend(entry.facts["ledger"])
        self.ledger.extend(self._unwritten)
        self._since = time.perf_counter(), self.ledger.bytes_up, self.ledger.bytes_down
        self.history = [RoundRecord(**record) for record in entry.facts["history"]]


def _agreed_features(connection: Connection, roster: Sequence[str]) -> int:
    found = connection.n_features()
    if not roster:
        raise InputError("no sites to run on; give at least one site with rows")
    if COORDINATOR in roster:
        raise InputError(f"a site may not be called {COORDINATOR!r}, the ledger's name for whoever runs the program; rename it")
    d = found[roster[0]]
    other = [name for name in roster if found[name] != d]
    if other:
        raise InputError(f"site {roster[0]!r} has {d} features but {other[0]!r} has {found[other[0]]}; align the columns first")
    return d


def _refuse_on_graph(call: Call) -> Any:
    raise ProgramError(f"{type(call).__name__} needs a coordinator; graph programs use Exchange, Local and Max only")


def _frozen(arrays: Arrays) -> Arrays:
    """Read-only views: sites in this process share the arguments and must not change them."""
    views = tuple(a.view() for a in arrays)
    for view in views:
        view.flags.writeable = False
    return views


def _of_one_shape(function: LocalFunction, responses: Iterable[Response]) -> Iterator[Arrays]:
    """The replies, all of the same shapes: numpy would stretch a smaller one instead of refusing it."""
    first: Response | None = None
    for response in responses:
        first = first or response
        for a, b in zip(first.arrays, response.arrays, strict=True):
            if a.shape != b.shape:
                raise WireError(
                    f"{function.short_name}: site {first.site!r} sends shape {a.shape} and {response.site!r} {b.shape}; "
                    "only equal shapes can be added or compared, use Gather for others"
                )
        yield response.arrays


def _unwrap(arrays: Arrays) -> Any:
    return arrays[0] if len(arrays) == 1 else arrays


def _same(a: Arrays, b: Arrays) -> bool:
    return len(a) == len(b) and all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))
