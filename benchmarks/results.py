"""Print a family's results table with measured numbers: ``python -m benchmarks.results foundation --size small``.

``small`` is what CI runs; ``paper`` takes more random starts and also times a fresh clone. With ``--page PATH`` the table is also
written as a page of the documentation. Exit status 1 means that a bar was missed without a recorded reason.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks import consensus, engines, exactness, federation, flower, foundation, graph, personalized, robust, statistical
from benchmarks.page import write_page
from benchmarks.table import print_rows

FAMILIES = {
    "foundation": foundation,
    "engines": engines,
    "exactness": exactness,
    "consensus": consensus,
    "statistical": statistical,
    "federation": federation,
    "flower": flower,
    "graph": graph,
    "personalized": personalized,
    "robust": robust,
}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", choices=sorted(FAMILIES))
    parser.add_argument("--size", choices=["small", "paper"], default="small")
    parser.add_argument("--markdown", action="store_true", help="print the README's form")
    parser.add_argument("--page", type=Path, metavar="PATH", help="also write the table as a page, e.g. docs/results/FAMILY.md")
    arguments = parser.parse_args()
    family = FAMILIES[arguments.family]
    rows = list(family.rows(arguments.size))
    if arguments.page is not None:
        write_page(arguments.page, arguments.family, family, arguments.size, rows)
    return 0 if print_rows(f"{arguments.family}, --size {arguments.size}", rows, arguments.markdown) else 1


if __name__ == "__main__":
    sys.exit(main())
