"""A site's process in a FLARE job: holds the rows and what is kept for the whole run, and answers bytes with bytes.

FLARE starts it at the site when a job comes.  What it works on is said by the site's owner alone, in the file that the
environment variable ``EIGENPACT_SITE`` names; nothing of it comes with the job.  It ends when the job does, when the
site is stopped, or when nothing is heard of the coordinator for ``coordinator_timeout`` seconds.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nvflare.collab import collab

from ..errors import EigenpactError, FileError
from ..runtime import Gate, Policy, Request, Response, SiteEndpoint, SiteLedger, SiteServer
from .blas import limited_blas

SITE_VARIABLE = "EIGENPACT_SITE"
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
        for module in policy.modules:
            importlib.import_module(module)
        module, _, function = self.opener.partition(":")
        X = getattr(importlib.import_module(module), function)(self.name, self.data, self.features)
        gate = Gate(self.name, policy, SiteLedger(self.ledger), n_rows=int(X.shape[0]), features=self.features)
        server = SiteServer(self.name, X, gate=gate)
        return SiteEndpoint(server, policy.max_message_bytes, tell=lambda reason: log.warning("refused: %s", reason))


class _Unable(SiteServer):
    """A site that cannot take part, and says why."""

    def __init__(self, name: str, error: EigenpactError) -> None:
        self.name = name
        self._error = error

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
        threading.Thread(target=self._watch, args=(facts.coordinator_timeout,), daemon=True, name="eigenpact-watch").start()

    @collab.publish  # type: ignore[untyped-decorator]
    def handle(self, data: bytes) -> bytes:
        """Answer one message."""
        self._heard = time.monotonic()
        if self._endpoint is None:
            raise RuntimeError("not started")
        if not isinstance(data, bytes | bytearray | memoryview):
            log.warning("refused: a message of type %s, not bytes", type(data).__name__)
            raise RuntimeError("a message must be bytes")
        with self._lock, limited_blas(1):
            reply = self._endpoint.handle(data)
        self._heard = time.monotonic()
        return reply

    @collab.publish  # type: ignore[untyped-decorator]
    def ping(self) -> None:
        """The coordinator is there."""
        self._heard = time.monotonic()

    def _watch(self, timeout: float) -> None:
        """End the process when the site was stopped, or the coordinator is silent too long while nothing is computed."""
        parent = os.getppid()
        while True:
            time.sleep(min(1.0, timeout / 4))
            if os.getppid() != parent:
                _end("the site was stopped: this run is over here")
            if time.monotonic() - self._heard > timeout and not self._lock.locked():
                _end(f"nothing heard of the coordinator for {timeout:g} s: this run is over here")


def _end(reason: str) -> None:
    """At once, whatever FLARE's threads wait for."""
    log.warning("%s", reason)
    logging.shutdown()
    os._exit(3)
