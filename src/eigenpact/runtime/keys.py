"""Keys that sites of a run share in pairs, agreed on through a coordinator that must not learn them.

A *session* begins each epoch of a run whose sums are secured (``secure_sum.py``), with two requests beside the steps:

1. ``session_key``: every site makes a key for this session alone (X25519) and sends its public half and its history, the
   rosters in which its rows were before (``rosters.py``), signed with the key that stands for the site (Ed25519), over run,
   epoch and the coordinator's number for this session.
2. ``session_roster``: every site is sent all names, public halves, histories and signatures.  It sees that its own is among
   them as it made it, that no name or key stands there twice, that all are signed, that they are whom its owner trusts, and that
   they are enough.  Then it has a key in common with each of the others: HKDF of the X25519 secret, salted with the digest of
   the whole roster, so that sites that were sent different rosters have no key in common.

Keys live in the memory of the site's processes and are gone with the session.  They are never written to a journal: a run that is
resumed agrees on new ones.  Whoever passes the messages on can keep a session from coming about, but not read in it.  Nor can
he change a history or leave one out: the signature would fail.  A whole answer of an earlier session, with an older history, has
an older key, and its site could not unmask what others add for it: sums would be noise.

Who stands for a site, in rising order of trust: a key made on the spot (all sites in one process), the key of its kit as the
authority signed it (whoever made the kits has seen it), a key that the site made itself and others have pinned (nobody else has).
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import MissingExtraError, PolicyError, WireError
from .forms import fits
from .local import Arrays, local
from .rosters import HISTORY_BYTES, unpack_history

if TYPE_CHECKING:
    from .site import Site

KEYS, ROSTER = "session key", "session roster"
"""Kinds of the two requests."""

KEY_ASIDE, ROSTER_ASIDE = -2, -3
"""Their steps: none.  Each has its own, so that a late answer to one is not taken for the other's."""

KEY_BYTES, SIGNATURE_BYTES = 32, 64

LEAST_SITES = 3
"""With two, each knows the other's part from the sum."""

SIGNED = b"eigenpact session key 2"
"""What the signature of a session's key begins with."""


@local(
    takes={"nonce": str(KEY_BYTES)},
    sends={
        "key": str(KEY_BYTES),
        "identity": str(KEY_BYTES),
        "signature": str(SIGNATURE_BYTES),
        "history": f"<={HISTORY_BYTES}",
    },
    means={"nonce": "bits"},
    setup=True,
)
def session_key(site: Site, nonce: Any) -> Any:  # noqa: ARG001
    """A site's public key for one session, the public key that stands for the site, its signature, and earlier rosters."""
    raise WireError("a session's keys are made by the site's server, beside the steps")


@local(takes={"roster": "bytes"}, sends={"digest": str(KEY_BYTES)}, means={"roster": "bits"}, setup=True)
def session_roster(site: Site, roster: Any) -> Any:  # noqa: ARG001
    """All sites of a session with their keys; a site that takes part tells the digest of what it was sent."""
    raise WireError("a session's roster is read by the site's server, beside the steps")


@dataclass(frozen=True)
class Trust:
    """Who stands for a site in sessions, and whom it takes part with.

    Attributes
    ----------
    key : bytes
        The site's own private key (Ed25519); empty for one made on the spot.
    pins : mapping from site to public key, in hexadecimal digits
        With whom the site takes part; None for anybody.
    least : int
        Fewest sites of a session.
    """

    key: bytes = field(default=b"", repr=False)
    pins: Mapping[str, str] | None = None
    least: int = LEAST_SITES


@dataclass(frozen=True)
class Member:
    """A site in a roster: its public key for the session, the one that stands for it, its signature, and its history."""

    name: str
    key: bytes
    identity: bytes
    signature: bytes
    history: bytes = b""


PARTS = ("key", "identity", "signature", "history")
"""What a site answers to ``session_key``, in order."""


