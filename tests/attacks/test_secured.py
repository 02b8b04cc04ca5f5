"""A site that replies to secured sums alone refuses, by name, what would show its part; unequal questions give noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from eigenpact.errors import SiteError
from eigenpact.runtime import Plan
from eigenpact.runtime.fingerprint import rows_digest
from eigenpact.runtime.keys import Member, _signed_text, pack_roster
from eigenpact.runtime.letters import hello
from eigenpact.runtime.local import find_local
from tests.attacks.coordinator import Coordinator, Refused
from tests.attacks.secured import NAMES, NONCE, REQUIRED, Brought

FRESH = X25519PrivateKey.generate().public_key().public_bytes_raw()
"""A session's key of the coordinator's own."""


@pytest.fixture
def brought(tmp_path: Path) -> Brought:
    made = Brought(tmp_path)
    made.announce()
    return made


def signed(name: str, key: bytes, by: Ed25519PrivateKey) -> Member:
    """A member whom the coordinator made up, signed as it should be."""
    text = _signed_text("r1", 0, NONCE, name, key, b"")
    return Member(name, key, by.public_key().public_bytes_raw(), by.sign(text))


def scatter(X: Any, centre: Any) -> Any:
    return (X - centre).T @ (X - centre)


def test_an_honest_coordinator_gets_the_sum(brought: Brought) -> None:
    brought.begin()
    trace = brought.set_up()
    pooled = np.vstack(list(brought.rows.values()))
    (found,) = brought.summed("scatter_action", np.eye(8)[:, :2], trace=trace)
    np.testing.assert_allclose(found, scatter(pooled, pooled.mean(axis=0))[:, :2], atol=1e-8 * trace)


def test_unequal_arguments_give_noise_and_the_coordinator_is_told(brought: Brought) -> None:
    """The site that was asked for something else is not a difference of two sums."""
    brought.begin()
    trace = brought.set_up()
    Z, other = np.eye(8)[:, :2], np.eye(8)[:, 2:4]
    with pytest.raises(SiteError, match="'G' is beyond its bound; masks did not cancel"):
        brought.summed("scatter_action", Z, trace=trace, other={"quito": (other,)})
    with pytest.raises(SiteError, match="masks did not cancel"):  # and never again in this session
        brought.summed("scatter_action", Z, trace=trace)


def forged(members: list[Member], old: Member) -> dict[str, Callable[[], Any]]:
    """Rosters for lima that are wrong in some way."""
    lima, oslo, quito = members
    stranger = Ed25519PrivateKey.generate()
    return {
        "swapped": lambda: [lima, replace(oslo, key=FRESH), quito],
        "replayed": lambda: [lima, old, quito],
        "history left out": lambda: [lima, replace(oslo, history=b"" if oslo.history else b"[]"), quito],
        "unsigned": lambda: [lima, replace(oslo, signature=bytes(64)), quito],
        "wrong key": lambda: [lima, signed("oslo", FRESH, stranger), quito],
        "no point": lambda: [lima, replace(oslo, identity=b"\xff" * 32), quito],
        "duplicate": lambda: [lima, oslo, quito, oslo],
        "duplicate name": lambda: [lima, oslo, quito, signed("oslo", FRESH, stranger)],
        "Sybil": lambda: [lima, oslo, replace(oslo, name="quito", key=FRESH)],
        "Sybil with its key": lambda: [lima, oslo, quito, replace(oslo, name="rome")],
        "stranger": lambda: [lima, oslo, quito, signed("rome", FRESH, stranger)],
        "two": lambda: [lima, oslo],
        "alone": lambda: [lima],
        "nobody": list,
        "without it": lambda: [oslo, quito, signed("rome", FRESH, stranger)],
        "its key swapped": lambda: [replace(lima, key=FRESH), oslo, quito],
        "its signature swapped": lambda: [replace(lima, signature=oslo.signature), oslo, quito],
        "truncated": lambda: pack_roster(members)[:-20],
        "cut": lambda: [lima, replace(oslo, key=oslo.key[:-1]), quito],
        "tampered": lambda: pack_roster(members).replace(b'"oslo"', b'"oslp"'),
        "not text": lambda: pack_roster(members).replace(b"[", b"{"),
        "bytes": lambda: b"\xff\x00",
    }


WHY = {
    "swapped": "rule roster: key and history of site 'oslo' are not signed by it for this session: they are of another, or",
    "replayed": "rule roster: key and history of site 'oslo' are not signed by it for this session: they are of another, or",
    "history left out": "rule roster: key and history of site 'oslo' are not signed by it for this session",
    "unsigned": "rule roster: key and history of site 'oslo' are not signed by it",
    "wrong key": "rule participants: site 'oslo' has another key than the one known here",
    "no point": "rule participants: site 'oslo' has another key than the one known here",
    "duplicate": "rule roster: site 'oslo' stands there twice",
    "duplicate name": "rule roster: site 'oslo' stands there twice",
    "Sybil": "rule roster: two sites have one key; each must have its own",
    "Sybil with its key": "rule roster: two sites have one key; each must have its own",
    "stranger": "rule participants: site 'rome' is not among those whose keys are known here",
    "two": "rule min_participants = 3: the roster has 2 site(s), lima, oslo",
    "alone": "rule min_participants = 3: the roster has 1 site(s)",
    "nobody": "rule roster: site 'lima' does not stand there",
    "without it": "rule roster: site 'lima' does not stand there with the key it made for this session",
    "its key swapped": "rule roster: site 'lima' does not stand there with the key it made for this session",
    "its signature swapped": "rule roster: site 'lima' does not stand there with the key it made for this session",
    "truncated": "rule roster: it is no list of sites with their keys",
    "cut": "rule roster: a key or signature is too short or too long",
    "tampered": "rule participants: site 'oslp' is not among those whose keys are known here",
    "not text": "rule roster: it is no list of sites with their keys",
    "bytes": "rule roster: it is no list of sites with their keys",
}


@pytest.mark.parametrize("how", WHY)
def test_a_roster_that_is_wrong_is_refused_by_name(brought: Brought, how: str) -> None:
    """It ends the session: the right one comes too late."""
    (old,) = brought.members(b"o" * 32, ("oslo",))
    members = brought.members(NONCE)
    roster = forged(members, old)[how]()
    with pytest.raises(Refused) as refusal:
        brought.join("lima", roster)
    assert WHY[how] in str(refusal.value)
    assert any(WHY[how] in line for line in brought.sites["lima"].log)
    assert WHY[how].partition(":")[0] in brought.sites["lima"].ledger.read_text()
    with pytest.raises(Refused, match="rule roster: no session was begun here"):
        brought.join("lima", members)
    with pytest.raises(Refused, match=r"no session was begun|has ended here"):
        brought.runs["lima"].call("count_and_sum")


def test_without_pins_one_key_still_stands_for_one_site(tmp_path: Path) -> None:
    """In one process anybody may take part, but nobody twice."""
    brought = Brought(tmp_path, pinned=False)
    brought.announce()
    lima, oslo, _ = brought.members()
    with pytest.raises(Refused, match="two sites have one key"):
        brought.join("lima", [lima, oslo, replace(oslo, name="quito", key=FRESH)])


def test_a_roster_below_the_owners_minimum(tmp_path: Path) -> None:
    brought = Brought(tmp_path, REQUIRED | {"min_participants": 4})
    brought.announce()
    with pytest.raises(Refused, match=r"rule min_participants = 4: the roster has 3 site\(s\), lima, oslo, quito"):
        brought.join("lima", brought.members())


def test_a_roster_that_isolates_a_site(tmp_path: Path) -> None:
    """Sums over four, and later over three of them, are the fourth one's part."""
    brought = Brought(tmp_path, names=(*NAMES, "rome"))
    brought.announce()
    brought.begin()
    for run in brought.runs.values():
        run.begin_anew()
    members = brought.members(names=NAMES)
    with pytest.raises(Refused, match=r"rule min_apart = 0: .* the part of rome could be computed"):
        brought.join("lima", members)


