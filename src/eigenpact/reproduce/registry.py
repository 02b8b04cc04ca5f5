"""What a reproduction is, and what it hands back: tables, remarks, a figure and all numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cell: TypeAlias = str | int | float | None

CURVE_ONLY = "The paper shows this as curves only, so there are no numbers of its to print."
SCALED_DOWN = "This is the small size: the paper's numbers belong to larger problems.  --size paper computes those."


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
    """The numbers that a paper prints, from ``paper.toml`` in its folder.

    >>> paper_numbers("faps")["table4"]["FAPS"]["rounds"]
    55
    """
    return _read(paper, "paper.toml")


def small_problems(paper: str) -> dict[str, Any]:
    """The problems of the small size, from ``small.toml`` in the paper's folder."""
    return _read(paper, "small.toml")


def _read(paper: str, file: str) -> dict[str, Any]:
    import tomllib  # both take as long to import as all else that names of tables and figures need
    from importlib import resources

    with resources.files(__package__).joinpath(paper, file).open("rb") as stream:
        return tomllib.load(stream)


def problem_of(paper: str, name: str, size: Size, *, instead: bool = False) -> dict[str, Any]:
    """A table's problem: the paper's, or with what the small size changes of it.

    ``instead`` says that the small problem is told in full, and nothing of the paper's entry is wanted beside it.
    """
    told: dict[str, Any] = paper_numbers(paper)[name]
    if size is Size.paper:
        return told
    changed: dict[str, Any] = small_problems(paper).get(name, {})
    return changed if instead else told | changed


def small_print(size: Size, *remarks: str, small: str = SCALED_DOWN) -> list[str]:
    """Remarks, and at the small size what is to be said of it."""
    return [*remarks, small] if size is Size.small else [*remarks]
