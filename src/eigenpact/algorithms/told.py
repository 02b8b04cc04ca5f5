"""What a coordinator makes of what a site told: which replies cannot come from the same rows.

Set-up
    A site tells its number of rows n_i, their sum, then squares about the mean.  Its mean is its sum over n_i, so what it tells
    of n_i ||m_i - m||^2 follows from the first reply.  Then its trace about the agreed centre is known, and how much of it
    rounding may change.

Products
    C_i Z is symmetric, not negative and consistent with all earlier ones; together with a few secret combinations of these it is
    within the trace, however narrow the blocks are (``numerics/consistency.py``).  Where sites are too many to remember the
    combinations of each, this holds of their sum, and of each product by itself (``runtime/doubts.py``).

What is not noticed
    A site that answers as if it had other rows, from the first reply to the last.  It has the influence of a site with such rows:
    a scatter matrix of the trace that it told, or little more: what blocks do not show of a matrix counts as nothing, and long
    runs are remembered by a few combinations alone.  Of messages that are no products only the size is looked at.  Deviations
    below the slack, which is ``ROUNDING`` of the trace, or of the pooled trace what a site says that it rounds its replies to.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..numerics.consistency import Memory, Seen, triangle_doubt
from ..numerics.linalg import Array
from ..numerics.pairs import deviations
from ..numerics.single import ERROR
from ..runtime.doubts import Told
from ..runtime.fixed_point import quantum

EPS, TINY = float(np.finfo(float).eps), float(np.finfo(float).tiny)

ROUNDING = 1e-11
"""Share of a site's trace that rounding may change its products by."""

CLOSE = 1e-9
"""Relative distance of two numbers that are the same but for the order of additions."""

MEAN_ERROR = 16 * EPS
"""Relative error of a mean."""

COARSEST = 2.0**-12
"""The largest share of the trace that a site may round its replies to."""


def doubt_counts(told: Told, sites: Any, singles: Any, n: Any, sums: Array) -> str:
    """Of ``count_and_sum``."""
    if sites != told.sites or not 0 <= singles <= told.sites:
        return f"it speaks of {sites} site(s), {singles} in single precision, where {told.sites} replied"
    if n < told.sites:
        return f"it counts {n} rows; a site that takes part has one at least"
    told.facts |= {"n": float(n), "mean": sums / float(n)}
    return ""


def doubt_weights(told: Told, sites: Any, singles: Any, n: Any, weight: Array, sums: Array) -> str:
    """Of ``weigh_and_sum``."""
    if not (0 < weight[0] < np.inf and abs(weight[1]) <= weight[0]):
        return f"its rows have weights that add up to {weight[0]}"
    wrong = doubt_counts(told, sites, singles, n, sums)
    told.facts |= {} if wrong else {"weight": float(weight[0]), "rest": float(weight[1]), "mean": sums / float(weight[0])}
    return wrong


def doubt_spread(told: Told, mean: Array, within: Array, between: Array, grain: Any) -> str:
    """Of ``spread`` and ``spread_by_feature``: the distance of the means follows from what was told before."""
    if grain > COARSEST**2 * told.sites:
        return f"it rounds replies to {np.sqrt(grain):.1e} of the trace, more than {COARSEST:.1e}"
    if not np.all(np.isfinite(within)):
        return "the squares of its values overflow; give the data in other units"
    facts = told.facts
    facts |= {"within": within, "between": between, "grain": float(np.sqrt(grain))}
    told.last.centre = mean
    if told.sites > 1 or "mean" not in facts:
        return ""
    n, apart = _weight(facts), np.abs(facts["mean"] - mean)
    blur = _mean_error(facts["mean"], mean) + MEAN_ERROR * np.sqrt(within / n)
    with np.errstate(over="ignore", invalid="ignore"):  # where another's sums are huge, so is the distance
        known, allowed = n * apart**2, n * (2 * apart * blur + blur**2) + n * TINY
        if np.ndim(between) == 0:
            known, allowed = known.sum(), allowed.sum()
        off = np.isfinite(known) & (np.abs(between - known) > allowed + CLOSE * known)
    return "the distance of its mean from the pooled one is not that of the sums it told" if np.any(off) else ""


def doubt_moments(told: Told, sums: Array, squares: Array, _within: Any, grain: Any) -> str:
    """Of ``second_moments``, by feature or not: squares about the pooled mean follow."""
    facts = told.facts
    if grain > COARSEST**2 * told.sites:
        return f"it rounds replies to {np.sqrt(grain):.1e} of the trace, more than {COARSEST:.1e}"
    if not (np.all(np.isfinite(squares)) and np.all(np.isfinite(sums))):
        return "the squares of its values overflow; give the data in other units"
    if "mean" not in facts:
        return ""
    n, mean = _weight(facts), facts["mean"]
    if np.any(np.abs(sums[:, 0] - n * mean) > CLOSE * np.abs(n * mean) + CLOSE * np.sqrt(n * np.sum(squares[..., 0])) + n * TINY):
        return "the sums of its columns are not those it told before"
    about = deviations(n, mean, sums, squares, facts.get("rest", 0.0))
    facts |= {"within": about, "between": 0.0 * about, "grain": float(np.sqrt(grain))}
    told.last.centre = mean
    return ""


