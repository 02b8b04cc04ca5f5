"""Find out how a text table is written: its encoding, separator and decimal sign.

What can be known is taken and said; what could be read in two ways is a problem, never a guess.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import FileError
from .description import SEPARATORS, Description
from .findings import Finding
from .table import ending
from .text_bytes import UTF16, beginning, compression, count_lines, last_line_end

MISSING = frozenset({"", "na", "nan", "n/a", "#n/a", "null"})
"""Cells that are missing in every file, whatever their case: none of them could be a number, or a word for one."""

LINES = 200
"""Lines from which the separator is found out."""

COMMA_NUMBER = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")
DOT_NUMBER = re.compile(r"[+-]?\d*\.\d+(?:[eE][+-]?\d+)?")
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")
GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(?:(?:,\d{3}){2,}(?:\.\d*)?|,\d{3}\.\d*)")
BETWEEN = " '\u2019\u00a0\u202f"
SPACED = re.compile(rf"[+-]?[1-9]\d{{0,2}}(?:[{BETWEEN}]\d{{3}})+(?:[.,]\d*)?")
"""Numbers whose thousands are grouped: by commas, and by blanks or apostrophes."""
NUMBERLIKE = re.compile(r"\W*\d")
"""How a cell begins that holds a number and more, such as "<5" or "120/80"; a name such as "p1" begins with letters."""
UNDEFINED_IN_CP1252 = frozenset(b"\x81\x8d\x8f\x90\x9d")


@dataclass(frozen=True)
class Form:
    """How cells are written and told apart.

    ``marks`` are texts (small letters, no blanks around) that stand for a missing number in every column.
    """

    encoding: str = "utf-8"
    separator: str = ","
    decimal: str = "."
    marks: frozenset[str] = MISSING

    def number(self, cell: str, own: frozenset[str] = frozenset()) -> float | None:
        """The number in a cell, nan if it is missing (``own``: also by these marks), None if it is no number.

        >>> Form(decimal=",").number("1,5"), Form().number("1,5"), Form().number(" n/a ")
        (1.5, None, nan)
        """
        text = cell.strip().lower()
        if text in self.marks or text in own:
            return np.nan
        if "_" in text or (self.decimal == "," and "." in text):
            return None
        try:
            return float(text.replace(",", ".") if self.decimal == "," else text)
        except ValueError:
            return None

    def rows(self, text: str) -> Iterator[tuple[int, list[str]]]:
        """Lines of text as (number of its last line from 1, cells), without the empty ones."""
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=self.separator)
        return ((reader.line_num, row) for row in reader if row)


@dataclass(frozen=True)
class Found:
    """A file's form, the text of its first lines, what was found out, and what is wrong."""

    form: Form
    text: str
    notes: tuple[Finding, ...]
    problems: tuple[Finding, ...]


def find_form(path: Path, description: Description) -> Found:
    """Find out what the description does not say."""
    notes: list[Finding] = []
    problems: list[Finding] = []
    sample, complete = beginning(path)
    if not sample.strip():
        raise FileError(f"{path} is empty; give a table with at least one row")
    unfolds = compression(path)
    if unfolds and path.suffix.lower() not in (".gz", ".zst"):
        notes.append(Finding(f"it is compressed by {unfolds}, though its name does not say so"))
    encoding = description.encoding or _encoding(sample, complete, notes, problems)
    text = _text(path, sample, complete, encoding)
    separator = description.separator or _separator(path, text, description.decimal, notes, problems)
    form = Form(encoding, separator, ".", MISSING | {mark.strip().lower() for mark in description.missing})
    decimal = description.decimal or _decimal(form, text, notes, problems)
    form = Form(encoding, separator, decimal, form.marks)
    return Found(form, text, tuple(notes), tuple(problems))


def _text(path: Path, sample: bytes, complete: bool, encoding: str) -> str:
    """The sample's whole lines, without a byte-order mark."""
    try:
        text = sample.decode(encoding, errors="replace" if complete else "ignore")
    except (UnicodeError, LookupError) as error:
        raise FileError(f"{path} is not {encoding} text ({error}); say its encoding in its description") from error
    text = text.removeprefix("\ufeff")
    if complete:
        return text
    data = text.encode(errors="replace")
    return data[: last_line_end(data) or None].decode(errors="replace")


def _encoding(sample: bytes, complete: bool, notes: list[Finding], problems: list[Finding]) -> str:
    if sample.startswith(UTF16):
        notes.append(Finding("it is written in UTF-16"))
        return "utf-16"
    zeros = np.frombuffer(sample[:2000], dtype=np.uint8) == 0
    if zeros[::2].mean() + zeros[1::2].mean() > 0.5 and min(zeros[::2].mean(), zeros[1::2].mean()) < 0.1:
        guess = "utf-16-le" if zeros[1::2].mean() > zeros[::2].mean() else "utf-16-be"
        told = f'it looks like UTF-16 without its mark; save it as UTF-8, or describe it: encoding = "{guess}"'
        problems.append(Finding(told))
        return guess
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample, complete)
    except UnicodeDecodeError as error:
        problems.append(not_utf8(sample, error.start, ""))
        return likely_encoding(sample)
    return "utf-8"


