"""Flower's SuperNode for a site's kit, which ends in order and soon when it is asked to.

Run by ``first.py`` as ``eigenpact.engines.flower.node SITE ...``, the rest as ``flower-supernode`` takes it.  Flower's own way to
end waits for its threads, and leaves it to the processes that it has started to notice.
"""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

from flwr.supernode import start_client_internal
from flwr.supernode.cli.flower_supernode import flower_supernode

from ..federation.running import keep_from_children
from ..signals import unwinding


def main() -> None:
    """Take the site's name away and go on as Flower; when it is stopped, Flower tells the SuperLink that the node leaves."""
    site = sys.argv.pop(1)
    keep_from_children()
    with unwinding(f"site {site}"):
        vars(start_client_internal)["register_signal_handlers"] = _none  # ours are there already
        vars(start_client_internal)["subprocess"] = SimpleNamespace(Popen=_apart)
        flower_supernode()


def _none(*_: Any, **__: Any) -> None:
    """In place of Flower's handlers."""


def _apart(command: list[str]) -> subprocess.Popen[bytes]:
    """Start a process that a terminal's Ctrl-C does not reach: this one ends it, in order, where it would print where it was."""
    return subprocess.Popen(command, start_new_session=True)


if __name__ == "__main__":
    main()
