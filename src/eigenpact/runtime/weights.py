"""Rows with weights at a site: which runs it takes part in.

A function that counts every row once declares ``@local(weights=False)``, its twin that sums weights ``weights=True``; to others
it does not matter.  A site whose rows have weights takes part only in runs whose plan holds the second, not the first, and that
neither fill nor prepare rows, which is found as if all rows counted the same.  A function that does not take weights would fail,
and what fails in a secured sum counts against the rule ``max_failures``; so the plan is refused, before any round.

A site without weights takes part in both: each of its rows weighs 1.
"""

from __future__ import annotations

from collections.abc import Collection

from ..errors import PolicyError
from .holes import FEATURES
from .local import find_local
from .prepared import PREFIX


def check_weighable(functions: Collection[str], *, weighted: bool) -> None:
    """Refuse a plan of functions (by name) that a site's rows do not go with, if they are ``weighted``."""
    if not weighted:
        return
    declared = [find_local(name) for name in functions]
    steps = {name for function in declared for name in function.keeps if name.startswith(PREFIX)} - {FEATURES}
    if steps or all(function.holes for function in declared):
        raise PolicyError(
            "rule weights: rows of this site have weights, which do not go with filling in what is missing or preparing rows; "
            "run it with --weights (sample_weight=True) and without --missing and --prepare, or have the site's owner take "
            "weights out of the description of its file"
        )
    weighing = {function.weights for function in declared}
    if True not in weighing or False in weighing:
        raise PolicyError(
            "rule weights: rows of this site have weights, of which this run knows nothing; run it with --weights (coordinator "
            "run --weights, or FederatedPCA.fit(sample_weight=True)), or have the site's owner take weights out of the "
            "description of its file"
        )
