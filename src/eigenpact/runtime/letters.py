"""The form of a letter between coordinator and site: a payload (``wire.py``), its checksum, and perhaps a signature.

A letter to a site is ``after | checksum | payload | signature``: the step the site is believed to have done last, and a payload
that is the same for all sites.  A reply is ``checksum | payload | signature``.  The checksum finds damage.  Where parties have
keys (:class:`Identity`), the signature finds whoever has none: the coordinator's speaks of the site, the step and a digest of
the payload, so that the payload is read once for all sites; a site's speaks of the reply, which names the letter it answers.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import Any, Protocol

from ..errors import PolicyError, WireError
from . import wire
from .headers import MAX_HEADER, reason_in
from .ledger import COORDINATOR
from .local import Arrays

CHECKSUM = 8
"""Bytes for the CRC-32 before a payload, eight to keep arrays aligned.  It finds damage, not tampering."""

PREFIX = 8
"""Bytes for the step that a site is believed to have done last."""

SIGNATURE = 64
"""Bytes of a signature."""

LETTER, REPLY = b"eigenpact letter 1", b"eigenpact reply 1"
"""What signatures begin with, so that none is taken for one of another kind."""


class Identity(Protocol):
    """A party's own key, and the public keys of those it hears from."""

    def sign(self, data: bytes) -> bytes:
        """The party's signature, of ``SIGNATURE`` bytes."""
        ...

    def genuine(self, sender: str, data: bytes, signature: bytes) -> bool:
        """Whether this is the sender's signature; "coordinator" or a site's name."""
        ...


class Damaged(WireError):
    """A payload that does not have its checksum."""


class Forged(PolicyError):
    """A letter or reply that its sender did not sign."""


def checksum(data: bytes | bytearray | memoryview) -> bytes:
    """The CRC-32, in as many bytes as keep arrays aligned."""
    return zlib.crc32(data).to_bytes(CHECKSUM, "little")


def digest(data: bytes | bytearray | memoryview) -> bytes:
    """What a signature speaks of instead of a payload."""
    return hashlib.blake2b(data, digest_size=32).digest()


class Letter:
    """One payload to many sites, as bytes for each."""

    def __init__(self, payload: bytearray, identity: Identity | None = None) -> None:
        self._payload = payload
        self._checksum = checksum(payload)
        self._identity = identity
        self._digest = digest(payload) if identity is not None else b""

    def to(self, site: str, after: int) -> bytes:
        """The letter for a site that is believed to have done step ``after`` last."""
        before = after.to_bytes(PREFIX, "little")
        signature = b"" if self._identity is None else self._identity.sign(_address(site, before, self._digest))
        return b"".join([before, checksum(before + self._checksum), self._payload, signature])

    def name(self, site: str, after: int) -> str:
        """What the site's reply calls this letter; nothing where letters are not signed."""
        return "" if self._identity is None else digest(_address(site, after.to_bytes(PREFIX, "little"), self._digest)).hex()


def open_letter(
    data: memoryview, site: str, identity: Identity | None = None, max_header: int = MAX_HEADER
) -> tuple[int, str, dict[str, Any], Arrays]:
    """The step before, the letter's name for the reply, header and arrays of a letter to this site."""
    before, name = bytes(data[:PREFIX]), ""
    payload, signature = _parts(data[PREFIX:], identity is not None, before)
    if identity is not None:
        address = _address(site, before, digest(payload))
        if not identity.genuine(COORDINATOR, address, signature):
            raise Forged("letter not signed by this federation's coordinator")
        name = digest(address).hex()
    return int.from_bytes(before, "little"), name, *_read(payload, max_header)


def run_of(data: memoryview, signed: bool) -> str:
    """The run that a letter to a site is of, as it says."""
    payload, _ = _parts(data[PREFIX:], signed, bytes(data[:PREFIX]))
    return str(wire.unpack(payload)[0].get("run", ""))


def seal(payload: bytearray, identity: Identity | None = None) -> bytes:
    """A reply, as bytes."""
    signature = b"" if identity is None else identity.sign(REPLY + digest(payload))
    return b"".join([checksum(checksum(payload)), payload, signature])


def unseal(data: memoryview, site: str = "", identity: Identity | None = None) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays of a reply of this site."""
    payload, signature = _parts(data, identity is not None)
    if identity is not None and not identity.genuine(site, REPLY + digest(payload), signature):
        raise Forged(f"reply not signed by site {site!r} of this federation")
    return _read(payload, MAX_HEADER)


def _read(payload: memoryview, max_header: int) -> tuple[dict[str, Any], Arrays]:
    wire.check_size(payload, max_header)
    return wire.unpack(payload)


def _parts(body: memoryview, signed: bool, before: bytes = b"") -> tuple[memoryview, bytes]:
    """Payload and signature; one that is whole without a signature has none."""
    for length in (SIGNATURE, 0) if signed else (0,):
        end = len(body) - length
        if end >= CHECKSUM and checksum(before + checksum(body[CHECKSUM:end])) == bytes(body[:CHECKSUM]):
            return body[CHECKSUM:end], bytes(body[end:])
    raise Damaged(f"the checksum of {len(before) + len(body)} bytes does not fit")


def _address(site: str, before: bytes, contents: bytes) -> bytes:
    """What a coordinator signs: of what kind, after which step, what, and for whom."""
    return b"|".join([LETTER, before + contents, site.encode()])


def greeting() -> bytes:
    """The letter with which a coordinator asks a site, whose name it may not know yet, what it has."""
    return Letter(wire.pack(hello("", 0))).to("", 0)


def signed_by(data: bytes) -> str:
    """The site that says it sent a reply; empty if it is damaged."""
    try:
        return reason_in(unseal(memoryview(data))[0], "site")
    except WireError:
        return ""


def hello(run: str, epoch: int, what: str = "hello") -> dict[str, Any]:
    """The header of a greeting, or the beginning of a plan's."""
    return {"what": what, "run": run, "epoch": epoch, "step": 0}
