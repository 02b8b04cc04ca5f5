"""Letters that are signed: what is not, or not by the right party, or for another site, or old, is refused and costs nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenpact.engines.federation.identities import KitIdentity, make_key
from eigenpact.errors import PolicyError, TooFewSitesError
from eigenpact.runtime import (
    Driver,
    Gate,
    Identity,
    MailConnection,
    Plan,
    Policy,
    SiteEndpoint,
    SiteLedger,
    SiteServer,
    Sum,
    local,
    read_site_ledger,
    wire,
)
from eigenpact.runtime.letters import SIGNATURE, Forged, Letter, hello, open_letter, seal, unseal

NAMES = ("A", "B")
ROWS = np.arange(24.0).reshape(8, 3)
ran: list[str] = []


@local(sends={"sums": "d"})
def sums_here(site: Any) -> Any:
    """Sums of the columns; notes that it ran."""
    ran.append(site.name)
    return site.X.sum(axis=0)


async def asks(_start: Any, _state: Any) -> Any:
    await Sum(sums_here)
    return await Sum(sums_here)


PLAN = Plan("toy", (sums_here.name,), ("sum",), 10)
POLICY = Policy.from_dict({"solvers": ["toy"], "functions": [sums_here.name], "min_rows": 1, "exact_replies": True})


@pytest.fixture(scope="module")
def identities(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Identity]:
    """Of a coordinator, two sites, and a stranger whom the others do not know."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("coordinator", *NAMES, "stranger")}
    keys = {name: make_key(folder) for name, folder in folders.items()}
    known = {name: key for name, key in keys.items() if name != "stranger"}
    return {name: KitIdentity(folder, name, keys if name == "stranger" else known) for name, folder in folders.items()}


class Wires:
    """Sites with gates and keys behind a wire that others may write to."""

    def __init__(self, folder: Path, identities: dict[str, Identity]) -> None:
        self.folder, self.identities, self.time = folder, identities, 0.0
        self.told: list[str] = []
        self.doubts: list[tuple[str, str]] = []
        self.sent: list[tuple[str, bytes]] = []
        self.replies: deque[tuple[str, bytes]] = deque()
        self.on_reply: Callable[[str, bytes], list[bytes]] = lambda _site, data: [data]
        self.ends = {name: self.site(name) for name in NAMES}

    def site(self, name: str) -> SiteEndpoint:
        gate = Gate(name, POLICY, SiteLedger(self.ledger(name)), n_rows=8, features=3)
        return SiteEndpoint(SiteServer(name, ROWS, gate=gate), tell=self.told.append, identity=self.identities[name])

    def ledger(self, name: str) -> Path:
        return self.folder / f"{name}.jsonl"

    def connection(self, who: str = "coordinator") -> MailConnection:
        identity = None if who == "nobody" else self.identities[who]
        doubt = lambda site, reason: self.doubts.append((site, reason))  # noqa: E731
        return MailConnection(self, NAMES, round_timeout=10.0, announces=True, features=3, identity=identity, tell=doubt)

    def now(self) -> float:
        return self.time

    def send(self, site: str, data: bytes) -> None:
        self.sent.append((site, data))
        self.replies.extend((site, reply) for reply in self.on_reply(site, self.ends[site].handle(data)))

    def receive(self, until: float) -> tuple[str, bytes] | None:
        if self.replies:
            return self.replies.popleft()
        self.time = max(self.time, until)
        return None


@pytest.fixture
def wires(tmp_path: Path, identities: dict[str, Identity]) -> Wires:
    ran.clear()
    return Wires(tmp_path, identities)


def test_a_run_with_signed_letters(wires: Wires) -> None:
    total = Driver(wires.connection(), plan=PLAN, min_sites=2).run(asks)
    np.testing.assert_array_equal(total, 2 * ROWS.sum(axis=0))
    assert (wires.told, wires.doubts) == ([], [])


