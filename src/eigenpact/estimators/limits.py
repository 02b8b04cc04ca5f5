"""What limits the angle of an answer beside the solver: rounded rows, and components in single precision."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..algorithms.goal import EXACT_ANGLE

WORTH_TELLING = 2.0
"""How many times larger than what was reached an angle that rounded rows allow must be to be told of."""


def limits_of(dtype: np.dtype[Any], offset: float, variance: float) -> dict[str, float]:
    """The sines that rounded rows and components allow at best, by what limits them.

    Components are rounded to ``dtype``.  A mean m known to eps ||m|| adds eps^2 m m^T to the covariance.  ``offset`` is ||m|| in
    the units of the components, ``variance`` that of the last one.
    """
    centring = (float(np.finfo(float).eps) * offset) ** 2 / variance if variance > 0 else 0.0
    rounding = 0.0 if dtype == np.float64 else float(np.finfo(dtype).eps) / 2
    return {"the rows' distance from the origin": min(1.0, centring), "single precision": rounding}


def limited_by(angle: float | None, limits: dict[str, float]) -> tuple[float | None, str]:
    """An estimated sine with what limits it added, and what to say of the largest limit if it is worth telling."""
    if angle is None:
        return None, ""
    estimate = min(1.0, float(np.linalg.norm([angle, *limits.values()])))
    what = max(limits, key=limits.__getitem__)
    told = limits[what] > WORTH_TELLING * max(angle, EXACT_ANGLE)
    return estimate, f"{what} limits the sine to about {estimate:.1e}" if told else ""
