"""``eigenpact transform``: a site's own scores, computed at home."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ..options import By, ColumnOptions, Drop, Memory, RowNames, Scores


class Shrinkage(StrEnum):
    """What is done about the scores of rows that took no part in the fit."""

    none = "none"
    corrected = "corrected"


def command(
    model: Annotated[Path, typer.Argument()],
    file: Annotated[Path, typer.Argument()],
    output: Scores,
    project: Annotated[
        bool, typer.Option("--project", help="Entries and columns may be missing: least squares on those that are there.")
    ] = False,
    errors: Annotated[bool, typer.Option("--errors", help="Write standard errors, too; as --project.")] = False,
    shrinkage: Annotated[
        Shrinkage, typer.Option(help="corrected: scores as large as in a joint fit, for rows that were not in it; as --project.")
    ] = Shrinkage.none,
    describe: Annotated[
        Path | None, typer.Option(metavar="TOML", help="Description of the table; by default the TOML beside it.")
    ] = None,
    row_names: RowNames = None,
    drop: Drop = None,
    by: By = None,
    picture: Annotated[
        Path | None, typer.Option(help="Draw the scores on two components, in colours by --by: .png, .pdf or .svg.")
    ] = None,
    memory: Memory = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing output files.")] = False,
) -> None:
    """Write the scores of a table's rows on a model's components.  Nothing leaves this machine.

    MODEL is a folder written by eigenpact fit, or a .json file of eigenpact export; FILE a table with samples as rows, of any
    kind that eigenpact fit reads.  Columns are matched by name where both sides have names, else by their number.
    """
    from ...data.budgets import memory_for_rows, parse_memory
    from ...data.checks import check_finite
    from ...data.description import Description
    from ...data.readers import read_table, site_name, split_dataset
    from ...estimators.model_files import load_model
    from ..outputs import check_picture
    from ..scoring import check_target, rows_of_table, write_projections, write_scores

    limit = None if memory is None else parse_memory(memory)
    check_target(output, split_dataset(file)[0], overwrite, errors=errors)
    if picture is not None:
        check_picture(picture, overwrite=overwrite)
    pca = load_model(model)
    said, columns = None if describe is None else Description.read(describe), ColumnOptions(row_names, tuple(drop or ()), by)
    table = read_table(file, said, memory=memory_for_rows(limit), also=columns.add_to)
    labels = None if by is None else table.texts[by]
    if project or errors or shrinkage is Shrinkage.corrected:
        write_projections(output, pca, table, file, errors=errors, shrinkage=str(shrinkage), picture=picture, labels=labels)
        return
    X = rows_of_table(pca, table, file)
    check_finite(site_name(file), X, getattr(pca, "feature_names_in_", None), missing=pca.fills_holes)
    write_scores(output, pca, X, table.row_ids, picture, labels)
