"""Files of scores and loadings.  What a column holds is said by its name; numbers read back to the same bits.

Scores are written some rows after the others, so that they need not all be in memory; only .h5ad takes them together.
"""

from __future__ import annotations

import csv
import importlib
import io
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, MissingExtraError
from ..estimators import FederatedPCA
from ..numerics.rows import block_rows
from ..numerics.sources import RowSource, pieces
from ..storage import check_file_target, replacing

Numbers = np.ndarray[Any, Any]
EIGENVEC, EIGENVAL = ".eigenvec", ".eigenval"


@dataclass(frozen=True, eq=False)
class Part:
    """Scores of some rows, and their standard errors if asked for (both rows x k); how many of the scores lie towards zero."""

    scores: Numbers
    errors: Numbers | None = None
    by_prior: int = 0

    def table(self) -> Numbers:
        """Scores, then errors, side by side."""
        return self.scores if self.errors is None else np.hstack([self.scores, self.errors])


@dataclass(frozen=True, eq=False)
class Scored:
    """Whose scores are written: the model's, of n rows with ids, with or without errors."""

    pca: FederatedPCA
    n: int
    row_ids: Sequence[str] | None = None
    errors: bool = False

    def names(self) -> list[str]:
        """PC1_score, PC2_score, ..., then PC1_error, ..."""
        kinds = ("score", "error") if self.errors else ("score",)
        return [f"PC{j + 1}_{kind}" for kind in kinds for j in range(self.pca.n_components_)]

    def ids(self) -> list[str]:
        """Ids of the rows, or their numbers."""
        return [str(i) for i in range(self.n)] if self.row_ids is None else list(self.row_ids)


def scores_of(pca: FederatedPCA, X: Any) -> Generator[Part]:
    """Scores of rows whose columns are as the model has them; those of a source a piece at a time."""
    for rows in _pieces(X):
        yield Part(np.asarray(pca.transform(rows)))


def projections_of(pca: FederatedPCA, X: Any, shrinkage: str, errors: bool) -> Generator[Part]:
    """The same for rows that lack entries."""
    for rows in _pieces(X):
        found = pca.project(rows, shrinkage=shrinkage)
        yield Part(found.scores, found.standard_errors() if errors else None, int(np.count_nonzero(found.from_prior)))


def _pieces(X: Any) -> Generator[Any]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")  # they were matched before
        if not isinstance(X, RowSource):
            yield X
            return
        for _, piece in pieces(X, block_rows(X.shape[1])):  # the blocks of rows in memory, hence the same bits
            yield piece


def check_scores_target(output: Path, *, overwrite: bool, errors: bool = False) -> None:
    """Refuse a file that scores cannot be written to, before anything is computed."""
    check_file_target(output, tuple(WRITERS), overwrite=overwrite)
    if output.suffix.lower() == EIGENVEC:
        check_file_target(output.with_suffix(EIGENVAL), (EIGENVAL,), overwrite=overwrite)
    if errors and output.suffix.lower() in (EIGENVEC, ".npy"):
        raise InputError(f"{output} has no place for standard errors; write .csv, .parquet or .h5ad, or leave out --errors")


def write_parts(output: Path, parts: Iterable[Part], about: Scored) -> list[Path]:
    """Write scores in the form that the file's ending names; the files that were written."""
    return WRITERS[output.suffix.lower()](output, iter(parts), about)


def write_loadings(output: Path, pca: FederatedPCA) -> None:
    """Write what each feature weighs in each component (d x k), with its mean and scale; a row for each feature."""
    header = ["feature", *(f"PC{j + 1}_loading" for j in range(pca.n_components_)), "mean", "scale"]
    rows = zip(_features(pca), *pca.components_, pca.mean_, pca.scale_, strict=True)
    with replacing(output) as part:
        part.write_text(_lines([header, *rows]), encoding="utf-8")


def _features(pca: FederatedPCA) -> list[str]:
    names = getattr(pca, "feature_names_in_", None)
    return [str(j) for j in range(pca.n_features_in_)] if names is None else [str(name) for name in names]


