"""What the start-up kits of a federation have in common, whatever its engine: who takes part, and one folder a party.

A kit says in ``kit.json`` whose it is and of which federation.  Keys and certificates in it are the engine's:
``flare/kits.py``, ``flower/kits.py``.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from ...errors import FileError, InputError
from ...storage import parse_json, read_regular, write_private_json
from ..extras import crypto
from .identities import KitIdentity, make_key

KIT = "kit.json"
MOST_BYTES = 1 << 26
"""Of a kit's description, the names of all columns among it."""

ENGINES = ("nvflare", "flower")
"""Engines that a federation can have."""

REVOKED = "revoked.json"
"""File in the coordinator's kit with the sites that were revoked."""

FORMAT = 3
"""What ``kit.json`` says of the form of kits that are made now: nothing before modules moved (ADR 14), 2 before keys (ADR 15)."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,60}")


@dataclass(frozen=True)
class Federation:
    """Who takes part and where the coordinator is reached.

    Attributes
    ----------
    name : str
    host : str
        Name or address under which sites reach the coordinator.
    port : int
    sites : tuple of str
    features : tuple of str, or int
        The agreed columns in order, or their number where tables have no names.
    valid_days : int
        How long certificates are valid.
    engine : str
        "nvflare" or "flower".
    keys : mapping
        Party -> public key of its signatures, in hexadecimal digits; kits have them.
    """

    name: str
    host: str
    port: int
    sites: tuple[str, ...]
    features: tuple[str, ...] | int
    valid_days: int = 360
    engine: str = "nvflare"
    keys: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)

    def __post_init__(self) -> None:
        for what, name in [("name", self.name), *(("site", site) for site in self.sites)]:
            if not NAME.fullmatch(name):
                raise InputError(f"{what} {name!r} must be 1 to 61 letters, digits, - or _, beginning with a letter or digit")
        if not self.sites or len(set(self.sites)) < len(self.sites):
            raise InputError(f"sites = {list(self.sites)} must be one or more names, each once")
        reserved = {"coordinator", "server", "authority"} & set(self.sites)
        if reserved:
            raise InputError(f"a site may not be called {sorted(reserved)[0]!r}; rename it")
        if not 0 < self.port < 65536:
            raise InputError(f"port = {self.port} must be between 1 and 65535")
        if self.valid_days < 1:
            raise InputError(f"valid_days = {self.valid_days} must be at least 1")
        if self.engine not in ENGINES:
            raise InputError(f"engine = {self.engine!r} is unknown; between institutions there are {', '.join(ENGINES)}")
        if not isinstance(self.keys, Mapping) or set(self.keys) not in (set(), {"coordinator", *self.sites}):
            raise InputError("keys must be those of the coordinator and of all sites; they are made with the kits")
        if isinstance(self.features, int):
            if self.features < 1:
                raise InputError(f"features = {self.features} must be the names of the columns, or their number >= 1")
        elif not self.features or len(set(self.features)) < len(self.features):
            raise InputError("features must be one or more names of columns, each once")

    def taking_part(
        self, sites: tuple[str, ...] | None, min_sites: int, revoked: Collection[str] = ()
    ) -> tuple[tuple[str, ...], int]:
        """The sites of a run (None: all that are not revoked), and how many of them there must be at least (0: all)."""
        left = tuple(site for site in self.sites if site not in revoked)
        wanted = sites or left
        unknown = sorted(set(wanted) - set(left))
        if unknown:
            why = "was revoked as" if unknown[0] in revoked else "is not"
            raise InputError(f"{unknown[0]!r} {why} a site of federation {self.name!r}: {', '.join(left)}")
        if not 0 <= min_sites <= len(wanted):
            raise InputError(f"min_sites={min_sites} must be between 1 and the number of sites {len(wanted)}, or 0 for all")
        return tuple(wanted), min_sites or len(wanted)


@dataclass(frozen=True)
class PartyKit:
    """A party's folder, as ``federation init`` made it.

    ``party`` is the site's name, or "coordinator".
    """

    folder: Path
    party: str
    federation: Federation

    engine: ClassVar[str] = ""
    oldest: ClassVar[int] = 3
    """The oldest format of kits that still work."""

    @classmethod
    def read(cls, folder: str | Path | PartyKit, kind: str) -> Self:
        """Read a kit of this engine that must be of that kind: "site" or "coordinator"; one that was read already is enough."""
        return folder if isinstance(folder, cls) else read_kit(folder, kind, cls)

    def identity(self) -> KitIdentity:
        """With what this party signs, and tells whether others have."""
        return KitIdentity(self.folder, self.party, self.federation.keys, self.revoked())

    def revoked(self) -> tuple[str, ...]:
        """Sites whose keys the coordinator no longer believes; a site's kit tells of none."""
        path = self.folder / REVOKED
        try:
            names = parse_json(read_regular(path, MOST_BYTES)) if path.exists() else []
        except (OSError, InputError) as error:
            raise FileError(f"{path} cannot be read: {error}; restore it") from error
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise FileError(f"{path} must be a list of sites; restore it")
        return tuple(names)

    def revoke(self, site: str) -> None:
        """Believe a site's key no longer: it takes part in no run from now on."""
        self.federation.taking_part((site,), 0, self.revoked())
        write_private_json(self.folder / REVOKED, [*self.revoked(), site])

    def check_key(self, path: Path, public_key: Any, load: str = "load_pem_private_key", fits: str = "") -> None:
        """The private key must be there, fit, and be its owner's alone."""
        try:
            loose = path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
            key = getattr(crypto("hazmat.primitives.serialization"), load)(path.read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise FileError(f"{path.name} of {self.folder} cannot be read: {error}; ask for the kit again") from error
        if loose:
            raise InputError(f"{path.name} of {self.folder} may be read by others; make it yours alone: chmod 600 {path}")
        if key.public_key() != public_key:
            raise InputError(f"{path.name} of {self.folder} does not belong to {fits}; ask for the kit again")

    def check_dates(self, begin: datetime, end: datetime) -> datetime:
        """The end of what is valid now; an error if it is not."""
        now = datetime.now(UTC)
        if end <= now:
            raise InputError(f"the certificate of {self.party!r} expired on {end:%Y-%m-%d %H:%M} UTC; ask for a new kit")
        if begin > now:
            raise InputError(f"the certificate of {self.party!r} is valid only from {begin:%Y-%m-%d %H:%M} UTC")
        return end

    def check_certificate(self, authority: Path, path: Path) -> datetime:
        """When a certificate or its authority's ends; one that has ended, lacks its key or is of elsewhere is an error."""
        root, own = self.load_certificates(authority, path)
        try:
            own.verify_directly_issued_by(root)
        except (crypto("exceptions").InvalidSignature, TypeError, ValueError) as error:
            raise InputError(
                f"{path.name} of {self.folder} was not issued by this federation's authority; ask for the kit again"
            ) from error
        self.check_key(path.with_suffix(".key"), own.public_key(), fits=path.name)
        return self.check_dates(own.not_valid_before_utc, min(root.not_valid_after_utc, own.not_valid_after_utc))

    def load_certificates(self, *paths: Path) -> list[Any]:
        """Certificates from PEM files."""
        try:
            return [crypto("x509").load_pem_x509_certificate(path.read_bytes()) for path in paths]
        except (OSError, ValueError) as error:
            raise FileError(f"a certificate of {self.folder} cannot be read: {error}; ask for the kit again") from error


K = TypeVar("K", bound=PartyKit)


def read_kit(folder: str | Path | PartyKit, kind: str, *engines: type[K]) -> K:
    """Read a kit that must be of that kind, "site" or "coordinator", and made for one of these engines (PartyKit: for any)."""
    path = (folder.folder if isinstance(folder, PartyKit) else Path(folder)).absolute()
    try:
        facts = parse_json(read_regular(path / KIT, MOST_BYTES))
        written = int(facts.pop("format", 1))
        party, features = facts.pop("party"), facts.pop("features")
        features = features if isinstance(features, int) else tuple(features)
        federation = Federation(**facts | {"sites": tuple(facts["sites"]), "features": features})
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise FileError(f"{folder} is not a kit made by eigenpact federation init: {error}; check the path to the kit") from error
    found = "coordinator" if party == "coordinator" else "site"
    if found != kind:
        raise InputError(f"{folder} is the kit of {party!r}, a {found}; give the kit of a {kind}")
    made_for = next((kit for kit in engines if kit.engine in ("", federation.engine)), None)
    if made_for is None:
        wanted = " or ".join(repr(kit.engine) for kit in engines)
        raise InputError(f"{folder} is a kit for engine {federation.engine!r}; give one that was made for {wanted}")
    if not made_for.oldest <= written <= FORMAT:
        raise InputError(
            f"{folder} is a kit of format {written}, and this eigenpact reads {made_for.oldest} to {FORMAT}: earlier ones "
            "lack the keys that letters are signed with; let the coordinator make new kits with eigenpact federation init"
        )
    return made_for(path, party, federation)


def describe_kits(folder: Path, federation: Federation) -> None:
    """Give every party its key, and write into its kit whose it is, and which keys the others have."""
    parties = ("coordinator", *federation.sites)
    keys = {party: make_key(folder / party) for party in parties}
    for party in parties:
        _describe(folder / party, party, replace(federation, keys=keys))


def _describe(kit: Path, party: str, federation: Federation) -> None:
    facts = {"format": FORMAT, "party": party} | {key: getattr(federation, key) for key in federation.__dataclass_fields__}
    kit.chmod(stat.S_IRWXU)
    write_private_json(kit / KIT, facts)


def check_new_folder(folder: Path) -> None:
    """Kits are made in a new folder."""
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise FileError(f"{folder} exists already; choose another folder, because kits made before would no longer fit")
