"""Ten thousand messages, and that the fuzzer finds what it looks for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eigenpact.errors import WireError
from eigenpact.runtime import SiteEndpoint, wire
from eigenpact.runtime.letters import open_letter
from tests.fuzz.changes import CHANGES, DAMAGES, Parts, changed
from tests.fuzz.messages import SOLVERS, Found, batch, honest, letter, summary


@pytest.mark.parametrize("number", range(20))
def test_neither_end_breaks(number: int) -> None:
    """``make fuzz`` sends ten times as many; a batch that fails is repeated by what is printed with it."""
    found = batch(2026, number)
    assert found.wrong == []
    assert found.counts["messages"] >= 500
    tried = ("answered", "error", "damaged") if number % 2 == 0 else ("fits",)
    assert all(found.counts[what] > 0 for what in tried)


def test_a_batch_is_repeated_exactly() -> None:
    for number in (0, 1):
        first, second = (batch(5, number, 60) for _ in range(2))
        assert first.counts == second.counts


def test_headers_that_are_not_bounded_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """At both ends."""
    monkeypatch.setattr(wire, "check_size", lambda _data, _most: None)
    for number, end in ((0, "to a site"), (1, "to a coordinator")):
        wrong = [what for seed in range(3) for what in batch(seed, number).wrong]
        assert any(f"{end}: " in what and "bytes held for a message of" in what for what in wrong)
        assert all(what.endswith(f" --batch {number}") for what in wrong)


def test_an_end_that_raises_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare exception at the site, or one that ends a fit."""

    def raises(*_: Any) -> Any:
        raise ZeroDivisionError("somewhere")

    for (
        solver
    ) in SOLVERS:  # the honest runs whose letters are changed are not to raise, whichever test of this process comes first
        honest(solver)
    with monkeypatch.context() as patched:
        patched.setattr(SiteEndpoint, "_standing", raises)
        patched.setattr(SiteEndpoint, "_refuse", raises)
        assert "a site's end raised" in batch(0, 0, 20).wrong[0]
    with monkeypatch.context() as patched:
        patched.setattr("eigenpact.runtime.mail.reason_in", raises)
        assert "ZeroDivisionError: somewhere" in batch(0, 1, 20).wrong[0]


def test_what_takes_too_long_or_too_much_is_found() -> None:
    found = Found()
    found.judge("short", 100, 3 * 100 + 1000, 0.1)
    assert found.wrong == []
    found.judge("large", 100, 3 << 20, 0.1)
    found.judge("slow", 100, 0, 60.0)
    assert [what.split(":")[0] for what in found.wrong] == ["large", "slow"]
    assert summary(found, 7, 1.0).startswith("3 messages, 2 wrong (")


@pytest.mark.parametrize("solver", SOLVERS)
def test_letters_that_are_not_changed_are_whole(solver: str) -> None:
    """So that what is wrong with a message is what was changed."""
    for after, parts in honest(solver):
        _, _, header, arrays = open_letter(memoryview(letter(after, parts.payload())), "")
        assert header == parts.header
        assert [[a.dtype.name, list(a.shape)] for a in arrays] == parts.described


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_changes_something(name: str) -> None:
    """And most of what it makes cannot be read, or reads otherwise."""
    (_, other), *_, (_, parts) = honest("krylov")
    whole, rng = parts.payload(), np.random.default_rng(0)
    made = [changed(rng, parts, other, (name,))[1] for _ in range(30)]
    assert sum(payload != whole for payload in made) >= 25
    assert len(set(made)) >= 5


@pytest.mark.parametrize("name", DAMAGES)
def test_every_damage_is_noticed(name: str) -> None:
    (_, other), *_, (after, parts) = honest("gram")
    data, rng = letter(after, parts.payload()), np.random.default_rng(0)
    for _ in range(30):
        damaged = DAMAGES[name](rng, data, letter(0, other.payload()))
        if damaged != data:
            with pytest.raises(WireError):
                open_letter(memoryview(damaged), "")


def test_parts_are_put_together_again() -> None:
    payload = bytes(wire.pack({"run": "r"}, [np.arange(6.0).reshape(2, 3), np.array(True)]))
    assert Parts.of(payload).payload() == payload
