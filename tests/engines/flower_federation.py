"""A Flower federation on loopback for tests: real kits, a real SuperLink and SuperNodes, TLS, node keys, free ports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

import eigenpact as ep
from eigenpact.engines.federation.identities import public_of
from eigenpact.engines.federation.kits import Federation
from eigenpact.engines.federation.trust import own_from
from eigenpact.engines.flower.engine import serving
from eigenpact.engines.flower.kits import FlowerKit, make_flower_kits
from eigenpact.runtime import SiteLedger
from tests.engines import conformance
from tests.engines.federation import ROOT, UP_WITHIN, free_port

CONNECTED = "SuperNode ID:"

CASES = (
    conformance.Case("auto", options={"solver": "auto"}),
    conformance.Case("krylov", options={"solver": "krylov", "max_rounds": 4}),
    conformance.Case("faps", options={"solver": ep.solvers.FAPS(start="random"), "max_rounds": 3}),
    conformance.Case("hot-potato", options={"solver": "hot-potato"}),
    conformance.Case("gram, secured", options={"solver": "gram", "secure": True}),
)
"""The solver with fewest rounds, one that takes several, one with kept state, a chain from site to site, and secured sums."""


class FlowerParties:
    """Kits in a folder, and the processes that were started from them: each in a session of its own, ended as a whole."""

    def __init__(self, folder: Path, sites: Mapping[str, Any], policy: Mapping[str, Any], **options: Any) -> None:
        self.folder = folder
        features = options.pop("features", next(iter(sites.values())).shape[1])
        host = options.pop("host", "localhost")
        self.signed = options.pop("signed", True)
        make_flower_kits(Federation("test", host, free_port(), tuple(sites), features, engine="flower"), folder)
        self.kit = FlowerKit.read(folder / "coordinator", "coordinator")
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        self.sources: dict[str, Path] = {}  # of sites that run another release
        self._stack = ExitStack()
        for name, X in sites.items():
            self.describe(name, X, policy)

    def describe(self, name: str, X: Any, policy: Mapping[str, Any], **facts: Any) -> None:
        """Write a site's rows and what its owner says of it."""
        kit = FlowerKit.read(self.folder / name, "site")
        np.save(kit.folder / "rows.npy", X)
        if not self.signed:  # then sites know each other by their policies alone
            secrets = {site: SiteLedger(self.folder / site / "ledger.jsonl").secret() for site in kit.federation.sites}
            policy = {"participants": {site: public_of(own_from(secret)) for site, secret in secrets.items()}} | dict(policy)
        described = {
            "name": name,
            "opener": "tests.engines.flare_opener:load",
            "data": str(kit.folder / "rows.npy"),
            "features": kit.federation.features,
            "policy": dict(policy),
            "ledger": str(kit.folder / "ledger.jsonl"),
            "coordinator_timeout": 60.0,
            "kit": str(kit.folder) if self.signed else "",
        }
        (kit.folder / "site.json").write_text(json.dumps(described | facts))

    def start(self) -> None:
        """Start the SuperLink and all sites, and wait until those are connected."""
        self._stack.enter_context(serving(self.kit))
        self.start_sites(*self.kit.federation.sites)

    def start_sites(self, *names: str, connects: bool = True) -> None:
        """Start sites and wait until they are connected, unless they never will be."""
        before = {name: self.console(name).count(CONNECTED) for name in names}
        for name in names:
            if name in self.nodes:
                self.nodes[name].wait()  # killed before
            kit = FlowerKit.read(self.folder / name, "site")
            path = os.pathsep.join([str(self.sources.get(name, ROOT / "src")), str(ROOT)])
            environment = os.environ | kit.environment() | {"PYTHONPATH": path}
            with open(kit.folder / "console.txt", "ab") as console:
                self.nodes[name] = subprocess.Popen(
                    kit.supernode(kit.folder / "site.json", free_port()),
                    env=environment, stdout=console, stderr=console, start_new_session=True,
                )  # fmt: skip
        for name in names:
            if connects:
                self.wait_for(name, CONNECTED, before[name] + 1)

    def console(self, name: str) -> str:
        """All that a site's processes have written."""
        path = self.folder / name / "console.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for(self, name: str, text: str, times: int = 1) -> None:
        """Wait until a site has written a text so often."""
        deadline = time.monotonic() + UP_WITHIN
        while self.console(name).count(text) < times:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} has not written {text!r}:\n{self.console(name)[-3000:]}")
            time.sleep(0.1)

    def signal(self, name: str, what: int) -> None:
        """Send a signal to all processes of a site."""
        os.killpg(self.nodes[name].pid, what)

    def stop(self) -> None:
        """Kill everything that was started here."""
        for process in self.nodes.values():
            with suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._stack.close()
