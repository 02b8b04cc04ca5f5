"""As ``guarded.py``, with sites that last: their ledgers stay from run to run, and their rows and rules may change between."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import eigenpact as ep
from eigenpact.runtime import MailConnection
from tests.attacks.coordinator import Victim


class Lasting:
    """Sites whose ledgers lie in a folder; ``rules`` are those of all, ``own_rules`` of single ones besides."""

    spread, costs = False, ep.engines.InProcess().costs

    def __init__(self, folder: Path, rules: Mapping[str, Any], own_rules: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.folder, self.rules, self.own_rules = folder, dict(rules), dict(own_rules or {})
        self.min_sites = 1
        self.refusals: list[str] = []
        self.sites: dict[str, Victim] = {}

    def execute(self, held: Any, job: Any, graph: Any = None) -> Any:  # noqa: ARG002
        self.sites = {name: self.victim(name, X) for name, X in held.items()}
        self.min_sites = len(held)
        self.replies: list[tuple[str, bytes]] = []
        try:
            return job(MailConnection(self, self.sites, round_timeout=5.0, announces=True, features=self.features(held)))
        finally:
            self.refusals = [line for site in self.sites.values() for line in site.log]

    def victim(self, name: str, X: Any) -> Victim:
        return Victim(X, self.folder, self.rules | dict(self.own_rules.get(name, {})), name, versioned=True)

    @staticmethod
    def features(held: Any) -> int:
        return int(next(iter(held.values())).shape[1])

    def now(self) -> float:
        return 0.0

    def send(self, site: str, data: bytes) -> None:
        self.replies.append((site, self.sites[site].end.handle(data)))

    def receive(self, _until: float) -> tuple[str, bytes] | None:
        return self.replies.pop(0) if self.replies else None
