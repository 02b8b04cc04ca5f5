"""The coordinator's side of a Flower run: messages as bytes through Flower's grid, in a ServerApp.

``Grid.send_and_receive`` looks for replies every three seconds, and waits for all of them.  :class:`GridPost` pushes and pulls
itself, several times a second, so that a round takes as long as the sites' own polls and processes, and no longer.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe

from flwr.app import Array, ArrayRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from ...errors import TooFewSitesError, WireError
from ...runtime import greeting, signed_by
from ..federation.kits import NAME
from ..federation.relay import GONE, REPLY, frame, unframe

POLL = 0.2
"""Seconds between two looks for replies."""

LOOK_FOR_NODES = 2.0
"""Seconds between two looks which nodes are connected."""

LIVES = 3600.0
"""Seconds after which Flower may forget a message; the driver gives up earlier."""

KIND = "eigenpact bytes"

log = logging.getLogger("eigenpact.coordinator")


def log_to_console(text: str) -> None:
    """Print what eigenpact logs in this process of Flower's, in this format."""
    root = logging.getLogger("eigenpact")
    if not root.handlers:
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(logging.Formatter(text, "%H:%M:%S"))
        root.addHandler(handler)
        root.setLevel(logging.INFO)


def letter(data: bytes) -> RecordDict:
    """Bytes as Flower carries them: in pieces where they are many, and read by nobody on the way."""
    return RecordDict({"mail": ArrayRecord({"bytes": Array("uint8", (len(data),), KIND, bytes(data))})})


def text_of(content: RecordDict) -> bytes:
    """Inverse of :func:`letter`."""
    record = content.array_records.get("mail")
    array = record.get("bytes") if record is not None else None
    if array is None or array.stype != KIND or tuple(array.shape) != (len(array.data),):
        raise WireError("not a message of eigenpact; the versions may differ")
    return bytes(array.data)


class GridPost:
    """Messages to nodes and back.

    Parameters
    ----------
    grid : Grid
    nodes : mapping
        Site -> identifier of its node.
    """

    def __init__(self, grid: Grid, nodes: Mapping[str, int]) -> None:
        self._grid = grid
        self.nodes = dict(nodes)
        self.waiting: dict[str, str] = {}  # identifier of a message -> site
        self.arrived: deque[tuple[str, bytes | None, str]] = deque()
        self._looked = self.now()

    def now(self) -> float:
        """Seconds since some moment."""
        return time.monotonic()

    def send(self, site: str, data: bytes) -> None:
        """Push a message; a site without a node is gone."""
        if site not in self.nodes:
            self.arrived.append((site, None, "it is not connected"))
            return
        message = Message(letter(data), self.nodes[site], MessageType.QUERY, ttl=LIVES)
        pushed = [identifier for identifier in self._grid.push_messages([message]) if identifier]
        if pushed:
            self.waiting[pushed[0]] = site
        else:
            self.arrived.append((site, None, "Flower did not take a message for it"))

    def receive(self, until: float) -> tuple[str, bytes | None] | None:
        """The next reply, or None if none comes until then."""
        came = self.next(until)
        if came is None:
            return None
        site, data, reason = came
        if data is None:
            log.warning("site %s: %s", site, reason)
        return site, data

    def next(self, until: float) -> tuple[str, bytes | None, str] | None:
        """As :meth:`receive`, with the reason if there are no bytes."""
        while not self.arrived:
            self._pull()
            if self.arrived:
                break
            if self.now() >= until:
                return None
            time.sleep(max(0.0, min(POLL, until - self.now())))
        return self.arrived.popleft()

    def _pull(self) -> None:
        if not self.waiting:
            return
        for message in self._grid.pull_messages(list(self.waiting)):
            site = self.waiting.pop(message.metadata.reply_to_message_id, None)
            if site is None:
                continue
            if message.has_error():
                self.arrived.append((site, None, _one_line(message.error.reason or "")))
                continue
            try:
                self.arrived.append((site, text_of(message.content), ""))
            except WireError as error:
                self.arrived.append((site, None, str(error)))
        if self.now() - self._looked > LOOK_FOR_NODES:
            self._looked = self.now()
            there = set(self._grid.get_node_ids())
            for identifier, site in list(self.waiting.items()):
                if self.nodes[site] not in there:
                    del self.waiting[identifier]
                    self.arrived.append((site, None, "its node is no longer connected"))


