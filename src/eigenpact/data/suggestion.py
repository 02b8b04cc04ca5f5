"""Look through a text table, tell what is wrong with it and where, and suggest the description that mends it."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import EigenpactError, InputError
from .description import Description
from .findings import SHOWN, Finding, near
from .layout import LIKELY_MISSING, Layout
from .numbering import may_number
from .table import ending
from .text_blocks import advice
from .text_bytes import blocks
from .text_files import AFTER, ENDINGS, find_layout, told_errors
from .text_form import GROUPED, NUMBERLIKE, SPACED, Form, Found, find_form

CODES = (-9.0, -99.0, -999.0, -9999.0, 99.0, 999.0, 9999.0, 99999.0)
"""Numbers that often stand for missing ones; whether they do, only a person can say."""

DISTINCT = 60
"""Different cells of a column that are remembered."""

TEXT_SHARE = 0.5
"""A column of which more cells are words than numbers is one of text."""


@dataclass(frozen=True)
class Suggestion:
    """What was found in a file, what is wrong with it as it is, the description to write, and remarks for who writes it."""

    description: Description
    notes: tuple[Finding, ...]
    problems: tuple[Finding, ...]
    remarks: tuple[str, ...]


@dataclass
class _Column:
    """What the cells of a column are."""

    numbers: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    words: Counter[str] = field(default_factory=Counter)
    first: dict[str, int] = field(default_factory=dict)
    codes: Counter[float] = field(default_factory=Counter)
    low: float = np.inf
    high: float = -np.inf
    different: set[float] | None = None

    def add(self, cell: str, form: Form, line: int) -> None:
        number, word = form.number(cell), cell.strip()
        if number is None:
            if word in self.words or len(self.words) < DISTINCT:
                self.words[word] += 1
        elif word.lower() in form.marks:
            self.missing[word] += 1
        else:
            self.numbers += 1
            if self.different is not None and number.is_integer():
                self.different.add(number)
            if number in CODES:
                self.codes[number] += 1
            elif np.isfinite(number):
                self.low, self.high = min(self.low, number), max(self.high, number)
        if (number is None or word.lower() in form.marks) and len(self.first) < DISTINCT:
            self.first.setdefault(word, line)

    @property
    def is_text(self) -> bool:
        words = sum(times for word, times in self.words.items() if word.lower() not in LIKELY_MISSING)
        return words > TEXT_SHARE * (words + self.numbers)

    @property
    def numbers_rows(self) -> bool:
        """Whether all cells are whole numbers and different, under a name for such ones."""
        alone = not self.words and not self.missing and self.numbers > 1
        return alone and self.different is not None and len(self.different) == self.numbers

    @property
    def is_numberlike(self) -> bool:
        """Whether most cells are numbers or hold some, such as "<5" and "120/80"."""
        words = {word: times for word, times in self.words.items() if word.lower() not in LIKELY_MISSING}
        like = sum(times for word, times in words.items() if NUMBERLIKE.match(word))
        return like > 0 and like + self.numbers > TEXT_SHARE * (sum(words.values()) + self.numbers)

    def doubtful_codes(self, elsewhere: Collection[float] = ()) -> list[tuple[float, int]]:
        """Codes that occur apart from all other numbers, or that stand for missing ones ``elsewhere``, with how often."""
        return [
            (c, n) for c, n in self.codes.items() if self._is_apart(c) or (c in elsewhere and not 0 <= self.low <= c <= self.high)
        ]

    def _is_apart(self, code: float) -> bool:
        """Whether a code has another sign, another size, or is farther from the others than they are from each other."""
        if (code < 0 <= self.low) or (code > 0 and 0 < 10 * self.high < code):
            return True
        return bool(max(self.low - code, code - self.high) > self.high - self.low > 0)


def examine(path: Path, agreed: Sequence[str] | None = None) -> Suggestion:
    """Look through a text table, of a large one the first 64 MB; ``agreed`` are the columns that are wanted."""
    if ending(path) not in ENDINGS:
        raise InputError(f"{path} is no text table; one is described for it by hand (docs/reference/descriptions.md)")
    with told_errors(path):
        found = find_form(path, Description())
        problems, notes, remarks = list(found.problems), list(found.notes), list[str]()
        layout = find_layout(path, found, Description(), problems)
        columns = _tally(path, found, layout)
        layout = _with_numbering(layout, columns, agreed or (), remarks)
    texts = [j for j, column in enumerate(columns) if column.is_text and not column.is_numberlike and j != layout.ids]
    said = _described(found, layout, columns, texts)
    if layout.header is not None:
        said = _matched(said, layout, agreed, texts, problems, notes, remarks)
    codes = {code for j, column in enumerate(columns) if j != layout.ids for code, _ in column.doubtful_codes()}
    for j, column in enumerate(columns):
        if j in texts:
            notes.append(Finding("it holds text, and is no feature", layout.skip or 1, j + 1, layout.name(j)))
        elif j != layout.ids:
            _judge(j, column, codes, found.form, layout, said.rename, problems, notes, remarks)
    return Suggestion(said, tuple(notes), tuple(problems[: 3 * SHOWN]), tuple(remarks))


def _tally(path: Path, found: Found, layout: Layout) -> list[_Column]:
    names = layout.header or [""] * layout.n_cells
    columns, size = [_Column(different=set() if may_number(name) else None) for name in names], 0
    encoding = "utf-8" if found.form.encoding.startswith("utf") else found.form.encoding
    for block in blocks(path, found.form.encoding):
        reader = csv.reader(io.StringIO(block.data.decode(encoding, "replace"), newline=""), delimiter=found.form.separator)
        for row in reader:
            line = block.line + reader.line_num
            if line > layout.skip and len(row) == layout.n_cells:
                for column, cell in zip(columns, row, strict=True):
                    column.add(cell, found.form, line)
        size += len(block.data)
        if size > AFTER:
            break
    return columns


def _with_numbering(layout: Layout, columns: list[_Column], agreed: Sequence[str], remarks: list[str]) -> Layout:
    """The layout with a column that numbers the rows as that of their names, if there is none yet."""
    found = [j for j, column in enumerate(columns) if column.numbers_rows and layout.name(j) not in agreed]
    if layout.ids is not None or not found or len(columns) < 2:
        return layout
    told = "its whole numbers are all different, and taken for the rows' names; if it is a feature, delete the line: id = "
    remarks.append(f"column {found[0] + 1} ({layout.name(found[0])!r}): {told}{json.dumps(layout.name(found[0]))}")
    return replace(layout, ids=found[0])


def _described(found: Found, layout: Layout, columns: list[_Column], texts: list[int]) -> Description:
    """What the form, the row names and the marks of missing numbers are."""
    asked = " ".join(problem.text for problem in found.problems)
    marks = sorted({word for j, column in enumerate(columns) if j not in texts and j != layout.ids
                    for word in column.words if word.lower() in LIKELY_MISSING})  # fmt: skip
    names = layout.header or ()
    words = (word for j, column in enumerate(columns) if j != layout.ids for word in column.words)
    grouped = any(GROUPED.fullmatch(word) or SPACED.fullmatch(word) for word in words)  # what is between them may be either
    return Description(
        encoding=found.form.encoding,
        separator=None if "separator = " in asked else found.form.separator,
        decimal=None if "decimal = " in asked or (found.form.decimal == "." and grouped) else found.form.decimal,
        missing=tuple(marks),
        id=None if layout.ids is None or not names or not names[layout.ids] else names[layout.ids],
        labels=tuple(names[j] for j in texts) if names else (),
    )


def _matched(
    said: Description, layout: Layout, agreed: Sequence[str] | None, texts: list[int], problems: list[Finding],
    notes: list[Finding], remarks: list[str],
) -> Description:  # fmt: skip
    """The description with the columns that are wanted, renamed where they are nearly there."""
    header = layout.header or ()
    own = [name for j, name in enumerate(header) if j != layout.ids]
    if agreed is None:
        return said
    rename = renamed(own, agreed)
    line = layout.skip
    for old, new in rename.items():
        told = (
            f"{new!r} is wanted and not there, and this is near: if it is the same, describe the file: [rename] {old} = {new!r}"
        )
        problems.append(Finding(told.replace("'", '"'), line, header.index(old) + 1, old))
    have = [rename.get(name, name) for name in own]
    for name in agreed:
        if name not in have:
            problems.append(Finding(f"the column {name!r} is wanted and not there, nor one whose name is near", line))
            remarks.append(f"the column {name!r} is wanted and not there: if it has another name, add it below [rename]")
    wanted = tuple(name for name in agreed if name in have)
    if [name for name in have if name in wanted] != list(wanted):
        notes.append(Finding("columns are in another order than agreed, and are matched by name", line))
    labels = tuple(rename.get(header[j], header[j]) for j in texts)
    return replace(said, rename=rename, columns=wanted, labels=tuple(name for name in labels if name not in wanted))


def renamed(own: Sequence[str], agreed: Sequence[str]) -> dict[str, str]:
    """Own name -> agreed name, of columns that are not agreed and near one that is missing.

    >>> renamed(["age", "trest_bps", "x"], ["trestbps", "age"])
    {'trest_bps': 'trestbps'}
    """
    lacking = [name for name in agreed if name not in own]
    extra = [name for name in own if name not in agreed]
    pairs = {old: near(old, lacking) for old in extra}
    times = Counter(new for new in pairs.values() if new is not None)
    return {old: new for old, new in pairs.items() if new is not None and times[new] == 1}


def _judge(
    j: int, column: _Column, codes: Collection[float], form: Form, layout: Layout, rename: Mapping[str, str],
    problems: list[Finding], notes: list[Finding], remarks: list[str],
) -> None:  # fmt: skip
    """Tell what is in a column that is a feature, or may be one; keys of a description have its agreed name."""
    name = layout.name(j)
    for word, times in column.missing.items():
        if word:
            notes.append(Finding(f"{times} cells are {word!r} and missing", column.first.get(word), j + 1, name))
    known = rename.get(name or "", name)
    place = f"column {j + 1}" if name is None else f"column {j + 1} ({name!r})"
    if column.is_text:
        word, times = next((w, n) for w, n in column.words.most_common() if NUMBERLIKE.match(w))
        told = f"{word!r} is not a number ({times} cells), nor are most others here; {advice(word, form)}"
        problems.append(Finding(told, column.first.get(word), j + 1, name))
        remarks.append(
            f"{place}: most cells hold numbers and more, such as {word!r}: correct the file; or leave the column out, "
            f"drop = [{json.dumps(known)}], or keep it as text, labels = [{json.dumps(known)}]"
        )
        return
    for word, times in column.words.items():
        told = f"{word!r} is not a number ({times} cells); {advice(word, form)}"
        problems.append(Finding(told, column.first.get(word), j + 1, name))
        if word.lower() not in LIKELY_MISSING:
            remarks.append(f"line {column.first.get(word)}, {place}: {word!r} is no number: correct the file")
    for code, times in column.doubtful_codes(codes):
        others = f", others are from {column.low:g} to {column.high:g}" if column.low <= column.high else " and nothing else"
        remarks.append(
            f"{place}: {code:g} occurs {times} times{others}; "
            f"if it stands for missing ones, add below [missing_in]: {json.dumps(known)} = [{code:g}]"
        )


def misnamed(headers: Mapping[Path, Sequence[str]]) -> list[str]:
    """Columns of files that are near those of most other files, with their places; files without a header are left out."""
    if len(headers) < 2:
        return []
    counts = Counter(name for header in headers.values() for name in header)
    usual = [name for name, times in counts.items() if times > len(headers) / 2]
    told = []
    for path, header in headers.items():
        for old, new in renamed(header, usual).items():
            text = f"other files have {new!r}, which this one has not: if it is the same, describe the file: "
            place = Finding(f'{text}[rename] {old} = "{new}"', 1, list(header).index(old) + 1, old)
            told.append(f"{path}, {place.told()}")
    return told


def header_of(path: Path, said: Description) -> Sequence[str] | None:
    """The names of a text table's columns, without that of row names; None if there are none or nothing can be told."""
    if ending(path) not in ENDINGS:
        return None
    try:
        with told_errors(path):
            layout = find_layout(path, find_form(path, said), said, [])
    except EigenpactError:  # it was told already
        return None
    names = [said.rename.get(name, name) for j, name in enumerate(layout.header or ()) if j != layout.ids]
    return names if layout.header is not None else None


def as_toml(said: Description, heads: Sequence[str] = ()) -> str:
    """A description as a TOML file, after lines of remarks.

    >>> print(as_toml(Description(separator=";", missing=("?", "-9"), rename={"a b": "c"}), ["seen"]), end="")
    # seen
    missing = ["?", "-9"]
    separator = ";"
    <BLANKLINE>
    [rename]
    "a b" = "c"
    """
    lines, tables = [f"# {_harmless(head)}" for head in heads], list[str]()
    for each in (each for each in fields(said) if each.name != "wanted"):
        value = getattr(said, each.name)
        if value is None or (not isinstance(value, bool | str) and not value and each.name != "columns"):
            continue
        if isinstance(value, Mapping):
            tables += ["", f"[{each.name}]", *(f"{_value(key)} = {_value(one)}" for key, one in value.items())]
        else:
            lines.append(f"{each.name} = {_value(value)}")
    return "\n".join([*lines, *tables]) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], float):
        return f"{{ unit = {_value(value[0])}, factor = {value[1]!r} }}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _harmless(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)
