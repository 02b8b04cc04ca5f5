"""The likelihood of rows with holes under probabilistic PCA, its gradient, and what a step uphill must be measured by.

A row is y = m + W x + e (``holes.py``).  Of rows that miss entries at random the log-likelihood is

    l(W, m, s) = sum over rows of log N(y_o; m_o, W_o W_o^T + s I),

s the noise's variance.  With t = E[x | y_o], S = s M^-1 and e = y_o - m_o - W_o t, all zero where entries are missing, Fisher's
identity gives its gradient from what the E-step of EM computes:

    dl/dW = sum (e t^T - W_o S) / s,    dl/dm = sum e / s,    dl/dlog s = (sum ||e||^2 + tr W_o S W_o^T - s |o|) / (2 s).

References
    M. E. Tipping, C. M. Bishop, "Probabilistic principal component analysis", J. R. Stat. Soc. B 61 (1999), Appendices A and B;
    R. A. Fisher's identity: A. P. Dempster, N. M. Laird, D. B. Rubin, J. R. Stat. Soc. B 39 (1977), discussion.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .directions import new_directions
from .elsewhere import is_elsewhere
from .holes import Mask, scores_with_holes
from .holes_there import expected_scatter_there, likelihood_there
from .linalg import Array, fix_signs

LEAST_CURVATURE = 0.05
"""Of what EM takes it for: values that seem to lie closer to a component's may be far away where entries are missing."""


SMALLEST = 1e-6
"""Directions that are less new than this are not; and by this share a component's variance is above the noise."""


@dataclass(frozen=True, eq=False)
class Model:
    """Loadings W (d x k), mean (d,) and log of the noise's variance."""

    W: Array
    mean: Array
    log_noise: float

    @property
    def noise(self) -> float:
        """Variance of the noise."""
        return float(np.exp(self.log_noise))

    def flat(self) -> Array:
        """As one vector of d k + d + 1 numbers."""
        return np.concatenate([self.W.ravel(), self.mean, [self.log_noise]])

    @classmethod
    def of(cls, theta: Array, k: int) -> Model:
        """Inverse of :meth:`flat`."""
        d = (len(theta) - 1) // (k + 1)
        return cls(np.ascontiguousarray(theta[: d * k].reshape(d, k)), theta[d * k : -1].copy(), float(theta[-1]))

    def components(self) -> tuple[Array, Array]:
        """Principal axes (d x k) of W W^T + s I, and the variances (k,) along them, descending."""
        U, lengths, _ = np.linalg.svd(self.W, full_matrices=False)
        return fix_signs(np.ascontiguousarray(U)), lengths**2 + self.noise

    def turn(self) -> Array:
        """The k x k rotation after which the columns of W are along its principal axes."""
        U, _, Vt = np.linalg.svd(self.W, full_matrices=False)
        return np.asarray(Vt.T * np.where(np.sum(U * fix_signs(U), axis=0) < 0, -1.0, 1.0))


@dataclass(frozen=True, eq=False)
class Likelihood:
    """Sums over rows: s dl/dW (d x k), s dl/dm (d,), the log-likelihood, and expected squares of the noise."""

    W: Array
    mean: Array
    value: float
    squares: float

    def __add__(self, other: Likelihood) -> Likelihood:
        return Likelihood(self.W + other.W, self.mean + other.mean, self.value + other.value, self.squares + other.squares)


def likelihood(Y: Any, seen: Any, W: Array, noise: float) -> Likelihood:
    """Of rows Y (n x d, deviations from the mean) of which the entries ``seen`` (n x d) count.

    >>> Y, W = np.array([[1.0, 2.0], [0.5, -1.0]]), np.array([[1.0], [1.0]])
    >>> C = W @ W.T + 0.5 * np.eye(2)
    >>> whole = -np.log(2 * np.pi) * 2 - np.log(np.linalg.det(C)) - sum(y @ np.linalg.solve(C, y) for y in Y) / 2
    >>> bool(np.isclose(likelihood(Y, np.ones((2, 2), bool), W, 0.5).value, whole))
    True
    """
    if is_elsewhere(Y):
        return Likelihood(*likelihood_there(Y, seen, W, noise))
    (n, d), k = Y.shape, W.shape[1]
    Y = np.where(seen, Y, 0.0)
    found = scores_with_holes(Y, seen, W, noise)
    E = np.where(seen, Y - found.means @ W.T, 0.0)
    rows = np.bincount(found.pattern, minlength=len(found.inverses))
    first = np.zeros(len(rows), dtype=np.intp)
    first[found.pattern[::-1]] = np.arange(n)[::-1]
    spread = (seen[first] * rows[:, None]).T @ found.inverses.reshape(len(rows), k * k)  # sum of M^-1 where j is seen
    G = E.T @ found.means - noise * np.einsum("jab,jb->ja", spread.reshape(d, k, k), W)
    entries, squares = int(seen.sum()), float(np.sum(E * E))
    value = entries * np.log(2 * np.pi) + (entries - n * k) * np.log(noise) + float(found.log_determinants @ rows)
    value += squares / noise + float(np.sum(found.means**2))
    traces = float(np.trace(found.inverses, axis1=1, axis2=2) @ rows)
    return Likelihood(G, E.sum(axis=0), -value / 2, squares + noise * (n * k - noise * traces))


