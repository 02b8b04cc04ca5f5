"""Rounds on one line that is written over and over: in a terminal and in a notebook, and nowhere else.

>>> told = RoundRecord(3, 2, None, 0.25, 100, 50, 0.1)
>>> line_of(told, 700)
'round 3: residual 0.25, 700 bytes so far, 2 sites'
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from ..runtime import RoundRecord

Callback = Callable[[RoundRecord], Any]


def line_of(record: RoundRecord, total: int) -> str:
    """A round in words; ``total`` are the bytes that have travelled so far."""
    residual = "unknown" if record.kkt is None else f"{record.kkt:.2g}"
    return f"round {record.round}: residual {residual}, {total} bytes so far, {record.sites} sites"


def is_shown(stream: TextIO | None) -> bool:
    """Whether somebody looks at a stream: a terminal, or the output of a cell of a notebook."""
    if stream is None or stream.closed:
        return False
    return type(stream).__module__.startswith("ipykernel") or stream.isatty()


@contextmanager
def shown_in_place(callback: Callback | None) -> Iterator[Callback | None]:
    """A callback that shows each round in the place of the one before, and calls the one given; the last round stays."""
    stream = sys.stderr
    if not is_shown(stream):
        yield callback
        return
    width = total = 0

    def show(record: RoundRecord) -> None:
        nonlocal width, total
        total += record.bytes_up + record.bytes_down
        line = line_of(record, total)
        stream.write(f"\r{line.ljust(width)}")
        stream.flush()
        width = len(line)
        if callback is not None:
            callback(record)

    try:
        yield show
    finally:
        if width:
            stream.write("\n")
            stream.flush()
