"""What a site says of its file, once, in a TOML: which columns to use, how numbers and missing cells are written.

The TOML lies beside the file, by the file's name and ``.toml``: ``north.csv`` is described by ``north.csv.toml``.
"""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import FileError, InputError
from ..storage import read_regular
from .findings import did_you_mean

MOST_BYTES = 1 << 26
"""Of a description, the names of all columns among it."""

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
ENCODINGS = (
    "utf-8", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "iso-8859-1", "iso-8859-2", "iso-8859-15", "cp1250", "cp1251",
    "cp1252", "cp437", "cp850", "mac-roman", "ascii",
)  # fmt: skip


@dataclass(frozen=True)
class Description:
    """What is said of a file; whatever is left out is found out by the reader.

    Attributes
    ----------
    columns : tuple of str, or None
        Columns to use, in this order; None uses all that are not dropped.  In a file without a header: the names of all columns.
    drop : tuple of str
        Columns that are not used.
    rename : mapping of str to str
        Name in the file -> agreed name; every other key has the agreed names.
    id : str, or None
        The column that holds row names.
    units : mapping of str to (str, float)
        Column -> its unit and the factor by which its numbers are multiplied.
    missing : tuple of str
        Cells that stand for a missing number, in every column, in addition to the usual ones.  Numbers are among them.
    missing_in : mapping of str to tuple of str
        Column -> cells that stand for a missing number in it alone.
    decimal, separator, encoding : str, or None
    header : bool, or None
        Whether a text table begins with the names of its columns.
    categorical : tuple of str
        Columns of categories: they become texts.
    labels : tuple of str
        Columns of labels for plots: they become texts.
    weights : str, or None
        The column that says how often each row counts; it is no feature.
    dataset : str, or None
        Name of the table within a file that holds several (HDF5, zarr, npz).
    wanted : tuple of str, or None
        Not said in a file: the columns that are agreed on.  Where a file has all of them, others are not looked at.
    """

    columns: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    id: str | None = None
    units: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    missing_in: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    decimal: str | None = None
    separator: str | None = None
    encoding: str | None = None
    header: bool | None = None
    categorical: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    weights: str | None = None
    dataset: str | None = None
    wanted: tuple[str, ...] | None = None

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Description:
        """From a TOML file; what it says wrongly is told with the key."""
        file = Path(path)
        try:
            facts = tomllib.loads(read_regular(file, MOST_BYTES, follow=True).decode("utf-8-sig"))
        except FileError:
            raise
        except FileNotFoundError as error:
            raise FileError(f"{file} does not exist; eigenpact describe writes one") from error
        except OSError as error:
            raise FileError(f"{file} cannot be read: {error.strerror or error}; check the path") from error
        except (ValueError, RecursionError) as error:  # also a number of thousands of digits
            raise InputError(f"{file} is not a TOML file: {error}") from error
        try:
            return cls.of(facts)
        except InputError as error:
            raise InputError(f"{file}: {error}") from error

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Description:
        """From a dictionary as a TOML file gives it.

        >>> Description.of({"missing": ["?", -9], "units": {"weight": {"unit": "g", "factor": 0.001}}}).missing
        ('?', '-9')
        >>> Description.of({"colums": ["age"]})
        Traceback (most recent call last):
        eigenpact.errors.InputError: unknown key 'colums' (did you mean 'columns'?); known are columns, drop, ...
        """
        known = list(CHECKS)
        unknown = sorted(set(facts) - set(known))
        if unknown:
            raise InputError(f"unknown key {unknown[0]!r}{did_you_mean(unknown[0], known)}; known are {', '.join(known)}")
        said = cls(**{key: CHECKS[key](key, value) for key, value in facts.items()})
        agreed = list(said.rename.values())
        if len(set(agreed)) < len(agreed):
            raise InputError("rename gives two columns one name; give each its own")
        if said.separator is not None and said.separator == said.decimal:
            raise InputError(f"separator and decimal are both {said.decimal!r}; give two different signs")
        twice = {*said.categorical} & {*said.labels} or ({*said.drop} & {*(said.columns or ()), *said.categorical, *said.labels})
        if twice:
            raise InputError(f"column {min(twice)!r} is named in two of columns, drop, categorical and labels; name it in one")
        if said.weights is not None and said.weights in (*said.drop, *said.categorical, *said.labels, said.id):
            raise InputError(f"weights names {said.weights!r}, as do drop, categorical, labels or id; name it in one")
        return said

    def with_columns(self, id: str | None = None, drop: tuple[str, ...] = (), label: str | None = None) -> Description:
        """The same, and what else is said of columns: row names, columns that are not used, a column of labels.

        >>> Description(drop=("town",)).with_columns("nr", ("date",), "hospital")
        Description(columns=None, drop=('town', 'date'), ..., id='nr', ..., labels=('hospital',), ...)
        """
        labels = self.labels if label is None else tuple(dict.fromkeys((*self.labels, label)))
        twice = {*drop} & {*self.categorical, *labels, *(name for name in (id, self.weights) if name is not None)}
        if twice:
            raise InputError(f"column {min(twice)!r} is to be dropped, and to be used for something else; say one of the two")
        used = self.columns if self.columns is None else tuple(name for name in self.columns if name not in drop)
        all_dropped = tuple(dict.fromkeys((*self.drop, *drop)))
        return replace(self, columns=used, drop=all_dropped, id=self.id if id is None else id, labels=labels)

    def narrowed(self, names: Sequence[str]) -> Description:
        """The same for a file whose columns have these agreed names: without those that nobody wants.

        >>> Description(wanted=("bmi", "age"), weights="w").narrowed(["nr", "age", "w", "bmi", "town"]).columns
        ('age', 'w', 'bmi')
        >>> Description(wanted=("bmi", "age")).narrowed(["nr", "age"]).columns is None
        True
        """
        if self.wanted is None or self.columns is not None or not {*self.wanted} <= {*names}:
            return self
        texts = {*self.categorical, *self.labels, *self.drop}
        used = {*self.wanted, self.weights} - texts
        return replace(self, columns=tuple(name for name in names if name in used), wanted=None)

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing."""
        return self == Description()


def description_of(path: Path) -> tuple[Description, Path | None]:
    """What is said of a file in the TOML beside it, and where; nothing is, if there is none."""
    beside = path.with_name(f"{path.name}.toml")
    return (Description.read(beside), beside) if beside.exists() else (Description(), None)


def _word(key: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InputError(f"{key} = {value!r} must be a text")
    return value


def _words(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise InputError(f'{key} = {_short(value)} must be a list of texts, such as {key} = ["age", "bmi"]')
    if len(set(value)) < len(value):
        twice = next(word for word in value if value.count(word) > 1)
        raise InputError(f"{key} names {twice!r} twice; name it once")
    return tuple(value)


def _marks(key: str, value: Any) -> tuple[str, ...]:
    good = isinstance(value, list) and all(isinstance(mark, str | int | float) and not isinstance(mark, bool) for mark in value)
    if not good:
        raise InputError(f'{key} = {_short(value)} must be a list of texts and numbers, such as ["?", -9]')
    return tuple(mark if isinstance(mark, str) else repr(mark) for mark in value)


def _table(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{key} = {_short(value)} must be a table with a line for each column, below [{key}]")
    return value


def _names(key: str, value: Any) -> dict[str, str]:
    return {name: _word(f"{key}: {name}", other) for name, other in _table(key, value).items()}


def _units(key: str, value: Any) -> dict[str, tuple[str, float]]:
    found = {}
    for name, unit in _table(key, value).items():
        facts = {"unit": unit} if isinstance(unit, str) else unit
        if not isinstance(facts, dict) or not {"unit"} <= set(facts) <= {"unit", "factor"}:
            raise InputError(f'{key}: {name} = {_short(unit)} must be a unit, such as "kg" or {{ unit = "kg", factor = 0.001 }}')
        factor = facts.get("factor", 1.0)
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not (math.isfinite(factor) and factor):
            raise InputError(f"{key}: {name} has factor {_short(factor)}; it must be a number other than zero")
        found[name] = _word(f"{key}: {name}: unit", facts["unit"]), float(factor)
    return found


def _one_of(*allowed: str) -> Callable[[str, Any], str]:
    def check(key: str, value: Any) -> str:
        word = {told: sign for sign, told in SEPARATORS.items()}.get(value, value) if isinstance(value, str) else ""
        word = word.lower().replace("_", "-") if key == "encoding" else word
        if word not in allowed:
            raise InputError(f"{key} = {_short(value)} is not allowed; allowed are {', '.join(map(repr, allowed))}")
        return word

    return check


def _yes_or_no(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{key} = {_short(value)} must be true or false")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:50]}..."


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "columns": _words,
    "drop": _words,
    "rename": _names,
    "id": _word,
    "units": _units,
    "missing": _marks,
    "missing_in": lambda key, value: {name: _marks(f"{key}: {name}", marks) for name, marks in _table(key, value).items()},
    "decimal": _one_of(".", ","),
    "separator": _one_of(*SEPARATORS),
    "encoding": _one_of(*ENCODINGS),
    "header": _yes_or_no,
    "categorical": _words,
    "labels": _words,
    "weights": _word,
    "dataset": _word,
}
"""Key of a description -> what checks its value."""
