"""Which columns of a table are features, row names and texts: by the file's header and by its description."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .description import Description
from .findings import Finding, did_you_mean

LIKELY_MISSING = (
    "?",
    ".",
    "-",
    "--",
    "none",
    "missing",
    "unknown",
    "n.a.",
    "nd",
    "*",
    "#value!",
    "#div/0!",
    "nil",
    "\\n",
    "k.a.",
)
"""Cells that often stand for a missing number, but may mean something else; small letters."""

DATE = re.compile(
    r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{4}[-/](?:0?[1-9]|1[0-2])"
    r"|\d{1,2}[-/.]\d{1,2}[-/.](?:\d\d|\d{4})|\d{1,2}[ .-]+[A-Za-z]{3,9}[ .-]+\d{4}"
    r"|[A-Za-z]{3,9} \d{1,2},? \d{4})(?:[ T]\d{1,2}:\d\d.*)?"
)
"""A day, perhaps with a time, or a month, as people and programs write it."""

ID_HEADERS = frozenset({"", "id", "sample", "index", "row"})


@dataclass(frozen=True)
class Layout:
    """Where what is in a table.

    Attributes
    ----------
    n_cells : int
        Columns of the file.
    header : tuple of str (length n_cells), or None
        The file's own names of columns.
    features : tuple of int
        Columns that are features, in their order.
    names : tuple of str (as many), or None
    ids : int or None
        The column of row names.
    known_ids : bool
        Whether somebody said that it holds names; otherwise every one must look like text.
    texts : dict of str to int
    skip : int
        Lines before the data.
    description : Description
    """

    n_cells: int
    header: tuple[str, ...] | None
    features: tuple[int, ...]
    names: tuple[str, ...] | None
    ids: int | None = None
    known_ids: bool = False
    texts: dict[str, int] = field(default_factory=dict)
    skip: int = 0
    description: Description = field(default_factory=Description)

    def name(self, column: int) -> str | None:
        """The file's own name of a column."""
        return None if self.header is None else self.header[column]

    @cached_property
    def marks(self) -> dict[int, frozenset[str]]:
        """Column -> texts that stand for missing numbers in it alone."""
        own = self.description.missing_in
        at = dict(zip(self.names or (), self.features, strict=self.names is not None))
        return {at[name]: frozenset(mark.strip().lower() for mark in marks) for name, marks in own.items() if name in at}

    def finish(self, X: NDArray[np.float64], *types: DTypeLike) -> NDArray[np.float64]:
        """Numbers that stand for missing ones become nan, and units are changed; X (n x d) is changed in place.

        ``types`` are what the file has for each column, or for all of them: -99.9 is another number in float32.
        """
        said = self.description
        kinds = [np.dtype(kind) for kind in types or (np.float64,)]
        for kind in dict.fromkeys(kinds) if said.missing else ():
            of_kind = np.array([each == kind for each in kinds])
            for code in numbers_among(said.missing, kind):
                X[np.equal(X, code) & of_kind] = np.nan
        for j, name in enumerate(self.names or ()):
            for code in numbers_among(said.missing_in.get(name, ()), kinds[j % len(kinds)]):
                X[X[:, j] == code, j] = np.nan
            factor = said.units[name][1] if name in said.units else 1.0
            if factor != 1.0:
                X[:, j] *= factor
        return X


def numbers_among(marks: Sequence[str], kind: np.dtype[Any] | None = None) -> list[float]:
    """The marks that are numbers, as a column of some type has them; none that it cannot have, for it is too large or small.

    >>> numbers_among(["?", "0.1", "1e9"], np.dtype(np.float16))
    [0.0999755859375]
    """
    found = []
    for mark in marks:
        try:
            number = float(mark)
        except ValueError:
            continue
        with np.errstate(over="ignore", under="ignore"):
            own = number if kind is None or kind.kind != "f" else float(kind.type(number))
        if np.isfinite(own) == np.isfinite(number) and (own == 0) == (number == 0):
            found.append(own)
    return found


def arrange(
    header: Sequence[str], description: Description, ids: int | None, known_ids: bool, problems: list[Finding], **more: Any
) -> Layout:
    """The layout of a table whose columns have names; ``ids`` is the column that looks like one of row names."""
    own = tuple(header)
    agreed = [description.rename.get(name, name) for name in own]
    description = description.narrowed(agreed)
    where = {name: j for j, name in enumerate(agreed)}
    _check_names(own, agreed, description, problems, more.get("line", 1))
    more.pop("line", None)
    text_names = dict.fromkeys((*description.categorical, *description.labels))
    if description.id is not None:
        ids, known_ids = where.get(description.id), True
    elif ids is not None and (agreed[ids] in text_names or agreed[ids] in (*description.drop, *(description.columns or ()))):
        ids, known_ids = None, False
    texts = {name: where[name] for name in text_names if name in where}
    left_out = {*text_names, *description.drop}
    if description.columns is not None:
        features = tuple(where[name] for name in description.columns if name in where and name not in texts)
    else:
        features = tuple(j for j, name in enumerate(agreed) if j != ids and name not in left_out)
    names = tuple(agreed[j] for j in features)
    asked = {*agreed} if description.columns is None else {*left_out, *description.columns, description.id}
    repeated = [name for name, times in Counter(agreed).items() if times > 1 and name in asked]
    if repeated:
        told = f"repeated column names {repeated[:5]}; rename the columns apart"
        problems.append(Finding(f"{told} in the file, or name others to use in its description: columns = [...]"))
    return Layout(len(own), own, features, names, ids, known_ids, texts, description=description, **more)


