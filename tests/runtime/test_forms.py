"""Facts of a file have the form that was written, or not."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from eigenpact.runtime.forms import fits, misfit


@pytest.mark.parametrize(
    ("value", "form", "good"),
    [
        (1, int, True),
        (True, int, False),
        (1.0, int, False),
        (1 << 63, int, False),
        (-(1 << 63), int, True),
        (1, float, True),
        (float("nan"), float, False),
        (float("inf"), float, False),
        (1 << 64, float, False),
        (1, bool, False),
        (None, str | None, True),
        ("\ud800", str, False),
        (0, Literal["pooled", False], False),
        (False, Literal["pooled", False], True),
        ([[1], []], list[list[int]], True),
        ([[1], ["x"]], list[list[int]], False),
        ("text", list[str], False),
        ([1, "x"], tuple[int, str], True),
        ([1, "x", 2], tuple[int, str], False),
        ({"a": [1]}, dict[str, list[int]], True),
        ({"a": 1}, dict[str, list[int]], False),
        ([], dict[str, int], False),
    ],
)
def test_forms(value: Any, form: Any, good: bool) -> None:
    assert fits(value, form) is good


def test_what_is_wrong_is_named() -> None:
    forms = {"rounds": int, "sites": list[str]}
    assert misfit({"rounds": 1, "sites": [], "more": 0}, forms) == ""
    assert misfit({"rounds": 1}, forms) == "'sites' is missing"
    assert misfit({"rounds": 10**4400, "sites": []}, forms) == "'rounds' is a number of 64 bits or more"
    assert misfit([], forms) == "it is a list"