def em_step(model: Model, gradient: Model, n: int, free_mean: bool) -> Model:
    """The step of the EM algorithm, scores and missing entries unknown: the likelihood never falls over it.

    All that its M-step needs is in the gradient.  With C = W W^T + s I and S^ the expected scatter of whole rows about the mean,
    dl/dW = C^-1 (S^ - n C) C^-1 W, so the sum of E[(y - m) x^T] is F = C dl/dW + n W; the others follow in the same way.
    """
    W, s, (d, k) = model.W, model.noise, model.W.shape
    square = W.T @ W
    inverse = np.linalg.inv(square + s * np.eye(k))
    F = W @ (W.T @ gradient.W) + s * gradient.W + n * W
    b = W @ (W.T @ gradient.mean) + s * gradient.mean  # sum of E[y - m]
    scores, c = n * s * inverse + inverse @ (W.T @ F), inverse @ (W.T @ b)
    scores = (scores + scores.T) / 2
    both, moments = F, scores
    if free_mean:
        both = np.concatenate([F, b[:, None]], axis=1)
        moments = np.block([[scores, c[:, None]], [c[None, :], np.full((1, 1), float(n))]])
    found = np.linalg.solve(moments, both.T).T
    whitened = 2 * gradient.log_noise / s + n * (d - float(np.sum(inverse * square))) / s  # tr C^-1 S^ C^-1
    trace = s**2 * whitened + 2 * float(np.sum(W * F)) - float(np.sum((W.T @ F) * (inverse @ square).T))
    noise = (trace - float(np.sum(found * both))) / (n * d)
    mean = model.mean + found[:, k] if free_mean else model.mean
    return Model(np.ascontiguousarray(found[:, :k]), mean, float(np.log(noise)) if noise > 0 else model.log_noise)


def row_likelihoods(Y: Array, seen: Mask, W: Array, noise: float) -> Array:
    """Log-likelihoods (n,) of single rows Y (n x d, deviations from the mean) of which the entries ``seen`` (n x d) count."""
    Y = np.where(seen, Y, 0.0)
    found = scores_with_holes(Y, seen, W, noise)
    squares = np.where(seen, Y - found.means @ W.T, 0.0) ** 2
    distances = squares.sum(axis=1) / noise + (found.means**2).sum(axis=1) + found.log_determinants[found.pattern]
    entries = seen.sum(axis=1)
    return np.asarray(-0.5 * (entries * np.log(2 * np.pi) + (entries - W.shape[1]) * np.log(noise) + distances))


def expected_scatter_action(Y: Any, seen: Any, W: Array, noise: float, B: Array) -> Array:
    """The scatter that the model expects of whole rows, given what is seen of them, times B (d x b).

    That is Y^^T Y^ B, with Y^ the filled rows, and for each row s (I + W_m M^-1 W_m^T) B on what is missing.
    """
    if is_elsewhere(Y):
        return expected_scatter_there(Y, seen, W, noise, B)
    (n, d), k, b = Y.shape, W.shape[1], B.shape[1]
    found = scores_with_holes(Y, seen, W, noise)
    filled = np.where(seen, Y, found.means @ W.T)
    rows = np.bincount(found.pattern, minlength=len(found.inverses))
    first = np.zeros(len(rows), dtype=np.intp)
    first[found.pattern[::-1]] = np.arange(n)[::-1]
    lacks = (~seen[first]).astype(np.float64)
    products = (W[:, :, None] * B[:, None, :]).reshape(d, k * b)
    inner = np.matmul(found.inverses, (lacks @ products).reshape(-1, k, b)).reshape(-1, k * b)
    spread = ((lacks * rows[:, None]).T @ inner).reshape(d, k, b)
    missing = (lacks.T @ rows)[:, None] * B + np.einsum("ja,jab->jb", W, spread)
    return np.asarray(filled.T @ (filled @ B) + noise * missing)


