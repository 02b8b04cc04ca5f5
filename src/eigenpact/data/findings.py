"""What is found in a file: problems, each with its place, and what is taken for granted and said."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import ProblemsError

SHOWN = 12
"""Problems of a file that are listed."""


@dataclass(frozen=True)
class Finding:
    """A line (from 1), a cell in it (from 1) with its column's name, and what is there; None where it is not known."""

    text: str
    line: int | None = None
    column: int | None = None
    name: str | None = None

    def told(self) -> str:
        """Place and text.

        >>> Finding("'x' is not a number", 3, 2, "age").told()
        "line 3, column 2 ('age'): 'x' is not a number"
        """
        label = "" if self.name is None else f" ({self.name!r})"
        places = [f"line {self.line}"] if self.line is not None else []
        places += [f"column {self.column}{label}"] if self.column is not None else []
        return f"{', '.join(places)}: {self.text}" if places else self.text

    def told_of(self, path: Path) -> str:
        """File, place and text."""
        return f"{path}{', ' if self.line else ': '}{self.told()}"


def raise_problems(path: Path, problems: Sequence[Finding], notes: Sequence[Finding] = ()) -> None:
    """Raise one error that tells all problems of a file, if there are any, and then what was found out."""
    if not problems:
        return
    lines = [problem.told_of(path) for problem in problems[:SHOWN]]
    if len(problems) > SHOWN:
        lines.append(f"{path}: no more than {SHOWN} problems are listed")
    raise ProblemsError(lines, [f"{note.told_of(path)} (this is understood)" for note in notes])


def near(word: str, words: Iterable[str]) -> str | None:
    """The one of ``words`` that a person may have meant: the same letters and digits, or almost; None if none or two are.

    >>> near("trest_bps", ["trestbps", "age"]), near("Age", ["age"]), near("weight", ["height", "age"]), near("x", ["y"])
    ('trestbps', 'age', None, None)
    """
    plain = {other: _plain(other) for other in words}
    same = [other for other, letters in plain.items() if letters == _plain(word)]
    if not same and len(_plain(word)) > 2:
        same = [other for other, letters in plain.items() if difflib.SequenceMatcher(None, letters, _plain(word)).ratio() > 0.85]
    return same[0] if len(same) == 1 else None


def _plain(word: str) -> str:
    return "".join(letter for letter in word.casefold() if letter.isalnum())


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """A hint for an error, empty if nothing is near."""
    found = near(word, list(words))
    return f" (did you mean {found!r}?)" if found else ""
