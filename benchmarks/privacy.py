"""Privacy: secured sums, what attacks on messages, sums and models compute, and noise with an account.

*C_i* is a site's scatter matrix; errors are relative.  Rows on secured runs say what is left to somebody who sees sums only.
No row says that something cannot be computed: an attack that fails says something of that attack.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from benchmarks import privacy_audit, privacy_sums
from benchmarks.table import Row

GROUPS = (privacy_sums, privacy_audit)
"""Files with rows, in the order of the table; each has ``rows(size)``."""


def rows(size: str) -> Iterator[Row]:
    """Measure and yield a row at a time."""
    warnings.simplefilter("ignore")
    for group in GROUPS:
        yield from group.rows(size)
