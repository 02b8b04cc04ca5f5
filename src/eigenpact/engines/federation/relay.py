"""The way from the driver to the sites, at the coordinator: a relay passes bytes on.

FLARE's server, or Flower's SuperLink, starts a process of its own for every run.  It connects back to the process that called
``fit``, over a Unix socket in a folder of the owner's, with a key.  The relay looks at no message and keeps none.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import Listener
from pathlib import Path

from ...errors import SiteError
from ...storage import write_private

REPLY, GONE = b"r", b"g"
"""First byte of what comes back: a site's reply, or why there is none."""

STILL = 1.0
"""Seconds between two looks at a job that is starting or ending."""

log = logging.getLogger("eigenpact.coordinator")


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

    def _read(self) -> None:
        try:
            while True:
                name, answer = unframe(self._pipe.recv_bytes())
                if answer[:1] == GONE:
                    log.warning("site %s: %s", name, answer[1:].decode(errors="replace"))
                self._arrived.put((name, answer[1:] if answer[:1] == REPLY else None))
        except (EOFError, OSError):
            self._arrived.put(None)
        except TypeError:  # a run that is stopped closes the pipe, perhaps between two looks at its handle
            if not self._pipe.closed:
                raise
            self._arrived.put(None)


def hang_up(pipe: Pipe) -> None:
    """Tell the relay that the run is over; it would see only the end of this process otherwise."""
    with suppress(OSError):  # the relay has ended
        pipe.send_bytes(frame("", b""))


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
