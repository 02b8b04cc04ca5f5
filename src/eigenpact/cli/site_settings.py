"""The files in which a data manager says what a site holds and allows: ``site.toml`` and ``policy.toml``."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..data.description import Description
from ..data.readers import Table
from ..data.site_rows import read_agreed
from ..engines.federation.kits import PartyKit
from ..engines.federation.running import FACTS, started
from ..engines.federation.sites import SiteFacts
from ..errors import FileError, InputError
from ..estimators.plans import functions_of, functions_of_steps, functions_to_compare, functions_to_fill
from ..estimators.preparers import PARTS
from ..estimators.registry import solvers_for
from ..runtime import Policy
from ..runtime.forms import fits
from ..storage import read_regular

SHIPPED = ("auto", "gram", "krylov", "lanczos", "davidson", "subspace")
"""What a new kit allows: exact solvers of which a site answers sums alone; auto takes gram or krylov."""

ALL_SOLVERS = tuple(solvers_for("FederatedPCA", "FederatedPCA(missing='em')", "PersonalizedPCA", "RobustPCA", "PrivatePCA"))
COORDINATOR_TIMEOUT = 60.0
MOST_BYTES = 1 << 20
"""Of a file of settings."""

PATHS = ("kit", "data", "description", "policy", "ledger")
SITE_KEYS = (*PATHS, "coordinator_timeout")

POLICY = f"""\
# What this site allows, whoever asks.  Every rule is enforced at the site; a request that breaks one is refused by its name.
# The file is read by eigenpact site start: stop and start the site after a change.
# Why each rule is there: docs/explanation/security.md.
solvers = {json.dumps(list(SHIPPED))}
min_rows = 20            # with fewer rows this site takes no part, and no reply speaks of fewer
max_rounds = 500         # replies of one run, set-up included
max_runs_per_day = 50
max_runs = 1000          # for one version of this site's table
max_columns = 200000     # answered about one version of this site's table; a scatter matrix counts as all its columns
max_epochs = 20          # times that one run may begin anew because sites were lost or came back
exact_replies = false    # true: all digits leave, also those in which a hostile coordinator could hide questions about a row
reply_bits = 40          # digits of replies that are not exact, below the pooled variance
secret_streams = true    # which rows are held out, where a solver does so, nobody else can know
max_components = 100     # columns of anything that is sent here
max_seconds = 3600       # of computing for one request; then the run is over here
allow_gather = false     # one-shot starts: the coordinator would see this site's own directions
allow_at = false         # a function at this site alone
allow_max = false        # maxima: the coordinator sees single replies
allow_chain = false      # a state passed from site to site
max_epsilon = 1.0        # what private solvers (noisy-gram, noisy-subspace) may reveal in all; for nothing if exact ones run, too
max_delta = 1e-6
max_shares = 1           # sites that noise may be divided among, which then must trust each other; 1 if sums are not secured
rows_per_person = 1      # the most rows of one person in this table, which private solvers hide together
allow_digest = true      # runs that can be resumed: a keyed digest of this site's rows, to notice that they changed
compare_columns = false  # true: runs that count which agreed columns each site has (--features), and compare units
fill_missing = false     # true: runs that fill in missing entries (--missing mean; em needs "em" in solvers, too)
prepare = []             # steps by which rows may be prepared (--prepare), such as ["scale", "genotypes"]
secure = "{{secure}}"    # "required": this site replies to secured sums alone, of which nobody sees its part; else "allowed"
# allow_site_means = true  # center="site": sums then tell few sites' means apart; by default not where secure = "required"
max_failures = 3         # secured runs that may fail because of this table; then only noise leaves, until you raise this
min_participants = 3     # sites of a secured sum, at least
min_apart = 0            # secured sums about this table are over the same sites every time; N: they may differ by N or more
                         # sites, whose part together can then be computed
