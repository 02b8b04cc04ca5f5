"""A party of a federation, in a process that has any release of eigenpact: this file uses only what all of them have.

``serve`` answers for sites at Unix sockets, by the end that answers also on FLARE and Flower; ``make`` writes kits with the
command line; ``do`` is a coordinator, which fits over sites at such sockets or on FLARE, and reads what others wrote.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from multiprocessing.connection import Client, Listener, wait
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

NAMES = ("bergen", "lima", "oslo")
FEATURES = ("age", "pulse", "pressure", "weight")
ROWS = (32, 32, 64)
DIED = 3
"""Exit code of a coordinator that is to end in mid-run."""


def tables() -> dict[str, Any]:
    """Small whole numbers of a power of two rows: their mean, and all sums of products about it, are exact in any order."""
    rng = np.random.default_rng(7)
    mixing = rng.integers(-3, 4, size=(4, 4))
    return {name: rng.integers(-9, 10, size=(n, 4)) @ mixing * 1.0 for name, n in zip(NAMES, ROWS, strict=True)}


class SocketPost:
    """Messages to sites at Unix sockets (site -> address), and back; ends the process instead of the ``die_at``-th message."""

    def __init__(self, addresses: dict[str, str], die_at: int = 0) -> None:
        opened = {address: Client(address, "AF_UNIX") for address in sorted(set(addresses.values()))}
        self._pipes = {site: opened[address] for site, address in addresses.items()}
        self._sent, self._die_at = 0, die_at
        self.letters: list[bytes] = []

    def now(self) -> float:
        return time.monotonic()

    def send(self, site: str, data: bytes) -> None:
        self._sent += 1
        if self._sent == self._die_at:
            os._exit(DIED)
        self.letters.append(bytes(data))
        self._pipes[site].send((site, bytes(data)))

    def receive(self, until: float) -> tuple[str, bytes | None] | None:
        ready: list[Any] = wait(set(self._pipes.values()), max(0.0, until - self.now()))
        return ready[0].recv() if ready else None

    def close(self) -> None:
        for pipe in set(self._pipes.values()):
            pipe.close()


def serve(told: dict[str, Any]) -> None:
    """Answer for sites: at each address those whose ``site.json`` are given there, by name."""
    import eigenpact

    if told["speaks"]:  # as a later release might
        from eigenpact.runtime import protocol

        protocol.OLDEST, protocol.NEWEST = told["speaks"]
    begun = [listen(address, facts) for address, facts in told["facts"].items()]
    print(eigenpact.__version__, flush=True)
    for thread in begun:
        thread.join()


def listen(address: str, facts: dict[str, str]) -> Thread:
    """Answer at an address from now on, in a thread."""
    listener = Listener(address, "AF_UNIX")
    thread = Thread(target=_answer, args=(listener, facts), daemon=True)
    thread.start()
    return thread


def _answer(listener: Listener, facts: dict[str, str]) -> None:
    """Each coordinator that connects finds the sites as just started."""
    from eigenpact.engines.federation.sites import SiteFacts

    while True:
        with listener.accept() as pipe:
            ends = {name: SiteFacts.read(path, "the test").stand_ready()[0] for name, path in facts.items()}
            try:
                while True:
                    site, data = pipe.recv()
                    pipe.send((site, ends[site].handle(data)))
            except (EOFError, OSError):
                pass


def fit(asked: dict[str, Any], post: SocketPost | None = None) -> dict[str, Any]:
    """A joint PCA over sites, by a coordinator with this release: its numbers to the bit, or why there are none.

    ``asked`` has the coordinator's ``kit``, the ``addresses`` of sites, the ``options`` of the estimator, and perhaps a ``model``
    to write and the message to ``die_at``.
    """
    import eigenpact as ep
    from eigenpact.engines.federation.engine import OpenFederation
    from eigenpact.engines.flare.kits import Kit

    kit = Kit.read(asked["kit"], "coordinator")
    post = post or SocketPost(asked["addresses"], asked.get("die_at", 0))
    costs, sites = ep.engines.NVFlare.costs, tuple(sorted(asked["addresses"]))
    engine = OpenFederation("nvflare", post, sites, kit.federation.features, costs, len(sites), 60.0, kit.identity())
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("eigenpact.coordinator")
    log.addHandler(handler)
    log.propagate = False
    try:
        pca = ep.FederatedPCA(2, engine=engine, max_rounds=300, random_state=0, **asked["options"]).fit()
        if "model" in asked:
            ep.save_model(pca, asked["model"])
    except ep.errors.EigenpactError as error:
        return {"error": f"{type(error).__name__}: {error}", "log": heard}
    finally:
        log.removeHandler(handler)
        post.close()
    numbers = {name: getattr(pca, name).tobytes().hex() for name in ("components_", "explained_variance_", "mean_")}
    return numbers | {"sites": list(pca.sites_), "rounds": pca.n_rounds_, "log": heard, "release": ep.__version__}


def fit_on_flare(asked: dict[str, Any]) -> dict[str, Any]:
    """The same over FLARE, by its own way to the sites."""
    import eigenpact as ep

    engine = ep.engines.NVFlare(asked["kit"], round_timeout=60, start_timeout=90)
    pca = ep.FederatedPCA(2, engine=engine, max_rounds=300, random_state=0, **asked["options"]).fit()
    return {"components_": pca.components_.tobytes().hex(), "sites": list(pca.sites_), "release": ep.__version__}


def make(folder: str) -> None:
    """Kits for FLARE, of plain and of secured sums, and for Flower, as the command line writes them; tables, and a Flower App."""
    from eigenpact.cli import app

    place = Path(folder)
    for engine, options in {"plain": ["--plain-sums"], "secured": [], "flower": ["--engine", "flower"]}.items():
        facts = {"name": engine, "coordinator": "localhost:65001", "sites": NAMES, "features": FEATURES}
        (place / f"{engine}.toml").write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in facts.items()))
        command(app, "federation", "init", str(place / f"{engine}.toml"), "-o", str(place / engine), *options)
        for name, X in tables().items():
            lines = [
                ",".join(["id", *FEATURES]),
                *(",".join([f"{name}{i}", *map(repr, row)]) for i, row in enumerate(X.tolist())),
            ]
            (place / engine / name / "patients.csv").write_text("\n".join(lines) + "\n")
    command(app, "federation", "app", str(place / "app"))
    for name in NAMES:
        start(place / "plain" / name)
        start(place / "secured" / name)


def command(app: Any, *words: str) -> None:
    """A command of eigenpact, in this process; what it prints goes to standard error."""
    from contextlib import redirect_stdout

    with redirect_stdout(sys.stderr):
        app(list(words), standalone_mode=False)


def start(kit: Path) -> None:
    """What ``eigenpact site start`` writes before FLARE takes over: the kit's table and policy as they are now."""
    from eigenpact.cli.kits import find_kit
    from eigenpact.cli.site_settings import SiteFile, read_policy

    owned = find_kit(kit, "site")
    site = SiteFile.given(kit, None, None, None, None)
    site.write_facts(owned, read_policy(site.policy, secure=owned.federation.secure))


def read(folder: str) -> dict[str, Any]:
    """What this release reads of kits and ledgers in a folder that another has made."""
    from eigenpact.cli.kits import find_kit
    from eigenpact.runtime import read_site_ledger

    kits = {party: find_kit(Path(folder) / party, ("site", "coordinator")) for party in (*NAMES, "coordinator")}
    until = {party: kit.expires().isoformat() for party, kit in kits.items()}
    rows = {name: len(read_site_ledger(Path(folder) / name / "ledger.jsonl")) for name in NAMES}
    return {"until": until, "rows": rows}


if __name__ == "__main__":
    what, told = sys.argv[1:]
    if what == "serve":
        serve(json.loads(told))
    elif what == "make":
        make(told)
    else:
        known = {"fit": fit, "fit_on_flare": fit_on_flare, "read": read}
        print(json.dumps([known[name](asked) for name, asked in json.loads(told)]))
