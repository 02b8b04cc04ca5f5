"""Sites in threads that answer by message, so that one that hangs can be left behind."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping

from ..runtime import SiteEndpoint


class ThreadPost:
    """A thread for each site.  A thread that hangs is never waited for; it ends with the process."""

    def __init__(self, endpoints: Mapping[str, SiteEndpoint]) -> None:
        self._replies: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self._requests: dict[str, queue.SimpleQueue[bytes | None]] = {}
        for name, endpoint in endpoints.items():
            self._requests[name] = queue.SimpleQueue()
            threading.Thread(target=self._serve, args=(name, endpoint), name=f"eigenpact-{name}", daemon=True).start()

    def _serve(self, name: str, endpoint: SiteEndpoint) -> None:
        while (data := self._requests[name].get()) is not None:
            self._replies.put((name, endpoint.handle(data)))

    def now(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    def send(self, site: str, data: bytes) -> None:
        """Put a message into the site's queue."""
        self._requests[site].put(data)

    def receive(self, until: float) -> tuple[str, bytes | None] | None:
        """The next reply, or None if none comes until then."""
        try:
            return self._replies.get(timeout=max(0.0, until - self.now()))
        except queue.Empty:
            return None

    def close(self) -> None:
        """Let threads that do not hang end."""
        for requests in self._requests.values():
            requests.put(None)
