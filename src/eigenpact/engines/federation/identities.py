"""Who signed a letter: an Ed25519 key for each party of a federation, made with the kits (ADR 15).

The private key lies in the party's kit, for its owner alone; the public keys of all parties stand in a list that the federation's
authority signs (``parties.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ...errors import FileError, InputError
from ...storage import read_regular, write_private
from ..extras import crypto

KEY = "identity.key"
"""File in a kit with its party's private key."""

MOST_BYTES = 1 << 10
"""Of a key; it has 32."""


class KitIdentity:
    """The key in a kit, and the public keys of the federation's parties.

    Parameters
    ----------
    folder : Path
        The kit.
    party : str
        Whose it is.
    keys : mapping
        Party -> public key, in hexadecimal digits.
    revoked : names
        Parties whose signatures are no longer believed.
    """

    def __init__(self, folder: Path, party: str, keys: Mapping[str, str], revoked: Collection[str] = ()) -> None:
        path, ed25519 = folder / KEY, _ed25519()
        try:
            loose = path.stat().st_mode & 0o077
            self._own = ed25519.Ed25519PrivateKey.from_private_bytes(read_regular(path, MOST_BYTES, follow=True))
            known = {name: ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)) for name, key in keys.items()}
        except (OSError, ValueError, TypeError) as error:
            raise FileError(f"the keys of {folder} cannot be read: {error}; ask for the kit again") from error
        if loose:
            raise InputError(f"{KEY} of {folder} may be read by others; make it yours alone: chmod 600 {path}")
        if _public(self._own) != keys.get(party):
            raise InputError(f"{KEY} of {folder} is not the key that the federation knows of {party!r}; ask for the kit again")
        self._known = {name: key for name, key in known.items() if name not in revoked}
        self._invalid = crypto("exceptions").InvalidSignature

    def sign(self, data: bytes) -> bytes:
        """The party's signature."""
        signature: bytes = self._own.sign(data)
        return signature

    def private(self) -> bytes:
        """The party's own key, for what else it stands for."""
        key: bytes = self._own.private_bytes_raw()
        return key

    def genuine(self, sender: str, data: bytes, signature: bytes) -> bool:
        """Whether this is the sender's signature."""
        if sender not in self._known:
            return False
        try:
            self._known[sender].verify(signature, data)
        except self._invalid:
            return False
        return True


def make_key(folder: Path) -> str:
    """Write a new private key to a kit; give the public one, in hexadecimal digits."""
    key = new_private()
    write_private(folder / KEY, key)
    return public_of(key)


def new_private() -> bytes:
    """A new private key."""
    return bytes(_ed25519().Ed25519PrivateKey.generate().private_bytes_raw())


def public_of(key: bytes) -> str:
    """The public half of a private key, in hexadecimal digits."""
    return _public(_ed25519().Ed25519PrivateKey.from_private_bytes(key))


def is_signed(key: str, data: bytes, signature: bytes) -> bool:
    """Whether the owner of a public key, in hexadecimal digits, signed the data."""
    try:
        _ed25519().Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(signature, data)
    except (crypto("exceptions").InvalidSignature, ValueError):
        return False
    return True


def _public(key: Any) -> str:
    return str(key.public_key().public_bytes_raw().hex())


def _ed25519() -> Any:
    return crypto("hazmat.primitives.asymmetric.ed25519")
