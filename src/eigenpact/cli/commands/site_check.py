"""``eigenpact site check``: is this site ready, before anything is connected?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import EigenpactError, InputError
from ..consoles import harmless, stdout, tell

if TYPE_CHECKING:
    from ...engines.federation.kits import PartyKit
    from ...runtime import Policy
    from ..site_settings import SiteFile


def command(site: Annotated[Path, typer.Argument()]) -> None:
    """Check a site before it is started: file, features, rows, policy, certificate dates.  Nothing is sent anywhere.

    SITE is a site.toml such as lies in every site's kit: data, and perhaps kit, policy, ledger, coordinator_timeout.

    Exit code: 0 ready, 2 not ready.
    """
    from ..site_settings import SiteFile

    if not look(SiteFile.read(site)):
        raise typer.Exit(2)


def look(site: SiteFile, kit: PartyKit | None = None) -> bool:
    """Print a line for every check; tell whether all are passed.  The kit is read if it is not given."""
    from .. import tables

    table = tables.compact("Site")
    table.add_column("checked", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("found", overflow="fold")
    found: dict[str, Any] = {} if kit is None else {"a kit": kit}
    passed = [_line(table, found, what, check, site) for what, check in CHECKS.items()]
    stdout().print(table)
    if "wrong features" in found:
        suggest(site.data, found["a kit"].federation.features)
    return all(passed)


def suggest(data: Path, features: tuple[str, ...] | int) -> None:
    """Print the description that would mend a table, if it is one of text."""
    from ...data.suggestion import examine
    from .describe import told

    try:
        found = examine(data, None if isinstance(features, int) else features)
    except EigenpactError:  # it was told above
        return
    tell(stdout(), f"{data.name} needs a description.  If this is right, write it to {data.name}.toml beside it:\n")
    tell(stdout(), told(data, found))


def _line(table: Any, found: dict[str, Any], what: str, check: Callable[..., str], site: SiteFile) -> bool:
    try:
        text, good = check(site, found), True
    except EigenpactError as error:
        text, good = str(error), False
    except KeyError as missing:
        text, good = f"cannot be checked without {missing.args[0]}", False
    mark = ("partly" if isinstance(text, Partly) else "look" if isinstance(text, Undecided) else "ok") if good else "NO"
    table.add_row(what, mark, harmless(text, keep="\n"))
    return good


class Partly(str):
    """What was found, where it lets a site take part in some runs only."""

    __slots__ = ()


class Undecided(str):
    """What was found, where the table's owner has something to decide yet."""

    __slots__ = ()


def _kit(site: SiteFile, found: dict[str, Any]) -> str:
    from ..kits import find_kit

    found["a kit"] = kit = found.get("a kit") or find_kit(site.kit, "site")
    federation = kit.federation
    return f"{kit.party} of federation {federation.name}, coordinator at {federation.host}:{federation.port}"


def _certificate(_site: SiteFile, found: dict[str, Any]) -> str:
    until = found["a kit"].expires()
    found["a kit"].identity()  # the key that replies are signed with
    return f"valid until {until:%Y-%m-%d}"


def _features(site: SiteFile, found: dict[str, Any]) -> str:
    from ...data.description import description_of
    from ...data.site_rows import compared_with
    from ...data.weighing import weighed
    from ...runtime.holes import Holes
    from .describe import undecided

    kit = found["a kit"]
    try:
        table, rules = site.table(kit.federation.features), _rules(site, kit)
        X, lacking = compared_with(kit.party, table, kit.federation.features, missing=True)
        check_lacking(site.data, lacking, compares=rules is not None and rules.compare_columns)
    except EigenpactError:
        found["wrong features"] = True
        raise
    found["rows"], notes = weighed(X, table), "".join(f"\n{note}" for note in table.notes)
    holes = Holes.of(X, kit.federation.features).told()
    check_holes(site.data, holes, fills=rules is not None and rules.fill_missing, weighted=table.weights is not None)
    if lacking or holes:
        return Partly(f"{partly_told(lacking, holes, genotypes=table.variants is not None)}{notes}")
    told = f"all {X.shape[1]} agreed columns, finite numbers, in {site.data.name}{notes}"
    asked = undecided(said) if (said := site.description or description_of(site.data)[1]) else []
    remarks = "".join(f"\n{remark}" for remark in asked)
    return Undecided(f"{told}{remarks}\ndecide, and delete the remarks in {said.name}") if said and asked else told


def partly_told(lacking: str, holes: str, *, genotypes: bool = False) -> str:
    """Why a site that is ``lacking`` columns, or whose rows have ``holes``, both in words, takes part in some runs only."""
    filling = "--missing mean or em" + (", or --prepare genotypes" if genotypes else "")
    asked = [*(["--features intersection or union"] if lacking else []), *([filling] if holes else [])]
    found = "; ".join(text for text in (lacking, holes) if text)
    return f"{found}; this site takes part only in runs with {' and '.join(asked)}"


