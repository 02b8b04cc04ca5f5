"""``eigenpact site budget``: what a site has spent of its privacy budget."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import FileError
from ..consoles import harmless, stdout, tell

if TYPE_CHECKING:
    from rich.table import Table

    from ...runtime import Limits


def command(
    kit: Annotated[Path, typer.Argument()],
    policy: Annotated[Path | None, typer.Option(help="What this site allows; policy.toml in the kit by default.")] = None,
    ledger: Annotated[Path | None, typer.Option(help="This site's own ledger; ledger.jsonl in the kit by default.")] = None,
    restore: Annotated[bool, typer.Option("--restore", help="Write what the ledger tells of, and the account lacks.")] = False,
) -> None:
    """Show what private runs have cost this site so far, and what is left.  Nothing is sent.

    KIT is the folder this site was given.  The account is the file beside the ledger whose name ends in .budget; a line is
    written before a reply leaves.  The ledger remembers each, so that an account which was lost is noticed, and can be restored.
    """
    from ...runtime import SiteLedger, read_budget
    from ...runtime.purse import budget_beside, missing_from, restore_budget
    from ..kits import find_kit
    from ..site_settings import read_policy

    owned = find_kit(kit, "site")
    rules = read_policy(policy or owned.folder / "policy.toml")
    account = SiteLedger(ledger or owned.folder / "ledger.jsonl")
    file = budget_beside(account.path)
    if restore:
        written = restore_budget(file, account)
        tell(stdout(), f"Restored: {written} question(s), from {account.path}")
    spent = read_budget(file)
    lost = missing_from(spent, account.noise())
    if lost:
        raise FileError(
            f"{file} lacks {len(lost)} question(s) that {account.path} tells of; restore it, or have it written: "
            f"eigenpact site budget {kit} --restore"
        )
    if spent:
        stdout().print(_by_run(spent, rules.limits))
    tell(stdout(), _in_all(spent, rules.limits))


def _by_run(spent: Iterable[dict[str, Any]], limits: Limits) -> Table:
    """A line for each run: when it began, what was asked, its cost, and the epsilon of that by itself."""
    from rich import box
    from rich.table import Table

    from ...numerics.accounting import epsilon_of
    from ...runtime.local import short_name
    from ...runtime.purse import total_rho

    runs: dict[str, list[dict[str, Any]]] = {}
    for row in spent:
        runs.setdefault(row["run"], []).append(row)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("run", "began", "questions", "rho", "epsilon", "honest sites"):
        table.add_column(column)
    for run, rows in runs.items():
        asked = ", ".join(dict.fromkeys(short_name(row["function"]) for row in rows))
        rho = total_rho(rows)
        honest = ", ".join(dict.fromkeys(str(row["honest"]) for row in rows))
        facts = (run, rows[0]["time"], f"{len(rows)}: {asked}", f"{rho:.3g}", f"{epsilon_of(rho, limits.max_delta):.3g}", honest)
        table.add_row(*(harmless(text) for text in facts))
    return table


def _in_all(spent: list[dict[str, Any]], limits: Limits) -> str:
    """How much of the budget is gone, in one line."""
    from ...numerics.accounting import epsilon_of
    from ...runtime.purse import total_rho

    unit = "a row" if limits.rows_per_person == 1 else f"a person with up to {limits.rows_per_person} rows"
    most, delta = limits.max_epsilon, limits.max_delta
    epsilon = epsilon_of(total_rho(spent), delta)
    return f"Spent: epsilon {epsilon:.3g} of {most:g} (delta {delta:g}), for {unit}, in all runs together"