def test_a_plan_that_is_not_secured(tmp_path: Path) -> None:
    brought = Brought(tmp_path)
    with pytest.raises(Refused, match=r"rule secure = required: .*run it with --secure"):
        brought.announce(secure=False)


def test_a_secured_plan_and_a_sum_without_a_session(tmp_path: Path) -> None:
    """Also at a site that would reply to plain sums, had it been told so."""
    brought = Brought(tmp_path, {"min_rows": 5})
    brought.announce()
    with pytest.raises(Refused, match="rule plan: sums of this run are secured, and no session was begun"):
        brought.runs["lima"].call("count_and_sum")
    brought.members()
    with pytest.raises(Refused, match=r"no session was begun|or not begun"):
        brought.runs["lima"].call("count_and_sum")


def test_a_session_that_was_not_announced(tmp_path: Path) -> None:
    brought = Brought(tmp_path, {"min_rows": 5})
    brought.announce(secure=False)
    with pytest.raises(Refused, match="rule plan: secured sums are not in the plan that was admitted"):
        brought.members()


def test_a_stale_session(brought: Brought) -> None:
    """A new epoch needs a new session; an old epoch's, or another run's, is refused."""
    brought.begin()
    members = brought.members()  # another in the same epoch ends the first
    with pytest.raises(Refused, match=r"no session was begun|or not begun"):
        brought.runs["lima"].call("count_and_sum")
    for run in brought.runs.values():
        run.begin_anew()
    with pytest.raises(Refused, match="rule roster: no session was begun here"):
        brought.join("lima", members)
    brought.begin()
    brought.summed("count_and_sum")
    for run in brought.runs.values():
        run.begin_anew()
    with pytest.raises(Refused, match="rule secure = required: this site replies to secured sums only; no session was begun"):
        brought.runs["lima"].call("count_and_sum")
    brought.runs["lima"].epoch = 0
    with pytest.raises(Refused, match="is in epoch 1; refused a session of epoch 0"):
        brought.members(names=("lima",))


