"""Write scores to a file, some rows after the others: they need not all be in memory."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..estimators import FederatedPCA
from ..numerics.rows import block_rows
from ..numerics.sources import RowSource, pieces
from ..storage import replacing

Scores = np.ndarray[Any, Any]


def scores_of(pca: FederatedPCA, X: Any) -> Generator[Scores]:
    """Scores (some x k) of rows whose columns are as the model has them; those of a source a piece at a time."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="X does not have valid feature names")  # they were matched before
        if not isinstance(X, RowSource):
            yield np.asarray(pca.transform(X))
            return
        for _, piece in pieces(X, block_rows(X.shape[1])):  # the blocks of rows in memory, hence the same bits
            yield np.asarray(pca.transform(piece))


def write_csv(output: Path, parts: Iterator[Scores], row_ids: Sequence[str] | None) -> tuple[int, int]:
    """Text that reads back to the same bits; returns how many rows and scores were written."""
    n, k = 0, 0
    with replacing(output) as part, part.open("w", encoding="utf-8", newline="") as stream:
        for scores in parts:
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            if n == 0:
                k = scores.shape[1]
                header = [f"PC{j + 1}" for j in range(k)]
                writer.writerow(header if row_ids is None else ["id", *header])
            for i, row in enumerate(scores):
                numbers = [str(value) for value in row]
                writer.writerow(numbers if row_ids is None else [row_ids[n + i], *numbers])
            stream.write(text.getvalue())
            n += len(scores)
    return n, k


def write_npy(output: Path, parts: Iterator[Scores], n: int) -> tuple[int, int]:
    """An array of n rows; returns how many rows and scores were written."""
    first = next(parts)
    with replacing(output) as part, part.open("wb") as stream:
        header = np.lib.format.header_data_from_array_1_0(first)
        np.lib.format.write_array_header_1_0(stream, header | {"shape": (n, first.shape[1]), "fortran_order": False})
        stream.write(np.ascontiguousarray(first).tobytes())
        for scores in parts:
            stream.write(np.ascontiguousarray(scores).tobytes())
    return n, first.shape[1]
