r"""What a random block in the basis proves: no direction of large variance was missed, and how far the answer can be off.

A space Q that is invariant under C, or nearly so, gives Ritz vectors with small residuals whether or not they are the leading
ones: a start that has nothing of an eigenvector never learns of it.  A random block cannot have nothing of any direction.  So
every space grown here contains a random orthonormal block Omega (d x b, b = k + :func:`spare`), from the first round to the
last, and the sites' products tell what it would have shown.

**Identity.**  Let C be symmetric, Q (d x m) orthonormal with products C Q, T = Q^T C Q with eigenpairs (theta_j, y_j), Ritz
vectors q_j = Q y_j, residuals r_j = C q_j - theta_j q_j; Z the leading k Ritz vectors, W the others.  For an eigenpair (lambda,
v) of C the residuals satisfy v^T q_j (lambda - theta_j) = v^T r_j.  So if span(Q) contains Omega,

    v^T Omega = v^T Z Z^T Omega + v^T F(lambda),    F(lambda) = sum_{j > k} r_j (q_j^T Omega) / (lambda - theta_j)   (d x b),

and F is known to whoever holds Q and C Q.  (F is the residual of the Galerkin solution of (lambda I - C) X = Omega on W.)

**Theorem.**  Let V be the leading k + 1 eigenvectors of C and let mu >= theta_{k+1}.  If lambda_{k+1} > mu, then

    smallest singular value of V^T Omega  <=  sqrt(k + 1) max_{lambda >= mu} ||F(lambda)||_2.

*Proof.*  V has k + 1 columns and Z has k, so some unit vector u = V a has Z^T u = 0.  Its eigenvalues all exceed mu, so the
identity gives u^T Omega = sum_i a_i v_i^T F(lambda_i), of length at most sqrt(k + 1) max ||F||; and ||u^T Omega|| is at least the
smallest singular value.

Omega is drawn without regard to C, so V^T Omega is a (k + 1) x b corner of a uniformly random orthonormal matrix, and its
smallest singular value is below :func:`least_share` with probability at most delta = ``FAILURE`` (Chen and Dongarra's bound for a
Gaussian matrix, over the norm that its d x b extension may have).  Hence, **with probability at least 1 - delta over the seed,
whatever C and whatever else is in the space: lambda_{k+1} <= mu for every mu with sqrt(k + 1) max_{lambda >= mu} ||F(lambda)||
< least_share**.  With mu < theta_k this says that nothing was missed, and the residuals bound the angle (Davis and Kahan, to
first order in it):

    sin angle(Z, exact)  <=  sqrt(sum_{j <= k} (||r_j|| / (theta_j - mu))^2).

**As a function of gap and rounds.**  If span(Q) holds the block Krylov space of Omega after j rounds, F is a residual polynomial:
with eps = lambda / theta_{k+1} - 1 it falls like exp(-2 (j - 1) sqrt(eps)), so a missed direction whose variance exceeds that of
component k + 1 by the factor 1 + eps survives j rounds only with a probability of about sqrt(d) exp(-2 (j - 1) sqrt(eps)) to
the power of :func:`spare`.  No tolerance enters: a loose one stops later than its residual alone would allow, until F is
small enough.

**After a restart** only ``NARROW`` columns of Omega are kept.  The same identity then excludes every single eigenvector, one by
one: ||v^T Omega|| < least_share for one of k + 1 given vectors has a probability of at most delta.  That is weaker only for
eigenvalues that agree to within the residual: a direction within their common space is not given beforehand.

What it does not cover: eigenvalues of C that agree with one another to rounding more often than b times; rounding errors in
C Q beyond those measured by the asymmetry of Q^T C Q; and sites that lie.

References
    C. Davis, W. M. Kahan, "The rotation of eigenvectors by a perturbation III", SIAM J. Numer. Anal. 7 (1970);
    Z. Chen, J. J. Dongarra, "Condition numbers of Gaussian random matrices", SIMAX 27 (2005), Lemma 4.1;
    J. Kuczynski, H. Wozniakowski, "Estimating the largest eigenvalue by the power and Lanczos algorithms with a random start",
    SIMAX 13 (1992), on what random starts exclude.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, lgamma, log, sqrt
from typing import Literal

import numpy as np

from .krylov_space import KrylovSpace, Ritz
from .linalg import Array, without
from .tall import inner, times

FEWEST_SPARE, SPARE_SHARE = 4, 5
"""Columns of the random block beyond the k components: so many, or a fifth of k.  One makes the gap visible, each one more makes
bad luck much rarer, and rounds fewer.  Four were chosen among 2, 4, 6 and 8 with one component of 300 features and a gap of 2 %.
A fifth makes b log(1 / :func:`least_share`), columns times the rounds of a proof, hardly more than it is at best: for 500 to
100000 features within 3 % for 20 to 200 components, where four columns take 1.1 to 1.4 times as much."""

ALLOWED = 100
"""Columns of a block that sites allow unless their policy says otherwise (``runtime/policy.py``): where k + 4 are no more, a
block is not made wider."""

FAILURE = 1e-6
"""Largest probability that the seed hides a direction from the theorem."""

SHARES_OF_GAP = (0.99, 0.9, 0.7, 0.5, 0.3, 0.1, 0.03)
"""How much of the Ritz gap theta_k - theta_{k+1} may be kept: the bound mu is the lowest of these that F allows, and that lies
above theta_{k+1} by more than ``ABOVE`` times the rounding errors."""

EPS = float(np.finfo(float).eps)

LOOKED_AT, SLACK = (0.0, 0.1, 1.0), 0.5
"""F falls with lambda, though not always steadily: it is looked at not only at mu but also these shares above it, and must be
smaller by a factor that is far more than it was ever seen to rise between them."""

NARROW = 3
"""Columns of the random block that are kept over restarts."""

SAME = 1e-9
"""A direction whose variance exceeds that of component k by no more than this share of it was not missed: it would do as well."""

EQUAL = 1e-10
"""Values at the cut that differ by more than this share are not called equal, even if rounding errors are larger."""

TIE, ZERO, ABOVE = 16.0, 8.0, 1.5
"""Ritz values closer than this many times the rounding errors are equal as far as anybody can tell; and such below are zero; and
a bound that is no closer is one."""

Cut = Literal["clear", "tied", "hidden", "empty"]
"""Behind the last component asked for the variance falls; or stays the same; or falls by less than rounding errors; or there is
none left before that."""


def spare(k: int) -> int:
    """Columns of a random block beyond those of k components.

    >>> spare(1), spare(24), spare(80), spare(90), spare(100)
    (4, 4, 16, 10, 20)
    """
    most = ALLOWED - k if k <= ALLOWED - FEWEST_SPARE else k
    return max(FEWEST_SPARE, min(k // SPARE_SHARE, most))


def least_share(d: int, k: int, b: int, failure: float = FAILURE) -> float:
    """A bound that the smallest singular value of a k x b corner of a random d x b orthonormal matrix exceeds, but for
    ``failure``.

    >>> least_share(100, 2, 4) > least_share(100, 2, 3) > least_share(10000, 2, 3) > 0
    True
    """
    if k > b:
        return 0.0
    p = b - k + 1
    log_density = (b - k - 1) / 2 * log(2) + lgamma((b + 1) / 2) - lgamma(k / 2) - lgamma(b - k + 1)
    square = exp((log(failure / 2) - log_density - log(2 / p)) * 2 / p)
    return min(1.0, sqrt(square) / (sqrt(d) + sqrt(b) + sqrt(2 * log(2 / failure))))


@dataclass(frozen=True, eq=False)
class Certificate:
    """What the space and its random block say of the leading k Ritz vectors.

    Attributes
    ----------
    angle : float or None
        Bound on the sine of the largest angle to the exact answer, of the leading ``rank`` components; None while there is none.
    rounding : float
        The angle that rounding errors in the products make by themselves.
    missed : bool
        Whether a direction may have been missed whose eigenvalue exceeds theta_k by more than the residual, and ``SAME``.
    cut : "clear", "tied", "hidden" or "empty"
        What the values of components k and k + 1 are to each other, as far as rounding allows to tell; "clear" while unknown.
    rank : int
        How many of the k Ritz values are more than rounding errors; the others belong to directions without variance.
    bound : float or None
        What eigenvalue k + 1 is at most, where that is below theta_k.
    """

    angle: float | None
    rounding: float
    missed: bool
    cut: Cut
    rank: int
    bound: float | None = None

    @classmethod
    def unknown(cls, k: int) -> Certificate:
        """Of k Ritz vectors for which nobody has looked for a proof."""
        return cls(None, 1.0, missed=True, cut="clear", rank=k)


def certify(space: KrylovSpace, ritz: Ritz, omega: Array, coarse: float = 0.0) -> Certificate:
    """The certificate of ``ritz`` from a space whose span contains the random block ``omega`` (d x b).

    Products are known to be off by ``coarse``, the length of a column, beside rounding errors.
    """
    d, k, values = space.Q.shape[0], ritz.k, ritz.values
    if k >= d:
        return Certificate(0.0, 0.0, missed=False, cut="clear", rank=k)
    noise = np.maximum(rounding_errors(space, ritz), coarse)
    rank = int(np.sum(values[:k] > ZERO * float(noise.max(initial=0.0))))
    if rank < k:
        if rank == 0:
            return Certificate(None, 1.0, missed=False, cut="empty", rank=0)
        found = certify(space, ritz.leading(rank), omega, coarse)
        known: Cut = "clear" if found.missed else "empty"
        return Certificate(found.angle, found.rounding, found.missed, cut=known, rank=min(rank, found.rank))
    if k >= space.size:
        return Certificate.unknown(k)
    behind = Behind(space, ritz, omega)
    lengths = np.maximum(ritz.off, noise)
    inside, margin = float(values[k - 1]), float(np.linalg.norm(lengths))
    gap = inside - float(values[k])
    excluded = behind.excludes(inside + max(margin, SAME * inside))
    if gap <= TIE * float(noise[-1]):
        at_rounding = margin <= TIE * float(np.linalg.norm(noise))
        cut: Cut = "clear" if not (excluded and at_rounding) else "tied" if gap <= EQUAL * inside else "hidden"
        return Certificate(None, 1.0, missed=not excluded, cut=cut, rank=k)
    above = [share for share in SHARES_OF_GAP if (1 - share) * gap > ABOVE * float(noise[-1])]
    allowed = (inside - share * gap for share in above) if excluded and behind.excludes(inside) else ()
    bound = next((mu for mu in allowed if behind.excludes(mu)), None)
    if bound is None:
        return Certificate(None, 1.0, missed=not excluded, cut="clear", rank=k)
    return _bounded(ritz, noise, bound)


def certify_again(space: KrylovSpace, ritz: Ritz, before: Certificate, coarse: float = 0.0) -> Certificate | None:
    """The certificate of ``ritz`` from a larger space, by the bound on eigenvalue k + 1 that was proved ``before``.

    None if there was no such bound, or if it leaves less than half of the gap that is seen now.
    """
    k, values = ritz.k, ritz.values
    if before.bound is None or k >= len(values) or not values[k - 1] - before.bound >= 0.5 * (values[k - 1] - values[k]) > 0:
        return None
    noise = np.maximum(rounding_errors(space, ritz), coarse)
    return _bounded(ritz, noise, before.bound) if values[k - 1] > ZERO * float(noise.max()) else None


def _bounded(ritz: Ritz, noise: Array, bound: float) -> Certificate:
    """What residuals, and rounding errors (k,), say of the angle where eigenvalue k + 1 is at most ``bound``."""
    k = ritz.k
    lengths = np.maximum(ritz.off, noise)
    gaps = ritz.values[:k] - bound
    angle, rounding = (min(1.0, float(np.linalg.norm(error / gaps))) for error in (lengths, noise))
    return Certificate(angle, rounding, missed=False, cut="clear", rank=k, bound=bound)


def may_be_rounding(ritz: Ritz, noise: Array, times: float) -> bool:
    """Whether the angle may turn out to be at most so many ``times`` that of the rounding errors (k,), by any of the bounds on
    eigenvalue k + 1 that :func:`certify` may prove; this is known before anybody looks for a proof.  There must be a gap."""
    inside, behind = float(ritz.values[ritz.k - 1]), float(ritz.values[ritz.k])
    found = (_bounded(ritz, noise, inside - share * (inside - behind)) for share in SHARES_OF_GAP)
    return any(one.angle is not None and one.angle <= times * one.rounding for one in found)


def rounding_errors(space: KrylovSpace, ritz: Ritz) -> Array:
    """Lengths (k,) of the rounding errors in the products C q_j of the leading Ritz vectors.

    Q^T C Q is symmetric but for rounding errors, of which it shows the part within span(Q); they are taken to be as large in all
    other directions, and never below what rounding the entries of C q_j themselves makes of them.
    """
    k = ritz.k
    floor = EPS * np.abs(ritz.values[:k])
    return np.maximum(space.noise(ritz.turn[:, :k], ritz.lengths), floor)


def _share(d: int, k: int, b: int) -> float:
    """What ||F|| must stay below: by the theorem for a block much wider than k, else for each of k + 1 given vectors.

    A corner that is nearly square has now and then a singular value of next to nothing, which no F would stay below.
    """
    return least_share(d, k + 1, b) / sqrt(k + 1) if b > k + 2 else least_share(d, 1, b, FAILURE / (k + 1))


class Behind:
    """F(lambda) of the theorem: what the Ritz vectors behind the leading k leave of the random block ``omega`` (d x b)."""

    def __init__(self, space: KrylovSpace, ritz: Ritz, omega: Array) -> None:
        d, b = omega.shape
        k = ritz.k
        assert len(ritz.values) == space.size, "F is of all Ritz vectors behind the leading ones"
        self.space, self._ritz, self.values, self.turn = space, ritz, ritz.values[k:], ritz.turn[:, k:]
        first = np.array_equal(space.Q[:, :b], omega)  # then its inner products are known
        self.met = self.turn.T @ (space.lengths[:, :b] if first else inner(space.Q, omega))
        self.share = SLACK * _share(d, k, b) if space.size < d else 1.0
        above = float(ritz.values[k - 1]) + float(np.linalg.norm(ritz.off)) if k else 0.0
        self.looked_at = tuple(above + step * abs(above) for step in LOOKED_AT)

    def solved(self) -> Array:
        """Galerkin solutions X (d x 3b) of (lambda I - C) X = Omega on the Ritz vectors behind, where F is looked at.

        A space that keeps them and Omega has the same F there, however much else it forgets.
        """
        return times(self.space.Q, self.turn @ self._weights(self.looked_at))

    def left(self) -> Array:
        """F(lambda) (d x 3b) where it is looked at: the directions in which a missed one would show."""
        return self._left(self.looked_at)

    def excludes(self, lam: float) -> bool:
        """Whether a missed eigenvalue of ``lam`` or more would have shown.

        In a Krylov space F is seen without a pass over the space, but for a remainder; where that decides, F itself is made.
        """
        if lam <= float(self.values[0]):
            return False
        lams = [lam + step * abs(lam) for step in LOOKED_AT]
        if self.space.is_krylov:
            weights, newest = self._weights(lams), self.turn[self.space.size - self.space.fresh :]
            largest = max(map(_size, np.split(self.space.residuals(newest @ weights), len(lams), axis=1)))
            if largest >= self.share:
                return False
            if largest + self.space.lacking_at_most(float(np.linalg.norm(weights))) < self.share:
                return True
            if largest + self.space.lacking(times(self.turn, weights)) < self.share:
                return True
        return all(_size(part) < self.share for part in np.split(self._left(lams), len(lams), axis=1))

    def _weights(self, lams: Sequence[float]) -> Array:
        """The Ritz vectors behind in the solutions for some lambda, side by side."""
        return np.concatenate([self.met / (lam - self.values)[:, None] for lam in lams], axis=1)

    def _left(self, lams: Sequence[float]) -> Array:
        """F at some lambda, side by side: one pass over the space for all of them."""
        weights = self._weights(lams)
        left = times(self.space.CQ, self.turn @ weights) - times(self.space.Q, self.turn @ (weights * self.values[:, None]))
        return without(left, self._ritz.Z)  # it is orthogonal to Z but for rounding errors, large where theta_1 is


def _size(F: Array) -> float:
    """The largest singular value."""
    return sqrt(max(0.0, float(np.linalg.eigvalsh(F.T @ F)[-1])))
