"""Whether facts from a file have the form that was written: JSON that anybody may have changed.

A form is a type as annotations write it: ``list[str]``, ``dict[str, float]``, ``int | None``, ``tuple[int, str]`` for a list of
exactly those.  Whole numbers fit 64 bits and are no truth values; numbers are finite.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

LARGEST = 1 << 63
MOST_SHOWN = 60
SURROGATES = re.compile("[\ud800-\udfff]")
"""JSON can hold these halves of characters; no file and no terminal can."""


def fits(value: Any, form: Any) -> bool:
    """Whether a value has a form.

    >>> fits([1, 2], list[int]), fits([1, True], list[int]), fits({"a": None}, dict[str, float | None])
    (True, False, True)
    """
    origin, args = get_origin(form), get_args(form)
    if origin in (Union, UnionType):
        return any(fits(value, arg) for arg in args)
    if origin is Literal:
        return any(type(value) is type(arg) and value == arg for arg in args)
    if origin is list:
        return isinstance(value, list | tuple) and all(fits(item, args[0]) for item in value)
    if origin is tuple:
        return isinstance(value, list | tuple) and len(value) == len(args) and all(map(fits, value, args))
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(fits(k, args[0]) and fits(v, args[1]) for k, v in value.items())
    if form is Any:
        return True
    if form is float:
        return fits(value, int) or (isinstance(value, float) and math.isfinite(value))
    if form is str:
        return isinstance(value, str) and not SURROGATES.search(value)
    if form is int:
        return type(value) is int and -LARGEST <= value < LARGEST
    return type(value) is (type(None) if form is None else form)


def misfit(facts: Any, forms: Mapping[str, Any]) -> str:
    """What is wrong with facts that should have these forms, by name, perhaps among others; empty if nothing is.

    >>> misfit({"rounds": "many"}, {"rounds": int})
    "'rounds' is 'many'"
    """
    if not isinstance(facts, dict):
        return f"it is a {type(facts).__name__}"
    for name, form in forms.items():
        if name not in facts:
            return f"{name!r} is missing"
        if not fits(facts[name], form):
            return f"{name!r} is {shown(facts[name])}"
    return ""


def shown(value: Any) -> str:
    """A value for an error, in a few characters.

    >>> shown("x" * 1000)[-6:], shown(10**4000), shown([None])
    ('xxx...', 'a number of 64 bits or more', 'a list')
    """
    if isinstance(value, int) and not fits(value, int | bool):
        return "a number of 64 bits or more"
    if isinstance(value, list | dict):
        return f"a {type(value).__name__}"
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "..."
