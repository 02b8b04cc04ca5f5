"""Read .csv and .tsv tables, with or without a header and row ids, without pandas.

Tables of plain numbers go through numpy's C parser; whatever it cannot read goes through a slower reader that accepts missing
cells and can name the line and column of a cell it cannot accept.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from ..errors import FileError, InputError

MISSING = frozenset({"", "na", "nan"})
ID_HEADERS = frozenset({"", "id", "sample", "index", "row"})
ID_HINT = "if the first column holds row ids, begin the file with a header line whose first cell is 'id'"


@dataclass(frozen=True)
class _Layout:
    """What the first lines of a file say: lines before the data, column names (row ids apart), whether there are ids."""

    skip: int
    names: tuple[str, ...] | None
    has_ids: bool
    known_ids: bool  # the header says so; otherwise every id must look like text
    n_columns: int  # without the ids

    def column(self, j: int) -> str:
        label = f"{j + 1 + self.has_ids}"
        return f"{label} ({self.names[j]!r})" if self.names is not None else label


TextTable = tuple[NDArray[np.float64], tuple[str, ...] | None, tuple[str, ...] | None]


def read_text_table(path: Path, delimiter: str) -> TextTable:
    """Return (X, feature_names, row_ids) of a text table; X is float64, n_rows x n_features, missing cells are nan."""
    try:
        layout = _layout(path, delimiter)
        fast = _read_fast(path, delimiter, layout)
        X, ids = fast if fast is not None else _read_slow(path, delimiter, layout)
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise FileError(f"{path} is not a complete gzip file ({error}); compress or copy it again") from error
    except csv.Error as error:
        raise InputError(f"{path} is not a text table ({error}); save it as comma- or tab-separated text") from error
    return X, layout.names, ids


def _open(path: Path) -> TextIO:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig")
    return path.open(encoding="utf-8-sig")


def _is_number(cell: str) -> bool:
    """Whether a cell is a number or a missing value."""
    if cell.strip().lower() in MISSING:
        return True
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _layout(path: Path, delimiter: str) -> _Layout:
    with _open(path) as stream:
        reader = csv.reader(stream, delimiter=delimiter)
        first = next((row for row in reader if row), None)
        first_end = reader.line_num
        second = next((row for row in reader if row), None)
    if first is None:
        raise FileError(f"{path} is empty; give a table with at least one row")
    if not _is_header(first):
        return _Layout(0, None, False, False, len(first))
    if second is None:
        raise InputError(f"{path} has a header and no rows; give at least one row of numbers")
    head, rest = first[0].strip(), first[1:]
    if not _is_number(head) and rest and all(_is_number(cell) for cell in rest) and not _could_be_names(rest):
        raise InputError(
            f"{path}, line {first_end} is {first[:4]!r}: neither a row of numbers nor a header with distinct names; {ID_HINT}"
        )
    known_ids = head.lower() in ID_HEADERS
    has_ids = known_ids or not _is_number(second[0])
    names = tuple(cell.strip() for cell in (rest if has_ids else first))
    if not names:
        raise InputError(f"{path} has only row ids; is the separator really {delimiter!r}?")
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise InputError(f"{path} has repeated column names {repeated[:5]}; rename the columns apart")
    return _Layout(first_end, names, has_ids, known_ids, len(names))


def _is_header(first: list[str]) -> bool:
    """A row with a cell that is no number, or the ',0,1,2' that pandas writes above unnamed columns."""
    if not all(_is_number(cell) for cell in first):
        return True
    return not first[0].strip() and [cell.strip() for cell in first[1:]] == [str(j) for j in range(len(first) - 1)] != []


def _could_be_names(cells: list[str]) -> bool:
    """Whether numbers can be column names: whole, such as years, and distinct."""
    return all(cell.strip().isdecimal() for cell in cells) and len(set(cells)) == len(cells)


def _read_fast(path: Path, delimiter: str, layout: _Layout) -> tuple[NDArray[np.float64], tuple[str, ...] | None] | None:
    """Read a table of plain numbers, after row ids if there are any; None if it is anything else."""
    ids: list[str] = []
    with _open(path) as stream:
        next(islice(stream, layout.skip, layout.skip), None)
        lines = _split_ids(stream, delimiter, layout.known_ids, ids) if layout.has_ids else stream
        try:
            X = np.loadtxt(lines, delimiter=delimiter, comments=None, quotechar='"', ndmin=2)
        except UnicodeDecodeError:
            raise
        except ValueError:
            return None
    if X.shape[1] != layout.n_columns or (layout.has_ids and len(ids) != X.shape[0]):
        return None
    return X, tuple(ids) if layout.has_ids else None


def _split_ids(stream: TextIO, delimiter: str, known_ids: bool, ids: list[str]) -> Iterator[str]:
    """Yield the lines without their first cell, which goes to ``ids``; unusual lines are left to the slow reader."""
    for line in stream:
        if not line.strip("\r\n"):
            continue
        head, found, rest = line.partition(delimiter)
        if not found or head.lstrip().startswith('"') or (not known_ids and _is_number(head)):
            raise ValueError("not a plain line")
        ids.append(head.strip())
        yield rest


def _read_slow(path: Path, delimiter: str, layout: _Layout) -> tuple[NDArray[np.float64], tuple[str, ...] | None]:
    values = array("d")
    ids: list[str] = []
    with _open(path) as stream:
        next(islice(stream, layout.skip, layout.skip), None)
        reader = csv.reader(stream, delimiter=delimiter)
        for row in reader:
            if not row:
                continue
            where = f"{path}, line {layout.skip + reader.line_num}"
            cells = row[1:] if layout.has_ids else row
            if len(cells) != layout.n_columns:
                raise InputError(
                    f"{where}: {len(row)} cells where {layout.n_columns + layout.has_ids} are expected; every line needs the same"
                )
            if layout.has_ids:
                ids.append(row[0].strip())
                if not layout.known_ids and _is_number(row[0]):
                    raise InputError(
                        f"{where}, column 1: {row[0]!r} is a number where other lines have text such as {ids[0]!r}; {ID_HINT}"
                    )
            values.extend(_numbers(cells, where, layout))
    X = np.frombuffer(values, dtype=np.float64).reshape(-1, layout.n_columns)
    return X, tuple(ids) if layout.has_ids else None


def _numbers(cells: list[str], where: str, layout: _Layout) -> list[float]:
    """Return the cells as floats, missing ones as nan."""
    if "_" not in "".join(cells):  # float() would accept 1_000
        try:
            return [float(cell) if cell else np.nan for cell in cells]
        except ValueError:
            pass  # a missing cell written out, or a bad one: look at each
    for j, cell in enumerate(cells):
        if not _is_number(cell):
            hint = f"; {ID_HINT}" if j == 0 and not layout.has_ids else ""
            raise InputError(
                f"{where}, column {layout.column(j)}: {cell!r} is not a number; give numbers, or leave missing cells empty{hint}"
            )
    return [np.nan if cell.strip().lower() in MISSING else float(cell) for cell in cells]