def likely_encoding(data: bytes) -> str:
    """Which encoding of one byte a character these bytes may have: that of Windows, unless it lacks one of them."""
    return "latin-1" if UNDEFINED_IN_CP1252 & frozenset(data) else "cp1252"


def not_utf8(data: bytes, at: int, separator: str, lines_before: int = 0) -> Finding:
    """The problem that a byte is not UTF-8: where, and what it may be."""
    start = max(data.rfind(b"\n", 0, at), data.rfind(b"\r", 0, at)) + 1
    line = lines_before + count_lines(data[:start]) + 1
    head = data[start:at]
    signs = [separator.encode()] if separator else [max((s.encode() for s in SEPARATORS), key=head.count)]
    guess = likely_encoding(data)
    letter = data[at : at + 1].decode(guess)
    told = (
        f"byte 0x{data[at]:02x} is not UTF-8 (in {guess} it is {letter!r}); save the file as UTF-8, or describe it: "
        f'encoding = "{guess}"'
    )
    return Finding(told, line, head.count(signs[0]) + 1)


def _separator(path: Path, text: str, decimal: str | None, notes: list[Finding], problems: list[Finding]) -> str:
    usual = "\t" if ".tsv" in (ending(path) or "") else ","
    counts = {sign: _cells(sign, text) for sign in SEPARATORS}
    whole = [sign for sign, found in counts.items() if len(found) == 1 and max(found) > 1]
    if len(whole) > 1:  # a sign within the cells of another is none
        whole = [sign for sign in whole if not _mixed(sign, whole, text, decimal)] or whole
        whole = [usual] if usual in whole else whole
    if len(whole) > 1:
        told = " or ".join(f"a {SEPARATORS[sign]} ({counts[sign].most_common(1)[0][0]} columns)" for sign in whole)
        sign = usual if usual in whole else whole[0]
        problems.append(Finding(f'cells may be separated by {told}; say which one in its description: separator = ";"', 1))
        return sign
    if not whole:  # lines differ: most of them must agree on a sign
        most = {sign: found.most_common(1)[0] for sign, found in counts.items() if found}
        good = [sign for sign, (n, times) in most.items() if n > 1 and times > 0.6 * counts[sign].total()]
        whole = good if len(good) == 1 else [usual]
    if whole[0] != usual:
        notes.append(Finding(f"cells are separated by a {SEPARATORS[whole[0]]}", 1))
    return whole[0]


def _cells(sign: str, text: str) -> Counter[int]:
    """How many lines have how many cells."""
    found: Counter[int] = Counter()
    for _, (_, row) in zip(range(LINES), Form(separator=sign).rows(text), strict=False):
        found[len(row)] += 1
    return found


def _mixed(sign: str, signs: list[str], text: str, decimal: str | None) -> bool:
    """Whether cells hold another sign that could separate, and are no numbers."""
    others = [other for other in signs if other != sign]
    for _, (_, row) in zip(range(LINES), Form(separator=sign).rows(text), strict=False):
        for cell in row:
            number = decimal != "." and "," in others and COMMA_NUMBER.fullmatch(cell.strip())
            if not number and any(other in cell for other in others):
                return True
    return False


def two_readings(word: str) -> str:
    """What to do about a number with one sign that may be the decimal one or group thousands.

    >>> two_readings("1,234")[:29]
    'it may be 1.234 or 1234: if 1'
    """
    sign = "," if "," in word else "."
    part, whole = word.replace(",", "."), word.replace(sign, "")
    return (
        f'it may be {part} or {whole}: if {part}, describe the file: decimal = "{sign}"; if {whole}, save the file without signs '
        "that group thousands"
    )


def _decimal(form: Form, text: str, notes: list[Finding], problems: list[Finding]) -> str:
    """A comma where numbers have one that cannot group thousands; a point where none has a comma."""
    if form.separator == "," or not ("," in text or "." in text):
        return "."
    seen: dict[str, tuple[int, int, str]] = {}
    for line, row in form.rows(text):
        for j, cell in enumerate(row):
            sign, word = "," if "," in cell else "." if "." in cell else "", cell.strip()
            if sign and (COMMA_NUMBER if sign == "," else DOT_NUMBER).fullmatch(word):
                seen.setdefault(sign, (line, j + 1, word))
                if not THOUSANDS.fullmatch(word):
                    seen.setdefault(f"certain {sign}", (line, j + 1, word))
        if "certain ," in seen or "certain ." in seen:
            break
    sign = "," if "," in seen and "certain ." not in seen else "."
    doubtful = sign in seen and f"certain {sign}" not in seen and (sign == "," or form.separator == ";")
    if doubtful:
        line, column, word = seen[sign]
        whole = word.replace(sign, "")
        told = (
            f"{word!r} may be {word.replace(',', '.')} or {whole}; say which sign is the decimal one in its description "
            f"(decimal = {sign!r}), or save the file without signs that group thousands".replace("'", '"')
        )
        problems.append(Finding(told, line, column))
    elif sign == ",":
        line, column, word = seen["certain ,"]
        notes.append(Finding(f"numbers have a decimal comma, such as {word}", line, column))
    return sign
