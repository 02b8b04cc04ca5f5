"""Shift-and-invert power iterations: each outer step solves (lambda I - C) z = w over sites, preconditioned by one site's rows.

Problem
    Find the leading eigenvector of C = sum_i Y_i^T Y_i (d x d), site i holding the centred rows Y_i (n_i x d);
    for k > 1 one after the other, by deflation.

Rounds
    1. w <- a random unit vector, or the one-shot merge of the sites' own directions; C w in one round
    2. for each outer step:
    3.     rho <- w^T C w, r <- C w - rho w; enough if ||r|| is at most tol tr C, or if the estimated angle is at most
           ``angle_tol``
    4.     lambda <- rho + min(delta, ||r||), delta the gap, at least a thousandth of delta
    5.     z <- (lambda I - C)^-1 w to a tenth of the first residual, by CG or Nesterov preconditioned with (lambda + mu) I - C_1:
           one round for each product with C (``linear_systems.py``)
    6.     if CG meets a direction of negative curvature, lambda is below lambda_1: take that direction for w, and raise lambda
    7.     w <- z / ||z||; C w follows from z and its residual without another round
    8. for k > 1: keep w, go on with P C P, P = I - Z Z^T
    9. have Z confirmed (``confirmation.py``), since nothing here tells the gap, nor that no direction was missed; if Z is not
       good enough, go through lines 2 to 8 again from Z, more cautiously; in the end turn Z to its own principal axes

    ``literal=True`` is Algorithm 1 as it stands: m_1 and m_2 iterations at fixed shifts that fall from above (lines named there).

Leaves the site
    Y_i^T Y_i p (d) each round, to be summed.  Whoever sees the single replies of enough rounds can solve for Y_i^T Y_i.
    With ``start="one-shot"`` also the leading directions (see ``algorithms/start.py``).
    ``At`` is used at the coordinator's own site only: the preconditioner is applied where the rows are, nothing travels.

Cost
    8 d bytes each way and 4 n_i d flops per site and round.

Differences from the paper
    Its constants underflow: epsilon~ of line 3 is about (delta/8)^100.  So the shift follows the Rayleigh quotient, inner systems
    are solved to a tenth, and mu comes from two halves of one site's rows instead of a bound.  ``literal=True`` keeps m_1, m_2
    and the shifts, solves systems no better than rounding allows (``FINEST``), and bounds lambda_1 by tr C, where the paper has
    rows of length at most 1.  At the sizes tried neither beats Lanczos reliably; Davidson (``davidson.py``) does.

    ``row_bound=b``, for rows with ||y||^2 <= b, gives Theorem 6's mu = 4 b sqrt(ln(3 d / p) / n), n rows at the proxy; in units
    of the scatter it is that times all rows.  C_1 is then scaled by rows, not by traces, and ``literal=True`` takes b for the
    bound on lambda_1 and p / 3 for p, as Theorem 6 says.  This mu is so large that hardly anything is preconditioned.

References
    D. Garber, O. Shamir, N. Srebro, ICML 2017, Algorithms 1 and 2, Lemmas 5 to 7, Theorem 6; D. Garber, E. Hazan, 2015.

>>> import numpy as np, eigenpact as ep
>>> X = np.random.default_rng(0).normal(size=(2000, 20)) * np.linspace(3, 1, 20)
>>> solver = ep.solvers.ShiftInvert(proxy="A", angle_tol=1e-4)
>>> pca = ep.FederatedPCA(1, solver=solver, random_state=0).fit({"A": X[:1000], "B": X[1000:]})
>>> pca.converged_, pca.angle_estimate_ <= 1e-4
(True, True)
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Literal

import numpy as np

from ...errors import InputError
from ...numerics.linalg import Array, random_orthonormal
from ..confirmation import Verdict, confirm, confirmed_solution
from ..goal import LINEAR_ANGLE, Goal, check_angle_tol
from ..method import method
from ..parameters import check, check_choice, check_positive
from ..products import PRODUCTS
from ..setup import Setup
from ..solution import Solution, State, residual_angle
from ..start import Start, first_block
from .linear_systems import Deflated, Solved, System, conjugate_gradient, nesterov
from .preconditioner import FAILURE, PRECONDITIONER, Preconditioner, preconditioner

REDUCTION, SHORTEST_SHIFT, GAP_SHARE = 0.1, 1e-3, 0.1
"""How far inner residuals are reduced; the least shift, in gaps; and the largest gap believed, as a share of rho."""

STILL_NEW, NOTHING = 1e-8, 1e-15
"""Of a unit vector, how much must be left after deflation to begin from it; and the share of the trace that is rounding error."""

ACCURACY, FINEST, LITERAL_SLIP = 1e-6, 1e-13, 10.0
"""Of literal mode: accuracy epsilon where no ``angle_tol`` is given, the finest epsilon~ in float64,
and how many times its accuracy it may miss and still be called converged."""


@method("statistical", parts=(PRODUCTS, PRECONDITIONER))
class ShiftInvert:
    """Shift-and-invert with preconditioned inner systems.

    Parameters
    ----------
    proxy : str, int, array or None
        Whose rows precondition: the name or index of the coordinator's own site, or public rows (n x d).
    inner : "cg" or "nesterov"
        How the linear systems are solved.
    start : "random" or "one-shot"
        The one-shot start costs one round and reveals every site's leading directions to the coordinator.
    angle_tol : float, optional
        Stop as soon as the estimated sine of the angle to the exact answer is at most this; without ``tol`` the default is
        1e-6, or what rounding allows.
    gap : float, optional
        The gap behind the wanted eigenvalues, as a share of tr C; None reads it off the proxy, or takes a tenth of rho.
    row_bound : float, optional
        A bound on the squared length of every row (centred and scaled as asked) at every site: mu is then that of Theorem 6, and
        not estimated from the proxy's rows.
    literal : bool
        Algorithm 1 of the paper with its constants, for k = 1: thousands of rounds.  It ends when its iterations are done,
        whatever tol is; if the confirmation finds that it ended elsewhere, it is not called converged.
    """

    proxy: str | int | Array | None = None
    inner: Literal["cg", "nesterov"] = "cg"
    start: Start = "random"
    angle_tol: float | None = None
    gap: float | None = None
    row_bound: float | None = None
    literal: bool = False

    name = "shift-invert"
    default_angle = LINEAR_ANGLE

    def __post_init__(self) -> None:
        check_choice("start", self.start, Start)
        check_angle_tol(self.angle_tol)
        check("inner", self.inner, self.inner in ("cg", "nesterov"), "'cg' or 'nesterov'")
        share = self.gap is None or (isinstance(self.gap, Real) and 0 < self.gap < 1)
        check("gap", self.gap, share, "a share of the trace in (0, 1), or None to read it off the proxy")
        if self.row_bound is not None:
            check_positive("row_bound", self.row_bound, ", or None to estimate mu from the proxy's rows")
            check("row_bound", self.row_bound, self.proxy is not None, "left out without proxy=, whose rows it is about")
        if self.literal and self.gap is None and self.proxy is None:
            raise InputError("literal=True needs an estimate of the gap: give gap= (a share of the trace) or proxy=")
        if self.literal and self.inner != "cg":
            raise InputError(
                f"inner={self.inner!r}: literal=True solves its systems to rounding, by conjugate gradients; leave inner out"
            )

    async def fit(self, setup: Setup, start: Array | None = None, state: State | None = None) -> Solution:  # noqa: ARG002
        """Find one vector after the other."""
        k, goal = setup.whole_components(), Goal.of(setup, self.angle_tol, self.default_angle)
        if self.literal and k > 1:
            raise InputError(f"n_components={k}: literal=True is the paper's algorithm for one component; use literal=False")
        if setup.max_rounds < k + 2:
            raise InputError(
                f"max_rounds={setup.max_rounds} is too few for n_components={k}: shift-invert takes a round for each and more; "
                "raise it"
            )
        inverse = await preconditioner(setup, self.proxy, k, row_bound=self.row_bound)
        B, rounds = await first_block(setup, k, self.start, start)  # line 1
        nothing, caution = np.zeros((setup.n_features, 0)), 1.0
        find = self._literal if self.literal and setup.trace > 0 else self._vector
        while True:
            C, believed, finished = Deflated(nothing, nothing, rounds, setup.max_rounds), 0.0, True
            for j in range(k):  # line 8
                C.max_rounds = setup.max_rounds - 1 - (k - 1 - j)  # every vector takes one round at least, and line 9
                found = await find(setup, C, inverse, B[:, j], goal, caution * np.sqrt(k))
                C.deflate(found.w, found.Cw)
                believed, finished = max(believed, found.angle), finished and found.good
            verdict = await confirm(setup, C.Z, goal, C.rounds)  # line 9
            if self.literal or verdict.good(goal) or verdict.rounds + k + 1 >= setup.max_rounds:
                break
            rounds, caution = verdict.rounds, caution * verdict.caution(goal, caution * believed)
            B = verdict.better if verdict.lost else verdict.basis
        return self._literal_solution(verdict, finished) if self.literal else confirmed_solution(setup, verdict, goal)

    async def _vector(
        self, setup: Setup, C: Deflated, inverse: Preconditioner | None, w: Array, goal: Goal, caution: float
    ) -> Found:
        """The next eigenvector, from w (d), to a ``caution``-th of the goal."""
        w = _unit(C.project(w), C, setup)
        Cw = await C.times(w)
        lowest = 0.0
        while True:  # line 2
            rho = float(w @ Cw)
            delta = self._gap(setup, inverse, C.Z.shape[1], GAP_SHARE * rho)
            r = Cw - rho * w
            size = float(np.linalg.norm(r))
            angle = residual_angle(size, rho, rho - delta)
            await C.tell(setup, w, Cw, angle)
            good = goal.tol is not None and caution * size <= goal.tol * setup.trace
            good = good or (goal.angle is not None and caution * angle <= goal.angle)
            good = good or size <= FINEST * rho or rho <= NOTHING * setup.trace  # then any other direction left would do as well
            if good or C.exhausted:  # line 3
                return Found(w, Cw, angle, good)
            shift = max(lowest, rho + float(np.clip(size, SHORTEST_SHIFT * delta, delta)))  # line 4
            before = C.rounds
            solved = await self._solve(System(C, shift, inverse), w, r, shift - rho)  # line 5
            if C.rounds == before:  # the residual is nothing but rounding errors: no step would change w
                return Found(w, Cw, angle, good)
            if solved.negative is not None:  # line 6
                p, Cp = solved.negative
                w, Cw = p / np.linalg.norm(p), Cp / np.linalg.norm(p)
                lowest = float(w @ Cw) + delta
                continue
            Cz = shift * solved.z - w + solved.residual
            length = np.linalg.norm(solved.z)
            w, Cw = solved.z / length, Cz / length  # line 7

    async def _solve(self, system: System, w: Array, r: Array, distance: float) -> Solved:
        """(lambda I - C)^-1 w from the guess w / (lambda - rho), whose residual is r / (lambda - rho)."""
        enough = REDUCTION * float(np.linalg.norm(r)) / distance
        if self.inner == "cg":
            return await conjugate_gradient(system, w / distance, r / distance, enough)
        return await nesterov(system, w / distance, r / distance, enough, distance)

    async def _literal(
        self, setup: Setup, C: Deflated, inverse: Preconditioner | None, w: Array, _goal: Goal, _caution: float
    ) -> Found:
        """Algorithm 1, with tr C, or as many ``row_bound`` as rows, in the place of the bound 1 on lambda_1."""
        d, epsilon = setup.n_features, ACCURACY if self.angle_tol is None else self.angle_tol**2
        unit, p = (setup.trace, FAILURE) if self.row_bound is None else (setup.n_samples * self.row_bound, FAILURE / 3)
        delta = 5 / 8 * self._told_gap(setup, inverse, 0)  # in [gap/2, 3 gap/4]
        if delta <= 0:
            raise InputError(
                "literal=True needs the gap, and the proxy's first two variances are equal; give gap= (a share of the trace)"
            )
        m_1 = int(np.ceil(8 * np.log(144 * d / p**2)))  # line 2 of Algorithm 1
        m_2 = int(np.ceil(1.5 * np.log(18 * d / (p**2 * epsilon))))
        ratio = delta / unit / 8
        finest = max(FINEST, min(ratio ** (m_1 + 1) / 16, epsilon / 4 * ratio ** (m_2 + 1)))  # line 3
        shift, step = unit + delta, np.inf  # line 4
        Cw = np.zeros(d)
        while step > delta and not C.exhausted:  # lines 5 to 13
            system = System(C, shift, inverse)
            for _ in range(m_1):
                w, Cw, _ = await self._invert(setup, system, w, Cw, finest)
            _, _, inverted = await self._invert(setup, system, w, Cw, finest)
            if C.exhausted:
                break
            step = 0.5 / (inverted - finest / unit)
            shift -= step / 2
        for _ in range(m_2):  # lines 15 to 17
            w, Cw, _ = await self._invert(setup, System(C, shift, inverse), w, Cw, finest)
        size = float(np.linalg.norm(Cw - (w @ Cw) * w))
        angle = 1.0 if C.exhausted else residual_angle(size, float(w @ Cw), float(w @ Cw) - delta)
        return Found(w, Cw, angle, not C.exhausted)

    async def _invert(self, setup: Setup, system: System, w: Array, Cw: Array, finest: float) -> tuple[Array, Array, float]:
        """z = M^-1 w at length one, C z, and w^T M^-1 w, by conjugate gradients to a relative residual of ``finest``.

        Once the rounds are used up, w and C w as they are.
        """
        if system.C.exhausted:
            return w, Cw, 0.0
        solved = await conjugate_gradient(system, np.zeros(len(w)), w, finest)
        length = float(np.linalg.norm(solved.z))
        z, Cz = solved.z / length, (system.shift * solved.z - w + solved.residual) / length
        await system.C.tell(setup, z, Cz, 1.0)
        return z, Cz, float(w @ solved.z)

    def _gap(self, setup: Setup, inverse: Preconditioner | None, j: int, most: float) -> float:
        """The gap behind eigenvalue j + 1: given, or the proxy's, but then at most ``most``, and that where it has none."""
        told = self._told_gap(setup, inverse, j)
        if self.gap is not None:
            return told
        return min(most, told) if told > SHORTEST_SHIFT * most else most

    def _told_gap(self, setup: Setup, inverse: Preconditioner | None, j: int) -> float:
        """The gap behind eigenvalue j + 1 that the user or the proxy tells of, 0 if neither does."""
        if self.gap is not None:
            return float(self.gap) * setup.trace
        return float(inverse.values[j] - inverse.values[j + 1]) if inverse is not None else 0.0

    def _literal_solution(self, verdict: Verdict, finished: bool) -> Solution:
        known = verdict.told()
        asked = np.sqrt(ACCURACY) if self.angle_tol is None else self.angle_tol
        right = verdict.certain and not verdict.lost and (verdict.angle is None or verdict.angle <= LITERAL_SLIP * asked)
        if not finished:
            reason = f"max_rounds reached before Algorithm 1 was done; {known}; raise max_rounds or use solver='davidson'"
        elif right:
            reason = f"all iterations of Algorithm 1 done; {known}"
        else:
            reason = f"all iterations of Algorithm 1 done, but not at the answer; {known}; give a smaller gap=, or use 'davidson'"
        return verdict.solution(finished and right, reason)


@dataclass(frozen=True, eq=False)
class Found:
    """A unit vector w (d), P C P w (d), the estimated angle, and whether that is good enough."""

    w: Array
    Cw: Array
    angle: float
    good: bool


def _unit(w: Array, C: Deflated, setup: Setup) -> Array:
    """w at length one; another direction where w has been found already."""
    length = float(np.linalg.norm(w))
    if length > STILL_NEW:
        return w / length
    other = C.project(random_orthonormal(len(w), 1, setup.seed + C.Z.shape[1])[:, 0])
    return other / max(float(np.linalg.norm(other)), STILL_NEW)
