"""What a reproduction is, and what it hands back: tables, remarks, a figure and all numbers."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import resources
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cell: TypeAlias = str | int | float | None


class Size(StrEnum):
    """``paper``: the paper's own problem.  ``small``: one like it that takes seconds."""

    small = "small"
    paper = "paper"


@dataclass(frozen=True)
class Grid:
    """A table to print; None stands for a number that there is not."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True, eq=False)
class Reproduced:
    """A table or figure, computed again.

    Attributes
    ----------
    title : str
    grids : tables to print
    remarks : sentences to print below them
    figure : matplotlib Figure
    numbers : dict
        Everything that was measured, as JSON can hold it.
    """

    title: str
    grids: Sequence[Grid]
    remarks: Sequence[str]
    figure: Figure
    numbers: dict[str, Any]


def _silent(_: str) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Watch:
    """Whom to tell while it runs: ``on_round`` often, ``on_run`` once for every solver that is done."""

    on_round: Callable[[str], object] = field(default=_silent)
    on_run: Callable[[str], object] = field(default=_silent)


@dataclass(frozen=True)
class Reproduction:
    """One table or figure of a paper.

    ``name`` is what users write, ``what`` tells it in a line, and ``make(size, seed, watch, **chosen)`` computes it.
    ``options`` are what can be chosen besides, which few have: option -> values allowed, the first of them by default.
    """

    name: str
    what: str
    make: Callable[..., Reproduced]
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)


def paper_numbers(paper: str) -> dict[str, Any]:
    """The numbers that a paper prints, from the file ``<paper>.toml`` beside this one.

    >>> paper_numbers("faps")["table4"]["FAPS"]["rounds"]
    55
    """
    with resources.files(__package__).joinpath(f"{paper}.toml").open("rb") as stream:
        return tomllib.load(stream)