def find_sites(grid: Grid, wanted: Iterable[str], min_sites: int, timeout: float) -> GridPost:
    """Ask every node that is connected which site it is, until the sites wanted have answered; none wanted stands for any.

    Every node that was asked is waited for, so that the first to claim a name does not have it.  A name that two nodes claim is
    nobody's, and a node that was registered under a name has that one or none.  After the time given the run begins with fewer,
    if those are enough.
    """
    names = frozenset(wanted)
    post = GridPost(grid, {})
    claims: dict[str, list[int]] = {}
    asked: set[int] = set()
    deadline = post.now() + timeout
    while post.now() < deadline:
        for node in sorted(set(grid.get_node_ids()) - asked):
            asked.add(node)
            post.nodes[str(node)] = node
            post.send(str(node), greeting())
        came = post.next(min(deadline, post.now() + LOOK_FOR_NODES))
        if came is not None:
            _note_claim(grid, claims, came)
        if not post.waiting and not post.arrived and (names <= claims.keys() if names else claims and came is None):
            break
    for name, nodes in claims.items():
        if len(nodes) > 1:
            log.warning("nodes %s all say they are site %s: none of them takes part", ", ".join(map(str, nodes)), name)
    chosen = {name: nodes[0] for name, nodes in claims.items() if len(nodes) == 1 and (not names or name in names)}
    if len(chosen) < max(1, min_sites or len(names)):
        claimed = {name: " (claimed by several nodes)" for name, nodes in claims.items() if len(nodes) > 1}
        missing = ", ".join(f"{name}{claimed.get(name, '')}" for name in sorted(names - chosen.keys()))
        raise TooFewSitesError(
            f"not connected within {timeout:g} s: {missing or f'{max(1, min_sites) - len(chosen)} more'}; have them start their "
            "SuperNodes with eigenpact-site in --node-config, or lower min-sites"
        )
    return GridPost(grid, chosen)


def _note_claim(grid: Grid, claims: dict[str, list[int]], came: tuple[str, bytes | None, str]) -> None:
    """Take down which site a node says it is, or say why it takes no part."""
    node, data, reason = came
    name = "" if data is None else signed_by(data)
    if data is not None and not NAME.fullmatch(name):
        reason = "its answer is damaged, or names no site"
    registered = "" if reason else next((known.name for known in grid.get_nodes() if str(known.node_id) == node), "")
    if registered and registered != name:
        reason = f"it was registered as {registered}, and says it is site {name}"
    if reason or not name:
        log.warning("node %s takes no part: %s", node, reason)
    else:
        claims.setdefault(name, []).append(int(node))


def relay(grid: Grid, driver: Pipe) -> None:
    """Pass bytes between the driver's process and the sites, until that process closes its end.

    That process tells which node each site's key was registered as, and is told which of them are connected.  Names that nodes
    have in Flower do not matter: anybody who reaches the SuperLink can register one twice.
    """
    post = GridPost(grid, {})
    with suppress(EOFError, OSError):  # the process that drove the run has ended
        while True:
            while driver.poll(0.0 if post.arrived or post.waiting else POLL):
                name, data = unframe(driver.recv_bytes())
                if not name and not data:
                    return
                if not name:
                    there = set(grid.get_node_ids())
                    post.nodes = {site: node for site, node in json.loads(data).items() if node in there}
                    driver.send_bytes(frame("", json.dumps(sorted(post.nodes)).encode()))
                else:
                    post.send(name, data)
            came = post.next(post.now() + (POLL if post.waiting else 0.0))
            if came is not None:
                site, reply, reason = came
                driver.send_bytes(frame(site, GONE + reason.encode() if reply is None else REPLY + reply))


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:500]
