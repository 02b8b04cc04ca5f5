"""Features that few rows have: a pooled scatter matrix holds whole rows of single people in their columns, so they are dropped.

A site whose policy has ``min_nonzero`` takes part only in runs that, before anything else in an epoch,

1. add up how many entries of each feature are not zero (``count_nonzero``: a sum, secured where sums are), then
2. tell all sites that sum and the fewest that are allowed (``drop_rare``).

From then on the site's server gives local functions its rows with zeros in every column of which fewer were told.  No function
sees the entries, whoever asks for what; the answer is the PCA of the columns that are kept, with zeros at the others.

What a site checks: that the count comes first, that the fewest allowed are not below its own rule, and that of no feature fewer
entries are told than it has itself.  What it cannot check: a coordinator that tells *larger* counts than the sites sent, of whose
sum no site knows more than its own part.  All sites are told the same, or their masks do not cancel; but a coordinator that lies
to all keeps rare columns in.  So this rule guards against an oversight, and against results that show too much, not against a
coordinator who wants these columns.  He learns the pooled counts themselves in any case.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import PolicyError
from ..numerics.columns import columns_nonzero
from .local import Arrays, LocalFunction, Reply, local

if TYPE_CHECKING:
    from .site import Request, Site
    from .site_ledger import SiteLedger

MOST_SETS = 3
"""Sets of features that may be dropped, in secured sums about one version of the rows.  Set-up tells one coarse number that is
no sum over rows (``algorithms/second_moments.py``); whoever could choose the features freely would have one for each."""

DROPPED = "dropped"
"""Under this name a site keeps the numbers of the columns that are zero to local functions."""

OF_ROWS = ("own", "within")
"""What the set-up keeps of the rows as they were (``algorithms/spread.py``): it is forgotten where they change."""


@local(sends={"nonzero": "d"}, bound="count", setup=True, holes=True)
def count_nonzero(site: Site) -> Any:
    """How many entries of each feature are not zero."""
    return columns_nonzero(site.X)


@local(
    takes={"nonzero": "d", "least": ""},
    keeps=(DROPPED, *OF_ROWS),
    means={"nonzero": "count", "least": "count"},
    setup=True,
    once=True,
    holes=True,
)
def drop_rare(site: Site, nonzero: Any, least: Any) -> Reply:
    """Remember which features have fewer than ``least`` entries that are not zero, at all sites together."""
    if np.any(columns_nonzero(site.X) > nonzero):
        raise PolicyError("rule min_nonzero: of a feature fewer entries were told for all sites than this one has itself")
    return Reply(keep={DROPPED: rare_features(nonzero, int(least)), **dict.fromkeys(OF_ROWS)})


def rare_features(nonzero: np.ndarray[Any, Any], least: int) -> np.ndarray[Any, Any]:
    """Numbers of the features of which fewer than ``least`` entries are not zero.

    >>> rare_features(np.array([3, 40, 0, 10]), 10).tolist()
    [0, 2]
    """
    return np.flatnonzero(np.asarray(nonzero) < least)


def note_dropped(ledger: SiteLedger, run: str, data: str, args: Arrays) -> None:
    """Write down which features a secured run drops; refuse more sets than a few about the same rows."""
    dropped = hashlib.sha256(rare_features(args[0], int(args[1])).astype("<i8").tobytes()).hexdigest()[:32]
    with ledger.locked():
        known = ledger.dropped(data)
        if dropped in known:
            return
        if len(known) >= MOST_SETS:
            raise PolicyError(
                f"rule min_nonzero: {len(known)} other sets of features were dropped from these rows in secured sums"
            )
        ledger.write(run=run, what="dropped", data=data, features=dropped)


def check_rare(rule: int, request: Request, function: LocalFunction, told: bool) -> None:
    """Refuse what comes before rare features are dropped, or drops fewer of them than the ``rule``; 0 if there is none."""
    if not rule:
        return
    if function is drop_rare and int(request.args[1]) < rule:
        raise PolicyError(
            f"rule min_nonzero = {rule}: the run would keep features of which {int(request.args[1])} entries are not 0"
        )
    if not told and function not in (count_nonzero, drop_rare):
        raise PolicyError(f"rule min_nonzero = {rule}: rare features are counted and dropped before anything else is asked")
