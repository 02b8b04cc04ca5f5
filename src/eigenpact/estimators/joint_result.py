"""What a fit of :class:`FederatedPCA` ends with, and how far rounding limits it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from ..algorithms.goal import EXACT_ANGLE
from ..numerics.linalg import Array
from ..numerics.preparation import Step
from .results import UNSEEN, Result

DWARFS = 0.999
"""Share of the variance from which on one feature is said to dwarf the others."""

WORTH_TELLING = 2.0
"""How many times larger than what was reached an angle that rounded rows allow must be to be told of."""


@dataclass(frozen=True, eq=False, kw_only=True)
class JointResult(Result):
    """Attributes of a fitted :class:`FederatedPCA`; ``basis`` (d x k) is float64 even where rows are single precision."""

    basis: Array = field(metadata=UNSEEN)
    n_components: int
    n_samples_seen: int
    weight_sum: float | None = None
    components: Array
    mean: Array
    scale: Array
    explained_variance: Array
    explained_variance_ratio: Array
    singular_values: Array
    noise_variance: float
    between_site_share: float
    between_site_share_before: float | None = None
    angle_estimate: float | None
    solver_choice: list[Any]
    dropped_features: tuple[int, ...] = ()
    preparation: tuple[Step, ...] = ()

    def chosen_instead(self, names: Sequence[str]) -> Self:
        """The result, whose table tells which solvers sites refused."""
        return replace(self, solver_choice=[{"solver": name, "allowed": name == names[-1]} for name in names])


UNKNOWN_GAP = 8.0
"""Where the variance behind the last component is not known, the gap is taken to be that of the last over this."""


def rounding_limits(dtype: np.dtype[Any], offset: float, gap: float) -> dict[str, float]:
    """The sines that rounded rows and components allow at best, by what limits them.

    Components are rounded to ``dtype``.  A mean m that is off by e, ||e|| about eps / 2 ||m||, adds e e^T to the covariance,
    which turns components by at most ||e||^2 / 2 over the gap behind them.  ``offset`` is ||m|| in the units of the components,
    ``gap`` the variance of the last one less that of the next.  e is an estimate: the two roundings of a mean may be twice that.

    >>> rounding_limits(np.dtype(float), 1e200, 1.0)["the rows' distance from the origin"]
    1.0
    """
    moved = float(np.finfo(float).eps) / 2 * offset
    centring = moved * (moved / gap) / 2 if gap > 0 else 0.0
    rounding = 0.0 if dtype == np.float64 else float(np.finfo(dtype).eps) / 2
    return {"the rows' distance from the origin": min(1.0, centring), "single precision": rounding}


def limited_angle(angle: float | None, limits: dict[str, float]) -> tuple[float | None, str]:
    """An estimated sine with what limits it added, and what to say of the largest limit if it is worth telling."""
    if angle is None:
        return None, ""
    estimate = min(1.0, float(np.linalg.norm([angle, *limits.values()])))
    what = max(limits, key=limits.__getitem__)
    told = limits[what] > WORTH_TELLING * max(angle, EXACT_ANGLE)
    return estimate, f"{what} limits the sine to about {estimate:.1e}" if told else ""


def advice_on_units(components: Array, ratios: Array, names: Any) -> str:
    """What to say where one feature has nearly all the variance of rows that are not scaled: usually a matter of its unit."""
    if components.shape[1] < 2 or len(components) == 0:
        return ""
    feature = int(np.argmax(np.abs(components[0])))
    if components[0, feature] ** 2 < DWARFS or ratios[0] < DWARFS:
        return ""
    name = f"feature {feature}" if names is None else f"feature {names[feature]!r}"
    return f"{name} has {ratios[0]:.4%} of the variance by itself: if that is its unit, use scale='pooled'"
