"""Requests and replies as bytes: late, lost, repeated, damaged, foreign."""

from __future__ import annotations

import json
from collections import deque

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eigenpact.errors import InputError, SiteError, TooFewSitesError, WireError
from eigenpact.runtime import (
    At,
    Driver,
    Gather,
    Journal,
    MailConnection,
    Progress,
    Reply,
    Request,
    Site,
    SiteEndpoint,
    SiteServer,
    Sum,
    local,
    wire,
)
from eigenpact.runtime import mail as mail_module
from eigenpact.runtime.letters import CHECKSUM, PREFIX, checksum, seal, unseal
from tests.runtime.programs import ROUNDS, bits, plain, remembering

executed: list[tuple[str, str]] = []

SECRET = 271828.1828459045


@local(takes={"v": "d"}, sends={"v": "d"}, keeps=("n",))
def noted(site: Site, v):
    """Add up the rows; note that this was executed."""
    executed.append((site.name, "noted"))
    return Reply(send=v + site.X.sum(axis=0), keep={"n": 1})


class LoopPost:
    """Carries messages at once; time passes only while nothing comes.  Hooks may replace a message by any number of others."""

    def __init__(self, endpoints):
        self.endpoints = endpoints
        self.time = 0.0
        self.replies = deque()
        self.sent = []
        self.on_request = lambda _site, data: [data]
        self.on_reply = lambda _site, data: [data]

    def now(self):
        return self.time

    def send(self, site, data):
        self.sent.append(site)
        for request in self.on_request(site, data):
            self.replies.extend((site, reply) for reply in self.on_reply(site, self.endpoints[site].handle(request)))

    def receive(self, until):
        if self.replies:
            return self.replies.popleft()
        self.time = max(self.time, until)
        return None


@pytest.fixture
def post(three_sites):
    executed.clear()
    return LoopPost({name: SiteEndpoint(SiteServer(name, X)) for name, X in three_sites.items()})


def connected(post, **options):
    return MailConnection(post, post.endpoints, round_timeout=10.0, **options)


def message(after=0, arrays=(), **header):
    """Bytes of a well-formed request."""
    payload = wire.pack(header, arrays)
    prefix = after.to_bytes(PREFIX, "little")
    return prefix + checksum(prefix + checksum(payload)) + payload


def asking(after=0, arrays=(), **changes):
    header = {"what": "request", "run": "r", "epoch": 0, "step": 1, "kind": "sum", "function": noted.name, "digest": ""}
    return message(after, arrays, **(header | changes))


def hello(run="r", epoch=0):
    return message(what="hello", run=run, epoch=epoch, step=0)


def answer(data):
    return unseal(memoryview(data))


def flipped(data, at=-1):
    damaged = bytearray(data)
    damaged[at] ^= 0x01
    return bytes(damaged)


def once(place, change):
    """A hook that changes one message to B, the one of that number, and leaves the others."""
    count = [0]

    def hook(site, data):
        count[0] += site == "B"
        return change(data) if site == "B" and count[0] == place else [data]

    return hook


def ran(post, program=plain, **options):
    driver = Driver(connected(post), **options)
    return driver.run(program), driver


def lost(driver):
    return [(m.sender, m.note) for m in driver.ledger if not m.function]


# -- both ends together -------------------------------------------------------------------------


@pytest.mark.parametrize("program", [plain, remembering])
def test_the_bits_and_the_ledger_are_those_of_sites_called_directly(post, connect, three_sites, program):
    direct = Driver(connect(three_sites))
    whole = direct.run(program)
    result, driver = ran(post, program)
    assert bits(result) == bits(whole)
    assert driver.ledger == direct.ledger
    assert post.time == 0.0


CHANGES = {
    "repeated": lambda data: [data, data, data],
    "damaged at the end": lambda data: [flipped(data)],
    "damaged at the start": lambda data: [flipped(data, 0)],
    "damaged in the checksum": lambda data: [flipped(data, PREFIX + 3)],
    "damaged in the header": lambda data: [flipped(data, PREFIX + CHECKSUM + 20)],
    "cut short": lambda data: [data[:-5]],
    "cut very short": lambda data: [data[:3]],
    "longer": lambda data: [data + b"more"],
    "empty": lambda _data: [b""],
    "damaged, then whole": lambda data: [flipped(data), data],
    "whole, then damaged": lambda data: [data, flipped(data)],
}


