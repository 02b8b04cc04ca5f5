"""An engine that takes notes: which collective asked for which local function, and the basis in full precision."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..engines import InProcess
from ..errors import NotConvergedWarning, NotIdentifiableWarning
from ..estimators.joint_result import JointResult
from ..numerics.linalg import Array
from ..privacy.eavesdropping import Overheard, overheard
from ..runtime import Graph, Job, Outcome, Request, Response, Sites, tapped


@contextmanager
def unwarned() -> Iterator[None]:
    """No warning of a fit that did not converge, or has many answers, where the result tells it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        warnings.simplefilter("ignore", NotIdentifiableWarning)
        yield


@dataclass(frozen=True)
class Watched(InProcess):
    """All sites in this process, watched.

    Attributes
    ----------
    steps : (epoch, step) -> (kind of collective, full name of the local function)
    bases : list of (d, k) arrays
        The basis that each run of FederatedPCA ended with, float64 even where rows are single precision.
    listened : str
        The site whose replies are kept; none by default.
    heard : list of Overheard
        Its replies.
    """

    steps: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)
    bases: list[Array] = field(default_factory=list)
    listened: str = ""
    heard: list[Overheard] = field(default_factory=list)

    def execute(self, sites: Sites, job: Job, *, graph: Graph | None = None) -> Outcome:
        """Serve the sites and run the job, taking notes."""

        def note(request: Request, response: Response) -> None:
            self.steps[request.epoch, request.step] = request.kind, request.function
            if response.site == self.listened and response.arrays:
                self.heard.append(overheard(request, response))

        outcome = super().execute(sites, tapped(job, note), graph=graph)
        self.bases.append(JointResult.from_outcome(outcome).basis)
        return outcome
