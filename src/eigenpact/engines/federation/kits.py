"""What the start-up kits of a federation have in common, whatever its engine: who takes part, and one folder a party.

A kit says in ``kit.json`` whose it is and of which federation, and in ``parties.json`` who takes part (``parties.py``).  Keys and
certificates for connections are the engine's: ``flare/kits.py``, ``flower/kits.py``.
"""

from __future__ import annotations

import json
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from ...errors import FileError, InputError
from ...release import __version__
from ...runtime.forms import fits
from ...storage import alone, parse_json, read_regular, replace_private, write_private_json, writing
from ..extras import crypto
from .identities import KitIdentity, make_key
from .parties import AUTHORITY, COORDINATOR, PARTIES, Parties, digest_of_root, place_parties, read_parties

KIT = "kit.json"
MOST_BYTES = 1 << 26
"""Of a kit's description, the names of all columns among it."""

ENGINES = ("nvflare", "flower")
"""Engines that a federation can have."""

REVOKED = "revoked.json"
"""File in the coordinator's kit with the keys that were revoked, and whose they were."""

FORMAT = 4
"""What ``kit.json`` says of the form of kits that are made now: nothing before modules moved (ADR 14), 2 before keys, 3 before
the authority signed who takes part (ADR 15)."""

AUTHORITY_DAYS = 3650
"""How long an authority's certificate is valid: those that it signs end earlier, and can be renewed."""

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
    secure : bool
        Whether the policies of new kits ask for secured sums.
    """

    name: str
    host: str
    port: int
    sites: tuple[str, ...]
    features: tuple[str, ...] | int
    valid_days: int = 360
    engine: str = "nvflare"
    secure: bool = False

    def __post_init__(self) -> None:
        for what, name in [("name", self.name), *(("site", site) for site in self.sites)]:
            if not NAME.fullmatch(name):
                raise InputError(f"{what} {name!r} must be 1 to 61 letters, digits, - or _, beginning with a letter or digit")
        if not self.sites or len(set(self.sites)) < len(self.sites):
            raise InputError(f"sites = {list(self.sites)} must be one or more names, each once")
        reserved = {COORDINATOR, "server", AUTHORITY} & set(self.sites)
        if reserved:
            raise InputError(f"a site may not be called {sorted(reserved)[0]!r}; rename it")
        if self.host in self.sites:
            raise InputError(f"a site may not be called {self.host!r}, which is the coordinator's host; rename it")
        if not 0 < self.port < 65536:
            raise InputError(f"port = {self.port} must be between 1 and 65535")
        if self.valid_days < 1:
            raise InputError(f"valid_days = {self.valid_days} must be at least 1")
        if self.engine not in ENGINES:
            raise InputError(f"engine = {self.engine!r} is unknown; between institutions there are {', '.join(ENGINES)}")
        if not isinstance(self.secure, bool):
            raise InputError(f"secure = {self.secure!r} must be true or false")
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
    """A party's folder, as ``federation init`` or ``federation add`` made it.

    Attributes
    ----------
    folder : Path
    party : str
        The site's name, "coordinator", or "authority" for the folder with the keys that sign.
    federation : Federation
    parties : Parties
        Who takes part, as this kit knows.
    authority : str
        Public key of the federation's authority, in hexadecimal digits.
    """

    folder: Path
    party: str
    federation: Federation
    parties: Parties
    authority: str

    engine: ClassVar[str] = ""
    oldest: ClassVar[int] = 4
    """The oldest format of kits that still work."""

    @classmethod
    def read(cls, folder: str | Path | PartyKit, kind: str) -> Self:
        """Read a kit of this engine that must be of that kind: "site" or "coordinator"; one that was read already is enough."""
        return folder if isinstance(folder, cls) else read_kit(folder, kind, cls)

    def identity(self) -> KitIdentity:
        """With what this party signs, and tells whether others have."""
        return KitIdentity(self.folder, self.party, dict(self.parties.keys) | {AUTHORITY: self.authority}, self.revoked())

    def revoked(self) -> tuple[str, ...]:
        """Sites whose keys the coordinator no longer believes, until they have others; a site's kit tells of none."""
        revoked = self._revoked_keys()
        return tuple(site for site in self.parties.sites if self.parties.keys[site] in revoked)

    def revoke(self, site: str) -> None:
        """Believe a site's key no longer: it takes part in no run from now on."""
        with alone(self.folder), writing(self.folder / REVOKED, "the coordinator's kit must be yours to write"):
            self.federation.taking_part((site,), 0, self.revoked())
            keys = self._revoked_keys() | {self.parties.keys[site]: site}
            replace_private(self.folder / REVOKED, [(json.dumps(keys, indent=2) + "\n").encode()])

    def _revoked_keys(self) -> dict[str, str]:
        path = self.folder / REVOKED
        try:
            keys = parse_json(read_regular(path, MOST_BYTES)) if path.exists() else {}
        except (OSError, InputError) as error:
            raise FileError(f"{path} cannot be read: {error}; restore it") from error
        if not fits(keys, dict[str, str]):
            raise FileError(f"{path} must name a site for each key that was revoked; restore it")
        return dict(keys)

    def check_key(self, path: Path, public_key: Any, load: str = "load_pem_private_key", fits: str = "") -> None:
        """The private key must be there, fit, and be its owner's alone."""
        try:
            loose = path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
            key = getattr(crypto("hazmat.primitives.serialization"), load)(read_regular(path, MOST_BYTES, follow=True), None)
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
            raise InputError(
                f"the certificate of {self.party!r} expired on {end:%Y-%m-%d %H:%M} UTC; ask whoever keeps authority/ "
                f"to renew it: eigenpact federation renew FOLDER {self.party}"
            )
        if begin > now:
            raise InputError(f"the certificate of {self.party!r} is valid only from {begin:%Y-%m-%d %H:%M} UTC")
        return end

    def check_root(self, path: Path) -> Any:
        """The authority's certificate, which must be the one that the list of parties names."""
        (root,) = self.load_certificates(path)
        if digest_of_root(root) != self.parties.root:
            raise InputError(
                f"{path.name} of {self.folder} is not the certificate of the authority of federation {self.federation.name!r}; "
                "ask for the kit again"
            )
        return root

    def check_certificate(self, authority: Path, path: Path, name: str) -> datetime:
        """When a certificate or its authority's ends; one that has ended, lacks its key or is somebody else's is an error."""
        root, (own,) = self.check_root(authority), self.load_certificates(path)
        try:
            own.verify_directly_issued_by(root)
        except (crypto("exceptions").InvalidSignature, TypeError, ValueError) as error:
            raise InputError(
                f"{path.name} of {self.folder} was not issued by this federation's authority; ask for the kit again"
            ) from error
        issued = [str(part.value) for part in own.subject.get_attributes_for_oid(crypto("x509").NameOID.COMMON_NAME)]
        if issued != [name]:
            raise InputError(
                f"{path.name} of {self.folder} was issued to {', '.join(map(repr, issued)) or 'nobody'}, not to {name!r}; "
                "every party has a kit of its own: ask for yours again"
            )
        self.check_key(path.with_suffix(".key"), own.public_key(), fits=path.name)
        return self.check_dates(own.not_valid_before_utc, min(root.not_valid_after_utc, own.not_valid_after_utc))

    def load_certificates(self, *paths: Path) -> list[Any]:
        """Certificates from PEM files, one from each: whoever connects would believe a second one, too."""
        try:
            texts = [read_regular(path, MOST_BYTES, follow=True) for path in paths]
            found = [crypto("x509").load_pem_x509_certificate(text) for text in texts]
        except (OSError, ValueError) as error:
            raise FileError(f"a certificate of {self.folder} cannot be read: {error}; ask for the kit again") from error
        for path, text in zip(paths, texts, strict=True):
            if text.count(b"-----BEGIN") != 1:
                raise InputError(f"{path.name} of {self.folder} holds more than one certificate; ask for the kit again")
        return found


