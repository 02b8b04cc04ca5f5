"""Who stands for a site in secured sums, and whom it takes part with (ADR 18).

By default it is the key of the site's kit, and the others' keys are those of the list that the authority signed: whoever ran
``federation init`` has seen all private keys, and could sit between the sites.  ``eigenpact site key`` makes a key at the site
itself.  Its public half goes to the other data managers by another way than the coordinator, and into their policies.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import FileError, InputError, PolicyError
from ...runtime import Policy, Trust
from ...storage import alone, read_regular, replace_private, writing
from .identities import MOST_BYTES, new_private, public_of
from .kits import PartyKit

OWN_KEY = "secure.key"
"""File in a kit with the key that the site made itself."""


@dataclass(frozen=True)
class Known:
    """Whose keys a site knows, and how.

    Attributes
    ----------
    key : bytes
        The site's own private key.
    made_here : bool
        Whether nobody else has seen it; else it came with the kit.
    pinned : bool
        Whether the others' keys stand in the site's policy; else in the federation's list.
    keys : mapping from site to public key
        The site's own among them.
    """

    key: bytes
    made_here: bool
    pinned: bool
    keys: Mapping[str, str]

    @property
    def others(self) -> int:
        """How many other sites are known."""
        return len(self.keys) - 1


def known_to(site: str, kit: PartyKit | None, policy: Policy, secret: bytes) -> Known:
    """What a site knows before it takes part in secured sums; ``secret`` stands in where it has no kit."""
    own = read_own_key(kit.folder) if kit is not None else own_from(secret)
    if own and kit is not None and not policy.participants:
        raise PolicyError(
            f"rule participants: this site made a key of its own ({OWN_KEY}), and its policy names nobody else's; write the "
            "lines that eigenpact site key prints at the others into its policy, below [participants]"
        )
    key = own or kit.identity().private() if kit is not None else own
    listed = {} if kit is None else {name: kit.parties.keys[name] for name in kit.parties.sites if name not in kit.revoked()}
    keys = dict(policy.participants) or listed
    if keys.get(site, public_of(key)) != public_of(key):
        raise PolicyError(f"rule participants: it names another key for {site!r} itself than this site has; correct that line")
    return Known(key, bool(own), bool(policy.participants), keys | {site: public_of(key)})


def trust_of(site: str, kit: PartyKit | None, policy: Policy, secret: bytes) -> Trust:
    """What a site's server is to know."""
    known = known_to(site, kit, policy, secret)
    return Trust(known.key, known.keys, policy.min_participants)


def read_own_key(kit: Path) -> bytes:
    """The private key that the site made itself; empty if it has made none."""
    path = kit / OWN_KEY
    try:
        loose = path.stat().st_mode & 0o077
        key = read_regular(path, MOST_BYTES)
        public_of(key)
    except FileNotFoundError:
        return b""
    except (OSError, ValueError) as error:
        raise FileError(f"{path} cannot be read: {error}; make another with eigenpact site key --renew") from error
    if loose:
        raise InputError(f"{OWN_KEY} of {kit} may be read by others; make it yours alone: chmod 600 {path}")
    return key


def make_own_key(kit: PartyKit, *, renew: bool = False) -> tuple[str, bool]:
    """Make the site's own key, unless it has one that is not to be renewed; its public half, and whether it is new."""
    with alone(kit.folder), writing(kit.folder / OWN_KEY, "the kit must be in a folder of your own"):
        known = b"" if renew else read_own_key(kit.folder)
        if known:
            return public_of(known), False
        key = new_private()
        replace_private(kit.folder / OWN_KEY, [key])
    return public_of(key), True


def own_from(secret: bytes) -> bytes:
    """The key of a site without a kit, as a Flower node may be: made of what only this site knows.

    >>> len(own_from(bytes(32))), own_from(bytes(32)) == own_from(bytes(31) + b"1")
    (32, False)
    """
    return hashlib.blake2b(b"eigenpact site key 1", key=secret, digest_size=32).digest()
