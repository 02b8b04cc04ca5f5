"""An engine with an eavesdropper: it runs as the engine it wraps, and keeps every request and every site's own reply.

It plays the coordinator that is curious: it follows the protocol, and remembers what it could have forgotten.  What it hears is
what a site really sends to a plain sum, so an attack in a page or a test is made on a real run.

>>> import eigenpact as ep
>>> spy = Eavesdropper(ep.engines.InProcess())
>>> sites = {"A": np.diag([3.0, 2.0, 1.0]), "B": np.eye(3)}
>>> pca = ep.FederatedPCA(1, solver="krylov", center=False, engine=spy, random_state=0).fit(sites)
>>> blocks, products = spy.side_by_side("A", "scatter_action")
>>> bool(np.allclose(products, np.diag([9.0, 4.0, 1.0]) @ blocks))
True
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..errors import InputError
from ..numerics.linalg import Array
from ..runtime import Arrays, Graph, Job, Outcome, Request, Response, Sites, tapped
from ..runtime.local import short_name
from ..runtime.tapping import AroundEngine


@dataclass(frozen=True, eq=False)
class Overheard:
    """One site's reply: the ``step`` and the short name of the ``function``, its arguments ``args``, and the ``arrays`` sent.

    For a reply to a sum under a secure summation the arrays are those of the encoded reply.
    """

    epoch: int
    step: int
    kind: str
    function: str
    site: str
    args: Arrays
    arrays: Arrays


@dataclass(frozen=True, eq=False)
class Eavesdropper(AroundEngine):
    """An engine whose coordinator listens.

    Parameters
    ----------
    engine : Engine
        Where the run takes place.  One whose coordinator is another process (MPI ranks other than 0) hears nothing.

    Attributes
    ----------
    heard : list of Overheard
        Replies in the order in which they came; those of a later run are added.
    """

    heard: list[Overheard] = field(default_factory=list)

    def execute(self, sites: Sites, job: Job, *, graph: Graph | None = None) -> Outcome:
        """Run the job on the engine, and listen."""
        return self.engine.execute(sites, tapped(job, self._hear), graph=graph)

    def replies(self, site: str, function: str) -> list[Overheard]:
        """What one site replied to a local function, by its short name, in order."""
        found = [heard for heard in self.heard if heard.site == site and heard.function == function]
        if not found:
            known = sorted({(heard.site, heard.function) for heard in self.heard})
            listed = ", ".join(f"{function} at {site}" for site, function in known[:12]) or "nothing"
            raise InputError(f"no reply of {function!r} from site {site!r} was heard; heard were {listed}")
        return found

    def side_by_side(self, site: str, function: str) -> tuple[Array, Array]:
        """The first argument of every call and the first array of every reply, each side by side (d x m)."""
        replies = self.replies(site, function)
        return np.hstack([reply.args[0] for reply in replies]), np.hstack([reply.arrays[0] for reply in replies])

    def _hear(self, request: Request, response: Response) -> None:
        if response.arrays:
            self.heard.append(overheard(request, response))


def overheard(request: Request, response: Response) -> Overheard:
    """A reply as it is kept: arguments are copied, for a program may write over its own."""
    asked = request.epoch, request.step, request.kind, short_name(request.function)
    return Overheard(*asked, response.site, tuple(a.copy() for a in request.args), response.arrays)
