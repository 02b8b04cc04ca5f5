"""Three sites that reply to secured sums alone, and a coordinator that brings them whatever it likes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eigenpact.numerics.pairs import deviations
from eigenpact.runtime import Trust
from eigenpact.runtime.keys import (
    KEY_ASIDE,
    KEYS,
    ROSTER,
    ROSTER_ASIDE,
    Member,
    as_member,
    pack_roster,
    session_key,
    session_roster,
)
from eigenpact.runtime.local import Arrays
from eigenpact.runtime.secure_sum import Masked, combine, forms_of
from tests.attacks.coordinator import Coordinator, Victim, known

NAMES = ("lima", "oslo", "quito")
NONCE = (1).to_bytes(32, "little")
"""The number of the first session."""

REQUIRED = {"secure": "required", "min_rows": 5}


def rows_of(names: Sequence[str] = NAMES, d: int = 8) -> dict[str, Any]:
    """Rows for each site."""
    rng = np.random.default_rng(7)
    return {name: rng.normal(size=(30 + 5 * i, d)) * np.arange(1, d + 1) + i for i, name in enumerate(names)}


def public(key: bytes) -> str:
    return Ed25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw().hex()


class Brought:
    """Sites with keys of their own, each of which knows all, and a coordinator's run at each of them."""

    def __init__(
        self,
        folder: Path,
        rules: Mapping[str, Any] | None = None,
        names: Sequence[str] = NAMES,
        pinned: bool = True,
        rows: Mapping[str, Any] | None = None,
    ) -> None:
        keys = {name: name.encode().ljust(32, b"k") for name in names}
        pins = {name: public(key) for name, key in keys.items()} if pinned else None
        self.rows, rules = rows or rows_of(names), REQUIRED if rules is None else rules
        least = int(rules.get("min_participants", 3))
        self.sites = {name: Victim(X, folder, rules, name, trust=Trust(keys[name], pins, least)) for name, X in self.rows.items()}
        self.masked: dict[str, list[tuple[Arrays, Arrays]]] = {name: [] for name in names}
        self.runs: dict[str, Coordinator] = {}
        self.sessions = 0

    def announce(self, run: str = "r1", secure: bool = True, also: Sequence[str] = ()) -> None:
        """Have a run admitted everywhere."""
        self.runs = {name: Coordinator(victim, run, secure=secure, also=also) for name, victim in self.sites.items()}

    def members(self, nonce: bytes = b"", names: Sequence[str] | None = None) -> list[Member]:
        """Have sites make their keys, for a session of this number, or else the next one."""
        self.sessions += 1
        nonce = nonce or self.sessions.to_bytes(32, "little")
        return [as_member(name, self.runs[name].aside(KEYS, KEY_ASIDE, session_key, nonce)) for name in names or self.sites]

    def join(self, site: str, roster: bytes | Sequence[Member]) -> bytes:
        """Send a site a roster; the digest that it tells."""
        text = roster if isinstance(roster, bytes) else pack_roster(roster)
        (digest,) = self.runs[site].aside(ROSTER, ROSTER_ASIDE, session_roster, text)
        return digest.tobytes()

    def begin(self) -> None:
        """An honest session over all sites."""
        members = self.members()
        assert len({self.join(name, members) for name in self.sites}) == 1

    def set_up(self) -> float:
        """Agree on the pooled centre, as an honest coordinator would; the trace."""
        _, _, n, sums = self.summed("count_and_sum")
        mean = sums / int(n)
        trace = float(deviations(int(n), mean, *self.summed("second_moments_by_feature")[:2]).sum())
        for run in self.runs.values():
            run.call("keep_centre", mean, np.ones(len(mean)), np.float64(trace), kind="local")
        return trace

    def replies(self, function: str, *args: Any, other: Mapping[str, tuple[Any, ...]] | None = None) -> list[Arrays]:
        """What the sites answer; ``other`` are arguments for some of them."""
        return [run.call(function, *(other or {}).get(name, args)) for name, run in self.runs.items()]

    def summed(self, function: str, *args: Any, trace: float = 0.0, other: Mapping[str, tuple[Any, ...]] | None = None) -> Arrays:
        """The sum, as the coordinator finds it."""
        found = known(function)
        return combine(found, forms_of(found, trace, len(self.sites)), self.replies(function, *args, other=other))

    def listen(self, monkeypatch: Any) -> None:
        """From now on keep, by site, what each masks and what of that leaves."""
        encode = Masked.encode

        def heard(masked: Masked, function: Any, arrays: Arrays) -> Arrays:
            words = encode(masked, function, arrays)
            self.masked[masked.session.site].append((arrays, words))
            return words

        monkeypatch.setattr(Masked, "encode", heard)
