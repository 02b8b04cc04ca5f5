"""One process for one kit: who has started it, since when, and with which table and policy.

``eigenpact site start`` locks the kit's ``kit.json`` and hands the lock on to the process that takes it over, FLARE's or
Flower's, which has it until it ends, however it ends: nothing is left behind.  What that process is to work on stands in
``site.json``, and a digest of that goes with the process: a file that somebody changed meanwhile is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from ...errors import EigenpactError, InputError
from ...storage import try_lock
from .kits import KIT, PartyKit
from .sites import SiteFacts

FACTS = "site.json"
"""File in a site's kit with what its processes work on."""

LOCK = "EIGENPACT_LOCK"
"""Environment variable with the number of the file that holds the lock."""


@contextmanager
def locked(kit: PartyKit) -> Iterator[dict[str, str]]:
    """Have the kit for this process and the one that takes it over; give what that one's environment needs.

    Where another process has it, the error says which, since when, and with which table.
    """
    opened = try_lock(kit.folder / KIT)
    if opened is None:
        raise InputError(f"{kit.party} is started already, {_holder(kit)}; stop that one first, with Ctrl-C or kill")
    os.set_inheritable(opened, True)
    try:
        yield {LOCK: str(opened)}
    finally:
        os.close(opened)


def keep_from_children() -> None:
    """In the process that has taken over: its children do not get the lock, which would outlive it with them."""
    number = os.environ.pop(LOCK, "")
    if number:
        with suppress(OSError):  # it was closed on the way
            os.set_inheritable(int(number), False)


def started() -> dict[str, object]:
    """This process, as ``site.json`` names who has the kit."""
    return {"pid": os.getpid(), "since": datetime.now(UTC).isoformat(timespec="seconds")}


def _holder(kit: PartyKit) -> str:
    try:
        facts = SiteFacts.read(str(kit.folder / FACTS), "the kit")
    except EigenpactError:
        return "a moment ago"
    since = f"{datetime.fromisoformat(facts.since):%Y-%m-%d %H:%M:%S} UTC" if facts.since else "some time ago"
    return f"by process {facts.pid} since {since}, with {Path(facts.data).name}"
