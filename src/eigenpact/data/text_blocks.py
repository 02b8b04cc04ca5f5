"""Blocks of lines become rows: by pyarrow where it is installed, else by numpy; by a slow reader where neither can.

The slow one accepts missing cells and quotes of every kind, and names the line and column of a cell it cannot accept.  All three
round correctly, so that a number has the same bits whichever read it.
"""

from __future__ import annotations

import csv
import importlib
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .findings import SHOWN, Finding
from .layout import LIKELY_MISSING, Layout
from .text_bytes import Block, count_lines
from .text_form import COMMA_NUMBER, GROUPED, NUMBERLIKE, SPACED, THOUSANDS, Form, likely_encoding, not_utf8, two_readings

NAN_WORDS = ("", "NA", "NaN", "nan", "N/A", "n/a", "na", "#N/A", "NULL", "null", "Null")


@dataclass(frozen=True)
class Part:
    """Some rows: numbers (n x d), row names and texts by column; and what could not be read, by column and cell."""

    X: NDArray[np.float64]
    ids: Sequence[str]
    texts: dict[str, Sequence[str]]
    problems: dict[tuple[int, str], Finding] = field(default_factory=dict)


class NotPlainError(ValueError):
    """Lines that a fast reader does not read as the slow one would."""


class BlockReader:
    """Reads the blocks of one file, in any order, and several at once."""

    def __init__(self, form: Form, layout: Layout) -> None:
        self.form, self.layout = form, layout
        try:
            self._arrow: Any = importlib.import_module("pyarrow")
            self._csv: Any = importlib.import_module("pyarrow.csv")
            self._compute: Any = importlib.import_module("pyarrow.compute")
        except ImportError:
            self._arrow = None
        used = {*self.layout.features, *self.layout.texts.values()}
        self._used = sorted(used if self.layout.ids is None else used | {self.layout.ids})

    def read(self, block: Block) -> Part:
        """The rows of a block; cells with problems are nan."""
        data, line = block.data, block.line
        if line == 0 and self.layout.skip:
            start = _after_lines(data, self.layout.skip)
            data, line = data[start:], self.layout.skip
        wrong = self._wrong_letter(data, line)
        if wrong is not None:
            return self._nothing({(-1, "encoding"): wrong})
        try:
            part = self._by_arrow(data) if self._arrow else self._by_numpy(data)
        except NotPlainError:
            part = self._slowly(data, line)
        self.layout.finish(part.X)
        return part

    def _nothing(self, problems: dict[tuple[int, str], Finding] | None = None) -> Part:
        return Part(np.empty((0, len(self.layout.features))), [], {name: [] for name in self.layout.texts}, problems or {})

    def _wrong_letter(self, data: bytes, line: int) -> Finding | None:
        if data.isascii():
            return None
        try:
            data.decode(self._encoding)
        except UnicodeDecodeError as error:
            if self.form.encoding.startswith("utf"):
                return not_utf8(data, error.start, self.form.separator, line)
            told = f"byte 0x{data[error.start]:02x} is not {self.form.encoding}; perhaps it is {likely_encoding(data)}"
            return Finding(told, line + count_lines(data[: error.start]) + 1)
        return None

    @property
    def _encoding(self) -> str:
        return "utf-8" if self.form.encoding.startswith("utf") else self.form.encoding  # blocks of UTF-16 come as UTF-8

    # -- pyarrow ----------------------------------------------------------------------------------

    def _by_arrow(self, data: bytes) -> Part:
        pa, layout = self._arrow, self.layout
        if not data.strip():
            return self._nothing()
        quoted = b'"' in data
        if b"\0" in data:
            raise NotPlainError
        names = [str(j) for j in range(layout.n_cells)]
        own = {str(j) for j in layout.marks}
        types = {str(j): pa.float64() for j in layout.features} | {str(j): pa.binary() for j in self._texts_and_ids()}
        types |= dict.fromkeys(own, pa.string())
        marks = [*NAN_WORDS, *(mark for said in self.layout.description.missing for mark in (said, said.strip().lower()))]
        convert = self._csv.ConvertOptions(
            column_types=types, null_values=marks, strings_can_be_null=False, include_columns=[str(j) for j in self._used],
            decimal_point=self.form.decimal, check_utf8=False,
        )  # fmt: skip
        parse = self._csv.ParseOptions(
            delimiter=self.form.separator, quote_char='"' if quoted else False, newlines_in_values=quoted
        )
        read = self._csv.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1)
        try:
            table = self._csv.read_csv(pa.BufferReader(data), read, parse, convert)
            chosen = table.select([str(j) for j in layout.features])
            for k, j in enumerate(layout.features):
                if str(j) in own:
                    chosen = chosen.set_column(k, str(j), self._own_marks(chosen.column(k), j))
            X = _as_rows(chosen)
            nulls = sum(column.null_count for column in chosen.columns)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise NotPlainError from error
        if nulls != np.count_nonzero(np.isnan(X)):  # "nan(7)" is a number for pyarrow
            raise NotPlainError
        return Part(X, *self._arrow_texts(table))

    def _own_marks(self, column: Any, j: int) -> Any:
        """A column of text whose own marks are missing numbers."""
        compute, pa = self._compute, self._arrow
        plain = compute.utf8_trim_whitespace(column)
        marks = pa.array(sorted(self.form.marks | self.layout.marks[j]))
        plain = compute.if_else(compute.is_in(compute.utf8_lower(plain), value_set=marks), pa.scalar(None, pa.string()), plain)
        if self.form.decimal == ",":
            if compute.any(compute.match_substring(plain, ".")).as_py():
                raise NotPlainError
            plain = compute.replace_substring(plain, ",", ".")
        return plain.cast(pa.float64())

    def _texts_and_ids(self) -> list[int]:
        ids = [] if self.layout.ids is None else [self.layout.ids]
        return [j for j in (*self.layout.texts.values(), *ids) if j not in self.layout.features]

    def _arrow_texts(self, table: Any) -> tuple[list[str], dict[str, Sequence[str]]]:
        def texts(column: int) -> list[str]:
            return [cell.decode(self._encoding).strip() for cell in table.column(str(column)).to_pylist()]

        layout = self.layout
        ids = [] if layout.ids is None else texts(layout.ids)
        if ids and not layout.known_ids and any(self.form.number(name) is not None for name in ids):
            raise NotPlainError
        return ids, {name: texts(column) for name, column in layout.texts.items()}

    # -- numpy ------------------------------------------------------------------------------------

    def _by_numpy(self, data: bytes) -> Part:
        """Plain numbers, after row names if there are any; whatever else is there is left to the slow reader."""
        layout, text = self.layout, data.decode(self._encoding)
        others = set(range(layout.n_cells)) - set(layout.features)
        if '"' in text or not text.strip() or others - {layout.ids} or layout.ids not in (None, 0) or layout.marks:
            raise NotPlainError
        if self.form.decimal == ",":
            if "." in text:
                raise NotPlainError
            text = text.replace(",", ".")
        ids: list[str] = []
        lines = io.StringIO(text, newline=None)
        plain = lines if layout.ids is None else self._split_ids(lines, ids)
        try:
            X = np.loadtxt(plain, delimiter=self.form.separator, comments=None, ndmin=2)
        except ValueError as error:
            raise NotPlainError from error
        if X.shape[1] != len(layout.features) or (layout.ids is not None and len(ids) != X.shape[0]):
            raise NotPlainError
        order = np.argsort(np.argsort(layout.features)) if list(layout.features) != sorted(layout.features) else None
        return Part(X if order is None else X[:, order], ids, {})

    def _split_ids(self, lines: io.StringIO, ids: list[str]) -> Iterator[str]:
        """Yield the lines without their first cell, which goes to ``ids``."""
        for line in lines:
            if not line.strip("\r\n"):
                continue
            head, found, rest = line.partition(self.form.separator)
            if not found or not rest.strip() or (not self.layout.known_ids and self.form.number(head) is not None):
                raise NotPlainError
            ids.append(head.strip())
            yield rest

    # -- cell by cell -----------------------------------------------------------------------------

    def _slowly(self, data: bytes, line: int) -> Part:
        layout = self.layout
        rows: list[list[float]] = []
        ids: list[str] = []
        texts: dict[str, list[str]] = {name: [] for name in layout.texts}
        problems: dict[tuple[int, str], Finding] = {}
        words: Counter[int] = Counter()
        reader = csv.reader(io.StringIO(data.decode(self._encoding), newline=""), delimiter=self.form.separator)
        for row in reader:
            if not row:
                continue
            if len(problems) > SHOWN:
                break
            where = line + reader.line_num
            if len(row) != layout.n_cells:
                told = f"{len(row)} cells where {layout.n_cells} are expected; every line needs the same"
                problems.setdefault((-1, f"{len(row)} cells"), Finding(told, where))
                continue
            if layout.ids is not None:
                self._check_id(row[layout.ids], where, ids, problems)
                ids.append(row[layout.ids].strip())
            for name, column in layout.texts.items():
                texts[name].append(row[column].strip())
            numbers = [self.form.number(row[j], layout.marks.get(j, frozenset())) for j in layout.features]
            if None in numbers:
                self._note(row, numbers, where, problems)
                words.update(j for j, number in zip(layout.features, numbers, strict=True) if number is None and _is_text(row[j]))
            rows.append([np.nan if number is None else number for number in numbers])
        X = np.array(rows, dtype=np.float64).reshape(-1, len(layout.features))
        return Part(X, ids, dict(texts), self._with_labels(problems, {j for j, n in words.items() if 2 * n > len(rows)}))

    def _with_labels(self, problems: dict[tuple[int, str], Finding], wordy: set[int]) -> dict[tuple[int, str], Finding]:
        """Problems with the advice to describe columns of text as such, of which most cells are text."""
        told = dict(problems)
        for (column, cell), problem in problems.items():
            if column in wordy and problem.name is not None and "describe" not in problem.text and _is_text(cell):
                text = f'{problem.text}; if the column holds text, describe the file: labels = ["{problem.name}"]'
                told[column, cell] = replace(problem, text=text)
        return told

    def _check_id(self, name: str, line: int, ids: list[str], problems: dict[tuple[int, str], Finding]) -> None:
        if self.layout.known_ids or self.form.number(name) is None:
            return
        column = self.layout.ids or 0
        other = f" such as {ids[0]!r}" if ids else ""
        told = (
            f"{name!r} is a number where other lines have text{other}; if the first column holds row ids, begin the file with a "
            "header line whose first cell is 'id', or describe the file: id = "
        )
        problems.setdefault((column, "a number"), Finding(f'{told}"{self.layout.name(column)}"', line, column + 1))

    def _note(self, row: list[str], numbers: list[float | None], line: int, problems: dict[tuple[int, str], Finding]) -> None:
        for column, number in zip(self.layout.features, numbers, strict=True):
            if number is not None:
                continue
            cell, hint = row[column], advice(row[column], self.form)
            if column == 0 and self.layout.ids is None and "describe" not in hint:
                hint += "; if the first column holds row ids, begin the file with a header line whose first cell is 'id'"
            told = f"{_short(cell)} is not a number; {hint}"
            finding = Finding(told, line, column + 1, self.layout.name(column))
            problems.setdefault((column, cell.strip().lower()[:40]), finding)


