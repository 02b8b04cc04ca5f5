"""A hostile coordinator: it speaks to a site's own end, under the policy of a new kit or another, and asks what it likes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from eigenpact.cli.site_settings import read_policy
from eigenpact.runtime import Gate, Plan, Policy, SiteEndpoint, SiteLedger, SiteServer, Trust, wire
from eigenpact.runtime.keys import (
    KEY_ASIDE,
    KEYS,
    ROSTER,
    ROSTER_ASIDE,
    as_member,
    pack_roster,
    session_key,
    session_roster,
)
from eigenpact.runtime.letters import CHECKSUM, PREFIX, checksum, hello
from eigenpact.runtime.local import LocalFunction, find_local
from eigenpact.runtime.policy import ALWAYS
from eigenpact.runtime.versions import row_hashes, version_of

OWN = "eigenpact:"
VERSIONS = {"spread": 2, "spread_by_feature": 2, "keep_centre": 2, "keep_own_centre": 2}


def full_name(function: str) -> str:
    return f"{OWN}{function}/{VERSIONS.get(function, 1)}"


class Refused(Exception):
    """The site did not answer, and said why."""


@dataclass
class Victim:
    """A site with rows X, its end, and what its owner would read."""

    X: Any
    folder: Path
    rules: Mapping[str, Any] = field(default_factory=dict)
    name: str = "lima"
    secret: bytes = b"x" * 32
    trust: Trust | None = None
    versioned: bool = False

    def __post_init__(self) -> None:
        self.policy = Policy.from_dict(read_policy(None).to_dict() | self._with_functions())
        self.ledger = self.folder / f"{self.name}.jsonl"
        sizes = {"n_rows": self.X.shape[0], "features": self.X.shape[1]}
        rows = row_hashes(self.X, self.secret) if self.versioned else None
        version = "v1" if rows is None else version_of(rows, self.secret)
        gate = Gate(self.name, self.policy, SiteLedger(self.ledger), **sizes, data=version, rows=rows)
        self.log: list[str] = []
        self.end = SiteEndpoint(
            SiteServer(self.name, self.X, gate=gate, secret=self.secret, trust=self.trust),
            self.policy.max_message_bytes,
            tell=self.log.append,
        )

    def _with_functions(self) -> dict[str, Any]:
        """The rules, with the functions of the solvers that they list."""
        from eigenpact.estimators.plans import functions_of

        rules = dict(self.rules)
        if "solvers" in rules:
            kinds = Policy.from_dict(read_policy(None).to_dict() | rules).kinds()
            own = {name for solver in rules["solvers"] for name in functions_of(solver, kinds)}
            rules["functions"] = sorted({*own, *rules.get("functions", ())})
        return rules


class Coordinator:
    """One run, announced with all that the policy lists; refusals are raised."""

    def __init__(
        self, victim: Victim, run: str = "r1", solver: str = "", *, min_nonzero: int = 0, secure: bool = False, also: Any = ()
    ) -> None:
        self._ask, self.run, self.epoch, self.step, self.replies = victim.end.handle, run, 0, 0, 0
        policy = victim.policy
        listed = [name for name in policy.functions if policy.shows_site_means or not find_local(name).site_means]
        functions, kinds = (*listed, *map(full_name, also)), tuple(sorted(ALWAYS))
        asked = solver or policy.solvers[0], functions, kinds, policy.max_rounds, 1
        plan = Plan(*asked, secure=secure, min_nonzero=min_nonzero)
        self._send(hello(run, 0, "plan") | {"plan": plan.to_dict()})

    def call(self, function: str, *args: Any, kind: str = "sum") -> tuple[np.ndarray[Any, Any], ...]:
        """Have a function run; its reply, without any check on this side."""
        header = {"what": "request", "run": self.run, "epoch": self.epoch, "step": self.step + 1, "kind": kind}
        header |= {"function": full_name(function), "digest": ""}
        arrays = self._send(header, tuple(np.asarray(a) for a in args), self.step)
        self.step += 1
        self.replies += bool(arrays)
        return arrays

    def aside(self, kind: str, step: int, function: LocalFunction, text: bytes) -> tuple[np.ndarray[Any, Any], ...]:
        """Ask what a session begins with, beside the steps; the steps begin anew."""
        header = {"what": "request", "run": self.run, "epoch": self.epoch, "step": step, "kind": kind}
        arrays = self._send(header | {"function": function.name, "digest": ""}, (np.frombuffer(text, dtype=np.uint8),))
        self.step = 0
        return arrays

    def begin_anew(self) -> None:
        """The next epoch: the site forgets what was agreed."""
        self.epoch, self.step = self.epoch + 1, 0

    def set_up(self, centre: Any = None, scale: Any = None, trace: float = 1e100) -> tuple[int, Any, Any]:
        """Agree on a centre and scale of one's own choice; rows, their mean and squared deviations, as the site told."""
        _, _, n, sums = self.call("count_and_sum")
        within, _, _ = self.call("spread_by_feature", sums / int(n))
        mean, ones = sums / int(n), np.ones(len(sums))
        chosen = mean if centre is None else centre, ones if scale is None else scale
        self.call("keep_centre", *chosen, np.float64(trace), kind="local")
        return int(n), mean, within

    def _send(self, header: dict[str, Any], args: tuple[Any, ...] = (), after: int = 0) -> tuple[np.ndarray[Any, Any], ...]:
        payload, before = wire.pack(header, args), after.to_bytes(PREFIX, "little")
        reply = self._ask(before + checksum(before + checksum(payload)) + bytes(payload))
        told, arrays = wire.unpack(memoryview(reply)[CHECKSUM:])
        for how in ("refused", "error", "lost", "damaged"):
            if how in told:
                raise Refused(f"{how}: {told[how]}")
        return arrays


def begin_session(coordinators: Mapping[str, Coordinator], nonce: bytes) -> None:
    """Bring the keys of several sites to each other, as an honest coordinator would."""
    join_session(coordinators, session_keys(coordinators, nonce))


def session_keys(coordinators: Mapping[str, Coordinator], nonce: bytes) -> bytes:
    """Ask several sites for their keys; the roster of all."""
    asked = {name: c.aside(KEYS, KEY_ASIDE, session_key, nonce) for name, c in coordinators.items()}
    return pack_roster([as_member(name, arrays) for name, arrays in asked.items()])


def join_session(coordinators: Mapping[str, Coordinator], roster: bytes) -> None:
    """Tell several sites their roster."""
    for coordinator in coordinators.values():
        coordinator.aside(ROSTER, ROSTER_ASIDE, session_roster, roster)


def known(function: str) -> Any:
    """The function as the site has it, for its declaration."""
    return find_local(full_name(function))
