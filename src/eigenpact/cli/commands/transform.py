"""``eigenpact transform``: a site's own scores, computed at home."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ...data.budgets import memory_for_rows, parse_memory
from ...data.checks import SHOWN, check_finite, match_columns
from ...data.description import Description
from ...data.readers import Table, read_table, site_name, split_dataset
from ...data.site_rows import rows_for_model, rows_with_gaps
from ...errors import FileError, InputError
from ...estimators import FederatedPCA
from ...estimators.model_files import load_model
from ..consoles import stdout, tell
from ..options import Memory, Scores
from ..score_files import Part, Scored, check_scores_target, projections_of, scores_of, write_parts


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
    memory: Memory = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing output file.")] = False,
) -> None:
    """Write the scores of a table's rows on a model's components.  Nothing leaves this machine.

    MODEL is a folder written by eigenpact fit, or a .json file of eigenpact export; FILE a table with samples as rows, of any
    kind that eigenpact fit reads.  Columns are matched by name where both sides have names, else by their number.
    """
    limit = None if memory is None else parse_memory(memory)
    check_target(output, split_dataset(file)[0], overwrite, errors=errors)
    pca = load_model(model)
    table = read_table(file, None if describe is None else Description.read(describe), memory=memory_for_rows(limit))
    if project or errors or shrinkage is Shrinkage.corrected:
        _project(output, pca, table, file, errors=errors, shrinkage=str(shrinkage))
        return
    X = _placed(pca, table, file) if _lacks_what_is_filled(pca, table) else _in_order(pca, table, file)
    check_finite(site_name(file), X, getattr(pca, "feature_names_in_", None), missing=pca.fills_holes)
    write_scores(output, pca, X, table.row_ids)


def _lacks_what_is_filled(pca: FederatedPCA, table: Table) -> bool:
    """Whether a table lacks features that a site may lack too, and that the model fills, and has no others."""
    names = getattr(pca, "feature_names_in_", None)
    if names is None or table.feature_names is None or table.categorical or pca.features != "union" or not pca.fills_holes:
        return False
    return table.variants is not None or set(table.feature_names) < {str(name) for name in names}


def _in_order(pca: FederatedPCA, table: Table, file: Path) -> Any:
    """The table's rows (n_rows x n_features) with columns as the model has them."""
    wanted = getattr(pca, "feature_names_in_", None)
    if wanted is not None and (table.variants is not None or table.categorical):
        return rows_for_model(table, [str(name) for name in wanted], str(file))
    if wanted is not None and table.feature_names is not None:
        order, difference = match_columns([str(name) for name in wanted], table.feature_names)
        if difference:
            raise InputError(f"{file}, compared with the model, {difference}; rename, drop or add columns, or use --project")
        return table.X if order is None else table.X[:, order]
    found, expected = table.X.shape[1], pca.n_features_in_
    if found != expected:
        raise InputError(
            f"{file} has {found} columns, the model has {expected} features; give the same columns in the same order"
        )
    return table.X


def _project(output: Path, pca: FederatedPCA, table: Table, file: Path, *, errors: bool, shrinkage: str) -> None:
    """Write scores of rows in which entries or columns are missing, and tell what was."""
    X = _placed(pca, table, file)
    by_prior = 0

    def counted(parts: Iterator[Part]) -> Iterator[Part]:
        nonlocal by_prior
        for part in parts:
            by_prior += part.by_prior
            yield part

    with closing(projections_of(pca, X, shrinkage, errors)) as parts:
        files = write_parts(output, counted(parts), Scored(pca, int(X.shape[0]), table.row_ids, errors))
    if by_prior:
        tell(stdout(), f"{by_prior} rows have too few features to determine their scores: theirs lie towards zero")
    _tell_written(files, pca, X)


def _placed(pca: FederatedPCA, table: Table, file: Path) -> Any:
    """The table's rows (n_rows x n_features) with columns as the model has them, NaN where it lacks them; tells which."""
    wanted = getattr(pca, "feature_names_in_", None)
    if wanted is None or table.feature_names is None:
        return _in_order(pca, table, file)
    X, lacking, extra = rows_with_gaps(table, [str(name) for name in wanted], str(file))
    if len(lacking) == len(wanted):
        raise InputError(f"{file} has none of the model's features, such as {', '.join(lacking[:SHOWN])}; rename its columns")
    _tell_columns(
        "lacks, counted as missing" if table.variants is None else "lacks or has other alleles of, counted as missing", lacking
    )
    _tell_columns("has in addition, ignored", extra)
    return X


def _tell_columns(what: str, names: Sequence[str]) -> None:
    if names:
        more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        tell(stdout(), f"The table {what}: {', '.join(names[:SHOWN])}{more}")


def check_target(output: Path, file: Path, overwrite: bool, *, errors: bool = False) -> None:
    """Refuse an output that cannot be written, before anything is computed."""
    if output.exists() and file.exists() and output.samefile(file):
        raise FileError(f"{output} is the table itself; choose another -o")
    check_scores_target(output, overwrite=overwrite, errors=errors)


def write_scores(output: Path, pca: FederatedPCA, X: Any, row_ids: Sequence[str] | None) -> None:
    """Write the scores (n_rows x k) of rows whose columns are as the model has them, and tell."""
    with closing(scores_of(pca, X)) as parts:
        files = write_parts(output, parts, Scored(pca, int(X.shape[0]), row_ids))
    _tell_written(files, pca, X)


def _tell_written(files: Sequence[Path], pca: FederatedPCA, X: Any) -> None:
    beside = "".join(f", and variances to {other}" for other in files[1:])
    tell(stdout(), f"Wrote {X.shape[0]} rows of {pca.n_components_} scores to {files[0]}{beside}")
