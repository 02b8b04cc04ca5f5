"""Read .csv and .tsv tables, with or without a header and row ids, without pandas.

Tables of plain numbers go through numpy's C parser; whatever it cannot read goes through a slower reader that accepts missing
cells and quotes, and can name the line and column of a cell it cannot accept.

A small file can unfold to a line without end, or to lines that are all empty.  So the bytes are counted before they become text.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, TextIO

import numpy as np
from numpy.typing import NDArray

from ..errors import FileError, InputError
from ..storage import open_regular
from .array_files import PIECE, check_expansion

MISSING = frozenset({"", "na", "nan"})
ID_HEADERS = frozenset({"", "id", "sample", "index", "row"})
LONGEST_LINE = 1 << 24
"""Bytes of one line; a line's cells take up to twenty times as much while it is read."""

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


@contextmanager
def _open(path: Path) -> Iterator[TextIO]:
    with open_regular(path, follow=True) as file:
        unfolded = gzip.GzipFile(fileobj=file) if path.suffix.lower() == ".gz" else file
        counted = io.BufferedReader(_Counted(path, unfolded, file), PIECE)
        with io.TextIOWrapper(counted, encoding="utf-8-sig") as text:
            yield text


class _Counted(io.RawIOBase):
    """Bytes of a table; a line that is too long, and a file that unfolds to far more than it has, are refused as they come."""

    def __init__(self, path: Path, inner: IO[bytes] | gzip.GzipFile, file: IO[bytes]) -> None:
        self._path, self._inner, self._file = path, inner, file
        self._read = self._line = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """The next bytes."""
        piece = self._inner.read(len(buffer))
        end = max(piece.rfind(b"\n"), piece.rfind(b"\r"))
        self._line = len(piece) - end - 1 if end >= 0 else self._line + len(piece)
        if self._line > LONGEST_LINE:
            raise InputError(f"{self._path} has a line of more than {LONGEST_LINE} bytes; if it is a table, save it as .npy")
        self._read += len(piece)
        check_expansion(self._path, self._read, self._file.tell(), "if it is a table, unfold it with gunzip first")
        buffer[: len(piece)] = piece
        return len(piece)


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
            X = np.loadtxt(lines, delimiter=delimiter, comments=None, ndmin=2)
        except (UnicodeDecodeError, InputError):
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
