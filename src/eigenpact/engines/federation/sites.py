"""A site between institutions, whatever the engine: what its owner says of it, and the end that answers.

What a site works on is said by its owner alone, in a file that ``eigenpact site start`` or ``eigenpact site describe`` writes.
Nothing of it comes from the coordinator.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...errors import EigenpactError, FileError, InputError, PolicyError, SiteError
from ...numerics.weighted import Weighted, rows_spoken_of
from ...runtime import Gate, Policy, Purse, SiteEndpoint, SiteLedger, SiteServer
from ...runtime.forms import misfit
from ...runtime.holes import Holes
from ...runtime.lately import Lately
from ...runtime.purse import budget_beside
from ...runtime.site_ledger import MOST_REFUSALS
from ...runtime.versions import row_hashes, version_of
from ...storage import parse_json, read_regular, replace_private, writing
from .kits import PartyKit, read_kit
from .trust import trust_of

MOST_BYTES = 1 << 26
"""Of what an owner says of a site, the names of all columns among it."""

FORMS: dict[str, Any] = {
    "name": str,
    "opener": str,
    "data": str,
    "features": list[str] | int,
    "policy": dict[str, Any],
    "ledger": str,
    "coordinator_timeout": float,
    "kit": str,
    "description": str,
    "version": str,
    "pid": int,
    "since": str,
}
DIGEST_BYTES = 16

OPTIONAL: dict[str, Any] = {"description": "", "version": "", "pid": 0, "since": ""}
"""What files of earlier versions do not say."""

log = logging.getLogger("eigenpact.site")


@dataclass(frozen=True)
class SiteFacts:
    """What a site's owner says of it.

    Attributes
    ----------
    name : str
    opener : str
        "module:function" that gives the rows (n x d) from ``data`` and ``features``, checked and in their order; it is told the
        ``description``, and whether entries may be ``missing``.
    data : str
        The site's table.
    features : tuple of str, or int
        The agreed columns in order, or their number.
    policy : dict
    ledger : str
        The site's own ledger.
    coordinator_timeout : float
        Seconds without a word after which the process ends, where it lasts for a whole run.
    kit : str
        The site's kit, whose keys letters and replies are signed with; empty for a Flower node that has none.
    description : str
        The TOML that describes the table; empty for the one beside it, if there is one.
    version : str
        Of the rows that the site was started with, or described with: others are not answered with.  Empty if any may be.
    pid, since : int and str
        The process that was started, and when; 0 and empty for a Flower node that is started otherwise.
    """

    name: str
    opener: str
    data: str
    features: tuple[str, ...] | int
    policy: dict[str, Any]
    ledger: str
    coordinator_timeout: float
    kit: str
    description: str = ""
    version: str = ""
    pid: int = 0
    since: str = ""

    @classmethod
    def read(cls, path: str, named_by: str, digest: str = "") -> SiteFacts:
        """From the owner's file; ``named_by`` is where its path stands, for the error.

        With the ``digest`` of the file as it was when the site was started, another file is refused.
        """
        use = "use eigenpact site start, or eigenpact site describe"
        try:
            text = read_regular(Path(path), MOST_BYTES)
            facts = parse_json(text)
        except (OSError, ValueError) as error:
            raise FileError(f"{path!r}, named by {named_by}, cannot be read: {error}; {use}") from error
        if digest and digest != _digest(text):
            raise InputError(
                f"{path!r} was changed since the site was started, and this site answers as it was then or not at all; stop it "
                "and start it again"
            )
        facts = OPTIONAL | facts if isinstance(facts, dict) else facts
        wrong = misfit(facts, FORMS)
        if wrong or len(facts) != len(FORMS):
            raise InputError(f"{path!r}, named by {named_by}, does not describe a site: {wrong or 'it says more'}; {use}")
        features = facts["features"]
        return cls(**facts | {"features": features if isinstance(features, int) else tuple(features)})

    def write(self, path: Path) -> str:
        """For the site's processes, and for its owner alone; give the file's digest."""
        with writing(path, "it must be in a folder of your own"):
            text = (json.dumps(asdict(self), indent=2) + "\n").encode()
            replace_private(path, [text])
        return _digest(text)

    @property
    def max_seconds(self) -> float:
        """Seconds that one request may be computed here."""
        return float(self.policy.get("max_seconds", Policy.max_seconds))

    def server(self, *, tell: bool = False) -> tuple[SiteServer, Policy]:
        """Read the rows and import what the owner trusts; ``tell`` the owner, in the site's log, where entries are missing."""
        policy = Policy.from_dict(self.policy)
        policy.load()
        X = self.rows()
        holes = Holes.of(X, self.features)
        if tell and holes.told():
            log.info("%s: this site takes part only in runs that fill them in (--missing)", holes.told())
        if tell and isinstance(X, Weighted):
            log.info("rows have weights: this site takes part only in runs with --weights (fit(sample_weight=True))")
        ledger = SiteLedger(self.ledger)
        secret = ledger.secret()
        named = () if isinstance(self.features, int) else self.features
        rows = row_hashes(X, secret)
        version = version_of(rows, secret)
        if self.version not in ("", version):
            raise PolicyError(
                "rule data: this site's table is not the one that the site was started with; its owner stops the site, looks at "
                "the table, and starts the site again"
            )
        facts: dict[str, Any] = {"n_rows": rows_spoken_of(X), "features": self.features, "weighted": isinstance(X, Weighted)}
        gate = Gate(self.name, policy, ledger, **facts, holes=holes, data=version, rows=rows)
        purse = Purse(budget_beside(ledger.path), limits=policy.limits, secret=secret, data=lambda: version, ledger=ledger)
        trust = trust_of(self.name, read_kit(self.kit, "site", PartyKit) if self.kit else None, policy, secret)
        return SiteServer(self.name, X, gate=gate, features=named, secret=secret, purse=purse, trust=trust), policy

    def rows(self) -> Any:
        """The rows (n x d), read now."""
        module, _, function = self.opener.partition(":")
        options = {"description": self.description, "missing": bool(self.policy.get("fill_missing", False))}
        return getattr(importlib.import_module(module), function)(self.name, self.data, self.features, **options)

    def pinned(self, **started: Any) -> SiteFacts:
        """The same with the version of the rows as they are now, for a site that is ``started``; written to its ledger."""
        ledger = SiteLedger(self.ledger)
        X, secret = self.rows(), ledger.secret()
        version = version_of(row_hashes(X, secret), secret)
        policy = _digest(json.dumps(self.policy, sort_keys=True).encode())
        named = {"table": Path(self.data).name, "rows": int(X.shape[0]), "policy": policy, "solvers": self.policy["solvers"]}
        ledger.write(what="started" if started else "described", data=version, **named, **started)
        return replace(self, version=version, **started)

    def stand_ready(self, remembered: bytes = b"") -> tuple[SiteEndpoint, SiteServer]:
        """The end that answers, and its server with what it ``remembered``; a site that cannot take part says so when asked."""
        identity = None
        try:
            identity = read_kit(self.kit, "site", PartyKit).identity() if self.kit else None
            server, policy = self.server(tell=not remembered)
            if remembered:
                server.recall(remembered)
        except EigenpactError as error:
            log.error("cannot take part: %s", error)
            unable = Unable(self.name, error, self.features if isinstance(self.features, int) else len(self.features))
            return SiteEndpoint(unable, identity=identity), unable
        return SiteEndpoint(server, policy.max_message_bytes, refusals_to_log(), identity), server


def _digest(text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=DIGEST_BYTES).hexdigest()


def refusals_to_log() -> Callable[[str], None]:
    """What writes refusals to the site's log: as many a day as its ledger has, then one line that says so."""
    written = Lately()

    def tell(reason: str) -> None:
        already = written.count()
        if already < MOST_REFUSALS:
            written.note(datetime.now(UTC), counts=True)
            log.warning("refused: %s", reason)
        if already == MOST_REFUSALS - 1:
            log.warning("%d refusals within 24 hours: more are not logged", MOST_REFUSALS)

    return tell


class Unable(SiteServer):
    """A site that cannot take part, and says so.

    What a rule says is told to the coordinator; other reasons may name the site's files or quote them, and stay in its log.
    """

    def __init__(self, name: str, error: EigenpactError, n_features: int) -> None:
        self.name, self.n_features, self._gate = name, n_features, None
        told = "this site's table or policy cannot be used; its own log says why"
        self._error = error if isinstance(error, PolicyError) else SiteError(told)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        """Nothing is known of runs, admitted or executed."""
        raise self._error

    position = admit = execute = _refuse

    def remember(self) -> bytes:
        """Nothing."""
        return b""
