"""The driver: advances a program and carries out the collectives it awaits.

A program is a function ``program(start, state)`` that returns a coroutine.  The driver calls it once, and again from the
beginning - with ``start`` the last basis reported - whenever the set of sites changes.  A program that is given a ``state`` (see
``Progress``) goes on from there: its next collective is the one after that Progress, or the same Progress once more.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..errors import InputError, ProgramError, WireError
from .collectives import Agreed, At, Call, Chain, Collective, Exchange, Gather, Local, Max, Progress, Sum
from .consensus import Consider, Graph, agreed_maximum, check_connected, check_nodes, diameter, pass_on_maximum
from .engine import Connection
from .journal import Journal
from .ledger import COORDINATOR, Ledger, RoundRecord
from .local import Arrays, LocalFunction, as_arrays
from .plan import Plan
from .requests import RosterChanged
from .secure_sum import Secured, combine
from .site import Request, Response
from .steps import Steps
from .summation import plain_sum

Program = Callable[[Any, Any], Coroutine[Collective, Any, Any]]


class Driver:
    """Runs one program over one connection.

    Parameters
    ----------
    connection : Connection
    journal : Journal, optional
    callback : callable, optional
        Called with a :class:`RoundRecord` after every reported round.
    own : str, optional
        The coordinator's own site: ``At`` there sends nothing and counts no round.
    graph : mapping, optional
        Node -> neighbours.  With it the program is a graph program: Exchange, Local and Max only, and no coordinator.
    min_sites : int
        The run goes on as long as this many sites are left.
    plan : Plan, optional
        What the program is about to do, for sites with a policy of their own.
    instead : sequence of Plan
        What could be done as well: the first of all whose solver every site allows is announced, and ``chosen`` says which.
    secure : Secured, optional
        With it, sums are secured: no single reply can be read here.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        journal: Journal | None = None,
        callback: Callable[[RoundRecord], Any] | None = None,
        own: str | None = None,
        graph: Graph | None = None,
        min_sites: int = 1,
        plan: Plan | None = None,
        instead: Sequence[Plan] = (),
        secure: Secured | None = None,
    ) -> None:
        if graph is not None and secure is not None:
            raise ProgramError("graph programs have no coordinator whose sums could be secured; pass secure=None")
        if graph is not None and journal is not None:
            raise ProgramError("graph programs have no coordinator to keep a journal; pass journal=None")
        plans = () if plan is None else (plan, *instead)
        options: dict[str, Any] = {"journal": journal, "own": own, "min_sites": min_sites, "plans": plans, "secure": secure}
        self._steps = Steps(connection, coordinated=graph is None, **options)
        self.chosen = self._steps.chosen
        self._callback = callback
        self._graph, self._plan = graph, plans[self.chosen] if plans else None
        self._perform: dict[type[Collective], Callable[[Any], Any]] = {
            Sum: self._sum,
            Gather: self._gather,
            Max: self._max if graph is None else self._max_consensus,
            At: self._at,
            Chain: self._chain,
            Exchange: self._exchange,
            Local: self._local,
            Agreed: self._agreed,
            Progress: self._progress,
        }
        if graph is not None:
            check_nodes(graph, self.roster)
            self._width: int | None = None  # of the graph, once a maximum is asked for
            check_connected(graph)
            self._perform |= dict.fromkeys((Sum, Gather, At, Chain), _refuse_on_graph)

    @property
    def roster(self) -> tuple[str, ...]:
        """The sites whose data the result describes, sorted."""
        return self._steps.roster

    @property
    def doubted(self) -> dict[str, str]:
        """Sites that were left out because their replies could not be true, and why."""
        return self._steps.doubted

    @property
    def ledger(self) -> Ledger:
        """Every message so far."""
        return self._steps.account.ledger

    @property
    def history(self) -> list[RoundRecord]:
        """One record per reported round."""
        return self._steps.account.history

    @property
    def rounds(self) -> int:
        """Rounds so far, without set-up."""
        return self._steps.account.rounds

    @property
    def setup_rounds(self) -> int:
        """Rounds of set-up so far."""
        return self._steps.account.setup_rounds

    def run(self, program: Program) -> Any:
        """Advance the program to its end and return what it returns."""
        while True:
            state = self._steps.begin_epoch()
            body = program(self._steps.account.basis, state)
            try:
                return self._advance(body)
            except RosterChanged as change:
                self._steps.change(change)
            finally:
                body.close()
                self._steps.doubts.close()

    def _advance(self, body: Coroutine[Collective, Any, Any]) -> Any:
        value = None
        while True:
            try:
                collective = body.send(value)
            except StopIteration as stop:
                self._steps.finish()
                return stop.value
            if type(collective) not in self._perform:
                allowed = ", ".join(kind.__name__ for kind in self._perform)
                raise ProgramError(f"the program awaits {collective!r}; the driver carries out {allowed} only")
            self._check_planned(collective)
            value = self._perform[type(collective)](collective)

    def _check_planned(self, collective: Collective) -> None:
        """Refuse what the run did not announce: sites with a policy would, and the others should not be asked, either."""
        if self._plan is None or not isinstance(collective, Call):
            return
        function = collective.function
        if function.name not in self._plan.functions or collective.kind not in self._plan.kinds:
            raise ProgramError(
                f"solver {self._plan.solver!r} asks for {collective.kind} of {function.name}, which it does not declare; "
                "name both in its @method"
            )

    # -- collectives with a coordinator ---------------------------------------------------------

    def _sum(self, call: Sum) -> Any:
        """Fold the replies one by one; no more of them are held than the engine holds."""

        def fold(request: Request) -> Arrays:
            forms = self._steps.forms(call.function)
            replies = self._steps.replies(request, call.function, self.roster, forms=forms)
            if forms is None:
                pairs = [i for i, label in enumerate(call.function.sends) if call.function.bounds[label] == "pair"]
                total = plain_sum(_of_one_shape(call.function, replies), pairs)
            else:
                total = combine(call.function, forms, _of_one_shape(call.function, replies))
            if self._steps.together:
                self._steps.check_sum(call.function, request.args, total)
            return total

        return _unwrap(self._steps.do(call, self.roster, fold))

    def _gather(self, call: Gather) -> dict[str, Any]:
        width = len(call.function.sends)
        flat = self._steps.do(call, self.roster)
        return {name: _unwrap(flat[i * width : (i + 1) * width]) for i, name in enumerate(self.roster)}

    def _max(self, call: Max) -> Any:
        def fold(request: Request) -> Arrays:
            best: Arrays = ()
            for arrays in _of_one_shape(call.function, self._steps.replies(request, call.function, self.roster)):
                best = tuple(np.maximum(a, b) for a, b in zip(best, arrays, strict=True)) if best else arrays
            return best

        return _unwrap(self._steps.do(call, self.roster, fold))

    def _at(self, call: At) -> Any:
        if call.site not in self.roster:
            raise InputError(f"no site {call.site!r} in this run; the sites are {', '.join(self.roster)}")
        return _unwrap(self._steps.do(call, (call.site,)))

    def _chain(self, call: Chain) -> Any:
        """One step and one round for every hop; each hop is journaled."""
        state, sender = as_arrays(call.args), COORDINATOR
        for name in self.roster:
            receiver = COORDINATOR if name == self.roster[-1] else ""  # else entered as the next hop's argument
            hop = self._steps.all_from(call.function, (name,), receiver)
            state = self._steps.do(Chain(call.function, *state), (name,), hop, sender)
            sender = name
        return _unwrap(state)

    def _local(self, call: Local) -> None:
        self._steps.do(call, self._nodes(call))
        if self._steps.together:
            self._steps.check_sum(call.function, as_arrays(call.args), ())

    # -- collectives on a graph -----------------------------------------------------------------

    def _exchange(self, call: Exchange) -> None:
        if self._graph is None:
            raise ProgramError("Exchange needs a graph; coordinator programs use Sum, Gather, Max, At or Chain")
        nodes = self._nodes(call)
        self._steps.do(call, nodes, lambda request: self._steps.exchange(request, call.function, nodes))

    def _nodes(self, call: Call) -> tuple[str, ...]:
        """Who runs the function: all, or the nodes that the program names."""
        if call.nodes is None:
            return self.roster
        strangers = sorted(set(call.nodes) - set(self._graph or ()))
        if strangers or not call.nodes:
            named = f"{strangers[:5]}, which are" if strangers else "none, which is"
            raise ProgramError(f"{call.function.short_name}: nodes= names {named} no nodes of a graph; leave it out for all")
        return call.nodes

    def _agreed(self, call: Agreed) -> Any:
        """What all nodes have, if it is the same: else they would go separate ways."""
        if self._graph is None or len(call.function.sends) != 1:
            raise ProgramError("Agreed is for one array that all nodes of a graph have; coordinator programs know their own")
        nodes = self._nodes(call)
        values = self._steps.do(call, nodes, self._steps.all_from(call.function, nodes, receiver=""))
        if any(value.tobytes() != values[0].tobytes() for value in values):
            raise ProgramError(f"{call.function.short_name}: nodes have different values, so that none is agreed; use Max")
        return values[0]

    def _max_consensus(self, call: Max) -> Any:
        """Maximum without a coordinator: every node passes on the largest value it has seen, as often as the graph is wide."""
        if len(call.function.sends) != 1:
            raise ProgramError(f"Max on a graph agrees on one array; {call.function.short_name} sends {len(call.function.sends)}")
        self._steps.do(Consider(call.function, *call.args), self.roster)
        assert self._graph is not None
        self._width = diameter(self._graph) if self._width is None else self._width
        for _ in range(self._width):
            self._exchange(Exchange(pass_on_maximum))
        own_copy = self._steps.all_from(agreed_maximum, self.roster, receiver="")
        return self._steps.do(Agreed(agreed_maximum), self.roster, own_copy)[0]

    # -- progress -------------------------------------------------------------------------------

    def _progress(self, progress: Progress) -> None:
        if self._steps.at_saved_state():  # told before the journal was cut here
            return
        for name, array in (progress.state or {}).items():
            if not array.flags.c_contiguous:
                raise ProgramError(
                    f"state {name!r} must be in C order, as it would come back after a resume: np.ascontiguousarray"
                )
        record = self._steps.account.record(progress, len(self.roster), shown=self._callback is not None)
        if progress.state is not None:
            self._steps.save(progress.state)
        if self._callback is not None:
            self._callback(record)
        self._steps.check_returned()


def _refuse_on_graph(call: Call) -> Any:
    raise ProgramError(f"{type(call).__name__} needs a coordinator; graph programs use Exchange, Local and Max only")


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