@pytest.mark.parametrize("who", ["nobody", "stranger", "B"])
def test_a_coordinator_without_the_key_gets_nothing(wires: Wires, who: str) -> None:
    """Neither without a key, nor with one of elsewhere, nor with that of a site: nothing runs, nothing is written down."""
    with pytest.raises(TooFewSitesError, match=r"none of 2 sites answered|not signed by"):
        Driver(wires.connection(who), plan=PLAN, min_sites=1).run(asks)
    assert set(wires.told) == {"letter not signed by this federation's coordinator"}
    assert ran == []
    assert [read_site_ledger(wires.ledger(name)) for name in NAMES] == [[], []]


def signed(identities: dict[str, Identity], site: str, after: int = 0, **header: Any) -> bytes:
    return Letter(wire.pack(hello("r1", 0) | header), identities["coordinator"]).to(site, after)


def test_a_letter_is_for_one_site_and_one_step(identities: dict[str, Identity]) -> None:
    letter = signed(identities, "A", 3)
    after, name, header, _ = open_letter(memoryview(letter), "A", identities["A"])
    assert (after, header["run"], len(name)) == (3, "r1", 64)
    with pytest.raises(Forged, match="not signed by this federation's coordinator"):
        open_letter(memoryview(letter), "B", identities["B"])
    other = signed(identities, "A", 4)
    moved = other[:-SIGNATURE] + letter[-SIGNATURE:]
    with pytest.raises(Forged):
        open_letter(memoryview(moved), "A", identities["A"])


def test_a_reply_is_of_one_site(identities: dict[str, Identity]) -> None:
    reply = seal(wire.pack({"site": "A"}), identities["A"])
    assert unseal(memoryview(reply), "A", identities["coordinator"])[0] == {"site": "A"}
    for data, site in ((reply, "B"), (reply[:-SIGNATURE], "A"), (seal(wire.pack({"site": "A"}), identities["stranger"]), "A")):
        with pytest.raises(Forged, match=f"not signed by site '{site}'"):
            unseal(memoryview(data), site, identities["coordinator"])


def test_a_letter_is_not_a_reply(identities: dict[str, Identity]) -> None:
    """A site that had the coordinator sign bytes of its choice could not use them as anybody's reply."""
    payload = wire.pack({"site": "A"})
    as_letter = Letter(payload, identities["A"]).to("A", 0)
    with pytest.raises(Forged):
        unseal(memoryview(seal(payload)[:] + as_letter[-SIGNATURE:]), "A", identities["coordinator"])


def forged(identity: Identity | None) -> Callable[[str, bytes], list[bytes]]:
    """Before each true reply of A, one with other numbers."""

    def both(site: str, data: bytes) -> list[bytes]:
        header, arrays = wire.unpack(memoryview(data)[8:-SIGNATURE])
        return [seal(wire.pack(header, [1e6 + a for a in arrays]), identity), data] if site == "A" else [data]

    return both


@pytest.mark.parametrize("who", ["nobody", "stranger", "B", "coordinator"])
def test_replies_in_a_sites_name_are_not_believed(wires: Wires, who: str) -> None:
    """Whoever sends them: the true reply counts, the site stays, and the coordinator is told."""
    wires.on_reply = forged(wires.identities.get(who))
    driver = Driver(wires.connection(), plan=PLAN, min_sites=2)
    np.testing.assert_array_equal(driver.run(asks), 2 * ROWS.sum(axis=0))
    assert driver.roster == NAMES
    assert set(wires.doubts) == {("A", "refused: reply not signed by site 'A' of this federation")}


def test_a_site_that_is_replaced_is_lost_with_the_reason(wires: Wires) -> None:
    wires.on_reply = lambda site, data: forged(None)(site, data)[:1]
    with pytest.raises(TooFewSitesError, match="A: reply not signed by site 'A' of this federation"):
        Driver(wires.connection(), plan=PLAN, min_sites=2)


