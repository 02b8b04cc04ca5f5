"""When an answer is good enough, and how a solver says that it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Real

from ..numerics.certificate import Cut
from ..numerics.linalg import Array
from .parameters import check
from .setup import Setup
from .solution import cut_in_words

EXACT_ANGLE, LINEAR_ANGLE = 1e-8, 1e-6
"""The sines at which exact and linearly convergent solvers stop if nothing else is asked for."""


@dataclass(frozen=True, eq=False)
class Goal:
    """When to stop: at a scaled KKT residual, at an estimated sine of the angle, or at whichever comes first."""

    tol: float | None
    angle: float | None
    asked: float | None = field(default=None, kw_only=True)
    """The tol that was asked for, where rounding does not allow it."""

    @classmethod
    def of(cls, setup: Setup, angle_tol: float | None, default: float) -> Goal:
        """The user's tol and angle_tol; without either, the solver's own angle."""
        if setup.tol is not None:
            least = setup.stopping_tol(0.0)
            return cls(least, angle_tol, asked=setup.tol if setup.tol < least else None)
        return cls(None, default if angle_tol is None else angle_tol)

    def met(self, residual: float, angle: float | None, basis: Callable[[], Array] | None = None) -> bool:  # noqa: ARG002
        """Whether one of them is reached; ``basis`` gives the basis Z (d x k) that they are of."""
        return (self.tol is not None and residual <= self.tol) or (
            self.angle is not None and angle is not None and angle <= self.angle
        )

    def told(self) -> str:
        """What was asked for, in words."""
        asked = [] if self.tol is None else [self._tol_told(self.tol)]
        return " or ".join(asked + ([] if self.angle is None else [f"a sine of {self.angle:.1e}"]))

    def _tol_told(self, tol: float) -> str:
        return f"tol {tol:.1e}" + ("" if self.asked is None else f", the least that rounding allows ({self.asked:.1e} asked for)")

    def reached(self, residual: float, angle: float | None, cut: Cut, k: int) -> str:
        """Why an answer of k components has converged, in words."""
        at, sine = f"scaled KKT residual {residual:.1e}", in_words(angle)
        if cut != "clear":
            return f"{cut_in_words(cut, k)}; {at}"
        if self.tol is not None and residual <= self.tol:
            return f"{at} reached {self._tol_told(self.tol)}"
        if self.angle is not None and angle is not None and angle <= self.angle:
            return f"the estimated sine of the angle, {sine}, reached {self.angle:.1e}; {at}"
        if angle is None:
            return f"the answer changes no more, but its angle could not be proved ({self.told()} asked for); {at}"
        return f"the estimated sine of the angle, {sine}, is what rounding allows ({self.told()} asked for); {at}"


def in_words(angle: float | None) -> str:
    """A sine, if it is known.

    >>> in_words(1e-6), in_words(None)
    ('1.0e-06', 'unknown')
    """
    return "unknown" if angle is None else f"{angle:.1e}"


def check_angle_tol(angle_tol: float | None) -> None:
    """Refuse a sine that no angle has."""
    good = angle_tol is None or (isinstance(angle_tol, Real) and 0 < angle_tol < 1)
    check("angle_tol", angle_tol, good, "a sine between 0 and 1, or None for the solver's own")
