"""A site's part of FAPS: its subproblem, eigensolvers for it, and the quantities that the paper's theory speaks of.

The subproblem asks for the leading k eigenvectors of H = C_i + Lambda_i + beta_i Z Z^T (12).  H is never formed where it is
large: C_i is applied through the rows, and Lambda_i = X L^T + L X^T and Z Z^T have low rank.  Equation numbers are those of the
FAPS paper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import scipy.linalg

from ...numerics.krylov_space import leading_eigenpairs
from ...numerics.linalg import Array, orthonormalize, random_orthonormal, symmetrize, top_eigenpairs, without

Inner = Literal["subspace", "lanczos", "exact"]

DENSE_FEATURES = 500
"""Up to this many features the exact solver forms H: d products with C_i cost less than the iterations they replace."""

C1, C1_PRIME = 0.25, 2.0
"""The constants with which condition (13) is watched."""

MOST_SEEN = 6
"""So many of the latest blocks are asked for Rayleigh quotients."""

VISIBLE = 1e-7
"""Directions of which a unit vector has less than this outside span(Z) are not asked for Rayleigh quotients: rounding."""


@dataclass(eq=False)
class Subproblem:
    """H = C + X L^T + L X^T + beta Z Z^T (d x d), given by C's action; ``seen`` are the blocks multiplied by C so far."""

    scatter_action: Callable[[Array], Array]
    X: Array
    L: Array
    Z: Array
    beta: float
    seen: list[tuple[Array, Array]] = field(default_factory=list)

    def scatter(self, V: Array) -> Array:
        """C V, one pass over the rows."""
        CV = self.scatter_action(V)
        self.seen.append((V, CV))
        return CV

    def rest(self, V: Array) -> Array:
        """(H - C) V."""
        return self.X @ (self.L.T @ V) + self.L @ (self.X.T @ V) + self.beta * (self.Z @ (self.Z.T @ V))


def solve(H: Subproblem, V: Array, CV: Array, inner: Inner, steps: int, change: float = 0.0) -> tuple[Array, Array]:
    """About the leading k eigenvectors X of H, from V (d x k) with its product C V, and C X."""
    if inner == "exact":
        return exact(H, V)
    return block_lanczos(H, V, CV, steps) if inner == "lanczos" else subspace_iteration(H, V, CV, steps, change)


def subspace_iteration(H: Subproblem, V: Array, CV: Array, steps: int, change: float = 0.0) -> tuple[Array, Array]:
    """V (d x k) and C V after at most ``steps`` iterations V <- orth(H V), or until V changes by less than ``change`` (26)."""
    for _ in range(steps):
        V_prev, V = V, orthonormalize(CV + H.rest(V))
        CV = H.scatter(V)
        if np.linalg.norm(V - V_prev) <= change * np.linalg.norm(V):
            break
    return V, CV


def block_lanczos(H: Subproblem, V: Array, CV: Array, steps: int) -> tuple[Array, Array]:
    """Leading Ritz vectors X (d x k) of H on span(V, H V, ..., H^steps V), and C X."""
    k = V.shape[1]
    Q, CQ, newest = V, CV, CV + H.rest(V)
    for _ in range(steps):
        B = orthonormalize(without(newest, Q))[:, : Q.shape[0] - Q.shape[1]]
        if B.shape[1] == 0:
            break
        B = orthonormalize(without(B, Q))
        CB = H.scatter(B)
        Q, CQ = np.concatenate([Q, B], axis=1), np.concatenate([CQ, CB], axis=1)
        newest = CB + H.rest(B)
    _, Y = top_eigenpairs(Q.T @ (CQ + H.rest(Q)), k)
    return np.ascontiguousarray(Q @ Y), np.ascontiguousarray(CQ @ Y)


def exact(H: Subproblem, V: Array) -> tuple[Array, Array]:
    """The leading k eigenvectors X of H to rounding, whatever V (d x k) is, and C X."""
    d, k = V.shape
    if d <= DENSE_FEATURES:
        eye = np.eye(d)
        _, X = top_eigenpairs(H.scatter(eye) + H.rest(eye), k)
    else:
        start = orthonormalize(V + 1e-3 * random_orthonormal(d, k, seed=0))  # V may span an invariant subspace
        scale = float(np.linalg.norm(H.scatter_action(start) + H.rest(start)))
        _, X = leading_eigenpairs(lambda B: H.scatter(B) + H.rest(B), start, k, scale, 1e-14)
    return X, H.scatter(X)


def largest_outside(H: Subproblem) -> float | None:
    """Largest Rayleigh quotient of C_i that the blocks seen show outside span(Z); None where they lie inside."""
    (Z, CZ), *others = H.seen
    if not others:
        return None
    V, CV = (np.concatenate(parts, axis=1) for parts in zip(*others[-MOST_SEEN:], strict=True))
    inside = Z.T @ V
    U, lengths, Vt = scipy.linalg.svd(V - Z @ inside, full_matrices=False, check_finite=False)
    visible = lengths > VISIBLE
    if not visible.any():
        return None
    U, back = U[:, visible], Vt[visible].T / lengths[visible]
    return float(top_eigenpairs(symmetrize(U.T @ ((CV - CZ @ inside) @ back)), 1)[0][0])


def distance(X: Array, Z: Array) -> float:
    """d_p(X, Z) = ||X X^T - Z Z^T||_F of two bases of the same width, from sines (21)."""
    return float(np.sqrt(2.0) * np.linalg.norm(without(Z, X)))


def strictness(n_sites: int) -> float:
    """What delta_i of (14) must stay below by Assumption 6 (i): sigma / (2 sqrt(rho d)), sigma^2 = 1 - 1 / (2 rho d).

    d is the number of sites and rho the largest ratio of two penalties.  Sites do not tell their penalties, so this is the bound
    for equal ones (rho = 1), the weakest that the paper may ask for.

    >>> round(strictness(8), 3)
    0.171
    """
    return float(np.sqrt(1 - 1 / (2 * n_sites)) / (2 * np.sqrt(n_sites)))


WATCHED = ("distance2", "lagrangian", "decrease", "gradient2", "gradient_after2", "met_13", "met_14")


def watch(H: Subproblem, captured: float, X_new: Array, CX: Array, largest: float, strict: float) -> Array:
    """What the theory watches, in the order of WATCHED; ``captured`` is tr(X^T C X) and ``largest`` lambda_1(C) = ||A_i||^2.

    Condition (14) counts as met where the gradient shrinks to less than ``strict`` of itself (:func:`strictness`).
    """
    X, L, Z, beta = H.X, H.L, H.Z, H.beta
    overlap, apart = X.T @ Z, distance(X, Z)
    lagrangian = -captured / 2 + np.sum(overlap.T * (Z.T @ L)) + beta / 4 * apart**2  # (10), with <Lambda, X X^T> = 0
    HX = CX + H.rest(X_new)
    before, after = captured + beta * np.sum(overlap**2), np.sum(X_new * HX)  # -2 h(X), -2 h(X_new)
    gradient = beta * np.linalg.norm((Z - X @ overlap) @ overlap.T)  # (29)
    gradient_after = np.linalg.norm(without(HX, X_new))
    rounding = 1e-13 * (largest + beta)
    enough = (after - before) / 2 + rounding >= C1 * gradient**2 / max(C1_PRIME * largest + beta, np.finfo(float).tiny)  # (13)
    closer = gradient_after < strict * gradient + rounding  # (14)
    return np.array([apart**2, lagrangian, (after - before) / 2, gradient**2, gradient_after**2, enough, closer])
