"""Sites of secured sums without a coordinator: sessions with their keys, and what they reply."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace

import numpy as np

from eigenpact.runtime.keys import Session, Trust, pack_roster
from eigenpact.runtime.local import local
from eigenpact.runtime.secure_sum import Masked


@local(
    takes={"Z": "d k"},
    sends={"n": "", "G": "d k", "sums": "d"},
    bound={"n": "count", "G": "trace", "sums": "rows"},
    name="tests:mixed",
)
def mixed(site, Z):  # noqa: ARG001
    """All three forms of numbers in one reply."""
    return np.int64(1), Z, Z[:, 0]


@local(takes={"trace": ""}, keeps=("trace",), means={"trace": "trace"}, once=True, setup=True, name="tests:tell_trace")
def tell_trace(site, trace):
    """What the unit of fixed numbers is found by."""


def names_of(n):
    return [f"site{i:02}" for i in range(n)]


def paired(n, seed=0):
    """Sessions of n sites as if they had agreed on keys; two are enough here, as they are for no coordinator."""
    names = names_of(n)
    key = {pair: hashlib.sha256(f"{seed} {pair}".encode()).digest() for pair in {(a, b) for a in names for b in names if a < b}}
    return {
        name: SimpleNamespace(
            site=name,
            names=tuple(names),
            digest=bytes(32),
            pairs={other: key[min(name, other), max(name, other)] for other in names if other != name},
        )
        for name in names
    }


def agreed(n):
    """Sessions of n sites that agreed on keys."""
    sessions = {name: Session(name, Trust(), "run", 0, bytes(32)) for name in names_of(n)}
    roster = pack_roster([s.member for s in sessions.values()])
    for session in sessions.values():
        session.join(roster)
    return sessions


def ends(sessions, trace=0.0):
    """The sites' sides of secured sums, told the trace if there is one."""
    masked = {name: Masked(session) for name, session in sessions.items()}
    for end in masked.values():
        if trace:
            end.note("local", tell_trace, 1, (np.float64(trace),))
    return masked
