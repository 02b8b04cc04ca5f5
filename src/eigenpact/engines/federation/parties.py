"""Who takes part in a federation, and with which keys: a list that the authority signs, and that every kit holds (ADR 15).

The list is public, and whoever brings it cannot change it.  So a site joins, or a key is renewed, by a new list: the kits of the
other parties stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ...errors import FileError, InputError
from ...runtime.forms import misfit
from ...storage import parse_json, read_regular, replace_private
from ..extras import crypto
from .identities import is_signed

PARTIES = "parties.json"
"""The list, in a kit."""

MOST_BYTES = 1 << 24
"""Of a list: tens of thousands of parties."""

COORDINATOR, AUTHORITY = "coordinator", "authority"
"""Parties that are no sites."""

FORMS: dict[str, Any] = {
    "federation": str,
    "version": int,
    "root": str,
    "keys": dict[str, str],
    "nodes": dict[str, str],
}


@dataclass(frozen=True)
class Parties:
    """The parties of a federation.

    Attributes
    ----------
    federation : str
        Its name.
    version : int
        Counts lists, from 1; a kit takes none that is older than its own.
    root : str
        Digest of the authority's certificate, see :func:`digest_of_root`.
    keys : mapping
        "coordinator" and every site -> public key of its signatures, in hexadecimal digits.
    nodes : mapping
        On Flower, site -> public key of its SuperNode, as OpenSSH writes it.
    """

    federation: str
    version: int
    root: str
    keys: Mapping[str, str] = field(hash=False)
    nodes: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def sites(self) -> tuple[str, ...]:
        """In the order in which they came."""
        return tuple(name for name in self.keys if name != COORDINATOR)

    def with_party(self, party: str, key: str, node: str) -> Parties:
        """The next list, with another key for a party, or one more party; ``node`` is empty where it has no SuperNode."""
        nodes = dict(self.nodes) | ({party: node} if node else {})
        return replace(self, version=self.version + 1, keys=dict(self.keys) | {party: key}, nodes=nodes)

    def signed(self, sign: Callable[[bytes], bytes]) -> bytes:
        """The list as a file, with the authority's signature."""
        return (json.dumps({"parties": asdict(self), "signature": sign(self._text()).hex()}, indent=2) + "\n").encode()

    def _text(self) -> bytes:
        """What is signed; the first words tell it from anything else that is."""
        return b"eigenpact parties\n" + json.dumps(asdict(self)).encode()


def read_parties(path: Path, authority: str) -> Parties:
    """A list that must be signed by the authority with that public key."""
    try:
        facts = parse_json(read_regular(path, MOST_BYTES))
    except (OSError, InputError) as error:
        raise FileError(f"{path} cannot be read: {error}; ask for {PARTIES} again") from error
    wrong = misfit(facts, {"parties": dict, "signature": str}) or misfit(facts["parties"], FORMS)
    if wrong or len(facts["parties"]) != len(FORMS):
        raise InputError(f"{path} is not a list of parties: {wrong or 'it says more'}; ask for {PARTIES} again")
    parties = Parties(**facts["parties"])
    try:
        signature = bytes.fromhex(facts["signature"])
    except ValueError:
        signature = b""
    if not is_signed(authority, parties._text(), signature):
        raise InputError(
            f"{path} is not signed by this federation's authority: it was changed, or is of another federation; "
            f"ask whoever keeps authority/ for {PARTIES}"
        )
    return parties


def place_parties(path: Path, text: bytes) -> None:
    """Write a list, as it was signed, in place of an earlier one."""
    replace_private(path, [text])


def digest_of_root(certificate: Any) -> str:
    """What a list says of the authority's certificate."""
    return str(certificate.fingerprint(crypto("hazmat.primitives.hashes").SHA256()).hex())
