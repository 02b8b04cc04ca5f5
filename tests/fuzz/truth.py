"""What the answer is, and how well it can be known.

Rows are centred and scaled in long double (about the first row first, so that a large offset cancels exactly), then a singular
value decomposition in float64 (by Jacobi's method where columns differ much in length) gives the eigenvalues and eigenvectors of
the scatter C = Y^T Y.

How well can they be known?  Two things perturb C, and this module bounds what each does to the answer, to first order.

*The data.*  An entry x_ij of float64 stands for anything within eps |x_ij|: a feature with offset o and spread s holds
eps o / s relative digits.  Let E be such a change of Y; the norm of its column j is at most e_j = eps ||x_j|| / D_j (D_j the
scale), and the scale itself, where there is one, is known to eps rms(x_j) / s_j, which adds that share of ||y_j||.  For a unit
vector v write e(v) = sqrt(sum_j e_j^2 v_j^2), the size of E v for unrelated columns.  Then for i <= k < j

    v_j^T (C' - C) v_i = sigma_j u_j^T E v_i + sigma_i v_j^T E^T u_i + ...  <=  sigma_j e(v_i) + sigma_i e(v_j) + e(v_i) e(v_j),

and v_i turns towards v_j by that over lambda_i - lambda_j.  With all columns alike this is Wedin's e / (sigma_k - sigma_{k+1}).
Because it asks how much of a direction lies in the noisy columns, a feature with a large offset excuses errors in its own
direction, but not in others.

*The arithmetic.*  A product Y^T Y in float64 is off by about sqrt(n) eps |Y|^T |Y| (n roundings that go either way), and the norm
of |Y|^T |Y| is at most tr C.  So any solver that works with C or C Z knows the eigenvalues to sqrt(n) eps tr C, and the angle at
the cut to that over lambda_k - lambda_{k+1}: a relative gap g allows eps / g, and components far below the first lose twice the
digits that they lie below it.

The two angles added up are ``Truth.angle`` (and eps k, because k rows are orthonormal to that at best); ``Truth.noise`` is what
both do to C itself, as a norm: the rounding in variances, trace and residuals.  Use both up to a factor such as ten.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from scipy.linalg.lapack import dgejsv

from tests.fuzz.problems import Array, Problem

EPS = float(np.finfo(np.float64).eps)
GRADED = 1e3
"""Columns whose lengths differ by more are decomposed with care."""

TIE, VAGUE = 10.0, 0.01
"""A gap of so many eps lambda_1 is a tie for every solver; from this rounding of the angle on, angles are not judged."""


@dataclass(frozen=True, eq=False)
class Truth:
    """The eigenvalues and eigenvectors of the scatter, all in units of ``unit`` (a power of two, squared for eigenvalues).

    Attributes
    ----------
    n, k : int
        Number of rows and of wanted components.
    Y : (n, d) array
        Centred and scaled rows.
    lengths : (d,) array
        Singular values of Y, descending, zeros appended.
    V : (d, d) array
        Eigenvectors of the scatter, in columns.
    columns : (d,) array
        e_j of the module's text: norms of what rounding of the given entries can be, column by column.
    unit : long double
        What Y was divided by.
    """

    n: int
    k: int
    Y: Array
    lengths: Array
    V: Array
    columns: Array
    unit: Any

    @cached_property
    def eigenvalues(self) -> Array:
        """Of the scatter, descending."""
        return self.lengths**2

    @cached_property
    def trace(self) -> float:
        return float(self.eigenvalues.sum())

    @property
    def leading(self) -> Array:
        """The wanted eigenvectors (d x k)."""
        return self.V[:, : self.k]

    @property
    def whole(self) -> bool:
        """Whether all directions are wanted, so that there is no cut."""
        return self.k == len(self.lengths)

    @cached_property
    def gap(self) -> float:
        """Of the eigenvalues at the cut, absolute."""
        s, k = self.lengths, self.k
        return float("inf") if self.whole else float((s[k - 1] - s[k]) * (s[k - 1] + s[k]))

    @property
    def relative_gap(self) -> float:
        """(lambda_k - lambda_{k+1}) / lambda_k; 1 where there is no cut, 0 where there is nothing."""
        if self.whole:
            return 1.0
        return self.gap / float(self.eigenvalues[self.k - 1]) if self.eigenvalues[self.k - 1] > 0 else 0.0

    @cached_property
    def noise(self) -> float:
        """How well C is known, as a norm."""
        e = float(np.linalg.norm(self.columns))
        return np.sqrt(self.n) * EPS * self.trace + e * (2 * float(self.lengths[0]) + e)

    @cached_property
    def angle(self) -> float:
        """The sine that rounding of the data and of any arithmetic with C allows; 1 at most."""
        if self.whole:
            return EPS * self.k
        if self.gap <= 0:
            return 1.0
        s, k = self.lengths, self.k
        e = np.linalg.norm(self.columns[:, None] * self.V, axis=0)
        i, j = np.ix_(range(k), range(k, len(s)))
        turn = (s[j] * e[i] + s[i] * e[j] + e[i] * e[j]) / ((s[i] - s[j]) * (s[i] + s[j]))
        return min(1.0, float(np.linalg.norm(turn)) + EPS * (self.k + np.sqrt(self.n) * self.trace / self.gap))

    @property
    def cut(self) -> Literal["clear", "vague", "tie"]:
        """Whether the wanted directions are determined, hardly, or not at all."""
        if not self.whole and self.gap <= TIE * EPS * self.eigenvalues[0]:
            return "tie"
        return "clear" if self.angle < VAGUE else "vague"

    def sine(self, Z: Array) -> float:
        """Of the largest angle between the wanted directions and the span of Z (d x k, orthonormal)."""
        V = self.leading
        return min(1.0, float(np.linalg.norm(V - Z @ (Z.T @ V), 2)))

    def residual(self, Z: Array) -> float:
        """||(I - Z Z^T) C Z||_F."""
        G = self.Y.T @ (self.Y @ Z)
        return float(np.linalg.norm(G - Z @ (Z.T @ G)))

    def ritz_values(self, Z: Array) -> Array:
        """Eigenvalues of Z^T C Z, descending: the variances that the span of Z has."""
        values = np.linalg.svd(self.Y @ Z, compute_uv=False) ** 2
        return np.r_[values, np.zeros(Z.shape[1] - len(values))]


def truth(problem: Problem) -> Truth:
    """Centre and scale in long double, decompose in float64."""
    tables = [np.asarray(X.toarray() if sp.issparse(X) else X).astype(np.longdouble) for X in problem.sites.values()]
    X = np.concatenate(tables)
    n = len(X)
    about = X - _mean(X)
    if problem.center == "site":
        about = np.concatenate([T - _mean(T) for T in tables])
    Y = X if problem.center is False else about
    spread = np.sqrt((about**2).sum(axis=0) / n)
    rounding = EPS * np.sqrt((X**2).sum(axis=0))
    if problem.scale is not None:
        D = np.where(spread > 0, spread, np.longdouble(1))
        relative = np.where(spread > 0, rounding / np.sqrt(np.longdouble(n)) / D, np.longdouble(0))
        Y = Y / D
        rounding = rounding / D + relative * np.sqrt((Y**2).sum(axis=0))
    largest = np.abs(Y).max()
    unit = np.exp2(np.floor(np.log2(largest))) if largest > 0 else np.longdouble(1)
    scaled = (Y / unit).astype(np.float64)
    lengths, V = decomposed(scaled)
    return Truth(n, problem.k, scaled, lengths, V, (rounding / unit).astype(np.float64), unit)


def decomposed(Y: Array) -> tuple[Array, Array]:
    """Singular values (d, descending, zeros appended) and right singular vectors (d x d) of Y (n x d).

    Columns of very different length keep their digits in Jacobi's method only: bidiagonalization spreads the rounding errors of
    the longest over all others, and gram would then be blamed for knowing them better.
    """
    n, d = Y.shape
    norms = np.linalg.norm(Y, axis=0)
    if norms.max(initial=0.0) > GRADED * norms.min(initial=np.inf) > 0:
        tall = np.concatenate([Y, np.zeros((max(0, d - n), d))])
        values, _, V, scaling, _, failed = dgejsv(tall, joba=0, jobu=3, jobv=0, jobr=0, jobt=0, jobp=0)
        if not failed:
            return values * (scaling[0] / scaling[1]), V
    _, found, Vt = np.linalg.svd(Y)
    return np.r_[found, np.zeros(d - len(found))], Vt.T


def _mean(X: Array) -> Array:
    """Of the columns, in long double: differences to the first row are exact where the rows are alike."""
    return X[0] + (X - X[0]).mean(axis=0)
