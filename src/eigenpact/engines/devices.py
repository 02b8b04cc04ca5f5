"""Which device an engine multiplies a site's rows on: one GPU for each process of a machine, or for each site of one process."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from ..numerics.on_device import OnDevice
from ..numerics.sources import RowSource

AUTO = "auto"
"""The GPU whose turn it is; where there is none, rows stay where they are."""


def check_device(device: str | None) -> None:
    """Refuse what names no device."""
    if device is not None and not (isinstance(device, str) and device):
        raise InputError(f"device={device!r} must be {AUTO!r}, a device as torch names it, such as 'cuda:0', or None")


def visible() -> tuple[str, ...]:
    """The GPUs that torch sees in this process, by the names that the system gave them where it gave some, else by number."""
    if importlib.util.find_spec("torch") is None:
        return ()
    count = int(importlib.import_module("torch").cuda.device_count())
    told = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return tuple(told[:count]) if len(told) >= count else tuple(map(str, range(count)))


def in_turn(device: str | None, turn: int, count: int | None = None) -> str | None:
    """The device for the process, or site, with this number on its machine; None for rows that stay where they are.

    ``count`` is the number of GPUs, those that torch sees by default.

    >>> in_turn("auto", 5, count=4), in_turn("auto", 0, count=0), in_turn("cuda:2", 1), in_turn(None, 1)
    ('cuda:1', None, 'cuda:2', None)
    """
    if device != AUTO:
        return device
    count = len(visible()) if count is None else count
    return f"cuda:{turn % count}" if count else None


def by_worker(device: str | None, workers: Mapping[str, tuple[str, Sequence[str]]]) -> dict[str, str | None]:
    """Worker -> device, from the host of each and the GPUs that it sees, in the order of turns.

    Workers whose cluster shows each of them a GPU of its own first, as dask-cuda does, take that; those of a host that see the
    same ones take them in turn.

    >>> by_worker("auto", {"a": ("host", ["0", "1"]), "b": ("host", ["1", "0"]), "c": ("other", ["0"])})
    {'a': 'cuda:0', 'b': 'cuda:0', 'c': 'cuda:0'}
    >>> by_worker("auto", {"a": ("host", ["0", "1"]), "b": ("host", ["0", "1"]), "c": ("host", ["0", "1"])})
    {'a': 'cuda:0', 'b': 'cuda:1', 'c': 'cuda:0'}
    """
    chosen: dict[str, str | None] = {}
    for host in dict.fromkeys(host for host, _ in workers.values()):
        here = {name: seen for name, (at, seen) in workers.items() if at == host}
        first = [seen[0] for seen in here.values() if seen]
        apart = len(set(first)) == len(first)
        for turn, (name, seen) in enumerate(here.items()):
            chosen[name] = in_turn(device, 0 if apart else turn, len(seen))
    return {name: chosen[name] for name in workers}


def placed(X: Any, device: str | None) -> Any:
    """Dense rows of numpy, or of a file, so that they are multiplied on the device; all others as they are."""
    dense = isinstance(X, np.ndarray) or (isinstance(X, RowSource) and not X.sparse and not isinstance(X, OnDevice))
    return OnDevice(X, device) if device is not None and dense else X
