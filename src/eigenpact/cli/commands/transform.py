"""``eigenpact transform``: a site's own scores, computed at home."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ...data.checks import check_finite, match_columns
from ...data.readers import Table, read_table, site_name
from ...data.site_rows import rows_for_model
from ...errors import FileError, InputError
from ...estimators import FederatedPCA
from ...estimators.model_files import load_model
from ...storage import check_file_target, replacing
from ..consoles import stdout, tell
from ..options import Scores


def command(
    model: Annotated[Path, typer.Argument()],
    file: Annotated[Path, typer.Argument()],
    output: Scores,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing output file.")] = False,
) -> None:
    """Write the scores of a table's rows on a model's components.  Nothing leaves this machine.

    MODEL is a folder written by eigenpact fit, FILE a table with samples as rows: .csv, .tsv, .npy, .npz or .parquet.
    Columns are matched by name where both sides have names, else by their number.
    """
    check_target(output, file, overwrite)
    pca = load_model(model)
    table = read_table(file)
    X = _in_order(pca, table, file)
    check_finite(site_name(file), X, getattr(pca, "feature_names_in_", None))
    write_scores(output, pca, X, table.row_ids)


def _in_order(pca: FederatedPCA, table: Table, file: Path) -> Any:
    """The table's rows (n_rows x n_features) with columns as the model has them."""
    wanted = getattr(pca, "feature_names_in_", None)
    if wanted is not None and (table.variants is not None or table.categorical):
        return rows_for_model(table, [str(name) for name in wanted], str(file))
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
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")  # they were matched before
        scores = np.asarray(pca.transform(X))
    content = _as_csv(scores, row_ids) if output.suffix.lower() == ".csv" else _as_npy(scores)
    with replacing(output) as part:
        part.write_bytes(content)
    tell(stdout(), f"Wrote {scores.shape[0]} rows of {scores.shape[1]} scores to {output}")


def _as_npy(scores: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, scores, allow_pickle=False)
    return buffer.getvalue()


def _as_csv(scores: np.ndarray[Any, Any], row_ids: Sequence[str] | None) -> bytes:
    """Text that reads back to the same bits."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    header = [f"PC{j + 1}" for j in range(scores.shape[1])]
    writer.writerow(header if row_ids is None else ["id", *header])
    for i, row in enumerate(scores):
        numbers = [str(value) for value in row]
        writer.writerow(numbers if row_ids is None else [row_ids[i], *numbers])
    return stream.getvalue().encode()
