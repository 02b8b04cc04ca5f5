"""The form of a letter between coordinator and site: a payload (``wire.py``) behind a checksum that finds damage."""

from __future__ import annotations

import zlib
from typing import Any

from ..errors import WireError
from . import wire
from .local import Arrays

CHECKSUM = 8
"""Bytes for the CRC-32 before a payload, eight to keep arrays aligned.  It finds damage, not tampering."""

PREFIX = 8
"""Bytes for the step that a site is believed to have done last."""


class Damaged(WireError):
    """A payload that does not have its checksum."""


def checksum(data: bytes | bytearray | memoryview) -> bytes:
    """The CRC-32, in as many bytes as keep arrays aligned."""
    return zlib.crc32(data).to_bytes(CHECKSUM, "little")


def seal(payload: bytearray) -> bytes:
    """A reply: the payload behind its checksum."""
    return checksum(checksum(payload)) + payload


def unseal(data: memoryview, after: bytes = b"") -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of a letter whose step was taken off, or of a reply."""
    payload = data[CHECKSUM:]
    if len(data) < CHECKSUM or checksum(after + checksum(payload)) != bytes(data[:CHECKSUM]):
        raise Damaged(f"the checksum of {len(after) + len(data)} bytes does not fit")
    return wire.unpack(payload)