@dataclass(frozen=True, eq=False)
class Frame:
    """What the inverse of the curvature is about, near a model: exact if no entry is missing and the values are right.

    With the variances lambda_i of components, lambda_j of directions known beside them, s elsewhere, and n_f the rows that have
    feature f, the curvature of -l in W along direction j of component i is n (lambda_i - lambda_j) / (s lambda_i).  (The EM
    algorithm takes it for n / s, hence its rate lambda_j / lambda_i.)  Within the components it is that of a covariance matrix,
    n / (lambda_i lambda_j) for its entry ij.  The mean's is n C^-1.

    Attributes
    ----------
    U, variances : (d, k) and (k,) arrays
        Components, and variances along them, above ``noise``.
    others, other_variances : (d, m) and (m,) arrays
        Further orthonormal directions that are known, orthogonal to U.
    noise : float
    seen : (d,) array
        Entries of each feature that are there.
    rows : int
    free_mean : bool
        Whether the mean is sought, too.
    """

    U: Array
    variances: Array
    others: Array
    other_variances: Array
    noise: float
    seen: Array
    rows: int
    free_mean: bool

    def model(self) -> Model:
        """The model that the frame was made at, with mean zero."""
        W = self.U * np.sqrt(self.variances - self.noise)
        return Model(W, np.zeros(len(self.U)), float(np.log(self.noise)))

    def moved(self, model: Model) -> Frame:
        """The frame about another model, whose loadings are along their principal axes; what is known beside them moves along."""
        U, variances = model.components()
        others = new_directions(self.others, U, SMALLEST)
        known = others.T @ self.others
        inside = (known * (self.other_variances - self.noise)) @ known.T
        values, turn = np.linalg.eigh(inside)
        variances = np.maximum(variances, (1 + SMALLEST) * model.noise)
        values = np.maximum(values + model.noise, 0.0)
        return replace(self, U=U, variances=variances, others=others @ turn, other_variances=values, noise=model.noise)

    def __call__(self, gradient: Array) -> Array:
        """Inverse curvature times a gradient of l (d k + d + 1)."""
        k, n = self.U.shape[1], max(1.0, float(self.seen[self.seen > 0].mean()))
        g, weights = Model.of(gradient, k), 1 / np.sqrt(np.maximum(self.seen, 1.0))[:, None]
        inside, outside = self.U.T @ g.W, weights * self._without(g.W)
        known = self.others.T @ outside
        outside = (outside - self.others @ known) * self._curved(np.array([self.noise])) + self.others @ (
            known * self._curved(self.other_variances)
        )
        W = self.U @ (self._turned(inside) / n) + self._without(weights * outside)
        along = self.variances * (self.U.T @ g.mean) / n
        mean = self.U @ along + self.noise * self._without(weights**2 * self._without(g.mean[:, None]))[:, 0]
        entries = max(1.0, float(self.seen.sum()) - self.rows * k)
        return Model(W, mean * self.free_mean, 2 * g.log_noise / entries).flat()

    def _without(self, A: Array) -> Array:
        """What A (d x m) has outside the components: there the likelihood is far steeper, and must not be met by chance."""
        return A - self.U @ (self.U.T @ A)

    def _curved(self, others: Array) -> Array:
        """s lambda_i / (lambda_i - lambda_j) for components i and directions j (m x k)."""
        gaps = np.maximum(self.variances - others[:, None], LEAST_CURVATURE * self.variances)
        return np.asarray(self.noise * self.variances / gaps)

    def _turned(self, inside: Array) -> Array:
        """Within the components (k x k); what only turns W within itself changes nothing, and is left out."""
        a = np.sqrt(self.variances - self.noise)
        lengths = a**2 + a[:, None] ** 2
        symmetric = inside * a + (inside * a).T
        return np.asarray(np.outer(self.variances, self.variances) * a / lengths**2 * symmetric)
