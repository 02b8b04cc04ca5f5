"""Messages made to break the end that reads them: at a site behind its gate, and at the coordinator."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenpact.errors import EigenpactError, TooFewSitesError
from eigenpact.runtime import (
    Driver,
    Gate,
    Local,
    MailConnection,
    Plan,
    Policy,
    Request,
    Site,
    SiteEndpoint,
    SiteLedger,
    SiteServer,
    Sum,
    local,
)
from eigenpact.runtime.headers import HEADER_A_FEATURE, MAX_HEADER
from eigenpact.runtime.letters import PREFIX, checksum, seal, signed_by, unseal
from tests.runtime.test_mail import LoopPost

MEMORY = 1 << 20
"""What reading may take besides three times the message's length."""


@local(takes={"v": "d"}, sends={"v": "d"})
def total(site: Site, v: Any) -> Any:
    """Add up the rows."""
    return v + site.X.sum(axis=0)


POLICY = Policy(("gram",), (total.name,), min_rows=5, max_rounds=50)


def site_of(folder: Path, features: tuple[str, ...] = ("a", "b", "c", "d"), tell: Any = lambda _: None) -> SiteEndpoint:
    gate = Gate("lima", POLICY, SiteLedger(folder / "ledger"), n_rows=6, features=features)
    return SiteEndpoint(SiteServer("lima", np.ones((6, len(features))), gate=gate), POLICY.max_message_bytes, tell)


def payload(text: bytes, body: bytes = b"") -> bytes:
    """What follows the checksum, with any text for a header."""
    text += b" " * (-(8 + len(text)) % 64)
    return len(text).to_bytes(8, "little") + text + body


def letter(text: bytes, body: bytes = b"") -> bytes:
    inside, after = payload(text, body), bytes(PREFIX)
    return after + checksum(after + checksum(inside)) + inside


def hello(**more: Any) -> dict[str, Any]:
    return {"what": "hello", "run": "r", "epoch": 0, "step": 0} | more


def request(**more: Any) -> dict[str, Any]:
    return hello(what="request", kind="sum", function=total.name, digest="", step=1) | more


def texted(header: Any, arrays: Any = ()) -> bytes:
    return json.dumps([header, arrays]).encode()


HELLO, DIGITS = json.dumps(hello()).encode(), b"9" * 4300

HEADERS = {
    "two long axes": b"[" + HELLO + b',[["float64",[' + b",".join([DIGITS] * 2) + b"]]]]",
    "many long axes": b"[" + HELLO + b',[["float64",[' + b",".join([DIGITS] * 300) + b"]]]]",
    "many arrays": texted(hello(), [["bool", [0]]] * 300),
    "more arrays": texted(hello(), [["bool", [0]]] * 100_000),
    "too many digits": b'[{"what":"hello","run":"r","epoch":' + b"9" * 5000 + b',"step":0},[]]',
    "many digits": b'[{"what":"hello","run":"r","epoch":' + DIGITS + b',"step":0},[]]',
    "empty lists": texted(hello(x=[[]] * 400_000)),
    "some empty lists": texted(hello(x=[[]] * 900)),
    "empty objects": texted(hello(x=[{}] * 400_000)),
    "small objects": texted(hello(x=[{f"k{i}": 0} for i in range(480)])),
    "deep": b'[{"x":' + b"[" * 900 + b"]" * 900 + b"},[]]",
    "deeper": b'[{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"},[]]",
    "deep objects": b'[{"x":' + b'{"":' * 900 + b"0" + b"}" * 900 + b"},[]]",
    "a long text": texted(hello(run="x" * 1_000_000)),
    "a wide text": b'[{"what":"hello","run":"' + b"x" * 60_000 + b'\\ud83d\\ude00"},[]]',
    "a long digest": texted(request(digest="x" * 60_000)),
    "a long function": texted(request(function="eigenpact" + ".a" * 30_000)),
    "half a pair": b'[{"what":"hello","run":"\\ud800","epoch":0,"step":0},[]]',
    "half a pair in a request": texted(request(run="\ud800", function="\udfff", kind="\ud800", digest="\ud800")),
    "a fraction": texted(hello(epoch=1.0)),
    "not a number": texted(hello(epoch=float("nan"))),
    "endless": texted(hello(step=float("-inf"))),
    "64 bits": texted(hello(step=1 << 63)),
    "keys twice": b'[{"what":"hello","what":"plan","run":"r","run":5,"epoch":0,"step":0},[]]',
    "UTF-16": json.dumps([hello(), []]).encode("utf-16"),
    "UTF-8": json.dumps([hello(run="é" * 20), []], ensure_ascii=False).encode(),
    "no UTF-8": b'[{"run":"\xff\xfe"},[]]',
    "NUL": b"\0" * 1000,
    "a plan that is a list": texted(hello(what="plan", plan=[[]])),
    "a plan of numbers": texted(hello(what="plan", plan=Plan("gram", (), (), 10**4000, 10**4000, 10**4000).to_dict())),
    "a plan with a foreign name": texted(
        hello(what="plan", plan=Plan("gram", (), (), 1, 1, ("\x1b[2J\nall is well", "\ud800", "c", "d")).to_dict())
    ),
    "a plan of many names": texted(hello(what="plan", plan=Plan("gram", (), (), 1, 1, ("abc",) * 200_000).to_dict())),
}


