"""Print a family's results table with measured numbers: ``python -m benchmarks.results foundation --size small``.

``small`` is what CI runs; ``paper`` takes more random starts and also times a fresh clone. Exit status 1 means that a bar
was missed without a recorded reason.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks import consensus, engines, federation, flower, foundation, graph, personalized, robust, statistical
from benchmarks.table import print_rows

FAMILIES = {
    "foundation": foundation.rows,
    "engines": engines.rows,
    "consensus": consensus.rows,
    "statistical": statistical.rows,
    "federation": federation.rows,
    "flower": flower.rows,
    "graph": graph.rows,
    "personalized": personalized.rows,
    "robust": robust.rows,
}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", choices=sorted(FAMILIES))
    parser.add_argument("--size", choices=["small", "paper"], default="small")
    parser.add_argument("--markdown", action="store_true", help="print the README's form")
    arguments = parser.parse_args()
    rows = FAMILIES[arguments.family](arguments.size)
    return 0 if print_rows(f"{arguments.family}, --size {arguments.size}", rows, arguments.markdown) else 1


if __name__ == "__main__":
    sys.exit(main())
