"""What a solver returns, and what every solver is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Protocol

import numpy as np

from ..errors import InputError
from ..krylov_space import KrylovSpace, Ritz
from ..linalg import Array
from .setup import Setup


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
    """

    basis: Array
    eigenvalues: Array
    kkt: float | None
    angle: float | None
    converged: bool
    reason: str
    notes: dict[str, Any] = field(default_factory=dict)


class Algorithm(Protocol):
    """A frozen dataclass with a solver's parameters and the coroutine that runs it; ``name`` is what users write."""

    name: str
    default_tol: float

    async def fit(self, setup: Setup, start: Array | None = None, state: Mapping[str, Array] | None = None) -> Solution:
        """Solve the problem the sites agreed on, from the basis ``start`` (d x k) or the saved ``state`` if given."""
        ...


def residual_angle(residual: float, inside: float, outside: float) -> float:
    """Residual over gap: the sine of the angle that a residual norm allows between two parts of the spectrum.

    ``inside`` is the smallest eigenvalue kept, ``outside`` the largest one left out; 1 when they do not differ.

    >>> residual_angle(1e-6, inside=3.0, outside=2.0)
    1e-06
    """
    gap = inside - outside
    rounding = np.finfo(float).eps * max(abs(inside), np.finfo(float).tiny)
    return 1.0 if gap <= rounding else min(1.0, residual / gap)


def ritz_angle(ritz: Ritz, space: KrylovSpace, trace: float) -> float:
    """Residual over gap, in two parts.

    Out of span(Q): the residual is orthogonal to all of Q, so the part of the spectrum it belongs to is not the next Ritz value
    but what the newest directions show, the mean Rayleigh quotient of the last k columns.  (With the next Ritz value this part
    was 4 to 50 times too large in trials.)  Within span(Q): the last wanted and the next Ritz vector mix by the product of their
    errors and by rounding, both over the Ritz gap; a gap that rounding could make leaves the answer undetermined.  Where the gap
    at the cut is as small as the tolerance, the estimate may be too small.
    """
    k, values = ritz.Z.shape[1], ritz.values
    lengths = np.linalg.norm(ritz.residual, axis=0)
    if k == space.size:
        return residual_angle(float(np.linalg.norm(lengths)), float(values[k - 1]), trace - float(values.sum()))
    last = slice(max(k, space.size - k), None)
    newest = min(float(values[k]), float(np.mean(np.sum(space.Q[:, last] * space.CQ[:, last], axis=0))))
    outward = np.array([residual_angle(r, v, newest) for r, v in zip(lengths.tolist(), values.tolist(), strict=False)])
    next_residual = space.ritz(lambda _: k + 1).residual[:, k]
    mixing = float(np.linalg.norm(next_residual)) * float(outward[-1]) + float(np.finfo(float).eps * values[0])
    return min(1.0, float(np.linalg.norm(outward)) + residual_angle(mixing, float(values[k - 1]), float(values[k])))


def check_sine(sine: float | None) -> None:
    """Refuse a sine that no angle has."""
    if sine is not None and not (isinstance(sine, Real) and 0 < sine < 1):
        raise InputError(f"sine={sine!r} must be a number between 0 and 1, or None to stop by tol alone")