def measured(handle: Any, data: bytes) -> tuple[Any, int]:
    """What it gives, and the most memory it held."""
    tracemalloc.start()
    try:
        return handle(data), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("what", HEADERS)
def test_a_site_answers_whatever_comes(tmp_path: Path, what: str) -> None:
    """With what is wrong, in words that can be written to any log; within bounded memory; nothing is sent."""
    told: list[str] = []
    site, data = site_of(tmp_path, tell=told.append), letter(HEADERS[what])
    site.handle(letter(texted(request(function="not known"))))  # which loads the package's functions, once
    told.clear()
    reply, most = measured(site.handle, data)
    header, arrays = unseal(memoryview(reply))
    assert set(header) & {"error", "refused", "n_features"}
    assert header["site"] == "lima"
    assert arrays == ()
    assert all(line.isprintable() and len(line) < 1100 for line in told)
    assert most <= 3 * len(data) + MEMORY
    assert len(reply) < 5000


@pytest.mark.parametrize("kind", ["[],", "{},", '{"a":0},', "0,", '"abcdefgh",', '{"a":[{}]},'])
def test_what_a_header_becomes_is_bounded_by_its_length(tmp_path: Path, kind: str) -> None:
    """By length and structure at the limit, for a site with many features, whose allowance is larger."""
    d = 3000
    site = site_of(tmp_path, tuple(f"f{i}" for i in range(d)))
    room = MAX_HEADER + HEADER_A_FEATURE * d
    n = room // 64 // sum(map(kind.count, "[{,")) - 10
    text = b'[{"x":[' + (kind * n)[:-1].encode() + b'],"y":"' + b"x" * 10_000 + b'"},[]]'
    site.handle(letter(texted(hello())))
    reply, most = measured(site.handle, letter(text))
    assert "'what' must be a text" in unseal(memoryview(reply))[0]["error"]  # so it was read
    assert most <= 3 * len(text) + MEMORY + 2048 * d
    too_many = b'[{"x":[' + (kind * (n + 30))[:-1].encode() + b"]},[]]"
    assert "brackets and commas: at most" in unseal(memoryview(site.handle(letter(too_many))))[0]["error"]


