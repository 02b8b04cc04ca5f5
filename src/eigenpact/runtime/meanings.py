"""What an argument of a local function is, and how a site sees before it computes that it can be that.

A shape says how many numbers a coordinator may send, a meaning says which.  A gate (``gate.py``) refuses an argument that cannot
mean what it is declared to: not a number, infinite, beyond any magnitude that honest data lead to, a block whose columns are not
orthonormal, a scale that is not positive.  Whether a number is *right* no site can tell alone; so functions are written such that
a wrong one tells the coordinator no more of single rows than a right one (``numerics/site_rows.py``).

A coordinator looks at replies in the same way: whole numbers where something was counted, doubles everywhere else, finite, and
not negative where squares were added up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Check = Callable[[np.ndarray[Any, Any]], str]
"""What is wrong with an argument, in words; empty if nothing is."""

LARGEST = 1e150
"""Beyond it, and for scales below its inverse, squares overflow or vanish; honest set-ups are refused long before."""

ORTHONORMAL = 1e-8
"""How far Z^T Z may be from the identity, entry by entry."""


def _exact(check: Check) -> Check:
    """Of doubles alone: squares of whole numbers wrap and those of single precision overflow, in a check or a function."""
    return lambda a: check(a) if a.dtype == np.float64 else f"it holds {a.dtype}, not float64"


def _finite(a: np.ndarray[Any, Any]) -> str:
    if a.dtype.kind != "f":
        return ""
    largest = float(np.abs(a).max(initial=0.0))
    if not np.isfinite(largest):
        return "it holds numbers that are not finite"
    return "" if largest <= LARGEST else f"it holds {largest:.1e}, more than {LARGEST:.0e}"


def _positive(a: np.ndarray[Any, Any]) -> str:
    return _finite(a) or ("" if np.all(a >= 1 / LARGEST) else "it holds numbers that are not positive")


def _not_negative(a: np.ndarray[Any, Any]) -> str:
    return _finite(a) or ("" if np.all(a >= 0) else "it holds a negative number")


def _share(a: np.ndarray[Any, Any]) -> str:
    return _not_negative(a) or ("" if np.all(a <= 1) else "it is more than 1")


def _whole(a: np.ndarray[Any, Any]) -> str:
    return _not_negative(a) or ("" if a.dtype.kind != "f" or np.all(a == np.floor(a)) else "it is not a whole number")


def _orthonormal(a: np.ndarray[Any, Any]) -> str:
    if a.ndim != 2 or a.shape[1] > a.shape[0]:
        return f"no orthonormal columns have the shape {a.shape}"
    wrong = _finite(a)
    if wrong or not a.size:
        return wrong
    off = float(np.abs(a.T @ a - np.eye(a.shape[1])).max())
    return "" if off <= ORTHONORMAL else f"Z^T Z differs from the identity by {off:.1e}"


MEANINGS: Mapping[str, tuple[str, Check]] = {
    "numbers": ("numbers of ordinary size", _finite),
    "centre": ("a centre of the rows: the pooled mean or medians, or zeros", _exact(_finite)),
    "scale": ("positive scales of the features", _exact(_positive)),
    "trace": ("the trace of the pooled scatter", _exact(_not_negative)),
    "orthonormal": ("a block of orthonormal columns", _exact(_orthonormal)),
    "threshold": ("a size that is not negative", _exact(_not_negative)),
    "share": ("a share between 0 and 1", _exact(_share)),
    "count": ("whole numbers that are not negative", _whole),
    "seed": ("the seed of a random stream", _whole),
    "bits": ("bytes, keys or leading bits of numbers", _finite),
}
"""Meanings by name: what an argument is, and the check of its form."""


def wrong_form(meaning: str, array: np.ndarray[Any, Any]) -> str:
    """Why an array cannot be what it is declared to be; empty if it can.

    >>> wrong_form("orthonormal", np.eye(3)[:, :2]), wrong_form("scale", np.array([1.0, -1.0]))
    ('', 'it holds numbers that are not positive')
    """
    return MEANINGS[meaning][1](array)


def _counted(a: np.ndarray[Any, Any]) -> str:
    return _not_negative(a) if a.dtype.kind in "iu" else f"it holds {a.dtype}, not whole numbers"


def _integers(a: np.ndarray[Any, Any]) -> str:
    return "" if a.dtype == np.int64 else f"it holds {a.dtype}, not int64"


def _double(a: np.ndarray[Any, Any]) -> str:
    return _ordinary(a) if a.dtype == np.float64 else f"it holds {a.dtype}, not float64"


def _ordinary(a: np.ndarray[Any, Any]) -> str:
    finite = a.dtype.kind != "f" or bool(np.isfinite(a).all())
    return (
        ""
        if finite
        else "it holds numbers that are not finite: where its values or their squares overflow; give the data in other units"
    )


def _squares(a: np.ndarray[Any, Any]) -> str:
    if a.dtype != np.float64:
        return f"it holds {a.dtype}, not float64"
    return "" if np.all(a >= 0) else "it holds what is no sum of squares"  # infinite where they overflow: see who is to blame


REPLIES: Mapping[str, Check] = {"count": _counted, "whole": _integers, "squares": _squares, "none": _ordinary}
"""How replies are looked at, by the bound that is declared of them; by default as doubles."""

WHOLE = frozenset({"count", "whole"})
"""Bounds of replies that are whole numbers: their sum is one of integers, secured or not."""


def wrong_reply(bound: str, array: np.ndarray[Any, Any]) -> str:
    """Why an array that came from a site cannot be what it is declared to be; empty if it can.

    >>> wrong_reply("trace", np.array([1, 2])), wrong_reply("count", np.array([1, 2]))
    ('it holds int64, not float64', '')
    """
    return REPLIES.get(bound, _double)(array)
