"""The group of all subcommands: each is imported when it is called, and errors are told in one line."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Annotated, Any

import click
import typer
import typer.core
from typer.core import TyperGroup

from ..errors import EigenpactError
from . import ABOUT, COMMANDS, INTERRUPTED, START, VERSION_HELP, Command, help_text, unknown_text, version_text

typer.core.HAS_RICH = False  # help is plain text, as that of eigenpact itself; importing rich takes longer than all the rest

WIDE = {"max_content_width": 120}
"""Help is as wide as the terminal, up to here."""

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


class Parts(TyperGroup):
    """The commands of a group, each made when it is called: to read their options takes longer than most words need."""

    makers: dict[str, Callable[[], click.Command]]
    summaries: dict[str, str]

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (as click has it)
        """Their names; none is made."""
        return list(self.makers)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 (as click has it)
        """One of them; for a name that there is not all are made, so that a near one can be suggested."""
        for name in [cmd_name] if cmd_name in self.makers else self.makers:
            if name not in self.commands:
                self.commands[name] = self.makers[name]()
        return self.commands.get(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 (as click has it)
        """The list of them in the group's help."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries.items()))


def _load(name: str) -> click.Command:
    """Import a subcommand, or a group of them."""
    command = COMMANDS[name]
    module = _module(command)
    if not hasattr(module, "app"):
        return _made(name, module.command, command.example)
    group = Parts(name=name, help=module.app.info.help, no_args_is_help=True, context_settings=WIDE)
    group.makers = {str(info.name): partial(_from, info) for info in module.app.registered_commands}
    group.makers |= {inner: partial(_part, inner, part) for inner, part in command.more}
    group.summaries = {str(info.name): _first_sentence(info.callback.__doc__) for info in module.app.registered_commands}
    group.summaries |= {inner: part.summary for inner, part in command.more}
    return group


def _first_sentence(text: str) -> str:
    """What a function's text begins with, up to its first full stop or its first empty line."""
    return " ".join(re.split(r"(?<=\.)\s|\n\s*\n", text.strip(), maxsplit=1)[0].split())


def _module(command: Command) -> Any:
    return import_module(f"{__package__}.commands.{command.module}")


def _part(name: str, part: Command) -> click.Command:
    return _made(name, _module(part).command, part.example)


def _made(name: str, function: Callable[..., None], example: str) -> click.Command:
    group = typer.Typer(add_completion=False, pretty_exceptions_enable=False, context_settings=WIDE)
    group.command(name, epilog=f"Example: eigenpact {example}")(function)
    return _from(group.registered_commands[0])


def _from(info: Any) -> click.Command:
    """A command of what typer has registered."""
    group = typer.Typer(add_completion=False, pretty_exceptions_enable=False, context_settings=WIDE)
    group.registered_commands.append(info)
    found = typer.main.get_command(group)
    found.name = info.name
    return found


app = typer.Typer(cls=Commands, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(version_text())
        raise typer.Exit


@app.callback(help=ABOUT, epilog=START)
def _eigenpact(
    show_version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help=VERSION_HELP)] = False,
) -> None: ...