def test_a_plan_names_a_hundred_thousand_features(tmp_path: Path) -> None:
    """Of ordinary length; and a name that is no word of one alphabet is a name, too."""
    names = (*(f"chr{i % 22}:{i * 997}:A:G" for i in range(10**5)), "Größe, in cm", "身長", "😀", '"[{,')
    plan = Plan("gram", (total.name,), ("sum",), 5, 1, names).to_dict()
    site = site_of(tmp_path, names)
    reply, most = measured(site.handle, data := letter(texted(hello(what="plan", plan=plan))))
    assert unseal(memoryview(reply))[0]["n_features"] == len(names)
    assert most <= 3 * len(data) + 2048 * len(names)
    header = unseal(memoryview(site_of(tmp_path).handle(data)))[0]  # a site with four
    assert f"at most {MAX_HEADER + 4 * HEADER_A_FEATURE} are allowed here" in header["error"]


@pytest.mark.parametrize(
    "error", [MemoryError(), RecursionError("deep"), OverflowError("1.5 of row 3"), UnicodeError("1.5 of row 3"), KeyError(1.5)]
)
def test_what_fails_at_a_site_is_told_by_its_kind_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The site's own log has the rest."""
    told: list[str] = []
    site = site_of(tmp_path, tell=told.append)

    def fails(*_: Any) -> None:
        raise error

    monkeypatch.setattr(SiteServer, "position", fails)
    header, _ = unseal(memoryview(site.handle(letter(texted(hello())))))
    assert header["failed"] == f"SiteError: this message ended in a {type(error).__name__} here"
    assert told == [f"{header['failed']} ({error})"]


def test_trouble_with_the_ledger_does_not_tell_where_it_is(tmp_path: Path) -> None:
    told: list[str] = []
    site = site_of(tmp_path, tell=told.append)
    (tmp_path / "ledger").mkdir()
    header, _ = unseal(memoryview(site.handle(letter(texted(hello(what="plan", plan=None))))))
    assert header["failed"] == "SiteError: a file of this site's cannot be used; its own log says why"
    assert str(tmp_path) in told[0]


def test_bytes_that_are_no_truths_are_refused(tmp_path: Path) -> None:
    """Numpy counts one of them as 255."""
    data = letter(texted(request(), [["bool", [2]]]), b"\x01\xff" + bytes(62))
    assert "neither 0 nor 1" in unseal(memoryview(site_of(tmp_path).handle(data)))[0]["error"]


# -- the coordinator's end --------------------------------------------------------------------------------------------------

REPLIES: dict[str, Any] = {
    name: text for name, text in HEADERS.items() if name not in ("a plan of numbers", "UTF-8")
} | {
    "features without end": {"n_features": 10**4000},
    "a fraction of a feature": {"n_features": 4.0},
    "many features": {"n_features": 1 << 62},
    "other features": {"n_features": 3},
    "a step without end": {"last": 10**4000},
    "a reason that is deep": b'{"error":' + b"[" * 900 + b"]" * 900,
    "a reason that is a number": {"error": 10**4000},
    "a reason that is an object": {"refused": {"a": [1]}},
    "lost for no reason": {"lost": None},
    "a damaged reason": {"damaged": [[1]]},
    "an empty reason": {"error": ""},
    "half a pair as a reason": {"refused": "\ud800\n\x1b[2J"},
    "no site": {"site": None},
    "a site that is a list": {"site": ["B"]},
    "another run": {"run": [["r"]]},
    "another epoch": {"epoch": float("nan")},
    "a truth for a step": {"step": True},
}  # fmt: skip


def forged(reply: bytes, change: Any) -> bytes:
    """A reply with another header, or with some of it changed, and a checksum that fits."""
    if isinstance(change, bytes) and not change.startswith(b"{"):
        return seal(bytearray(payload(change)))
    header, arrays = unseal(memoryview(reply))
    described = [[a.dtype.name, a.shape] for a in arrays]
    body = b"".join(a.tobytes() + bytes(-a.nbytes % 64) for a in arrays)
    text = json.dumps([header | (change if isinstance(change, dict) else {}), described]).encode()
    text = text if isinstance(change, dict) else text.replace(b"{", change + b",", 1)
    return seal(bytearray(payload(text, body)))


