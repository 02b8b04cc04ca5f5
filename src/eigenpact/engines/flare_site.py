"""A site's process in a FLARE job: holds the rows and what is kept for the whole run, and answers bytes with bytes.

FLARE starts it at the site when a job comes.  What it works on is said by the site's owner alone, in the file that the
environment variable ``EIGENPACT_SITE`` names; nothing of it comes with the job.  It ends when the job does, when the
site is stopped, or when nothing is heard of the coordinator for ``coordinator_timeout`` seconds.
"""

from __future__ import annotations

import importlib
import json
import logging
import math
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nvflare.collab import collab

from ..errors import EigenpactError, FileError, PolicyError, SiteFailure
from ..runtime import Gate, Policy, Request, Response, SiteEndpoint, SiteLedger, SiteServer
from .blas import limited_blas

SITE_VARIABLE = "EIGENPACT_SITE"
COORDINATOR_SIDE = "server"
"""FLARE's name for the coordinator's side of a job; no site may have it."""

log = logging.getLogger("eigenpact.site")


@dataclass(frozen=True)
class SiteFacts:
    """What a site's owner says of it.

    Attributes
    ----------
    name : str
    opener : str
        "module:function" that gives the rows (n x d) from ``data`` and ``features``, checked and in their order.
    data : str
        The site's table.
    features : tuple of str, or int
        The agreed columns in order, or their number.
    policy : dict
    ledger : str
        The site's own ledger.
    coordinator_timeout : float
        Seconds without a word after which the process ends.
    """

    name: str
    opener: str
    data: str
    features: tuple[str, ...] | int
    policy: dict[str, Any]
    ledger: str
    coordinator_timeout: float

    @classmethod
    def read(cls, path: str) -> SiteFacts:
        """From the file that ``eigenpact site start`` wrote."""
        try:
            facts = json.loads(Path(path).read_text())
        except (OSError, ValueError) as error:
            raise FileError(f"{path!r}, named by {SITE_VARIABLE}, cannot be read: {error}; use eigenpact site start") from error
        features = facts["features"]
        return cls(**facts | {"features": features if isinstance(features, int) else tuple(features)})

    def endpoint(self) -> SiteEndpoint:
        """Read the rows, import what the owner trusts, and stand ready."""
        policy = Policy.from_dict(self.policy)
        policy.load()
        module, _, function = self.opener.partition(":")
        X = getattr(importlib.import_module(module), function)(self.name, self.data, self.features)
        gate = Gate(self.name, policy, SiteLedger(self.ledger), n_rows=int(X.shape[0]), features=self.features)
        server = SiteServer(self.name, X, gate=gate)
        return SiteEndpoint(server, policy.max_message_bytes, tell=lambda reason: log.warning("refused: %s", reason))


class _Unable(SiteServer):
    """A site that cannot take part, and says so.

    What a rule says is told to the coordinator; other reasons may name the site's files or quote them, and stay in its log.
    """

    def __init__(self, name: str, error: EigenpactError) -> None:
        self.name = name
        told = "this site's table or policy cannot be used; its own log says why"
        self._error = error if isinstance(error, PolicyError) else SiteFailure(told)

    def position(self, run: str, epoch: int) -> int:  # noqa: ARG002
        """Not known."""
        raise self._error

    def admit(self, run: str, plan: Any) -> None:  # noqa: ARG002
        """Nothing is admitted."""
        raise self._error

    def execute(self, request: Request, after: int) -> Response:  # noqa: ARG002
        """Nothing is executed."""
        raise self._error


class FlareSite:
    """What the coordinator's side of the job can call."""

    def __init__(self) -> None:
        self._endpoint: SiteEndpoint | None = None
        self._heard = time.monotonic()
        self._began = math.inf  # when the request began that is answered now
        self._lock = threading.Lock()  # one request after the other

    @collab.init  # type: ignore[untyped-decorator]
    def start(self) -> None:
        """Read the rows; a site that cannot tells why when it is asked."""
        facts = SiteFacts.read(os.environ.get(SITE_VARIABLE, ""))
        try:
            self._endpoint = facts.endpoint()
            log.info("site %s is ready", facts.name)
        except EigenpactError as error:
            log.error("cannot take part: %s", error)
            self._endpoint = SiteEndpoint(_Unable(facts.name, error))
        self._heard = time.monotonic()
        limits = facts.coordinator_timeout, facts.policy.get("max_seconds", Policy.max_seconds)
        threading.Thread(target=self._watch, args=limits, daemon=True, name="eigenpact-watch").start()

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