def _lines(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([str(cell) for cell in row] for row in rows)
    return text.getvalue()


def _write_csv(output: Path, parts: Iterator[Part], about: Scored) -> list[Path]:
    n, ids = 0, about.row_ids
    with replacing(output) as file, file.open("w", encoding="utf-8", newline="") as stream:
        for part in parts:
            if n == 0:  # only when rows could be read
                stream.write(_lines([about.names() if ids is None else ["id", *about.names()]]))
            table = part.table()
            stream.write(_lines(row if ids is None else [ids[n + i], *row] for i, row in enumerate(table)))
            n += len(table)
    return [output]


def _write_npy(output: Path, parts: Iterator[Part], about: Scored) -> list[Path]:
    first = next(parts).scores
    with replacing(output) as file, file.open("wb") as stream:
        header = np.lib.format.header_data_from_array_1_0(first)
        np.lib.format.write_array_header_1_0(stream, header | {"shape": (about.n, first.shape[1]), "fortran_order": False})
        stream.write(np.ascontiguousarray(first).tobytes())
        for part in parts:
            stream.write(np.ascontiguousarray(part.scores).tobytes())
    return [output]


def _write_parquet(output: Path, parts: Iterator[Part], about: Scored) -> list[Path]:
    arrow, parquet = (_extra(name, "writing .parquet files", "pandas") for name in ("pyarrow", "pyarrow.parquet"))
    n, writer, names = 0, None, about.names()
    with replacing(output) as file:
        try:
            for part in parts:
                table = part.table()
                ids = {} if about.row_ids is None else {"id": list(about.row_ids[n : n + len(table)])}
                made = arrow.table(ids | dict(zip(names, table.T, strict=True)))
                writer = writer or parquet.ParquetWriter(file, made.schema)
                writer.write_table(made)
                n += len(table)
        finally:
            if writer is not None:
                writer.close()
    return [output]


def _write_h5ad(output: Path, parts: Iterator[Part], about: Scored) -> list[Path]:
    """As scanpy has it: obsm["X_pca"], varm["PCs"], uns["pca"]; without the rows themselves."""
    anndata, pandas = (_extra(name, "writing .h5ad files", "cells") for name in ("anndata", "pandas"))
    pca, found = about.pca, list(parts)
    errors = {"X_pca_errors": np.concatenate([part.errors for part in found if part.errors is not None])} if about.errors else {}
    told = {"variance": pca.explained_variance_, "variance_ratio": pca.explained_variance_ratio_}
    data = anndata.AnnData(
        obs=pandas.DataFrame(index=about.ids()),
        var=pandas.DataFrame(index=_features(pca)),
        obsm={"X_pca": np.concatenate([part.scores for part in found]), **errors},
        varm={"PCs": np.ascontiguousarray(pca.components_.T)},
        uns={"pca": {"params": {"zero_center": pca.center is not False, "use_highly_variable": False}, **told}},
    )
    with replacing(output) as file:
        data.write_h5ad(file)
    return [output]


def _write_eigenvec(output: Path, parts: Iterator[Part], about: Scored) -> list[Path]:
    """As PLINK 2 has it, beside a file of variances; scores are in the units of the rows, not of unit length."""
    n, ids, values = 0, about.ids(), output.with_suffix(EIGENVAL)
    broken = next((label for label in ids if label.split() != [label]), None)
    if broken is not None:
        raise InputError(f"row id {broken!r} has blanks or is empty, which {EIGENVEC} files cannot hold; write .csv instead")
    with replacing(output) as file, replacing(values) as beside, file.open("w", encoding="utf-8", newline="") as stream:
        stream.write(" ".join(["#FID", "IID", *(f"PC{j + 1}" for j in range(about.pca.n_components_))]) + "\n")
        for part in parts:
            stream.writelines(" ".join(["0", ids[n + i], *map(str, row)]) + "\n" for i, row in enumerate(part.scores))
            n += len(part.scores)
        beside.write_text("".join(f"{value}\n" for value in about.pca.explained_variance_))
    return [output, values]


def _extra(name: str, what: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(f"{what} needs {name} ({error}); run: pip install 'eigenpact[{extra}]'") from error


WRITERS: dict[str, Callable[[Path, Iterator[Part], Scored], list[Path]]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
    ".h5ad": _write_h5ad,
    EIGENVEC: _write_eigenvec,
    ".npy": _write_npy,
}
"""Ending of a file of scores -> what writes it."""