@pytest.mark.parametrize("announces", [False, True])
@pytest.mark.parametrize("first", [1, 2, 4])
@pytest.mark.parametrize("what", REPLIES)
def test_a_site_that_answers_nonsense_is_left_out_or_named(what: str, first: int, announces: bool) -> None:
    """From its first answer on, or later: the others go on without it, or an error of ours says what was wrong."""
    rows = {"A": np.ones((6, 4)), "B": np.ones((6, 4)), "C": np.ones((6, 4))}
    post = LoopPost({name: SiteEndpoint(SiteServer(name, X)) for name, X in rows.items()})
    heard = [0]

    def lying(site: str, data: bytes) -> list[bytes]:
        heard[0] += site == "B"
        return [forged(data, REPLIES[what])] if site == "B" and heard[0] >= first else [data]

    async def program(_start: Any, _state: Any) -> Any:
        return [await Sum(total, np.zeros(4)) for _ in range(4)]

    post.on_reply = lying
    plan = Plan("gram", (total.name,), ("sum",), 5, 1)
    try:
        connection = MailConnection(post, rows, round_timeout=1.0, announces=announces, features=4 if announces else None)
        driver = Driver(connection, plan=plan if announces else None, min_sites=2)
        result = driver.run(program)
    except EigenpactError as error:
        assert "B" in str(error) or "features" in str(error)  # noqa: PT017
        assert str(error).isprintable()  # noqa: PT017
    else:
        assert result[-1].tolist() == [6.0 * len(driver.roster)] * 4
        assert set(driver.roster) >= {"A", "C"}


def test_arrays_where_none_are_due() -> None:
    """A greeting with arrays is a greeting; a reply to a step that sends nothing is refused, by the site's name."""
    post = LoopPost({name: SiteEndpoint(SiteServer(name, np.ones((2, 3)))) for name in "AB"})
    post.on_reply = lambda _, data: [seal(bytearray(payload(texted(unseal(memoryview(data))[0], [["bool", [5]]]), bytes(64))))]
    connection = MailConnection(post, post.endpoints, round_timeout=1.0)
    assert connection.n_features() == {"A": 3, "B": 3}

    async def program(_start: Any, _state: Any) -> Any:
        await Local(total, np.zeros(3))

    with pytest.raises(TooFewSitesError, match=r"lost A .its reply of total: 1 arrays; none are due"):
        Driver(connection).run(program)


def test_a_site_that_sends_without_end_does_not_keep_another_from_being_dropped() -> None:
    """B floods, C is silent: C is dropped when its time is over, though something came all the time."""
    post = LoopPost({name: SiteEndpoint(SiteServer(name, np.ones((2, 3)))) for name in "ABC"})
    connection = MailConnection(post, post.endpoints, round_timeout=10.0)
    receive, taken = post.receive, [0]

    def flood(until: float) -> Any:
        post.time += 0.01
        taken[0] += 1
        assert taken[0] < 10_000, "the coordinator hangs"
        return receive(until) if post.replies else ("B", b"\0" * 100)

    post.receive = flood
    post.on_reply = lambda site, data: [] if site == "C" else [data]
    responses = list(connection.call(Request("r", 0, 1, "sum", total.name, (np.zeros(3),)), dict.fromkeys("ABC", 0)))
    assert [(r.site, r.reason) for r in responses] == [("A", ""), ("B", ""), ("C", "no answer within 10 s")]


def test_no_site_that_makes_sense_ends_in_an_error_that_says_so() -> None:
    post = LoopPost({"A": SiteEndpoint(SiteServer("A", np.ones((2, 3))))})
    post.on_reply = lambda _, data: [forged(data, {"n_features": 1 << 70})]
    with pytest.raises(TooFewSitesError, match="A: it did not tell that it has the features of this run"):
        MailConnection(post, ["A"], round_timeout=1.0)


def test_a_signature_that_is_no_text_is_nobodys() -> None:
    for site in (None, ["B"], 5):
        assert signed_by(seal(bytearray(payload(texted({"site": site}))))) not in ("B", "5", "None")
    assert signed_by(seal(bytearray(payload(b"[" * 1000)))) == ""
