"""``eigenpact transform``: a site's own scores, computed at home."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from ...data.budgets import memory_for_rows, parse_memory
from ...data.checks import check_finite, match_columns
from ...data.readers import Table, read_table, site_name, split_dataset
from ...errors import FileError, InputError
from ...estimators import FederatedPCA
from ...estimators.model_files import load_model
from ...storage import check_file_target
from ..consoles import stdout, tell
from ..options import Memory, Scores
from ..score_files import scores_of, write_csv, write_npy


def command(
    model: Annotated[Path, typer.Argument()],
    file: Annotated[Path, typer.Argument()],
    output: Scores,
    memory: Memory = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing output file.")] = False,
) -> None:
    """Write the scores of a table's rows on a model's components.  Nothing leaves this machine.

    MODEL is a folder written by eigenpact fit, FILE a table with samples as rows, of any kind that eigenpact fit reads.
    Columns are matched by name where both sides have names, else by their number.
    """
    limit = None if memory is None else parse_memory(memory)
    check_target(output, split_dataset(file)[0], overwrite)
    pca = load_model(model)
    table = read_table(file, memory=memory_for_rows(limit))
    X = _in_order(pca, table, file)
    check_finite(site_name(file), X, getattr(pca, "feature_names_in_", None))
    write_scores(output, pca, X, table.row_ids)


def _in_order(pca: FederatedPCA, table: Table, file: Path) -> Any:
    """The table's rows (n_rows x n_features) with columns as the model has them."""
    wanted = getattr(pca, "feature_names_in_", None)
    if wanted is not None and table.feature_names is not None:
        order, difference = match_columns([str(name) for name in wanted], table.feature_names)
        if difference:
            raise InputError(f"{file}, compared with the model, {difference}; rename, drop or add columns")
        return table.X if order is None else table.X[:, order]
    found, expected = table.X.shape[1], pca.n_features_in_
    if found != expected:
        raise InputError(
            f"{file} has {found} columns, the model has {expected} features; give the same columns in the same order"
        )
    return table.X


def check_target(output: Path, file: Path, overwrite: bool) -> None:
    """Refuse an output that cannot be written, before anything is computed."""
    if output.exists() and file.exists() and output.samefile(file):
        raise FileError(f"{output} is the table itself; choose another -o")
    check_file_target(output, (".csv", ".npy"), overwrite=overwrite)


def write_scores(output: Path, pca: FederatedPCA, X: Any, row_ids: Sequence[str] | None) -> None:
    """Write the scores (n_rows x k) of rows whose columns are as the model has them, and tell."""
    parts = scores_of(pca, X)
    with closing(parts):
        n, k = write_csv(output, parts, row_ids) if output.suffix.lower() == ".csv" else write_npy(output, parts, X.shape[0])
    tell(stdout(), f"Wrote {n} rows of {k} scores to {output}")
