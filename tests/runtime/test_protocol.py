"""Which protocol the parties of a run agree on, and what is said where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import eigenpact as ep
from eigenpact.errors import PolicyError, ProtocolError, WireError
from eigenpact.runtime import MailConnection, Request, SiteEndpoint, SiteServer, protocol, wire
from eigenpact.runtime.letters import CHECKSUM, PREFIX, Letter, checksum, hello, unseal
from eigenpact.runtime.protocol import NEWEST, OLDEST, UNNAMED, Speaker, agree, named
from tests.runtime.test_mail import LoopPost

RANGES = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)).map(sorted), min_size=1, max_size=5)


@given(RANGES)
def test_the_highest_common_one_or_whoever_is_behind_it(ranges: list[list[int]]) -> None:
    parties = [Speaker(f"p{i}", "r", *span) for i, span in enumerate(ranges)]
    common = set.intersection(*(set(range(a, b + 1)) for a, b in ranges))
    if common:
        assert agree(parties) == max(common)
        return
    with pytest.raises(ProtocolError) as told:
        agree(parties)
    who = str(told.value).removeprefix("rule protocol: ").split(" must upgrade")[0].split(" and ")
    newest_needed = max(a for a, _ in ranges)
    assert who == [f"p{i}" for i, (_, b) in enumerate(ranges) if b < newest_needed]
    assert all(f"{name} has eigenpact r, which speaks protocol" in str(told.value) for name in who)


def test_messages_without_a_protocol_are_of_the_first() -> None:
    assert Speaker.elsewhere("x", {}) == Speaker("x", UNNAMED, 1, 1)
    assert Speaker.elsewhere("x", Speaker.here("y").header()) == Speaker("x", ep.__version__, OLDEST, NEWEST)
    assert Speaker.elsewhere("x", named(2)) == Speaker("x", UNNAMED, 2, 2)
    assert named(1) == {}  # so that the first protocol's messages are what they were


@pytest.mark.parametrize(
    "header",
    [
        {"protocol": told}
        for told in (
            [],
            [1],
            [1, 2, 3],
            [2, 1],
            [0, 1],
            [1, 1 << 17],
            [True, True],
            ["1", "2"],
            [1.0, 2.0],
            "2",
            None,
            -1,
            1 << 80,
            {},
        )
    ]
    + [{"release": told} for told in (2, None, "x" * 33, "0.2\n.0", "\x1b[2J", ["0.2.0"])],
)
def test_what_cannot_be_a_protocol_or_release_is_refused_at_both_ends(header: dict[str, Any]) -> None:
    """And neither end repeats what it was sent."""
    with pytest.raises(WireError, match="message header: 'protocol' must be a number from 1 to 65536"):
        Speaker.elsewhere("x", header)
    site = SiteEndpoint(SiteServer("A", np.ones((2, 3))))
    told, _ = unseal(memoryview(site.handle(Letter(wire.pack(hello("r", 0) | header)).to("A", 0))))
    assert told["error"].startswith("WireError: message header: 'protocol' must be")
    assert "n_features" not in told
    with pytest.raises(ep.errors.TooFewSitesError, match="A: message header: 'protocol' must be"):
        connected({"A": Changed(header)})


class Changed(SiteEndpoint):
    """A site whose answers to greetings say something else of its release."""

    def __init__(self, header: dict[str, Any]) -> None:
        super().__init__(SiteServer("A", np.ones((2, 3))))
        self._header = header

    def _seal(self, facts: dict[str, Any], arrays: Any = ()) -> bytes:
        return super()._seal(facts | self._header if "n_features" in facts else facts, arrays)


def connected(ends: dict[str, SiteEndpoint]) -> MailConnection:
    return MailConnection(LoopPost(ends), ends, round_timeout=1.0)


def test_sites_that_have_no_protocol_in_common_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though each has one with the coordinator."""
    ends = {"A": Changed({"protocol": [1, 1], "release": "0.1.0"}), "B": Changed({"protocol": [2, 3], "release": "0.3.0"})}
    ends["B"]._server.name = "B"
    with pytest.raises(
        ProtocolError, match=r"rule protocol: site 'A' must upgrade eigenpact: site 'A' has eigenpact 0.1.0, .* site 'B'"
    ):
        connected(ends)
    monkeypatch.setattr(protocol, "OLDEST", 2)
    alone = connected({"B": ends["B"]})
    assert alone.protocol == NEWEST
    assert alone.speakers() == {"B": Speaker("site 'B'", "0.3.0", 2, 3)}


def test_a_site_that_comes_back_with_another_release_changes_what_the_run_speaks() -> None:
    """Whether it upgraded in mid-run or went back; requests of the next epoch say so, or name no protocol at all."""
    behind, post = Changed({"protocol": 1, "release": "0.1.0"}), LoopPost({})
    ahead = SiteEndpoint(SiteServer("A", np.ones((2, 3))))
    post.endpoints = {"A": ahead}
    connection = MailConnection(post, post.endpoints, round_timeout=1.0)
    asked: list[bytes] = []
    post.on_request = lambda _site, data: [asked.append(data) or data]
    spoken = [connection.protocol]
    for epoch, end in enumerate([behind, ahead], 1):
        post.endpoints["A"] = end
        connection.positions("r", epoch)
        list(connection.call(Request("r", epoch, 1, "sum", "eigenpact:count_and_sum/1", ()), {"A": 0}))
        spoken.append(connection.protocol)
    assert spoken == [2, 1, 2]
    assert [b'"protocol":2' in data for data in asked if b'"what":"request"' in data] == [False, True]


def test_a_request_of_another_protocol_is_refused_before_anything_is_computed() -> None:
    site = SiteEndpoint(SiteServer("A", np.ones((2, 3))))
    header = hello("r", 0, "request") | {"step": 1, "kind": "sum", "function": "eigenpact:count_and_sum/1", "digest": ""}
    for number, refused in {1: False, NEWEST: False, NEWEST + 1: True}.items():
        told, arrays = unseal(memoryview(site.handle(Letter(wire.pack(header | {"protocol": number})).to("A", 0))))
        assert ("refused" in told) is refused
        assert (len(arrays) == 0) is refused
        if refused:
            assert told["refused"].startswith("rule protocol: site 'A' must upgrade eigenpact")
    assert issubclass(ProtocolError, PolicyError)


def test_a_refusal_that_may_come_of_the_release_names_both_releases() -> None:
    """A function that a site does not know, asked for by a later coordinator."""

    class Behind(SiteEndpoint):
        def _standing(self, header: dict[str, Any]) -> Any:  # noqa: ARG002
            raise PolicyError("rule functions: 'eigenpact:new/1' is not listed at this site")

        def _seal(self, facts: dict[str, Any], arrays: Any = ()) -> bytes:
            return super()._seal({key: facts[key] for key in facts if key not in ("protocol", "release")}, arrays)

    with pytest.raises(ep.errors.TooFewSitesError) as told:
        connected({"A": Behind(SiteServer("A", np.ones((2, 3))))})
    assert f"is not listed at this site; site 'A' has eigenpact 0.1.0 and the coordinator has eigenpact {ep.__version__}" in str(
        told.value
    )


def test_the_form_of_letters_is_that_of_the_first_protocol() -> None:
    """What comes before a header that can say anything: it stays, or no release could refuse another in words."""
    data = Letter(wire.pack(hello("r", 0))).to("A", 5)
    assert (PREFIX, CHECKSUM) == (8, 8)
    assert data[:8] == (5).to_bytes(8, "little")
    assert data[8:16] == checksum(data[:8] + checksum(data[16:]))