class EngineKit(PartyKit, ABC):
    """A kit with the keys and certificates that an engine's connections need."""

    @property
    @abstractmethod
    def credentials(self) -> tuple[str, ...]:
        """Paths in the kit of these keys and certificates: what a renewal replaces."""

    @abstractmethod
    def expires(self) -> datetime:
        """When the first of the kit's certificates ends; one that has ended, lacks its key or is of elsewhere is an error."""

    @abstractmethod
    def make_party(self, party: str, folder: Path) -> str:
        """Of the authority: make a party's kit, with new keys and certificates, in a folder; give its SuperNode's key, if any."""


K = TypeVar("K", bound=PartyKit)


def read_kit(folder: str | Path | PartyKit, kind: str | tuple[str, ...], *engines: type[K]) -> K:
    """Read a kit that must be of that kind, or one of them, and made for one of these engines (PartyKit: for any).

    Kinds are "site", "coordinator" and "authority".
    """
    kinds = (kind,) if isinstance(kind, str) else kind
    path = (folder.folder if isinstance(folder, PartyKit) else Path(folder)).absolute()
    try:
        facts = parse_json(read_regular(path / KIT, MOST_BYTES))
        written, party, engine = int(facts.pop("format", 1)), str(facts.pop("party")), facts.get("engine", ENGINES[0])
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise _no_kit(folder, error) from error
    found = party if party in (COORDINATOR, AUTHORITY) else "site"
    if found not in kinds:
        raise InputError(f"{folder} is the kit of {party!r}, {_a(found)}; give the kit of {' or '.join(map(_a, kinds))}")
    made_for = next((kit for kit in engines if kit.engine in ("", engine)), None)
    if made_for is None:
        wanted = " or ".join(repr(kit.engine) for kit in engines)
        raise InputError(f"{folder} is a kit for engine {engine!r}; give one that was made for {wanted}")
    if written > FORMAT:
        raise InputError(
            f"{folder} is a kit of format {written}, which a later release of eigenpact made; this is {__version__}, which reads "
            f"up to {FORMAT}: upgrade eigenpact here"
        )
    if written < made_for.oldest:
        raise InputError(
            f"{folder} is a kit of format {written}, and this eigenpact reads {made_for.oldest} to {FORMAT}: earlier ones "
            "lack the list of parties that the authority signs; make new kits with eigenpact federation init"
        )
    try:
        authority, features = str(facts.pop(AUTHORITY)), facts.pop("features")
        features = features if isinstance(features, int) else tuple(features)
        parties = read_parties(path / PARTIES, authority)
        federation = Federation(**facts, sites=parties.sites, features=features)
    except (TypeError, KeyError) as error:
        raise _no_kit(folder, error) from error
    if parties.federation != federation.name or (found != AUTHORITY and party not in parties.keys):
        what = f"party {party!r}" if parties.federation == federation.name else f"federation {federation.name!r}"
        raise InputError(f"{path / PARTIES} does not know {what}; ask whoever keeps authority/ for {PARTIES}")
    return made_for(path, party, federation, parties, authority)


