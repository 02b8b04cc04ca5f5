"""The coordinator's side of a FLARE job: passes bytes between the sites and the process that drives the run.

The driver is not in FLARE's server but in the process that called ``fit`` on the same machine; the two speak over a Unix socket
in a folder of the owner's, with a key.  The relay looks at no message and keeps none.  The job ends when that process closes the
socket or dies.
"""

from __future__ import annotations

import json
import logging
import threading
from multiprocessing.connection import Client, Connection
from pathlib import Path

from nvflare.collab import CollabCallError, collab

from ..federation.relay import GONE, REPLY, frame, unframe

PING_EVERY = 2.0
"""Seconds between two signs of life to the sites."""

log = logging.getLogger("eigenpact.coordinator")


class Relay:
    """Connects back to the driver's process.

    Parameters
    ----------
    address : str
        Unix socket.
    key : str
        File with the key.
    call_timeout : float
        Seconds after which FLARE may forget a call; the driver gives up earlier.
    """

    def __init__(self, address: str, key: str, call_timeout: float) -> None:
        self._address = address
        self._key = key
        self._call_timeout = call_timeout
        self._sending = threading.Lock()

    @collab.main  # type: ignore[untyped-decorator]
    def run(self) -> None:
        """Relay until the driver's process closes the socket."""
        clients = {client.name: client for client in collab.clients}
        over = threading.Event()
        found = self.driver()
        if found is None:
            return
        with found as driver:
            try:
                driver.send_bytes(json.dumps(sorted(clients)).encode())
                for client in clients.values():
                    threading.Thread(target=self._keep_alive, args=(client, over), daemon=True).start()
                log.info("sites %s are connected", ", ".join(sorted(clients)))
                while True:
                    name, data = unframe(driver.recv_bytes())
                    if not name:
                        break
                    call = threading.Thread(target=self._call, args=(driver, clients[name], name, data), daemon=True)
                    call.start()
            except (EOFError, OSError):
                log.warning("the process that drove the run has ended")
            finally:
                over.set()
        log.info("the run is over")

    def driver(self) -> Connection | None:
        """The way to the process that drives the run; None if it was stopped while this job began, and took its key along."""
        try:
            return Client(self._address, "AF_UNIX", authkey=Path(self._key).read_bytes())
        except (EOFError, FileNotFoundError, ConnectionError):
            log.warning("the process that drove the run has ended before the run began")
            return None

    def _call(self, driver: Connection, client: object, name: str, data: bytes) -> None:
        try:
            answer = frame(name, REPLY + client(timeout=self._call_timeout).handle(data))  # type: ignore[operator]
        except CollabCallError as error:
            if isinstance(error.cause, TimeoutError):
                return  # the driver has given up already
            log.warning("site %s: %s", name, error)
            answer = frame(name, GONE + str(error).encode())
        with self._sending:
            try:
                driver.send_bytes(answer)
            except OSError:
                log.info("a reply of %s came after the run", name)

    @staticmethod
    def _keep_alive(client: object, over: threading.Event) -> None:
        while not over.wait(PING_EVERY):
            client(expect_result=False, optional=True).ping()  # type: ignore[operator]
