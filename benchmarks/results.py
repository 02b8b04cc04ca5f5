"""Print a family's results table with measured numbers: ``python -m benchmarks.results foundation --size small``.

``small`` is what CI runs; ``paper`` takes more random starts and also times a fresh clone. With ``--page`` the table is also
written as a page of the documentation, docs/results/FAMILY.md unless a path is given. Exit status 1 means that a bar was missed
without a recorded reason.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

from benchmarks.page import page_of, write_page
from benchmarks.table import print_rows

FAMILIES = (
    "consensus",
    "daily",
    "engines",
    "exactness",
    "federation",
    "files",
    "flower",
    "foundation",
    "gpu",
    "graph",
    "house",
    "personalized",
    "privacy",
    "robust",
    "scale",
    "security",
    "speed",
    "statistical",
)
"""Modules here, each with ``rows(size)``; one is imported when its table is wanted, for a machine may lack what another needs."""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--size", choices=["small", "paper"], default="small")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--page", nargs="?", const="", metavar="PATH", help="also write a page, docs/results/FAMILY.md or PATH")
    arguments = parser.parse_args()
    family = import_module(f"benchmarks.{arguments.family}")
    rows = list(family.rows(arguments.size))
    if arguments.page is not None:
        path = Path(arguments.page) if arguments.page else page_of(arguments.family)
        write_page(path, arguments.family, family, arguments.size, rows)
    return 0 if print_rows(f"{arguments.family}, --size {arguments.size}", rows, arguments.markdown) else 1


if __name__ == "__main__":
    sys.exit(main())
