"""A site's own scores, computed at home: what ``transform`` and ``site transform`` share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from ..data.checks import SHOWN, match_columns
from ..data.site_rows import rows_for_model, rows_with_gaps
from ..data.table import Table
from ..errors import FileError, InputError
from ..estimators import FederatedPCA
from .consoles import stdout, tell
from .score_files import Part, Scored, check_scores_target, projections_of, scores_of, write_parts


def rows_of_table(pca: FederatedPCA, table: Table, file: Path) -> Any:
    """The table's rows (n_rows x n_features) with columns as the model has them, NaN where it lacks what the model fills."""
    return _placed(pca, table, file) if _lacks_what_is_filled(pca, table) else in_order(pca, table, file)


def _lacks_what_is_filled(pca: FederatedPCA, table: Table) -> bool:
    """Whether a table lacks features that a site may lack too, and that the model fills, and has no others."""
    names = getattr(pca, "feature_names_in_", None)
    if names is None or table.feature_names is None or table.categorical or pca.features != "union" or not pca.fills_holes:
        return False
    return table.variants is not None or set(table.feature_names) < {str(name) for name in names}


def in_order(pca: FederatedPCA, table: Table, file: Path) -> Any:
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


class _Sketch:
    """Scores on the first two components, kept while they are written, for a picture."""

    def __init__(self, picture: Path | None, labels: Sequence[str] | None = None) -> None:
        self.picture, self.labels, self.points = picture, labels, list[np.ndarray[Any, Any]]()

    def watch(self, parts: Iterable[Part]) -> Iterator[Part]:
        """The same parts."""
        for part in parts:
            if self.picture is not None:
                self.points.append(np.array(part.scores[:, :2], dtype=np.float32))
            yield part

    def draw(self, pca: FederatedPCA) -> None:
        """Write the picture, if one was asked for, and tell."""
        if self.picture is None:
            return
        from ..report import pictures

        shares = [float(share) for share in pca.explained_variance_ratio_[:2]]
        pictures.save_picture(pictures.scores(np.concatenate(self.points), shares, self.labels), self.picture)
        tell(stdout(), f"The picture is in {self.picture}")


def write_projections(
    output: Path,
    pca: FederatedPCA,
    table: Table,
    file: Path,
    *,
    errors: bool,
    shrinkage: str,
    picture: Path | None = None,
    labels: Sequence[str] | None = None,
) -> None:
    """Write scores of rows in which entries or columns are missing, and tell what was."""
    X, sketch = _placed(pca, table, file), _Sketch(picture, labels)
    by_prior = 0

    def counted(parts: Iterator[Part]) -> Iterator[Part]:
        nonlocal by_prior
        for part in parts:
            by_prior += part.by_prior
            yield part

    with closing(projections_of(pca, X, shrinkage, errors)) as parts:
        files = write_parts(output, sketch.watch(counted(parts)), Scored(pca, int(X.shape[0]), table.row_ids, errors))
    if by_prior:
        tell(stdout(), f"{by_prior} rows have too few features to determine their scores: theirs lie towards zero")
    _tell_written(files, pca, X)
    sketch.draw(pca)


def _placed(pca: FederatedPCA, table: Table, file: Path) -> Any:
    """The table's rows (n_rows x n_features) with columns as the model has them, NaN where it lacks them; tells which."""
    wanted = getattr(pca, "feature_names_in_", None)
    if wanted is None or table.feature_names is None:
        return in_order(pca, table, file)
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


def write_scores(
    output: Path,
    pca: FederatedPCA,
    X: Any,
    row_ids: Sequence[str] | None,
    picture: Path | None = None,
    labels: Sequence[str] | None = None,
) -> None:
    """Write the scores (n_rows x k) of rows whose columns are as the model has them, and tell; labels colour the picture."""
    sketch = _Sketch(picture, labels)
    with closing(scores_of(pca, X)) as parts:
        files = write_parts(output, sketch.watch(parts), Scored(pca, int(X.shape[0]), row_ids))
    _tell_written(files, pca, X)
    sketch.draw(pca)


def _tell_written(files: Sequence[Path], pca: FederatedPCA, X: Any) -> None:
    beside = "".join(f", and variances to {other}" for other in files[1:])
    tell(stdout(), f"Wrote {X.shape[0]} rows of {pca.n_components_} scores to {files[0]}{beside}")
