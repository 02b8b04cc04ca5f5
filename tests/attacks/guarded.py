"""An engine by messages whose sites have gates, as between institutions, in one process: honest runs under a policy."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import eigenpact as ep
from eigenpact.runtime import MailConnection
from tests.attacks.coordinator import Victim


class Guarded:
    """Every site answers by bytes, behind the gate of the shipped policy or of one with other ``rules``."""

    spread, min_sites, costs = False, 1, ep.engines.InProcess().costs

    def __init__(self, rules: Mapping[str, Any] | None = None) -> None:
        self.rules, self.refusals = dict(rules or {}), []

    def execute(self, held: Any, job: Any, graph: Any = None) -> Any:  # noqa: ARG002
        with tempfile.TemporaryDirectory() as folder:
            self.sites = {name: Victim(X, Path(folder), self.rules, name) for name, X in held.items()}
            self.replies: list[tuple[str, bytes]] = []
            features = next(iter(held.values())).shape[1]
            try:
                return job(MailConnection(self, self.sites, round_timeout=5.0, announces=True, features=features))
            finally:
                self.refusals = [line for site in self.sites.values() for line in site.log]

    def now(self) -> float:
        return 0.0

    def send(self, site: str, data: bytes) -> None:
        self.replies.append((site, self.sites[site].end.handle(data)))

    def receive(self, _until: float) -> tuple[str, bytes] | None:
        return self.replies.pop(0) if self.replies else None