@pytest.mark.parametrize("way", ["on_request", "on_reply"])
@pytest.mark.parametrize("place", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("change", CHANGES)
def test_one_repeated_or_damaged_message_changes_nothing(post, connect, three_sites, way, place, change):
    """Not even for sites that keep a running sum: a step is executed once."""
    whole = Driver(connect(three_sites)).run(remembering)
    setattr(post, way, once(place, CHANGES[change]))
    result, driver = ran(post, remembering)
    assert bits(result) == bits(whole)
    assert driver.roster == ("A", "B", "C")
    assert post.time == 0.0
    assert len(post.sent) <= 3 * (2 + 2 + ROUNDS) + 1  # greeted twice; one message sent once more, or none


@pytest.mark.parametrize(
    ("way", "reason"),
    [("on_request", "damaged request: the checksum of"), ("on_reply", "damaged reply: the checksum of")],
)
def test_a_site_whose_messages_stay_damaged_is_asked_twice_and_dropped_when_its_time_is_over(post, way, reason):
    connection = connected(post)
    driver = Driver(connection)
    setattr(post, way, lambda site, data: [flipped(data)] if site == "B" else [data])
    result = driver.run(plain)
    assert result[0] == 9
    assert driver.roster == ("A", "C")
    ((site, note),) = lost(driver)
    assert site == "B"
    assert note.startswith(f"lost: {reason}")
    assert post.time == 10.0
    assert post.sent.count("B") == 1 + 2  # the greeting, then twice the first message of the run


def test_a_silent_site_costs_one_round_timeout(post):
    connection = connected(post)
    driver = Driver(connection)
    post.on_request = once(5, lambda _: [])  # greetings aside its third
    result = driver.run(plain)
    assert (result[0], driver.roster) == (9, ("A", "C"))
    assert lost(driver) == [("B", "lost: no answer within 10 s")]
    assert post.time == 10.0


def test_damage_does_not_buy_time(post):
    """A reply that arrives damaged just before the timeout, and then none: still one timeout."""
    connection = connected(post)
    driver = Driver(connection)
    replies = iter([[b"damaged"]])
    post.on_reply = lambda site, data: next(replies, []) if site == "B" else [data]
    receive = post.receive

    def late(until):
        came = receive(until)
        post.time += 9.0 if came == ("B", b"damaged") else 0.0
        return came

    post.receive = late
    driver.run(plain)
    assert driver.roster == ("A", "C")
    assert lost(driver)[0][1].startswith("lost: damaged reply")
    assert post.time == 10.0


def test_a_site_known_to_be_gone_is_dropped_at_once(post):
    connection = connected(post)
    driver = Driver(connection)
    send = post.send
    post.send = lambda site, data: post.replies.append((site, None)) if site == "B" else send(site, data)
    driver.run(plain)
    assert lost(driver) == [("B", "lost: its process or connection ended")]
    assert post.time == 0.0


def test_late_replies_are_no_answers_to_later_requests_but_bring_the_site_back(post, connect, three_sites):
    """B's reply to an early step comes epochs later; then B joins, and the answer is that of all."""
    held = []

    def holding(site, data):
        if site == "B" and answer(data)[0].get("step") == 4 and not held:
            held.append(data)
            return []
        return [data]

    post.on_reply = holding
    bases = []

    def callback(record):
        bases.append((record.sites, record.basis))
        if held and record.sites == 2 and len(bases) == 3:
            post.replies.extend([("B", held[0])] * 3)

    result, driver = ran(post, callback=callback)
    assert lost(driver) == [("B", "lost: no answer within 10 s"), ("B", "joined")]
    assert driver.roster == ("A", "B", "C")
    start = [basis for sites, basis in bases if sites == 2][-1]
    assert bits(result[:3]) == bits(Driver(connect(three_sites)).run(lambda _start, _state: plain(start, None))[:3])


def test_a_site_that_missed_the_greeting_of_an_epoch_is_not_asked_in_it(post, monkeypatch):
    """Its position is not known; its late greeting must not get it a request out of step."""
    monkeypatch.setattr(mail_module, "WINDOW", 1)  # so that the greeting comes before B's turn
    connection = connected(post)
    request = Request("r", 0, 1, "sum", noted.name, (np.zeros(3),))
    assert not any(r.lost or r.error for r in connection.call(request, dict.fromkeys("ABC", 0)))
    greeting = []
    post.on_reply = lambda site, data: greeting.append(data) or [] if site == "B" else [data]
    assert connection.positions("r", 0) == {"A": 1, "B": 0, "C": 1}
    assert connection.sites() == ("A", "C")
    post.on_reply = lambda _site, data: [data]
    post.replies.append(("B", greeting[0]))
    step = Request("r", 0, 2, "sum", noted.name, (np.zeros(3),))
    responses = list(connection.call(step, {"A": 1, "B": 0, "C": 1}))
    assert [(r.site, r.lost, r.error) for r in responses] == [("A", False, ""), ("B", True, ""), ("C", False, "")]
    assert responses[1].reason == "no answer within 10 s"
    assert connection.sites() == ("A", "B", "C")
    assert connection.positions("r", 0) == {"A": 2, "B": 1, "C": 2}


def test_a_site_restarted_unnoticed_is_lost_and_taken_back(post, connect, three_sites):
    """It has forgotten what it kept, so it cannot go on in this epoch; in the next one it can."""
    bases = []

    def callback(record):
        bases.append((record.sites, record.basis))
        if len(bases) == 2:
            post.endpoints["B"] = SiteEndpoint(SiteServer("B", three_sites["B"]))

    result, driver = ran(post, remembering, callback=callback)
    (_, note), joined = lost(driver)
    assert note.startswith("lost: out of step: site 'B' executed step 0")
    assert joined == ("B", "joined")
    start = [basis for sites, basis in bases if sites == 2][-1]
    fresh = Driver(connect(three_sites)).run(lambda _start, _state: remembering(start, None))
    assert bits(result) == bits(fresh)
    assert post.time == 0.0


def test_no_site_answers_at_all(post):
    post.on_reply = lambda _site, _data: []
    with pytest.raises(TooFewSitesError, match="none of 3 sites answered within 10 s; start them"):
        connected(post)


def test_no_site_answers_as_it_should_and_the_reason_is_told(post):
    """As all of them do whose kits have another key of the coordinator's."""
    post.on_reply = lambda _site, data: [data[:-1]]
    with pytest.raises(TooFewSitesError, match=r"none of 3 sites answered within 10 s, damaged reply: .*; start them"):
        connected(post)


def test_sites_that_do_not_answer_at_first_are_no_part_of_the_run(post):
    post.on_reply = lambda site, data: [] if site == "A" else [data]
    result, driver = ran(post)
    assert driver.roster == ("B", "C")
    assert result[0] == 11


class Killed(BaseException):
    """Stands for the end of the coordinator's process."""


def test_a_site_that_was_absent_at_first_joins_when_the_run_is_resumed(post, connect, three_sites, tmp_path):
    """It was meant to take part; others that come to a resumed run are strangers (test_driver_rejoin.py)."""

    def session(callback):
        journal = Journal(tmp_path / "run", {})
        try:
            return ran(post, plain, journal=journal, callback=callback)
        finally:
            journal.close()

    bases = []

    def kill(record):
        bases.append(record.basis)
        if record.round == 3:
            raise Killed

    post.on_reply = lambda site, data: [] if site == "A" else [data]
    with pytest.raises(Killed):
        session(kill)
    post.on_reply = lambda _site, data: [data]
    result, driver = session(None)
    assert (driver.roster, lost(driver)) == (("A", "B", "C"), [("A", "joined")])
    fresh = Driver(connect(three_sites)).run(lambda _start, _state: plain(bases[-1], None))
    assert bits(result[:3]) == bits(fresh[:3])
    again, second = session(None)
    assert (bits(again), second.roster) == (bits(result), driver.roster)


@pytest.mark.parametrize("n", [1, 40, 200])
def test_the_replies_held_are_bounded_whatever_the_number_of_sites(n):
    names = [f"{i:03}" for i in range(n)]
    post = LoopPost({name: SiteEndpoint(SiteServer(name, np.full((1, 2), float(name)))) for name in names})
    connection = connected(post)
    taken = most = 0
    before = len(post.sent)
    for response in connection.call(Request("r", 0, 1, "sum", noted.name, (np.zeros(2),)), dict.fromkeys(names, 0)):
        assert response.arrays[0][0] == float(names[taken])
        most = max(most, len(post.sent) - before - taken)
        taken += 1
    assert taken == n
    assert most == min(n, mail_module.WINDOW)


def test_graph_programs_are_refused(post):
    with pytest.raises(WireError, match="do not reach each other; run graph programs with engine='inprocess'"):
        connected(post).exchange(Request("r", 0, 1, "exchange", noted.name, ()), {})


# -- refusals -----------------------------------------------------------------------------------

FOREIGN = {
    "oversized": (b"\0" * 9000, "damaged", "message of 9000 bytes refused unread: at most 8000 are allowed here"),
    "damaged": (flipped(asking(arrays=[np.zeros(3)])), "damaged", "the checksum of "),
    "unknown function": (asking(function="os:system"), "error", "WireError: unknown function 'os:system': sites run only"),
    "unknown module": (asking(function="eigenpact:nothing/1"), "error", "WireError: unknown function"),
    "not a local function": (asking(function="eigenpact:stirred/1"), "error", "WireError: unknown function"),
    "wrong step": (asking(after=7, step=9, arrays=[np.zeros(3)]), "lost", "out of step: site 'B' executed step"),
    "wrong shape": (asking(run="new", arrays=[np.zeros(4)]), "error", "WireError: noted at site 'B'"),
    "too many arrays": (asking(run="new", arrays=[np.zeros(3)] * 2), "error", "WireError: noted at site 'B'"),
    "no header": (message(), "error", "WireError: message header: 'what' must be a text"),
    "a step that is no number": (asking(run="new", step="1"), "error", "message header: 'step' must be a whole number"),
    "a step that is not a number": (asking(run="new", step=float("nan")), "error", "'step' must be a whole number"),
    "an endless epoch": (asking(run="new", epoch=float("inf")), "error", "'epoch' must be a whole number"),
    "a truth for a step": (asking(run="new", step=True), "error", "'step' must be a whole number"),
    "a step of 64 bits": (asking(run="new", step=1 << 63), "error", "'step' must be a whole number of at most 63 bits"),
    "an epoch of 4300 digits": (asking(run="new", epoch=-(10**4299)), "error", "'epoch' must be a whole number of at most 63"),
    "a long digest": (asking(run="new", digest="x" * 257), "error", "'digest' must be a text of at most 256 characters"),
    "a function that is a list": (asking(function=[noted.name]), "error", "'function' must be a text"),
    "a greeting without a run": (message(what="hello", epoch=0, step=0), "error", "'run' must be a text"),
}


@pytest.fixture
def guarded():
    """A site with recognizable rows that takes small messages only."""
    executed.clear()
    return SiteEndpoint(SiteServer("B", np.full((2, 3), SECRET)), max_bytes=8000)


@pytest.mark.parametrize("what", FOREIGN)
def test_what_is_foreign_is_refused_with_the_reason_and_nothing_else(guarded, what):
    data, kind, reason = FOREIGN[what]
    reply = guarded.handle(data)
    header, arrays = answer(reply)
    assert reason in header[kind]
    assert arrays == ()
    assert set(header) <= {"site", "run", "epoch", "step", kind}
    assert np.float64(SECRET).tobytes() not in reply
    assert "271828" not in json.dumps(header)
    assert not executed


@pytest.mark.parametrize("what", FOREIGN)
@pytest.mark.parametrize("program", [plain, remembering])
def test_foreign_messages_between_the_others_do_the_run_no_harm(post, connect, three_sites, what, program):
    whole = Driver(connect(three_sites)).run(program)
    post.endpoints["B"] = SiteEndpoint(SiteServer("B", three_sites["B"]), max_bytes=8000)
    post.on_request = lambda site, data: [FOREIGN[what][0], data] if site == "B" else [data]
    result, driver = ran(post, program)
    assert bits(result) == bits(whole)
    assert driver.roster == ("A", "B", "C")
    assert not executed


def test_a_run_with_messages_a_site_finds_too_large_loses_it_and_says_why(post, three_sites):
    enough = len(hello("0" * 16))  # for greetings only
    post.endpoints["B"] = SiteEndpoint(SiteServer("B", three_sites["B"]), max_bytes=enough)
    _, driver = ran(post)
    (event,) = lost(driver)
    assert event[0] == "B"
    assert f"bytes refused unread: at most {enough} are allowed here" in event[1]


def test_a_reply_too_large_is_refused_unread(post):
    connection = connected(post, max_bytes=1000)
    driver = Driver(connection)
    post.on_reply = lambda site, data: [data + b"\0" * 2000] if site == "B" else [data]
    driver.run(plain)
    ((site, note),) = lost(driver)
    assert site == "B"
    assert "bytes refused unread: at most 1000 are allowed here" in note


@pytest.mark.parametrize("payload", [b"", b"\xff" * 40, b"\0" * 8 + b"{}", b"\x04" + b"\0" * 7 + b"[[]]"])
def test_a_reply_with_a_checksum_and_no_sense_is_as_good_as_damaged(post, payload):
    connection = connected(post)
    driver = Driver(connection)
    post.on_reply = lambda site, data: [seal(bytearray(payload))] if site == "B" else [data]
    driver.run(plain)
    assert driver.roster == ("A", "C")
    assert lost(driver)[0][1].startswith("lost: damaged reply")


def test_replies_in_another_sites_name_are_ignored(post, connect, three_sites):
    whole = Driver(connect(three_sites)).run(plain)
    post.on_reply = lambda site, data: [data, *([_renamed(data)] if site == "B" else [])]
    assert bits(ran(post)[0]) == bits(whole)


def _renamed(data):
    header, arrays = answer(data)
    return seal(wire.pack(header | {"site": "C"}, [2 * a for a in arrays]))


def test_a_reply_of_the_wrong_shape_is_refused(post):
    def other_shape(site, data):
        header, arrays = answer(data)
        return [seal(wire.pack(header, [np.zeros((7, 7)) for _ in arrays])) if site == "B" and header["step"] == 3 else data]

    post.on_reply = other_shape
    with pytest.raises(TooFewSitesError, match=r"lost B .its reply of action: .* has shape .7, 7"):
        ran(post, min_sites=3)


@pytest.mark.parametrize("value", ["3", -1, 1 << 70, 1.5, [2], None, True])
def test_a_site_that_tells_nonsense_of_its_steps_does_not_end_the_run(post, connect, three_sites, value):
    """It is asked as if it had done none; if it has, it says so itself and is left out."""

    def lying(site, data):
        header, arrays = answer(data)
        return [seal(wire.pack(header | {"last": value}, arrays)) if site == "B" and header.get("last") is not None else data]

    post.on_reply = lying
    assert bits(ran(post)[0]) == bits(Driver(connect(three_sites)).run(plain))


@pytest.mark.parametrize("value", ["3", -1, 1 << 70, [3], None, True])
def test_a_site_that_tells_no_number_of_features_is_no_part_of_the_run(post, value):
    def lying(site, data):
        header, arrays = answer(data)
        return [seal(wire.pack(header | {"n_features": value}, arrays)) if site == "B" else data]

    post.on_reply = lying
    assert connected(post).sites() == ("A", "C")


def test_a_reason_is_one_line_of_bounded_length(post):
    """A site must not write lines of its own into the coordinator's log or terminal."""

    def forging(site, data):
        header, _ = answer(data)
        forged = {key: header[key] for key in ("site", "run", "epoch", "step") if key in header}
        told = "\x1b[31mno\n2026-11-15 INFO the model is in /tmp/else " + "x" * 10_000
        return [seal(wire.pack(forged | {"lost": told})) if site == "B" and header.get("step") == 3 else data]

    post.on_reply = forging
    _, driver = ran(post)
    ((name, note), *_) = lost(driver)
    assert name == "B"
    assert note.startswith("lost: [31mno 2026-11-15")
    assert len(note) < 600


@local(sends={"x": ""})
def breaks_at_b(site: Site):
    """Fails at one site."""
    return 1.0 / (site.name != "B" or np.int64(0).item())


@local(sends={"x": ""})
def breaks_everywhere(_site: Site):
    """Fails at all sites."""
    raise MemoryError("1 TB")


@local(sends={"x": ""})
def asks_too_much_of_b(site: Site):
    """Tells the user of B what is wrong with what was asked."""
    if site.name == "B":
        raise InputError("n_local has no entry for site 'B'")
    return 1.0


def summing(function):
    async def program(_start, _state):
        for _ in range(3):
            total = await Sum(function)
            await Progress(basis=np.eye(3, 1))
        return float(total)

    return program


def test_a_site_at_which_a_function_fails_is_left_out_for_good(post):
    """It would fail again, so it is not taken back, although it answers."""
    result, driver = ran(post, summing(breaks_at_b))
    assert (result, driver.roster) == (2.0, ("A", "C"))
    assert lost(driver) == [("B", "lost: SiteError: breaks_at_b failed at site 'B': ZeroDivisionError: float division by zero")]


def test_a_site_at_which_a_function_fails_stops_the_run_if_it_is_needed(post):
    with pytest.raises(TooFewSitesError, match=r"lost B \(SiteError: breaks_at_b failed at site 'B': Zero.*min_sites is 3"):
        ran(post, summing(breaks_at_b), min_sites=3)


def test_a_function_that_fails_everywhere_ends_the_run(post):
    with pytest.raises(SiteError, match=r"breaks_everywhere at site 'A': SiteError: .* failed at site 'A': MemoryError: 1 TB"):
        ran(post, summing(breaks_everywhere))


def test_a_function_that_fails_where_it_ran_alone_ends_the_run(post):
    async def program(_start, _state):
        return await At("B", breaks_at_b)

    with pytest.raises(SiteError, match="breaks_at_b at site 'B'"):
        ran(post, program)


def test_what_is_wrong_with_the_input_ends_the_run_though_one_site_alone_tells(post):
    with pytest.raises(SiteError, match=r"asks_too_much_of_b at site 'B': InputError: .*n_local has no entry for site 'B'"):
        ran(post, summing(asks_too_much_of_b))


# -- any bytes at all ---------------------------------------------------------------------------

ENDPOINT = SiteEndpoint(SiteServer("B", np.full((2, 3), SECRET)), max_bytes=100_000)
WHOLE = asking(arrays=[np.arange(3.0)])

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # other tests may run at the same time

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@unhurried
@given(st.binary(max_size=400))
def test_any_bytes_are_answered_and_nothing_is_executed(data):
    executed.clear()
    header, arrays = answer(ENDPOINT.handle(data))
    assert "damaged" in header
    assert (arrays, executed) == ((), [])


@unhurried
@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(1, 255)), min_size=1, max_size=4, unique_by=lambda x: x[0]))
def test_any_damage_is_noticed_and_nothing_is_executed(changes):
    executed.clear()
    damaged = bytearray(WHOLE)
    for at, mask in changes:
        damaged[at] ^= mask
    header, arrays = answer(ENDPOINT.handle(damaged))
    assert set(header) == {"site", "damaged"}
    assert (arrays, executed) == ((), [])


