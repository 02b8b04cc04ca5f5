"""A coordinator's process that keeps all bytes that came from sites, and writes down every number and byte that it holds.

``python -m tests.engines.heap ENGINE WHERE OUT SOLVER [--secure]`` fits over FLARE or Flower (WHERE is the coordinator's kit),
whose sites have rows that it knows nothing of, or on a Dask cluster (WHERE is the scheduler's address), to which it brings rows.
Under MPI rank 0 calls :func:`looked_at`.  What a coordinator must not hold is looked for in OUT by whoever started it.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import eigenpact as ep
from eigenpact.runtime import Request, Response
from eigenpact.runtime.secure_sum import Masked, _as_words, forms_of
from eigenpact.runtime.site import SiteServer
from tests.engines import conformance

ROOT = Path(__file__).parents[2]
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


def looked_at(engine: Any, where: Any, tap: str, out: Path, solver: str, secure: bool, sites: Any = None) -> Any:
    """Fit, keep what ``tap`` of ``where`` receives, look at every round and at the end, and write all to a file."""
    received: list[bytes] = []
    function: Callable[..., Any] = getattr(where, tap)

    def tapped(*args: Any, **options: Any) -> Any:
        came = function(*args, **options)
        parts = came if isinstance(came, tuple) else (came,)
        received.extend(bytes(part) for part in parts if isinstance(part, bytes | bytearray | memoryview))
        return came

    found: set[bytes] = set()
    with mock.patch.object(where, tap, tapped):
        pca = ep.FederatedPCA(
            3, solver=solver, random_state=0, engine=engine, secure=secure, callback=lambda _: found.update(held())
        ).fit(sites)
    found |= held()
    assert received
    out.write_bytes(b"\0".join([*sorted(found), *received]))
    out.with_suffix(".json").write_text(json.dumps(conformance.of_model(pca)))
    return pca


def true_replies(sites: Mapping[str, Any], solver: str, secure: bool) -> list[bytes]:
    """What sites answer before it is masked, as bytes: numbers, and the words that masks are added to."""
    needles: list[bytes] = []
    encode, answer = Masked.encode, SiteServer._answer

    def heard(masked: Masked, function: Any, arrays: Any) -> Any:
        forms = forms_of(function, masked._trace, len(masked.session.names))
        needles.extend(a.tobytes() for a in arrays)
        needles.extend(_as_words(label, a, form).tobytes() for a, (label, form) in zip(arrays, forms.items(), strict=True))
        return encode(masked, function, arrays)

    def answered(server: SiteServer, request: Request, *rest: Any) -> Response:
        response = answer(server, request, *rest)
        needles.extend(a.tobytes() for a in response.arrays if not secure)
        return response

    with mock.patch.object(Masked, "encode", heard), mock.patch.object(SiteServer, "_answer", answered):
        one = ep.engines.InProcess(threads=1)
        ep.FederatedPCA(3, solver=solver, random_state=0, engine=one, secure=secure).fit(sites)
    found = [needle for needle in dict.fromkeys(needles) if len(needle) >= 100]
    assert len(found) >= 2 * len(sites)
    return found


def sites_of(seed: int, d: int = 16) -> dict[str, Any]:
    """Three sites whose rows no other test has."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(40, d)) * np.linspace(4, 1, d) + i for i, name in enumerate(("accra", "lima", "quito"))}


def elsewhere(engine: str, where: object, folder: Path, solver: str, *options: str) -> tuple[bytes, conformance.Answer]:
    """All that a coordinator's process held, started for it, and what its fit ended with."""
    out = folder / "held.bytes"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-m", "tests.engines.heap", engine, str(where), str(out), solver, *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return out.read_bytes(), json.loads(out.with_suffix(".json").read_text())


def main(engine: str, where: str, out: str, solver: str, *options: str) -> None:
    """Fit over one of the engines."""
    secure = "--secure" in options
    if engine == "dask":
        from eigenpact.engines.dask import DaskPost

        looked_at(ep.engines.Dask(address=where), DaskPost, "receive", Path(out), solver, secure, sites_of(seed=len(options)))
        return
    from eigenpact.engines.federation import relay

    kinds = {"flare": ep.engines.NVFlare, "flower": ep.engines.Flower}
    looked_at(kinds[engine](where, round_timeout=60), relay, "unframe", Path(out), solver, secure)


if __name__ == "__main__":
    main(*sys.argv[1:])
