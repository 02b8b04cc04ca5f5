"""The ledger, condensed: what left a site, and one row per step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ..runtime import Ledger
from ..runtime.keys import session_key
from ..runtime.ledger import COORDINATOR, Message

SHOWN_SHAPES = 3


@dataclass(frozen=True)
class Left:
    """What a local function sent from sites: shapes of one message, messages and bytes of the busiest site, bytes of all."""

    function: str
    receiver: str
    shapes: str
    times: int
    bytes_per_site: int
    bytes: int
    setup: bool


@dataclass(frozen=True)
class Step:
    """Messages of one step that differ only in the site at the other end."""

    round: int
    function: str
    sender: str
    receiver: str
    shapes: str
    dtypes: str
    bytes_each: int
    note: str


def what_left(ledger: Ledger) -> list[Left]:
    """One row per local function and kind of receiver, in the order of the run; the coordinator's own site sends nothing.

    >>> ledger = Ledger()
    >>> ledger.sent(1, 0, 1, "scatter_action", ["A", "B"], [COORDINATOR], (((4, 2),), ("float64",), 64))
    >>> ledger.sent(2, 0, 2, "scatter_action", ["A", "B"], [COORDINATOR], (((4, 2),), ("float64",), 64))
    >>> what_left(ledger)
    [Left(function='scatter_action', receiver='coordinator', shapes='4 x 2', times=2, bytes_per_site=128, bytes=256, setup=False)]
    """
    groups: dict[tuple[str, str], list[Message]] = {}
    for message in ledger:
        if message.sender != COORDINATOR and message.note != "own":
            receiver = COORDINATOR if message.receiver == COORDINATOR else "another site"
            groups.setdefault((message.function, receiver), []).append(message)
    return [_left(function, receiver, messages) for (function, receiver), messages in groups.items()]


def sums_told(ledger: Ledger) -> str:
    """Whether the coordinator saw single sites' parts of sums, in words."""
    if were_secured(ledger):
        return "secured: the coordinator saw no site's part of a sum"
    return "plain: the coordinator saw every site's part of a sum"


def were_secured(ledger: Ledger) -> bool:
    """Whether sums were secured."""
    return any(message.function == session_key.short_name for message in ledger)


def steps(ledger: Ledger) -> list[Step]:
    """One row per step, way and shape; a single site is named, several are counted."""
    groups: dict[tuple[object, ...], list[Message]] = {}
    for m in ledger:
        way = m.sender == COORDINATOR, m.receiver == COORDINATOR
        groups.setdefault((m.epoch, m.step, m.round, m.function, way, m.shapes, m.dtypes, m.note), []).append(m)
    return [
        Step(
            round=first.round,
            function=first.function,
            sender=_ends(m.sender for m in messages),
            receiver=_ends(m.receiver for m in messages),
            shapes=shapes_text(first.shapes),
            dtypes=", ".join(dict.fromkeys(first.dtypes)),
            bytes_each=first.bytes,
            note=first.note,
        )
        for messages in groups.values()
        for first in messages[:1]
    ]


def shapes_text(shapes: Iterable[tuple[int, ...]]) -> str:
    """Shapes of a message's arrays for people.

    >>> shapes_text([(), (), (64,), (64, 10)])
    '2 numbers + 64 + 64 x 10'
    """
    sizes = [" x ".join(str(n) for n in shape) for shape in shapes]
    numbers = sizes.count("")
    words = [] if not numbers else ["number" if numbers == 1 else f"{numbers} numbers"]
    return " + ".join([*words, *(size for size in sizes if size)])


def bytes_text(size: float) -> str:
    """A number of bytes for people.

    >>> bytes_text(512), bytes_text(3_231_040)
    ('512 B', '3.2 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _left(function: str, receiver: str, messages: list[Message]) -> Left:
    per_site: Counter[str] = Counter()
    for message in messages:
        per_site[message.sender] += message.bytes
    shapes = list(dict.fromkeys(shapes_text(message.shapes) for message in messages))
    more = ", ..." if len(shapes) > SHOWN_SHAPES else ""
    return Left(
        function=function,
        receiver=receiver,
        shapes=", ".join(shapes[:SHOWN_SHAPES]) + more,
        times=max(Counter(message.sender for message in messages).values()),
        bytes_per_site=max(per_site.values()),
        bytes=sum(per_site.values()),
        setup=all(message.note.partition(",")[0] == "setup" for message in messages),
    )


def _ends(names: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(names))
    return distinct[0] if len(distinct) == 1 else f"{len(distinct)} sites"
