"""What each of many sites told, in memory that hardly grows with their number: numbers in columns, arrays in a temporary file.

A number takes 9 bytes of memory a site.  An array of doubles, as the mean that a site told, is written to a file and read back,
bit by bit, when that site's next reply is looked at: nothing of a check is lost.  The file has no name (where the system allows
it), lies where temporary copies do (``storage.spool_folder``), and is closed, and so deleted, as soon as no array is in it, which
is at the end of set-up, and when a run ends in whatever way.  What is written there is encrypted with a key that is in this
process's memory only: sites told it to a coordinator, not to whoever reads its disk later.
"""

from __future__ import annotations

import hashlib
import secrets
import tempfile
from array import array
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from ..errors import FileError
from ..numerics.linalg import Array
from ..storage import spool_folder

NUMBER = "number"
"""The form of a Python float; that of an array is its shape."""

Form = str | tuple[int, ...]

IN_MEMORY: tuple[Form, ...] = (NUMBER, ())
"""Forms of what is a single number."""


class HiddenArrays:
    """Arrays of doubles in a temporary file, encrypted; each part of the file is written once.

    >>> hidden = HiddenArrays()
    >>> at = hidden.add(np.arange(3.0))
    >>> hidden.read(at, (3,)).tolist()
    [0.0, 1.0, 2.0]
    >>> hidden.close()
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._end = self._place = 0  # of the file; and where in it we are
        try:
            self._file = tempfile.TemporaryFile(dir=spool_folder())  # noqa: SIM115 - closed by :meth:`close`
        except OSError as error:
            raise _told(error) from error

    def add(self, a: Array) -> int:
        """Write an array to the end of the file; where it begins."""
        at = self._end
        self._end += a.nbytes  # also where writing fails: what encrypts a place is used once
        hidden = a.view(np.uint64) ^ self._stream(a, at)
        try:
            self._go_to(at)
            self._file.write(hidden.data)
        except OSError as error:
            raise _told(error) from error
        self._place = self._end
        return at

    def read(self, at: int, shape: tuple[int, ...]) -> Array:
        """The array of this shape that was written here; it cannot be changed."""
        found = np.empty(shape)
        words = found.view(np.uint64)
        try:
            self._go_to(at)
            got = self._file.readinto(words.data)
        except OSError as error:  # also of what was still to be written
            raise _told(error) from error
        if got != found.nbytes:
            raise FileError("the temporary copy of what sites told ends early; was the disk full?")
        self._place = at + got
        words ^= self._stream(found, at)
        found.flags.writeable = False
        return found

    def close(self) -> None:
        """Delete the file, and forget the key; what is still to be written, perhaps to a full disk, is wanted no more."""
        self._key = b""
        with suppress(OSError):
            self._file.close()

    def _go_to(self, at: int) -> None:
        if self._place != at:
            self._file.seek(at)
        self._place = -1  # not known until what follows is done

    def _stream(self, a: Array, at: int) -> np.ndarray[Any, Any]:
        """What the key gives for this place, of an array's shape: exclusive or with it encrypts words, and decrypts them."""
        stream = hashlib.shake_128(self._key + at.to_bytes(8, "little")).digest(a.nbytes)
        return np.frombuffer(stream, dtype=np.uint64).reshape(a.shape)


def _told(error: OSError) -> FileError:
    return FileError(
        f"what sites told during set-up is kept in {spool_folder()} where sites are many, and {error.strerror or error}; "
        "set TMPDIR to a folder on a larger disk"
    )


class _Column:
    """One number for each site: itself, or where the site's array begins in the file."""

    __slots__ = ("count", "there", "values")

    def __init__(self, sites: int, form: Form) -> None:
        self.values: Any = array("d" if form in IN_MEMORY else "q", bytes(8 * sites))
        self.there = bytearray(sites)
        self.count = 0


