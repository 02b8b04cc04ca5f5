"""Files as people have them: what is read and how fast, agreement on features, rows prepared, holes, new rows, models elsewhere.

"Truth" is other people's code on the pooled rows: numpy, scikit-learn, scikit-allel, scanpy.  A sine is that of the largest angle
between two subspaces.  Data sets are those of docs/how-to/real-data.md; rows on those that are not here were not run.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from benchmarks import files_agreement, files_missing, files_prepare, files_project, files_sources, files_tables
from benchmarks.table import Row

GROUPS = (files_tables, files_sources, files_agreement, files_prepare, files_missing, files_project)
"""Files with rows, in the order of the table; each has ``rows(size)``."""


def rows(size: str) -> Iterator[Row]:
    """Measure and yield a row at a time."""
    warnings.simplefilter("ignore")
    for group in GROUPS:
        yield from group.rows(size)