def test_a_true_reply_to_another_letter_is_not_taken_for_this_ones(wires: Wires) -> None:
    """The same run, epoch and step, recorded in an earlier life of the site: its numbers are of that time."""
    recorded: list[bytes] = []

    def swap(site: str, data: bytes) -> list[bytes]:
        header, arrays = wire.unpack(memoryview(data)[8:-SIGNATURE])
        if site == "A" and arrays:
            other = wire.pack(header | {"asked": "0" * 64}, [a + 1e6 for a in arrays])
            recorded.append(seal(other, wires.identities["A"]))
            return [recorded[-1], data]
        return [data]

    wires.on_reply = swap
    np.testing.assert_array_equal(Driver(wires.connection(), plan=PLAN, min_sites=2).run(asks), 2 * ROWS.sum(axis=0))
    assert len(recorded) == 2


def test_a_late_reply_of_a_site_that_is_not_asked_does_no_harm(wires: Wires) -> None:
    """It was asked before in the same words: its answer fits the run, the epoch and the step."""
    connection = wires.connection()
    connection.announce("r1", PLAN)
    greeting = Letter(wire.pack(hello("r1", 0)), wires.identities["coordinator"])
    wires.replies.append(("A", wires.ends["A"].handle(greeting.to("A", 0))))
    assert connection._ask(["B"], hello("r1", 0))["B"]["n_features"] == 3


def test_letters_of_a_run_that_is_over_are_refused(wires: Wires) -> None:
    """Somebody recorded them all; neither the site that answered them, nor its next process, answers them again."""
    Driver(wires.connection(), plan=PLAN, min_sites=2).run(asks)
    old = [data for site, data in wires.sent if site == "A"]
    Driver(wires.connection(), plan=PLAN, min_sites=2).run(asks)
    before = len(ran)
    for _life in range(2):
        for letter in old:
            header, arrays = unseal(memoryview(wires.ends["A"].handle(letter)), "A", wires.identities["coordinator"])
            assert arrays == ()
            assert header.keys() & {"refused", "lost"}
        wires.ends["A"] = wires.site("A")
    assert any(reason.startswith("rule plan: one that was sent later was admitted here") for reason in wires.told)
    assert len(ran) == before


def test_the_last_plan_is_not_admitted_by_another_process(wires: Wires) -> None:
    """The process that admitted it may be told twice, for a reply may be lost; the next one needs a new letter."""
    Driver(wires.connection(), plan=PLAN, min_sites=2).run(asks)
    plan = next(data for site, data in wires.sent if site == "A")
    assert "refused" not in unseal(memoryview(wires.ends["A"].handle(plan)), "A", wires.identities["coordinator"])[0]
    anew = wires.site("A")
    header, _ = unseal(memoryview(anew.handle(plan)), "A", wires.identities["coordinator"])
    assert header["refused"].startswith("rule plan: one that was sent later was admitted here; this is a repeat")


def test_a_signed_plan_says_when_it_was_sent(wires: Wires) -> None:
    letter = signed(wires.identities, "A", what="plan", plan=PLAN.to_dict())
    header, _ = unseal(memoryview(wires.ends["A"].handle(letter)), "A", wires.identities["coordinator"])
    assert header["error"].startswith("WireError: message header: 'sent' must tell")


@pytest.mark.parametrize("cut", [1, 10, 40, 63, 64, 65, 100])
def test_damage_is_damage_and_not_a_forgery(wires: Wires, cut: int) -> None:
    letter = signed(wires.identities, "A")
    header, _ = unseal(memoryview(wires.ends["A"].handle(letter[:-cut])), "A", wires.identities["coordinator"])
    assert ("refused" in header) == (cut == SIGNATURE)
    assert ("damaged" in header) == (cut != SIGNATURE)


def test_a_refused_site_is_named_to_a_coordinator_with_the_wrong_clock(wires: Wires, monkeypatch: pytest.MonkeyPatch) -> None:
    Driver(wires.connection(), plan=PLAN, min_sites=2).run(asks)
    monkeypatch.setattr("eigenpact.runtime.mail.time.time_ns", lambda: 5)
    with pytest.raises(PolicyError, match="rule plan: one that was sent later was admitted here"):
        Driver(wires.connection(), plan=PLAN, min_sites=2)
