"""Agreed features that some sites lack: counted by a sum, so that nobody names a site, and left out where too few have them.

A feature that a site lacks is a column without any number (all NaN) in its rows.  Before anything but rare features is asked,

1. the sites add up, for each feature, how many of them have it (``count_having``: zeros and ones, secured where sums are), then
2. are told that sum and the fewest sites that are asked for (``keep_features``): all of them for the features that all sites
   have, one for those that any has.

From then on the site's server gives local functions its rows with zeros in the columns that are left out; one that stays although
this site lacks it is missing here.  A site refuses a run that does not count in this way if it lacks a feature, and a sum that
tells of fewer sites than it knows of itself.  What no site can check alone is whether others lack what the coordinator says they
lack: he may leave out columns that all have.  That he could by scales, too, and learns no more of single rows than otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import PolicyError
from ..numerics.columns import columns_present
from .local import Reply, local
from .prepared import kept_as

if TYPE_CHECKING:
    from .site import Site

SHOWN = 5


@local(sends={"sites": "", "having": "d"}, bound="count", setup=True, holes=True)
def count_having(site: Site) -> Any:
    """One, to count the sites; and one for each feature that this site has, zero for those that it lacks."""
    return np.int64(1), columns_present(site.X).astype(np.int64)


@local(
    takes={"having": "d", "least": ""},
    keeps=(kept_as("features"),),
    means={"having": "count", "least": "count"},
    setup=True,
    once=True,
    holes=True,
)
def keep_features(site: Site, having: Any, least: Any) -> Reply:
    """Remember how many sites have each feature, and that those which fewer than ``least`` have are left out."""
    if np.any(columns_present(site.X) > np.asarray(having)):
        raise PolicyError("rule features: of a feature that this site has, no site was told to have it")
    arrays = {"having": np.asarray(having), "least": np.asarray(least), "doubts": np.zeros(len(having), dtype=np.int64)}
    return Reply(keep={kept_as("features"): arrays})


def check_lacking(lacking: Sequence[str], functions: Collection[str]) -> None:
    """Refuse a plan that takes it that this site has all agreed features, if it lacks some; the refusal names these alone."""
    if lacking and count_having.name not in functions:
        more = f" and {len(lacking) - SHOWN} more" if len(lacking) > SHOWN else ""
        raise PolicyError(
            f"rule features: this site's table lacks the agreed columns {', '.join(lacking[:SHOWN])}{more}; add them, or rename "
            "columns, or use those that all sites have (features='intersection', --features intersection)"
        )
