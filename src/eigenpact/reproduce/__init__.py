"""Tables and figures of the papers, computed again and printed beside the papers' own numbers.

One module per paper with a function for each table or figure and a list ``REPRODUCTIONS``; beside it a .toml file with the
numbers that the paper prints.  A new paper is added to ``PAPERS``.

>>> find("faps-table4").what
'uneven sites: rounds, KKT and errors of SSI, LocalPower and FAPS'
"""

from __future__ import annotations

from ..errors import InputError
from . import faps, kernel, oneshot, personalized, personalized_data, robust
from .registry import Grid, Reproduced, Reproduction, Size, Watch, paper_numbers

PAPERS = (faps, kernel, oneshot, personalized, personalized_data, robust)

REPRODUCTIONS: dict[str, Reproduction] = {
    reproduction.name: reproduction for paper in PAPERS for reproduction in paper.REPRODUCTIONS
}
"""Name -> Reproduction."""


def find(name: str) -> Reproduction:
    """The reproduction of this name."""
    if name not in REPRODUCTIONS:
        raise InputError(f"unknown table or figure {name!r}; choose one of {', '.join(REPRODUCTIONS)}")
    return REPRODUCTIONS[name]


def chosen(reproduction: Reproduction, **asked: str | None) -> dict[str, str]:
    """The options that were asked for (not None), if the reproduction has them and knows their values.

    >>> chosen(find("oneshot-fig1"), distribution="uniform"), chosen(find("faps-table4"), distribution=None)
    ({'distribution': 'uniform'}, {})
    """
    given = {option: value for option, value in asked.items() if value is not None}
    for option, value in given.items():
        if option not in reproduction.options:
            able = [other.name for other in REPRODUCTIONS.values() if option in other.options]
            raise InputError(f"{reproduction.name} has no --{option}; leave it out, or choose {' or '.join(able)}, which has one")
        if value not in reproduction.options[option]:
            allowed = ", ".join(reproduction.options[option])
            raise InputError(f"--{option} {value!r} is not known to {reproduction.name}; choose one of {allowed}")
    return given


__all__ = ["PAPERS", "REPRODUCTIONS", "Grid", "Reproduced", "Reproduction", "Size", "Watch", "chosen", "find", "paper_numbers"]
