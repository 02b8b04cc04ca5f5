"""A site's process in a FLARE job: holds the rows and what is kept for the whole run, and answers bytes with bytes.

FLARE starts it at the site when a job comes.  What it works on is said by the site's owner alone, in the file that the
environment variable ``EIGENPACT_SITE`` names; nothing of it comes with the job.  It ends when the job does, when the
site is stopped, or when nothing is heard of the coordinator for ``coordinator_timeout`` seconds.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time

from nvflare.collab import collab

from ...numerics.blas import limited_blas
from ...runtime import SiteEndpoint
from ..federation.left import Left
from ..federation.sites import SiteFacts, Unable
from .kits import DIGEST_VARIABLE, SITE_VARIABLE

COORDINATOR_SIDE = "server"
"""FLARE's name for the coordinator's side of a job; no site may have it."""

log = logging.getLogger("eigenpact.site")


class FlareSite:
    """What the coordinator's side of the job can call."""

    def __init__(self) -> None:
        self._endpoint: SiteEndpoint | None = None
        self._left: Left | None = None
        self._heard = time.monotonic()
        self._began = math.inf  # when the request began that is answered now
        self._lock = threading.Lock()  # one request after the other

    @collab.init  # type: ignore[untyped-decorator]
    def start(self) -> None:
        """Read the rows; a site that cannot tells why when it is asked."""
        path, digest = (os.environ.get(name, "") for name in (SITE_VARIABLE, DIGEST_VARIABLE))
        facts = SiteFacts.read(path, SITE_VARIABLE, digest)
        self._left = Left(facts.ledger)
        self._endpoint, server = facts.stand_ready()
        if not isinstance(server, Unable):
            log.info("site %s is ready", facts.name)
        self._heard = time.monotonic()
        limits = facts.coordinator_timeout, facts.max_seconds
        threading.Thread(target=self._watch, args=limits, daemon=True, name="eigenpact-watch").start()

    @collab.final  # type: ignore[untyped-decorator]
    def finish(self) -> None:
        """Say what left this site, once the job is over."""
        for line in self._left.told() if self._left is not None else ():
            log.info("%s", line)

    @collab.publish  # type: ignore[untyped-decorator]
    def handle(self, data: bytes) -> bytes:
        """Answer one message of the coordinator; FLARE lets other sites of the job call too, and shows callers all errors."""
        _check_caller()
        self._heard = time.monotonic()
        if self._endpoint is None:
            raise RuntimeError("not started")
        if not isinstance(data, bytes | bytearray | memoryview):
            log.warning("refused: a message of type %s, not bytes", type(data).__name__)
            raise RuntimeError("a message must be bytes")
        with self._lock, limited_blas(1):
            self._began = time.monotonic()
            try:
                reply = self._endpoint.handle(data)
            except Exception:
                log.exception("a message could not be answered")
                raise RuntimeError("the message could not be answered; the site's log says why") from None
            finally:
                self._began = math.inf
        self._heard = time.monotonic()
        return reply

    @collab.publish  # type: ignore[untyped-decorator]
    def ping(self) -> None:
        """The coordinator is there."""
        _check_caller()
        self._heard = time.monotonic()

    def _watch(self, timeout: float, max_seconds: float) -> None:
        """End the process when the site was stopped, a request takes too long, or none comes and nothing is heard."""
        parent = os.getppid()
        while True:
            time.sleep(min(1.0, timeout / 4, max_seconds / 4))
            if time.monotonic() - self._began > max_seconds:
                _end(f"rule max_seconds = {max_seconds}: one request takes longer: this run is over here")
            if os.getppid() != parent:
                _end("the site was stopped: this run is over here")
            if time.monotonic() - self._heard > timeout and not self._lock.locked():
                _end(f"nothing heard of the coordinator for {timeout:g} s: this run is over here")


def _check_caller() -> None:
    if collab.caller != COORDINATOR_SIDE:
        log.warning("refused: a call of %r, which is not the coordinator", collab.caller)
        raise RuntimeError("only the coordinator may call")


def _end(reason: str) -> None:
    """At once, whatever FLARE's threads wait for."""
    log.warning("%s", reason)
    logging.shutdown()
    os._exit(3)