class Session:
    """A site's side of a session: first its key, then, once it knows the others, what it shares with each.

    >>> a, b, c = (Session(name, Trust(), "run", 0, bytes(32)) for name in "abc")
    >>> roster = pack_roster([s.member for s in (a, b, c)])
    >>> _ = [s.join(roster) for s in (a, b, c)]
    >>> a.pairs["b"] == b.pairs["a"], a.pairs["b"] == a.pairs["c"], a.names
    (True, False, ('a', 'b', 'c'))
    """

    def __init__(self, site: str, trust: Trust, run: str, epoch: int, nonce: bytes, history: bytes = b"") -> None:
        self.site, self.run, self.epoch = site, run, epoch
        self.histories: tuple[tuple[str, ...], ...] = ()  # earlier rosters, as the others told
        self.names: tuple[str, ...] = ()
        self.pairs: dict[str, bytes] = {}
        self.digest = b""
        self._trust, self.nonce = trust, nonce
        ed25519 = crypto("hazmat.primitives.asymmetric.ed25519").Ed25519PrivateKey
        stands = ed25519.from_private_bytes(trust.key) if trust.key else ed25519.generate()
        self._private = crypto("hazmat.primitives.asymmetric.x25519").X25519PrivateKey.generate()
        key = self._private.public_key().public_bytes_raw()
        identity = stands.public_key().public_bytes_raw()
        signature = stands.sign(_signed_text(run, epoch, nonce, site, key, history))
        self.member = Member(site, key, identity, signature, history)

    @property
    def ready(self) -> bool:
        """Whether the others are known."""
        return bool(self.pairs)

    def join(self, roster: bytes) -> bytes:
        """Look at all members, refuse by name what is wrong, and agree on a key with each; the digest of the roster."""
        members = unpack_roster(roster)
        self._check(members)
        digest = digest_of_roster(self.run, roster)
        x25519 = crypto("hazmat.primitives.asymmetric.x25519").X25519PublicKey
        pairs = {}
        for other in members:
            if other.name != self.site:
                try:
                    secret = self._private.exchange(x25519.from_public_bytes(other.key))
                except ValueError as error:  # a point that gives everybody the same secret
                    raise PolicyError(f"rule roster: the session's key of site {other.name!r} is none") from error
                pairs[other.name] = _derived(secret, digest, *sorted((self.site, other.name)))
        self.histories = tuple({roster: None for m in members for roster in unpack_history(m.history, m.name)})
        self.pairs, self.names, self.digest = pairs, tuple(sorted(m.name for m in members)), digest
        return digest

    def _check(self, members: Sequence[Member]) -> None:
        names, least = [m.name for m in members], max(self._trust.least, LEAST_SITES)
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise PolicyError(f"rule roster: site {twice!r} stands there twice")
        if len({m.key for m in members}) < len(members) or len({m.identity for m in members}) < len(members):
            raise PolicyError("rule roster: two sites have one key; each must have its own")
        if self.member not in members:
            raise PolicyError(f"rule roster: site {self.site!r} does not stand there with the key it made for this session")
        if len(members) < least:
            raise PolicyError(
                f"rule min_participants = {least}: the roster has {len(members)} site(s), {', '.join(sorted(names))}; "
                f"of a sum of fewer, others know this site's part; give {'three' if least == 3 else least} sites or more, "
                "or leave out --secure (secure=True)"
            )
        for member in members:
            self._check_member(member)

    def _check_member(self, member: Member) -> None:
        pins = self._trust.pins
        if pins is not None and member.name not in pins:
            raise PolicyError(
                f"rule participants: site {member.name!r} is not among those whose keys are known here; write its key into this "
                "site's policy, or install the newest list of parties"
            )
        if pins is not None and pins[member.name] != member.identity.hex():
            raise PolicyError(
                f"rule participants: site {member.name!r} has another key than the one known here; if it made one "
                "(eigenpact site key), write that into this site's policy"
            )
        text = _signed_text(self.run, self.epoch, self.nonce, member.name, member.key, member.history)
        try:
            key = crypto("hazmat.primitives.asymmetric.ed25519").Ed25519PublicKey.from_public_bytes(member.identity)
            key.verify(member.signature, text)
        except (crypto("exceptions").InvalidSignature, ValueError) as error:
            raise PolicyError(
                f"rule roster: key and history of site {member.name!r} are not signed by it for this session: they are of "
                "another, or forged"
            ) from error

    def remember(self) -> dict[str, Any]:
        """For another process of this site, in the site's own memory."""
        told = {name: getattr(self, name).hex() for name in ("digest", "nonce")}
        told |= {f"member {name}": getattr(self.member, name).hex() for name in PARTS}
        pairs = {name: key.hex() for name, key in self.pairs.items()}
        return told | {"run": self.run, "epoch": self.epoch, "pairs": pairs, "private": self._private.private_bytes_raw().hex()}

    @classmethod
    def recall(cls, site: str, trust: Trust, facts: Mapping[str, Any]) -> Session:
        """Go on where another process of this site stopped."""
        session = cls(site, trust, facts["run"], facts["epoch"], bytes.fromhex(facts["nonce"]))
        x25519 = crypto("hazmat.primitives.asymmetric.x25519").X25519PrivateKey
        session._private = x25519.from_private_bytes(bytes.fromhex(facts["private"]))
        session.member = Member(site, *(bytes.fromhex(facts[f"member {name}"]) for name in PARTS))
        session.pairs = {name: bytes.fromhex(key) for name, key in facts["pairs"].items()}
        session.names = tuple(sorted((site, *session.pairs))) if session.pairs else ()
        session.digest = bytes.fromhex(facts["digest"])
        return session


