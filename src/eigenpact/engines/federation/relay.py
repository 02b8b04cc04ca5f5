"""What engines between institutions share at the coordinator: a relay carries bytes, the driver runs where ``fit`` was called.

FLARE's server, or Flower's SuperLink, starts a process of its own for every run.  It connects back to the process that called
``fit``, over a Unix socket in a folder of the owner's, with a key.  The relay looks at no message and keeps none.  So timeouts
are the driver's own: a site that is dead or silent is waited for once and then left out.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import Listener
from pathlib import Path
from typing import Any

from ...errors import InputError, ProgramError, SiteError
from ...runtime import Costs, Job, MailConnection, Outcome, Plan, Post, Request, Response, Summation
from ...storage import write_private

REPLY, GONE = b"r", b"g"
"""First byte of what comes back: a site's reply, or why there is none."""

STILL = 1.0
"""Seconds between two looks at a job that is starting or ending."""

log = logging.getLogger("eigenpact.coordinator")


class OpenFederation:
    """An engine whose sites can be called; made by an engine's ``open``.

    Parameters
    ----------
    post : Post
        Carries messages to the sites and back.
    sites : tuple of str
        Sites that are to take part.
    features : tuple of str, int or None
        The agreed columns in order, or their number; None if they are not known.
    costs : Costs
    min_sites : int
        A run goes on only with this many sites.
    round_timeout : float
        Seconds a site may take to answer before the run goes on without it.
    names : pair of str
        For errors: the engine's name, and what carries its messages.
    """

    spread = False

    def __init__(
        self,
        post: Post,
        sites: tuple[str, ...],
        features: tuple[str, ...] | int | None,
        *,
        costs: Costs,
        min_sites: int,
        round_timeout: float,
        names: tuple[str, str],
    ) -> None:
        self.costs = costs
        self.min_sites = min_sites
        self._post = post
        self._sites = sites
        self._features = features
        self._round_timeout = round_timeout
        self._name, self._carrier = names

    def __deepcopy__(self, memo: dict[int, Any]) -> OpenFederation:  # scikit-learn clones by copying; a connection is shared
        return self

    def execute(
        self,
        sites: Mapping[str, Any],
        job: Job,
        *,
        graph: Mapping[str, tuple[str, ...]] | None = None,
        summation: Summation | None = None,
    ) -> Outcome:
        """Run the job here, with the sites as they are."""
        if graph is not None:
            raise ProgramError(
                f"graph programs do not run on {self._carrier}, whose sites do not reach each other; use engine='inprocess'"
            )
        if summation is not None:
            raise ProgramError("sites between institutions encode sums by their own policy; leave summation out")
        if sites:
            raise InputError(f"with engine {self._name!r} the rows lie at the sites; call fit() without data")
        options: dict[str, Any] = {"round_timeout": self._round_timeout, "announces": True, "features": self._features}
        return job(LoggedConnection(self._post, self._sites, **options))


class LoggedConnection(MailConnection):
    """Writes to the coordinator's log what sites refuse."""

    def announce(self, run: str, plan: Plan) -> Mapping[str, str]:
        """Tell every site what the run is about to do; give why for each that takes no part."""
        absent = super().announce(run, plan)
        for name, reason in sorted(absent.items()):
            log.warning("site %s takes no part in run %s: %s", name, run, reason)
        return absent

    def call(self, request: Request, after: Mapping[str, int]) -> Iterator[Response]:
        """Send a request; yield the replies in sorted site order."""
        for response in super().call(request, after):
            if response.error or response.lost:
                log.warning("site %s, %s: %s", response.site, request.function, response.error or response.reason)
            yield response


class RelayPost:
    """Messages through a relay; replies come in on a thread and wait in a queue."""

    def __init__(self, pipe: Pipe, connected: tuple[str, ...]) -> None:
        self._pipe = pipe
        self._connected = frozenset(connected)
        self._arrived: queue.SimpleQueue[tuple[str, bytes | None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True, name="eigenpact-relay").start()

    def now(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    def send(self, site: str, data: bytes) -> None:
        """Hand a message to the relay; a site that is not in the job is gone."""
        if site not in self._connected:
            self._arrived.put((site, None))
            return
        try:
            self._pipe.send_bytes(frame(site, data))
        except OSError as error:
            raise _relay_gone() from error

    def receive(self, until: float) -> tuple[str, bytes | None] | None:
        """The next reply, or None if none comes until then."""
        try:
            came = self._arrived.get(timeout=max(0.0, until - self.now()))
        except queue.Empty:
            return None
        if came is None:
            self._arrived.put(None)
            raise _relay_gone()
        return came

    def close(self) -> None:
        """Tell the relay that the run is over; it would see only the end of this process otherwise."""
        with suppress(OSError):
            self._pipe.send_bytes(frame("", b""))

    def _read(self) -> None:
        try:
            while True:
                name, answer = unframe(self._pipe.recv_bytes())
                if answer[:1] == GONE:
                    log.warning("site %s: %s", name, answer[1:].decode(errors="replace"))
                self._arrived.put((name, answer[1:] if answer[:1] == REPLY else None))
        except (EOFError, OSError):
            self._arrived.put(None)


@contextmanager
def meeting_point(folder: Path) -> Iterator[tuple[Listener, dict[str, str]]]:
    """Where a relay can connect, and what it must be told: the socket's address and the file with the key."""
    key = os.urandom(32)
    write_private(folder / "key", key)
    address = str(folder / "relay")
    with Listener(address, "AF_UNIX", authkey=key) as listener:
        yield listener, {"address": address, "key": str(folder / "key")}


def accept(listener: Listener, timeout: float, look: Callable[[], None]) -> Pipe | None:
    """The relay's connection, or None if none comes in time; ``look`` is called meanwhile, and raises if none will come."""
    came: queue.SimpleQueue[Pipe] = queue.SimpleQueue()

    def wait() -> None:
        with suppress(OSError):
            came.put(listener.accept())

    threading.Thread(target=wait, daemon=True, name="eigenpact-accept").start()
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        with suppress(queue.Empty):
            return came.get(timeout=STILL)
        look()
    return None


def frame(name: str, data: bytes | bytearray) -> bytes:
    """A site's name and bytes as one message.

    >>> unframe(frame("lima", b"abc"))
    ('lima', b'abc')
    """
    encoded = name.encode()
    return bytes([len(encoded)]) + encoded + data


def unframe(message: bytes) -> tuple[str, bytes]:
    """Inverse of :func:`frame`."""
    length = message[0]
    return message[1 : 1 + length].decode(), message[1 + length :]


def _relay_gone() -> SiteError:
    return SiteError("the coordinator's server, or its job, has ended; start it again and resume from the journal")
