"""``eigenpact reproduce``: a paper's table or figure, computed again, beside the paper's own numbers."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from ...errors import FileError
from ...reproduce import REPRODUCTIONS, Grid, Reproduced, Size, Watch, chosen, find
from .. import tables
from ..consoles import stderr, stdout, tell

FOLDER = Path("eigenpact-reproduce")


def command(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(REPRODUCTIONS)}.")],
    size: Annotated[Size, typer.Option(help="The paper's own problem, or one like it that takes seconds.")] = Size.small,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the figure.")] = FOLDER,
    seed: Annotated[int, typer.Option(help="Seed of synthetic problems, of splits and of random starts.")] = 0,
    distribution: Annotated[
        str | None, typer.Option(help="Of the rows, for oneshot-fig1: normal (the default) or uniform.", show_default=False)
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="PATH", help="Write all numbers, round by round, to this file.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing figure and JSON file.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress.")] = False,
) -> None:
    """Compute a table or figure of a paper again, print our numbers beside the paper's, and draw it.

    NAME is the paper and the table or figure, such as faps-table4; an unknown name
    lists them all.  Wall-clock times depend on the machine and are not compared.
    """
    reproduction = find(name)
    options = chosen(reproduction, distribution=distribution)
    picture = _target(output, f"{'-'.join([name, *options.values(), size.value])}.png", json_file, overwrite)
    with _shown(stderr(), quiet=quiet) as watch:
        made = reproduction.make(size, seed, watch, **options)
    console = stdout()
    _report(made, console)
    from ...report import pictures

    pictures.save_picture(made.figure, picture)
    tell(console, f"The figure is in {picture}")
    if json_file is not None:
        _write_json(made, {"name": name, "size": size.value, "seed": seed, **options}, json_file)
        tell(console, f"The numbers are in {json_file}")


@contextmanager
def _shown(console: Console, *, quiet: bool) -> Iterator[Watch]:
    """A live line for every round on terminals, and a line for every solver that is done."""
    if quiet:
        yield Watch()
        return
    with console.status("making the problem") as status:
        yield Watch(status.update, lambda line: tell(console, line))


def _report(made: Reproduced, console: Console) -> None:
    for grid in made.grids:
        console.print(_table(grid))
        console.print()
    for remark in made.remarks:
        console.print(remark, highlight=False, markup=False)
    console.print()


def _table(grid: Grid) -> Table:
    table = tables.compact(grid.title)
    for j, column in enumerate(grid.columns):
        words = any(isinstance(row[j], str) for row in grid.rows)
        table.add_column(column, justify="left" if words else "right", no_wrap=words)
    for row in grid.rows:
        table.add_row(*(_cell(value) for value in row))
    return table


def _cell(value: str | int | float | None) -> str:
    """A number for people: small ones with an exponent.

    >>> [_cell(value) for value in (42, None, 1.94e-06, 16.5, "krylov")]
    ['42', '-', '1.94e-06', '16.5', 'krylov']
    """
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.2e}" if 0 < abs(value) < 1e-3 else f"{value:.5g}"
    return str(value)


# -- files ------------------------------------------------------------------------------------------


def _target(folder: Path, name: str, json_file: Path | None, overwrite: bool) -> Path:
    """Where the figure goes; the command's own default folder may be written again without asking."""
    from ...report import pictures

    if json_file is not None:
        _check_json(json_file, overwrite)
    picture = folder / name
    if folder.exists():
        pictures.check_picture_target(picture, overwrite=overwrite or folder == FOLDER)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder} cannot be made a folder: {error.strerror}; choose another -o") from error
    return picture


def _check_json(file: Path, overwrite: bool) -> None:
    if file.suffix.lower() != ".json":
        raise FileError(f"{file} must end in .json; rename it")
    if file.is_dir():
        raise FileError(f"{file} is a folder; give the name of a file in it")
    if file.exists() and not overwrite:
        raise FileError(f"{file} exists already; choose another --json or pass --overwrite")
    if not file.absolute().parent.is_dir():
        raise FileError(f"{file} cannot be written, because the folder {file.parent} does not exist; create it first")


def _write_json(made: Reproduced, asked: dict[str, str | int], file: Path) -> None:
    """The file appears complete or not at all."""
    grids = [asdict(grid) for grid in made.grids]
    whole = {"eigenpact": version("eigenpact"), **asked, "title": made.title, "tables": grids, **made.numbers}
    part = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        part.write_text(json.dumps(whole, indent=1, allow_nan=False) + "\n")
        os.replace(part, file)
    except OSError as error:
        raise FileError(f"{file} cannot be written: {error.strerror or error}; choose another --json") from error
    finally:
        part.unlink(missing_ok=True)
