"""Whatever a coordinator says, a site with ``secure = "required"`` sends no number in the clear; and this test would see one."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from eigenpact.runtime.secure_sum import Masked
from tests.attacks.secured_search import Watch, one_day

EXAMPLES = 20


def days(monkeypatch: pytest.MonkeyPatch, rules: Any = None, phases: tuple[Phase, ...] = (Phase.generate,)) -> Counter[str]:
    """Many hostile days; how often was answered and refused."""
    tally: Counter[str] = Counter()

    @seed(0)
    @settings(max_examples=EXAMPLES, database=None, deadline=None, suppress_health_check=list(HealthCheck), phases=phases)
    @given(st.data())
    def run(drawn: st.DataObject) -> None:
        watch = Watch()
        with tempfile.TemporaryDirectory() as folder, monkeypatch.context() as patched:
            patched.setattr(Masked, "encode", lambda masked, function, arrays: watch.encode(masked, function, arrays))
            patched.setattr(Masked, "noise", lambda masked, function, shapes: watch.make_noise(masked, function, shapes))
            tally.update(one_day(Path(folder), drawn, watch, rules))

    run()
    return tally


def test_nothing_leaves_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    tally = days(monkeypatch)
    assert tally["answered sum"] > EXAMPLES  # else the search was idle
    assert tally["refused"] > EXAMPLES


def test_the_search_sees_plain_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they are allowed: sites that do not require masks reply without."""
    with pytest.raises(AssertionError, match="a reply that was not masked"):
        days(monkeypatch, {"min_rows": 5})


def test_the_search_sees_pads_that_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Masked, "_add_pad", lambda *_: None)
    with pytest.raises(AssertionError, match="a word in the clear"):
        days(monkeypatch)


def test_the_search_sees_pads_that_are_used_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they would be if a transcript did not hold the arguments and the step."""
    monkeypatch.setattr(Masked, "note", lambda *_: None)
    with pytest.raises(AssertionError, match="a pad was used twice"):
        days(monkeypatch)


def test_the_search_sees_a_third_site_that_does_not_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sites' replies add up to their sum where nobody else has a pad in them."""
    add_pad = Masked._add_pad

    def without_quito(masked: Masked, masks: Any, forms: Any, other: str, *rest: Any) -> None:
        if "quito" not in (other, masked.session.site):
            add_pad(masked, masks, forms, other, *rest)

    monkeypatch.setattr(Masked, "_add_pad", without_quito)
    with pytest.raises(AssertionError, match="in the clear"):
        days(monkeypatch)
