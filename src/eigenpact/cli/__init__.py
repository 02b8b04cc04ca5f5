"""The command ``eigenpact``: one file per subcommand."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ..errors import EigenpactError
from .commands import (
    audit,
    compare,
    coordinator,
    demo,
    describe,
    export,
    federation,
    fit,
    rehearse,
    reproduce,
    show,
    site,
    site_budget,
    site_check,
    suggest,
    transform,
)
from .consoles import print_error, stdout


class Commands(TyperGroup):
    """Tells errors of eigenpact in one line with exit code 2; EIGENPACT_DEBUG=1 shows where they were raised."""

    def invoke(self, ctx: Any) -> Any:
        """Run the subcommand."""
        try:
            return super().invoke(ctx)
        except EigenpactError as error:
            if os.environ.get("EIGENPACT_DEBUG") == "1":
                raise
            print_error(error)
            raise typer.Exit(2) from error


app = typer.Typer(cls=Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command("demo", epilog="Example: eigenpact demo")(demo.command)
app.command("fit", epilog="Example: eigenpact fit north.csv south.csv west=w.npy -k 10 -o model/")(fit.command)
app.command("describe", epilog="Example: eigenpact describe north.csv --like south.csv -o north.csv.toml")(describe.command)
app.command("compare", epilog="Example: eigenpact compare north.csv south.csv west=w.npy -k 10")(compare.command)
app.command("suggest", epilog="Example: eigenpact suggest north.csv south.csv --picture suggested.png")(suggest.command)
app.command("audit", epilog="Example: eigenpact audit --rows 200,150,100 --features 30 --solver krylov")(audit.command)
app.command("reproduce", epilog="Example: eigenpact reproduce faps-table4 --json numbers.json")(reproduce.command)
app.command("transform", epilog="Example: eigenpact transform model/ north.csv -o scores.csv")(transform.command)
app.command("export", epilog='Example: eigenpact export model/ --to card -o card.md --use "Members of the study"')(export.command)
app.command("show", epilog="Example: eigenpact show model/ --ledger --picture scree.png")(show.command)
app.command("rehearse", epilog="Example: eigenpact rehearse consortium.toml -o rehearsal")(rehearse.command)
app.add_typer(federation.app, name="federation")
app.add_typer(coordinator.app, name="coordinator")
site.app.command("budget", epilog="Example: eigenpact site budget heart/cleveland")(site_budget.command)
site.app.command("check", epilog="Example: eigenpact site check heart/cleveland/site.toml")(site_check.command)
app.add_typer(site.app, name="site")


def _version(wanted: bool) -> None:
    if wanted:
        stdout().print(f"eigenpact {version('eigenpact')}", highlight=False)
        raise typer.Exit


@app.callback(epilog="Start with: eigenpact demo.  Help on one command: eigenpact fit --help")
def _eigenpact(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Principal components across sites that cannot, or would rather not, pool their data."""


def main() -> None:
    """Entry point of the command ``eigenpact``."""
    app(prog_name="eigenpact")
