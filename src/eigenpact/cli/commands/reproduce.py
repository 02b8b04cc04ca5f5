"""``eigenpact reproduce``: a paper's table or figure, computed again, beside the paper's own numbers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...reproduce import REPRODUCTIONS, Grid, Reproduced, Size, Watch, chosen, find
from ..consoles import stderr, stdout, tell
from ..options import JsonFile, NoProgress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

FOLDER = Path("eigenpact-reproduce")


def command(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(REPRODUCTIONS)}.")],
    size: Annotated[Size, typer.Option(help="The paper's own problem, or one like it that takes seconds.")] = Size.small,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the figure.")] = FOLDER,
    seed: Annotated[int, typer.Option(min=0, help="Seed of synthetic problems, of splits and of random starts.")] = 0,
    distribution: Annotated[
        str | None, typer.Option(help="Of the rows, for oneshot-fig1: normal (the default) or uniform.", show_default=False)
    ] = None,
    json_file: JsonFile = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing figure and JSON file.")] = False,
    quiet: NoProgress = False,
) -> None:
    """Compute a table or figure of a paper again, print our numbers beside the paper's, and draw it.

    NAME is the paper and the table or figure, such as faps-table4; an unknown name
    lists them all.  Wall-clock times depend on the machine and are not compared.
    """
    from importlib.metadata import version

    from ...storage import write_json
    from ..outputs import check_json, picture_in
    from ..progress import shown_status

    reproduction = find(name)
    options = chosen(reproduction, distribution=distribution)
    check_json(json_file, overwrite=overwrite)
    file_name = f"{'-'.join([name, *options.values(), size.value])}.png"
    picture = picture_in(output, file_name, overwrite=overwrite or output == FOLDER)  # its own may be drawn again
    with shown_status(stderr(), "making the problem", quiet=quiet) as (show, keep):
        made = reproduction.make(size, seed, Watch(show, keep), **options)
    console = stdout()
    _report(made, console)
    from ...report import pictures

    pictures.save_picture(made.figure, picture)
    tell(console, f"The figure is in {picture}")
    if json_file is not None:
        asked = {"eigenpact": version("eigenpact"), "name": name, "size": size.value, "seed": seed, **options}
        grids = [asdict(grid) for grid in made.grids]
        write_json(json_file, {**asked, "title": made.title, "tables": grids, **made.numbers})
        tell(console, f"The numbers are in {json_file}")


def _report(made: Reproduced, console: Console) -> None:
    for grid in made.grids:
        console.print(_table(grid))
        console.print()
    for remark in made.remarks:
        console.print(remark, highlight=False, markup=False)
    console.print()


def _table(grid: Grid) -> Table:
    from .. import tables

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