def _check_names(own: Sequence[str], agreed: Sequence[str], said: Description, problems: list[Finding], line: int | None) -> None:
    """Every column that a description names must be there."""
    for name in said.rename:
        if name not in own:
            problems.append(Finding(f"rename names {name!r}, which is no column of the file{did_you_mean(name, own)}", line))
    keys: dict[str, Sequence[str]] = {
        "columns": said.columns or (),
        "drop": said.drop,
        "id": () if said.id is None else (said.id,),
        "units": tuple(said.units),
        "missing_in": tuple(said.missing_in),
        "categorical": said.categorical,
        "labels": said.labels,
    }
    for key, names in keys.items():
        for name in names:
            if name not in agreed:
                hint = did_you_mean(name, agreed)
                what = "labels (or --by)" if key == "labels" else key
                told = f"{what} names {name!r}, which is no column{hint}; columns are {_few(agreed)}"
                problems.append(Finding(told, line))


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def read_layout(
    lines: list[tuple[int, list[str]]],
    number: Callable[[str], float | None],
    separator: str,
    description: Description,
    problems: list[Finding],
) -> Layout:
    """The layout of a text table by its first two lines, (line, cells) each."""
    line, first = lines[0]
    if not (_is_header(first, number) if description.header is None else description.header):
        second = lines[1][1] if len(lines) > 1 else first
        if description.header is None and _counts_up(first) and not _counts_up(second):
            told = f"{', '.join(first[:3])}, ... may be names of columns or a row of numbers; say in its description"
            problems.append(Finding(f"{told} header = true or header = false", line))
        return _without_header(line, first, description, problems)
    names = [cell.strip() for cell in first]
    if len(lines) < 2:
        problems.append(Finding("a header and no rows; give at least one row of numbers", line))
        return arrange(names, description, None, False, problems, skip=line, line=line)
    head = names[0]
    hint = "if the first column holds row ids, begin the file with a header line whose first cell is 'id'"
    if description.header is None and _is_doubtful(first, number):
        told = f"{first[:4]!r} is neither a row of numbers nor a header with distinct names; {hint}, or say header = true"
        problems.append(Finding(f"{told} in its description", line))
    known = head.lower() in ID_HEADERS
    has_ids = known or (number(lines[1][1][0]) is None and not _is_broken_number(lines[1][1][0]))
    before = len(problems)
    layout = arrange(names, description, 0 if has_ids else None, known, problems, skip=line, line=line)
    if DATE.fullmatch(lines[1][1][0].strip()) and ((layout.ids == 0 and not layout.known_ids) or 0 in layout.features):
        told = f"{lines[1][1][0].strip()!r} is a date, no number, and hardly names the row; say --drop {head}, or --id {head}"
        problems.append(
            Finding(f'{told} if it names the row (in a description: drop = ["{head}"] or id = "{head}")', line + 1, 1, head)
        )
    if not layout.features and len(problems) == before:
        problems.append(Finding(f"no column is left as a feature; is the separator really {separator!r}?", line))
    return layout


def _without_header(line: int, first: list[str], said: Description, problems: list[Finding]) -> Layout:
    n = len(first)
    if said.columns is not None and len(said.columns) == n:
        return arrange(said.columns, said, None, False, problems, line=line)
    named = [key for key in ("columns", "drop", "rename", "id", "units", "missing_in", "categorical", "labels")
             if getattr(said, key)]  # fmt: skip
    if named:
        told = f"it has no header, so that its {n} columns have no names; name all of them in its description: columns = [...]"
        problems.append(Finding(told, line))
    return Layout(n, None, tuple(range(n)), None, description=said)


def _is_header(first: list[str], number: Callable[[str], float | None]) -> bool:
    """A row with a cell that is no number, or the ',0,1,2' that pandas writes above unnamed columns."""
    if any(number(cell) is None for cell in first):
        return True
    return not first[0].strip() and [cell.strip() for cell in first[1:]] == [str(j) for j in range(len(first) - 1)] != []


def _counts_up(cells: list[str]) -> bool:
    """Whether cells are whole numbers of which each is the one before and one more: perhaps the names of unnamed columns.

    >>> _counts_up(["0", "1", "2"]), _counts_up(["2019", "2020", "2021"]), _counts_up(["61", "130", "220"])
    (True, True, False)
    """
    words = [cell.strip() for cell in cells]
    if len(words) < 3 or not all(word.isdecimal() and len(word) < 10 for word in words):
        return False
    return all(int(word) == int(words[0]) + j for j, word in enumerate(words))


def _is_broken_number(cell: str) -> bool:
    """Whether a cell is no number, but hardly a name either: it has a sign too much, or is a mark of missing numbers."""
    return cell.strip().lower() in LIKELY_MISSING or not re.search(r"[^\d.,+\-<>=~/ '\u2019\u00a0\u202f]", cell.strip())


def _is_doubtful(first: list[str], number: Callable[[str], float | None]) -> bool:
    """Whether a header may be a row: it has a mark of missing numbers, or numbers that are not whole, or not distinct."""
    numbers = [cell.strip() for cell in first if np.isfinite(number(cell) or np.nan) or number(cell) == 0]
    odd = [cell for cell in numbers if not cell.isdecimal()]
    return bool(odd) or len(set(numbers)) < len(numbers) or any(cell.strip() in LIKELY_MISSING for cell in first)
