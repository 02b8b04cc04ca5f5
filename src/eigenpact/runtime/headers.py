"""What a message's header must hold, and what may be believed of one that came from elsewhere.

JSON can hold other things than eigenpact's own ends write: numbers for names, fractions or NaN for steps, texts without end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import WireError
from .plan import MAX_NUMBER
from .site_ledger import shortened

REQUEST_KEYS = ("run", "epoch", "step", "kind", "function", "digest")
"""What a request has besides its arguments; a greeting and a plan have the first three."""

MAX_HEADER, HEADER_A_FEATURE = 1 << 16, 1 << 8
"""Bytes of a header, and what a site allows besides for each feature that it has: a plan names them."""

MAX_TEXT = 256
"""Characters of names in a header: of runs, collectives, functions and digests."""

NUMBERS = frozenset({"epoch", "step"})


def check_header(header: Mapping[str, Any]) -> None:
    """Raise a WireError unless what stands in a message to a site can be used."""
    what = header.get("what")
    for key in ("what", *(REQUEST_KEYS[:3] if what in ("hello", "plan") else REQUEST_KEYS)):
        value, number = header.get(key), key in NUMBERS
        good = type(value) is int and abs(value) <= MAX_NUMBER if number else isinstance(value, str) and len(value) <= MAX_TEXT
        if not good:
            wanted = "a whole number of at most 63 bits" if number else f"a text of at most {MAX_TEXT} characters"
            raise WireError(f"message header: {key!r} must be {wanted}, as eigenpact's coordinators send it")


def reason_in(header: Mapping[str, Any], key: str) -> str:
    """What a site gave as a reason or name: one line of bounded length, whatever it sent; empty if it gave none."""
    value = header.get(key, "")
    return shortened(value) if isinstance(value, str) else f"(a {type(value).__name__}, not a text)"


def refusal_in(header: Mapping[str, Any]) -> str:
    """Why a site did not do what it was asked; empty if it did."""
    return next((reason_in(header, how) for how in ("refused", "failed", "error", "lost") if how in header), "")