def _as_rows(table: Any) -> NDArray[np.float64]:
    """The columns of a table of float64, missing ones as nan, as rows (n x d)."""
    batches = table.combine_chunks().to_batches()
    if not batches:
        return np.empty((0, table.num_columns))
    return np.array(batches[0].to_tensor(null_to_nan=True, row_major=True).to_numpy(), order="C")


def advice(cell: str, form: Form) -> str:
    """What to do about a cell that is no number."""
    word = cell.strip()
    if word.lower() in LIKELY_MISSING:
        return f'if it stands for a missing one, describe the file: missing = ["{word}"]'
    if form.decimal == "." and THOUSANDS.fullmatch(word):
        return two_readings(word)
    if form.decimal == "." and GROUPED.fullmatch(word):
        return "its commas group thousands: save the file without them"
    if SPACED.fullmatch(word):
        return "its blanks or apostrophes group thousands: save the file without them"
    if form.decimal == "." and COMMA_NUMBER.fullmatch(word):
        return 'if the comma is the decimal sign, describe the file: decimal = ","'
    if form.decimal == "," and re.fullmatch(r"[+-]?[\d.]+(,\d+)?", word):
        return "numbers here have a decimal comma: save the file with one decimal sign, and none that groups thousands"
    return "give numbers, or leave missing cells empty"


def _is_text(cell: str) -> bool:
    """Whether a cell that is no number holds a word, and not a number and more."""
    return cell.strip().lower() not in LIKELY_MISSING and not NUMBERLIKE.match(cell)


def _short(cell: str) -> str:
    return repr(cell) if len(cell) <= 60 else f"{cell[:50]!r}..."


def _after_lines(data: bytes, lines: int) -> int:
    """Where the line begins that comes after so many."""
    at = 0
    for match in re.finditer(rb"\r\n|\n|\r", data):
        lines -= 1
        at = match.end()
        if lines == 0:
            return at
    return len(data)
