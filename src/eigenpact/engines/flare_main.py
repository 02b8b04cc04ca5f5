"""FLARE's server or client for a kit, with refused certificates written to the log.

Run as ``python -m eigenpact.engines.flare_main server|client ...``, the rest as FLARE takes it.  FLARE's transport does not tell
when a handshake fails, so that a site with a wrong certificate would look, at both ends, as if it had never come.
"""

from __future__ import annotations

import asyncio.sslproto
import logging
import runpy
import ssl
import sys
from typing import Any

MODULES = {
    "server": "nvflare.private.fed.app.server.server_train",
    "client": "nvflare.private.fed.app.client.client_train",
}
NAMES = {"server": "eigenpact.coordinator", "client": "eigenpact.site"}


def main() -> None:
    """Take the first argument away and go on as FLARE."""
    kind = sys.argv.pop(1)
    tell_failures(logging.getLogger(NAMES[kind]))
    runpy.run_module(MODULES[kind], run_name="__main__", alter_sys=True)


def tell_failures(log: logging.Logger) -> None:
    """Write every failed handshake to the log, once for each reason in a row."""
    protocol: Any = asyncio.sslproto.SSLProtocol
    original = protocol._fatal_error
    last = ""

    def told(self: Any, error: BaseException, *rest: Any) -> Any:
        nonlocal last
        if isinstance(error, ssl.SSLError) or any("handshake failed" in str(text) for text in rest):
            peer = self._transport.get_extra_info("peername") if self._transport is not None else None
            reason = f"connection with {peer[0] if peer else 'a peer'} refused: {describe(error)}"
            if reason != last:
                log.warning("%s", reason)
            last = reason
        return original(self, error, *rest)

    protocol._fatal_error = told


def describe(error: BaseException) -> str:
    """What was wrong, in OpenSSL's words where it was not the other side that broke off.

    >>> describe(ssl.SSLError(1, "[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca (_ssl.c:2580)"))
    'tlsv1 alert unknown ca'
    """
    if not isinstance(error, ssl.SSLError):
        return "the other side broke the handshake off, as it does with a certificate of another federation"
    text = str(error.args[-1] if error.args else error)
    return text.rpartition("] ")[2].rpartition(" (_ssl")[0] or text


if __name__ == "__main__":
    main()
