"""What a solver returns, and what every solver is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from ..numerics.certificate import Cut
from ..numerics.linalg import Array
from ..numerics.single import ERROR
from .rough import tolerance_allows
from .setup import Setup

NO_ANSWER = 0.9
"""An answer whose estimated sine is at least this is none."""

MORE_THAN_ALL = 1e-6
"""How much more than all of the variance an answer may seem to have, by rounding."""

State = Mapping[str, Array]
"""What a solver saved with a ``Progress`` to go on from."""


@dataclass(frozen=True, eq=False)
class Solution:
    """A solver's answer.

    Attributes
    ----------
    basis : (d, k) array
        Orthonormal columns, by decreasing eigenvalue.
    eigenvalues : (k,) array
        Of the pooled scatter C, descending.
    kkt : float or None
        Scaled KKT residual of ``basis``, where the solver sees C Z.
    angle : float or None
        Estimated sine of the largest angle between ``basis`` and the exact answer, None where unknown.
    converged : bool
    reason : str
        Why the solver stopped, with advice if it did not converge.
    notes : dict
        What the solver wants to tell besides, as JSON can hold it.
    cut : "clear", "tied", "hidden" or "empty"
        What lies behind the last component, as far as the solver knows; all but "clear" make the answer one of many.
    behind : float
        The eigenvalue behind the last one, or a bound on it; 0 where the solver does not know.
    """

    basis: Array
    eigenvalues: Array
    kkt: float | None
    angle: float | None
    converged: bool
    reason: str
    notes: dict[str, Any] = field(default_factory=dict)
    cut: Cut = "clear"
    behind: float = 0.0


class Algorithm(Protocol):
    """A frozen dataclass with a solver's parameters and the coroutine that runs it; ``name`` is what users write.

    Without a ``tol`` it stops at an estimated sine of ``default_angle``.
    """

    name: str
    default_angle: float

    async def fit(self, setup: Setup, start: Array | None = None, state: State | None = None) -> Solution:
        """Solve the problem the sites agreed on, from the basis ``start`` (d x k) or the saved ``state`` if given."""
        ...


def believed(setup: Setup, solution: Solution, promised: float) -> Solution:
    """The answer, but converged only if it can be one: with no more variance than there is, and an angle that says something.

    Where a residual was asked for, such an angle is unknown instead; and a solver may have ``promised`` none, an infinite sine.
    """
    share = setup.share(solution.eigenvalues)
    rough = ERROR * setup.trace if tolerance_allows(setup) else 0.0
    noise = len(solution.eigenvalues) * (setup.noise + rough) / setup.trace if setup.trace > 0 else 0.0  # Weyl's, for each value
    if not share <= 1 + MORE_THAN_ALL + max(noise, setup.tightest):
        wrong = f"the components have {share:.6g} of the variance, more than all: some site's replies cannot be true"
    elif solution.angle is None or solution.angle < NO_ANSWER or not np.isfinite(promised):
        return solution
    elif setup.tol is not None:
        return replace(solution, angle=None)
    else:
        wrong = f"the estimated sine of the angle is {solution.angle:.1g}: these may be any directions"
    return replace(solution, converged=False, reason=f"{wrong}; {solution.reason}") if solution.converged else solution


def cut_in_words(cut: Cut, k: int) -> str:
    """Why the answer is one of many.

    >>> cut_in_words("tied", 2)
    'components 2 and 3 have the same variance as far as rounding tells'
    """
    return {
        "clear": f"component {k} has more variance than component {k + 1}",
        "tied": f"components {k} and {k + 1} have the same variance as far as rounding tells",
        "hidden": f"the variances of components {k} and {k + 1} differ by less than rounding errors allow to tell",
        "empty": f"beyond rounding errors the rows have variance in fewer than {k} directions, other components are arbitrary",
    }[cut]


def residual_angle(residual: float, inside: float, outside: float) -> float:
    """Residual over gap: the sine of the angle that a residual norm allows between two parts of the spectrum.

    ``inside`` is the smallest eigenvalue kept, ``outside`` the largest one left out; 1 when they do not differ.

    >>> residual_angle(1e-6, inside=3.0, outside=2.0)
    1e-06
    """
    gap = inside - outside
    rounding = np.finfo(float).eps * max(abs(inside), np.finfo(float).tiny)
    return 1.0 if gap <= rounding else min(1.0, residual / gap)
