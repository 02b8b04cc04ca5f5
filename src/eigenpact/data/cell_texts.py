"""Cells that are read as text: numbers as short as they can be written, and categories without marks of missing ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any, overload

import numpy as np

from .description import Description
from .layout import numbers_among
from .text_form import MISSING, Form

LARGEST_WHOLE = 1 << 53
"""Up to it, every whole number is a float64."""


def number_text(value: Any, kind: np.dtype[Any]) -> str:
    """A number as text, the same from every kind of file: whole ones have no point, others are as short as their type allows.

    >>> number_text(1.0, np.dtype(np.float64)), number_text(float(np.float32(0.1)), np.dtype(np.float32))
    ('1', '0.1')
    """
    if value is None or value != value:
        return ""
    if isinstance(value, int) or (abs(value) <= LARGEST_WHOLE and value == int(value)):
        return str(int(value))
    return str(value) if isinstance(value, Decimal) or kind.kind != "f" else str(kind.type(value))


def without_marks(texts: Sequence[str], name: str, description: Description) -> Sequence[str]:
    """A column of categories whose cells that stand for missing ones are empty; number codes are compared as numbers.

    >>> without_marks(("f", "NA", "?", "9.0"), "sex", Description.of({"missing": ["?"], "missing_in": {"sex": [9]}}))
    ('f', '', '', '')
    """
    marks = (*description.missing, *description.missing_in.get(name, ()))
    codes = frozenset(numbers_among(marks))
    form = Form(decimal=description.decimal or ".", marks=MISSING | {mark.strip().lower() for mark in marks})

    def is_mark(cell: str) -> bool:
        number = form.number(cell)
        return number is not None and (bool(np.isnan(number)) or number in codes)

    if not isinstance(texts, tuple):
        return _WithoutMarks(texts, is_mark)
    blank = {cell for cell in set(texts) if is_mark(cell)}
    return tuple("" if cell in blank else cell for cell in texts)


class _WithoutMarks(Sequence[str]):
    """Texts that are read a few at a time, some of them empty."""

    def __init__(self, texts: Sequence[str], is_mark: Callable[[str], bool]) -> None:
        self._texts, self._is_mark = texts, is_mark

    def __len__(self) -> int:
        return len(self._texts)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        cell = self._texts[index]
        return "" if self._is_mark(cell) else cell

    def __iter__(self) -> Iterator[str]:
        return ("" if self._is_mark(cell) else cell for cell in self._texts)
