"""A site's process for one message of a Flower run: Flower's ClientApp.

Flower starts it anew for every message.  So it reads the rows again, takes up what the site remembered (from ``context.state``,
which the SuperNode holds in memory and does not send), answers, and puts back what is to be remembered.  What it works on is said
by the site's owner alone, in the file that the node's own configuration names; nothing of it comes with the run.
"""

from __future__ import annotations

import logging
import queue
import threading

from flwr.app import ConfigRecord, Context, Error, Message
from flwr.clientapp import ClientApp

from ...errors import EigenpactError
from ...numerics.blas import limited_blas
from ...runtime import SiteLedger
from ...runtime.letters import run_of
from ...runtime.site_ledger import shortened
from ..federation.left import Left
from ..federation.sites import SiteFacts
from .grid import letter, log_to_console, text_of
from .kits import DIGEST_KEY, SITE_KEY

MEMORY = "eigenpact"
"""Under this name the node's state holds what the site remembers."""

FAILED = 1000
"""Code of an answer without content; the SuperLink sees it, so it says nothing of the site."""

log = logging.getLogger("eigenpact.site")

client = ClientApp()


@client.query()
def answer(message: Message, context: Context) -> Message:
    """Answer one message of the coordinator; why one cannot be answered is for the site's own console."""
    log_to_console("%(asctime)s eigenpact: %(message)s")
    try:
        path, digest = (str(context.node_config.get(key, "")) for key in (SITE_KEY, DIGEST_KEY))
        facts = SiteFacts.read(path, f"{SITE_KEY} in the node's configuration", digest)
        data = text_of(message.content)
    except EigenpactError as error:
        log.error("cannot take part: %s", error)
        return Message(Error(FAILED, "this node does not describe a site; its own console says why"), reply_to=message)
    left = Left(facts.ledger)
    record = context.state.config_records.get(MEMORY, ConfigRecord())
    held = record.get("memory", b"")
    remembered = held if isinstance(held, bytes) else b""
    done: queue.SimpleQueue[tuple[bytes, bytes] | None] = queue.SimpleQueue()
    threading.Thread(target=_serve, args=(facts, remembered, data, done), daemon=True, name="eigenpact-site").start()
    try:
        came = done.get(timeout=facts.max_seconds)
    except queue.Empty:
        context.state[MEMORY] = ConfigRecord({"memory": b""})
        return Message(Error(FAILED, _note_timeout(facts, data)), reply_to=message)
    if came is None:
        return Message(Error(FAILED, "the message could not be answered; the site's console says why"), reply_to=message)
    reply, memory = came
    for line in left.told(over=False):
        log.info("%s", line)
    context.state[MEMORY] = ConfigRecord({"memory": memory})
    return Message(letter(reply), reply_to=message)


def _serve(facts: SiteFacts, remembered: bytes, data: bytes, done: queue.SimpleQueue[tuple[bytes, bytes] | None]) -> None:
    """In a thread, so that the time can be limited whatever is computed."""
    try:
        with limited_blas(1):
            endpoint, server = facts.stand_ready(remembered)
            reply = endpoint.handle(data)
            done.put((reply, server.remember() or remembered))
    except BaseException:  # whatever it is, its text may hold values of rows
        log.exception("a message could not be answered")
        done.put(None)


def _note_timeout(facts: SiteFacts, data: bytes) -> str:
    """Write down that a request took too long; give what the coordinator is told.  What is still computed is never sent."""
    reason = f"rule max_seconds = {facts.max_seconds:g}: the request took longer"
    log.warning("%s: this run is over here, its plan and what was kept of it are forgotten", reason)
    try:
        run = run_of(memoryview(data), signed=bool(facts.kit))
        SiteLedger(facts.ledger).write(run=shortened(run), what="failed", reason=reason)
    except EigenpactError as error:
        log.error("that could not be written to the ledger: %s", error)
    return reason
