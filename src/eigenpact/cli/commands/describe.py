"""``eigenpact describe``: look through a site's file, and suggest the TOML that describes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import EigenpactError, InputError, ProblemsError
from ..consoles import print_error, stderr, stdout, tell

if TYPE_CHECKING:
    from ...data.suggestion import Suggestion


def command(
    file: Annotated[Path, typer.Argument()],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="TOML", help="The description to write; FILE.toml is found by itself."),
    ] = None,
    like: Annotated[Path | None, typer.Option(help="A table that has the agreed columns.")] = None,
    kit: Annotated[Path | None, typer.Option(help="A site's kit, in which the agreed columns stand.")] = None,
    features: Annotated[str | None, typer.Option(help="The agreed columns in order, separated by commas.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing description.")] = False,
) -> None:
    """Look through a text table (.csv, .tsv, .txt): print what was found, what is wrong and where, and suggest a description.

    Nothing leaves this machine.  Read the description before you use it: what only a person can decide stands in its remarks.

    Exit code: 0 the file can be read with the description, 2 something is left to be mended.
    """
    from ...data.readers import read_table
    from ...data.suggestion import examine
    from ...storage import check_file_target, replacing

    if output is not None:
        check_file_target(output, (".toml",), overwrite=overwrite)
    found = examine(file, _agreed(like, kit, features))
    for note in found.notes:
        tell(stderr(), note.told_of(file))
    for problem in found.problems:
        tell(stderr(), problem.told_of(file), "yellow")
    text = told(file, found)
    if output is None:
        tell(stdout(), text)
    else:
        with replacing(output) as part:
            part.write_text(text, encoding="utf-8")
        check = f"eigenpact fit {file} ..." if kit is None else f"eigenpact site check {kit / 'site.toml'}"
        tell(stdout(), f"Wrote {output}; read it, then: {check}")
    try:
        read_table(file, found.description)
    except ProblemsError as error:
        print_error(error)
        raise typer.Exit(2) from error


DECIDE = "DECIDE: "
"""How a remark in a description begins that only a person can answer."""


def undecided(description: Path) -> list[str]:
    """Remarks in a description that nobody has answered and deleted."""
    lines = description.read_text(encoding="utf-8", errors="replace").splitlines()
    return [line.removeprefix("# ") for line in lines if line.startswith(f"# {DECIDE}")]


def told(file: Path, found: Suggestion) -> str:
    """The TOML, after what a person is to decide."""
    from ...data.readers import read_table
    from ...data.suggestion import as_toml

    heads = [f"What {file.name} is: suggested by eigenpact describe; the keys are in docs/reference/descriptions.md."]
    try:
        table = read_table(file, found.description)
        gaps = [f"{n} rows of {d} features" for n, d in [table.X.shape]]
    except EigenpactError as error:
        gaps = ["Still wrong with this description:", *str(error).splitlines()]
    return as_toml(found.description, [*heads, *gaps, *(f"{DECIDE}{remark}" for remark in found.remarks)])


def _agreed(like: Path | None, kit: Path | None, features: str | None) -> tuple[str, ...] | None:
    from ...data.readers import read_table
    from ..kits import find_kit

    if sum(given is not None for given in (like, kit, features)) > 1:
        raise InputError("--like, --kit and --features each say what the agreed columns are; give one of them")
    if features is not None:
        return tuple(name.strip() for name in features.split(","))
    if like is not None:
        names = read_table(like).feature_names
        if names is None:
            raise InputError(f"--like {like} has no names of columns; give a table with a header, or --features")
        return names
    agreed = find_kit(kit, "site").federation.features if kit is not None else None
    return None if isinstance(agreed, int) else agreed
