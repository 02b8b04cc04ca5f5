"""A coordinator that departs from the protocol once: it sends one site another block than the others, in the same sum.

The difference to the honest sum is C_a (Z' - Z), which needs no single reply.  Masks that do not depend on the arguments would
cancel as before; masks bound to them do not, and the sum is noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ..numerics.linalg import Array
from ..runtime import Connection, Graph, Job, Outcome, Request, Response, Sites
from ..runtime.local import short_name
from ..runtime.tapping import AroundEngine, PassingOn


def another(Z: Array) -> Array:
    """A block that is orthonormal if Z (d x k) is: its features moved on by one."""
    return np.ascontiguousarray(np.roll(Z, 1, axis=0))


class Enough(Exception):
    """The coordinator has the sum that it wanted, and ends the run: its own checks of replies would refuse this one."""


@dataclass(frozen=True, eq=False)
class Unequal(AroundEngine):
    """An engine whose coordinator sends ``site`` another block in the first call of ``function``, and then stops by ``Enough``.

    Attributes
    ----------
    heard : list of (block, sum)
        The block Z (d x k) that the others got, and the sum of all replies (d x k).
    """

    site: str
    function: str = "scatter_action"
    heard: list[tuple[Array, Array]] = field(default_factory=list)

    def execute(self, sites: Sites, job: Job, *, graph: Graph | None = None) -> Outcome:
        """Run the job on the engine, and cheat once."""
        cheat = lambda connection: job(_Cheating(connection, self))  # noqa: E731
        return self.engine.execute(sites, cheat, graph=graph)


class _Cheating(PassingOn):
    """A connection that changes one argument of one request to one site."""

    def __init__(self, connection: Connection, cheat: Unequal) -> None:
        super().__init__(connection)
        self._cheat = cheat

    def call(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        victim = self._cheat.site
        if short_name(request.function) != self._cheat.function or victim not in after:
            return self._connection.call(request, after)
        other = replace(request, args=(another(request.args[0]), *request.args[1:]))
        honest = {name: step for name, step in after.items() if name != victim}
        replies = [*self._connection.call(request, honest), *self._connection.call(other, {victim: after[victim]})]
        self._cheat.heard.append((request.args[0], np.sum([response.arrays[0] for response in replies], axis=0)))
        raise Enough