def digest_of_roster(run: str, roster: bytes) -> bytes:
    """What a roster is called in its session."""
    return hashlib.sha256(b"eigenpact roster 1" + len(run).to_bytes(4, "little") + run.encode() + roster).digest()


def as_member(name: str, arrays: Arrays) -> Member:
    """What a site answered to ``session_key``."""
    return Member(name, *(a.tobytes() for a in arrays))


def as_reply(member: Member) -> Arrays:
    """What a site answers to ``session_key``."""
    return tuple(np.frombuffer(getattr(member, name), dtype=np.uint8) for name in PARTS)


def new_nonce() -> np.ndarray[Any, Any]:
    """A coordinator's number for a session."""
    return np.frombuffer(os.urandom(KEY_BYTES), dtype=np.uint8)


def pack_roster(members: Sequence[Member]) -> bytes:
    """All members as bytes, the same for all sites."""
    rows = [[m.name, *(getattr(m, name).hex() for name in PARTS)] for m in sorted(members, key=lambda m: m.name)]
    return json.dumps(rows, separators=(",", ":")).encode()


def unpack_roster(roster: bytes) -> list[Member]:
    """Inverse of :func:`pack_roster`, for what a coordinator sent: everything is checked."""
    sizes = (KEY_BYTES, KEY_BYTES, SIGNATURE_BYTES)
    try:
        rows = json.loads(roster)
        if not fits(rows, list[tuple[str, str, str, str, str]]):
            raise ValueError
        members = [Member(name, *(bytes.fromhex(part) for part in parts)) for name, *parts in rows]
    except (ValueError, RecursionError) as error:
        raise PolicyError("rule roster: it is no list of sites with their keys") from error
    if any(len(getattr(m, name)) != n for m in members for name, n in zip(PARTS[:3], sizes, strict=True)):
        raise PolicyError("rule roster: a key or signature is too short or too long")
    return members


def crypto(module: str) -> Any:
    """A module of cryptography."""
    try:
        return importlib.import_module(f"cryptography.{module}")
    except ImportError as error:
        raise MissingExtraError(f"secured sums and kits need cryptography ({error}): pip install 'eigenpact[secure]'") from error


def _signed_text(run: str, epoch: int, nonce: bytes, site: str, key: bytes, history: bytes) -> bytes:
    """What a site signs; every part has its length before it, so that none can be read as another."""
    parts = (run.encode(), str(epoch).encode(), nonce, site.encode(), key, history)
    return SIGNED + b"".join(len(part).to_bytes(4, "little") + part for part in parts)


def _derived(secret: bytes, digest: bytes, one: str, other: str) -> bytes:
    """The key that two sites share in one session."""
    hashes, hkdf = crypto("hazmat.primitives.hashes"), crypto("hazmat.primitives.kdf.hkdf")
    info = json.dumps(["eigenpact pair 1", one, other]).encode()
    return bytes(hkdf.HKDF(hashes.SHA256(), KEY_BYTES, salt=digest, info=info).derive(secret))
