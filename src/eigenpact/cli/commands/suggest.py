"""``eigenpact suggest``: how many components, by held-out entries, permuted columns or the elbow, from files on one machine."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import InputError
from ..consoles import stderr, stdout, tell
from ..options import (
    By,
    Center,
    CenterOption,
    ColumnOptions,
    Describe,
    Drop,
    Features,
    FeaturesOption,
    Files,
    JsonFile,
    NoProgress,
    Prepare,
    RowNames,
    Scale,
    ScaleOption,
    Seed,
    preprocessing,
)  # fmt: skip

if TYPE_CHECKING:
    from ...report.suggesting import Suggestion
    from ..site_files import Read

MOST = 10


class Method(StrEnum):
    """How numbers of components are judged."""

    held_out = "held-out"
    parallel = "parallel"
    elbow = "elbow"


WORDS = {
    "components": "components",
    "error": "mean square error of hidden entries",
    "above_least": "above the least, in standard errors",
    "variance": "variance",
    "permuted": "variance if columns are permuted (95 %)",
    "log_likelihood": "log likelihood of the elbow",
}
"""What columns of the table are called."""


def command(
    files: Files,
    method: Annotated[
        Method,
        typer.Option(help="By the error of predicting hidden entries, by variances of permuted columns, or by the elbow."),
    ] = Method.held_out,
    most: Annotated[
        int | None, typer.Option("--max", metavar="N", help=f"Try up to N components; {MOST}, or as many as there are.")
    ] = None,
    share: Annotated[float, typer.Option(help="Of each site's entries that held-out hides.")] = 0.1,
    center: CenterOption = Center.pooled,
    scale: ScaleOption = Scale.none,
    prepare: Prepare = None,
    seed: Seed = 0,
    describe: Describe = None,
    row_names: RowNames = None,
    drop: Drop = None,
    by: By = None,
    features: FeaturesOption = Features.strict,
    picture: Annotated[Path | None, typer.Option(help="Draw the table: .png, .pdf or .svg.")] = None,
    json_file: JsonFile = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing picture and JSON file.")] = False,
    quiet: NoProgress = False,
) -> None:
    """Suggest how many components to ask for, by the rows of all files together; entries may be missing.

    ALL FILES ARE READ ON THIS ONE MACHINE, as by eigenpact compare: a rehearsal with data that you may hold in one place.

    FILES are tables with samples as rows, one per site, as for eigenpact fit.

    Exit code: 0, also if no component is suggested; 2 error.
    """
    from ...engines.ranks import Alone
    from ...estimators.pca import FederatedPCA
    from ...estimators.preparers import parse_preparer
    from ...report.suggesting import suggest_components
    from ..progress import shown_status
    from ..site_files import parse_descriptions, read_together

    _check(method, most, share, center)
    pca = FederatedPCA(1, prepare=tuple(parse_preparer(text) for text in prepare or ()))
    columns = ColumnOptions(row_names, tuple(drop or ()), by)
    chosen: dict[str, Any] = {"missing": True, "features": str(features), "quiet": quiet}
    read = read_together(
        files, Alone(), None, lambda: _check_outputs(picture, json_file, overwrite), parse_descriptions(describe), None, columns,
        **chosen,
    )  # fmt: skip
    if not quiet and not read.report.nothing_changed:
        tell(stderr(), "\n".join(read.report.lines()), "yellow")
    tried = _tried(read, method, most)
    options: dict[str, Any] = preprocessing(center, scale) | {"share": share, "random_state": seed, "max_components": tried}
    options["prepare"] = pca.preparers(read.names)
    with shown_status(stderr(), f"trying up to {tried} components", quiet=quiet):
        found = suggest_components(read.held, method=method.value, **options)
    _report(found, len(read.held))
    _write(found, picture, json_file)


def _write(found: Suggestion, picture: Path | None, json_file: Path | None) -> None:
    """The files that were asked for."""
    from ...storage import write_json

    if json_file is not None:
        write_json(json_file, {"n_components": found.n_components, "method": found.method, "table": found.table})
        tell(stdout(), f"The numbers are in {json_file}")
    if picture is not None:
        from ...report.pictures import save_picture

        save_picture(found.picture(), picture)
        tell(stdout(), f"The picture is in {picture}")


def _check(method: Method, most: int | None, share: float, center: Center) -> None:
    """Refuse what no files suit, before they are read."""
    least = 2 if method is Method.elbow else 1
    if most is not None and most < least:
        raise InputError(f"--max {most} must be a whole number >= {least}")
    if method is Method.held_out and center is Center.site:
        raise InputError("--center site does not go with --method held-out, whose model has one mean; use another method")
    if not 0 < share < 1:
        raise InputError(f"--share {share:g} must be between 0 and 1, for example 0.1")


def _check_outputs(picture: Path | None, json_file: Path | None, overwrite: bool) -> None:
    from ..outputs import check_json, check_picture

    check_json(json_file, overwrite=overwrite)
    if picture is not None:
        check_picture(picture, overwrite=overwrite)


def _tried(read: Read, method: Method, most: int | None) -> int:
    """The number to try up to: the one given, if there are as many."""
    rows, d = sum(int(X.shape[0]) for X in read.held.values()), int(next(iter(read.held.values())).shape[1])
    least = 1 if method is Method.held_out else 0
    there = min(d, rows) - least
    if there < (2 if method is Method.elbow else 1):
        raise InputError(f"--method {method.value} needs at least two rows and two features; there are {rows} and {d}")
    if most is not None and most > there:
        raise InputError(f"--max {most} is more than {there}, which {rows} rows of {d} features allow; give fewer")
    return min(MOST, there) if most is None else most


def _report(found: Suggestion, sites: int) -> None:
    """The table, and what follows from it."""
    from .. import tables

    table = tables.compact(f"Components of {sites} site{'s' * (sites > 1)}, by {found.method}")
    for name in found.table[0]:
        table.add_column(WORDS[name], justify="right")
    for row in found.table:
        mark = " <-" if row["components"] == found.n_components else ""
        cells = [f"{row[name]:.4g}" for name in row if name != "components"]
        table.add_row(f"{row['components']:.0f}", *cells[:-1], cells[-1] + mark)
    stdout().print(table)
    if found.n_components == 0:
        tell(stdout(), "Suggested: none; features do not vary together more than by chance.")
    else:
        tell(stdout(), f"Suggested: {found.n_components} (eigenpact fit -k {found.n_components})")
    if found.n_components == found.table[-1]["components"]:
        tell(stdout(), "That is the most that were tried; try more with --max.")
