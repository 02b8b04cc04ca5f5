"""The group of all subcommands: each is imported when it is called, and errors are told in one line."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any

import click
import typer
from typer.core import TyperGroup

from ..errors import EigenpactError
from . import ABOUT, COMMANDS, INTERRUPTED, START, VERSION_HELP, Command, help_text, unknown_text, version_text

MORE_MEMORY = "give fit or transform for example --memory 1GB, ask for fewer components, or leave out columns"


class Commands(TyperGroup):
    """Tells errors in one line with exit code 2; EIGENPACT_DEBUG=1 shows where they were raised."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (as click has it)
        """Names of all subcommands; none is imported."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 (as click has it)
        """A subcommand, imported now."""
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            self.commands[cmd_name] = _load(cmd_name)
        return self.commands[cmd_name]

    def get_help(self, ctx: click.Context) -> str:  # noqa: ARG002 (as click has it)
        """The list of commands, as it is printed where none is imported."""
        return help_text().rstrip("\n")

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The subcommand that the first word names."""
        if args[0] not in COMMANDS:
            _tell(unknown_text(args[0]))
            raise typer.Exit(2)
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the options before the subcommand."""
        with _told(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand."""
        with _told(ctx):
            return super().invoke(ctx)


@contextmanager
def _told(ctx: click.Context) -> Iterator[None]:
    """What goes wrong is told in one line, in the words of the command line."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        _tell(_usage(error, f"eigenpact {ctx.invoked_subcommand or ''}".rstrip()))
        raise typer.Exit(2) from error
    except EigenpactError as error:
        if os.environ.get("EIGENPACT_DEBUG") == "1":
            raise
        from .consoles import print_error

        print_error(error)
        raise typer.Exit(2) from error
    except MemoryError as error:
        why = f" ({error})" if str(error) else ""
        _tell(f"error: there is not enough memory{why}; {MORE_MEMORY}\n")
        raise typer.Exit(2) from error
    except KeyboardInterrupt as error:
        _tell(f"stopped by Ctrl-C{''.join(f'; {note}' for note in getattr(error, '__notes__', ()))}\n")
        raise typer.Exit(INTERRUPTED) from error


def _usage(error: click.UsageError, called: str) -> str:
    """A wrong use of the command line: which command, what was wrong, where to look."""
    command = called if error.ctx is None else " ".join(["eigenpact", *error.ctx.command_path.split()[1:]])
    said = re.sub(r"( Did you mean [^?]*\?)\1", r"\1", error.format_message().rstrip("."))  # typer and click each say it
    said = f"{said[:1].lower()}{said[1:]}" if said[1:2].islower() else said
    return f"error: {command}: {' '.join(said.split())}; see {command} --help\n"


def _tell(text: str) -> None:
    click.secho(text, fg="red", err=True, nl=False)
    sys.stderr.flush()


def _load(name: str) -> click.Command:
    """Import a subcommand, or a group of them."""
    command = COMMANDS[name]
    module = _module(command)
    if not hasattr(module, "app"):
        group = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        _add(group, name, command)
    else:
        group = typer.Typer(no_args_is_help=True, add_completion=False, help=module.app.info.help)
        group.registered_commands += module.app.registered_commands
        for inner, part in command.more:
            _add(group, inner, part)
    found = typer.main.get_command(group)
    found.name = name
    return found


def _module(command: Command) -> Any:
    return import_module(f"{__package__}.commands.{command.module}")


def _add(group: typer.Typer, name: str, command: Command) -> None:
    group.command(name, epilog=f"Example: eigenpact {command.example}")(_module(command).command)


app = typer.Typer(cls=Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(version_text())
        raise typer.Exit


@app.callback(help=ABOUT, epilog=START)
def _eigenpact(
    show_version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help=VERSION_HELP)] = False,
) -> None: ...