@unhurried
@given(st.binary(max_size=200), st.integers(0, 2**64 - 1))
def test_any_payload_with_its_checksum_is_answered(payload, after):
    prefix = after.to_bytes(PREFIX, "little")
    executed.clear()
    header, arrays = answer(ENDPOINT.handle(prefix + checksum(prefix + checksum(payload)) + payload))
    assert "error" in header
    assert (arrays, executed) == ((), [])


@unhurried
@given(
    st.dictionaries(
        st.sampled_from(["what", "run", "epoch", "step", "kind", "function", "digest", "more"]),
        json_values | st.sampled_from(["hello", "request", noted.name, "r", 0, 1, "exchange", "local", "consider", "sum"]),
    ),
    st.integers(0, 3),
    st.sampled_from([(), (np.zeros(3),), (np.zeros(4),), (np.zeros((2, 2), dtype=bool), np.zeros(0))]),
)
def test_any_header_is_answered(header, after, arrays):
    endpoint = SiteEndpoint(SiteServer("B", np.full((2, 3), SECRET)))
    executed.clear()
    told, sent = answer(endpoint.handle(message(after, arrays, **header)))
    assert told["site"] == "B"
    if "error" in told:
        assert (sent, executed) == ((), [])
        assert "271828" not in told["error"]


def test_gather_works_by_mail(post, three_sites):
    async def program(_start, _state):
        return await Gather(noted, np.zeros(3))

    result, _ = ran(post, program)
    assert {name: value.tolist() for name, value in result.items()} == {n: X.sum(axis=0).tolist() for n, X in three_sites.items()}
