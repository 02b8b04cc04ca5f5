"""Where commands write: results to standard output, progress and errors to standard error.

Names and reasons come from files and from other parties.  Nothing in them is markup, and nothing in them steers a terminal.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

from ..errors import ProblemsError
from .wording import in_options

if TYPE_CHECKING:
    from rich.console import Console

FILE_WIDTH = 120
"""Width of tables when the output is not a terminal."""


def stdout() -> Console:
    """For results."""
    from rich.console import Console

    return Console(width=_width(sys.stdout), markup=False, emoji=False)


def stderr() -> Console:
    """For progress, warnings and errors."""
    from rich.console import Console

    return Console(stderr=True, width=_width(sys.stderr), markup=False, emoji=False)


def print_error(error: Exception) -> None:
    """Print "error: ..." in red, on one line; several problems on a line each."""
    if isinstance(error, ProblemsError):
        lines = [*(f"error: {problem}" for problem in error.problems), *error.advice]
        tell(stderr(), in_options("\n".join(lines)), "red")
        return
    lines = [in_options(line.strip()) for line in str(error).splitlines() if line.strip()]
    text = lines[0] if len(lines) < 2 else f"{lines[0]} {lines[-1]}"  # of a site's traceback, where and what
    tell(stderr(), f"error: {text}", "red")


def tell(console: Console, text: str, style: str = "") -> None:
    """Print text as it is: no markup, no colours for numbers, no line breaks of its own; a terminal is told nothing else."""
    console.print(harmless(text, keep="\n"), style=style, markup=False, highlight=False, soft_wrap=True)


def harmless(text: str, keep: str = "") -> str:
    """Text of a file or of another party, for a terminal: what is no letter, sign or blank is spelt out.

    >>> print(harmless("site\\x1b[31m A"))
    site\\x1b[31m A
    """
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def _width(stream: TextIO) -> int | None:
    return None if stream.isatty() or "COLUMNS" in os.environ else FILE_WIDTH
