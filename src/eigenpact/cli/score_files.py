"""Files of scores and loadings: what a column holds is said by its name, and numbers read back to the same bits."""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, MissingExtraError
from ..estimators import FederatedPCA
from ..storage import check_file_target, replacing

Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores (n x k) of rows on a model's components, standard errors (n x k) if asked for, and the rows' ids."""

    pca: FederatedPCA
    scores: Numbers
    errors: Numbers | None = None
    row_ids: Sequence[str] | None = None

    def columns(self) -> list[tuple[str, Numbers]]:
        """Names and numbers (n,): PC1_score, PC2_score, ..., then PC1_error, ..."""
        named = [(f"PC{j + 1}_score", self.scores[:, j]) for j in range(self.scores.shape[1])]
        if self.errors is not None:
            named += [(f"PC{j + 1}_error", self.errors[:, j]) for j in range(self.errors.shape[1])]
        return named


def check_scores_target(output: Path, *, overwrite: bool, errors: bool = False) -> None:
    """Refuse a file that scores cannot be written to, before anything is computed."""
    check_file_target(output, tuple(WRITERS), overwrite=overwrite)
    if output.suffix.lower() == EIGENVEC:
        check_file_target(output.with_suffix(EIGENVAL), (EIGENVAL,), overwrite=overwrite)
    if errors and output.suffix.lower() in (EIGENVEC, ".npy"):
        raise InputError(f"{output} has no place for standard errors; write .csv, .parquet or .h5ad, or leave out --errors")


def write_scores(output: Path, found: Scores) -> list[Path]:
    """Write scores in the form that the file's ending names; the files that were written."""
    return WRITERS[output.suffix.lower()](output, found)


def write_loadings(output: Path, pca: FederatedPCA) -> None:
    """Write what each feature weighs in each component (d x k), a row for each feature."""
    names = getattr(pca, "feature_names_in_", None)
    labels = [str(name) for name in names] if names is not None else [str(j) for j in range(pca.n_features_in_)]
    columns = [(f"PC{j + 1}_loading", pca.components_[j]) for j in range(pca.n_components_)]
    columns += [("mean", pca.mean_), ("scale", pca.scale_)]
    content = _csv("feature", labels, columns)
    with replacing(output) as part:
        part.write_bytes(content)


def _csv(label: str, labels: Sequence[str] | None, columns: Sequence[tuple[str, Numbers]]) -> bytes:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    names = [name for name, _ in columns]
    writer.writerow(names if labels is None else [label, *names])
    for i, row in enumerate(zip(*(values for _, values in columns), strict=True)):
        numbers = [str(value) for value in row]
        writer.writerow(numbers if labels is None else [labels[i], *numbers])
    return stream.getvalue().encode()


def _write_csv(output: Path, found: Scores) -> list[Path]:
    content = _csv("id", found.row_ids, found.columns())
    with replacing(output) as part:
        part.write_bytes(content)
    return [output]


def _write_npy(output: Path, found: Scores) -> list[Path]:
    buffer = io.BytesIO()
    np.save(buffer, found.scores, allow_pickle=False)
    with replacing(output) as part:
        part.write_bytes(buffer.getvalue())
    return [output]


def _write_parquet(output: Path, found: Scores) -> list[Path]:
    arrow = _extra("pyarrow", "writing .parquet files", "pandas")
    parquet = _extra("pyarrow.parquet", "writing .parquet files", "pandas")
    ids = [] if found.row_ids is None else [("id", list(found.row_ids))]
    table = arrow.table(dict([*ids, *found.columns()]))
    with replacing(output) as part:
        parquet.write_table(table, part)
    return [output]


def _write_h5ad(output: Path, found: Scores) -> list[Path]:
    """As scanpy has it: obsm["X_pca"], varm["PCs"], uns["pca"]; without the rows themselves."""
    anndata, pandas = (_extra(name, "writing .h5ad files", "cells") for name in ("anndata", "pandas"))
    pca, n = found.pca, len(found.scores)
    names = getattr(pca, "feature_names_in_", None)
    features = [str(j) for j in range(pca.n_features_in_)] if names is None else [str(name) for name in names]
    ids = [str(i) for i in range(n)] if found.row_ids is None else list(found.row_ids)
    errors = {} if found.errors is None else {"X_pca_errors": found.errors}
    told = {"variance": pca.explained_variance_, "variance_ratio": pca.explained_variance_ratio_}
    data = anndata.AnnData(
        obs=pandas.DataFrame(index=ids),
        var=pandas.DataFrame(index=features),
        obsm={"X_pca": found.scores, **errors},
        varm={"PCs": np.ascontiguousarray(pca.components_.T)},
        uns={"pca": {"params": {"zero_center": pca.center is not False, "use_highly_variable": False}, **told}},
    )
    with replacing(output) as part:
        data.write_h5ad(part)
    return [output]


def _write_eigenvec(output: Path, found: Scores) -> list[Path]:
    """As PLINK 2 has it, beside a file of variances; scores are in the units of the rows, not of unit length."""
    ids = [str(i) for i in range(len(found.scores))] if found.row_ids is None else list(found.row_ids)
    broken = next((label for label in ids if not label or label.split() != [label]), None)
    if broken is not None:
        raise InputError(f"row id {broken!r} has blanks, which {EIGENVEC} files cannot hold; write .csv instead")
    lines = [" ".join(["#FID", "IID", *(f"PC{j + 1}" for j in range(found.scores.shape[1]))])]
    lines += [" ".join(["0", label, *map(str, row)]) for label, row in zip(ids, found.scores, strict=True)]
    values = output.with_suffix(EIGENVAL)
    with replacing(output) as part, replacing(values) as beside:
        part.write_text("\n".join(lines) + "\n")
        beside.write_text("".join(f"{value}\n" for value in found.pca.explained_variance_))
    return [output, values]


def _extra(name: str, what: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(f"{what} needs {name} ({error}); run: pip install 'eigenpact[{extra}]'") from error


EIGENVEC, EIGENVAL = ".eigenvec", ".eigenval"

WRITERS: dict[str, Callable[[Path, Scores], list[Path]]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
    ".h5ad": _write_h5ad,
    EIGENVEC: _write_eigenvec,
    ".npy": _write_npy,
}
"""Ending of a file of scores -> what writes it."""