def note_centre(told: Told, mean: Array, scale: Array, trace: Any) -> str:
    """Of ``keep_centre``, to which nothing is replied: from now on the site's trace is known."""
    facts = told.facts
    if "within" in facts and "mean" in facts:  # a journal keeps the first alone
        between = facts["between"]
        if not np.array_equal(mean, told.last.centre):
            with np.errstate(over="ignore"):
                apart = _weight(facts) * (facts["mean"] - mean) ** 2
            apart = apart if np.ndim(between) else apart.sum()
            between = apart if told.sites == 1 else between + apart
        _note_trace(told, between, mean, scale, float(trace))
    return ""


def note_own_centre(told: Told, scale: Array, trace: Any) -> str:
    """Of ``keep_own_centre``, to which nothing is replied."""
    if "within" in told.facts and "mean" in told.facts:
        _note_trace(told, 0.0 * told.facts["within"], told.facts["mean"], scale, float(trace))
    return ""


def doubt_product(told: Told, Z: Array, G: Array, error: float = 0.0) -> str:
    """Of ``scatter_action``; products may be off by this ``error`` besides, a share of the trace."""
    if "trace" not in told.facts:
        return ""
    name = "rough memory" if error else "memory"  # products of other precision are held against their like alone
    memory: Memory = told.facts.get(name) or Memory()
    seen = Seen(told.last.of(Z, memory.asked), G, told.facts["trace"], _slack(told, error))
    wrong = seen.doubt() or seen.joint_doubt(memory)
    if told.remembers and not wrong:
        memory.add(seen)
        told.facts[name] = memory
    return wrong


def doubt_rough_product(told: Told, Z: Array, G: Array) -> str:
    """Of ``rough_action``: its errors are those of single precision."""
    return doubt_product(told, Z, G, ERROR)


def doubt_triangle(told: Told, packed: Array, error: float = 0.0) -> str:
    """Of ``scatter_triangle``; products may be off by this ``error`` besides, a share of the trace."""
    if "trace" not in told.facts:
        return ""
    d = int((np.sqrt(8 * len(packed) + 1) - 1) // 2)
    return triangle_doubt(packed, d, told.facts["trace"], _slack(told, error))


def doubt_rough_triangle(told: Told, packed: Array) -> str:
    """Of ``rough_triangle``: its errors are those of single precision."""
    return doubt_triangle(told, packed, ERROR)


def doubt_size(told: Told, G: Any, most: float = 1.0) -> str:
    """Whether an array is larger than ``most`` times the site's trace: that of a product with any orthonormal block is not."""
    if "trace" not in told.facts:
        return ""
    size, trace = float(np.linalg.norm(G)), told.facts["trace"]
    allowed = most * (1 + CLOSE) * trace + np.sqrt(np.size(G)) * told.facts["slack"]
    return f"its size is {size:.1e}, and the site told a trace of {trace:.1e}" if size > allowed else ""


def doubt_local_power(told: Told, _Z: Array, _q: Any, _align: Any, G: Array) -> str:
    """Of ``local_power``: a product with a block that only the site knows."""
    return doubt_size(told, G)


def doubt_directions(told: Told, _k: Any, V: Array) -> str:
    """Of ``leading_directions``: eigenvectors as long as the roots of their eigenvalues."""
    return doubt_size(told, np.sum(V**2))


def doubt_own_directions(told: Told, k: Any, _seed: Any, V: Array, n: Any) -> str:
    """Of ``own_directions``: the same, with the number of rows."""
    if n != told.facts.get("n", n):
        return f"it counts {n} rows, and the site told {told.facts['n']:.0f} before"
    return doubt_directions(told, k, V)


def _note_trace(told: Told, between: Array, centre: Array, scale: Array, pooled: float) -> None:
    """Note trace and slack; forget what was only needed for them, and products about an earlier centre."""
    facts = told.facts
    for name in ("memory", "rough memory", "between"):
        facts.pop(name, None)
    within, n, d = facts.pop("within"), _weight(facts), len(scale)
    squares = within + between
    with np.errstate(over="ignore"):
        trace = float(squares if np.ndim(squares) == 0 else np.sum(squares / scale**2))
        blur = n * float(np.sum((_mean_error(facts.pop("mean"), centre) / scale) ** 2)) + n * d * TINY
    coarse = quantum(pooled, facts.pop("grain")) * float(np.sqrt(d * told.sites))
    if np.isfinite(blur) and np.isfinite(trace):  # else rows are so far from the origin that nothing can be compared
        facts |= {"trace": trace, "slack": (ROUNDING + told.sites * EPS) * trace + blur + coarse}


def _slack(told: Told, error: float) -> float:
    """How much the product of two unit vectors with a site's scatter may be off by."""
    return float(told.facts["slack"] + error * told.facts["trace"])


def _weight(facts: Any) -> float:
    """What sums over a site's rows are divided by: the sum of their weights, or their number where they have none."""
    return float(facts.get("weight", facts["n"]))


def _mean_error(a: Array, b: Array) -> Array:
    return MEAN_ERROR * (np.abs(a) + np.abs(b))
