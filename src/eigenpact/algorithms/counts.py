"""The first round of set-up: how many rows there are, what they weigh, and the sums of their columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InputError
from ..numerics.linalg import Array
from ..numerics.pairs import exact_sums
from ..numerics.rows import Rows
from ..numerics.weighted import LARGEST, Weighted
from ..runtime import Reply, Site, local
from .second_moments import with_place
from .spread import OWN
from .told import doubt_counts, doubt_weights

LEAST = 1.5
"""Of a sum of weights: half way between 1, which shares add up to, however they are rounded, and 2, the fewest rows that vary."""


@local(
    sends={"sites": "", "singles": "", "n": "", "sums": "d"},
    keeps=OWN,
    bound={"sites": "count", "singles": "count", "n": "count", "sums": "rows"},
    doubt=doubt_counts,
    setup=True,
    weights=False,
)
def count_and_sum(site: Site) -> Reply:
    """One (to count the sites), one if the rows are single precision, number of rows, and sums of the columns.

    What the same pass over the rows tells of their spread is kept for the second round.
    """
    if isinstance(site.X, Weighted):
        raise InputError(
            "its rows have weights, of which the run knows nothing; fit with sample_weight (coordinator run --weights), or have "
            "the site take weights out of the description of its file"
        )
    rows = Rows(site.X)
    sums, own, within = rows.about_mean()
    return Reply((np.int64(1), np.int64(_is_single(site.X)), np.int64(rows.n), sums), {"own": own, "within": within})


@local(
    sends={"sites": "", "singles": "", "n": "", "weight": "2", "sums": "d"},
    keeps=OWN,
    bound={"sites": "count", "singles": "count", "n": "count", "weight": "pair", "sums": "rows"},
    doubt=doubt_weights,
    setup=True,
    weights=True,
)
def weigh_and_sum(site: Site) -> Reply:
    """As ``count_and_sum``, of rows times their weights; and the sum of the weights, as a pair of doubles."""
    rows = Rows(site.X)
    weight = np.array([float(rows.n), 0.0]) if rows.weights is None else exact_sums(rows.weights[:, None], rows.n, 1)[0]
    sums, own, within = rows.about_mean()
    sent = np.int64(1), np.int64(_is_single(site.X)), np.int64(rows.n), with_place(weight), sums
    return Reply(sent, {"own": own, "within": within})


def _is_single(X: Any) -> bool:
    return str(X.dtype).endswith("float32")


def checked_weight(weight: Array) -> tuple[float, float]:
    """The sum of all weights, and what rounding left of it; refused if it is about that of one row, or less, or too large."""
    total = float(weight[0] + weight[1])
    if not total < LARGEST:
        raise InputError(
            f"the weights of all rows add up to {total:.3g}, which is too large: squares overflow beyond {LARGEST:.0e}; divide "
            "all weights by one number, for example so that their mean is 1"
        )
    if total < LEAST:
        raise InputError(
            f"the weights of all rows add up to {total:.3g}; weights are counts of rows, and variances are divided by their sum "
            f"less 1, so it must be at least {LEAST}; if yours are shares, multiply them by the number of rows"
        )
    return total, float((weight[0] - total) + weight[1])
