"""The coordinator's part of FLARE's server: a site that ends, or does not come up, ends nobody else's run.

FLARE fails a whole job as soon as one site reports that its process of the job has ended, and begins none in which a site stays
silent.  Here the driver decides, by ``min_sites``: FLARE goes on as long as anybody is left.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from nvflare.collab.runtime.controller import CollabController
from nvflare.collab.runtime.defs import SETUP_TASK_NAME
from nvflare.private.defs import JobFailureMsgKey
from nvflare.private.fed.server.fed_server import FederatedServer

from ...runtime import shortened

log = logging.getLogger("eigenpact.coordinator")


class SteadyController(CollabController):  # type: ignore[misc]
    """Begins a job with the sites that come up; calls to others fail, and the driver leaves those out."""

    _answered: Sequence[str] = ()

    def broadcast_and_wait(self, task: Any, fl_ctx: Any, **options: Any) -> None:
        """Ask sites to get ready, first all, then those that answered; FLARE is told that the others did, too."""
        if task.name == SETUP_TASK_NAME:
            options |= {"targets": self._answered, "min_responses": len(self._answered)}
        super().broadcast_and_wait(task=task, fl_ctx=fl_ctx, **options)
        told = self.client_setup_status if task.name == SETUP_TASK_NAME else self.client_info
        self._answered = [name for name, answer in told.items() if answer]
        for name in set(told) - set(self._answered) if self._answered else ():
            log.warning("site %s is not ready within %g s: the run begins without it", name, self.sync_task_timeout)
            told[name] = told[self._answered[0]]  # all sites publish the same


def go_on_without_sites() -> None:
    """Have FLARE's server in this process take a site's report that its part of a job has ended as that, and fail nobody."""
    process = FederatedServer.process_job_failure

    def resolved(self: Any, request: Any) -> Any:
        payload = request.payload
        if isinstance(payload, dict) and payload.get(JobFailureMsgKey.CODE):
            log.warning("a site's part of a job has ended: %s", shortened(str(payload)))
            request.payload = payload | {JobFailureMsgKey.CODE: 0}
        return process(self, request)

    FederatedServer.process_job_failure = resolved
