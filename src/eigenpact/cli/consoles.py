"""Where commands write: results to standard output, progress and errors to standard error."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from rich.console import Console

FILE_WIDTH = 120
"""Width of tables when the output is not a terminal."""


def stdout() -> Console:
    """For results."""
    return Console(width=_width(sys.stdout))


def stderr() -> Console:
    """For progress, warnings and errors."""
    return Console(stderr=True, width=_width(sys.stderr))


def print_error(error: Exception) -> None:
    """Print "error: ..." in red, on one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lines = [line.replace("overwrite=True", "--overwrite") for line in lines]  # the library's words for it
    text = lines[0] if len(lines) < 2 else f"{lines[0]} {lines[-1]}"  # of a site's traceback, where and what
    tell(stderr(), f"error: {text}", "red")


def tell(console: Console, text: str, style: str = "") -> None:
    """Print text as it is: no markup, no colours for numbers, no line breaks of its own."""
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def _width(stream: TextIO) -> int | None:
    return None if stream.isatty() or "COLUMNS" in os.environ else FILE_WIDTH
