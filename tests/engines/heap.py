"""A coordinator's process that keeps all bytes that came from sites, and writes down every number and byte that it holds.

``python -m tests.engines.heap KIT OUT [--secure]`` fits over FLARE.  It knows nothing of the sites' rows: what it must not
hold is looked for in OUT by whoever started it.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

import numpy as np

import eigenpact as ep
from eigenpact.engines.federation import relay

LEAST = 32
"""Bytes of what is written down: four numbers."""


def held() -> set[bytes]:
    """Contents of all arrays and bytes that can be reached; the collector itself does not track them."""
    seen: set[int] = set()
    found: set[bytes] = set()
    waiting: list[Any] = [*gc.get_objects(), *(frame.f_locals for frame in sys._current_frames().values())]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, np.ndarray) and thing.dtype != object:
            found.add(np.ascontiguousarray(thing).tobytes())
            waiting.append(thing.base)
        elif isinstance(thing, bytes | bytearray | memoryview):
            found.add(bytes(thing))
        waiting.extend(gc.get_referents(thing))
    return {content for content in found if len(content) >= LEAST}


def main(kit: str, out: str, *options: str) -> None:
    """Fit, look at every round and at the end, and write all to a file."""
    received: list[bytes] = []
    unframe = relay.unframe

    def tapped(message: bytes) -> tuple[str, bytes]:
        received.append(message)
        return unframe(message)

    relay.unframe = tapped
    found: set[bytes] = set()
    engine = ep.engines.NVFlare(kit, round_timeout=30)
    pca = ep.FederatedPCA(
        3, solver="krylov", random_state=0, engine=engine, secure="--secure" in options, callback=lambda _: found.update(held())
    )
    pca.fit()
    found |= held()
    assert received
    Path(out).write_bytes(b"\0".join([*sorted(found), *received]))
    np.save(f"{out}.npy", pca.components_)


if __name__ == "__main__":
    main(*sys.argv[1:])
