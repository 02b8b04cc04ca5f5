"""Tables and figures of the papers, computed again and printed beside the papers' own numbers.

One module per paper with a function for each table or figure and a list ``REPRODUCTIONS``; beside it a .toml file with the
numbers that the paper prints.  A new paper is added to ``PAPERS``.

>>> find("faps-table4").what
'uneven sites: rounds, KKT and errors of SSI, LocalPower and FAPS'
"""

from __future__ import annotations

from ..errors import InputError
from . import faps, kernel
from .registry import Grid, Reproduced, Reproduction, Size, Watch, paper_numbers

PAPERS = (faps, kernel)

REPRODUCTIONS: dict[str, Reproduction] = {
    reproduction.name: reproduction for paper in PAPERS for reproduction in paper.REPRODUCTIONS
}
"""Name -> Reproduction."""


def find(name: str) -> Reproduction:
    """The reproduction of this name."""
    if name not in REPRODUCTIONS:
        raise InputError(f"unknown table or figure {name!r}; choose one of {', '.join(REPRODUCTIONS)}")
    return REPRODUCTIONS[name]


__all__ = ["PAPERS", "REPRODUCTIONS", "Grid", "Reproduced", "Reproduction", "Size", "Watch", "find", "paper_numbers"]
