"""Kinds of steps by which rows are prepared: what each does, and what it says of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .linalg import Array

Change = Callable[[Any, Mapping[str, Array]], Any]
"""From rows (n x d) and the step's arrays to changed rows (n x d)."""


@dataclass(frozen=True)
class Kind:
    """What steps of one kind do.

    Attributes
    ----------
    change : rows and arrays -> rows
    axes : mapping from the name of an array to its axes, such as "d" or "d c"; "" for a number
    sparse : bool
        Whether it takes scipy's sparse rows and gives sparse ones.
    tells : arrays -> text
        What steps of this kind did, in words, for reports.
    drops : arrays -> (d,) array, or None
        Which columns are zero in all rows afterwards; None where no column is taken out.
    fills : bool
        Whether no entry is missing (NaN) afterwards.
    there : bool
        Whether it changes rows of another array library where they lie.
    """

    change: Change
    axes: Mapping[str, str]
    sparse: bool
    tells: Callable[[Mapping[str, Array]], str]
    drops: Callable[[Mapping[str, Array]], Any] | None
    fills: bool = False
    there: bool = False


KINDS: dict[str, Kind] = {}


def kind(
    name: str,
    *,
    sparse: bool = False,
    tells: Callable[[Mapping[str, Array]], str] | None = None,
    drops: Callable[[Mapping[str, Array]], Any] | None = None,
    fills: bool = False,
    there: bool = False,
    **axes: str,
) -> Callable[[Change], Change]:
    """Mark a function as what steps of this kind do; see :class:`Kind`."""

    def register(change: Change) -> Change:
        KINDS[name] = Kind(change, axes, sparse, tells or (lambda _: name), drops, fills, there)
        return change

    return register