# Whose keys are believed in secured sums: if none is named here, those that came with the kits, and whoever made these has seen
# them.  The lines that eigenpact site key prints at the other sites, brought by another way than the coordinator, go below:
# [participants]
"""


SITE = """\
# What eigenpact site start reads in this folder, and what is checked by: eigenpact site check site.toml
kit = "."
data = "patients.csv"    # this site's table; a path beside this file or an absolute one
# description = "patients.toml"  # what the table is, if no patients.csv.toml lies beside it: eigenpact describe writes one
policy = "policy.toml"
"""


@dataclass(frozen=True)
class SiteFile:
    """What stands in a ``site.toml``, with absolute paths."""

    kit: Path
    data: Path
    policy: Path
    ledger: Path
    coordinator_timeout: float
    description: Path | None = None

    @classmethod
    def of(
        cls,
        kit: Path,
        data: Path,
        policy: Path | None = None,
        ledger: Path | None = None,
        timeout: float = COORDINATOR_TIMEOUT,
        description: Path | None = None,
    ) -> SiteFile:
        """Paths as given, or their places in the kit."""
        folder = kit.absolute()
        chosen = policy.absolute() if policy else folder / "policy.toml"
        written, said = ledger.absolute() if ledger else folder / "ledger.jsonl", description.absolute() if description else None
        return cls(folder, data.absolute(), chosen, written, timeout, said)

    @classmethod
    def read(cls, path: Path) -> SiteFile:
        """From a file; paths are relative to its folder."""
        facts = read_toml(path, SITE_KEYS, needed=("data",))
        for key, value in facts.items():
            good = (
                fits(value, float) and value > 0 if key == "coordinator_timeout" else isinstance(value, str) and "\0" not in value
            )
            if not good:
                raise InputError(f"{path}: {key} = {value!r} must be {'seconds' if key == 'coordinator_timeout' else 'a path'}")
        folder = path.absolute().parent
        places = {key: folder / facts[key] for key in PATHS if key in facts}
        timeout = float(facts.get("coordinator_timeout", COORDINATOR_TIMEOUT))
        others = places.get("policy"), places.get("ledger"), timeout, places.get("description")
        return cls.of(places.get("kit", folder), places["data"], *others)

    def table(self, features: tuple[str, ...] | int) -> Table:
        """The site's table, read by its description; of one that has all agreed columns, these alone."""
        return read_agreed(self.data, None if self.description is None else Description.read(self.description), features)

    @classmethod
    def given(
        cls,
        kit: Path,
        data: Path | None,
        policy: Path | None,
        ledger: Path | None,
        timeout: float | None,
        description: Path | None = None,
    ) -> SiteFile:
        """What was given on the command line, and else what ``site.toml`` in the kit says, or ``kit`` itself if it is that file.

        Without ``site.toml``, the table must be given.
        """
        file = kit if kit.suffix == ".toml" else kit / "site.toml"
        if data is not None and not file.exists():
            return cls.of(kit, data, policy, ledger, timeout or COORDINATOR_TIMEOUT, description)
        said = cls.read(file)
        own = {"data": data, "policy": policy, "ledger": ledger, "description": description}
        chosen: dict[str, Any] = {key: path.absolute() for key, path in own.items() if path is not None}
        if data is not None and description is None:
            chosen["description"] = None  # the one in site.toml is of another table
        return replace(said, **chosen, coordinator_timeout=timeout or said.coordinator_timeout)

    def write_facts(self, kit: PartyKit, policy: Policy) -> tuple[Path, str]:
        """The file that the site's process reads; give its path, and its digest."""
        path, timeout = kit.folder / FACTS, self.coordinator_timeout
        said = self.ledger, timeout, kit.folder, self.description
        facts = describe(kit.party, self.data, kit.federation.features, policy, *said)
        return path, facts.pinned(**started()).write(path)


def describe(
    name: str,
    data: Path,
    features: tuple[str, ...] | int,
    policy: Policy,
    ledger: Path,
    timeout: float = COORDINATOR_TIMEOUT,
    kit: Path | str = "",
    description: Path | None = None,
) -> SiteFacts:
    """What a site's processes are to know."""
    opener = "eigenpact.data.site_rows:open_rows"
    said = "" if description is None else str(description)
    return SiteFacts(name, opener, str(data), features, policy.to_dict(), str(ledger), timeout, str(kit), said)


def policy_text(*, secure: bool) -> str:
    """The policy of a new kit, in which sums must be secured, or need not."""
    return POLICY.replace("{secure}", "required" if secure else "allowed")


def read_policy(path: Path | None, *, secure: bool = False) -> Policy:
    """A site's rules, without a file those of a new kit; the functions of what they allow are listed by themselves.

    What a file does not say is as in a new kit of its federation, where sums must be secured, or need not; but one that says
    nothing was hardly meant to be a policy.
    """
    facts = tomllib.loads(policy_text(secure=secure)) if path is None else read_toml(path)
    if not facts:
        raise InputError(f"{path} holds no rule; name at least the solvers: solvers = {json.dumps(list(SHIPPED))}")
    kit_says = "required" if secure else "allowed"
    policy = Policy.from_dict({"solvers": list(SHIPPED), "functions": [], "secure": kit_says} | facts, str(path))
    if not policy.solvers:
        raise InputError(f"{path} allows no solver; add a line such as solvers = {json.dumps(list(SHIPPED))}")
    own = {name for solver in policy.solvers if solver in ALL_SOLVERS for name in functions_of(solver, policy.kinds())}
    own |= set(functions_to_compare()) if policy.compare_columns else set()
    own |= set(functions_to_fill()) if policy.fill_missing else set()
    strange = [step for step in policy.prepare if step not in PARTS]
    if strange:
        raise InputError(f"{path}: rule prepare names {strange[0]!r}, which is no step; there are {', '.join(PARTS)}")
    own |= set(functions_of_steps(policy.prepare))
    unknown = [solver for solver in policy.solvers if solver not in ALL_SOLVERS]
    if unknown and not policy.modules:
        raise InputError(f"{path}: unknown solver {unknown[0]!r}; allowed are {', '.join(ALL_SOLVERS)}")
    return Policy.from_dict(policy.to_dict() | {"functions": sorted(own | set(policy.functions))}, str(path))


def read_toml(path: Path, known: Sequence[str] = (), needed: Sequence[str] = ()) -> dict[str, Any]:
    """A TOML file; of the keys that are ``known`` (none: any) those that are ``needed`` must be there."""
    try:
        facts = tomllib.loads(read_regular(path, MOST_BYTES, follow=True).decode("utf-8-sig"))
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}; check the path") from error
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        raise InputError(f"{path} is not a TOML file: {error}") from error
    unknown = sorted(set(facts) - set(known)) if known else []
    missing = [key for key in needed if key not in facts]
    if unknown or missing:
        what = "unknown" if unknown else "missing"
        raise InputError(f"{path}: {(unknown or missing)[0]!r} is {what}; known are {', '.join(known)}")
    return facts
