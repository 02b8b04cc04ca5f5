"""The collectives an algorithm awaits.  Each one says who sees what; nothing else crosses a boundary.

An algorithm is an ``async`` function without asyncio: awaiting a collective hands it to the driver, which returns the result.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import ProgramError
from .local import LocalFunction


class Collective:
    """Something a program awaits; the driver carries it out."""

    kind: str

    def __await__(self) -> Generator[Collective, Any, Any]:
        return (yield self)


class Call(Collective):
    """A collective that runs one local function with the same arguments at its sites.

    ``nodes`` are those that run it, None for all of them.
    """

    nodes: tuple[str, ...] | None = None

    def __init__(self, function: LocalFunction, *args: Any) -> None:
        if not isinstance(function, LocalFunction):
            raise ProgramError(f"{type(self).__name__} runs functions marked @local, not {function!r}; mark it with its shapes")
        self.function = function
        self.args = args


class Sum(Call):
    """Sum over sites of f(site, *args).  The coordinator sees the sum (single replies too, unless sums are secured)."""

    kind = "sum"


class Gather(Call):
    """All replies, as a dict by site name.  The coordinator sees each reply: justify it in the algorithm's docstring."""

    kind = "gather"


class Max(Call):
    """Elementwise maximum over sites.  The coordinator sees single replies; on a graph it is a max-consensus of neighbours."""

    kind = "max"


class OnGraph(Call):
    """What, on a graph, some ``nodes`` alone may do while the others wait; by default all do."""

    def __init__(self, function: LocalFunction, *args: Any, nodes: Iterable[str] | None = None) -> None:
        super().__init__(function, *args)
        self.nodes = None if nodes is None else tuple(sorted(nodes))


class Exchange(OnGraph):
    """Each node sends one message to each graph neighbour; the next local function finds them in ``site.inbox``.

    The function returns one message for all neighbours, or a dict from neighbour to message.  No coordinator exists.
    """

    kind = "exchange"


class Local(OnGraph):
    """Run f at every site.  Nothing leaves; the arguments still travel to the sites."""

    kind = "local"


class Agreed(OnGraph):
    """A value that every node of a graph has already, the same everywhere: each node's own program reads it.

    Nothing travels.  Whoever advances the program reads it at all nodes, or at some ``nodes``; refused if two of them differ.
    """

    kind = "read"


class At(Call):
    """f at one site.  The coordinator sees the reply; at the coordinator's own site nothing travels and no round is counted."""

    kind = "at"

    def __init__(self, site: str, function: LocalFunction, *args: Any) -> None:
        super().__init__(function, *args)
        self.site = site


class Chain(Call):
    """A state passed from site to site in sorted order; each site sees its predecessor's state.  One round per hop.

    The coordinator relays it, so it sees every state, too.
    """

    kind = "chain"


@dataclass(kw_only=True, eq=False, repr=False)
class Progress(Collective):
    """Tell the driver where the algorithm stands.  Nothing leaves.

    Parameters
    ----------
    basis : (d, k) array, or a function that gives one
        The current orthonormal basis; a restart after a change of roster begins here.  A function is asked only by who wants it.
    objective, kkt : float
        Where known: captured share of the variance, scaled KKT residual of ``basis``.
    details : mapping of numbers
        What else the algorithm watches, by name; written into the round's record.
    state : mapping of arrays
        Everything the body needs to go on from here without earlier results, in C order; lets the journal be cut at this point.
        Not on the last round: a body that is given a state goes on.
    """

    basis: np.ndarray[Any, Any] | Callable[[], np.ndarray[Any, Any]] | None = None
    objective: float | None = None
    kkt: float | None = None
    details: Mapping[str, float] = field(default_factory=dict)
    state: Mapping[str, np.ndarray[Any, Any]] | None = None

    kind = "progress"