def test_overflow_is_noise_to_the_end_of_the_session(brought: Brought) -> None:
    """A trace that is too small would make numbers wrap, and show their high digits; a refusal would tell of the site's own."""
    brought.begin()
    _, _, n, sums = brought.summed("count_and_sum")
    for run in brought.runs.values():
        run.call("keep_centre", sums / int(n), np.ones(8), np.float64(1e-3), kind="local")
    for _ in range(2):
        with pytest.raises(SiteError, match="masks did not cancel"):
            brought.summed("scatter_triangle", trace=1e-3)


def test_a_block_that_makes_a_product_overflow(brought: Brought) -> None:
    brought.begin()
    brought.set_up()
    lima = brought.runs["lima"]
    with pytest.raises(Refused, match=r"rule arguments|rule secure: 'G'"):
        lima.call("scatter_action", np.eye(8)[:, :2] * 2.0**60)
    with pytest.raises(Refused, match="rule secure: the session of this epoch has ended here"):
        lima.call("scatter_action", np.eye(8)[:, :2])


@pytest.mark.parametrize("kind", ["gather", "at", "max", "chain", "exchange", "consider"])
def test_collectives_that_show_single_replies(brought: Brought, kind: str) -> None:
    brought.begin()
    with pytest.raises(Refused, match=f"rule .*{kind}"):
        brought.runs["lima"].call("count_and_sum", kind=kind)


def test_a_site_that_allows_single_replies_keeps_them_out_of_secured_runs(tmp_path: Path) -> None:
    """Its policy allows them, and so may its plan: a session has none."""
    brought = Brought(tmp_path, REQUIRED | {"allow_gather": True})
    brought.announce()
    brought.begin()
    with pytest.raises(Refused, match="'gather' is not in the plan"):
        brought.runs["lima"].call("count_and_sum", kind="gather")


def test_sessions_are_counted(tmp_path: Path) -> None:
    """Every one is a row of the ledger, and a chance."""
    brought = Brought(tmp_path, REQUIRED | {"max_epochs": 2})
    brought.announce()
    brought.begin()
    brought.begin()
    with pytest.raises(Refused, match="rule max_epochs = 2: this run began as often already"):
        brought.members()


def test_a_coordinator_that_speaks_to_one_site_alone_learns_nothing(tmp_path: Path) -> None:
    """It plays the other two, with keys that it made: the site does not know them."""
    brought = Brought(tmp_path)
    brought.runs = {"lima": Coordinator(brought.sites["lima"], secure=True)}
    (lima,) = brought.members(names=("lima",))
    made_up = [
        signed(name, X25519PrivateKey.generate().public_key().public_bytes_raw(), Ed25519PrivateKey.generate())
        for name in NAMES[1:]
    ]
    with pytest.raises(Refused, match="rule participants: site 'oslo' has another key"):
        brought.join("lima", [lima, *made_up])


def test_the_digest_of_the_rows_is_told_in_mid_session(tmp_path: Path) -> None:
    """As a coordinator asks that resumes with sites that are still there: no pad of a sum is used for it, the session stays."""
    brought = Brought(tmp_path)
    kinds, lima = ("digest", "local", "sum"), "lima"
    for name, victim in brought.sites.items():
        run = Coordinator(victim, secure=True)
        listed = [name for name in victim.policy.functions if not find_local(name).site_means]
        plan = Plan("auto", (*listed, rows_digest.name), kinds, 50, 1, None, True)
        run._send(hello("r1", 0, "plan") | {"plan": plan.to_dict()})
        brought.runs[name] = run
    brought.begin()
    _, _, n, _ = brought.summed("count_and_sum")
    (digest,) = brought.runs[lima].aside("digest", -1, rows_digest, bytes(32))
    assert digest.dtype == np.uint8
    brought.runs[lima].step = 1
    assert brought.summed("count_and_sum")[2] == n