class Facts:
    """What each of so many sites told: by their places in the roster, facts by name.

    What is neither a Python float nor an array of doubles is kept as it is.

    >>> facts = Facts(2)
    >>> facts.note(1, {"n": 3.0, "mean": np.ones(2)})
    >>> facts.of(0), facts.of(1), facts.on_disk
    ({}, {'n': 3.0, 'mean': array([1., 1.])}, True)
    >>> facts.note(1, {"n": 3.0})
    >>> facts.of(1), facts.on_disk
    ({'n': 3.0}, False)
    """

    def __init__(self, sites: int) -> None:
        self._sites = sites
        self._columns: dict[tuple[str, Form], _Column] = {}
        self._others: dict[int, dict[str, Any]] = {}
        self._arrays: HiddenArrays | None = None
        self._read: tuple[int, dict[str, Any]] = -1, {}  # whose facts were read last, and they

    @property
    def on_disk(self) -> bool:
        """Whether there is a file now."""
        return self._arrays is not None

    def of(self, i: int) -> dict[str, Any]:
        """What is known of a site; to change it, :meth:`note` the changed dictionary."""
        found: dict[str, Any] = {}
        for (name, form), column in self._columns.items():
            if column.there[i]:
                found[name] = self._value(form, column.values[i])
        if i in self._others:
            found |= self._others[i]
        self._read = i, found.copy()
        return found

    def _value(self, form: Form, value: Any) -> Any:
        if form == NUMBER:
            return value
        if form == ():
            return np.array(value)
        assert self._arrays is not None and not isinstance(form, str)  # noqa: PT018 - for mypy
        return self._arrays.read(value, form)

    def note(self, i: int, facts: dict[str, Any]) -> None:
        """From now on this, and nothing else, is known of a site."""
        whose, before = self._read
        if whose != i:
            before = {}
        elif len(before) == len(facts) and all(before.get(name) is value for name, value in facts.items()):
            return
        self._read = -1, {}
        forms = {name: _form(value) for name, value in facts.items()}
        for name, form in forms.items():
            if form is not None and before.get(name) is not facts[name]:
                self._put(i, name, form, facts[name])
        self._forget(i, forms)
        others = {name: facts[name] for name, form in forms.items() if form is None}
        if others:
            self._others[i] = others
        else:
            self._others.pop(i, None)

    def _put(self, i: int, name: str, form: Form, value: Any) -> None:
        column = self._columns.get((name, form))
        if column is None:
            column = self._columns[name, form] = _Column(self._sites, form)
        if form in IN_MEMORY:
            column.values[i] = float(value)
        else:
            self._arrays = self._arrays or HiddenArrays()
            column.values[i] = self._arrays.add(value)
        column.count += not column.there[i]
        column.there[i] = 1

    def _forget(self, i: int, forms: Mapping[str, Form | None]) -> None:
        """Forget of a site what has no name, or another form, now; and the file once nothing in it is known any more."""
        for (name, form), column in list(self._columns.items()):
            if column.there[i] and forms.get(name) != form:
                column.there[i] = 0
                column.count -= 1
                if not column.count:
                    del self._columns[name, form]
        if self._arrays is not None and all(form in IN_MEMORY for _, form in self._columns):
            self.close()

    def numbers(self, i: int) -> dict[str, float]:
        """Of what is known of a site the single numbers."""
        columns = {name: column for (name, form), column in self._columns.items() if form == NUMBER and column.there[i]}
        others = {name: value for name, value in self._others.get(i, {}).items() if isinstance(value, float)}
        return {name: column.values[i] for name, column in columns.items()} | others

    def close(self) -> None:
        """Delete the file, if there is one; arrays that are in it are not known any more."""
        if self._arrays is not None:
            self._columns = {key: column for key, column in self._columns.items() if key[1] in IN_MEMORY}
            self._arrays.close()
            self._arrays = None


def _form(value: Any) -> Form | None:
    """Of what can be put into a column or the file; None of other things."""
    if type(value) is float:
        return NUMBER
    plain = type(value) is np.ndarray and value.dtype == np.float64 and value.flags.c_contiguous
    return value.shape if plain else None