def _no_kit(folder: object, error: Exception) -> FileError:
    return FileError(f"{folder} is not a kit made by eigenpact federation init: {error}; check the path to the kit")


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"


def describe_kits(folder: Path, federation: Federation, root: str, nodes: Mapping[str, str] | None = None) -> None:
    """Give the authority and every party its key, and write into its kit whose it is, and who takes part.

    ``root`` is the digest of the authority's certificate, ``nodes`` are the public keys of SuperNodes.
    """
    parties = (COORDINATOR, *federation.sites)
    authority = make_key(folder / AUTHORITY)
    keys = {party: make_key(folder / party) for party in parties}
    known = Parties(federation.name, 1, root, keys, nodes or {})
    signed = known.signed(KitIdentity(folder / AUTHORITY, AUTHORITY, {AUTHORITY: authority}).sign)
    for party in (AUTHORITY, *parties):
        describe_kit(folder / party, party, federation, authority)
        place_parties(folder / party / PARTIES, signed)


def describe_kit(kit: Path, party: str, federation: Federation, authority: str) -> None:
    """Write into a kit whose it is, and of which federation; who takes part stands in the list of parties alone."""
    facts = {key: getattr(federation, key) for key in federation.__dataclass_fields__ if key != "sites"}
    kit.chmod(stat.S_IRWXU)
    write_private_json(kit / KIT, {"format": FORMAT, "party": party, "authority": authority} | facts)


def check_new_folder(folder: Path) -> None:
    """Kits are made in a new folder."""
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise FileError(f"{folder} exists already; choose another folder, because kits made before would no longer fit")
