"""FLARE's server or client for a kit, with refused certificates written to the log, and BLAS with one thread.

Run by ``first.py`` as ``eigenpact.engines.flare.main server|client ...``, the rest as FLARE takes it.  FLARE does not tell
when a handshake fails, so that a site with a wrong certificate would look, at both ends, as if it had never come.  Nor does it
end when it is asked to by Ctrl-C.

Sites compute with one BLAS thread, as ``InProcess(threads=1)`` does.  That is said before their processes begin: a second thread
of OpenBLAS that is only kept from work spins between two requests all the same, and doubles the time of a round on two cores.
"""

from __future__ import annotations

import asyncio.sslproto
import logging
import os
import runpy
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...errors import EigenpactError
from ...numerics.blas import ONE_THREAD
from ..federation.running import keep_from_children
from ..signals import heed
from .kits import Kit

MODULES = {
    "server": "nvflare.private.fed.app.server.server_train",
    "client": "nvflare.private.fed.app.client.client_train",
}
NAMES = {"server": "eigenpact.coordinator", "client": "eigenpact.site"}

AGAIN = 10.0
"""Seconds in which the same reason, from the same address, is written once: who is refused tries again and again."""


def main() -> None:
    """Take the first argument away and go on as FLARE."""
    kind = sys.argv.pop(1)
    os.umask(0o077)  # logs and jobs are for their owner alone
    os.environ |= ONE_THREAD
    keep_from_children()
    log = logging.getLogger(NAMES[kind])
    workspace = Path(sys.argv[sys.argv.index("-m") + 1])
    heed("the coordinator's server" if kind == "server" else "the site")
    reason = own_fault(kind, workspace)
    if reason:
        end(log, workspace, reason)
    tell_failures(log, lambda: own_fault(kind, workspace))
    if kind == "client":
        from .guard import log_out, refuse_commands  # brings much of FLARE's client

        refuse_commands()
        heed(f"site {Kit.read(workspace, 'site').party}", log_out())
    else:
        from .server import go_on_without_sites

        go_on_without_sites()
    runpy.run_module(MODULES[kind], run_name="__main__", alter_sys=True)


def own_fault(kind: str, workspace: Path) -> str:
    """Why this party's own certificate cannot be used, if so."""
    try:
        (Kit.read(workspace, "site") if kind == "client" else Kit.read(workspace.parent, "coordinator")).expires()
    except EigenpactError as error:
        return str(error)
    return ""


def end(log: logging.Logger, workspace: Path, reason: str) -> None:
    """Say why in the log, and end: with such a certificate FLARE's client would wait for ever without a word."""
    text = logging.Formatter("%(asctime)s - %(name)s - %(levelname)s - %(message)s")
    for handler in (logging.FileHandler(workspace / "log.txt"), logging.StreamHandler()):
        handler.setFormatter(text)
        log.addHandler(handler)
    log.error("refused: %s", reason)
    sys.exit(2)


def tell_failures(log: logging.Logger, own_fault: Callable[[], str]) -> None:
    """Write every failed handshake to the log, the same one at most every ``AGAIN`` seconds.

    A server that refuses a certificate hangs up, and its word about why may not arrive: so whenever a connection is lost this
    party looks whether its own has become useless.
    """
    protocol: Any = asyncio.sslproto.SSLProtocol
    fatal_error, connection_lost = protocol._fatal_error, protocol.connection_lost
    written: dict[str, float] = {}

    def tell(self: Any, what: str) -> None:
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        reason = f"connection with {peer[0] if peer else 'a peer'} refused: {what}"
        now = time.monotonic()
        if now - written.get(reason, -AGAIN) >= AGAIN:
            written[reason] = now
            log.warning("%s", reason)

    def told(self: Any, error: BaseException, *rest: Any) -> Any:
        if isinstance(error, ssl.SSLError) or any("handshake failed" in str(text) for text in rest):
            tell(self, describe(error))
        return fatal_error(self, error, *rest)

    def lost(self: Any, error: BaseException | None) -> Any:
        fault = own_fault()
        if fault:
            tell(self, fault)
        elif self._state is asyncio.sslproto.SSLProtocolState.DO_HANDSHAKE and not self._conn_lost:  # asyncio says nothing then
            tell(self, describe(error))
        return connection_lost(self, error)

    protocol._fatal_error, protocol.connection_lost = told, lost


def describe(error: BaseException | None) -> str:
    """What was wrong, in OpenSSL's words where it was not the other side that broke off.

    >>> describe(ssl.SSLError(1, "[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca (_ssl.c:2580)"))
    'tlsv1 alert unknown ca: the other side has a kit of another federation'
    """
    if not isinstance(error, ssl.SSLError):
        return "the other side broke the handshake off, as it does with a kit of another federation"
    text = str(error.args[-1] if error.args else error)
    text = text.rpartition("] ")[2].rpartition(" (_ssl")[0] or text
    foreign = ": the other side has a kit of another federation"
    return text + foreign if "unknown ca" in text or ("verify failed" in text and "expired" not in text) else text


if __name__ == "__main__":
    main()