def _rules(site: SiteFile, kit: PartyKit) -> Policy | None:
    from ..site_settings import read_policy

    try:
        return read_policy(site.policy, secure=kit.federation.secure)
    except EigenpactError:
        return None  # the line of the policy says why


def _policy(site: SiteFile, found: dict[str, Any]) -> str:
    from ..site_settings import ALL_SOLVERS, SHIPPED, read_policy

    kit = found.get("a kit")
    found["a policy"] = policy = read_policy(site.policy, secure=kit is not None and kit.federation.secure)
    policy.load()
    allowed = [name.removeprefix("allow_") for name, value in policy.to_dict().items() if name.startswith("allow_") and value]
    besides = f"sums and {', '.join(allowed)}" if allowed else "nothing but sums"
    solvers = "every solver" if set(policy.solvers) >= set(ALL_SOLVERS) else f"solvers {', '.join(policy.solvers)}"
    trusting = policy.exact_replies or not set(policy.solvers) <= set(SHIPPED)
    return f"{solvers}; at most {policy.max_rounds} rounds; {besides}" + ("; for an honest coordinator alone" if trusting else "")


def _sums(_site: SiteFile, found: dict[str, Any]) -> str:
    """Whether sums are secured, and by whose keys."""
    from ...engines.federation.trust import known_to

    kit, policy = found["a kit"], found["a policy"]
    known = known_to(kit.party, kit, policy, b"")
    asked = "secured or refused" if policy.secure == "required" else "plain, or secured where the coordinator asks for it"
    if not known.pinned:
        return (
            f"{asked}; keys of {known.others} others from the federation's list, not pinned: whoever ran federation init has "
            "seen them all (eigenpact site key makes better ones)"
        )
    lacking = [name for name in kit.federation.sites if name not in known.keys]
    told = f"{asked}; keys of {known.others} others pinned in the policy" + (f", not of {', '.join(lacking)}" if lacking else "")
    return told + ("" if known.made_here else "; this site's own came with its kit: make one with eigenpact site key")


def _ledger(site: SiteFile, _found: dict[str, Any]) -> str:
    from ...runtime import read_site_ledger

    sent = sum(row["what"] == "sent" for row in read_site_ledger(site.ledger))
    return f"{sent} replies so far, in {site.ledger.name}"


def _rows(_site: SiteFile, found: dict[str, Any]) -> str:
    from ...numerics.weighted import Weighted, rows_spoken_of

    X, policy = found["rows"], found["a policy"]
    check_rows(X, policy)
    if isinstance(X, Weighted):
        return (
            f"{X.shape[0]} that have weights, which count as {rows_spoken_of(X)}, (sum w)^2 / sum w^2; at least "
            f"{policy.min_rows} are needed; this site takes part only in runs with --weights"
        )
    return f"{X.shape[0]}, at least {policy.min_rows} are needed"


def check_rows(X: Any, policy: Policy) -> None:
    """Refuse a table (n x d) with fewer rows than its own policy asks for; those of little weight count little."""
    from ...numerics.weighted import Weighted, rows_spoken_of

    n, least = rows_spoken_of(X), policy.min_rows
    if n < least:
        counted = f", as which {X.shape[0]} rows count by their weights," if isinstance(X, Weighted) else ","
        raise InputError(f"{n} rows{counted} but min_rows = {least} in the policy; this site would refuse every run")


def check_lacking(data: Path, lacking: str, *, compares: bool) -> None:
    """Refuse a table that lacks agreed columns, unless the site's policy lets it tell so."""
    if lacking and not compares:
        raise InputError(
            f"{data.name} {lacking}; add them, or rename columns, or set compare_columns = true in the policy, for runs with "
            "--features intersection or union"
        )


def check_holes(data: Path, holes: str, *, fills: bool, weighted: bool = False) -> None:
    """Refuse a table in which entries are missing, told in words, unless the site's policy lets them be filled in."""
    if holes and weighted:
        raise InputError(
            f"{data.name}: {holes}; what is missing is filled in as if all rows counted the same, so no run takes these rows "
            "with weights: drop those rows or columns, or take weights out of the description"
        )
    if holes and not fills:
        raise InputError(
            f"{data.name}: {holes}; drop those rows or columns, or set fill_missing = true in the policy, for runs with "
            "--missing mean or em"
        )


CHECKS: dict[str, Callable[..., str]] = {
    "kit": _kit,
    "certificate": _certificate,
    "features": _features,
    "policy": _policy,
    "sums": _sums,
    "rows": _rows,
    "ledger": _ledger,
}
