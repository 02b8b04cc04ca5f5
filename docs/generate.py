"""Write the pages that follow from the source: commands.md, solvers.md and wire-table.md in reference/.

Run ``python docs/generate.py`` after changing a command, a solver or a local function; a test compares the files with what
this writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import typer

from eigenpact.algorithms.families import FAMILIES
from eigenpact.algorithms.method import Part
from eigenpact.cli import app
from eigenpact.estimators.plans import ESTIMATORS
from eigenpact.estimators.registry import estimator_of, solvers_for
from eigenpact.runtime import Gather, LocalFunction, wire_table
from eigenpact.runtime.fingerprint import rows_digest
from eigenpact.runtime.keys import session_key, session_roster
from eigenpact.runtime.local import BOUNDS

REFERENCE = Path(__file__).parent / "reference"
NOTE = "<!-- Written by docs/generate.py; do not edit. -->\n"

FINGERPRINT = Part(
    "Before the first step (only with a journal)",
    {Gather: (rows_digest,)},
    "Bytes (uint8). No round is counted; a session that resumes asks again.",
)

SESSION = Part(
    "Before the first step (only with secured sums)",
    {Gather: (session_key, session_roster)},
    "Bytes (uint8). Two rounds of set-up in every epoch. Replies to sums are then words of 64 bits under masks: one for each "
    "number that was counted or whose bound is a share of the trace, twelve for each other number.",
)


def commands_page() -> str:
    """Every command with its arguments and options, from the definitions that ``--help`` prints."""
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    parts = [
        NOTE,
        "# Commands\n",
        "`eigenpact COMMAND --help` prints the same. Errors are one line on standard error with exit code 2; "
        "`EIGENPACT_DEBUG=1` shows where they were raised.\n",
        *_command("eigenpact", group),
    ]
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        parts += _command(f"eigenpact {name}", command)
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                part = command.get_command(context, inner)
                assert part is not None
                parts += _command(f"eigenpact {name} {inner}", part)
    return "\n".join(parts)


def wire_page() -> str:
    """Every array that a local function declares to take, send or keep."""
    parts = [
        NOTE,
        "# Wire table\n",
        "Every array that local functions take, send or keep, from their `@local` declarations. Sites and driver check each "
        "message against them; nothing else crosses. `d` is the number of features, `k` and `m` numbers of columns; a shape of "
        '"number" is a single number.\n',
    ]
    for part in dict.fromkeys([FINGERPRINT, SESSION, *_declared_parts()]):
        remark = [f"{part.remark}\n"] if part.remark else []
        parts += [f"## {part.title}\n", *remark, *_wire_rows(part.functions)]
    parts += ["## Bounds\n", *(f"- {name}: {meaning}" for name, meaning in BOUNDS.items()), ""]
    return "\n".join(parts)


def solvers_page() -> str:
    """Every solver that is declared: who takes it, its family, what it is, and the local functions that it calls."""
    rows = [
        f"| `{name}` | {estimator_of(solver)} | {solver.declared.family} | {solver.declared.role} | {_doc(solver)} | "
        f"{', '.join(solver.declared.kinds)} |"
        for name, solver in solvers_for(*ESTIMATORS).items()
    ]
    return "\n".join(
        [
            NOTE,
            "# Solvers\n",
            "Every solver that is declared by `@method`, in this package or in an installed one "
            "([how to add one](../how-to/add-an-algorithm.md)). What each sends is in the [wire table](wire-table.md); "
            "which to take, on the page on [choosing one](../how-to/choose-a-solver.md).\n",
            "| solver | of | family | gives | in short | collectives of its own |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _declared_parts() -> Iterable[Part]:
    """What families and solvers have in common, and what is each solver's own, where that is anything."""
    solvers = list(solvers_for(*ESTIMATORS).values())
    for name, family in FAMILIES.items():
        yield from family.parts
        for solver in (solver for solver in solvers if solver.declared.family == name):
            yield from (part for part in solver.declared.parts if part.functions)


def _doc(solver: Any) -> str:
    return str(solver.__doc__).partition("\n")[0].replace("``", "`").replace("|", "\\|")


def _command(title: str, command: click.Command) -> list[str]:
    context = click.Context(command, info_name=title)
    usage = " ".join([title, *command.collect_usage_pieces(context)])
    parts = [f"## {title}\n", f"```text\n{usage}\n```\n", _paragraphs(command.help)]
    options = [p for p in command.params if isinstance(p, click.Option)]
    if options:
        parts += ["| option | value | default | meaning |", "|---|---|---|---|", *(_option(p, context) for p in options), ""]
    return [*parts, *([f"{command.epilog}\n"] if command.epilog else [])]


def _paragraphs(text: str | None) -> str:
    plain = (text or "").replace("\\[", "[")  # escaped from the console's markup
    joined = [" ".join(part.split()) for part in plain.split("\n\n")]
    return "\n\n".join(joined) + "\n"


def _option(option: click.Option, context: click.Context) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    value = "" if option.is_flag else option.make_metavar(context).strip("[]").lower().replace("|", ", ")
    default = "required" if option.required else "" if option.is_flag or option.default is None else f"`{_plain(option.default)}`"
    return f"| {names} | {value} | {default} | {option.help} |"


def _plain(value: Any) -> Any:
    return getattr(value, "value", value)


def _wire_rows(functions: Iterable[LocalFunction]) -> list[str]:
    rows = ["| function | way | array | shape | bound |", "|---|---|---|---|---|"]
    for row in wire_table(functions):
        shape = "" if row["way"] in ("kept at site", "read at site") else f"`{row['shape']}`" if row["shape"] else "number"
        rows.append(f"| `{row['function']}` | {row['way']} | {row['array']} | {shape} | {row['bound']} |")
    return [*rows, ""]


def pages() -> dict[Path, str]:
    """Path -> content of every generated page."""
    return {
        REFERENCE / "commands.md": commands_page(),
        REFERENCE / "solvers.md": solvers_page(),
        REFERENCE / "wire-table.md": wire_page(),
    }


if __name__ == "__main__":
    for path, content in pages().items():
        path.write_text(content)
        print(f"wrote {path}")
